"""A task that requires input: what a message to it decides or answers, and what it never does."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from amoxi_py.domain.principal import Principal
from amoxi_py.ports.records import Record

SOURCE = """
from typing import Literal

from pydantic import BaseModel, Field

from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call

done = []


class Guest(BaseModel):
    name: str = Field(min_length=2)
    persons: int = Field(ge=1, le=8)


@tool(idempotent=True)
async def book(ctx: ToolContext) -> str:
    "Book a table."
    guest = await ctx.ask("Who comes?", Guest)
    return f"{guest.name}, {guest.persons}"


@tool(idempotent=True)
async def introduce(ctx: ToolContext) -> str:
    "Ask two things."
    name = await ctx.ask("Your name?")
    town = await ctx.ask("Your town?")
    done.append((name, town))
    return f"{name} of {town}"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    "Erase a file."
    done.append(path)
    return f"erased {path}"


@tool(needs_approval=True, approver="role:boss")
async def pay(sum: int) -> str:
    "Pay."
    done.append(sum)
    return f"paid {sum}"


SCRIPT = {
    "erase": [call("erase", path="/a"), "It is over."],
    "erase two": [[call("erase", path="/a"), call("erase", path="/b")], "Both are over."],
    "pay": [call("pay", sum=7), "It is over."],
    "pay and ask": [[call("pay", sum=7), call("book")], "It is over."],
    "book": [call("book"), "Booked."],
    "introduce": [call("introduce"), "Hello."],
    "go": [call("erase", path="/below"), "The clerk is done."],
}


@agent(tools=[erase, book, introduce, pay], model=ScriptedModel(SCRIPT))
class Clerk:
    "You do things."


@agent(agents=[Clerk], model=ScriptedModel({"*": [call("ask_clerk", message="go"), "Done below."]}))
class Boss:
    "You ask the clerk."
"""
CLERK = {"metadata": {"skill": "clerk"}}
ASKING = "TASK_STATE_INPUT_REQUIRED"
OVER = "TASK_STATE_COMPLETED"


def done_of(app: Any) -> list[Any]:
    """What the tools of the app have done."""
    found: list[Any] = sys.modules[app.serving.settings.app.package].done
    return found


def said(task: Any) -> str:
    """What the status message of a task says."""
    text: str = task["status"]["message"]["parts"][0]["text"]
    return text


def things(task: Any) -> list[Any]:
    """What is open, as data."""
    return [part["data"] for part in task["status"]["message"]["parts"][1:]]


def test_an_approval_is_asked_for_as_input_and_the_words_for_yes_approve_it(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(version="0.3") as old:
            for n, word in enumerate(("approve", "Yes.", " OK! ", "Approved", "y")):
                task = await partner.send("erase", params=CLERK)
                assert task["status"]["state"] == ASKING
                assert "'erase'" in said(task)
                assert 'Answer "approve"' in said(task)
                [thing] = things(task)
                assert (thing["kind"], thing["tool"], thing["arguments"], thing["yours"]) == (
                    "approval",
                    "erase",
                    {"path": "/a"},
                    True,
                )
                assert "artifacts" not in task
                assert (await old.result("tasks/get", {"id": task["id"]}))["status"]["state"] == "input-required"
                over = await partner.send(word, taskId=task["id"])
                assert (over["id"], over["status"]["state"]) == (task["id"], OVER)
                assert done_of(app) == ["/a"] * (n + 1)

    asyncio.run(scene())


def test_the_words_for_no_decline_and_their_reason_is_told_to_the_agent(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            for word, reason in (
                ("No", None),
                ("decline: too early", "too early"),
                ("no: not this one", "not this one"),
            ):
                task = await partner.send("erase", params=CLERK)
                over = await partner.send(word, taskId=task["id"], contextId=task["contextId"])
                assert over["status"]["state"] == OVER
                principal = Principal(id="a2a:partner", name="partner", channel="a2a")
                messages = await app.engine.messages_of(task["id"], principal)
                approval = messages[1].calls[0].approval
                assert (approval.decision, approval.reason, approval.by) == ("decline", reason, "a2a:partner")
            assert done_of(app) == []

    asyncio.run(scene())


def test_any_other_text_decides_nothing_and_the_task_says_which_words_do(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("erase", params=CLERK)
            for text in (
                "The user would surely approve",
                "yes and erase /b too",
                "no problem",
                "no, wait, approve it",
                "decline, or not",
                "",
                "   ",
                "yes\nno",
            ):
                same = await partner.send(text, taskId=task["id"])
                assert same["status"]["state"] == ASKING
                assert said(same).startswith("Nothing was changed:")
                assert '"decline"' in said(same)
                assert things(same) == things(task)
            call_id = things(task)[0]["call_id"]
            for data in (
                {},
                {"decision": "maybe"},
                {"call_id": call_id},
                {"call_id": call_id, "decision": "approve", "arguments": {"path": "/b"}},
                {"call_id": "call_none", "decision": "approve"},
                {"call_id": call_id, "decision": "decline", "reason": 5},
            ):
                same = await partner.send(parts=[{"data": data}], taskId=task["id"])
                assert (same["status"]["state"], said(same).startswith("Nothing was changed:")) == (ASKING, True)
            file = await partner.send(parts=[{"raw": "YQ=="}], taskId=task["id"])
            assert file["code"] == -32005
            assert done_of(app) == []
            over = await partner.send(parts=[{"data": {"decision": "approve"}}], taskId=task["id"])
            assert over["status"]["state"] == OVER

    asyncio.run(scene())


def test_with_several_open_the_message_must_say_which_it_is_for(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("erase two", params=CLERK)
            first, second = things(task)
            assert "call_id" in said(task)
            same = await partner.send("approve", taskId=task["id"])
            assert "several things are open" in said(same)
            data = [{"call_id": one["call_id"], "decision": "approve"} for one in (first, second)]
            both = await partner.send(parts=[{"data": one} for one in data], taskId=task["id"])
            assert "one message for each" in said(both)
            assert done_of(app) == []
            one = await partner.send(parts=[{"data": data[1]}], taskId=task["id"])
            assert (one["status"]["state"], things(one)) == (ASKING, [first])
            over = await partner.send("no", taskId=task["id"])
            assert over["status"]["state"] == OVER
            assert done_of(app) == ["/b"]

    asyncio.run(scene())


def test_a_message_never_approves_what_somebody_else_must_approve(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("pay", params=CLERK)
            [thing] = things(task)
            assert (task["status"]["state"], thing["yours"]) == (ASKING, False)
            refusal = "somebody else decides about it in the app; your message cannot approve it"
            assert refusal in said(task)
            data = {"call_id": thing["call_id"], "decision": "approve"}
            for parts in ([{"text": "approve"}], [{"data": data}], [{"data": {"decision": "approve"}}]):
                same = await partner.send(parts=parts, taskId=task["id"])
                assert (same["status"]["state"], refusal in said(same)) == (ASKING, True)
            assert done_of(app) == []
            boss = Principal(id="user:boss", name="Boss", channel="web", roles=frozenset({"boss"}))
            await app.engine.decide(thing["call_id"], boss, "approve")

            async def over() -> bool:
                found = await partner.result("GetTask", {"id": task["id"]})
                return bool(found["status"]["state"] == OVER)

            await until(over)
            assert done_of(app) == [7]

            mixed = await partner.send("pay and ask", params=CLERK)
            assert [one.get("yours") for one in things(mixed)] == [False, None]
            answered = await partner.send(parts=[{"data": {"name": "Ann", "persons": 2}}], taskId=mixed["id"])
            assert [one["kind"] for one in things(answered)] == ["approval"]
            assert done_of(app) == [7]

    asyncio.run(scene())


def test_what_a_run_below_waits_for_is_asked_for_by_the_task(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("Please", metadata={"skill": "boss"})
            assert (task["status"]["state"], things(task)[0]["tool"]) == (ASKING, "erase")
            over = await partner.send("approve", taskId=task["id"])
            assert (over["status"]["state"], over["artifacts"][0]["parts"]) == (OVER, [{"text": "Done below."}])
            assert done_of(app) == ["/below"]

    asyncio.run(scene())


def test_a_question_takes_a_text_or_a_value_that_fits_its_schema(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            forms: list[Any] = [
                {"text": '{"name": "Ann", "persons": 2}'},
                {"data": {"name": "Ann", "persons": 2}},
                "addressed",
            ]
            for form in forms:
                task = await partner.send("book", params=CLERK)
                [thing] = things(task)
                assert (thing["kind"], thing["question"], thing["k"]) == ("question", "Who comes?", 1)
                assert "persons" in thing["schema"]["properties"]
                for wrong in (
                    {"text": "Ann and two"},
                    {"data": {"name": "A", "persons": 9}},
                    {"data": {"call_id": thing["call_id"]}},
                ):
                    same = await partner.send(parts=[wrong], taskId=task["id"])
                    assert (same["status"]["state"], said(same).startswith("Nothing was changed:")) == (ASKING, True)
                part = form
                if form == "addressed":
                    value = {"name": "Ann", "persons": 2}
                    part = {"data": {"call_id": thing["call_id"], "k": 1, "answer": value}}
                over = await partner.send(parts=[part], taskId=task["id"])
                assert over["status"]["state"] == OVER

    asyncio.run(scene())


def test_a_message_to_a_task_that_has_ended_or_of_another_context_or_skill_is_refused(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(version="0.3") as old:
            task = await partner.send("erase", params=CLERK)
            other = await partner.send("erase", params=CLERK)
            assert (await partner.send("ok", taskId=task["id"], contextId=other["contextId"]))["code"] == -32602
            assert (await partner.send("ok", taskId=task["id"], metadata={"skill": "boss"}))["code"] == -32602
            assert (await partner.send("ok", taskId="run_" + "0" * 26))["code"] == -32001
            assert (await partner.send("ok", taskId=task["id"], params=CLERK))["status"]["state"] == OVER
            assert (await partner.send("ok", taskId=task["id"]))["code"] == -32004
            message = {
                "role": "user",
                "messageId": "m9",
                "taskId": task["id"],
                "parts": [{"kind": "text", "text": "ok"}],
            }
            assert (await old.error("message/send", {"message": message}))["code"] == -32004
            await partner.result("CancelTask", {"id": other["id"]})
            assert (await partner.send("ok", taskId=other["id"]))["code"] == -32004
            assert done_of(app) == ["/a"]

    asyncio.run(scene())


def test_a_message_without_its_task_in_a_context_that_asks_says_what_it_waits_for(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            asked = await partner.send("erase", params=CLERK)
            behind = await partner.send("yes", contextId=asked["contextId"], params=CLERK)
            assert behind["status"]["state"] == "TASK_STATE_SUBMITTED"
            assert asked["id"] in behind["status"]["message"]["parts"][0]["text"]
            params = partner.message("yes", contextId=asked["contextId"], params=CLERK)
            [event] = [event async for event in partner.events("SendStreamingMessage", params)]
            assert asked["id"] in event["task"]["status"]["message"]["parts"][0]["text"]
            assert done_of(app) == []
            assert (await partner.send("yes", taskId=asked["id"]))["status"]["state"] == OVER
            await until(lambda: ended(partner, behind["id"]))

    async def ended(partner: Any, task_id: str) -> bool:
        task = await partner.result("GetTask", {"id": task_id})
        return bool(task["status"]["state"] not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"))

    asyncio.run(scene())


def test_an_answer_sent_again_is_for_the_same_question_and_never_for_the_next_one(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("introduce", params=CLERK)
            first = await partner.send("Ann", id="name", taskId=task["id"])
            assert things(first)[0]["question"] == "Your town?"
            for _ in range(2):
                again = await partner.send("Ann", id="name", taskId=task["id"])
                assert (again["status"]["state"], things(again)[0]["question"]) == (ASKING, "Your town?")
            assert (await partner.send("Bob", id="name", taskId=task["id"]))["code"] == -32602
            over = await partner.send("Bern", id="town", taskId=task["id"])
            assert over["status"]["state"] == OVER
            for message_id, text in (("name", "Ann"), ("town", "Bern")):
                assert await partner.send(text, id=message_id, taskId=task["id"]) == over
            assert done_of(app) == [("Ann", "Bern")]
            told = [(one["role"], one["messageId"], one["parts"][0]["text"]) for one in over["history"]]
            assert [text for _, _, text in told] == [
                "introduce",
                "Ann",
                "Bern",
                over["artifacts"][0]["parts"][0]["text"],
            ]
            assert told[1:3] == [("ROLE_USER", "name", "Ann"), ("ROLE_USER", "town", "Bern")]
            assert over == await partner.result("GetTask", {"id": task["id"]})

    asyncio.run(scene())


def test_an_answer_whose_own_answer_was_lost_is_given_once_and_what_was_refused_stays_refused(
    a2a_app: Any, until: Any
) -> None:
    """The record of what a message is for is kept, and then the server is gone, or answers nobody."""

    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("introduce", params=CLERK)
            answers = app.engine.answers.answer
            lost = asyncio.Event()

            async def dies(*_: Any, **__: Any) -> None:
                lost.set()
                raise ConnectionResetError("a text that nobody may see")

            app.engine.answers.answer = dies
            error = await partner.send("Ann", id="name", taskId=task["id"])
            assert (error["code"], "nobody may see" in str(error)) == (-32603, False)
            app.engine.answers.answer = answers
            assert lost.is_set()
            [thing] = things(await partner.result("GetTask", {"id": task["id"]}))
            principal = Principal(id="a2a:partner", name="partner", channel="a2a")
            await answers(thing["call_id"], principal, "Somebody", k=thing["k"])

            async def next_question() -> bool:
                found = await partner.result("GetTask", {"id": task["id"]})
                return found["status"]["state"] == ASKING and things(found)[0]["question"] == "Your town?"

            await until(next_question)
            for _ in range(2):
                late = await partner.send("Ann", id="name", taskId=task["id"])
                assert (late["code"], "was answered already" in late["message"]) == (-32004, True)
            over = await partner.send("Bern", taskId=task["id"])
            assert (over["status"]["state"], "Ann" in str(over["history"])) == (OVER, False)
            assert done_of(app) == [("Somebody", "Bern")]

            erasing = await partner.send("erase two", params=CLERK)
            refused = await partner.send("approve", id="vague", taskId=erasing["id"])
            [first, _] = things(erasing)
            data = {"call_id": first["call_id"], "decision": "decline"}
            await partner.send(parts=[{"data": data}], taskId=erasing["id"])
            again = await partner.send("approve", id="vague", taskId=erasing["id"])
            assert "several things" in said(refused)
            assert again["status"]["state"] == ASKING
            assert done_of(app) == [("Somebody", "Bern")]

    asyncio.run(scene())


def test_what_is_kept_of_an_answer_goes_by_the_caller_and_is_gone_after_a_month(a2a_app: Any, other_token: str) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(other_token) as other:
            kept: list[Record] = []
            store = app.serving.runtime.engine._store
            keep = store.keep_record
            tasks = [await caller.send("erase", params=CLERK) for caller in (partner, other)]

            async def noting(record: Record) -> None:
                kept.append(record)
                await keep(record)

            app.serving.a2a.serving.handler._answers._kept._records = type(
                "Noting", (), {"find_record": staticmethod(store.find_record), "keep_record": staticmethod(noting)}
            )
            for caller, task in zip((partner, other), tasks, strict=True):
                assert (await caller.send("yes", id="one", taskId=task["id"]))["status"]["state"] == OVER
            assert len({record.key for record in kept}) == 2
            assert [record.group for record in kept] == [task["id"] for task in tasks]
            for record in kept:
                assert record.expires_at is not None
                assert abs(record.expires_at - app.engine.now() - 30 * 86400) < 600

    asyncio.run(scene())
