"""Structured results: the tool by which a model gives one, and what becomes of a reply of an agent that must give one.

A result that fits ends the run: the message that is stored has its text, or the result as JSON, and no call. Anything
else is an ordinary failed call of the tool, so that every provider takes it back in a history.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from amoxi_py.declare.definitions import ResultForm
from amoxi_py.declare.structured_result import RESULT_TOOL
from amoxi_py.domain.encoding import encode_json, encode_json_unicode
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunFailure
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.errors import ArgumentsInvalid
from amoxi_py.ports.chat_model import CallRequest, Reply, ToolSpec

log = logging.getLogger("amoxi_py.runs")

MOST_MISSES = 3
INVALID = RunFailure(code="result_invalid", message="the agent did not give an answer of the form that is asked for")
_TEXT_IN_PLACE = CallRequest(id="", name=RESULT_TOOL, arguments="")
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def result_tool(form: ResultForm) -> ToolSpec:
    """Return the tool as the model sees it."""
    told = f"Give the final result, alone and once, when everything else is done. {form.description}".strip()
    return ToolSpec(name=RESULT_TOOL, description=told, parameters=form.parameters)


def take_result(form: ResultForm, reply: Reply) -> tuple[Reply, str | None]:
    """Return the reply as it is to be recorded, and the result that it gives as JSON text, or None.

    A reply that gives one has no calls any more. Text that holds none becomes a call of the tool that fails, so that
    the model is told to make it.
    """
    if any(call.name != RESULT_TOOL for call in reply.calls):
        return reply, None
    texts = [call.arguments for call in reply.calls] or list(_objects_in(reply.text))
    for text in texts if not (reply.cut and reply.calls) else []:
        try:
            value = _read(form, text)
        except ArgumentsInvalid:
            continue
        said = reply.text if reply.text.strip() else encode_json_unicode(value)
        return replace(reply, text=said, calls=(), kept=reply.kept if not reply.calls else None), encode_json(value)
    return (reply, None) if reply.calls else (replace(reply, calls=(_TEXT_IN_PLACE,), kept=None), None)


def refusal(form: ResultForm, request: CallRequest, reply: Reply) -> str:
    """Return what the model is told of a call of the tool that gives no result."""
    if any(call.name != RESULT_TOOL for call in reply.calls):
        return (
            f"This was not taken as the result, because the reply has other calls too. Look at their results, "
            f"then call {RESULT_TOOL} alone."
        )
    if request is _TEXT_IN_PLACE:
        return f"The answer was a text. Give the result by a call of {RESULT_TOOL}, with the result as its arguments."
    if reply.cut:
        return f"The answer was cut at its length limit. Call {RESULT_TOOL} again, with less in it."
    try:
        _read(form, request.arguments)
    except ArgumentsInvalid as error:
        return f"The result does not fit: {error}. Correct this, and call {RESULT_TOOL} again."
    return f"Another call of {RESULT_TOOL} gave the result."


def missed_too_often(messages: Sequence[Message]) -> bool:
    """Whether the last replies of a run, one after the other, gave only results that do not fit."""
    last = messages[-MOST_MISSES:]
    return len(last) == MOST_MISSES and all(_missed(message) for message in last)


def _missed(message: Message) -> bool:
    return bool(message.calls) and all(
        call.tool == RESULT_TOOL and call.status is CallStatus.FAILED for call in message.calls
    )


def _read(form: ResultForm, text: str) -> object:
    try:
        return form.read(text)
    except ArgumentsInvalid:
        raise
    except Exception as error:  # a validator of the app itself
        log.exception("a validator of %s failed", form.where)
        raise ArgumentsInvalid((("", f"a check of it failed ({type(error).__qualname__})"),)) from error


def _objects_in(text: str) -> Iterator[str]:
    """Give what may be a JSON object in a text: all of it, what is fenced as code, what stands between braces."""
    yield text
    yield from (found[1] for found in _FENCED.finditer(text))
    start = text.find("{")
    if start >= 0:
        try:
            _, end = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            return
        yield text[start:end]
