"""What a line of the log is about: the request, run, call, conversation and principal in whose course it is written.

They go along with the current task, and with every task and thread that comes of it, as context variables do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})
_facts: ContextVar[Mapping[str, str]] = ContextVar("amoxi_log_facts", default=_NOTHING)


def about(**facts: str) -> None:
    """Say what the current task is about from now on: `request_id`, `run_id`, `call_id` and so on.

    A run begins without a call: the one in whose course it was asked for is of another run.
    """
    known = dict(_facts.get())
    if "run_id" in facts:
        known.pop("call_id", None)
    _facts.set({**known, **facts})


@contextmanager
def about_alone(**facts: str) -> Iterator[None]:
    """Let a block be about these alone, whatever the code around it is about."""
    before = _facts.set(facts)
    try:
        yield
    finally:
        _facts.reset(before)


def log_facts() -> Mapping[str, str]:
    """Return what the current task is about."""
    return _facts.get()
