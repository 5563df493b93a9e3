"""Answers that decide nothing: too long ones, too many ones and late ones, and what is kept and told of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from msgspec.structs import replace

from amoxi_py.domain.principal import Principal

SOURCE = """
from typing import Annotated

from pydantic import Field

from amoxi_py import ToolContext, agent, redact, tool
from amoxi_py.testing import ScriptedModel, call


@redact
def hide(text: str) -> str:
    return text.replace("ann@example.com", "ann@[hidden]").replace("ann@", "(ann@)")


@tool(needs_approval=True)
async def erase(path: str) -> str:
    "Erase a file."
    return f"erased {path}"


@tool(idempotent=True)
async def write(ctx: ToolContext) -> str:
    "Write to somebody."
    to = await ctx.ask("To whom?", Annotated[str, Field(pattern=r"^([a-z]+@[a-z.]+|\\(ann@\\)\\[hidden\\])$")])
    return f"wrote to {to}"


@tool(idempotent=True)
async def introduce(ctx: ToolContext) -> str:
    "Ask two things."
    return f"{await ctx.ask('Your name?')} of {await ctx.ask('Your town?')}"


SCRIPT = {
    "erase": [call("erase", path="/a"), "It is over."],
    "introduce": [call("introduce"), "Hello."],
    "write": [call("write"), "Written."],
}


@agent(tools=[erase, introduce, write], model=ScriptedModel(SCRIPT))
class Clerk:
    "You do things."
"""
ASKING, OVER = "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"
PARTNER = Principal(id="a2a:partner", name="partner", channel="a2a")


def said_by_caller(task: Any) -> list[tuple[str, str]]:
    """The caller's messages in a task's history."""
    return [(one["messageId"], one["parts"][0]["text"]) for one in task["history"] if one["role"] == "ROLE_USER"]


async def kept_of(app: Any, task: Any) -> list[dict[str, Any]]:
    """What is kept of the answers to a task."""
    records = await app.engine._store.find_records("a2a.answer", task["id"], limit=1000)
    return [json.loads(record.content) for record in records]


def test_an_answer_that_is_longer_than_a_message_may_be_is_refused_and_nothing_of_it_is_kept(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            longest = app.engine.settings.max_message
            task = await partner.send("erase")
            for parts in ([{"text": "x" * (longest + 1)}], [{"data": {"reason": "x" * longest}}]):
                error = await partner.send(parts=parts, taskId=task["id"])
                assert (error["code"], f"the limit is {longest}" in error["message"]) == (-32602, True)
            named = await partner.send("approve", id="x" * 513, taskId=task["id"])
            assert (named["code"], "messageId" in named["message"]) == (-32602, True)
            assert await kept_of(app, task) == []
            assert await partner.result("GetTask", {"id": task["id"]}) == task

    asyncio.run(scene())


def test_of_an_answer_that_decides_nothing_the_beginning_is_kept_and_a_hundred_of_a_task(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("introduce")
            wordy = "w" * 100_000  # longer than an answer may be, which is seen after it was kept what it is for
            same = await partner.send(" ", taskId=task["id"])
            assert same["status"]["state"] == ASKING
            store = app.engine._store
            [one] = await store.find_records("a2a.answer", task["id"])
            await asyncio.gather(*(store.keep_record(replace(one, key=f"another {n}")) for n in range(98)))
            same = await partner.send(wordy, id="wordy", taskId=task["id"])
            assert "Nothing was changed" in same["status"]["message"]["parts"][0]["text"]
            assert dict(said_by_caller(same))["wordy"] == f"{'w' * 500}..."
            assert max(len(json.dumps(one)) for one in await kept_of(app, task)) < 3000
            for text in (wordy, " "):
                error = await partner.send(text, id="one more", taskId=task["id"])
                assert (error["code"], "100 messages" in error["message"]) == (-32004, True)
            assert len(await kept_of(app, task)) == 100
            assert await partner.send(wordy, id="wordy", taskId=task["id"]) == same

            task = await partner.send("Ann", id="one more", taskId=task["id"])
            over = await partner.send("Bern", id="the last", taskId=task["id"])
            assert over["status"]["state"] == OVER
            assert said_by_caller(over)[-2:] == [("one more", "Ann"), ("the last", "Bern")]

    asyncio.run(scene())


def test_of_two_answers_at_once_one_is_told_that_it_came_too_late_and_is_in_no_history(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            both_read = asyncio.Barrier(2)
            answers = app.serving.a2a.serving.handler._answers
            meant = answers._meant

            async def together(*args: Any) -> Any:
                await both_read.wait()
                found = await meant(*args)
                await both_read.wait()
                return found

            for ask, texts, why in (
                ("erase", ("approve", "decline: keep it"), "was decided already: "),
                ("introduce", ("Ann", "Bob"), "was answered already"),
            ):
                task = await partner.send(ask)
                answers._meant = together
                sent = [partner.send(text, id=f"{ask} {text}", taskId=task["id"]) for text in texts]
                async with asyncio.timeout(60):
                    told = await asyncio.gather(*sent)
                answers._meant = meant
                [late] = [n for n, one in enumerate(told) if "code" in one]
                assert (told[late]["code"], why in told[late]["message"]) == (-32004, True)
                again = await partner.send(texts[late], id=f"{ask} {texts[late]}", taskId=task["id"])
                assert (again["code"], again["message"]) == (-32004, told[late]["message"])
                history = said_by_caller(await partner.result("GetTask", {"id": task["id"]}))
                assert history[1:] == [(f"{ask} {texts[1 - late]}", texts[1 - late])]

            task = await partner.send("erase")
            answers._meant = together
            async with asyncio.timeout(60):
                same = await asyncio.gather(*(partner.send(word, taskId=task["id"]) for word in ("approve", "yes")))
            answers._meant = meant
            assert [one["status"]["state"] for one in same] == [OVER, OVER], "both have said what was decided"

    asyncio.run(scene())


def test_what_is_decided_while_a_message_is_read_is_not_told_as_somebody_elses_to_decide(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            answers = app.serving.a2a.serving.handler._answers
            meant = answers._meant

            async def after_an_approval(run: Any, *args: Any) -> Any:
                await app.engine.decide(run.waiting_for[0].call_id, PARTNER, "approve")
                return await meant(run, *args)

            for word, code in (("no", -32004), ("well", -32004), ("ok", None)):
                task = await partner.send("erase")
                answers._meant = after_an_approval
                told = await partner.send(word, taskId=task["id"])
                answers._meant = meant
                assert told.get("code") == code
                assert "somebody else" not in str(told)

    asyncio.run(scene())


def test_an_answer_is_looked_at_as_it_was_given_and_what_the_app_hides_is_hidden_where_it_is_stored(
    a2a_app: Any,
) -> None:
    """The app hides in a way that changes what is hidden already: no answer is hidden twice, also when sent again."""

    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("write")
            wrong = await partner.send("ann@", taskId=task["id"])
            assert wrong["status"]["state"] == ASKING
            answer, dies, values = app.engine.answers.answer, [True, False, False], []

            async def noting(call_id: str, principal: Principal, value: Any, **more: Any) -> Any:
                values.append(value)
                if dies[len(values) - 1]:
                    raise ConnectionResetError
                return await answer(call_id, principal, value, **more)

            app.engine.answers.answer = noting
            assert (await partner.send("ann@example.com", id="to", taskId=task["id"]))["code"] == -32603
            over = await partner.send("ann@example.com", id="to", taskId=task["id"])
            assert over["status"]["state"] == OVER
            assert await partner.send("ann@example.com", id="to", taskId=task["id"]) == over
            assert values == ["ann@example.com"] * 3
            assert "ann@example.com" not in str(over) + str(await kept_of(app, task))

    asyncio.run(scene())
