"""Keeps an exit that an app's code asks for, `sys.exit()` or a `KeyboardInterrupt`, from ending the server.

asyncio hands these two on to the event loop, which stops on them, from whatever task they come. A tool's own code is
watched where it is called; the tasks that it makes are nobody's, so a task of a run is made by the rule here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any

_EXITS = (SystemExit, KeyboardInterrupt)
_in_run: ContextVar[bool] = ContextVar("amoxi_in_run", default=False)


class ExitAsked(BaseException):
    """What an exit becomes that ends a task of a run; it is raised from the exit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a task of the app ended by {type(error).__name__}")


def belongs_to_run() -> None:
    """Say that the current task, and every task that comes of it, belongs to a run."""
    _in_run.set(True)


@contextmanager
def within_run() -> Iterator[None]:
    """Let every task that comes of what is done in it belong to a run, though the current one does not."""
    before = _in_run.set(True)
    try:
        yield
    finally:
        _in_run.reset(before)


def contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Let no task of a run stop this loop from now on."""
    made_by = loop.get_task_factory()
    if not isinstance(made_by, _TaskFactory):
        loop.set_task_factory(_TaskFactory(made_by or asyncio.Task))


def cancelled_from_outside(error: BaseException) -> bool:
    """Whether it is the end of the current task that somebody asked for, and not what its own code raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class _TaskFactory:
    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Any, *, context: Context | None = None, **options: Any
    ) -> Any:
        in_run = _in_run.get() if context is None else context.get(_in_run, False)
        if context is not None:
            options["context"] = context
        task_of = self._make
        work = _Contained(coro) if in_run else coro
        return task_of(work, loop=loop, **options) if task_of is asyncio.Task else task_of(loop, work, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine that raises `ExitAsked` where another asks for an exit; otherwise the same."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def send(self, value: Any, /) -> Any:
        try:
            return self._inner.send(value)
        except _EXITS as error:
            raise ExitAsked(error) from error

    def throw(self, *error: Any) -> Any:
        if isinstance(error[-1], GeneratorExit):  # what was awaited ended so; the word itself would close all who wait
            error = (ExitAsked(error[-1]),)
        try:
            return self._inner.throw(*error)
        except _EXITS as asked:
            raise ExitAsked(asked) from asked

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()
