"""What a tool does with files: `ctx.save_file` and `ctx.open_file`, in async tools and in threads."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import File, SyncOpenFile, SyncToolContext, ToolContext, ToolError, agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.files import PIECE
from amoxi_py.errors import InvalidRequest, NotFound
from amoxi_py.models.script import call
from amoxi_py.ports.chat_model import ModelRequest, UserMessage
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing import Interrupted, tool_context

ANN, BOB = Principal(id="user:ann"), Principal(id="user:bob")
TABLE = b"name,count\nbolt,3\nnut,4\n"
told: list[Any] = []


@tool(read_only=True)
def add_up(file_id: str, ctx: SyncToolContext) -> int:
    """Add up."""
    with ctx.open_file(file_id) as opened:
        told.append(opened.file)
        return sum(int(row["count"]) for row in csv.DictReader(io.TextIOWrapper(opened, "utf-8")))


@tool(read_only=True)
async def count_bytes(file_id: str, ctx: ToolContext) -> int:
    """Count."""
    opened = await ctx.open_file(file_id)
    assert await opened.read(4) == TABLE[:4]
    return 4 + sum([len(piece) async for piece in opened])


@tool(idempotent=True)
async def draw(ctx: ToolContext) -> File:
    """Draw."""
    return await ctx.save_file("chart.png", b"png", media_type="image/png")


@tool(idempotent=True)
def write_down(ctx: SyncToolContext) -> str:
    """Write down."""
    return ctx.save_file("notes.txt", (part for part in (b"a", b"b"))).id


@tool(idempotent=True, retries=1)
async def fail_once(ctx: ToolContext) -> str:
    """Fail once."""
    file = await ctx.save_file("try.txt", str(ctx.attempt).encode())
    if ctx.attempt == 1:
        raise RuntimeError("now")
    return file.id


@tool(read_only=True)
def read_whole(file_id: str, how: str, ctx: SyncToolContext) -> int:
    """Read a file."""
    with ctx.open_file(file_id) as opened:
        if how == "text":
            return len(io.TextIOWrapper(opened, "utf-8").read())
        return len(opened.read() if how == "all" else opened.read(10 * PIECE))


@agent(tools=[read_whole])
class Reader:
    """You read."""


@agent(tools=[add_up, count_bytes, draw, write_down, fail_once])
class Analyst:
    """You look at numbers."""


async def of_bytes(content: bytes) -> AsyncIterator[bytes]:
    yield content


def look_at_what_is_named(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return [call(name, file_id=last.text) for name in ("add_up", "count_bytes")]
    return "Done."


def test_a_tool_reads_the_askers_file_in_pieces_or_as_a_file_object(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Any) -> list[Any]:
        mine = await engine.files.add(ANN, "table.csv", None, of_bytes(TABLE))
        foreign = await engine.files.add(BOB, "table.csv", None, of_bytes(TABLE))
        results = []
        for stored in (mine, foreign):
            run = (await engine.submit("analyst", stored.file.id, principal=ANN, files=(mine.file.id,))).run
            await engine.wait(run.id, ANN, timeout=60)
            messages = (await engine.read_conversation(run.conversation_id, ANN)).messages.items
            results.append([one.result for one in messages[1].calls])
        assert told == [mine.file]
        return results

    told.clear()
    mine, foreign = with_engine(SqliteStore(tmp_path), [Analyst], look_at_what_is_named, story)
    assert mine == ["7", str(len(TABLE))]
    assert [result[:24] for result in foreign] == ["\"There is no file 'file_"] * 2, "somebody else's is an unknown one"


def test_text_is_read_in_whole_pieces_of_a_file_and_not_in_those_it_is_decoded_in() -> None:
    asked: list[int] = []

    class Raw(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            asked.append(len(buffer))
            buffer[:] = b"x" * len(buffer)
            return len(buffer) if len(asked) < 5 else 0

    known = File(id="file_1", name="long.txt", media_type="text/plain", size=4 * PIECE)
    text = io.TextIOWrapper(SyncOpenFile(known, Raw(), PIECE), "utf-8")
    assert len(text.read(3 * PIECE + 1)) == 3 * PIECE + 1
    assert asked == [PIECE] * 4


def test_a_file_that_is_read_whole_is_asked_for_in_pieces_that_are_worth_a_way_to_the_store(
    tmp_path: Path, with_engine: Any
) -> None:
    content = b"x" * (2 * PIECE + 5)
    asked: list[tuple[int, int]] = []

    class Counting(SqliteStore):
        async def read_file(self, file_id: str, principal: Principal, start: int, length: int, **more: Any) -> bytes:
            asked.append((start, length))
            return await super().read_file(file_id, principal, start, length, **more)

    async def story(engine: Any) -> None:
        file = (await engine.files.add(ANN, "long.bin", None, of_bytes(content))).file.id
        for how in ("all", "text", "large"):
            asked.clear()
            run = (await engine.submit("reader", f"{how} {file}", principal=ANN)).run
            await engine.wait(run.id, ANN, timeout=60)
            messages = (await engine.read_conversation(run.conversation_id, ANN)).messages.items
            assert messages[1].calls[0].result == str(len(content)), how
            assert asked == [(0, PIECE), (PIECE, PIECE), (2 * PIECE, 5)], how

    def read_what_is_named(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            how, file_id = last.text.split()
            return call("read_whole", file_id=file_id, how=how)
        return "Done."

    with_engine(Counting(tmp_path), [Reader], read_what_is_named, story)


def test_what_tools_save_is_shown_with_the_answer_and_a_second_try_saves_nothing_new(
    tmp_path: Path, with_engine: Any
) -> None:
    script = {"go": [[call("draw"), call("write_down"), call("fail_once")], "Here it is.", "More."]}

    async def story(engine: Any) -> Any:
        run = (await engine.submit("analyst", "go", principal=ANN)).run
        await engine.wait(run.id, ANN, timeout=60)
        messages = (await engine.read_conversation(run.conversation_id, ANN)).messages.items
        contents = {}
        for file_id in messages[-1].files:
            stored = await engine.files.get(file_id, ANN)
            contents[stored.file.name] = b"".join([part async for part in engine.files.read(stored, ANN)])
        await engine.erase(run.conversation_id, ANN)
        with pytest.raises(NotFound):
            await engine.files.get(messages[-1].files[0], ANN)
        return messages, contents

    messages, contents = with_engine(SqliteStore(tmp_path), [Analyst], script, story)
    assert messages[1].files == ()
    assert contents == {"chart.png": b"png", "notes.txt": b"ab", "try.txt": b"1"}
    assert '"media_type":"image/png"' in messages[1].calls[0].result


def test_a_file_is_made_of_bytes_a_path_an_open_file_or_an_iterator(tmp_path: Path) -> None:
    (path := tmp_path / "in.bin").write_bytes(b"path")

    def generated() -> Iterator[bytes]:
        yield b"gene"
        yield bytearray(b"rated")

    ctx = tool_context(sync=True)
    for name, data in {"bytes": b"bytes", "path": path, "list": [b"li", b"st"], "generated": generated()}.items():
        assert ctx.save_file(name, data).size > 0
    with open(path, "rb") as file:
        ctx.save_file("../../open", file)
    assert {name: content.decode() for name, content in ctx.files_saved.items()} == {
        "bytes": "bytes", "path": "path", "list": "list", "generated": "generated", "open": "path",
    }  # fmt: skip
    for wrong in ("text", 5, ["text"]):
        with pytest.raises(TypeError, match="made of bytes"):
            ctx.save_file("wrong", wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="used before in this call"):
        ctx.save_file("path", b"again")
    with pytest.raises(ValueError, match="name must be a text"):
        ctx.save_file(" ", b"")


@pytest.mark.anyio
async def test_a_call_that_runs_again_finds_what_it_saved_and_a_stopped_one_saves_nothing() -> None:
    ctx = tool_context(files={"file_in": TABLE})
    first = await ctx.save_file("a.txt", b"first")
    again = ctx.again()
    assert await again.save_file("a.txt", of_bytes(b"second")) == first
    assert await (await again.open_file(first.id)).read() == b"first"
    assert await (await again.open_file("file_in")).read() == TABLE
    with pytest.raises(ToolError, match="There is no file 'file_none'"):
        await again.open_file("file_none")
    opened = await again.open_file("file_in")
    again.cancel()
    for stopped in (again.save_file("b.txt", b"b"), again.open_file("file_in"), opened.read()):
        with pytest.raises(Interrupted):
            await stopped
    assert (await tool_context().save_file("a.txt", b"other")).id != first.id, "each call has files of its own"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Any) -> None:
        with pytest.raises(InvalidRequest, match="larger than 10 bytes"):
            await engine.files.add(ANN, "x", None, of_bytes(b"x" * 11))
        await engine.files.add(ANN, "x", None, of_bytes(b"x" * 10))

    with_engine(SqliteStore(tmp_path), [Analyst], {}, story, max_file=10)
