"""The context types that users annotate with; the engine implements them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from amoxi_py.domain.principal import Principal

P = ParamSpec("P")
T = TypeVar("T")


class Signal(Protocol):
    """Tells a tool that its run was cancelled, that the process stops, or that the lease is lost."""

    @property
    def cancelled(self) -> bool:
        """Whether the tool should stop."""
        ...

    async def wait(self) -> None:
        """Return when the tool should stop."""
        ...

    def raise_if_cancelled(self) -> None:
        """End the tool here, with an exception that no `except Exception` catches, when it should stop."""
        ...


class RunContext(ABC):
    """The run that something is asked for: an agent's instructions, its model, whether a call needs approval.

    Attributes:
        run_id: The run.
        conversation_id: Its conversation.
        agent: The agent's name on the wire, such as `support-agent`.
        principal: Who asks.
        attempt: 1 at the run's first claim, and one more at each takeover after a crash.
    """

    run_id: str
    conversation_id: str
    agent: str
    principal: Principal
    attempt: int


class CallContext(RunContext):
    """What the contexts of async and sync tools have in common.

    Attributes:
        call_id: Unique in the world; the same when an interrupted call is taken up again, another for every new call.
            Fit as an idempotency key at a payment provider.
        attempt: 1 for the first start of this call, and one more each time that it starts again.
        signal: Tells that the tool should stop.
    """

    call_id: str
    signal: Signal

    @abstractmethod
    def progress(self, text: str) -> None:
        """Show a line to whoever follows the run; it is stored a moment later, and never blocks."""


class ToolContext(CallContext):
    """The context of an async tool (also of `needs_approval` and `reconcile`)."""

    @overload
    async def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @abstractmethod
    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn(*args, **kwargs)` once and record its outcome; when the call runs again, return the record instead.

        `fn` may be sync (it runs in a thread), async, or return an awaitable. What is returned is the stored value, of
        the same type, also the first time.

        Raises:
            StepError: `fn` raised, now or before a crash.
            ValueNotStorable: what `fn` returned cannot be stored and come back the same; names the step and the type.
            ValueError: the name was used before in this call, or is empty.
        """


class SyncToolContext(CallContext):
    """The context of a sync tool, which runs in a thread; `step` blocks it."""

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @abstractmethod
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Do the same as `ToolContext.step`, and block until it is recorded."""
