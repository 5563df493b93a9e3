"""The contexts that tools get: steps and waits that are recorded once, progress, the signal to stop.

When its run is cancelled, its time is up, its lease is lost or the process stops, a context is closed: from then on
nothing that the tool does through it has an effect, and its next step ends it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future as ThreadFuture
from typing import Any, TypeVar

from amoxi_py.declare.context import (
    Duration,
    FileData,
    OpenFile,
    RunContext,
    ToolContext,
)
from amoxi_py.domain.file import File
from amoxi_py.domain.memory import DOCS, Citation, Memory
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.call_memories import CallMemories
from amoxi_py.engine.files import CallFiles, FileHost, PrincipalsFile, check_name, parts_of
from amoxi_py.engine.steps import StepHost, Steps
from amoxi_py.engine.threads import ThreadPool, all_done
from amoxi_py.engine.waits import MustWait, Waits
from amoxi_py.errors import Conflict, InvalidRequest, LeaseLost, NotFound, ToolError

T = TypeVar("T")


class Interrupted(BaseException):
    """Ends a tool from outside; no `except Exception` catches it."""


class AgentContext(RunContext):
    """The context of an agent's instructions."""

    def __init__(
        self,
        *,
        run_id: str,
        conversation_id: str,
        agent: str,
        principal: Principal,
        attempt: int,
        threads: ThreadPool,
        lingering: set[asyncio.Future[Any]],
    ) -> None:
        self.run_id = run_id
        self.conversation_id = conversation_id
        self.agent = agent
        self.principal = principal
        self.attempt = attempt
        self._threads = threads
        self._lingering = lingering
        self._stopped: set[asyncio.Future[Any]] = set()

    def run_in_thread(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Run a sync function in the pool; the declared layer calls it."""
        return self._threads.run(function, self._lingering, self._stopped)

    async def threads_end(self) -> None:
        """Return when no function goes on in a thread after the waiting for it was cancelled."""
        await all_done(self._stopped)

    def run_for_call(self, function: Callable[[], T], stopped: set[asyncio.Future[Any]]) -> Awaitable[T]:
        """Do the same for a tool; what goes on after it was told to stop is in `stopped` as well."""
        return self._threads.run(function, self._lingering, stopped)


class StopSignal:
    """The signal of one call."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    async def wait(self) -> None:
        await self._event.wait()

    def raise_if_cancelled(self) -> None:
        if self._cancelled:
            raise Interrupted

    def fire(self) -> None:
        """Tell the tool to stop."""
        self._cancelled = True
        self._event.set()


class CallToolContext(ToolContext):
    """The context of one try of one call of an async tool.

    `stopped` holds its code in threads that was told to stop and goes on all the same. `waits_for` is what ended the
    code, whatever the code made of it.
    """

    def __init__(
        self,
        *,
        run: AgentContext,
        call_id: str,
        attempt: int,
        steps: Steps,
        waits: Waits,
        progress: Callable[[str], None],
        files: CallFiles,
        memories: CallMemories,
    ) -> None:
        self.run_id = run.run_id
        self.conversation_id = run.conversation_id
        self.agent = run.agent
        self.principal = run.principal
        self.call_id = call_id
        self.attempt = attempt
        self.signal = self._signal = StopSignal()
        self._run = run
        self.closed = False
        self.stopped: set[asyncio.Future[Any]] = set()
        self.steps_of_thread: set[ThreadFuture[Any]] = set()
        self.steps = steps
        self.waits = waits
        self.waits_for: Wait | None = None
        self.files = files
        self.memories = memories
        self._steps_under_way = 0
        self._saved: set[str] = set()
        self._progress = progress

    def run_in_thread(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Run a sync function in the pool; the declared layer calls it."""
        return self._run.run_for_call(function, self.stopped)

    async def threads_end(self) -> None:
        """Return when no code of the tool goes on in a thread after it was told to stop."""
        await all_done(self.stopped)

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await self.run_step(name, fn, functools.partial(fn, *args, **kwargs), self)

    async def run_step(self, name: str, fn: Callable[..., Any], bound: Callable[[], Any], host: StepHost) -> Any:
        """Return a step's outcome; a lost lease ends the tool like every other interruption."""
        return await self._take(lambda: self.steps.run(name, fn, bound, host))

    async def transaction(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        bound = lambda connection: fn(connection, *args, **kwargs)  # noqa: E731 - a def says no more
        return await self._take(lambda: self.steps.transact(name, fn, bound, self, threaded=False))

    async def run_in_transaction(
        self, name: str, fn: Callable[..., Any], bound: Callable[[Any], Any], host: StepHost
    ) -> Any:
        """Do the same for a sync tool, whose function runs in a thread."""
        return await self._take(lambda: self.steps.transact(name, fn, bound, host, threaded=True))

    async def _take(self, step: Callable[[], Awaitable[Any]]) -> Any:
        self.raise_if_closed()
        if self.waits.under_way:
            raise ValueError("a step is taken while the tool waits; wait first, and take the step then")
        self._steps_under_way += 1
        try:
            outcome = await step()
        except LeaseLost:
            self.close()
            raise Interrupted from None
        finally:
            self._steps_under_way -= 1
        self.raise_if_closed()
        return outcome

    async def ask(self, question: str, schema: Any = None, *, timeout: Duration | None = None) -> Any:
        return await self._wait("ask", lambda: self.waits.ask(question, schema, timeout))

    async def sleep(self, duration: Duration) -> None:
        await self._wait("sleep", lambda: self.waits.sleep(duration))

    async def wait_for(self, name: str, *, timeout: Duration | None = None) -> Any:
        return await self._wait("wait_for", lambda: self.waits.wait_for(name, timeout))

    async def _wait(self, what: str, wait: Callable[[], Awaitable[Any]]) -> Any:
        """Return what a wait came to, or end the code here: it runs again when the wait is over."""
        self.raise_if_closed()
        if self._steps_under_way:
            raise ValueError(
                f"ctx.{what} cannot be used in a step, or while one is under way; use it in the tool itself"
            )
        try:
            outcome = await wait()
        except MustWait as error:
            if not self.closed:
                self.waits_for = error.wait
            self.close()
            raise Interrupted from None
        except LeaseLost:
            self.close()
            raise Interrupted from None
        self.raise_if_closed()
        return outcome

    async def save_file(self, name: str, data: FileData, *, media_type: str | None = None) -> File:
        return await self.save_data(name, data, media_type, self)

    async def save_data(self, name: str, data: FileData, media_type: str | None, host: FileHost) -> File:
        """Store a file; a lost lease ends the tool like every other interruption."""
        self.raise_if_closed()
        stored_as = check_name(name)
        if stored_as in self._saved:
            raise ValueError(f"the file name {stored_as!r} was used before in this call; give each file its own")
        self._saved.add(stored_as)
        try:
            file = await self.files.save(stored_as, media_type, parts_of(data, host))
        except LeaseLost:
            self.close()
            raise Interrupted from None
        except InvalidRequest as error:
            self._saved.discard(stored_as)
            raise ToolError(str(error)) from None
        except BaseException:
            self._saved.discard(stored_as)
            raise
        self.raise_if_closed()
        return file

    async def open_file(self, id: str) -> OpenFile:
        return PrincipalsFile(self.files, await self.find_file(id), self.raise_if_closed)

    async def find_file(self, id: str) -> File:
        """Return what is known of a file; a model that names a wrong one is told so."""
        self.raise_if_closed()
        try:
            return await self.files.find(id)
        except NotFound:
            raise ToolError(f"There is no file {id!r}.") from None

    async def remember(self, text: str, key: str | None = None, metadata: Mapping[str, Any] | None = None) -> Memory:
        return await self._of_memory(lambda: self.memories.remember(text, key, metadata))

    async def recall(self, query: str, limit: int = 5) -> list[Memory]:
        return list(await self._of_memory(lambda: self.memories.recall(query, limit)))

    async def forget(self, key: str) -> bool:
        return await self._of_memory(lambda: self.memories.forget(key))

    async def search_docs(self, query: str, *, base: str = DOCS, limit: int = 5) -> list[Citation]:
        return list(await self._of_memory(lambda: self.memories.search_docs(query, base, limit)))

    async def _of_memory(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what a verb of memory gives; a model that asked for what cannot be is told so."""
        self.raise_if_closed()
        try:
            found = await work()
        except LeaseLost:
            self.close()
            raise Interrupted from None
        except (InvalidRequest, Conflict) as error:
            raise ToolError(str(error)) from None
        self.raise_if_closed()
        return found

    def progress(self, text: str) -> None:
        if not self.closed:
            self._progress(str(text))

    def close(self) -> None:
        """Let nothing more of this try have an effect, and tell the tool to stop."""
        self.closed = True
        self._signal.fire()
        for step in tuple(self.steps_of_thread):
            step.cancel()

    def raise_if_closed(self) -> None:
        """End the tool when its context is closed."""
        if self.closed:
            raise Interrupted
