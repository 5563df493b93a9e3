"""`tool_context`: what a tool takes as its context, for a test that calls the tool's function itself.

Steps, progress and the signal are the engine's own; only the store is left out, so what a context has recorded is gone
with it, unless `again` gives the context of the next try. What a tool waits for is there at once.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import AsyncIterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, overload

from amoxi_py.domain.file import File, clean_media_type, saved_file_id
from amoxi_py.domain.ids import call_id as call_id_of
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.memory import Memory
from amoxi_py.domain.placing import placed_by_code
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.engine.context import AgentContext, CallToolContext
from amoxi_py.engine.steps import Steps
from amoxi_py.engine.sync_context import SyncCallContext
from amoxi_py.engine.threads import ThreadPool
from amoxi_py.engine.values import decode_value
from amoxi_py.errors import InvalidRequest, NotFound
from amoxi_py.ports.transactions import Work
from amoxi_py.testing.agents import SOMEBODY
from amoxi_py.testing.memories import MemoriesInMemory
from amoxi_py.testing.waits import GivenWaits

_THREADS = 16


class FilesInMemory:
    """The files of a context: those that a test gives, and those that the tool saves."""

    def __init__(self, call_id: str, given: Mapping[str, bytes]) -> None:
        self.saved: dict[str, bytes] = {}
        self._call_id = call_id
        self._files = {each: (_file(each, each, None, content), content) for each, content in given.items()}

    async def save(self, name: str, media_type: str | None, parts: AsyncIterable[bytes]) -> File:
        file_id = saved_file_id(self._call_id, name)
        if file_id not in self._files:
            content = b"".join([part async for part in parts])
            self.saved[name] = content
            self._files[file_id] = (_file(file_id, name, media_type, content), content)
        return self._files[file_id][0]

    async def find(self, file_id: str) -> File:
        if file_id not in self._files:
            raise NotFound("file", file_id)
        return self._files[file_id][0]

    async def read(self, file: File, start: int, length: int) -> bytes:
        return self._files[file.id][1][start : start + length]


def _file(id: str, name: str, media_type: str | None, content: bytes) -> File:
    return File(id=id, name=name, media_type=clean_media_type(media_type, name), size=len(content))


class RecordedContext(CallToolContext):
    """The context of an async tool, with what the tool did through it.

    Attributes:
        progress_lines: What the tool told, in order.
        step_records: Its steps by name, as they are stored.
        questions: What it asked, in order.
        slept: For how many seconds it wanted to sleep, in order.
    """

    @property
    def files_saved(self) -> dict[str, bytes]:
        """The bytes of the files that the tool saved, by name and in order."""
        return self._files.saved

    @property
    def remembered(self) -> list[Memory]:
        """What is remembered of who asks now, what was written last at the end."""
        return list(self._given_memories.kept.values())

    def __init__(
        self,
        run: AgentContext,
        call_id: str,
        attempt: int,
        records: Mapping[str, StepRecord],
        files: FilesInMemory,
        waits: GivenWaits,
        memories: MemoriesInMemory,
        connection: Any = None,
    ) -> None:
        self.progress_lines: list[str] = []
        self.step_records: dict[str, StepRecord] = dict(records)
        steps = Steps(records=records.values(), record=self._keep, commit=self._lend, prove=_nothing_to_prove)
        super().__init__(
            run=run,
            call_id=call_id,
            attempt=attempt,
            steps=steps,
            waits=waits.of_next_try(),
            progress=self.progress_lines.append,
            files=files,
            memories=memories,
        )
        self._files = files
        self._given_memories = memories
        self._given_waits = waits
        self._connection = connection
        self.questions = waits.questions
        self.slept = waits.slept

    @property
    def steps_done(self) -> dict[str, Any]:
        """What the steps returned, by name and in order; one that raised is not in it."""
        return _values(self.step_records)

    def cancel(self) -> None:
        """Do what the cancel of a run does: fire the signal; the tool's next step ends it."""
        self.close()

    def again(self) -> RecordedContext:
        """Return the context of the next try of the same call, after a crash: recorded steps do not run again."""
        return RecordedContext(
            self._run,
            self.call_id,
            self.attempt + 1,
            self.step_records,
            self._files,
            self._given_waits,
            self._given_memories,
            self._connection,
        )

    async def _keep(self, record: StepRecord) -> None:
        self.step_records[record.name] = record

    async def _lend(self, name: str, work: Work, threaded: bool) -> StepRecord:
        if self._connection is None:
            raise InvalidRequest(
                f"ctx.transaction({name!r}, ...) has no connection to give here: make the context with "
                "tool_context(connection=...), of the test's own database or a stand-in",
                code="transactions_need_postgres",
            )
        record = self.step_records[name] = await work(self._connection)
        return record


class RecordedSyncContext(SyncCallContext):
    """The context of a sync tool, with what the tool did through it; it has what `RecordedContext` has."""

    def __init__(self, inner: RecordedContext) -> None:
        super().__init__(inner)
        self._recorded = inner
        self.progress_lines = inner.progress_lines
        self.step_records = inner.step_records
        self.questions = inner.questions
        self.slept = inner.slept

    @property
    def steps_done(self) -> dict[str, Any]:
        """What the steps returned, by name and in order; one that raised is not in it."""
        return _values(self.step_records)

    @property
    def files_saved(self) -> dict[str, bytes]:
        """The bytes of the files that the tool saved, by name and in order."""
        return self._recorded.files_saved

    @property
    def remembered(self) -> list[Memory]:
        """What is remembered of who asks now, what was written last at the end."""
        return self._recorded.remembered

    def progress(self, text: str) -> None:
        self._recorded.progress(text)  # at once, not when the loop hears of it: the test looks at it next

    def cancel(self) -> None:
        """Do what the cancel of a run does: fire the signal; the tool's next step ends it."""

        async def close() -> None:
            self._recorded.close()

        asyncio.run_coroutine_threadsafe(close(), _loop()).result()

    def again(self) -> RecordedSyncContext:
        """Return the context of the next try of the same call, after a crash: recorded steps do not run again."""
        return _sync(self._recorded.again())


@overload
def tool_context(
    *,
    sync: Literal[False] = False,
    principal: Principal = SOMEBODY,
    call_id: str | None = None,
    agent: str = "test-agent",
    attempt: int = 1,
    files: Mapping[str, bytes] | None = None,
    answers: Sequence[Any] = (),
    signals: Mapping[str, Sequence[Any]] | None = None,
    memories: Mapping[str, str] | None = None,
    connection: Any = None,
) -> RecordedContext: ...
@overload
def tool_context(
    *,
    sync: Literal[True],
    principal: Principal = SOMEBODY,
    call_id: str | None = None,
    agent: str = "test-agent",
    attempt: int = 1,
    files: Mapping[str, bytes] | None = None,
    answers: Sequence[Any] = (),
    signals: Mapping[str, Sequence[Any]] | None = None,
    memories: Mapping[str, str] | None = None,
    connection: Any = None,
) -> RecordedSyncContext: ...
def tool_context(
    *,
    sync: bool = False,
    principal: Principal = SOMEBODY,
    call_id: str | None = None,
    agent: str = "test-agent",
    attempt: int = 1,
    files: Mapping[str, bytes] | None = None,
    answers: Sequence[Any] = (),
    signals: Mapping[str, Sequence[Any]] | None = None,
    memories: Mapping[str, str] | None = None,
    connection: Any = None,
) -> RecordedContext | RecordedSyncContext:
    """Return a context to call a tool's function with, as it stands in the code.

    Args:
        sync: True for a `SyncToolContext`, whose steps block; it may be used in any thread.
        principal: Who asks; a user of the app by a plain id, as from a sign-in, or one with its channel.
        call_id: The call's id; a new one by default.
        agent: The agent's name on the wire.
        attempt: The try of the call.
        files: Files that `open_file` finds: bytes by id; the id is the file's name too.
        answers: What `ask` returns, one after the other: JSON values as a person gives them, or `TimeoutError`.
        signals: What `wait_for` returns: by the signal's name the payloads, one after the other, or `TimeoutError`.
        memories: What is remembered of who asks, by key; `recall` finds it and what the tool remembers.
        connection: What `ctx.transaction` gives to its functions; the test itself commits or rolls back.
    """
    run_id = new_id("run")
    run = AgentContext(
        run_id=run_id,
        conversation_id=new_id("conv"),
        agent=agent,
        principal=placed_by_code(principal),
        attempt=attempt,
        threads=_threads(),
        lingering=set(),
    )
    call_id = call_id_of(run_id, 1, 0) if call_id is None else call_id
    waits = GivenWaits(answers, signals or {})
    kept = MemoriesInMemory(call_id, memories or {})
    given = FilesInMemory(call_id, files or {})
    context = RecordedContext(run, call_id, attempt, {}, given, waits, kept, connection)
    return _sync(context) if sync else context


def _values(records: Mapping[str, StepRecord]) -> dict[str, Any]:
    return {name: decode_value(record.value) for name, record in records.items() if not record.failed}


async def _nothing_to_prove() -> None:
    """There is no lease, so none is lost."""


def _sync(inner: RecordedContext) -> RecordedSyncContext:
    async def make() -> RecordedSyncContext:
        return RecordedSyncContext(inner)

    return asyncio.run_coroutine_threadsafe(make(), _loop()).result()


@cache
def _threads() -> ThreadPool:
    return ThreadPool(_THREADS)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the loop that the steps of sync contexts run on, in a thread of its own."""
    loop = asyncio.new_event_loop()

    def run() -> None:
        loop.run_forever()
        loop.close()

    thread = threading.Thread(target=run, name="amoxi-tool-context", daemon=True)
    thread.start()

    def end() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(1.0)

    atexit.register(end)
    return loop
