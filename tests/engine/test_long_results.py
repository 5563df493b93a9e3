"""A result that is too long for a model is its beginning, and all of it is in a file that the model can read on in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import ToolContext, agent, tool
from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.asides import fitting
from amoxi_py.engine.engine import Engine
from amoxi_py.models.script import call
from amoxi_py.ports.chat_model import ModelRequest, ToolResult
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
LIMIT = 4096
ROWS = [{"row": n, "name": f"Ærøskøbing {n}", "emoji": "🎒"} for n in range(2000)]
RESULTS: dict[str, Any] = {
    "a text": "word " * 20_000,
    "rows": ROWS,
    "one line of wide letters": "🎒" * 20_000,
}


@tool(read_only=True)
async def export(what: str) -> Any:
    """Export everything.

    Args:
        what: Which result
    """
    return RESULTS[what]


@tool
async def keep(ctx: ToolContext) -> str:
    """Keep a file."""
    return (await ctx.save_file("plain.txt", b"mine")).id


@agent(tools=[export, keep], max_turns=200)
class Exporter:
    """You export."""


def last_result(request: ModelRequest) -> str:
    message = request.messages[-1]
    assert isinstance(message, ToolResult)
    return message.content


def reads_all(what: str) -> tuple[Any, list[str], list[ModelRequest]]:
    """Return a script that exports and then reads on until the end, with the texts that it read."""
    pieces: list[str] = []
    requests: list[ModelRequest] = []

    def script(request: ModelRequest) -> Any:
        requests.append(request)
        results = [message for message in request.messages if isinstance(message, ToolResult)]
        if not results:
            return call("export", what=what)
        text = results[-1].content
        if len(results) == 1:
            head, _, note = text.rpartition("\n[cut: ")
            pieces.append(head)
            file_id = note.split("the whole is in ")[1].split(",")[0]
            return call("read_result", file_id=file_id, start=int(note.split("start=")[1].split(" ")[0]))
        said, _, piece = text.partition("\n")
        pieces.append(piece)
        if "read on with start=" not in said:
            return "I have read all of it."
        start = int(said.split("start=")[1].rstrip("]"))
        return call("read_result", file_id=json.loads(request.messages[-2].calls[0].arguments)["file_id"], start=start)  # type: ignore[union-attr]

    return script, pieces, requests


@pytest.mark.parametrize("what", RESULTS)
def test_a_model_reads_a_long_result_to_its_end_piece_by_piece(what: str, tmp_path: Path, with_engine: Any) -> None:
    script, pieces, requests = reads_all(what)

    async def story(engine: Engine) -> Any:
        run = (await engine.submit("exporter", "Export", principal=ANN)).run
        ended = await engine.wait(run.id, ANN, timeout=20)
        page = await engine.read_conversation(run.conversation_id, ANN)
        return ended, page.messages.items

    ended, messages = with_engine(SqliteStore(tmp_path), [Exporter], script, story, max_result=LIMIT)
    assert ended.output == "I have read all of it.", ended.error
    whole = RESULTS[what]
    expected = whole if isinstance(whole, str) else json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    assert "".join(pieces) == expected
    assert [tool.name for tool in requests[0].tools] == ["export", "keep"], "not offered before it is of use"
    assert [tool.name for tool in requests[1].tools] == ["export", "keep", "read_result"]
    stored = [call.result for message in messages for call in message.calls]
    assert all(len(result) <= LIMIT for result in stored)
    assert all(not message.files for message in messages), "the file is the model's, not something for the person"


def answers(tmp_path: Path, with_engine: Any, *calls: Any, agents: Any = None, **settings: Any) -> list[str]:
    """Return the results of calls that are made one after the other; `FILE` in arguments is the file of the first."""
    told: list[str] = []

    def script(request: ModelRequest) -> Any:
        if isinstance(request.messages[-1], ToolResult):
            told.append(request.messages[-1].content)
        if len(told) == len(calls):
            return "Done."
        name, arguments = calls[len(told)]
        if arguments.get("file_id") == "FILE":
            arguments = {**arguments, "file_id": told[0].split("the whole is in ")[-1].split(",")[0]}
        return call(name, **arguments)

    async def story(engine: Engine) -> Any:
        run = (await engine.submit("exporter", "Export", principal=ANN)).run
        return await engine.wait(run.id, ANN, timeout=20)

    ended = with_engine(SqliteStore(tmp_path), agents or [Exporter], script, story, max_result=LIMIT, **settings)
    assert ended.output == "Done.", ended.error
    return told


def test_a_model_finds_a_place_in_a_long_result(tmp_path: Path, with_engine: Any) -> None:
    first, found, missing, beyond = answers(
        tmp_path,
        with_engine,
        ("export", {"what": "rows"}),
        ("read_result", {"file_id": "FILE", "find": '"name":"Ærøskøbing 1500"'}),
        ("read_result", {"file_id": "FILE", "find": "Atlantis"}),
        ("read_result", {"file_id": "FILE", "start": 10**9}),
    )
    assert len(encode_json(first)) <= LIMIT
    assert found.partition("\n")[2].startswith('"name":"Ærøskøbing 1500"')
    assert missing == "'Atlantis' does not occur in it from byte 0 on."
    assert "there is nothing from byte 1000000000 on" in beyond


def test_only_results_of_tools_are_read_and_only_the_principals_own(tmp_path: Path, with_engine: Any) -> None:
    own, other = answers(
        tmp_path,
        with_engine,
        ("keep", {}),
        ("read_result", {"file_id": "file_" + "0" * 32}),
    )
    assert own.startswith("file_")
    assert "file_0000" in other


def test_a_file_that_is_no_result_is_not_read(tmp_path: Path, with_engine: Any) -> None:
    kept: list[str] = []

    def script(request: ModelRequest) -> Any:
        if isinstance(request.messages[-1], ToolResult):
            kept.append(request.messages[-1].content)
        return [call("keep"), call("read_result", file_id=kept[0] if kept else ""), "Done."][len(kept)]

    async def story(engine: Engine) -> Any:
        run = (await engine.submit("exporter", "Keep", principal=ANN)).run
        return await engine.wait(run.id, ANN, timeout=20)

    with_engine(SqliteStore(tmp_path), [Exporter], script, story)
    assert "is not the result of a tool" in kept[1]


def test_a_result_that_is_larger_than_any_file_is_cut(tmp_path: Path, with_engine: Any) -> None:
    (told,) = answers(tmp_path, with_engine, ("export", {"what": "a text"}), max_file=1000)
    assert "[cut: this result had" in told


def test_a_tool_of_the_apps_own_named_the_same_is_the_one_that_is_called(tmp_path: Path, with_engine: Any) -> None:
    @tool(read_only=True)
    def read_result(file_id: str) -> str:
        """Read.

        Args:
            file_id: The file
        """
        return f"my own reading of {file_id[:5]}"

    @agent(tools=[export, read_result])
    class Exporter:
        """You export."""

    _, own = answers(
        tmp_path,
        with_engine,
        ("export", {"what": "a text"}),
        ("read_result", {"file_id": "FILE"}),
        agents=[Exporter],
    )
    assert own == "my own reading of file_"


@pytest.mark.parametrize("text", ["", "plain", "é" * 50, "🎒" * 50, 'a"b\\' * 20])
def test_a_beginning_fits_and_is_the_longest_that_does(text: str) -> None:
    for limit in (0, 2, 3, 13, 40, 1000):
        head = fitting(text, limit)
        assert text.startswith(head)
        assert not head or len(encode_json(head)) <= limit
        assert head == text or len(encode_json(text[: len(head) + 1])) > limit


@agent(expose=False)
class Teller:
    """You tell long stories."""


@agent(agents=[Teller])
class Editor:
    """You have stories told."""


def test_a_long_answer_of_an_agent_that_is_asked_is_read_on_in_like_a_tools_result(
    tmp_path: Path, with_engine: Any
) -> None:
    story_told = "".join(f"chapter {n}. " for n in range(2000))
    told: list[str] = []

    def script(request: ModelRequest) -> Any:
        if request.instructions == "You tell long stories.":
            return story_told
        if len(request.messages) == 1:
            return call("ask_teller", message="Tell")
        told.append(last_result(request))
        if len(told) == 1:
            file_id = told[0].split("the whole is in ")[1].split(",")[0]
            return call("read_result", file_id=file_id, find="chapter 1999")
        return "Done."

    async def story(engine: Engine) -> Any:
        run = (await engine.submit("editor", "Tell", principal=ANN)).run
        ended = await engine.wait(run.id, ANN, timeout=20)
        page = await engine.read_conversation(run.conversation_id, ANN)
        return ended, page.messages.items

    ended, messages = with_engine(SqliteStore(tmp_path), [Editor, Teller], script, story, max_result=LIMIT)
    assert ended.output == "Done.", ended.error
    assert told[0].startswith("chapter 0. chapter 1. ")
    assert "chapter 1999." in told[1]
    assert all(not message.files for message in messages), "the file is the model's, not something for the person"
