"""Streams of tasks: a snapshot, then what the log tells, the same for every reader, until the end or a question."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from typing import Any

from a2a.types import a2a_pb2 as wire

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.a2a.streaming import numbered_events
from amoxi_py.surfaces.a2a.tasks import Tasks

SOURCE = """
import asyncio

from pydantic import BaseModel

from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, broken, call, reply

gates = {}


class Gate:
    def __init__(self, name):
        self.event = gates[name] = asyncio.Event()

    async def wait(self):
        await self.event.wait()


@tool(read_only=True)
async def look(ctx: ToolContext) -> str:
    "Look."
    return "seen"


@tool(idempotent=True)
async def paint(ctx: ToolContext) -> str:
    "Paint."
    await ctx.save_file("small.txt", b"tiny")
    return "painted"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    "Erase."
    return "erased"


class Count(BaseModel):
    number: int


@agent(tools=[], model=ScriptedModel({"*": [reply("One ", Gate("one"), "two ", Gate("two"), "three.")]}))
class Teller:
    "You tell."


@agent(
    tools=[look, paint],
    model=ScriptedModel(
        [reply(Gate("begin"), "Let me look.", call("look"), call("paint")), reply("It ", Gate("answer"), "is seen.")]
    ),
)
class Looker:
    "You look."


@agent(tools=[erase], model=ScriptedModel([["I would erase it.", call("erase", path="/a")], "It is over."]))
class Eraser:
    "You erase."


@agent(tools=[], result=Count, model=ScriptedModel([reply(Gate("count"), call("final_result", number=3))]))
class Counter:
    "You count."


@agent(tools=[], model=ScriptedModel([reply("So ", Gate("failing"), "far"), ]), max_turns=1)
class Stopped:
    "You are stopped."


@agent(tools=[look], model=ScriptedModel([call("look"), "Never."]), max_turns=1)
class Failing:
    "You fail."
"""
COUNTER = {"skill": "counter"}
STATES = {
    "TASK_STATE_SUBMITTED": "submitted",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_INPUT_REQUIRED": "input-required",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
}


def gate(app: Any, name: str) -> asyncio.Event:
    found: asyncio.Event = sys.modules[app.serving.settings.app.package].gates[name]
    return found


def short(event: Any) -> Any:
    """An event of 1.0 in short."""
    if "task" in event:
        task = event["task"]
        parts = [part.get("text") for one in task.get("artifacts", []) for part in one["parts"]]
        return ("task", STATES[task["status"]["state"]], *parts)
    if "statusUpdate" in event:
        return ("status", STATES[event["statusUpdate"]["status"]["state"]])
    update = event["artifactUpdate"]
    parts = tuple(part.get("text") or part.get("data") or part.get("filename") for part in update["artifact"]["parts"])
    return ("artifact", update.get("append", False), update.get("lastChunk", False), *parts)


class Reader:
    """Reads a stream in the background."""

    def __init__(self, events: Any) -> None:
        self.events: list[Any] = []
        self._task = asyncio.create_task(self._read(events))

    async def _read(self, events: Any) -> None:
        async for event in events:
            self.events.append(event)

    async def end(self) -> list[Any]:
        async with asyncio.timeout(60):
            await self._task
        return [short(event) for event in self.events]

    def leave(self) -> None:
        self._task.cancel()


def text_of(events: list[Any]) -> str:
    """The text that a reader has put together of short events."""
    text = "".join(events[0][2:])
    for event in events[1:]:
        if event[0] == "artifact":
            text = (text if event[1] else "") + str(event[3])
    return text


async def partial(caller: Any, task_id: str, text: str) -> bool:
    """Whether who comes now is told this much of the answer."""
    async for event in caller.events("SubscribeToTask", {"id": task_id}):
        return bool(short(event)[2:] == (text,))
    return False


def test_all_readers_are_told_the_same_and_one_that_joins_late_gets_the_partial_answer_first(
    a2a_app: Any, until: Any
) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            params = partner.message("Tell", metadata={"skill": "teller"})
            first = Reader(partner.events("SendStreamingMessage", params))
            await until(lambda: first.events)
            task_id = first.events[0]["task"]["id"]
            others = [Reader(partner.events("SubscribeToTask", {"id": task_id})) for _ in range(2)]
            await until(lambda: all(one.events for one in others))
            gate(app, "one").set()
            await until(lambda: partial(partner, task_id, "One two "))
            late = Reader(partner.events("SubscribeToTask", {"id": task_id}))
            left = Reader(partner.events("SubscribeToTask", {"id": task_id}))
            await until(lambda: late.events and left.events)
            left.leave()
            gate(app, "two").set()
            told = [await one.end() for one in (first, *others, late)]
            for one in told:
                assert text_of(one) == "One two three."
                assert one[-1] == ("status", "completed")
                assert one[-2][:3] == ("artifact", False, True)
                assert sum(event[0] == "artifact" and event[2] for event in one) == 1
            assert told[1][1:] == told[2][1:]
            assert told[0][-len(told[1]) + 1 :] == told[1][1:]
            assert told[3][0][2] == "One two "
            assert first.events[-1]["statusUpdate"]["status"] == others[0].events[-1]["statusUpdate"]["status"]
            over = await partner.result("GetTask", {"id": task_id})
            assert over["status"] == first.events[-1]["statusUpdate"]["status"]
            assert over["artifacts"][0]["parts"] == [{"text": "One two three."}]

    asyncio.run(scene())


def test_text_before_tools_is_replaced_by_the_answer_whose_last_chunk_holds_the_files(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            params = partner.message("Look", metadata={"skill": "looker"})
            reader = Reader(partner.events("SendStreamingMessage", params))
            await until(lambda: reader.events)
            gate(app, "begin").set()
            await until(lambda: len(reader.events) > 1)
            gate(app, "answer").set()
            events = await reader.end()
            artifacts = [event for event in events if event[0] == "artifact"]
            assert ("artifact", False, False, "Let me look.") in artifacts
            assert artifacts[-1][2:] in ((True, "is seen.", "small.txt"), (True, "It is seen.", "small.txt"))
            assert text_of(events) == "It is seen."
            assert events[-1] == ("status", "completed")
            counting = Reader(partner.events("SendStreamingMessage", partner.message("Count", metadata=COUNTER)))
            await until(lambda: counting.events)
            gate(app, "count").set()
            last = (await counting.end())[-2]
            assert (last[:3], last[4]) == (("artifact", False, True), {"number": 3})

    asyncio.run(scene())


def test_a_stream_of_a_message_ends_where_input_is_required_and_the_answer_opens_the_next(
    a2a_app: Any, until: Any
) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(version="0.3") as old:
            params = partner.message("Erase", metadata={"skill": "eraser"})
            events = [event async for event in partner.events("SendStreamingMessage", params)]
            (last,) = events[-1].values()  # the task itself, where the run waits before the stream has begun
            assert last["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            asked = last["status"]["message"]["parts"]
            assert asked[1]["data"]["tool"] == "erase"
            task_id = events[0]["task"]["id"]
            whole = await partner.result("GetTask", {"id": task_id})
            assert whole["status"]["message"] == last["status"]["message"]
            open_ended = Reader(partner.events("SubscribeToTask", {"id": task_id}))
            await until(lambda: open_ended.events)
            nothing = partner.message("perhaps", taskId=task_id)
            [same] = [event async for event in partner.events("SendStreamingMessage", nothing)]
            assert "Nothing was changed" in same["task"]["status"]["message"]["parts"][0]["text"]
            message = {"role": "user", "messageId": "a1", "taskId": task_id, "parts": [{"kind": "text", "text": "yes"}]}
            answered = [event async for event in old.events("message/stream", {"message": message})]
            assert answered[0]["kind"] == "task"
            assert answered[0]["status"]["state"] in ("working", "completed")  # it may be over by then
            assert answered[-1]["status"]["state"] == "completed"
            finals = [event["final"] for event in answered if event["kind"] == "status-update"]
            assert finals[-1:] == [True] * (len(answered) > 1)
            assert sum(finals) <= 1
            rest = await open_ended.end()
            assert rest[0] == ("task", "input-required", "I would erase it.")
            assert ("status", "working") in rest
            assert rest[-1] == ("status", "completed")
            assert text_of(rest) == "It is over."

    asyncio.run(scene())


def test_the_end_of_a_cancelled_and_of_a_failed_task_is_told(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            params = partner.message("Go", metadata={"skill": "stopped"})
            reader = Reader(partner.events("SendStreamingMessage", params))
            await until(lambda: reader.events)
            task_id = reader.events[0]["task"]["id"]

            await until(lambda: partial(partner, task_id, "So "))
            ended = await partner.result("CancelTask", {"id": task_id})
            assert ended["status"]["state"] == "TASK_STATE_CANCELED"
            events = await reader.end()
            assert events[-1] == ("status", "canceled")
            assert text_of(events) == "So "
            assert ended["artifacts"][0]["parts"] == [{"text": "So "}]
            assert (await partner.error("CancelTask", {"id": task_id}))["code"] == -32002
            failing = partner.message("Go", metadata={"skill": "failing"})
            last = [event async for event in partner.events("SendStreamingMessage", failing)][-1]
            (told,) = last.values()  # the task itself, where it failed before the stream has begun
            assert told["status"]["state"] == "TASK_STATE_FAILED"
            task = await partner.result("GetTask", {"id": told.get("taskId") or told["id"]})
            assert task["status"] == told["status"]
            assert task["status"]["message"]["parts"][0]["text"]

    asyncio.run(scene())


def test_a_task_that_has_ended_is_told_to_whoever_comes_back_and_nobody_hangs(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(version="0.3") as old:
            message = {"role": "user", "messageId": "t1", "parts": [{"kind": "text", "text": "Tell"}]}
            params = {"message": message, "metadata": {"skill": "teller"}}
            task_id = ""
            async for event in old.events("message/stream", params):
                task_id = event["id"]
                break  # everybody leaves after the first event
            gate(app, "one").set()
            gate(app, "two").set()

            async def over() -> bool:
                found = await old.result("tasks/get", {"id": task_id})
                return bool(found["status"]["state"] == "completed")

            await until(over)
            done = await old.result("tasks/get", {"id": task_id})
            assert done["artifacts"][0]["parts"] == [{"kind": "text", "text": "One two three."}]
            again = [event async for event in old.events("tasks/resubscribe", {"id": task_id})]
            assert again[0] == done
            assert (again[-1]["status"]["state"], again[-1]["final"]) == ("completed", True)
            [error] = [event async for event in partner.events("SubscribeToTask", {"id": task_id})]
            assert error["error"]["code"] == -32004

    asyncio.run(scene())


def test_a_message_whose_answer_was_lost_is_sent_again_and_is_one_task(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            message = {"metadata": {"skill": "teller"}, "id": "lost"}

            async def one() -> bool:
                return bool((await partner.result("ListTasks"))["totalSize"] == 1)

            for _ in range(2):
                lost = asyncio.create_task(partner.send("Tell", **message))
                await until(one)
                lost.cancel()
                await asyncio.wait({lost})
            gate(app, "one").set()
            gate(app, "two").set()
            task = await partner.send("Tell", **message)
            assert task["artifacts"][0]["parts"] == [{"text": "One two three."}]
            events = [
                short(event)
                async for event in partner.events("SendStreamingMessage", partner.message("Tell", **message))
            ]
            assert events == [("task", "completed", "One two three.")]
            assert [found["id"] for found in (await partner.result("ListTasks"))["tasks"]] == [task["id"]]

    asyncio.run(scene())


def test_a_message_is_answered_at_once_where_that_is_asked_and_else_when_the_server_stops(
    a2a_app: Any, until: Any
) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            at_once = {"configuration": {"returnImmediately": True}, "metadata": {"skill": "teller"}}
            task = await partner.send("Tell", params=at_once)
            assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
            reader = Reader(partner.events("SubscribeToTask", {"id": task["id"]}))
            await until(lambda: reader.events)
            asking = asyncio.create_task(partner.send("Tell", id="blocking", metadata={"skill": "teller"}))

            async def two() -> bool:
                return bool((await partner.result("ListTasks"))["totalSize"] == 2)

            await until(two)
            assert not asking.done()
            app.serving.a2a.close()
            answered = await asking
            assert answered["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
            assert (await reader.end())[-1] != ("status", "completed")

    asyncio.run(scene())


def test_whoever_goes_on_after_a_number_of_the_log_is_told_the_rest(a2a_app: Any) -> None:
    """As webhooks do, which note how far they are."""

    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("Erase", metadata={"skill": "eraser"})
            await partner.send("yes", taskId=task["id"])
            principal = Principal(id="a2a:partner", name="partner", channel="a2a")

            async def told(after: int | None) -> list[Any]:
                events = numbered_events(
                    app.engine,
                    Tasks(app.engine, app.serving.runtime.store),
                    principal,
                    task["id"],
                    "http://here",
                    after,
                )
                return [event async for event in events]

            everything = await told(0)
            kinds = [type(update).__name__.removeprefix("Task").removesuffix("UpdateEvent") for _, update in everything]
            assert kinds == ["Status", "Artifact", "Status", "Status", "Artifact", "Status"]
            numbers = [seq for seq, _ in everything]
            assert numbers == sorted(numbers)
            for n, (seq, _) in enumerate(everything, 1):
                rest = await told(seq)
                assert rest[len(rest) - len(everything) + n :] == everything[n:]
                assert len(rest) - len(everything[n:]) in (0, 1)  # the answer, told again before the last status
            [(last, whole)] = await told(None)
            assert (last, whole.status.state) == (numbers[-1], wire.TASK_STATE_COMPLETED)

    asyncio.run(scene())


def test_whoever_goes_on_in_the_middle_of_an_answer_is_told_its_other_pieces(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            at_once = {"configuration": {"returnImmediately": True}, "metadata": {"skill": "teller"}}
            task_id = (await partner.send("Tell", params=at_once))["id"]
            principal = Principal(id="a2a:partner", name="partner", channel="a2a")
            tasks = Tasks(app.engine, app.serving.runtime.store)
            gate(app, "one").set()
            await until(lambda: partial(partner, task_id, "One two "))
            number = 0
            async with aclosing(numbered_events(app.engine, tasks, principal, task_id, "", 0)) as events:
                async for seq, update in events:
                    if isinstance(update, wire.TaskArtifactUpdateEvent):
                        number = seq
                        break
            pieces: list[Any] = []

            async def read() -> None:
                async for _, update in numbered_events(app.engine, tasks, principal, task_id, "", number):
                    pieces.append(update)

            reading = asyncio.create_task(read())
            await until(lambda: pieces or gate(app, "two").set() or reading.done())
            await reading
            told = [piece for piece in pieces if isinstance(piece, wire.TaskArtifactUpdateEvent)]
            assert "".join(part.text for piece in told for part in piece.artifact.parts) in (
                "two three.",
                "One two three.",
            )
            assert told[-1].last_chunk
            assert pieces[-1].status.state == wire.TASK_STATE_COMPLETED

    asyncio.run(scene())
