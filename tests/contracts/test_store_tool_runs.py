"""What every store does with runs of one tool: the call begins with the run, and its result is the run's output."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.ids import call_id, new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.errors import NotFound

pytestmark = pytest.mark.anyio

AGENT = "tool:refund"
ARGUMENTS = '{"order":"A-1"}'


def reply_of(run_id: str) -> Message:
    call = ToolCall(
        id=call_id(run_id, 1, 0),
        turn=1,
        n=0,
        tool="refund",
        arguments=ARGUMENTS,
        effect=Effect.IDEMPOTENT,
        status=CallStatus.STARTED,
        tries=1,
    )
    return Message(id=new_id("msg"), run_id=run_id, turn=1, role="assistant", text="", calls=(call,))


def submission(world: Any, **more: Any) -> Any:
    run_id = new_id("run")
    return world.submission(ARGUMENTS, run_id=run_id, agent=AGENT, reply=reply_of(run_id), **more)


async def test_the_call_of_a_tool_begins_in_the_commit_that_claims_its_run(world: Any) -> None:
    asked = submission(world, claim_by=await world.worker())
    submitted = await world.store.submit(asked)
    rows = submitted.rows
    assert [(one.role, one.text) for one in rows.messages] == [("user", ARGUMENTS), ("assistant", "")]
    assert rows.messages[1].calls == asked.reply.calls
    loaded = await world.store.load(rows.lease)
    assert loaded.messages == rows.messages
    assert await world.store.run_messages(submitted.run.id, world.ann) == rows.messages
    assert world.labels(rows.lease) == [
        "run.queued",
        "message.completed",
        "run.started",
        "message.completed",
        "tool.called",
    ]
    told = [(event.seq, event.type, event.data) for event in world.told]
    assert told == [(event.seq, event.type, event.data) for event in await world.log(rows.lease)]
    again = await world.store.submit(asked)
    assert (again.run, again.rows.messages) == (submitted.run, rows.messages), "sent twice it is there once"


async def test_a_call_that_nobody_claims_does_not_begin(world: Any) -> None:
    asked = submission(world)
    submitted = await world.store.submit(asked)
    assert submitted.rows is None
    (message,) = await world.store.run_messages(submitted.run.id, world.ann)
    assert message.text == ARGUMENTS
    with pytest.raises(NotFound):
        await world.store.get_call(call_id(submitted.run.id, 1, 0), world.ann)
    (rows,) = await world.claim_rows(await world.worker())
    assert rows.messages == (message,)


async def test_of_calls_that_are_stored_together_only_the_claimed_begin(world: Any) -> None:
    worker = await world.worker()
    asked = [submission(world, **({"claim_by": worker} if n % 2 else {})) for n in range(6)]
    done = [await future for future in [world.store.submit(one) for one in asked]]
    found = [len(await world.store.run_messages(one.run.id, world.ann)) for one in done]
    assert found == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize(
    ("value", "output", "result"),
    [
        ("done: Zoë", "done: Zoë", None),
        ({"name": "Zoë"}, '{"name":"Zoë"}', '{"name":"Zo\\u00eb"}'),
        ([1, None], "[1,null]", "[1,null]"),
        (None, "null", "null"),
    ],
    ids=["text", "object", "list", "nothing"],
)
async def test_the_result_of_a_tool_is_the_output_of_its_run(
    world: Any, value: Any, output: str, result: str | None
) -> None:
    submitted = await world.store.submit(submission(world, claim_by=await world.worker()))
    rows = submitted.rows
    (call,) = rows.messages[1].calls
    assert (await world.store.get_run(submitted.run.id, world.ann)).output is None
    change = world.result(rows.lease, call, value, end="completed")
    ended = NewEvent(type=EventType.RUN_COMPLETED)
    await world.write(replace(change, events=(*change.events, ended)))
    run = await world.store.get_run(submitted.run.id, world.ann)
    assert (run.agent, run.status, run.output, run.result) == (AGENT, "completed", output, result)
    assert (await world.store.list_runs(world.ann)).items == (run,)
    assert (await world.store.get_call(call.id, world.ann)).call.result == encode_json(value)
    assert world.labels(rows.lease)[-2:] == ["tool.completed", "run.completed"]
