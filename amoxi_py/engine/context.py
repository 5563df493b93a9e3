"""The contexts that tools get: steps and waits that are recorded once, progress, the signal to stop.

When its run is cancelled, its time is up, its lease is lost or the process stops, a context is closed: from then on
nothing that the tool does through it has an effect, and its next step ends it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import io
import queue
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import Future as ThreadFuture
from typing import Any, TypeVar

from amoxi_py.declare.context import (
    Duration,
    FileData,
    OpenFile,
    RunContext,
    SyncFileData,
    SyncOpenFile,
    SyncToolContext,
    ToolContext,
)
from amoxi_py.domain.file import File
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.files import PIECE, CallFiles, FileHost, PrincipalsFile, check_name, parts_of
from amoxi_py.engine.steps import StepHost, Steps, belongs_to_transaction
from amoxi_py.engine.threads import ThreadPool, all_done, as_job
from amoxi_py.engine.waits import MustWait, Waits
from amoxi_py.errors import InvalidRequest, LeaseLost, NotFound, ToolError

T = TypeVar("T")
_LINES = 20


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


class SyncCallContext(SyncToolContext):
    """The same for a sync tool: it runs in a thread and hands its steps to the event loop."""

    def __init__(self, inner: CallToolContext) -> None:
        self.run_id = inner.run_id
        self.conversation_id = inner.conversation_id
        self.agent = inner.agent
        self.principal = inner.principal
        self.call_id = inner.call_id
        self.attempt = inner.attempt
        self.signal = inner.signal
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._lines: deque[str] = deque(maxlen=_LINES)  # a thread can say more than the loop can hear
        self._telling = False

    def run_in_thread(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Run a sync function in the pool; the declared layer calls it."""
        return self._inner.run_in_thread(function)

    async def threads_end(self) -> None:
        """Return when the tool does not go on in its thread after it was told to stop."""
        await self._inner.threads_end()

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self._inner.raise_if_closed()
        bound = functools.partial(contextvars.copy_context().run, functools.partial(fn, *args, **kwargs))
        host = _ToolThread(self._inner)
        return self._serve(host, self._inner.run_step(name, fn, bound, host))

    def transaction(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self._inner.raise_if_closed()
        context = contextvars.copy_context()
        context.run(belongs_to_transaction)

        def bound(connection: Any) -> Any:
            return context.copy().run(fn, connection, *args, **kwargs)

        host = _ToolThread(self._inner)
        return self._serve(host, self._inner.run_in_transaction(name, fn, bound, host))

    def ask(self, question: str, schema: Any = None, *, timeout: Duration | None = None) -> Any:
        return self._serve(_ToolThread(self._inner), self._inner.ask(question, schema, timeout=timeout))

    def sleep(self, duration: Duration) -> None:
        self._serve(_ToolThread(self._inner), self._inner.sleep(duration))

    def wait_for(self, name: str, *, timeout: Duration | None = None) -> Any:
        return self._serve(_ToolThread(self._inner), self._inner.wait_for(name, timeout=timeout))

    def save_file(self, name: str, data: SyncFileData, *, media_type: str | None = None) -> File:
        self._inner.raise_if_closed()
        host = _ToolThread(self._inner)
        file: File = self._serve(host, self._inner.save_data(name, data, media_type, host))
        return file

    def open_file(self, id: str) -> SyncOpenFile:
        self._inner.raise_if_closed()
        file: File = self._serve(_ToolThread(self._inner), self._inner.find_file(id))
        return SyncOpenFile(file, _Bytes(file, self._read_file), PIECE)

    def _read_file(self, file: File, start: int, length: int) -> bytes:
        self._inner.raise_if_closed()
        piece: bytes = self._serve(_ToolThread(self._inner), self._inner.files.read(file, start, length))
        return piece

    def _serve(self, host: _ToolThread, work: Coroutine[Any, Any, Any]) -> Any:
        """Do work on the event loop while this thread waits, and runs what the work wants to have run in it."""
        outcome = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._inner.steps_of_thread.add(outcome)
        outcome.add_done_callback(self._inner.steps_of_thread.discard)
        outcome.add_done_callback(host.end)
        host.serve()
        try:
            return outcome.result()
        except CancelledError:
            raise Interrupted from None

    def progress(self, text: str) -> None:
        self._lines.append(str(text))
        if not self._telling:
            self._telling = True
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._telling = False
        while self._lines:
            self._inner.progress(self._lines.popleft())


class _Bytes(io.RawIOBase):
    """The bytes of a file, for Python's own buffered reader."""

    def __init__(self, file: File, read: Callable[[File, int, int], bytes]) -> None:
        self._file = file
        self._read = read
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._file.size}[whence]
        self._place = max(begin + offset, 0)
        return self._place

    def readinto(self, buffer: Any) -> int:
        piece = self._next(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def readall(self) -> bytes:
        return b"".join(iter(functools.partial(self._next, PIECE), b""))

    def _next(self, length: int) -> bytes:
        length = min(length, PIECE, self._file.size - self._place)
        piece = self._read(self._file, self._place, length) if length > 0 else b""
        self._place += len(piece)
        return piece


class _ToolThread:
    """Lets the thread of a sync tool run its own sync steps: a second thread for each could use the pool up."""

    def __init__(self, inner: CallToolContext) -> None:
        self._inner = inner
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def raise_if_closed(self) -> None:
        """End the tool when its context is closed."""
        self._inner.raise_if_closed()

    def run_in_thread(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Hand a function to the tool's thread; called on the event loop."""
        future, job = as_job(function)
        self._jobs.put(job)
        return future

    def serve(self) -> None:
        """Run what is handed over, until `end`; called in the tool's thread."""
        while (job := self._jobs.get()) is not None:
            job()

    def end(self, _step: object) -> None:
        """Let the tool's thread go on."""
        self._jobs.put(None)
