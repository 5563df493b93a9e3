"""A run that waits for a person goes on days later, also when the calendar was moved and the server was restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal, agent, tool
from amoxi_py.app.models import AgentModels
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import OpenInstances
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import Conflict
from amoxi_py.models.script import fail, tries
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing import ScriptedModel, call

ANN = Principal(id="user:ann")
DAY = 86_400.0
CANCELLED: list[str] = []


@tool(needs_approval=True)
async def cancel_order(order_id: str) -> str:
    """Cancel an order."""
    CANCELLED.append(order_id)
    return f"{order_id} is cancelled"


@agent(tools=[cancel_order])
class Shop:
    """You run a shop."""


@pytest.fixture(autouse=True)
def nothing_cancelled() -> None:
    CANCELLED.clear()


class MovedClock:
    """The machine's clocks, each of them ahead by hand."""

    def __init__(self) -> None:
        self.calendar = self.ran = 0.0

    def now(self) -> float:
        return time.time() + self.calendar

    def running(self) -> float:
        return time.monotonic() + self.ran

    def set_calendar(self, days: float) -> None:
        """Somebody sets the date, or the machine gets it from the net."""
        self.calendar += days * DAY

    def pass_days(self, days: float) -> None:
        """Time passes while the machine sleeps or the server is down."""
        self.calendar += days * DAY
        self.ran += days * DAY


@dataclass
class Server:
    """A server on one folder that can be started anew, and a run that waits in it."""

    folder: Path
    expire_after: float | None = None
    clock: MovedClock = field(default_factory=MovedClock)
    engine: Any = None
    later: Any = field(default_factory=lambda: tries(fail(503, retry_after=300), "Hello again."))
    run_id: str = ""
    call_id: str = ""

    async def start(self, *, worker: bool = True) -> None:
        script = {
            "cancel": [call("cancel_order", order_id="A-1002"), "That is settled."],
            "*": ["Hello."],
            "later": [self.later],
        }
        model = ScriptedModel(script)
        self.engine = Engine(
            store=SqliteStore(self.folder, clock=self.clock, synchronous="OFF"),
            catalog=build_declarations([Shop]).catalog,
            instances=OpenInstances({}),
            models=AgentModels({"shop": model}),
            settings=EngineSettings(worker=worker, poll=0.02, lease=1.0, approvals_expire_after=self.expire_after),
        )
        await self.engine.start()

    async def restart(self, *, worker: bool = True) -> None:
        await self.engine.stop()
        await self.start(worker=worker)

    async def run(self) -> Run:
        found: Run = await self.engine.get_run(self.run_id, ANN)
        return found

    async def until(self, condition: Callable[[Run], bool]) -> Run:
        async with asyncio.timeout(20):
            while not condition(run := await self.run()):
                await asyncio.sleep(0.01)
        return run

    async def ask_for_approval(self) -> None:
        submitted = await self.engine.submit("shop", "cancel", principal=ANN)
        self.run_id = submitted.run.id
        [waiting] = (await self.until(lambda run: run.status == "waiting")).waiting_for
        self.call_id = waiting.call_id

    async def works(self) -> None:
        """Other runs are executed; so the worker has looked for due ones since the clock was moved."""
        for _ in range(3):
            submitted = await self.engine.submit("shop", "hello", principal=ANN)
            assert (await self.engine.wait(submitted.run.id, ANN, timeout=20)).status == "completed"

    async def approve(self) -> None:
        approval, _ = await self.engine.decide(self.call_id, ANN, "approve")
        assert approval.decision == "approve"


@asynccontextmanager
async def serving(folder: Path, expire_after: float | None = None) -> AsyncIterator[Server]:
    server = Server(folder / "ai", expire_after)
    await server.start()
    try:
        yield server
    finally:
        await server.engine.stop()


MOVES: dict[str, Callable[[MovedClock], None]] = {
    "days pass": lambda clock: clock.pass_days(40),
    "the calendar is set forward": lambda clock: clock.set_calendar(40),
    "the calendar is set back": lambda clock: clock.set_calendar(-40),
    "the calendar is set back to before the first release": lambda clock: clock.set_calendar(-9000),
}


@pytest.mark.parametrize("restarts", [0, 1, 3])
@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_an_approval_without_expiry_waits_for_ever_and_holds(
    tmp_path: Path, move: Callable[[MovedClock], None], restarts: int
) -> None:
    async def story() -> None:
        async with serving(tmp_path) as server:
            await server.ask_for_approval()
            move(server.clock)
            await server.works()
            for _ in range(restarts):
                await server.restart()
                await server.works()
            run = await server.run()
            assert (run.status, run.attempt, CANCELLED) == ("waiting", 1, [])
            await server.approve()
            run = await server.until(lambda run: run.status.final)
            assert (run.status, run.output, CANCELLED) == ("completed", "That is settled.", ["A-1002"])

    asyncio.run(story())


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "move",
    [
        lambda clock: clock.pass_days(2),
        lambda clock: clock.set_calendar(-400),
        lambda clock: (clock.set_calendar(-400), clock.pass_days(2)),
    ],
)
def test_an_approval_holds_until_the_date_of_its_expiry_has_come(
    tmp_path: Path, move: Callable[[MovedClock], object], restart: bool
) -> None:
    async def story() -> None:
        async with serving(tmp_path, 3 * DAY) as server:
            await server.ask_for_approval()
            move(server.clock)
            if restart:
                await server.restart()
            await server.works()
            assert (await server.run()).status == "waiting"
            await server.approve()
            assert (await server.until(lambda run: run.status.final)).status == "completed"
            assert CANCELLED == ["A-1002"]

    asyncio.run(story())


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    "move",
    [
        lambda clock: clock.pass_days(4),
        lambda clock: clock.set_calendar(4),
        lambda clock: (clock.set_calendar(-400), clock.set_calendar(404)),
    ],
)
def test_an_approval_expires_when_the_date_has_come_and_the_run_goes_on_without_the_action(
    tmp_path: Path, move: Callable[[MovedClock], object], restart: bool
) -> None:
    async def story() -> None:
        async with serving(tmp_path, 3 * DAY) as server:
            await server.ask_for_approval()
            move(server.clock)
            if restart:
                await server.restart()
            with pytest.raises(Conflict):
                await server.approve()
            run = await server.until(lambda run: run.status.final)
            assert (run.status, run.output, CANCELLED) == ("completed", "That is settled.", [])
            with pytest.raises(Conflict) as caught:
                await server.approve()
            assert caught.value.code == "approval_expired"

    asyncio.run(story())


def test_a_run_that_expired_stays_so_when_the_calendar_is_set_back_to_before(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, 3 * DAY) as server:
            await server.ask_for_approval()
            server.clock.set_calendar(4)
            await server.until(lambda run: run.status.final)
            server.clock.set_calendar(-10)
            await server.restart()
            with pytest.raises(Conflict):
                await server.approve()
            assert CANCELLED == []

    asyncio.run(story())


@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_a_queued_run_is_executed_at_once_wherever_the_calendar_has_moved(
    tmp_path: Path, move: Callable[[MovedClock], None]
) -> None:
    async def story() -> None:
        async with serving(tmp_path) as server:
            await server.restart(worker=False)
            submitted = await server.engine.submit("shop", "hello", principal=ANN)
            server.run_id = submitted.run.id
            move(server.clock)
            await server.restart()
            assert (await server.until(lambda run: run.status.final)).status == "completed"

    asyncio.run(story())


@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_a_run_that_waits_for_its_model_does_not_wait_for_the_calendar_to_come_back(
    tmp_path: Path, move: Callable[[MovedClock], None]
) -> None:
    async def story() -> None:
        async with serving(tmp_path) as server:
            submitted = await server.engine.submit("shop", "later", principal=ANN)
            server.run_id = submitted.run.id
            waiting = await server.until(lambda run: run.status == "waiting")
            assert [one.kind for one in waiting.waiting_for] == ["model"]
            await server.works()
            assert (await server.run()).status == "waiting", "the provider asked for five minutes"
            move(server.clock)
            assert (await server.until(lambda run: run.status.final)).output == "Hello again."

    asyncio.run(story())
