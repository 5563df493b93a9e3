"""What is admitted: the gate over all that is in flight, and each principal's runs, requests and budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import Conflict, NotFound, TooMany
from amoxi_py.ports.store import Submitted

pytestmark = pytest.mark.anyio


async def refused(asked: Awaitable[Any]) -> TooMany:
    with pytest.raises(TooMany) as caught:
        await asked
    return caught.value


async def together(*asked: Awaitable[Submitted]) -> tuple[int, set[str]]:
    """Return how many of these were taken, and the codes of the others."""
    answers = await asyncio.gather(*asked, return_exceptions=True)
    codes = {answer.code for answer in answers if isinstance(answer, TooMany)}
    assert all(isinstance(answer, Submitted | TooMany) for answer in answers)
    return sum(isinstance(answer, Submitted) for answer in answers), codes


async def end(world: Any, lease: Any, *, tokens: int = 0, cost: int = 0) -> None:
    usage = Usage(requests=1, input_tokens=tokens, output_tokens=0, cost=cost)
    await world.store.write(world.finish(lease, 1, usage=usage))


async def test_no_more_runs_are_taken_than_the_gate_says_and_the_next_one_when_a_run_has_ended(world_with: Any) -> None:
    world = await world_with(in_flight=2)
    worker = await world.worker()
    running = await world.start(worker)
    queued = await world.submit(principal=world.bob)
    error = await refused(world.submit())
    assert (error.code, error.retry_after) == ("busy", 1.0)
    await end(world, running)
    await world.submit()
    assert (await refused(world.submit())).code == "busy"
    await world.store.cancel(queued.run.id, world.bob)
    await world.submit()


@pytest.mark.parametrize("others", [False, True])
async def test_those_that_come_together_get_exactly_the_free_places(world_with: Any, others: bool) -> None:
    world = await world_with(in_flight=8)
    async with world.other_process() as other:
        await world.submit()
        crowd = [(world, other)[n % 2 if others else 0] for n in range(30)]
        assert await together(*(one.submit(f"{n}") for n, one in enumerate(crowd))) == (7, {"busy"})


async def test_a_run_that_waits_holds_no_place_and_one_that_goes_on_is_never_refused(world_with: Any) -> None:
    world = await world_with(in_flight=1)
    worker = await world.worker()
    lease, call = await world.waiting_run(worker)
    await world.submit(principal=world.bob)
    await world.store.decide(world.verdict(call, lease))
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.QUEUED
    assert (await refused(world.submit())).code == "busy"
    assert len(await world.claim(worker)) == 2


async def test_runs_that_a_run_asks_for_are_taken_always_and_counted(world_with: Any) -> None:
    world = await world_with(in_flight=1)
    worker = await world.worker()
    _, calls = await world.asking_parent(worker, 3)
    assert (await refused(world.submit())).code == "busy"
    for child, call in zip(await world.claim(worker), calls, strict=True):
        await world.store.write(world.finish(child, 1, for_parent=world.for_parent(call)))
    assert await world.claim(worker) != [], "the run that asked goes on"
    assert (await refused(world.submit())).code == "busy"


async def test_a_known_key_is_answered_when_the_gate_is_shut(world_with: Any) -> None:
    world = await world_with(in_flight=1, runs_at_once=1)
    asked = {"idempotency_key": "k", "digest": "d"}
    assert not await world.store.knows_key(world.submission(**asked))
    first = await world.submit(**asked)
    assert await world.store.knows_key(world.submission(**asked))
    assert (await world.submit(**asked)).run.id == first.run.id
    with pytest.raises(Conflict):
        await world.submit(idempotency_key="k", digest="another")
    assert (await refused(world.submit(idempotency_key="new"))).code == "busy"
    assert not await world.store.knows_key(world.submission(idempotency_key="new"))


async def test_a_refused_message_leaves_the_running_turn_as_it_is(world_with: Any) -> None:
    world = await world_with(in_flight=1)
    worker = await world.worker()
    lease = await world.start(worker)
    run = await world.store.get_run(lease.run_id, world.ann)
    told = len(world.told)
    await refused(world.submit("instead", conversation=run.conversation_id, on_busy="replace"))
    assert await world.store.get_run(lease.run_id, world.ann) == run
    assert len(world.told) == told
    await end(world, lease)


async def test_what_is_refused_for_another_reason_takes_no_place(world_with: Any) -> None:
    world = await world_with(in_flight=1, runs_at_once=1, runs_per_day=1, requests_per_minute=1)
    with pytest.raises(NotFound):
        await world.submit(conversation="conv_of_nobody")
    with pytest.raises(NotFound):
        await world.submit(files=("file_of_nobody",))
    await world.submit()


async def test_a_submission_whose_answer_was_lost_is_found_again_and_counted_once(world_with: Any) -> None:
    world = await world_with(in_flight=1, runs_per_day=2)
    worker = await world.worker()
    world.lose_answer()
    lease = (await world.submit(claim_by=worker)).rows.lease
    await end(world, lease)
    lease = await world.start(worker)
    await end(world, lease)
    assert (await refused(world.submit())).code == "daily_budget_used"


async def test_a_principal_has_so_many_runs_at_once_and_others_have_theirs(world_with: Any) -> None:
    world = await world_with(runs_at_once=2)
    worker = await world.worker()
    async with world.other_process() as other:
        crowd = [(world, other)[n % 2].submit(f"{n}") for n in range(12)]
        assert await together(*crowd) == (2, {"too_many_runs"})
        await world.submit(principal=world.bob)
    leases = await world.claim(worker)
    assert (await refused(world.submit())).retry_after == 1.0
    owners = {(await world.store.owner_of(lease.run_id)).id: lease for lease in leases}
    await end(world, owners[world.ann.id])
    await world.submit()


async def test_a_message_that_replaces_a_run_in_flight_is_no_run_more(world_with: Any) -> None:
    world = await world_with(runs_at_once=1)
    worker = await world.worker()
    first = await world.start(worker)
    conversation = (await world.store.get_run(first.run_id, world.ann)).conversation_id
    second = await world.submit("instead", conversation=conversation, on_busy="replace")
    assert (await world.store.get_run(first.run_id, world.ann)).status is RunStatus.CANCELLED
    assert (await refused(world.submit())).code == "too_many_runs"
    again = [world.submit(f"{n}", conversation=conversation, on_busy="replace") for n in range(3)]
    assert await together(*again, world.submit()) == (3, {"too_many_runs"})
    assert (await world.store.get_run(second.run.id, world.ann)).status is RunStatus.CANCELLED
    assert (await refused(world.submit())).code == "too_many_runs"


async def test_what_is_replaced_leaves_its_place_to_what_comes_with_it(world_with: Any) -> None:
    world = await world_with(runs_at_once=2)
    run = (await world.submit()).run
    replacing = world.submit("instead", conversation=run.conversation_id, on_busy="replace")
    assert await together(replacing, world.submit(idempotency_key="k", digest="d")) == (2, set())
    assert (await refused(world.submit())).code == "too_many_runs"


async def test_a_message_that_replaces_nothing_in_flight_is_one_run_more(world_with: Any) -> None:
    world = await world_with(runs_at_once=1)
    worker = await world.worker()
    waiting, _ = await world.waiting_run(worker)
    run = await world.store.get_run(waiting.run_id, world.ann)
    await world.submit()
    for conversation, on_busy in ((run.conversation_id, "replace"), (run.conversation_id, "queue"), (None, "replace")):
        assert (await refused(world.submit(conversation=conversation, on_busy=on_busy))).code == "too_many_runs"
    other = await refused(world.submit(conversation="conv_of_nobody", on_busy="replace"))
    assert other.code == "too_many_runs"
    assert await world.store.get_run(waiting.run_id, world.ann) == run


async def test_what_runs_below_a_waiting_one_is_replaced_with_it(world_with: Any) -> None:
    world = await world_with(runs_at_once=1)
    parent, _ = await world.asking_parent(await world.worker(), 2)
    conversation = (await world.store.get_run(parent.run_id, world.ann)).conversation_id
    await world.submit("instead", conversation=conversation, on_busy="replace")
    assert (await refused(world.submit())).code == "too_many_runs"


async def test_what_a_principal_asks_for_in_a_minute_is_counted_over_all_processes(world_with: Any) -> None:
    world = await world_with(requests_per_minute=3)
    world.clock.time = 60 * 29_833_334 - 10.0
    async with world.other_process() as other:
        await world.submit()
        await other.store.count_request(world.ann)
        await world.store.count_request(world.bob)
        crowd = [(world, other)[n % 2].submit(f"{n}") for n in range(8)]
        assert await together(*crowd) == (1, {"too_many_requests"})
        error = await refused(other.store.count_request(world.ann))
    assert (error.code, error.retry_after) == ("too_many_requests", 10.0)
    world.clock.move(10)
    await world.submit()


async def test_a_principal_has_so_many_runs_in_a_day_of_utc(world_with: Any) -> None:
    world = await world_with(runs_per_day=3)
    worker = await world.worker()
    for _ in range(2):
        await end(world, await world.start(worker))
    assert await together(*(world.submit(f"{n}") for n in range(4))) == (1, {"daily_budget_used"})
    error = await refused(world.submit())
    assert (error.code, error.retry_after) == ("daily_budget_used", 3600.0), "not longer: somebody may raise it"
    assert str(error) == "you have used today's budget of 3 runs; the next day begins at 00:00 UTC"
    await world.submit(principal=world.bob)
    world.clock.move(86_400 - world.clock.time % 86_400 - 60)
    assert (await refused(world.submit())).retry_after == 60.0
    world.clock.move(60)
    await world.submit()


@pytest.mark.parametrize(("limit", "used"), [("tokens_per_day", "100 tokens"), ("cost_per_day", "1e-07 US dollars")])
async def test_what_runs_have_used_is_counted_when_they_end_however_they_end(
    world_with: Any, limit: str, used: str
) -> None:
    world = await world_with(**{limit: 100})
    worker = await world.worker()
    usage = Usage(requests=1, input_tokens=20, output_tokens=5, cached_tokens=10, cost=25)
    completed, failed, cancelled, erased = [await world.start(worker) for _ in range(4)]
    for lease in (completed, failed, cancelled, erased):
        await world.store.write(world.reply(lease, 1, usage=usage))
    await world.store.write(world.finish(completed, 2))
    await world.store.write(world.fail(failed))
    await world.store.cancel(cancelled.run_id, world.ann)
    await world.start(worker)
    run = await world.store.get_run(erased.run_id, world.ann)
    await world.store.erase(run.conversation_id, world.ann)
    error = await refused(world.submit())
    assert (error.code, used in str(error)) == ("daily_budget_used", True)
    await world.submit(principal=world.bob)


async def test_runs_that_end_in_one_commit_all_count(world_with: Any) -> None:
    world = await world_with(tokens_per_day=100)
    worker = await world.worker()
    leases = [await world.start(worker) for _ in range(4)]
    await asyncio.gather(*(end(world, lease, tokens=25) for lease in leases))
    assert (await refused(world.submit())).code == "daily_budget_used"


async def test_what_runs_that_were_asked_for_have_used_counts_for_the_principal(world_with: Any) -> None:
    world = await world_with(tokens_per_day=100)
    worker = await world.worker()
    _, calls = await world.asking_parent(worker, 2)
    children = await world.claim(worker)
    usage = Usage(requests=1, input_tokens=50)
    for child, call in zip(children, calls, strict=True):
        await world.submit()
        await world.store.write(world.finish(child, 1, for_parent=world.for_parent(call), usage=usage))
    assert (await refused(world.submit())).code == "daily_budget_used"


async def test_an_end_whose_answer_was_lost_is_counted_once(world_with: Any) -> None:
    world = await world_with(tokens_per_day=100)
    lease = await world.start(await world.worker())
    world.lose_answer()
    await end(world, lease, tokens=99)
    await world.submit()


async def test_what_is_counted_outlives_conversations_and_goes_with_its_principal(world_with: Any) -> None:
    world = await world_with(runs_per_day=1)
    run = (await world.submit()).run
    await world.store.erase(run.conversation_id, world.ann)
    assert (await refused(world.submit())).code == "daily_budget_used"
    await world.store.forget_principal(world.ann)
    await world.submit()


async def test_what_nobody_limits_is_not_counted(world: Any) -> None:
    worker = await world.worker()
    await end(world, await world.start(worker), tokens=10)
    await world.store.count_request(world.ann)
    async with world.other_process() as other:
        assert other.limits == world.limits
