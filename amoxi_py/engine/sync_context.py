"""The context of a sync tool: it runs in a thread, and hands what it does through the context to the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import io
import queue
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from amoxi_py.declare.context import Duration, SyncFileData, SyncOpenFile, SyncToolContext
from amoxi_py.domain.file import File
from amoxi_py.domain.memory import DOCS, Citation, Memory
from amoxi_py.engine.context import CallToolContext, Interrupted
from amoxi_py.engine.files import PIECE
from amoxi_py.engine.steps import belongs_to_transaction
from amoxi_py.engine.threads import as_job

T = TypeVar("T")
_LINES = 20


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

    def remember(self, text: str, key: str | None = None, metadata: Mapping[str, Any] | None = None) -> Memory:
        kept: Memory = self._serve(_ToolThread(self._inner), self._inner.remember(text, key, metadata))
        return kept

    def recall(self, query: str, limit: int = 5) -> list[Memory]:
        found: list[Memory] = self._serve(_ToolThread(self._inner), self._inner.recall(query, limit))
        return found

    def forget(self, key: str) -> bool:
        return bool(self._serve(_ToolThread(self._inner), self._inner.forget(key)))

    def search_docs(self, query: str, *, base: str = DOCS, limit: int = 5) -> list[Citation]:
        work = self._inner.search_docs(query, base=base, limit=limit)
        found: list[Citation] = self._serve(_ToolThread(self._inner), work)
        return found

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
