"""`@step`: options of a function that is used as a step of a tool."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__amoxi_step__"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """How often a failed step is tried again, and how many seconds one try may take."""

    retries: int = 0
    timeout: float | None = None


_NO_OPTIONS = StepOptions()


def step(*, retries: int = 0, timeout: float | None = None) -> Callable[[F], F]:
    """Give a function options for the times when it runs as a step; it stays callable as it was.

    Args:
        retries: Extra tries after the first one failed.
        timeout: Seconds that one try may take.

    Raises:
        ValueError: a value that no step can have.
    """
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ValueError(f"@step(retries={retries!r}): retries must be a whole number from 0 up")
    if timeout is not None and not is_seconds(timeout):
        raise ValueError(f"@step(timeout={timeout!r}): timeout must be seconds above 0")
    options = StepOptions(retries=retries, timeout=timeout)

    def mark(function: F) -> F:
        setattr(function, _ATTRIBUTE, options)
        return function

    return mark


def step_options(function: Callable[..., Any]) -> StepOptions:
    """Return the options of a function, a method or a partial of one; defaults when it has none."""
    found: Any = function
    while True:
        options = getattr(found, _ATTRIBUTE, None)
        if isinstance(options, StepOptions):
            return options
        if isinstance(found, functools.partial):
            found = found.func
        elif isinstance(found, MethodType):
            found = found.__func__
        else:
            return _NO_OPTIONS


def is_seconds(value: object) -> bool:
    """Whether a value is a finite number of seconds above 0."""
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value) and value > 0
