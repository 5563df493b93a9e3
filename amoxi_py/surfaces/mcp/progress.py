"""What a client hears while its call goes on: what the run's log tells, in growing numbers, and never silence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from amoxi_py.domain.event import Event, EventType
from amoxi_py.engine.streams import EventStream
from amoxi_py.errors import AmoxiError

log = logging.getLogger("amoxi_py.mcp")

Report = Callable[[int, str], Awaitable[None]]

_LONGEST_MESSAGE = 1000
_LAST_NEWS_S = 5.0
_STILL = "Still working"
_NEWS = frozenset({EventType.RUN_WAITING, EventType.QUESTION_ASKED, EventType.APPROVAL_REQUESTED})


class Progress:
    """Tells one client how its call goes on, in numbers above `told`; without a wish to hear it tells nothing."""

    def __init__(self, report: Report | None, heartbeat: float, told: int = 0) -> None:
        self.wanted = report is not None
        self._report = report
        self._heartbeat = heartbeat
        self._told = told
        self._lock = asyncio.Lock()
        self._beats: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()

    async def tell(self, message: str) -> None:
        """Tell what has happened."""
        if self._report is None:
            return
        async with self._lock:  # so that the numbers arrive in order
            self._told += 1
            self._last = self._loop.time()
            await self._report(self._told, message[:_LONGEST_MESSAGE])

    def start(self) -> None:
        """Begin to break silences."""
        if self._report is not None and self._beats is None:
            self._beats = self._loop.create_task(self._beat())

    def stop(self) -> None:
        """Tell nothing more."""
        if self._beats is not None:
            _drop(self._beats)

    async def _beat(self) -> None:
        while True:
            silent = self._loop.time() - self._last
            if silent >= self._heartbeat:
                await self.tell(_STILL)
            else:
                await asyncio.sleep(self._heartbeat - silent)


class Follower:
    """Reads a run's log for one call: tells what happens, and says when it is worth a look at the run.

    Attributes:
        failed: Whether the log can be read no more.
    """

    def __init__(self, stream: EventStream, progress: Progress, *, of_agent: bool) -> None:
        self._stream = stream
        self._progress = progress
        self._of_agent = of_agent
        self._tools: dict[str, str] = {}
        self._news = asyncio.Event()
        self.failed = False
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def news(self, within: float) -> None:
        """Return when the run waits or has ended, or after a time."""
        waiting = asyncio.get_running_loop().create_task(self._news.wait())
        try:
            await asyncio.wait({waiting}, timeout=within)
        finally:
            waiting.cancel()
        self._news.clear()

    async def end(self, within: float) -> None:
        """Let what is in the log be told, for the run has ended."""
        await asyncio.wait({self._task}, timeout=within)

    def stop(self) -> None:
        """Read no more."""
        _drop(self._task)

    async def _follow(self) -> None:
        try:
            async with aclosing(aiter(self._stream)) as batches:
                async for batch in batches:
                    for event in batch:
                        text = self._text(event)
                        if text:
                            await self._progress.tell(text)
                        if event.type in _NEWS:
                            self._news.set()
                    del batch
        except AmoxiError as error:
            log.warning("a call hears nothing of its run's progress any more: %s", error)
            self.failed = True
        finally:
            self._news.set()

    def _text(self, event: Event) -> str | None:  # one way to say each thing
        kind, data = event.type, event.data
        if kind is EventType.TOOL_PROGRESS:
            return str(data.get("text", ""))
        if kind is EventType.QUESTION_ASKED:
            return f"Waiting for an answer: {data.get('question', '')}"
        if kind is EventType.RUN_RESUMED:
            return "Going on where it was interrupted"
        if not self._of_agent:
            return None
        if kind is EventType.TOOL_CALLED:
            self._tools[str(data["call_id"])] = str(data["tool"])
            return f"Calling {data['tool']}"
        if kind is EventType.TOOL_COMPLETED:
            tool = self._tools.get(str(data["call_id"]), "a tool")
            return f"{tool} failed" if data.get("is_error") else f"{tool} is done"
        if kind is EventType.APPROVAL_REQUESTED:
            return f"Waiting for a person to approve {data.get('tool', 'a call')}"
        return None


class Telling:
    """What one call is told of its run. The run's log is read from when somebody asks for it."""

    def __init__(self, progress: Progress, read_log: Callable[[], Awaitable[EventStream]], *, of_agent: bool) -> None:
        self.wanted = progress.wanted
        self._progress = progress
        self._read_log = read_log
        self._of_agent = of_agent
        self._follower: Follower | None = None

    async def follower(self) -> Follower:
        """Return the one reader of the log."""
        if self._follower is None:
            self._follower = Follower(await self._read_log(), self._progress, of_agent=self._of_agent)
        return self._follower

    async def rest(self) -> None:
        """Let what is in the log be told, for the run has ended."""
        if self._follower is not None and self.wanted:
            await self._follower.end(_LAST_NEWS_S)

    def stop(self) -> None:
        """Tell nothing more."""
        self._progress.stop()
        if self._follower is not None:
            self._follower.stop()


def _drop(task: asyncio.Task[None]) -> None:
    """End a task without waiting for it: what it was doing is worth nothing any more."""
    task.cancel()
    task.add_done_callback(_look_away)


def _look_away(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("what a call heard of its progress ended early", exc_info=error)
