"""Results that are too long for a model: it gets their beginning, and reads on with the tool `read_result`."""

from __future__ import annotations

import codecs
import functools
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace as replaced
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import Field

from amoxi_py.declare.callee import Callee
from amoxi_py.declare.context import OpenFile, ToolContext
from amoxi_py.declare.definitions import AgentDefinition, Catalog, ToolDefinition
from amoxi_py.declare.ingredient import Wishes
from amoxi_py.declare.marks import LocalNames
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.tool import ToolMark
from amoxi_py.declare.tool_definition import define_tool
from amoxi_py.domain.encoding import encode_json, encode_json_unicode
from amoxi_py.domain.file import saved_file_id
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.engine.files import FilesOfCall
from amoxi_py.engine.journal import Journal
from amoxi_py.engine.results import settled_call
from amoxi_py.errors import InvalidRequest, ToolError
from amoxi_py.ports.chat_model import ModelMessage, ToolResult, ToolSpec

log = logging.getLogger("amoxi_py.tools")

READ_RESULT = "read_result"
_NOTE_LENGTH = 300
_PIECE = 64 * 1024
_NOTE = re.compile(r"\n\[cut: [0-9]+ of [0-9]+ bytes; the whole is in file_[0-9a-f]{32}, [^\n]*\]\Z")


async def settled_within(
    call: ToolCall,
    status: CallStatus,
    value: Any,
    limit: int,
    journal: Journal,
    files: Callable[[], FilesOfCall],
    *,
    direct: bool = False,
) -> ToolCall:
    """Return the call with its result; of a long one, its beginning with the name of the file that has all of it.

    Args:
        call: Whose result it is.
        status: How it ended; only what is done is worth a file.
        value: Plain JSON values.
        limit: The most characters of the result's JSON text.
        journal: Of the run that has the result, which is a child's when the call asked for that one.
        files: Gives where a long result is stored, under the call's id; a crash before the result is recorded leaves a
            file that is found again.
        direct: Whether a program called the tool, which has no `read_result`.
    """
    text = encode_json(value)
    if len(text) > limit and status is CallStatus.DONE and call.tool != READ_RESULT:
        place = replace(files(), saved=_for_nobody)  # it is for the model, not for the person
        value = await journal.persist(lambda: _set_aside(call, value, limit, place, direct))
        text = encode_json(value)
    return settled_call(call, status, value, limit, text)


async def _set_aside(call: ToolCall, value: Any, limit: int, files: FilesOfCall, direct: bool) -> Any:
    whole = value if isinstance(value, str) else encode_json_unicode(value)
    data = whole.encode()
    try:
        file = await files.save(aside_name(call.tool, value), "text/plain", _in_pieces(data))
    except InvalidRequest as error:  # larger than any file may be
        log.warning("the whole result of %r is not kept: %s", call.tool, error)
        return value
    head = fitting(whole, max(limit - _NOTE_LENGTH, 0))
    length = len(head.encode())
    way = f"which {READ_RESULT} reads from start={length} on"
    if direct:
        done = "" if call.effect is Effect.READ_ONLY else "; the action was done, do not repeat it"
        way = f"a file of the caller{done}"
    return f"{head}\n[cut: {length} of {len(data)} bytes; the whole is in {file.id}, {way}]"


def _for_nobody(_file_id: str) -> None:
    return None


def aside_name(tool: str, value: Any) -> str:
    """Return the name of the file of a tool's long result."""
    return f"result-of-{tool}.{'txt' if isinstance(value, str) else 'json'}"


def aside_files(calls: Iterable[ToolCall]) -> frozenset[str]:
    """Return the ids that files of these calls' long results have, if there are any; they are not for the person."""
    return frozenset(
        saved_file_id(call.id, f"result-of-{call.tool}.{ending}") for call in calls for ending in ("txt", "json")
    )


def fitting(text: str, limit: int) -> str:
    """Return the longest beginning of a text whose JSON text is not longer than `limit`; no character is split."""
    low, high = 0, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if len(encode_json(text[:middle])) <= limit:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def was_cut(message: ModelMessage) -> bool:
    """Whether a message is a result whose rest is in a file."""
    return isinstance(message, ToolResult) and _NOTE.search(message.content[-_NOTE_LENGTH:]) is not None


def with_reading(agent: AgentDefinition, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """Return the tools with `read_result` among them."""
    own = next((tool for tool in agent.own_tools if tool.name == READ_RESULT), None)
    if own is None or any(tool.name == READ_RESULT for tool in tools):
        return tools
    return (*tools, ToolSpec(name=own.name, description=own.description, parameters=own.parameters))


def with_read_result(catalog: Catalog, limit: int) -> Catalog:
    """Return the catalog with the tool in all of its agents, for pieces that fit the limit of results."""
    own = (_read_result_tool(limit),)
    agents = {name: replaced(agent, own_tools=own) for name, agent in catalog.agents.items()}
    return replaced(catalog, agents=agents)


@functools.lru_cache(maxsize=8)
def _read_result_tool(limit: int) -> ToolDefinition:
    async def read_result(  # noqa: D417 - a model reads this, and is not told of the context
        ctx: ToolContext,
        file_id: Annotated[str, Field(pattern="^file_[0-9a-f]{32}$")],
        start: Annotated[int, Field(ge=0)] = 0,
        find: str | None = None,
    ) -> str:
        """Read on in a tool's result that was too long and was cut.

        Args:
            file_id: The file that the cut result names.
            start: The byte to begin at.
            find: Begin at the next place at or after `start` where this text is.
        """
        file = await ctx.open_file(file_id)
        if not file.name.startswith("result-of-"):
            raise ToolError(f"The file {file_id!r} is not the result of a tool.")
        if find:
            start = await _find(file, find.encode(), start)
        return await _read(file, start, limit)

    mistakes = Mistakes()
    mark = ToolMark(read_only=True, expose=False, names=LocalNames())
    definition = define_tool(Callee(function=read_result), mark, mistakes, Wishes())
    mistakes.raise_if_any()
    return definition


async def _find(file: OpenFile, wanted: bytes, start: int) -> int:
    """Return the first place from `start` on where the bytes are."""
    file.seek(start)
    seen, place = b"", start
    while piece := await file.read(_PIECE):
        seen += piece
        found = seen.find(wanted)
        if found >= 0:
            return place + found
        kept = len(wanted) - 1
        place += max(len(seen) - kept, 0)
        seen = seen[len(seen) - kept :] if kept else b""
    raise ToolError(f"{wanted.decode()!r} does not occur in it from byte {start} on.")


async def _read(file: OpenFile, start: int, limit: int) -> str:
    """Return a piece of the text that fits the limit, with a line that says how to read on."""
    if start >= file.size:
        raise ToolError(f"It has {file.size} bytes, so there is nothing from byte {start} on.")
    file.seek(start)
    data = await file.read(min(limit, file.size - start))
    skipped = next((n for n, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)  # the rest of a split character
    text = codecs.getincrementaldecoder("utf-8")().decode(data[skipped:])
    text = fitting(text, max(limit - _NOTE_LENGTH, 1))
    begin = start + skipped
    end = begin + len(text.encode())
    more = f"; read on with start={end}" if end < file.size else ""
    return f"[bytes {begin} to {end} of {file.size}{more}]\n{text}"


async def _in_pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]
