"""`@on`: declares that a function is called for events of the log; the function itself stays as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from amoxi_py.declare.marks import LocalNames, local_names, set_mark

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class OnMark:
    """What a handler was declared with, as it was written; it is checked when the app is built."""

    events: tuple[Any, ...]
    name: str | None = None
    timeout: float | None = 60.0
    names: LocalNames


def on(*events: str, name: str | None = None, timeout: float | None = 60.0) -> Callable[[F], F]:
    """Have a function, or a method of a `@singleton`, called for each event of these types, at least once.

    It takes the event (a `RunEvent`) and, by type, what tools and constructors may ask for. One worker of all calls it,
    from the log: also for what happened while no process ran. The events of a conversation come in their order. When
    it raises it is called again later, with growing pauses; an event that failed ten times is passed over, with an
    error in the log.

    Args:
        events: Types such as `"approval.requested"`, `"run.failed"`; all but `message.delta`.
        name: Under which it is remembered what has been handled; default the function's. A new name begins with what
            happens from then on.
        timeout: Seconds for one try; None for no end.

    Raises:
        TypeError: it is used without parentheses. Mistakes in options are told when the app starts, all together.
    """
    if len(events) == 1 and callable(events[0]):
        raise TypeError('@on takes the types of events: @on("run.failed")')
    mark = OnMark(events=events, name=name, timeout=timeout, names=local_names(sys._getframe(1)))

    def decorate(function: F) -> F:
        set_mark(function, mark, "on")
        return function

    return decorate
