"""The offline model itself: from a request to calls or an answer, always the same for the same request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import date

from msgspec.structs import replace

from amoxi_py.domain.usage import Usage
from amoxi_py.models.offline.answer import ASKING, ask_for, tell_abilities, tell_results
from amoxi_py.models.offline.arguments import Filled, count_values, fill
from amoxi_py.models.offline.choice import CONTENT_FITS, PATTERN_FITS, ToolWords, rank, read_message, read_tool
from amoxi_py.models.offline.result import result_arguments, without_result_tool
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelMessage,
    ModelRequest,
    Reply,
    TextDelta,
    ToolResult,
    ToolSpec,
    UserMessage,
)

_JOINTS = re.compile(r"\s*(?:[,;.!?]\s+|,?\s+)(?:and\s+then|and\s+also|and|then|also)\s+|[;.!?]\s+", re.IGNORECASE)
_FILE_NOTE = re.compile(r"\[file (\w+):")
_MOST_CALLS = 8
_MOST_PIECES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    tool: ToolSpec
    filled: Filled


class OfflineModel:
    """A model without a model: picks tools by keywords, fills arguments by the schema, tells the results.

    Args:
        pause: Seconds between the pieces of an answer, so that it streams as a real one does.
        today: The day that `today` and `tomorrow` in a message count from.
    """

    def __init__(self, *, pause: float = 0.015, today: Callable[[], date] = date.today) -> None:
        self._pause = pause
        self._today = today

    @property
    def name(self) -> str:
        return "offline"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        answer = self._answer(request)
        for piece in _pieces(answer.text):
            yield TextDelta(text=piece)
            await asyncio.sleep(self._pause)
        yield answer

    def _answer(self, request: ModelRequest) -> Reply:
        tools, result_tool = without_result_tool(request.tools)
        reply = self._answer_with(request, tools)
        if result_tool is None or reply.calls:
            return reply
        asked = max(place for place, message in enumerate(request.messages) if isinstance(message, UserMessage))
        results = [message for message in request.messages[asked + 1 :] if isinstance(message, ToolResult)]
        from_message = fill(result_tool, _text_of(request.messages[asked]), self._today, []).arguments
        arguments = result_arguments(result_tool, reply.text, results, from_message)
        number = len(request.messages)
        return replace(
            reply, calls=(CallRequest(id=f"offline_result_{number}", name=result_tool.name, arguments=arguments),)
        )

    def _answer_with(self, request: ModelRequest, tools: Sequence[ToolSpec]) -> Reply:
        asked = max(place for place, message in enumerate(request.messages) if isinstance(message, UserMessage))
        results = [message for message in request.messages[asked + 1 :] if isinstance(message, ToolResult)]
        if results:
            acting = frozenset(tool.name for tool in tools if not read_tool(tool).reading)
            return _say(tell_results(results, acting))
        plans = self._plan(request.messages[: asked + 1], tools)
        if not plans:
            return _say(tell_abilities(tools))
        for plan in plans:
            if plan.filled.missing:
                return _say(ask_for(plan.tool, plan.filled.missing))
        calls = tuple(
            CallRequest(
                id=f"offline_{asked}_{number}",
                name=plan.tool.name,
                arguments=json.dumps(plan.filled.arguments, ensure_ascii=False),
            )
            for number, plan in enumerate(plans[:_MOST_CALLS], 1)
        )
        return Reply(text="", calls=calls, usage=Usage(requests=1))

    def _plan(self, messages: Sequence[ModelMessage], tools: Sequence[ToolSpec]) -> list[_Plan]:
        words = [read_tool(tool) for tool in tools]
        text = _text_of(messages[-1])
        files = _files_of(messages)
        before = messages[-2] if len(messages) > 1 else None
        if isinstance(before, AssistantMessage) and before.text.startswith(ASKING):
            # an answer to the model's own question: it completes what was asked for before
            question = next(m for m in reversed(messages[:-1]) if isinstance(m, UserMessage))
            whole = self._plan_one(f"{question.text.rstrip('?!. ')} {text}", words, files)
            if whole and not whole[0].filled.missing:
                return whole
        parts = [part for part in _split(text) if part.strip()]
        if len(parts) > 1:
            separate = [self._plan_one(part, words, files, by_verb=True) for part in parts]
            if all(separate) and not any(plan.filled.missing for plans in separate for plan in plans):
                return [plan for plans in separate for plan in plans]
        return self._plan_one(text, words, files) or self._plan_one(text.replace(":", " "), words, files)

    def _plan_one(
        self, text: str, words: Sequence[ToolWords], files: Sequence[str], *, by_verb: bool = False
    ) -> list[_Plan]:
        filled = {tool.tool.name: fill(tool.tool, text, self._today, files) for tool in words}
        message = read_message(text)
        ranked = rank(message, words, {name: _fit(found) for name, found in filled.items()})
        if not ranked or (by_verb and message.first not in ranked[0].weights):
            return []
        tool = ranked[0].tool
        values = count_values(tool, text)
        if len(values) < 2:
            return [_Plan(tool=tool, filled=filled[tool.name])]
        (required,) = tool.parameters["required"]
        arguments = filled[tool.name].arguments
        return [
            _Plan(tool=tool, filled=Filled(arguments={**arguments, required: value}, missing=(), sure=True))
            for value in values
        ]


def _fit(filled: Filled) -> float:
    if filled.missing:
        return 0.0
    if filled.content:
        return CONTENT_FITS
    return PATTERN_FITS if filled.sure else 0.5 if filled.arguments else 0.2


def _split(text: str) -> list[str]:
    """Return the parts of a message that may ask for one thing each; after a colon or a quote nothing is parted."""
    command = re.split(r":\s|[\"“«]", text, maxsplit=1)[0]
    parts: list[str] = []
    start = 0
    for match in _JOINTS.finditer(command):
        parts.append(text[start : match.start()])
        start = match.end()
    return [*parts, text[start:]]


def _text_of(message: ModelMessage) -> str:
    return message.text if isinstance(message, UserMessage) else ""


def _files_of(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the ids of the files that were sent, the last message's first."""
    notes = [note for message in reversed(messages) if isinstance(message, UserMessage) for note in message.notes]
    return [found[1] for note in notes if (found := _FILE_NOTE.match(note))]


def _say(text: str) -> Reply:
    return Reply(text=text, usage=Usage(requests=1))


def _pieces(text: str) -> list[str]:
    words = re.findall(r"\S{1,40}\s*|\s+", text)
    size = max(2, -(-len(words) // _MOST_PIECES))
    return ["".join(words[start : start + size]) for start in range(0, len(words), size)]
