"""Unsafe tools that are interrupted: never run twice, and the model is told so; with `reconcile` it is asked first."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.testing import call

pytestmark = pytest.mark.crash

UNKNOWN = "outcome is unknown"


# Unsafe tools: unknown is unknown however it came about.

UNSAFE = '''
import asyncio, time
from amoxi_py import Done, NotDone, SyncToolContext, ToolContext, Unknown, agent, tool
from .ledger import gate, gate_sync, note


@tool
async def charge(order: str, ctx: ToolContext) -> str:
    """Charge an order."""
    note("charge", ctx)
    await gate("charge")
    note("charge ended", ctx)
    return "charged"


@tool
def charge_in_thread(order: str, ctx: SyncToolContext) -> str:
    """Charge an order."""
    note("charge", ctx)
    gate_sync("charge")
    note("charge ended", ctx)
    return "charged"


@tool(timeout=0.3)
async def charge_slowly(order: str, ctx: ToolContext) -> str:
    """Charge an order."""
    note("charge", ctx)
    await gate("charge")
    note("charge ended", ctx)
    return "charged"


@tool(timeout=0.3)
def charge_slowly_in_thread(order: str, ctx: SyncToolContext) -> str:
    """Charge an order."""
    note("charge", ctx)
    gate_sync("charge")
    note("charge ended", ctx)
    return "charged"


@agent(tools=[charge, charge_in_thread, charge_slowly, charge_slowly_in_thread])
class Till:
    """You take money."""
'''


def test_an_unsafe_tool_whose_time_is_up_is_not_repeated_and_the_model_is_told_that_the_outcome_is_unknown(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    one_story: Any,
    strict_model: Any,
    model_env: Any,
    results_in: Any,
) -> None:
    script = {name: [call(name, order="A-1"), "I will look."] for name in ("charge_slowly", "charge_slowly_in_thread")}
    model = strict_model(script)
    folder = field_app(UNSAFE)
    api = client(start(folder, env=model_env(model)))
    for name in script:
        run = api.submit("till", name, wait=20)
        assert (run["status"], run["output"]) == ("completed", "I will look.")
        [result] = results_in(model.requests[-1])
        assert result.tool == name
        assert UNKNOWN in result.content
        events = api.events(run["id"], after=0)
        one_story(events)
        [call_] = [call for message in api.messages("till", run["conversation_id"]) for call in message["calls"]]
        assert call_["status"] == "unknown"
        assert len(folder.ledger("charge", run=run["id"])) == 1
    folder.open_gate("charge")
    until(lambda: folder.ledger("charge ended"))  # the thread cannot be stopped, but what it does changes nothing
    run = api.submit("till", "charge_slowly", wait=20, conversation_id=run["conversation_id"])
    assert run["status"] == "completed"
    assert len(folder.ledger("charge")) == 3


@pytest.mark.parametrize("killed_too", [False, True], ids=["the server goes on", "and the server is killed at once"])
def test_an_unsafe_tool_cancelled_in_its_middle_is_not_repeated_and_a_later_turn_knows_of_it(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    one_story: Any,
    strict_model: Any,
    model_env: Any,
    results_in: Any,
    killed_too: bool,
) -> None:
    names = ("charge", "charge_in_thread")
    model = strict_model(
        {**{name: [call(name, order="A-1"), "never said"] for name in names}, "and?": ["I will look."]}
    )
    folder = field_app(UNSAFE)
    server = start(folder, env=model_env(model))
    api = client(server)
    runs = {name: api.submit("till", name) for name in names}
    until(lambda: len(folder.ledger("charge")) == 2)
    for run in runs.values():
        assert api.cancel(run["id"])["status"] == "cancelled"
    if killed_too:
        server.kill9()
        api = client(start(folder, env=model_env(model)))
    folder.open_gate("charge")
    for name, run in runs.items():
        events = api.events(run["id"], after=0)
        one_story(events, end="run.cancelled")
        [completed] = [event.data for event in events if event.type == "tool.completed"]
        assert UNKNOWN in completed["result"]
        later = api.submit("till", "and?", wait=20, conversation_id=run["conversation_id"])
        assert (later["status"], later["output"]) == ("completed", "I will look.")
        [result] = results_in(model.requests[-1])
        assert result.tool == name
        assert UNKNOWN in result.content
        assert api.run(run["id"])["status"] == "cancelled"
    assert len(folder.ledger("charge")) == 2


RECONCILED = '''
from amoxi_py import Done, NotDone, ToolContext, Unknown, agent, singleton, tool
from pydantic import BaseModel
from .ledger import gate, note


class Shipment(BaseModel):
    number: int
    order: str


def look_and_find(order: str, ctx: ToolContext) -> Done:
    note("asked", ctx, order=order)
    return Done(Shipment(number=7, order=order))


def look_and_find_nothing(order: str, ctx: ToolContext) -> NotDone:
    note("asked", ctx, order=order)
    return NotDone()


@singleton
class Parcels:
    @tool(reconcile=look_and_find)
    async def ship_done(self, order: str, ctx: ToolContext) -> Shipment:
        """Ship an order."""
        return await self.ship(order, ctx)

    @tool(reconcile=look_and_find_nothing)
    async def ship_not_done(self, order: str, ctx: ToolContext) -> Shipment:
        """Ship an order."""
        return await self.ship(order, ctx)

    @tool(reconcile="look_in_vain")
    async def ship_unknown(self, order: str, ctx: ToolContext) -> Shipment:
        """Ship an order."""
        return await self.ship(order, ctx)

    async def look_in_vain(self, order: str, ctx: ToolContext) -> Unknown:
        note("asked", ctx, order=order)
        return Unknown("the carrier does not answer")

    @tool(reconcile="look_badly")
    async def ship_error(self, order: str, ctx: ToolContext) -> Shipment:
        """Ship an order."""
        return await self.ship(order, ctx)

    async def look_badly(self, order: str, ctx: ToolContext) -> Unknown:
        note("asked", ctx, order=order)
        raise ConnectionError("secret host unreachable")

    @tool(reconcile="look_slowly")
    async def ship_slow(self, order: str, ctx: ToolContext) -> Shipment:
        """Ship an order; finding out takes a while."""
        return await self.ship(order, ctx)

    async def look_slowly(self, order: str, ctx: ToolContext) -> NotDone:
        note("asked", ctx, order=order)
        await gate("look")
        return NotDone()

    async def ship(self, order: str, ctx: ToolContext) -> Shipment:
        note("ship", ctx, order=order)
        await gate("ship")
        return Shipment(number=ctx.attempt, order=order)


TOOLS = [Parcels]


@agent(tools=TOOLS)
class Carrier:
    """You ship."""
'''

SHIPS = ("ship_done", "ship_not_done", "ship_unknown", "ship_error", "ship_slow")


def check_reconciled(folder: Any, api: Any, model: Any, results_in: Any, runs: dict[str, str], again: int) -> None:
    """Check what became of the calls: found, run again with the same id, or unknown with the reason."""
    texts: dict[str, str] = {}
    for name, run_id in runs.items():
        run = api.until_status(run_id)
        assert run["status"] == "completed", (name, run)
        last = [request for request in model.requests if request.messages[0].text == name][-1]
        [result] = results_in(last)
        texts[name] = result.content
        assert len({line["call"] for line in folder.ledger(run=run_id)}) == 1
    assert '"number":7' in texts["ship_done"].replace(" ", "")
    assert UNKNOWN in texts["ship_unknown"]
    assert "the carrier does not answer" in texts["ship_unknown"]
    assert UNKNOWN in texts["ship_error"]
    assert "secret" not in texts["ship_error"]
    ships = {name: [line["attempt"] for line in folder.ledger("ship", run=run_id)] for name, run_id in runs.items()}
    for name in ("ship_done", "ship_unknown", "ship_error"):
        assert ships[name] == [1], (name, ships)
    for name in ("ship_not_done", "ship_slow"):
        if name in ships:
            assert ships[name] == [1, again], (name, ships)
            assert f'"number":{again}' in texts[name].replace(" ", "")
    for line in folder.ledger("asked"):
        assert line["order"] == "A-1"


def test_reconcile_is_asked_after_a_kill_and_again_after_a_kill_in_it(
    field_app: Any, start: Any, client: Any, until: Any, strict_model: Any, model_env: Any, results_in: Any
) -> None:
    model = strict_model({name: [call(name, order="A-1"), "Done."] for name in SHIPS})
    folder = field_app(RECONCILED)
    server = start(folder, env=model_env(model))
    api = client(server)
    runs = {name: api.submit("carrier", name)["id"] for name in SHIPS}
    until(lambda: len(folder.ledger("ship")) == len(SHIPS))
    server.kill9()
    folder.open_gate("ship")
    server = start(folder, env=model_env(model))
    until(lambda: len(folder.ledger("asked")) == len(SHIPS))
    api = client(server)
    for name in SHIPS[:-1]:
        api.until_status(runs[name], "completed")
    server.kill9()
    server = start(folder, env=model_env(model))
    until(lambda: len(folder.ledger("asked", run=runs["ship_slow"])) == 2)
    folder.open_gate("look")
    check_reconciled(folder, client(server), model, results_in, runs, again=2)
    for name in SHIPS[:-1]:
        assert len(folder.ledger("asked", run=runs[name])) == 1


def test_reconcile_is_asked_when_the_time_is_up(
    field_app: Any, start: Any, client: Any, until: Any, strict_model: Any, model_env: Any, results_in: Any
) -> None:
    ships = SHIPS[:-1]
    model = strict_model({name: [call(name, order="A-1"), "Done."] for name in ships})
    folder = field_app(RECONCILED.replace("@tool(reconcile", "@tool(timeout=1.5, reconcile"))
    api = client(start(folder, env=model_env(model)))
    runs = {name: api.submit("carrier", name)["id"] for name in ships}
    until(lambda: len(folder.ledger("asked")) == len(ships))
    folder.open_gate("ship")
    check_reconciled(folder, api, model, results_in, runs, again=2)
    assert len(folder.ledger("asked")) == len(ships)


IN_THREAD = '''
from amoxi_py import NotDone, SyncToolContext, agent, tool
from .ledger import gate_sync, note


def look_and_find_nothing(order: str, ctx: SyncToolContext) -> NotDone:
    note("asked", ctx)
    return NotDone()


@tool(timeout=1.5, reconcile=look_and_find_nothing)
def ship(order: str, ctx: SyncToolContext) -> str:
    """Ship an order, in a thread that nobody can stop."""
    gate_sync(f"try-{ctx.attempt}")
    note("ship", ctx)
    return "shipped"


@agent(tools=[ship])
class Carrier:
    """You ship."""
'''


def test_what_is_not_done_yet_is_unknown_while_the_code_that_may_do_it_still_runs(
    field_app: Any, start: Any, client: Any, until: Any, strict_model: Any, model_env: Any, results_in: Any
) -> None:
    model = strict_model([call("ship", order="A-1"), "I will look."])
    folder = field_app(IN_THREAD)
    folder.open_gate("try-2")
    api = client(start(folder, env=model_env(model)))
    run = api.submit("carrier", "ship", wait=20)
    assert (run["status"], run["output"]) == ("completed", "I will look.")
    [result] = results_in(model.requests[-1])
    assert UNKNOWN in result.content
    folder.open_gate("try-1")
    until(lambda: folder.ledger("ship"))
    assert [line["attempt"] for line in folder.ledger("ship")] == [1]
