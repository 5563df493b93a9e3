"""Child runs: in the conversation of their root, with a lease and a log of their own, and an end that is a result."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.run import RunFailure, RunStatus
from amoxi_py.domain.settle import HALF_DONE_TEXT
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import LeaseLost, NotFound
from amoxi_py.ports.changes import Summary
from amoxi_py.ports.operator_store import RunFilter

pytestmark = pytest.mark.anyio


def labels(events: Any) -> list[str]:
    return [event.type.label for event in events]


async def own_log(world: Any, run_id: str) -> list[Any]:
    position = await world.store.find_log(world.ann, run_id=run_id)
    return list((await world.store.read_log(position, 0, 100, 10**6)).events)


async def test_a_child_runs_behind_nobody_and_its_end_is_the_result_of_the_call(world: Any) -> None:
    worker = await world.worker()
    lease, calls = await world.asking_parent(worker, 2)
    (first, second) = await world.claim_rows(worker)
    assert [rows.lease.run_id for rows in (first, second)] == [world.child(call).run_id for call in calls]
    assert (first.agent, first.principal, first.conversation_id) == ("researcher", world.ann, second.conversation_id)
    assert first.messages[0].text == "look it up"
    assert [(one.run, one.run_id, one.agent, one.turn, one.n) for one in second.ancestors] == [
        (lease.run, lease.run_id, world.agent, 1, 1)
    ]
    assert first.ancestors[0].created_at == world.clock.now()
    assert [rows.created_at for rows in (first, second)] == [world.clock.now()] * 2
    for rows in (first, second):
        position = await world.store.find_log(world.ann, run_id=rows.lease.run_id)
        assert position.first_seq == min(event.seq for event in world.told if event.run == rows.lease.run)
    waiting = (await world.store.get_run(lease.run_id, world.ann)).waiting_for
    assert [(one.kind, one.call_id, one.tool, one.name) for one in waiting] == [
        ("child", call.id, "ask_researcher", "researcher") for call in calls
    ]
    await world.store.write(world.finish(first.lease, 1, for_parent=world.for_parent(calls[0], "A")))
    (rows,) = await world.claim_rows(worker)
    assert rows.lease.run_id == lease.run_id, "each child's end wakes the parent"
    call = rows.messages[-1].calls[0]
    assert (call.status, call.result) == (CallStatus.DONE, '"A"')
    assert rows.messages[-1].calls[1].status is CallStatus.STARTED
    (told,) = [event for event in world.told if event.run == lease.run and event.type is EventType.TOOL_COMPLETED]
    assert told.data["result"] == "A"
    assert not told.hidden
    log = await world.log(lease)
    assert labels(log) == world.labels(lease), "readers of the conversation see the root alone"
    assert [event.data for event in log] == [event.data for event in world.told if event.run == lease.run]


async def test_a_child_has_a_log_of_its_own_that_others_do_not_see(world: Any) -> None:
    worker = await world.worker()
    lease, (call,) = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    await world.store.write(world.finish(child, 1, "It is 42.", for_parent=world.for_parent(call)))
    log = await own_log(world, child.run_id)
    assert labels(log) == ["run.queued", "message.completed", "run.started", "message.completed", "run.completed"]
    assert [event.data for event in log] == [event.data for event in world.told if event.run == child.run]
    assert all(event.hidden and event.run_id == child.run_id for event in log)
    assert log[0].data["agent"] == "researcher"
    run = await world.store.get_run(child.run_id, world.ann)
    assert (run.agent, run.status, run.output) == ("researcher", RunStatus.COMPLETED, "It is 42.")
    with pytest.raises(NotFound):
        await world.store.get_run(child.run_id, world.bob)
    page = await world.store.read_conversation(run.conversation_id, world.ann)
    assert [message.run_id for message in page.messages.items] == [lease.run_id] * 2
    position = await world.store.find_log(world.ann, conversation_id=run.conversation_id)
    assert position.first_seq == 1
    assert [one.id for one in (await world.store.list_runs(world.ann)).items] == [lease.run_id]
    assert [one.id for one in (await world.store.find_runs(RunFilter())).items] == [lease.run_id]
    for status in (RunStatus.COMPLETED, RunStatus.QUEUED):
        found = (await world.store.find_runs(RunFilter(status=status, principal=world.ann.id))).items
        assert [one.id for one in found] == ([lease.run_id] if status is RunStatus.QUEUED else [])
    assert await world.store.busy_runs() == 1
    (parent,) = await world.claim(worker)
    assert (await world.store.history(parent)).messages == ()
    await world.store.write(world.finish(parent, 2))
    following = await world.start(worker, conversation=run.conversation_id)
    history = (await world.store.history(following)).messages
    assert {message.run_id for message in history} == {lease.run_id}


async def test_a_childs_events_are_told_as_its_roots_where_it_says_so(world: Any) -> None:
    worker = await world.worker()
    lease, (call,) = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    asked = world.call(child, 1, approval=world.approval())
    reply = world.reply(child, 1, asked)
    asks = NewEvent(type=EventType.APPROVAL_REQUESTED, turn=1, n=0, subject=asked, told_as="root")
    data = encode_json({"text": "half way"})
    tells = NewEvent(type=EventType.TOOL_PROGRESS, turn=1, n=0, subject=call, data=data, told_as="root_call")
    await world.store.write(replace(reply, events=(*reply.events[:-1], asks, tells)))
    assert await world.store.pause(world.change(child), None, ("approval",))
    log = await world.log(lease)
    assert labels(log)[-2:] == ["approval.requested", "tool.progress"]
    assert [event.data["call_id"] for event in log[-2:]] == [asked.id, call.id]
    assert {event.run_id for event in log} == {lease.run_id}
    assert [(event.source, event.run) for event in log[-2:]] == [(child.run, lease.run), (None, lease.run)]
    root = await world.store.get_run(lease.run_id, world.ann)
    assert [(one.kind, one.call_id) for one in root.waiting_for] == [("approval", asked.id), ("child", call.id)]
    for items in (
        (await world.store.list_approvals(world.ann, world.clock.now(), functions=False)).items,
        (await world.store.open_approvals(world.clock.now())).items,
        (await world.store.get_call(asked.id, world.ann),),
    ):
        assert [(one.call.id, one.run_id, one.agent) for one in items] == [(asked.id, lease.run_id, world.agent)]
    verdict = world.verdict(asked, lease)
    with pytest.raises(NotFound):
        await world.store.decide(replace(verdict, run_id=child.run_id))
    await world.store.decide(verdict)
    decided = (await world.log(lease))[-1]
    assert (decided.type, decided.source, decided.data) == (EventType.APPROVAL_DECIDED, child.run, world.told[-1].data)
    assert decided.data["call_id"] == asked.id
    assert [one.run_id for one in await world.claim(worker)] == [child.run_id]


async def test_a_childs_question_is_asked_of_its_roots_readers_and_its_answer_wakes_the_child(world: Any) -> None:
    worker = await world.worker()
    lease, (call,) = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    asking = world.call(child, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(child, 1, asking))
    change = world.waits_for(child, asking, "question", "Which?")
    await world.store.write(replace(change, events=(replace(change.events[0], told_as="root"),)))
    assert await world.store.pause(world.change(child), None, ("question",))
    waiting = (await world.store.get_run(lease.run_id, world.ann)).waiting_for
    assert [(one.kind, one.call_id, one.name) for one in waiting] == [
        ("child", call.id, "researcher"),
        ("question", asking.id, "Which?"),
    ]
    view = await world.store.answer(world.answer(asking, "This."))
    assert (view.run_id, view.agent, view.call.wait.value) == (lease.run_id, world.agent, '"This."')
    log = await world.log(lease)
    assert labels(log)[-2:] == ["question.asked", "question.answered"]
    assert [(event.run_id, event.source, event.data["call_id"]) for event in log[-2:]] == [
        (lease.run_id, child.run, asking.id)
    ] * 2
    assert [event.data for event in log[-2:]] == [event.data for event in world.told if event.source == child.run]
    assert [one.run_id for one in await world.claim(worker)] == [child.run_id]


async def test_a_child_is_a_thread_of_its_own(world: Any) -> None:
    worker = await world.worker()
    before = await world.start(worker)
    await world.store.write(world.finish(before, 1, "long ago"))
    conversation = (await world.store.get_run(before.run_id, world.ann)).conversation_id
    lease, _ = await world.asking_parent(worker, conversation=conversation)
    (child,) = await world.claim(worker)
    assert (await world.store.history(child)).messages == ()
    summed_up = Summary(run_id=child.run_id, turn=0, text="it was asked to look it up")
    await world.store.write(world.change(child, summary=summed_up))
    assert (await world.store.history(child)).summary == summed_up
    history = await world.store.history(lease)
    assert ([message.text for message in history.messages], history.summary) == (["hello", "long ago"], None)


async def test_handlers_get_no_events_that_readers_of_the_conversation_do_not_see(world: Any) -> None:
    worker = await world.worker()
    (handler,) = await world.store.claim_handlers(["h"], worker)
    _, (call,) = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    await world.store.write(world.finish(child, 1, for_parent=world.for_parent(call)))
    types = list(EventType)
    page = await world.store.arrivals(handler, types, None, 100)
    shown = [event.seq for event in world.told if not event.hidden]
    assert [one.seq for one in page.arrivals] == shown
    found = await world.store.delivery(handler, types, child.conversation, shown[-2] + 1, page.read_to)
    assert (found.event.seq, found.agent) == (shown[-1], world.agent)


async def test_a_pause_looks_again_whether_a_child_has_ended(world: Any) -> None:
    worker = await world.worker()
    lease, calls = await world.asking_parent(worker, 2, pause=False)
    first, second = await world.claim(worker)
    await world.store.write(world.finish(first, 1, for_parent=world.for_parent(calls[0])))
    assert not await world.store.pause(world.change(lease), None, ("child",))
    assert (await world.store.load(lease)).messages[-1].calls[0].status is CallStatus.DONE
    assert await world.store.pause(world.change(lease), None, ("child",)), "it was told of that end"
    await world.store.write(world.fail_child(second, calls[1]))
    (rows,) = await world.claim_rows(worker)
    await world.store.release(rows.lease)
    (rows,) = await world.claim_rows(worker)
    call = rows.messages[-1].calls[1]
    assert (call.status, call.result, call.is_error) == (CallStatus.FAILED, '"it failed"', True)
    assert await world.store.pause(world.change(rows.lease), None, ("child",)), "a claim tells of all ends before it"


async def test_a_run_waits_for_its_model_also_when_a_child_had_ended_before_and_tells_what_it_discards(
    world: Any,
) -> None:
    worker = await world.worker()
    lease, (call,) = await world.asking_parent(worker, pause=False)
    (child,) = await world.claim(worker)
    await world.store.write(world.finish(child, 1, for_parent=world.for_parent(call)))
    await world.store.write(world.delta(lease, "m", 0, "half"))
    gone = NewEvent(type=EventType.MESSAGE_DISCARDED, data='{"message_id":"m"}')
    failed = world.change(lease, model_failures=1, discard=True, events=(gone,))
    assert await world.store.pause(failed, world.clock.now() + 4, ("model",))
    assert world.labels(lease)[-2:] == ["message.discarded", "run.waiting"]
    assert await world.claim(worker) == []
    world.clock.move(4)
    (rows,) = await world.claim_rows(worker)
    assert (rows.lease.run_id, rows.model_failures, rows.partial) == (lease.run_id, 1, None)


async def test_a_claim_tells_of_the_ends_of_children_before_it(world: Any) -> None:
    worker = await world.worker()
    lease, calls = await world.asking_parent(worker, 2, pause=False)
    first, _ = await world.claim(worker)
    await world.store.write(world.finish(first, 1, for_parent=world.for_parent(calls[0])))
    await world.store.release(lease)
    (rows,) = await world.claim_rows(worker)
    assert rows.messages[-1].calls[0].status is CallStatus.DONE
    assert await world.store.pause(world.change(rows.lease), None, ("child",))


async def test_a_call_that_has_its_result_keeps_it_when_the_child_ends(world: Any) -> None:
    worker = await world.worker()
    lease, (call,) = await world.asking_parent(worker, pause=False)
    (child,) = await world.claim(worker)
    await world.store.write(world.result(lease, call, "first"))
    told = len(world.labels(lease))
    await world.store.write(world.finish(child, 1, for_parent=world.for_parent(call, "second")))
    assert (await world.store.load(lease)).messages[-1].calls[0].result == '"first"'
    assert len(world.labels(lease)) == told


async def test_a_child_that_ends_without_a_result_stops_the_call(world: Any) -> None:
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    await world.store.write(world.fail(child))
    (rows,) = await world.claim_rows(worker)
    assert (rows.lease.run_id, rows.messages[-1].calls[0].status) == (lease.run_id, CallStatus.STOPPED)


async def test_what_a_child_wrote_in_the_commit_of_its_parents_end_is_kept(world: Any) -> None:
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker, pause=False)
    (child,) = await world.claim(worker)
    call = world.call(child, 1, status=CallStatus.STARTED)
    written = world.store.write(world.reply(child, 1, call, text="hm")), world.store.write(world.fail(lease))
    for one in written:
        await one
    reply = (await world.store.run_messages(child.run_id, world.ann))[-1]
    assert (reply.text, reply.calls[0].status) == ("hm", CallStatus.STOPPED)
    assert labels(await own_log(world, child.run_id))[-2:] == ["tool.completed", "run.cancelled"]


async def test_cancelling_a_run_ends_all_below_it_at_once(world: Any) -> None:
    worker = await world.worker()
    lease, (call,) = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    _, (below,) = await world.asking_parent(worker, lease=child)
    (grandchild,) = await world.claim(worker)
    unsettled = world.call(grandchild, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(grandchild, 1, unsettled))
    run = await world.store.cancel(lease.run_id, world.ann)
    assert run.status is RunStatus.CANCELLED
    for one in (child, grandchild):
        assert (await world.store.get_run(one.run_id, world.ann)).status is RunStatus.CANCELLED
        with pytest.raises(LeaseLost):
            await world.store.write(world.finish(one, 2, for_parent=world.for_parent(call)))
    for of, it in ((lease, call), (child, below), (grandchild, unsettled)):
        messages = await world.store.run_messages(of.run_id, world.ann)
        assert messages[-1].calls[it.n].status is CallStatus.STOPPED
    ends = [event.run for event in world.told if event.type is EventType.RUN_CANCELLED]
    assert ends == [grandchild.run, child.run, lease.run]
    assert labels(await world.log(lease))[-2:] == ["tool.completed", "run.cancelled"]
    following = await world.submit(conversation=run.conversation_id)
    assert await world.claim(worker) == [], "the grandchild's code may still run"
    await world.store.release(grandchild)
    (next_one,) = await world.claim(worker)
    assert next_one.run_id == following.run.id


async def test_the_next_run_waits_until_every_worker_of_a_cancelled_tree_has_let_go(world: Any) -> None:
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker, 2, pause=False)
    children = await world.claim(worker)
    run = await world.store.cancel(lease.run_id, world.ann)
    await world.submit(conversation=run.conversation_id)
    for one in (children[0], lease):
        await world.store.release(one)
        assert await world.claim(worker) == []
    await world.store.release(children[1])
    assert len(await world.claim(worker)) == 1


async def test_a_child_that_is_cancelled_alone_stops_the_call_and_wakes_its_parent(world: Any) -> None:
    worker = await world.worker()
    lease, (call,) = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    _, (below,) = await world.asking_parent(worker, lease=child)
    for cancelled, parent, it in ((world.child(below), child, below), (world.child(call), lease, call)):
        run = await world.store.cancel(cancelled.run_id, world.ann)
        assert run.status is RunStatus.CANCELLED
        told = next(event for event in reversed(world.told) if event.type is EventType.TOOL_COMPLETED)
        assert (told.run, told.hidden, told.data["call_id"]) == (parent.run, parent is child, it.id)
        (rows,) = await world.claim_rows(worker)
        assert rows.lease.run_id == parent.run_id
        settled = rows.messages[-1].calls[0]
        assert (settled.status, settled.result) == (CallStatus.STOPPED, encode_json(HALF_DONE_TEXT))


async def test_a_parent_that_fails_ends_its_open_children(world: Any) -> None:
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker, 2, pause=False)
    one, other = await world.claim(worker)
    asked = world.call(one, 1, approval=world.approval(approver="role:finance"))
    await world.store.write(world.reply(one, 1, asked))
    await world.store.write(world.delta(other, "msg_9", 0, "so far"))
    await world.store.write(world.fail(lease))
    for child in (one, other):
        assert (await world.store.get_run(child.run_id, world.ann)).status is RunStatus.CANCELLED
    assert labels(await world.log(lease))[-2:] == ["tool.completed", "run.failed"], "the card of the question goes"
    assert (await world.store.list_approvals(world.fin, world.clock.now(), functions=True)).items == ()
    assert (await world.store.run_messages(other.run_id, world.ann))[-1].text == "so far"
    assert await world.store.busy_runs() == 0
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.submit(conversation=conversation)
    assert await world.claim(worker) == [], "the children's code may still run"
    world.clock.move(1.01)
    assert len(await world.claim(worker)) == 1


async def test_ends_of_a_tree_in_one_commit_are_in_order(world: Any) -> None:
    worker = await world.worker()
    for parent_first in (False, True):
        lease, calls = await world.asking_parent(worker, 2, pause=False)
        children = await world.claim(worker)
        ends = [
            world.finish(child, 1, for_parent=world.for_parent(call))
            for child, call in zip(children, calls, strict=True)
        ]
        fails = world.fail(lease)
        verbs = [fails, *ends] if parent_first else [ends[0], fails, ends[1]]
        stored = [world.store.write(change) for change in verbs]
        outcomes = []
        for one in stored:
            try:
                outcomes.append((await one) is not None)
            except LeaseLost:
                outcomes.append(False)
        assert outcomes == ([True, False, False] if parent_first else [True, True, False])
        statuses = [(await world.store.get_run(child.run_id, world.ann)).status.value for child in children]
        assert statuses == ["cancelled" if parent_first else "completed", "cancelled"]
        assert labels(await world.log(lease))[-1] == "run.failed"


async def test_a_worker_of_a_version_before_children_gets_none(world: Any) -> None:
    old = await world.worker()
    await world.change_rows("worker", "knows_children = (1 = 0)")
    new = await world.worker(lease_s=5)
    await world.asking_parent(new)
    (refused,) = await world.claim(old)
    assert refused.worker != old.key, "it begins no run whose worker it is not"
    assert await world.claim(old) == []
    with pytest.raises(LeaseLost):
        await world.store.write(world.finish(replace(refused, worker=old.key), 1))
    assert len(await world.store.claim(new, 90, 10)) == 0, "it rests, so that the old one does not turn in a circle"
    world.clock.move(1)
    (rows,) = await world.store.claim(new, 91, 10)
    assert (rows.lease.run_id, rows.agent, rows.attempt, rows.crashes) == (refused.run_id, "researcher", 1, 0)
    world.clock.move(5)  # the new one is dead, and the old one takes over what it can
    assert [one.worker for one in await world.claim(old) if one.run_id == refused.run_id] == [None]
    world.clock.move(1)
    found = await world.store.claim(await world.worker(), 92, 10)
    assert [(one.lease.run_id, one.attempt, one.crashes) for one in found] == [(refused.run_id, 2, 1)]


async def test_a_run_that_would_wait_for_a_child_which_ended_without_a_word_goes_on(world: Any) -> None:
    worker = await world.worker()
    lease, calls = await world.asking_parent(worker, 2, pause=False)
    (child, other) = await world.claim(worker)
    await world.change_rows("run", f"status = 'completed' WHERE key = {child.run}")
    assert not await world.store.pause(world.change(lease), None, ("child",))
    settled, waiting = (await world.store.load(lease)).messages[-1].calls
    assert (settled.status, settled.result) == (CallStatus.STOPPED, encode_json(HALF_DONE_TEXT))
    assert (waiting.status, waiting.id) == (CallStatus.STARTED, calls[1].id)
    assert world.labels(lease)[-1] == "tool.completed"
    assert await world.store.pause(world.change(lease), None, ("child",))
    await world.store.write(world.finish(other, 1, for_parent=world.for_parent(calls[1])))
    assert [one.run_id for one in await world.claim(worker)] == [lease.run_id]


async def test_usage_counts_up(world: Any) -> None:
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker, 2)
    child, _ = await world.claim(worker)
    _, (below,) = await world.asking_parent(worker, lease=child)
    (grandchild,) = await world.claim(worker)
    await world.store.write(world.change(grandchild, usage=Usage(requests=1, input_tokens=10, cost=5)))
    assert [one.input_tokens for one in await world.store.usages(grandchild)] == [10, 10, 10]
    finish = world.finish(grandchild, 1, usage=Usage(requests=2, input_tokens=20), for_parent=world.for_parent(below))
    await world.store.write(finish)
    (child,) = await world.claim(worker)
    await world.store.write(world.change(child, usage=Usage(requests=1, output_tokens=7, cached_tokens=3)))
    assert (
        await world.store.usages(child) == (Usage(requests=3, input_tokens=20, output_tokens=7, cached_tokens=3),) * 2
    )
    for run_id, requests in ((lease.run_id, 3), (child.run_id, 3), (grandchild.run_id, 2)):
        assert (await world.store.get_run(run_id, world.ann)).usage.requests == requests
    assert (await world.store.list_runs(world.ann)).items[0].usage.input_tokens == 20


async def test_who_executes_only_its_own_runs_executes_what_they_ask_for_too(world: Any) -> None:
    worker = await world.worker()
    await world.asking_parent(worker)
    lease, (call,) = await world.asking_parent(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    (rows,) = await world.claim_rows(worker, runs=[lease.run_id])
    assert rows.lease.run_id == world.child(call).run_id
    await world.store.release(rows.lease)
    (rows,) = await world.claim_rows(worker, conversations=[conversation])
    assert rows.lease.run_id == world.child(call).run_id


async def test_a_child_is_taken_over_like_any_run(world: Any) -> None:
    worker = await world.worker()
    lease, (call,) = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    world.clock.move(31)
    other = await world.worker()
    (rows,) = await world.claim_rows(other)
    assert (rows.lease.run_id, rows.attempt, rows.crashes) == (child.run_id, 2, 1)
    assert rows.ancestors[0].run_id == lease.run_id
    assert labels(await own_log(world, child.run_id))[-1] == "run.resumed"
    with pytest.raises(LeaseLost):
        await world.store.write(world.finish(child, 1, for_parent=world.for_parent(call)))
    await world.store.write(world.finish(rows.lease, 1, for_parent=world.for_parent(call)))
    assert [one.run_id for one in await world.claim(other)] == [lease.run_id]


async def test_a_message_is_queued_while_a_child_waits_for_somebody_else(world: Any) -> None:
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.store.write(
        world.reply(child, 1, world.call(child, 1, approval=world.approval(approver="role:finance")))
    )
    await world.submit(conversation=conversation)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.WAITING
    await world.store.cancel(child.run_id, world.ann)
    await world.submit(conversation=conversation)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.CANCELLED


@pytest.mark.parametrize("of", ["root", "child"])
async def test_a_message_is_queued_while_a_tool_waits_for_a_signal_and_no_longer(world: Any, of: str) -> None:
    worker = await world.worker()
    if of == "root":
        lease = waiting = await world.start(worker)
    else:
        lease, _ = await world.asking_parent(worker)
        (waiting,) = await world.claim(worker)
    call = world.call(waiting, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(waiting, 1, call))
    until = world.clock.now() + 60
    await world.store.write(world.waits_for(waiting, call, "signal", "paid", until=until))
    assert await world.store.pause(world.change(waiting), until, ("signal",))
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.submit(conversation=conversation)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.WAITING
    if of == "root":
        world.clock.move(60)  # nobody is waited for any more
    else:
        await world.store.signal(world.signal(waiting, "paid"))
    await world.submit(conversation=conversation)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.CANCELLED


@pytest.mark.parametrize("kind", ["question", "sleep"])
async def test_a_run_that_waits_for_its_owner_or_a_time_is_replaced(world: Any, kind: str) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 1, call))
    until = world.clock.now() + 60
    await world.store.write(world.waits_for(lease, call, kind, "", until=until))
    assert await world.store.pause(world.change(lease), until, (kind,))
    await world.submit(conversation=(await world.store.get_run(lease.run_id, world.ann)).conversation_id)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.CANCELLED


async def test_nothing_is_left_of_children_when_their_conversation_is_erased(world: Any) -> None:
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.store.erase(conversation, world.ann)
    assert [event.run for event in world.told if event.type.ends_run] == [child.run, lease.run]
    with pytest.raises(NotFound):
        await world.store.get_run(child.run_id, world.ann)
    with pytest.raises(LeaseLost):
        await world.store.write(world.finish(child, 1))
    assert await world.store.busy_runs() == 0


async def test_other_processes_hear_of_children_too(world: Any) -> None:
    worker = await world.worker()
    async with world.other_process() as other:
        lease, (call,) = await world.asking_parent(worker)
        (child,) = await world.claim(worker)
        asked = world.call(child, 1, approval=world.approval())
        await world.store.write(world.reply(child, 1, asked))
        await world.store.decide(world.verdict(asked, lease))
        await world.store.write(world.finish(child, 2, for_parent=world.for_parent(call)))
        await other.until(lambda: bool(other.told) and other.told[-1].seq == world.told[-1].seq)
        heard = [(event.seq, event.run, event.source, event.hidden, event.data) for event in other.told]
        assert heard == [(event.seq, event.run, event.source, event.hidden, event.data) for event in world.told]


@pytest.mark.parametrize("verb", ["asks", "finish", "pause", "cancel"])
async def test_what_a_tree_does_can_be_sent_twice(world: Any, verb: str) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    call = world.call(lease, 1, tool="ask_researcher")
    await world.store.write(world.reply(lease, 1, call))
    asks = world.asks(lease, call)
    if verb == "asks":
        world.lose_answer()
    await world.store.write(asks)
    assert await world.store.write(asks) is None
    (child,) = await world.claim(worker)
    finish = world.finish(child, 1, for_parent=world.for_parent(call))
    if verb == "finish":
        world.lose_answer()
    if verb == "cancel":
        world.lose_answer()
        await world.store.cancel(child.run_id, world.ann)
        await world.store.cancel(child.run_id, world.ann)
    else:
        await world.store.write(finish)
        assert await world.store.write(finish) is None
    pause = world.change(lease)
    if verb == "pause":
        world.lose_answer()
    assert not await world.store.pause(pause, None, ("child",))
    assert not await world.store.pause(pause, None, ("child",)), "sent again: it still goes on"
    assert await world.store.pause(world.change(lease), None, ("child",))
    log = await world.log(lease)
    assert labels(log).count("tool.completed") == 1
    assert labels(await own_log(world, child.run_id)).count("run.queued") == 1
    assert len({event.seq for event in world.told}) == len(world.told)


@pytest.mark.parametrize("other", ["pause", "cancel", "fail", "end", "cancel child"])
async def test_a_childs_end_and_what_another_process_does_at_that_moment_are_one_after_the_other(
    world: Any, other: str
) -> None:
    worker = await world.worker()
    async with world.other_process() as elsewhere:
        for _ in range(6):
            lease, calls = await world.asking_parent(worker, 2, pause=False)
            children = await world.claim(worker)
            ends = [
                world.finish(child, 1, for_parent=world.for_parent(call))
                for child, call in zip(children, calls, strict=True)
            ]
            verbs = {
                "pause": lambda lease=lease: elsewhere.store.pause(world.change(lease), None, ("child",)),
                "cancel": lambda lease=lease: elsewhere.store.cancel(lease.run_id, world.ann),
                "fail": lambda lease=lease: elsewhere.store.write(world.fail(lease)),
                "end": lambda ends=ends: elsewhere.store.write(ends[1]),
                "cancel child": lambda child=children[0]: elsewhere.store.cancel(child.run_id, world.ann),
            }
            ended, answer = await both(world.store.write(ends[0]), verbs[other]())
            parent = await world.store.get_run(lease.run_id, world.ann)
            child = await world.store.get_run(children[0].run_id, world.ann)
            call, beside = (await world.store.run_messages(lease.run_id, world.ann))[-1].calls
            log = await world.log(lease)
            assert child.status is (RunStatus.COMPLETED if ended else RunStatus.CANCELLED)
            results = {"end": 2, "cancel": 2, "fail": int(ended)}.get(other, 1)
            assert labels(log).count("tool.completed") == results
            match other:
                case "pause":
                    assert ended
                    assert parent.status is (RunStatus.QUEUED if answer[0] else RunStatus.RUNNING), "it never waits on"
                case "cancel":
                    assert (call.status is CallStatus.DONE) is ended
                    assert labels(log)[-1] == "run.cancelled"
                case "fail":
                    assert (call.status is CallStatus.DONE) is ended
                    assert labels(log)[-1] == "run.failed"
                case "end":
                    assert [call.status, beside.status] == [CallStatus.DONE] * 2
                case _:
                    assert call.status is (CallStatus.DONE if ended else CallStatus.STOPPED)
            await world.store.cancel(lease.run_id, world.ann)


async def both(ending: Any, doing: Any) -> tuple[bool, list[Any]]:
    """Wait for both; return whether the end was stored, and what the other verb answered."""
    answers: list[Any] = []

    async def do() -> None:
        with suppress(LeaseLost):
            answers.append(await doing)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(do)
        try:
            await ending
            ended = True
        except LeaseLost:
            ended = False
    return ended, answers


async def test_a_failed_child_says_why_to_its_own_readers(world: Any) -> None:
    worker = await world.worker()
    _, (call,) = await world.asking_parent(worker)
    (child,) = await world.claim(worker)
    await world.store.write(world.fail_child(child, call))
    run = await world.store.get_run(child.run_id, world.ann)
    assert (run.status, run.error) == (RunStatus.FAILED, RunFailure(code="model_failed", message="No answer."))
