"""Messages behind a task that requires input: whoever waits for them is told so, whenever that task asks."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from a2a.types import a2a_pb2 as wire
from msgspec.structs import replace

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.a2a import streaming
from amoxi_py.surfaces.a2a.fold import Fold
from amoxi_py.surfaces.a2a.tasks import Tasks, moved_at, timestamp

PARTNER = Principal(id="a2a:partner", name="partner", channel="a2a")
SOURCE = """
import asyncio

from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call

gates = {}


@tool(idempotent=True)
async def ask_later(ctx: ToolContext) -> str:
    "Ask."
    await gates.setdefault("ask", asyncio.Event()).wait()
    return await ctx.ask("Which colour?")


@tool(needs_approval=True, approver="role:warehouse")
def take_back(order: str) -> str:
    "Take back."
    return "back"


@agent(
    tools=[ask_later, take_back],
    model=ScriptedModel(
        {
            "*": ["Hello."],
            "later": [call("ask_later"), "Over."],
            "back": [call("take_back", order="A-1001"), "Over."],
        }
    ),
)
class Clerk:
    "You help."
"""
BEHIND = "TASK_STATE_SUBMITTED"
AT_ONCE = {"configuration": {"returnImmediately": True}}


def told_of(task: Any) -> str:
    message = task["status"].get("message")
    return "" if message is None else str(message["parts"][0]["text"])


async def waiting(caller: Any) -> Any:
    """A task that works until the gate is opened, and asks then."""
    return await caller.send("later", params=AT_ONCE)


def open_gate(app: Any) -> None:
    gates = sys.modules[app.serving.settings.app.package].gates
    gates.setdefault("ask", asyncio.Event()).set()


def test_whoever_waits_behind_a_task_that_asks_later_is_told_so_and_waits_no_longer(
    a2a_app: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "LOOKS_AGAIN_S", 0.02)

    async def last_of(events: Any) -> list[Any]:
        return [event async for event in events]

    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(version="0.3") as old:
            first = await waiting(partner)
            context = first["contextId"]
            blocking = asyncio.create_task(partner.send("red", contextId=context))
            params = partner.message("blue", contextId=context)
            stream = asyncio.create_task(last_of(partner.events("SendStreamingMessage", params)))
            message = {"role": "user", "messageId": "o1", "contextId": context}
            message["parts"] = [{"kind": "text", "text": "green"}]  # type: ignore[assignment]
            old_stream = asyncio.create_task(last_of(old.events("message/stream", {"message": message})))

            async def all_there() -> bool:
                return bool((await partner.result("ListTasks", {"contextId": context}))["totalSize"] == 4)

            await until(all_there)
            assert not blocking.done()
            assert not stream.done()
            open_gate(app)
            async with asyncio.timeout(60):
                behind, events, old_events = await asyncio.gather(blocking, stream, old_stream)
            (last,) = events[-1].values()  # the task itself, where the stream has begun late
            for task in (behind, last):
                assert task["status"]["state"] == BEHIND
                assert told_of(task).endswith("which requires input: answer it by its taskId")
                assert first["id"] in told_of(task)
            assert old_events[-1]["status"]["state"] == "submitted"
            assert old_events[-1].get("final", old_events[-1]["kind"] == "task")
            answered = await partner.send("red", taskId=first["id"])
            assert answered["status"]["state"] == "TASK_STATE_COMPLETED"

            async def all_over() -> bool:
                found = await partner.result("ListTasks", {"status": "TASK_STATE_COMPLETED"})
                return bool(found["totalSize"] == 4)

            await until(all_over)

    asyncio.run(scene())


def test_get_list_send_and_streams_agree_on_what_a_task_waits_for_and_on_who_can_answer_it(a2a_app: Any) -> None:
    async def first_of(events: Any) -> Any:
        async for event in events:
            return event
        return None

    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(version="0.3") as old:
            for name, whose in (("back", "somebody else decides"), ("later", "answer it by its taskId")):
                open_gate(app)
                asking = await partner.send(name)
                assert asking["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
                context = asking["contextId"]
                sent = await partner.send("hello", contextId=context)
                got = await partner.result("GetTask", {"id": sent["id"]})
                [listed] = (await partner.result("ListTasks", {"contextId": context, "status": BEHIND}))["tasks"]
                subscribed = (await first_of(partner.events("SubscribeToTask", {"id": sent["id"]})))["task"]
                [streamed] = [
                    event
                    async for event in partner.events("SendStreamingMessage", partner.message("hi", contextId=context))
                ]
                for task in (sent, got, listed, subscribed, streamed["task"]):
                    assert task["status"]["state"] == BEHIND
                    assert whose in told_of(task)
                    assert f"the task {asking['id']} has ended" in told_of(task)
                    assert ("by its taskId" in told_of(task)) == (name == "later")
                message = {"role": "user", "messageId": name, "contextId": context}
                message["parts"] = [{"kind": "text", "text": "hello"}]  # type: ignore[assignment]
                told = [event async for event in old.events("message/stream", {"message": message})]
                assert [event["kind"] for event in told] == ["task", "status-update"]
                assert told[-1]["final"] is True
                await partner.result("CancelTask", {"id": asking["id"]})

    asyncio.run(scene())


def test_a_task_that_only_works_holds_up_nobody_with_words(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            first = await waiting(partner)
            behind = await partner.send("hello", contextId=first["contextId"], params=AT_ONCE)
            assert behind["status"]["state"] == BEHIND
            assert told_of(behind) == ""
            await partner.result("CancelTask", {"id": first["id"]})

            async def over() -> bool:
                found = await partner.result("GetTask", {"id": behind["id"]})
                return bool(found["status"]["state"] == "TASK_STATE_COMPLETED")

            await until(over)

    asyncio.run(scene())


def test_the_time_of_a_snapshot_is_not_before_the_state_that_it_tells(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("back")
            tasks = Tasks(app.engine, app.serving.runtime.store)
            run = await tasks.find(task["id"], PARTNER)
            read_before = replace(run, status_at=moved_at(run) - 100)
            fold = Fold(
                app.engine, tasks, read_before, await tasks.place_of(run), PARTNER, "http://here", for_snapshot=True
            )
            stream = await app.engine.follow(PARTNER, run_id=run.id)
            await streaming._catch_up(fold, stream)
            snapshot = await fold.snapshot(None)
            assert snapshot.status.state == wire.TASK_STATE_INPUT_REQUIRED
            assert snapshot.status.timestamp == timestamp(moved_at(run))

    asyncio.run(scene())
