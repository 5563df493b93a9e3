"""The context types that users annotate with; the engine implements them."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, BinaryIO, Concatenate, ParamSpec, Protocol, TypeVar, overload

from amoxi_py.domain.file import File
from amoxi_py.domain.memory import DOCS, Citation, Memory
from amoxi_py.domain.principal import Principal

P = ParamSpec("P")
T = TypeVar("T")
SyncFileData = bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO | Iterable[bytes]
"""What a file can be made of: bytes, a path, a file opened for reading bytes, or an iterator of bytes."""
FileData = SyncFileData | AsyncIterable[bytes]
Duration = float | timedelta
"""A time to wait: seconds, or a `timedelta`."""


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


class OpenFile(ABC):
    """A file that an async tool reads: `await read()`, or `async for piece in file` for one of any size.

    Attributes:
        file: What is known of it.
    """

    def __init__(self, file: File) -> None:
        self.file = file

    @property
    def id(self) -> str:
        """Its id."""
        return self.file.id

    @property
    def name(self) -> str:
        """Its name."""
        return self.file.name

    @property
    def media_type(self) -> str:
        """What kind of file it is, such as `text/csv`, as whoever brought it said."""
        return self.file.media_type

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.file.size

    @abstractmethod
    async def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`, or all that are left."""

    @abstractmethod
    def seek(self, place: int) -> None:
        """Go on at this byte, counted from 0."""

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[bytes]:
        """Give the bytes that are left, in pieces."""


class SyncOpenFile(io.BufferedReader):
    """A file that a sync tool reads: a file object of bytes, as `open(path, "rb")` gives it.

    Attributes:
        file: What is known of it: `id`, `name`, `media_type`, `size`.
    """

    def __init__(self, file: File, raw: io.RawIOBase, buffer_size: int) -> None:
        super().__init__(raw, buffer_size)
        self.file = file

    def read1(self, size: int = -1, /) -> bytes:
        """Return bytes that one read gives, at most `size`.

        What is read is a whole buffer: text is decoded in pieces of 8 KB, each of which would be a way to the store.
        """
        self.peek(1)
        return super().read1(size)


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

    @abstractmethod
    async def transaction(
        self, name: str, fn: Callable[Concatenate[Any, P], Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `fn(connection, *args, **kwargs)` in a transaction of the app's database and record its outcome with it.

        It is a step whose effect in that database happens exactly once: one commit holds both. `connection` is a
        `psycopg.AsyncConnection` to DATABASE_URL, good for this call of `fn`. What `fn` does is rolled back when it
        raises or the tool is interrupted, so `fn` neither commits nor rolls back; `connection.transaction()` in it is a
        savepoint. After a serialization failure, a deadlock or a lost connection `fn` runs again, at most 5 times.
        Names, retries, timeouts and values are as for `step`.

        Raises:
            StepError: `fn` raised, now or before a crash, and has changed nothing; or it ended the transaction itself.
            ValueNotStorable: what `fn` returned cannot be stored and come back the same, so nothing was changed.
            InvalidRequest: the store is no PostgreSQL (`transactions_need_postgres`).
            ValueError: the name was used before in this call, or is empty.
        """

    @abstractmethod
    async def save_file(self, name: str, data: FileData, *, media_type: str | None = None) -> File:
        """Store a file that belongs to who asks, and return it; the model and the person reach it by its id.

        When the call runs again, a file that it saved under this name before stays as it is, with its id, and is
        returned.

        Args:
            name: Such as `report.csv`; a name once per call.
            data: Bytes, a `pathlib.Path`, a file opened for reading bytes, or an iterator of bytes, sync or async.
            media_type: Such as `text/csv`; made from the name when it is left out.

        Raises:
            ToolError: it is larger than `ai.files.max-mb` allows.
            ValueError: the name was used before in this call, or is empty.
        """

    @abstractmethod
    async def open_file(self, id: str) -> OpenFile:
        """Open a file of who asks for reading.

        Raises:
            ToolError: there is no such file, or it is somebody else's; the model is told.
        """

    @abstractmethod
    async def remember(self, text: str, key: str | None = None, metadata: Mapping[str, Any] | None = None) -> Memory:
        """Keep a text about who asks, for all of its conversations, and return it as it is stored.

        When the call runs again, after a crash or a wait, it remembers the same texts once. It also writes them again:
        what may be changed or forgotten during a wait is remembered in a step, or after the wait.

        Args:
            text: What the app or its agents should know later; at most 8,000 characters.
            key: A name such as `address`, at most 200 characters: the text takes the place of what had that key.
            metadata: Plain JSON that the app keeps with it, at most 4,000 characters.

        Raises:
            ToolError: one of them cannot be kept, or there are as many memories as `ai.memory.most` allows; the model
                is told.
        """

    @abstractmethod
    async def recall(self, query: str, limit: int = 5) -> list[Memory]:
        """Return what is remembered of who asks and fits a query, the best first: by its words and by its meaning.

        Args:
            query: What is looked for, in any words.
            limit: The most memories, 1 to 50.

        Raises:
            ToolError: the query is empty or too long, or the limit is none; the model is told.
        """

    @abstractmethod
    async def forget(self, key: str) -> bool:
        """Delete the memory of a key, or the one with an id, at once and for good; return whether there was one.

        Raises:
            ToolError: the key is empty or too long; the model is told.
        """

    @abstractmethod
    async def search_docs(self, query: str, *, base: str = DOCS, limit: int = 5) -> list[Citation]:
        """Return the passages of a knowledge base that fit a query, the best first, each with where it stands.

        Args:
            query: What is looked for, in any words.
            base: The name that `amoxi ingest` filled it under.
            limit: The most passages, 1 to 50.

        Raises:
            ToolError: the query is empty or too long, or the limit is none; the model is told.
        """

    @overload
    async def ask(self, question: str, *, timeout: Duration | None = None) -> str: ...
    @overload
    async def ask(self, question: str, schema: type[T], *, timeout: Duration | None = None) -> T: ...
    @overload
    async def ask(self, question: str, schema: Any, *, timeout: Duration | None = None) -> Any: ...
    @abstractmethod
    async def ask(self, question: str, schema: Any = None, *, timeout: Duration | None = None) -> Any:
        """Ask the person whose run it is, and return the answer.

        While nobody has answered, the code of the tool ends here: no slot, thread or lease is held, and restarts do no
        harm. With the answer the tool runs again from its start, under the same `call_id`: its recorded steps and waits
        return what they returned. So it works only in a tool that is `read_only` or `idempotent`, and one wait of a
        call comes after the other.

        Args:
            question: What the person reads.
            schema: What the answer is: None for a text, or a type such as `bool`, a `Literal` or a pydantic model. An
                answer that does not fit is refused, or asked for again.
            timeout: How long to wait for it at most.

        Raises:
            TimeoutError: nobody has answered in time.
            ToolError: the tool was changed while it waited, and waited for something else here before.
            ValueError: the tool is neither `read_only` nor `idempotent`, another wait or a step is under way, or the
                question is empty.
        """

    @abstractmethod
    async def sleep(self, duration: Duration) -> None:
        """Return when a time has passed, by the store's clock; the code ends meanwhile, as for `ask`.

        A sleep of up to 2 seconds passes in place.

        Raises:
            ToolError, ValueError: as for `ask`.
        """

    @abstractmethod
    async def wait_for(self, name: str, *, timeout: Duration | None = None) -> Any:
        """Wait for a signal to this run and return its payload, a JSON value; the code ends meanwhile, as for `ask`.

        A signal that came before is kept, and taken here: the oldest first.

        Raises:
            TimeoutError: it has not come in time.
            ToolError, ValueError: as for `ask`.
        """


class SyncToolContext(CallContext):
    """The context of a sync tool, which runs in a thread; its steps, waits, files and memory block it."""

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @abstractmethod
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Do the same as `ToolContext.step`, and block until it is recorded."""

    @abstractmethod
    def transaction(self, name: str, fn: Callable[Concatenate[Any, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the same as `ToolContext.transaction`, with a `psycopg.Connection` for a sync `fn`, and block."""

    @abstractmethod
    def save_file(self, name: str, data: SyncFileData, *, media_type: str | None = None) -> File:
        """Do the same as `ToolContext.save_file`, and block until it is stored."""

    @abstractmethod
    def open_file(self, id: str) -> SyncOpenFile:
        """Open a file of who asks as a file object, which `csv`, `json` or `PIL` can read.

        Raises:
            ToolError: there is no such file, or it is somebody else's; the model is told.
        """

    @abstractmethod
    def remember(self, text: str, key: str | None = None, metadata: Mapping[str, Any] | None = None) -> Memory:
        """Do the same as `ToolContext.remember`, and block until it is stored."""

    @abstractmethod
    def recall(self, query: str, limit: int = 5) -> list[Memory]:
        """Do the same as `ToolContext.recall`."""

    @abstractmethod
    def forget(self, key: str) -> bool:
        """Do the same as `ToolContext.forget`."""

    @abstractmethod
    def search_docs(self, query: str, *, base: str = DOCS, limit: int = 5) -> list[Citation]:
        """Do the same as `ToolContext.search_docs`."""

    @overload
    def ask(self, question: str, *, timeout: Duration | None = None) -> str: ...
    @overload
    def ask(self, question: str, schema: type[T], *, timeout: Duration | None = None) -> T: ...
    @overload
    def ask(self, question: str, schema: Any, *, timeout: Duration | None = None) -> Any: ...
    @abstractmethod
    def ask(self, question: str, schema: Any = None, *, timeout: Duration | None = None) -> Any:
        """Do the same as `ToolContext.ask`; while nobody has answered, the thread ends."""

    @abstractmethod
    def sleep(self, duration: Duration) -> None:
        """Do the same as `ToolContext.sleep`."""

    @abstractmethod
    def wait_for(self, name: str, *, timeout: Duration | None = None) -> Any:
        """Do the same as `ToolContext.wait_for`."""
