"""Where sync and async callables become the same thing: the one place that asks whether a function is async."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from amoxi_py.declare.context import RunContext


class ThreadHost(Protocol):
    """What a context of the engine has besides its promises: the thread pool for sync functions."""

    run_in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]

    async def threads_end(self) -> None:
        """Return when no function goes on in a thread after the waiting for it was cancelled."""
        ...


class AsyncCaller(Protocol):
    """Calls a function by name of its arguments; a sync one runs in the pool that the context gives."""

    def __call__(
        self, ctx: RunContext, function: Callable[..., Any], arguments: Mapping[str, Any], /
    ) -> Awaitable[Any]:
        """Return an awaitable of what the function returns."""
        ...


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it surely returns an awaitable; sees through partials and callable objects."""
    function = innermost(function)
    if inspect.iscoroutinefunction(function):
        return True
    return not inspect.isclass(function) and inspect.iscoroutinefunction(type(function).__call__)


def speaks_async(function: Callable[..., Any]) -> bool:
    """Whether it is async, or a plain wrapper around an async function that hands its awaitable through."""
    return is_async(function) or is_async(inspect.unwrap(innermost(function)))


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a generator instead of a value."""
    function = innermost(function)
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that partials end in."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def as_async(function: Callable[..., Any]) -> AsyncCaller:
    """Decide once how a function, or the method of that name of any instance, is called.

    A sync function gets a copy of the caller's context variables; when it returns an awaitable, that is awaited.
    """
    return _on_the_loop if is_async(function) else _in_a_thread


async def _on_the_loop(ctx: RunContext, function: Callable[..., Any], arguments: Mapping[str, Any], /) -> Any:
    outcome = function(**arguments)
    return await outcome if inspect.isawaitable(outcome) else outcome


async def _in_a_thread(ctx: RunContext, function: Callable[..., Any], arguments: Mapping[str, Any], /) -> Any:
    host = cast(ThreadHost, ctx)
    bound = functools.partial(contextvars.copy_context().run, functools.partial(function, **arguments))
    outcome = await host.run_in_thread(bound)
    return await outcome if inspect.isawaitable(outcome) else outcome
