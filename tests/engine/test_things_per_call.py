"""What is provided per call lives as long as one attempt, in every kind of process, however the attempt ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

from amoxi_py import Inject, RunContext, RunEvent, ToolContext, ToolError, agent, on, provides, singleton, tool
from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.app.web import web_app
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.testing import Gate, arun_agent, call, run_agent
from amoxi_py.testing.app_under_test import settings_of_test

ANA = Principal(id="user:ana", channel="code")


class Bank:
    """A database: what is committed is in `rows`."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.open = 0
        self.log: list[str] = []
        self.reached = Gate()
        self.go = threading.Event()


class Session:
    """Writes that count when they are committed, as those of an ORM's session."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self.thread = threading.get_ident()
        self._written: list[str] = []

    def add(self, row: str) -> None:
        assert self.bank.open, "the session is closed"
        self._written.append(row)

    async def __aenter__(self) -> Session:
        self.bank.open += 1
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        await asyncio.sleep(0)  # a real one asks its database here
        assert threading.get_ident() == self.thread, "it was closed on another thread than made"
        self.bank.open -= 1
        if kind is None:
            self.bank.rows += self._written
        self.bank.log.append("commit" if kind is None else f"roll back: {kind.__name__}")


BANK = Bank()


@pytest.fixture(autouse=True)
def bank() -> Iterator[Bank]:
    BANK.__init__()  # type: ignore[misc]  # the same object, as new
    yield BANK
    assert BANK.open == 0
    assert BANK.log[-1:] != ["open"]


@provides
async def the_bank() -> AsyncIterator[Bank]:
    BANK.log.append("open")
    yield BANK
    BANK.log.append("close")


@provides(scope="call")
async def session(bank: Bank) -> AsyncIterator[Session]:
    async with Session(bank) as session:
        yield session


Db = Annotated[Session, Inject]


@singleton
class Accounts:
    @tool
    async def pay(self, db: Db) -> str:
        """Pay."""
        db.add("paid")
        return "paid"

    @tool
    def pay_in_a_thread(self, db: Db) -> str:
        """Pay."""
        assert threading.get_ident() != db.thread
        db.add("paid")
        return "paid"

    @tool
    async def refuse(self, db: Db) -> None:
        """Refuse."""
        db.add("refused")
        raise ToolError("there is no money")

    @tool
    def break_down(self, db: Db) -> None:
        """Break."""
        db.add("broken")
        raise RuntimeError("a bug")

    @tool(timeout=0.05)
    async def hang(self, db: Db) -> None:
        """Hang."""
        db.add("hung")
        await asyncio.Event().wait()

    @tool(timeout=0.05)
    def hang_in_a_thread(self, ctx: RunContext, db: Db) -> None:
        """Hang until the test says so, and use the session after that."""
        assert db.bank.go.wait(60)
        db.add("late")

    @tool(idempotent=True, retries=1)
    async def try_again(self, ctx: ToolContext, db: Db) -> str:
        """Fail once."""
        db.add(f"try {ctx.attempt}")
        if ctx.attempt == 1:
            raise ConnectionError("gone")
        return "done"

    @tool(timeout=30)
    async def wait(self, db: Db) -> str:
        """Wait, and take no notice of the end."""
        db.add("waited")
        try:
            await db.bank.reached.wait()
        except asyncio.CancelledError:
            return "as if nothing was"
        return "waited"

    @tool(needs_approval=lambda ctx: False)
    async def plain(self) -> str:
        """Take nothing."""
        return "plain"


def is_dear(ctx: ToolContext, db: Db, amount: int) -> bool:
    db.bank.log.append(f"is {amount} dear?")
    return amount > 100


def look(ctx: ToolContext, db: Db) -> None:
    raise AssertionError("nothing was interrupted")


@tool(needs_approval=is_dear, reconcile=look)
async def buy(amount: int, db: Db) -> str:
    """Buy."""
    db.add(f"bought for {amount}")
    return "bought"


@agent(tools=[Accounts, buy])
class Teller:
    """You are a teller."""


def run(tool: str, **arguments: Any) -> Any:
    return run_agent(Teller, "go", model=ScriptedModel([call(tool, **arguments), "ok"])).call(tool)


@pytest.mark.parametrize("name", ["pay", "pay_in_a_thread"])
def test_what_a_tool_wrote_is_committed_before_its_result_is_told(bank: Bank, name: str) -> None:
    assert run(name).result == "paid"
    assert (bank.rows, bank.log) == (["paid"], ["open", "commit", "close"])


@pytest.mark.parametrize(
    ("name", "told", "end"),
    [
        ("refuse", "there is no money", "roll back: ToolError"),
        ("break_down", "The tool failed.", "roll back: RuntimeError"),
        ("hang", "outcome is unknown", "roll back: CancelledError"),
    ],
)
def test_what_a_tool_wrote_is_rolled_back_when_it_fails(bank: Bank, name: str, told: str, end: str) -> None:
    called = run(name)
    assert called.is_error
    assert told in called.result
    assert (bank.rows, bank.log) == ([], ["open", end, "close"])


def test_each_try_has_things_of_its_own(bank: Bank) -> None:
    assert run("try_again").result == "done"
    assert bank.rows == ["try 2"]
    assert bank.log == ["open", "roll back: ConnectionError", "commit", "close"]


def test_a_thread_that_was_told_to_stop_keeps_its_session_until_it_ends(bank: Bank) -> None:
    async def main() -> None:
        running = asyncio.create_task(
            arun_agent(Teller, "go", model=ScriptedModel([call("hang_in_a_thread"), [opened, "ok"]]))
        )
        assert await opened.reached()
        assert (bank.open, bank.log) == (1, ["open"])
        bank.go.set()
        opened.open()
        await running

    opened = Gate()
    asyncio.run(main())
    assert (bank.rows, bank.log) == ([], ["open", "roll back: CancelledError", "close"])


def test_rules_of_a_tool_and_instructions_are_given_things_too(bank: Bank) -> None:
    @agent(tools=[buy])
    class Buyer:
        def instructions(self, ctx: RunContext, db: Db) -> str:
            return f"There are {db.bank.open} sessions."

    model = ScriptedModel([call("buy", amount=5), "ok"])
    result = run_agent(Buyer, "go", model=model)
    assert result.requests[0].instructions == "There are 1 sessions."
    assert result.call("buy").result == "bought"
    assert bank.log == ["open", "commit", "is 5 dear?", "commit", "commit", "close"]


def test_a_replaced_thing_is_given_as_it_is(bank: Bank) -> None:
    fake = Session(bank)
    bank.open = 1
    run_agent(Teller, "go", model=ScriptedModel([call("pay"), "ok"]), replace={Session: fake})
    assert fake._written == ["paid"]
    assert bank.log == []
    bank.open = 0


@asynccontextmanager
async def of_a_worker(runtime: Runtime) -> AsyncIterator[None]:
    await runtime.start()
    try:
        yield
    finally:
        await runtime.stop()


@asynccontextmanager
async def of_a_server(runtime: Runtime) -> AsyncIterator[None]:
    app = web_app(runtime)
    async with app.router.lifespan_context(app):
        yield


@pytest.mark.parametrize(("kind", "end"), [(of_a_worker, "cancel"), (of_a_worker, "stop"), (of_a_server, "stop")])
def test_things_are_closed_when_a_run_is_cancelled_and_when_the_process_stops(
    bank: Bank, tmp_path: Path, kind: Callable[[Runtime], Any], end: str
) -> None:
    async def main() -> Run:
        settings = settings_of_test(tmp_path, tmp_path / "ai", {"server.stop-grace-s": 0.0})
        model = ScriptedModel([call("wait"), "ok"])
        runtime = Runtime(settings, build_declarations([Teller, the_bank, session]), stand_ins=StandIns(model=model))
        async with kind(runtime):
            run_id = (await runtime.engine.submit("teller", "go", principal=ANA)).run.id
            assert await bank.reached.reached()
            assert bank.log == ["open"]
            if end == "cancel":
                await runtime.engine.cancel(run_id, ANA)
            return await runtime.engine.get_run(run_id, ANA)

    asyncio.run(main())
    assert (bank.rows, bank.log) == ([], ["open", "roll back: Interrupted", "close"])


def test_a_tool_that_takes_nothing_opens_nothing(bank: Bank) -> None:
    assert run("plain").result == "plain"
    assert bank.log == ["open", "close"]


class Slow(Session):
    """A session whose rollback waits until the test lets it go on."""

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            self.bank.reached.open()
            await LET_GO[0].wait()
        except asyncio.CancelledError:
            self.bank.log.append("cut off")
            raise
        finally:
            await super().__aexit__(kind, *error)


LET_GO: list[asyncio.Event] = []


@provides(scope="call")
async def slow(bank: Bank) -> AsyncIterator[Slow]:
    async with Slow(bank) as session:
        yield session


@tool(timeout=0.05)
async def hang_slowly(db: Annotated[Slow, Inject]) -> None:
    """Hang."""
    await asyncio.Event().wait()


@agent(tools=[hang_slowly])
class SlowTeller:
    """You are a teller."""


@on("run.completed", timeout=None)
async def hang_as_handler(event: RunEvent, db: Annotated[Slow, Inject]) -> None:
    db.bank.log.append("told")
    await asyncio.Event().wait()


async def stop_after_a_timeout(
    bank: Bank, folder: Path, tool: str, grace: float, meanwhile: Callable[[], None]
) -> None:
    """End a run whose tool has timed out and whose code goes on, stop the process, and do something as it stops."""
    settings = settings_of_test(folder, folder / "ai", {"server.stop-grace-s": grace})
    model = ScriptedModel([call(tool), "ok"])
    declarations = build_declarations([Teller, SlowTeller, the_bank, session, slow])
    runtime = Runtime(settings, declarations, stand_ins=StandIns(model=model))
    LET_GO[:] = [asyncio.Event()]
    await runtime.start()
    agent = "slow-teller" if tool == "hang_slowly" else "teller"
    run = (await runtime.engine.submit(agent, "go", principal=ANA)).run
    assert (await runtime.engine.wait(run.id, ANA, timeout=60)).status.final
    assert (bank.open, bank.log) == (1, ["open"])
    stopping = asyncio.create_task(runtime.stop())
    done, _ = await asyncio.wait((stopping,), timeout=0.1)
    assert not done or not grace
    meanwhile()
    await asyncio.wait_for(stopping, 60)


def test_a_stop_waits_for_a_rollback_of_a_run_that_has_ended_before_it_closes_what_lives_longer(
    bank: Bank, tmp_path: Path
) -> None:
    asyncio.run(stop_after_a_timeout(bank, tmp_path, "hang_slowly", 8.0, lambda: LET_GO[0].set()))
    assert bank.log == ["open", "roll back: CancelledError", "close"]


def test_a_stop_waits_for_a_thread_of_a_run_that_has_ended_before_it_closes_what_that_uses(
    bank: Bank, tmp_path: Path
) -> None:
    asyncio.run(stop_after_a_timeout(bank, tmp_path, "hang_in_a_thread", 8.0, bank.go.set))
    assert bank.log == ["open", "roll back: CancelledError", "close"]


@pytest.mark.parametrize("tool", ["hang_slowly", "hang_in_a_thread"])
def test_what_has_not_ended_after_the_grace_is_cut_off_before_what_lives_longer_is_closed(
    bank: Bank, tmp_path: Path, tool: str
) -> None:
    asyncio.run(stop_after_a_timeout(bank, tmp_path, tool, 0.0, lambda: None))
    bank.go.set()
    cut = ["cut off"] if tool == "hang_slowly" else []
    assert bank.log == ["open", *cut, "roll back: CancelledError", "close"]


def test_a_handler_of_an_event_is_cut_off_before_what_lives_longer_is_closed(bank: Bank, tmp_path: Path) -> None:
    async def main() -> None:
        settings = settings_of_test(tmp_path, tmp_path / "ai", {"server.stop-grace-s": 0.0})
        declarations = build_declarations([Teller, the_bank, session, slow, hang_as_handler])
        runtime = Runtime(settings, declarations, stand_ins=StandIns(model=ScriptedModel(["ok"])))
        LET_GO[:] = [asyncio.Event()]
        await runtime.start()
        await runtime.engine.submit("teller", "go", principal=ANA)
        async with asyncio.timeout(60):
            while "told" not in bank.log:
                await asyncio.sleep(0.01)
        await runtime.stop()

    asyncio.run(main())
    assert bank.log == ["open", "told", "cut off", "roll back: CancelledError", "close"]
