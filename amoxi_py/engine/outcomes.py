"""What the tries of a tool come to: its result, the text for the model, the log, and whether it is tried again."""

from __future__ import annotations

import logging
import random
from typing import Any

from msgspec.structs import replace

from amoxi_py.declare.definitions import ToolDefinition
from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.domain.settle import HALF_DONE_TEXT
from amoxi_py.domain.tool_call import CallStatus, Effect
from amoxi_py.engine.attempts import Outcome, Raised, TimedOut
from amoxi_py.engine.steps import error_text
from amoxi_py.errors import StepError, ToolError, ValueNotStorable

log = logging.getLogger("amoxi_py.tools")

_RETRY = RetryPolicy(first=0.2, longest=5.0)


def result_of(tool: ToolDefinition, value: Any) -> tuple[CallStatus, Any]:
    """Return how a call is settled whose code gave this value, and with which plain JSON values."""
    try:
        return CallStatus.DONE, tool.encode_result(value)
    except ValueNotStorable as error:
        log.error("the result of %s cannot be stored: %s", tool.where, error)
        done = "" if tool.effect.repeatable else " The action itself was done; do not repeat it."
        return CallStatus.FAILED, f"The tool gave a result that cannot be stored: {error}.{done}"


def tell(outcome: Raised | TimedOut, place: str) -> None:
    """Log a try that came to nothing. What a `ToolError` says is for the model, and may hold anything."""
    if isinstance(outcome, TimedOut):
        log.error("%s took longer than %g s", place, outcome.seconds)
        return
    kind = type(outcome.error).__qualname__
    if _text_for_model(outcome.error) is not None:
        log.info("%s raised %s", place, kind)
    else:
        log.error("%s raised %s", place, kind, exc_info=outcome.error)


def pause_before_retry(tool: ToolDefinition, outcome: Outcome, failures: int) -> float | None:
    """Return the seconds before a tool is tried again that had failed so often before, or None when it is not."""
    if isinstance(outcome, Raised) and _text_for_model(outcome.error) is not None:
        return None
    policy = replace(_RETRY, tries=tool.retries + 1)
    return retry_delay(policy, failures + 1, chance=random.random())  # noqa: S311 - spreads tries


def failure_text(tool: ToolDefinition, outcome: Outcome) -> str:
    """Return what the model is told of a call that failed."""
    if isinstance(outcome, TimedOut):
        stopped = f"The tool took longer than {outcome.seconds:g} s and was stopped."
        return stopped if tool.effect is Effect.READ_ONLY else f"{stopped} {HALF_DONE_TEXT}"
    assert isinstance(outcome, Raised)
    return (_text_for_model(outcome.error) or "").strip() or "The tool failed."


def _text_for_model(error: BaseException) -> str | None:
    """Return what an error was raised to tell the model, or None."""
    if isinstance(error, ToolError):
        return error_text(error)
    return error.text if isinstance(error, StepError) and error.for_model else None
