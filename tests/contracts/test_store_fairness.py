"""Whose runs are claimed when there are too few places: nobody waits behind a flood, and no old run behind new ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amoxi_py.domain.principal import Principal

pytestmark = pytest.mark.anyio

FLOOD = 200  # more than all claims of a test take
MANY = Principal(id="user:m")
PLACES = pytest.mark.parametrize("places", [1, 3, 10])


async def flood(world: Any, principal: Principal = MANY, count: int = FLOOD) -> list[str]:
    """Queue runs, each in a conversation of its own, and return their ids, oldest first."""
    submitted = await asyncio.gather(*(world.submit(principal=principal) for _ in range(count)))
    world.clock.move(0.01)
    return [one.run.id for one in submitted]


async def newcomer(world: Any, name: str) -> str:
    submitted = await world.submit(principal=Principal(id=f"user:{name}"))
    world.clock.move(0.01)
    run_id: str = submitted.run.id
    return run_id


async def claim(world: Any, worker: Any, places: int) -> list[str]:
    claimed = [lease.run_id for lease in await world.claim(worker, limit=places)]
    assert len(set(claimed)) == len(claimed)
    return claimed


async def two_claims(world: Any, worker: Any, places: int) -> list[str]:
    first = await claim(world, worker, places)
    return first + await claim(world, worker, places)


@PLACES
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("name", ["a", "z"])
async def test_a_newcomer_is_claimed_within_two_claims_whatever_another_has_queued(
    world: Any, places: int, before: int, name: str
) -> None:
    worker = await world.worker()
    await flood(world)
    for _ in range(before):
        await claim(world, worker, places)
    for _ in range(3):  # its next message is no later than the first
        run = await newcomer(world, name)
        assert run in await two_claims(world, worker, places)


@PLACES
async def test_the_oldest_run_is_claimed_within_two_claims_however_many_newcomers_there_are(
    world: Any, places: int
) -> None:
    worker = await world.worker()
    waiting = await flood(world, count=20)
    names = iter(range(10_000))
    while waiting:
        oldest = waiting[0]
        for _ in range(2):
            for _ in range(2 * places):
                await newcomer(world, f"new-{next(names)}")
            claimed = await claim(world, worker, places)
            assert len(claimed) == places
            waiting = [run for run in waiting if run not in claimed]
        assert oldest not in waiting


@PLACES
async def test_principals_with_many_runs_are_served_in_rotation(world: Any, places: int) -> None:
    worker = await world.worker()
    queued = {name: await flood(world, Principal(id=f"user:{name}"), count=60) for name in "abcdef"}
    owner = {run: name for name, runs in queued.items() for run in runs}
    claimed: list[str] = []
    for _ in range(-(-24 // places)):
        claimed += await claim(world, worker, places)
    served = [owner[run] for run in claimed]
    assert all(served.count(name) >= 2 for name in queued), served
    for name, runs in queued.items():
        mine = [run for run in claimed if owner[run] == name]
        assert mine == runs[: len(mine)], "each one's runs are claimed oldest first"


async def test_all_places_are_used_when_one_principal_has_all_that_is_due(world: Any) -> None:
    worker = await world.worker()
    queued = await flood(world, count=25)
    claims = [await claim(world, worker, 10) for _ in range(3)]
    assert [len(one) for one in claims] == [10, 10, 5]
    assert [run for one in claims for run in one] == queued


async def test_runs_of_dead_workers_come_before_all_others(world: Any) -> None:
    dead = await world.worker(lease_s=5)
    left = [(await world.start(dead, principal=MANY)).run_id for _ in range(3)]
    await flood(world, count=20)
    run = await newcomer(world, "z")
    world.clock.move(6)
    worker = await world.worker()
    assert await claim(world, worker, 3) == left
    assert run in await two_claims(world, worker, 3)


async def test_what_is_not_due_yet_takes_no_place_in_the_rotation(world: Any) -> None:
    worker = await world.worker()
    for name in "bcdefgh":
        lease = await world.start(worker, principal=Principal(id=f"user:{name}"))
        await world.store.release(lease, crashed=True)  # it rests for a second
    await flood(world, count=20)
    run = await newcomer(world, "z")
    claimed = await two_claims(world, worker, 1)
    assert run in claimed
