"""The app inside of `amoxi chat`: its worker and its store run on a loop of their own, beside the thread that talks."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from amoxi_py.cli.leaving import end_in_time

if TYPE_CHECKING:
    from amoxi_py.app.runtime import Runtime
    from amoxi_py.domain.event import Event
    from amoxi_py.domain.principal import Principal

T = TypeVar("T")
_LOOK_EVERY_S = 0.5
_SILENCE_S = 1.0


class ChatProcess:
    """A started app; `with ChatProcess(runtime) as process: run = process.do(process.engine.submit(...))`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.engine = runtime.engine
        self.settings = runtime.settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="amoxi-chat", daemon=True)

    def __enter__(self) -> ChatProcess:
        self._thread.start()
        try:
            self.do(self._runtime.start())
        except BaseException:
            end_in_time(self._runtime.settings.server.stop_grace_s, lambda: self._runtime.stopped)
            self._end_loop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end_in_time(self._runtime.settings.server.stop_grace_s, lambda: self._runtime.stopped)
        stopping = asyncio.run_coroutine_threadsafe(self._runtime.stop(), self._loop)
        try:
            stopping.result(timeout=_SILENCE_S)
        except TimeoutError:
            print("tools that still run get a while to end; Ctrl-C three times leaves at once", file=sys.stderr)
            stopping.result()
        self._end_loop()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something of the engine's and return what it returns; blocks."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def follow(
        self, run_id: str, principal: Principal, *, after: int | None, on_event: Callable[[Event], None]
    ) -> Following:
        """Begin to follow a run, from the start or after a number of its log; `on_event` hears events on the loop."""
        return Following(self, run_id, principal, after, on_event)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin something in the background."""

        async def begin() -> asyncio.Task[None]:
            return asyncio.get_running_loop().create_task(work)

        return self.do(begin())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(_end_tasks())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


async def _end_tasks() -> None:
    """Cancel what still goes on, such as a start that hangs, and let it close what it has opened."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


class Following:
    """The events of one run, handed from the loop to the thread that talks."""

    def __init__(
        self,
        process: ChatProcess,
        run_id: str,
        principal: Principal,
        after: int | None,
        on_event: Callable[[Event], None],
    ) -> None:
        self._process = process
        self._run_id = run_id
        self._principal = principal
        self._after = after
        self._events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        self._on_event = on_event
        self._task = process.start(self._follow())

    def __enter__(self) -> Following:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.do(self._end())

    async def _end(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    def next(self) -> Event | None:
        """Return the next event, or None when the run has ended and all were taken; blocks, and can be interrupted.

        Raises:
            AmoxiError: the log cannot be read.
        """
        while True:
            try:
                event = self._events.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:  # looking up now and then lets Windows hear Ctrl-C
                continue
            if isinstance(event, BaseException):
                raise event
            return event

    async def _follow(self) -> None:
        try:
            stream = await self._process.engine.follow(self._principal, run_id=self._run_id, after=self._after)
            async for batch in stream:
                for event in batch:
                    self._on_event(event)
                    self._events.put(event)
            self._events.put(None)
        except Exception as error:  # noqa: BLE001 - it is for the thread that talks to hear
            self._events.put(error)
