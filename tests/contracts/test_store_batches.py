"""Messages that come at the same moment share a transaction, and become what each of them becomes alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.run import Lease
from amoxi_py.errors import RequestError
from amoxi_py.ports.store import OnBusy, Submission, Submitted, WorkerKey

pytestmark = pytest.mark.anyio

STATES = (
    "completed",
    "failed",
    "running",
    "queued",
    "waiting for its owner",
    "waiting for somebody else",
    "cancelled",
    "cancelled and given back",
    "erased",
    "somebody else's",
    "another agent's",
    "not begun",
)


async def conversation(world: Any, worker: WorkerKey, state: str) -> str:
    """Bring a conversation into a state; return its id."""
    if state == "not begun":
        return new_id("conv")
    if state == "queued":
        queued: str = (await world.submit()).run.conversation_id
        return queued
    if state.startswith("waiting"):
        approver = "owner" if state.endswith("owner") else "finance"
        lease: Lease = (await world.waiting_run(worker, approver=approver))[0]
    else:
        more = {"somebody else's": {"principal": world.bob}, "another agent's": {"agent": "other"}}
        lease = await world.start(worker, **more.get(state, {}))
    owner = world.bob if state == "somebody else's" else world.ann
    name: str = (await world.store.get_run(lease.run_id, owner)).conversation_id
    if state.startswith("cancelled"):
        await world.store.cancel(lease.run_id, owner)
        if state.endswith("back"):
            await world.store.release(lease)
    elif state == "erased":
        await world.store.erase(name, owner)
    elif state == "failed":
        await world.write(world.fail(lease))
    elif state != "running" and not state.startswith("waiting"):
        await world.write(world.finish(lease, 1))
    return name


def messages(world: Any, worker: WorkerKey, name: str, state: str, on_busy: OnBusy, keyed: bool) -> list[Submission]:
    """Make what comes for a conversation at the same moment, the first of it perhaps with a key."""
    common = {"conversation": name, "begins": state == "not begun", "on_busy": on_busy, "claim_by": worker}
    first = world.submission("one", idempotency_key=new_id("key") if keyed else None, **common)
    return [first, world.submission("two", **common), world.submission("three", **common)]


def told(world: Any, answer: Submitted | RequestError) -> tuple[object, ...]:
    if isinstance(answer, RequestError):
        return (type(answer), getattr(answer, "code", None))
    rows = answer.rows
    kept = None if rows is None else (rows.first_seq, rows.lease.fence, [one.text for one in rows.messages])
    return (answer.run.status, answer.run.attempt, answer.created, answer.began, answer.busy, kept)


async def logged(world: Any, answer: Submitted | RequestError) -> list[tuple[object, ...]]:
    if isinstance(answer, RequestError):
        return []
    lease = Lease(run_id=answer.run.id, run=0, conversation=0, worker=0, fence=0)
    return [(event.seq, event.type) for event in await world.log(lease)]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("on_busy", ["replace", "queue", "reject"])
async def test_what_comes_at_the_same_moment_becomes_what_it_becomes_alone(
    world: Any, on_busy: OnBusy, keyed: bool
) -> None:
    worker = await world.worker()
    together: list[Submission] = []
    alone: list[Submission] = []
    for state in STATES:
        for given in (together, alone):
            given += messages(world, worker, await conversation(world, worker, state), state, on_busy, keyed)
    waiting = [world.store.submit(one) for one in together]
    at_once = await asyncio.gather(*waiting, return_exceptions=True)
    one_by_one = [(await asyncio.gather(world.store.submit(one), return_exceptions=True))[0] for one in alone]
    for place, (answer, right) in enumerate(zip(at_once, one_by_one, strict=True)):
        state = STATES[place // 3]
        assert told(world, answer) == told(world, right), (state, place % 3)
        assert await logged(world, answer) == await logged(world, right), (state, place % 3)


async def test_runs_that_begin_together_know_their_first_event(world: Any) -> None:
    worker = await world.worker()
    names = [await conversation(world, worker, "completed") for _ in range(3)]
    sent = [world.submission(conversation=name, claim_by=worker) for name in names]
    sent += [world.submission(claim_by=worker), world.submission(claim_by=worker)]
    stored = await asyncio.gather(*map(world.store.submit, sent))
    for one in stored:
        assert one.rows == await world.store.load(one.rows.lease)
        own = [event.seq for event in await world.log(one.rows.lease) if event.run == one.rows.lease.run]
        assert own[0] == one.rows.first_seq
    assert [one.rows.lease.fence for one in stored] == [1] * 5
