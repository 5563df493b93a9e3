"""Who sends a message and follows its run hears every event of it, the same as who reads the log, and reads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amoxi_py import agent
from amoxi_py.domain.event import Event
from amoxi_py.domain.principal import Principal
from amoxi_py.engine import hub as hubs
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.hub import Hub
from amoxi_py.errors import Conflict, InvalidRequest
from amoxi_py.models.script import reply
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
WORDS = ("It is ", "on its ", "way.")


@agent
class Talker:
    """You talk."""


class Counted:
    """A store that counts the reads of its log, and looks for logs."""

    def __init__(self, folder: Path) -> None:
        self._store = SqliteStore(folder, synchronous="OFF")
        self.reads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("read_log", "find_log"):
            self.reads.append(name)
        return getattr(self._store, name)


async def told(stream: Any) -> list[tuple[int, str, Any]]:
    return [seen(event) async for batch in stream for event in batch]


def seen(event: Event) -> tuple[int, str, Any]:
    return event.seq, event.type.label, event.data


def test_a_run_is_heard_from_its_first_event_to_its_last_without_a_read(tmp_path: Path, with_engine: Any) -> None:
    store = Counted(tmp_path)

    async def story(engine: Engine) -> None:
        conversation: str | None = None
        for number in range(3):  # in one conversation, whose log does not begin with the run
            submitted, stream = await engine.submit_followed(
                "talker", f"hello {number}", principal=ANN, conversation_id=conversation
            )
            conversation = submitted.run.conversation_id
            heard = await told(stream)
            assert store.reads == []
            assert [kind for _, kind, _ in heard][:3] == ["run.queued", "message.completed", "run.started"]
            assert heard[-1][1] == "run.completed"
            assert engine._hub.readers == 0
            read = await told(await engine.follow(ANN, run_id=submitted.run.id))
            assert [one for one in heard if one[1] != "message.delta"] == read
            store.reads.clear()

    with_engine(store, [Talker], [reply(*WORDS)] * 3, story)


def test_what_the_follower_could_not_keep_is_read(
    tmp_path: Path, with_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "_BUFFERED", 2)
    store = Counted(tmp_path)

    async def story(engine: Engine) -> None:
        submitted, stream = await engine.submit_followed("talker", "hello", principal=ANN)
        await engine.wait(submitted.run.id, ANN, timeout=30)
        heard = await told(stream)
        assert store.reads.count("read_log") == 1
        assert heard == await told(await engine.follow(ANN, run_id=submitted.run.id))

    with_engine(store, [Talker], [reply(*WORDS)], story)


def test_a_repeated_key_gives_the_earlier_run_and_its_whole_story(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        first, stream = await engine.submit_followed("talker", "hello", principal=ANN, idempotency_key="k")
        heard = await told(stream)
        again, stream = await engine.submit_followed("talker", "hello", principal=ANN, idempotency_key="k")
        assert (again.run.id, again.created) == (first.run.id, False)
        assert await told(stream) == [one for one in heard if one[1] != "message.delta"]
        assert engine._hub.readers == 0

    with_engine(SqliteStore(tmp_path, synchronous="OFF"), [Talker], [reply(*WORDS)], story)


def test_who_is_refused_or_never_listens_leaves_nobody_behind(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        submitted, stream = await engine.submit_followed("talker", "hello", principal=ANN, idempotency_key="k")
        with pytest.raises(Conflict):
            await engine.submit_followed("talker", "other", principal=ANN, idempotency_key="k")
        with pytest.raises(InvalidRequest):
            await engine.submit_followed("talker", " ", principal=ANN)
        await engine.wait(submitted.run.id, ANN, timeout=30)
        stream.close()
        stream.close()
        assert engine._hub.readers == 0
        assert engine._hub._expected == {}

    with_engine(SqliteStore(tmp_path, synchronous="OFF"), [Talker], [reply(*WORDS)], story)


def test_a_failure_after_the_run_was_told_takes_the_follower_away() -> None:
    hub = Hub()
    first = Event(conversation=1, seq=1, run=7, run_id="run_7", type=hubs.EventType.RUN_QUEUED, stored="{}")

    def submit() -> None:
        with hub.expecting("run_7") as follower:
            hub.publish([first])
            assert follower.first is first
            raise RuntimeError("the answer is lost")

    with pytest.raises(RuntimeError):
        submit()
    assert hub.conversations() == set()
