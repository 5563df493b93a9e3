"""Runs that need code which a process does not have: left to others while they may, ended when none does."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal, agent, tool
from amoxi_py.app.models import AgentModels
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import OpenInstances
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.run import RunStatus
from amoxi_py.engine.direct import started_reply, with_direct
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.engine.versions import Versions
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing import ScriptedModel, call

ANN = Principal(id="user:ann")


@tool
async def pack(order_id: str) -> str:
    """Pack an order."""
    return f"{order_id} is packed"


@tool(needs_approval=True)
async def ship(order_id: str) -> str:
    """Ship an order."""
    return f"{order_id} is shipped"


def shop(*tools: Any) -> Any:
    """The agent `shop` of one version of an app."""

    @agent(tools=tools)
    class Shop:
        """You run a shop."""

    return Shop


@agent
class Helper:
    """You help."""


def engine_of(folder: Path, agents: list[Any], **settings: Any) -> Engine:
    model = ScriptedModel({"ship": [call("ship", order_id="A-1"), "It is shipped."], "*": ["Hello."]}, record=False)
    catalog = build_declarations(agents).catalog
    return Engine(
        store=SqliteStore(folder, synchronous="OFF"),
        catalog=catalog,
        instances=OpenInstances({}),
        models=AgentModels(dict.fromkeys(catalog.agents, model)),
        settings=EngineSettings(poll=0.02, **settings),
    )


def test_a_run_whose_code_no_process_has_ends_when_it_was_left_to_them_long_enough_and_not_before(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        old = engine_of(tmp_path, [shop(pack)], other_versions=0.5)
        door = engine_of(tmp_path, [shop(pack, ship), Helper], worker=False)
        await old.start()
        await door.start()
        submitted = (await door.submit("helper", "hello", principal=ANN)).run
        begun = time.monotonic()
        run = await door.wait(submitted.id, ANN, timeout=20)
        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert run.error.code == "agent_unknown"
        assert run.attempt == 1
        assert time.monotonic() - begun >= 0.5
        await door.stop()
        await old.stop()

    asyncio.run(story())


def test_a_run_is_left_to_a_process_that_has_its_code_which_takes_it_when_it_comes(tmp_path: Path) -> None:
    async def story() -> None:
        old = engine_of(tmp_path, [shop(pack)])
        await old.start()
        new = engine_of(tmp_path, [shop(pack, ship), Helper])
        await new.start()
        asked = (await new.submit("shop", "ship", principal=ANN)).run
        assert await hears(new, asked.id, "run.waiting")
        [waiting] = (await new.get_run(asked.id, ANN)).waiting_for
        await new.stop()
        door = engine_of(tmp_path, [shop(pack, ship), Helper], worker=False)
        await door.start()
        helped = (await door.submit("helper", "hello", principal=ANN)).run
        await door.decide(waiting.call_id or "", ANN, "approve")
        assert await hears(door, asked.id, "run.resumed")
        new = engine_of(tmp_path, [shop(pack, ship), Helper])
        await new.start()
        for submitted, output in ((asked, "It is shipped."), (helped, "Hello.")):
            run = await door.wait(submitted.id, ANN, timeout=20)
            assert (run.status, run.output, run.attempt) == (RunStatus.COMPLETED, output, 1)
        for engine in (new, door, old):
            await engine.stop()

    asyncio.run(story())


def test_what_is_older_than_a_process_and_not_in_it_is_gone_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        door = engine_of(tmp_path, [shop(pack, ship), Helper], worker=False)
        await door.start()
        submitted = (await door.submit("helper", "hello", principal=ANN)).run
        later = engine_of(tmp_path, [shop(pack)])
        await later.start()
        run = await door.wait(submitted.id, ANN, timeout=20)
        assert run.error is not None
        assert run.error.code == "agent_unknown"
        assert not await hears(door, submitted.id, "run.resumed")
        await later.stop()
        await door.stop()

    asyncio.run(story())


@tool(name="pack")
async def pack_in(order_id: str, box: str) -> str:
    """Pack an order in a box."""
    return f"{order_id} is packed in {box}"


@pytest.mark.parametrize(
    ("name", "arguments", "missing"),
    [
        ("ship", '{"order_id":"A-1"}', "there is no tool 'ship' here"),
        ("pack", '{"order_id":"A-1","box":"B"}', "the tool 'pack' does not take its arguments here"),
        ("pack", '{"order_id":"A-1"}', None),
    ],
    ids=["a tool that is not there", "other arguments", "what it takes"],
)
@pytest.mark.parametrize("started", [False, True], ids=["open", "started"])
def test_a_direct_call_is_left_to_a_process_whose_tool_takes_its_arguments(
    tmp_path: Path, name: str, arguments: str, missing: str | None, started: bool
) -> None:
    async def story() -> None:
        new = with_direct(build_declarations([shop(pack_in if "box" in arguments else pack, ship)]).catalog)
        old = with_direct(build_declarations([shop(pack)]).catalog)
        store = SqliteStore(tmp_path, synchronous="OFF")
        await store.open(lambda events: None)
        run_id = new_id("run")
        submission = Submission(
            run_id=run_id,
            message_id=new_id("msg"),
            conversation_id=new_id("conv"),
            new_conversation=True,
            agent=f"tool:{name}",
            principal=ANN,
            text=arguments,
            claim_by=await store.enroll(new_id("worker"), 30.0),
            reply=started_reply(new.tools[name], run_id, arguments, 1.0) if started else None,
        )
        rows = (await store.submit(submission)).rows
        assert rows is not None
        assert Versions(new, 0.0, 300.0).leaving(rows, 0.0) is None
        leaving = Versions(old, 0.0, 300.0).leaving(rows, 0.0)
        assert (None if leaving is None else leaving.reason) == missing
        later = Versions(old, store.clock.now() + 1, 300.0).leaving(rows, 0.0)
        assert later is None, "what is older than the process is gone, and the call says so"
        await store.close()

    asyncio.run(story())


async def hears(engine: Engine, run_id: str, label: str) -> bool:
    """Whether a run's story has such an event; it is read until there is one, or it ends."""
    stream = await engine.follow(ANN, run_id=run_id)
    async with asyncio.timeout(60):
        async with aclosing(aiter(stream)) as pages:
            async for events in pages:
                if label in [event.type.label for event in events]:
                    return True
    return False
