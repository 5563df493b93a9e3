"""The answer that streams, without a server around it: what it takes in, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from amoxi_py.domain.event import Event, EventType
from amoxi_py.errors import StoreUnavailable
from amoxi_py.surfaces.closing import Closing
from amoxi_py.surfaces.http.sse import EventStreamResponse


def event(seq: int, text: str = "x") -> Event:
    return Event(
        conversation=1, seq=seq, run=1, run_id="run_1", type=EventType.MESSAGE_DELTA, stored={"offset": 0, "text": text}
    )


class Log:
    """Batches of events, and how many were taken."""

    exhausted = False

    def __init__(self, *batches: tuple[Event, ...], then: Any = None) -> None:
        self.batches = batches
        self.then = then
        self.taken = 0
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[tuple[Event, ...]]:
        try:
            for batch in self.batches:
                self.taken += 1
                yield batch
            if isinstance(self.then, Exception):
                raise self.then
            if self.then is not None:
                await self.then.wait()
        finally:
            self.closed = True

    at_hand = False

    def ends_with(self, events: tuple[Event, ...]) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


class Connection:
    """The two callables of ASGI; `blocked` holds up every send after the first `free` ones."""

    def __init__(self, free: int = 1000) -> None:
        self.sent: list[dict[str, Any]] = []
        self.free = free
        self.left = asyncio.Event()
        self.unblocked = asyncio.Event()
        self.stuck = asyncio.Event()
        self.news = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if len(self.sent) >= self.free:
            self.stuck.set()
            await self.unblocked.wait()
        self.sent.append(message)
        self.news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self.news.clear()
                await self.news.wait()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def stream(log: Log, connection: Connection, closing: Closing | None = None, heartbeat: float = 60.0) -> Any:
    response = EventStreamResponse(log, closing=closing or Closing(), heartbeat=heartbeat)  # type: ignore[arg-type]
    return asyncio.create_task(response({"type": "http"}, connection.receive, connection.send))


def test_what_is_ready_goes_out_in_one_send() -> None:
    async def main() -> None:
        connection = Connection()
        await stream(Log((event(1), event(2)), (event(3),)), connection)
        bodies = [message["body"] for message in connection.sent[1:]]
        assert [body.count(b"id: ") for body in bodies] == [0, 2, 1, 0]
        assert bodies[0] == b":\n\n"
        assert connection.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    asyncio.run(main())


def test_no_text_can_end_its_line_or_its_event() -> None:
    async def main() -> None:
        connection = Connection()
        await stream(Log((event(1, "a\nid: 7\n\nevent: run.completed\r\n\u2028b"),)), connection)
        assert connection.body.count(b"\n\n") == 2
        assert connection.body.count(b"\nid: ") == 1

    asyncio.run(main())


def test_a_slow_reader_holds_one_batch_and_no_more() -> None:
    async def main() -> None:
        connection = Connection(free=3)  # the head, the comment, the first batch
        log = Log(*[(event(n),) for n in range(100)])
        task = stream(log, connection, heartbeat=0.01)
        await asyncio.wait_for(connection.stuck.wait(), 60)
        for _ in range(50):
            await asyncio.sleep(0)
        assert log.taken == 2
        connection.unblocked.set()
        await asyncio.wait_for(task, 60)
        assert log.taken == 100

    asyncio.run(main())


def test_a_reader_that_leaves_ends_the_answer_and_lets_go_of_the_log() -> None:
    async def main() -> None:
        connection, log = Connection(), Log((event(1),), then=asyncio.Event())
        task = stream(log, connection)
        connection.left.set()
        await asyncio.wait_for(task, 60)
        stuck = Connection(free=2)
        stuck_log = Log((event(1),), then=asyncio.Event())
        task = stream(stuck_log, stuck)
        await asyncio.wait_for(stuck.stuck.wait(), 60)
        stuck.left.set()
        await asyncio.wait_for(task, 60)
        assert log.closed
        assert stuck_log.closed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_closing_server_ends_open_answers_and_later_ones() -> None:
    async def main() -> None:
        closing, connection = Closing(), Connection()
        task = stream(Log((event(1),), then=asyncio.Event()), connection, closing)
        await connection.until(lambda: b"id: 1" in connection.body)
        await asyncio.to_thread(closing.set)
        await asyncio.wait_for(task, 60)
        assert connection.sent[-1]["more_body"] is False
        later = Connection()
        await asyncio.wait_for(stream(Log(then=asyncio.Event()), later, closing), 60)
        assert later.sent[-1]["more_body"] is False
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_a_store_that_goes_away_ends_the_answer_whole_so_that_the_reader_comes_again() -> None:
    async def main() -> None:
        connection = Connection()
        await stream(Log((event(1),), then=StoreUnavailable("away")), connection)
        assert b"id: 1" in connection.body
        assert connection.sent[-1]["more_body"] is False

    asyncio.run(main())


def test_a_cancelled_answer_leaves_no_task_behind() -> None:
    async def main() -> None:
        connection, log = Connection(), Log((event(1),), then=asyncio.Event())
        task = stream(log, connection)
        await connection.until(lambda: b"id: 1" in connection.body)
        task.cancel()
        await asyncio.wait({task}, timeout=60)
        assert task.cancelled()
        assert log.closed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_silence_is_measured_from_the_last_thing_sent() -> None:
    async def main() -> None:
        connection, end = Connection(), asyncio.Event()
        task = stream(Log((event(1),), then=end), connection, heartbeat=0.02)
        await connection.until(lambda: connection.body.count(b":\n\n") == 4)
        end.set()
        await asyncio.wait_for(task, 60)

    asyncio.run(main())
