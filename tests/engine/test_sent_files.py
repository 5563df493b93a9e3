"""Which of the files that people send a model is shown: pictures, PDFs and texts, within limits, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from amoxi_py import agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.retry import RetryPolicy
from amoxi_py.engine.sent_files import LARGEST, LARGEST_TOGETHER
from amoxi_py.models.script import call, fail
from amoxi_py.ports.chat_model import ModelRequest, UserMessage
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
MIB = 1024 * 1024


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


@agent(tools=[look])
class Helper:
    """Help."""


def seen_in(request: ModelRequest) -> list[list[str]]:
    return [[file.name for file in one.files] for one in request.messages if isinstance(one, UserMessage)]


def test_pictures_pdfs_and_texts_are_shown_with_their_notes_and_everything_else_is_only_noted(
    with_engine: Any, tmp_path: Path
) -> None:
    requests: list[ModelRequest] = []
    bring = {
        "a.png": b"\x89PNG\r\n\x1a\n",
        "b.pdf": b"%PDF-1.7",
        "c.csv": b"a,b\n",
        "d.zip": b"PK",
        "long.txt": b"x" * 2000,
        "e.json": b"{}",
        "large.png": b"\x89PNG\r\n\x1a\n" + b"0" * LARGEST,
        "empty.txt": b"",
    }

    def script(request: ModelRequest) -> Any:
        requests.append(request)
        return [call("look")] if len(requests) == 1 else ["Done."]

    async def story(engine: Any) -> None:
        ids = [(await engine.files.add(ANN, name, None, once(data))).file.id for name, data in bring.items()]
        run = (await engine.submit("helper", "Look.", principal=ANN, files=tuple(ids))).run
        assert (await engine.wait(run.id, ANN, timeout=60)).status == "completed"

    with_engine(SqliteStore(tmp_path), [Helper], script, story, max_result=1000)
    [names] = seen_in(requests[0])
    assert names == ["a.png", "b.pdf", "c.csv", "e.json"]
    first, again = requests[0].messages[0], requests[1].messages[0]
    assert isinstance(first, UserMessage)
    assert [file.data for file in first.files] == [bring[name] for name in names]
    assert len(first.notes) == len(bring)
    assert first is again  # read once, and told again the same way


def test_the_newest_files_are_shown_as_far_as_one_request_can_hold_them_and_a_deleted_one_is_a_note(
    with_engine: Any, tmp_path: Path
) -> None:
    requests: list[ModelRequest] = []
    picture = b"\x89PNG\r\n\x1a\n" + b"0" * (4 * MIB)

    def script(request: ModelRequest) -> Any:
        requests.append(request)
        return ["Done."]

    async def story(engine: Any) -> None:
        conversation = None
        ids = []
        for number in range(6):
            stored = await engine.files.add(ANN, f"{number}.png", None, once(picture + bytes([number])))
            ids.append(stored.file.id)
            if number == 5:
                await engine.files.delete(ids[4], ANN)
            run = (
                await engine.submit(
                    "helper", "Look.", principal=ANN, conversation_id=conversation, files=(stored.file.id,)
                )
            ).run
            conversation = run.conversation_id
            assert (await engine.wait(run.id, ANN, timeout=20)).status == "completed"

    with_engine(SqliteStore(tmp_path), [Helper], script, story)
    assert LARGEST_TOGETHER // len(picture) == 4
    assert seen_in(requests[3]) == [["0.png"], ["1.png"], ["2.png"], ["3.png"]]
    assert seen_in(requests[5]) == [[], ["1.png"], ["2.png"], ["3.png"], [], ["5.png"]]
    deleted = [one for one in requests[5].messages if isinstance(one, UserMessage)][4]
    assert deleted.notes[0].endswith(": deleted]")


def test_files_of_somebody_else_are_never_read(with_engine: Any, tmp_path: Path) -> None:
    requests: list[ModelRequest] = []

    def script(request: ModelRequest) -> Any:
        requests.append(request)
        return ["Done."]

    async def story(engine: Any) -> None:
        bob = Principal(id="user:bob")
        theirs = (await engine.files.add(bob, "secret.txt", None, once(b"secret"))).file.id
        mine = (await engine.files.add(ANN, "mine.txt", None, once(b"mine"))).file.id
        store: Any = engine.files.store
        assert await store.find_files([theirs], ANN) == ()
        run = (await engine.submit("helper", "Look.", principal=ANN, files=(mine,))).run
        await engine.wait(run.id, ANN, timeout=60)

    with_engine(SqliteStore(tmp_path), [Helper], script, story)
    assert seen_in(requests[0]) == [["mine.txt"]]


def test_a_request_that_is_tried_again_says_how_many_tries_have_failed(with_engine: Any, tmp_path: Path) -> None:
    failures: list[int] = []

    def script(request: ModelRequest) -> Any:
        failures.append(request.failures)
        return fail(503) if len(failures) < 3 else (call("look") if len(failures) == 3 else "Done.")

    async def story(engine: Any) -> None:
        run = (await engine.submit("helper", "Look.", principal=ANN)).run
        assert (await engine.wait(run.id, ANN, timeout=20)).status == "completed"

    policy = RetryPolicy(first=0.001, longest=0.002)
    with_engine(SqliteStore(tmp_path), [Helper], script, story, model_retry=policy)
    assert failures == [0, 1, 2, 0]
