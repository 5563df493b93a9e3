"""What is counted of runs that do not simply go through: failed requests, waits, repeated steps, cancels, takeovers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from amoxi_py import ToolContext, agent, tool
from amoxi_py.domain.event import EventType
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.models.script import Gate, call, fail, reply, tries
from amoxi_py.ports.store import Submission, WorkerKey
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")


@tool(idempotent=True, retries=1)
async def pack(ctx: ToolContext) -> str:
    """Pack."""
    await ctx.step("fetch", lambda: "fetched")
    if ctx.attempt == 1:
        raise OSError("the box is torn")
    return "packed"


@tool(needs_approval=True)
async def send() -> str:
    """Send."""
    return "sent"


@agent(tools=[pack, send])
class Packer:
    """You pack."""


def submission(claim_by: WorkerKey | None) -> Submission:
    return Submission(
        run_id=new_id("run"),
        message_id=new_id("msg"),
        conversation_id=new_id("conv"),
        new_conversation=True,
        agent="packer",
        principal=ANN,
        text="hello",
        claim_by=claim_by,
    )


async def ended(engine: Engine, text: str) -> str:
    submitted = await engine.submit("packer", text, principal=ANN)
    run = await engine.wait(submitted.run.id, ANN, timeout=30)
    return run.status.value


def test_a_request_that_failed_is_counted_and_makes_no_turn(with_engine: Any, tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        assert await ended(engine, "hello") == "completed"
        measures = engine.measures
        assert measures.requests == {("scripted", "failed"): 1, ("scripted", "ok"): 1}
        assert sum(measures.turn_seconds["packer"].counts) == 1
        assert sum(measures.run_seconds["packer"].counts) == 1
        assert sum(measures.first_token_seconds["scripted"].counts) == 1

    with_engine(SqliteStore(tmp_path), [Packer], [tries(fail(500), "Hello.")], story)


def test_a_step_that_is_answered_from_its_record_is_counted_as_replayed(with_engine: Any, tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        assert await ended(engine, "pack") == "completed"
        assert engine.measures.steps == {"executed": 1, "replayed": 1}

    with_engine(SqliteStore(tmp_path), [Packer], [call("pack"), "Packed."], story)


def test_a_run_that_waited_is_counted_as_one_that_went_on(with_engine: Any, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)

    async def story(engine: Engine) -> None:
        run = (await engine.submit("packer", "send", principal=ANN)).run
        while (await engine.get_run(run.id, ANN)).status.value != "waiting":
            await asyncio.sleep(0.01)
        assert engine.measures.run_seconds == {}
        [waiting] = (await engine.get_run(run.id, ANN)).waiting_for
        await engine.decide(waiting.call_id, ANN, "approve")
        assert (await engine.wait(run.id, ANN, timeout=30)).status.value == "completed"
        assert engine.measures.resumed == {"crash": 0, "pause": 1}
        turns = engine.measures.turn_seconds["packer"]
        assert sum(turns.counts) == 1, "the turn that waited for a person says nothing of how quick anything is"

    with_engine(store, [Packer], [call("send"), "Sent."], story)


def test_cancels_are_counted_whether_the_run_is_executed_or_waits(with_engine: Any, tmp_path: Path) -> None:
    store, gate = SqliteStore(tmp_path), Gate()

    async def story(engine: Engine) -> None:
        run = (await engine.submit("packer", "think", principal=ANN)).run
        assert await asyncio.to_thread(gate.wait_reached)
        assert (engine.executing, engine.readers, engine.active_conversations) == (1, 0, 1)
        stream = aiter(await engine.follow(ANN, run_id=run.id))
        await anext(stream)
        assert engine.readers == 1
        await stream.aclose()
        assert engine.readers == 0
        behind = await engine.submit(
            "packer", "later", principal=ANN, conversation_id=run.conversation_id, on_busy="queue"
        )
        await engine.cancel(behind.run.id, ANN)
        await engine.cancel(run.id, ANN)
        await engine.cancel(run.id, ANN)
        assert store.measures.events[EventType.RUN_CANCELLED] == 2
        while engine.executing:
            await asyncio.sleep(0.01)
        assert sum(engine.measures.run_seconds["packer"].counts) == 1
        assert (engine.executing, engine.active_conversations) == (0, 0)

    with_engine(store, [Packer], [reply("Well, ", gate, "no.")], story)


def test_a_run_of_a_dead_worker_is_counted_as_taken_over(with_engine: Any, tmp_path: Path) -> None:
    async def die() -> None:
        store = SqliteStore(tmp_path)
        await store.open(lambda events: None)
        worker = await store.enroll(new_id("worker"), 30)
        await store.submit(submission(worker))
        await store.expire_worker(worker.id)
        await store.close()

    asyncio.run(die())

    async def story(engine: Engine) -> None:
        while not (await engine.list_runs(ANN)).items[0].status.final:
            await asyncio.sleep(0.01)
        assert engine.measures.resumed == {"crash": 1, "pause": 0}

    with_engine(SqliteStore(tmp_path), [Packer], ["Hello."], story)


def test_events_that_could_not_be_told_are_counted_and_their_callers_get_their_answers(tmp_path: Path) -> None:
    def refuse(events: Any) -> None:
        raise RuntimeError("nobody hears this")

    async def story() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))
        store = SqliteStore(tmp_path)
        await store.open(refuse)
        submitted = await store.submit(submission(None))
        await store.close()
        assert submitted.created
        assert store.measures.dropped_events == sum(store.measures.events) > 0
        assert [str(error) for error in told] == ["nobody hears this"]

    asyncio.run(story())
