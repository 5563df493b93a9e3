"""What `Engine.wait` returns without a read is what the store would say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from amoxi_py import agent, tool
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import InvalidRequest, NotFound, ValueNotStorable
from amoxi_py.models.script import call, fail
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann", name="Ann", tenant="t1", roles=frozenset({"a", "b"}), claims={"plan": "pro"})
BOB = Principal(id="user:bob")


@tool(read_only=True)
async def look(thing: str) -> str:
    """Look at a thing.

    Args:
        thing: Which
    """
    return f"{thing} is fine"


@tool(needs_approval=True)
async def act() -> str:
    """Do something that a person has to approve."""
    return "done"


@agent(tools=[look, act], max_turns=2)
class Looker:
    """You look at things."""


@agent(tools=[look])
class Unready:
    def instructions(self) -> str:
        raise RuntimeError("no instructions today")


@agent(tools=[look, act])
class Actor:
    """You act."""


ENDS: dict[str, tuple[str, list[Any], str]] = {
    "completes": ("looker", [call("look", thing="it"), "It is fine."], "completed"),
    "is refused": ("looker", [fail(400)], "failed"),
    "goes round": ("looker", [call("look", thing="it"), call("look", thing="it")], "failed"),
    "is not ready": ("unready", ["Hello."], "failed"),
}


class Reads(SqliteStore):
    """Counts how often a run is read."""

    reads = 0

    async def get_run(self, run_id: str, principal: Principal, agent: str | None = None, **options: Any) -> Run:
        self.reads += 1
        return await super().get_run(run_id, principal, agent, **options)


@pytest.fixture
def tell(with_engine: Any, tmp_path: Path) -> Any:
    """Runs a story on an engine, with the store that counts its reads."""

    def run(script: Any, use: Any, **settings: Any) -> None:
        store = Reads(tmp_path)
        with_engine(store, [Looker, Unready, Actor], script, lambda engine: use(engine, store), **settings)

    return run


@pytest.mark.parametrize("how", ENDS)
def test_a_run_that_ends_here_is_returned_as_the_store_tells_it_and_without_a_read(tell: Any, how: str) -> None:
    name, script, status = ENDS[how]

    async def use(engine: Engine, store: Reads) -> None:
        submitted = await engine.submit(name, "Look at it", principal=ANN)
        run = await engine.wait(submitted.run.id, ANN, timeout=60)
        assert (run.status, store.reads) == (status, 0)
        assert run == await engine.get_run(run.id, ANN)

    tell(script, use)


def test_a_wait_says_nothing_of_a_run_to_others(tell: Any) -> None:
    async def use(engine: Engine, store: Reads) -> None:
        submitted = await engine.submit("looker", "Look at it", principal=ANN)
        for principal, name in ((BOB, None), (ANN, "actor")):
            with pytest.raises(NotFound):
                await engine.wait(submitted.run.id, principal, agent=name, timeout=60)
        assert (await engine.wait(submitted.run.id, ANN, agent="looker", timeout=60)).status == "completed"

    tell(["It is fine."], use)


def test_an_end_that_was_told_just_before_somebody_waits_is_not_waited_for_again(tell: Any) -> None:
    async def use(engine: Engine, store: Reads) -> None:
        submitted = await engine.submit("looker", "Look at it", principal=ANN)
        told = asyncio.get_running_loop().create_future()
        stream = await engine.follow(ANN, run_id=submitted.run.id)
        end_of, waits = engine._hub.end_of, []

        def end_of_told_one(run_id: str, conversation: int) -> asyncio.Future[None]:
            waits.append(run_id)
            return end_of(run_id, conversation) if len(waits) > 1 else told  # the first one is never done

        engine._hub.end_of = end_of_told_one  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(engine.wait(submitted.run.id, ANN, timeout=100))
        assert [event.type.label async for batch in stream for event in batch][-1] == "run.completed"
        assert (await asyncio.wait_for(waiting, 60)).status == "completed"

    tell(["It is fine."], use)


async def until_waiting(engine: Engine, run_id: str) -> Run:
    async with asyncio.timeout(60):
        while (run := await engine.get_run(run_id, ANN)).status != "waiting":
            await asyncio.sleep(0.005)
    return run


def test_a_run_that_waits_for_a_person_is_waited_for_too(tell: Any) -> None:
    async def use(engine: Engine, store: Reads) -> None:
        submitted = await engine.submit("actor", "Do it", principal=ANN)
        waiting = await until_waiting(engine, submitted.run.id)
        end = asyncio.ensure_future(engine.wait(waiting.id, ANN, timeout=60))
        call_id = waiting.waiting_for[0].call_id
        assert call_id is not None
        await engine.decide(call_id, ANN, "approve")
        run = await end
        assert run.status == "completed"
        assert run == await engine.get_run(run.id, ANN)

    tell([call("act"), "Done."], use)


def test_a_cancelled_run_is_returned_when_that_is_stored_and_not_when_its_code_has_ended(tell: Any) -> None:
    begun, held = asyncio.Event(), asyncio.Event()

    async def clings(request: object) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await held.wait()
        return ""

    async def use(engine: Engine, store: Reads) -> None:
        submitted = await engine.submit("looker", "Look at it", principal=ANN)
        await begun.wait()
        end = asyncio.ensure_future(engine.wait(submitted.run.id, ANN, timeout=60))
        await asyncio.sleep(0)
        await engine.cancel(submitted.run.id, ANN)
        async with asyncio.timeout(60):
            assert (await end).status == "cancelled"
        held.set()

    tell(clings, use)


def test_a_submission_that_is_refused_takes_no_place(tell: Any) -> None:
    async def use(engine: Engine, store: Reads) -> None:
        for wrong in ({"files": (object(),)}, {"conversation_id": "\ud800"}, {"idempotency_key": "a\x00"}):
            with pytest.raises((InvalidRequest, ValueNotStorable)):
                await engine.submit("looker", "Look at it", principal=ANN, **wrong)
        submitted = await engine.submit("looker", "Look at it", principal=ANN)
        assert submitted.rows is not None, "the only place is free, so the run begins here and now"
        assert (await engine.wait(submitted.run.id, ANN, timeout=60)).status == "completed"

    tell(["It is fine."], use, concurrency=1)


def test_a_cancelled_run_is_returned_as_cancelled(tell: Any) -> None:
    async def use(engine: Engine, store: Reads) -> None:
        submitted = await engine.submit("looker", "Look at it", principal=ANN)
        end = asyncio.ensure_future(engine.wait(submitted.run.id, ANN, timeout=60))
        await asyncio.sleep(0)
        await engine.cancel(submitted.run.id, ANN)
        assert (await end).status == "cancelled"

    async def never(request: object) -> str:
        await asyncio.Event().wait()
        return ""

    tell(never, use)


def test_a_process_for_its_own_conversations_leaves_those_of_others_alone(tell: Any) -> None:
    async def use(engine: Engine, store: Reads) -> None:
        queued = [await store.submit(submission(ANN)) for _ in range(2)]
        own = await engine.submit("actor", "Do it", principal=ANN)
        waiting = await until_waiting(engine, own.run.id)
        call_id = waiting.waiting_for[0].call_id
        assert call_id is not None
        await engine.decide(call_id, ANN, "approve")
        assert (await engine.wait(own.run.id, ANN, timeout=60)).status == "completed", "its own goes on after a wait"
        assert [(await engine.get_run(one.run.id, ANN)).status for one in queued] == ["queued", "queued"]
        with pytest.raises(NotFound):
            await engine.take_up(queued[0].run.conversation_id, BOB)
        await engine.take_up(queued[0].run.conversation_id, ANN)
        async with asyncio.timeout(60):
            while (await engine.get_run(queued[0].run.id, ANN)).status != "waiting":
                await asyncio.sleep(0.01)
        assert (await engine.get_run(queued[1].run.id, ANN)).status == "queued"

    tell([call("act"), "Done."], use, executes="own_conversations")


def test_a_process_for_its_own_runs_executes_no_other_one_of_the_conversation(tell: Any) -> None:
    async def use(engine: Engine, store: Reads) -> None:
        left = replace(submission(ANN), idempotency_key="k", digest="d")
        await store.submit(left)
        behind = replace(submission(ANN), conversation_id=left.conversation_id, new_conversation=False, on_busy="queue")
        await store.submit(behind)
        found = await engine.submit("actor", "Do it", principal=ANN, idempotency_key="k", digest="d")
        assert found.run.id == left.run_id
        await engine.take_up(left.conversation_id, ANN)
        own = await engine.submit("actor", "Do it", principal=ANN)
        for run in (found.run, own.run):  # the second is claimed after its wait, when the one behind has become due
            async with asyncio.timeout(60):
                while not (waiting := await engine.get_run(run.id, ANN)).waiting_for:
                    await asyncio.sleep(0.01)
            call_id = waiting.waiting_for[0].call_id
            assert call_id is not None
            await engine.decide(call_id, ANN, "approve")
            assert (await engine.wait(run.id, ANN, timeout=60)).status == "completed"
        assert (await engine.get_run(behind.run_id, ANN)).status == "queued"

    tell({"Do it": [call("act"), "Done."]}, use, executes="own_runs")


def submission(principal: Principal) -> Submission:
    return Submission(
        run_id=new_id("run"),
        message_id=new_id("msg"),
        conversation_id=new_id("conv"),
        new_conversation=True,
        agent="actor",
        principal=principal,
        text="Do it",
    )


def test_an_erased_conversation_ends_its_streams(tell: Any) -> None:
    async def use(engine: Engine, store: Reads) -> None:
        submitted = await engine.submit("looker", "Look at it", principal=ANN)
        await engine.wait(submitted.run.id, ANN, timeout=60)
        conversation = submitted.run.conversation_id
        stream = await engine.follow(ANN, conversation_id=conversation)
        labels: list[str] = []

        async def read() -> None:
            async for batch in stream:
                labels.extend(event.type.label for event in batch)

        reading = asyncio.ensure_future(read())
        async with asyncio.timeout(60):
            while "run.completed" not in labels:
                await asyncio.sleep(0)
            assert not reading.done(), "a conversation's stream stays open"
            await engine.erase(conversation, ANN)
            await reading

    tell(["It is fine."], use)
