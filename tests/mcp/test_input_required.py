"""Clients of 2026-07-28 are asked what a run waits for, and the next request goes on with the same run."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import mcp_types as wire
import pytest
from mcp.client import advertise
from mcp.shared.exceptions import MCPError

from amoxi_py.domain.principal import Principal

pytestmark = pytest.mark.anyio

NEW = "2026-07-28"
LAPTOP = "laptop-token-0123456789"

SOURCE = """
import asyncio
from typing import Literal

from pydantic import BaseModel, Field

from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call

done = []
entered, release = asyncio.Event(), asyncio.Event()


class Guest(BaseModel):
    name: str = Field(min_length=2)
    persons: int = Field(ge=1, le=8, description="How many come")
    food: Literal["fish", "vegan"] = "fish"


@tool(idempotent=True)
async def book(day: str, ctx: ToolContext) -> str:
    'Book a table.'
    guest = await ctx.ask("Who comes?", Guest)
    done.append(ctx.call_id)
    return f"{guest.name}, {guest.persons}, {guest.food} on {day}"


@tool(idempotent=True)
async def introduce(ctx: ToolContext) -> str:
    'Ask two things.'
    name = await ctx.ask("Your name?")
    color = await ctx.ask("Your colour?", Literal["red", "blue"])
    return f"{name} likes {color}"


@tool(idempotent=True)
async def confirm_slowly(ctx: ToolContext) -> str:
    'Ask, then take time.'
    sure = await ctx.ask("Sure?", bool)
    entered.set()
    await release.wait()
    return "yes" if sure else "no"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    'Erase a file.'
    done.append(path)
    return f"erased {path}"


@tool(needs_approval=True, approver="role:boss")
async def pay(sum: int) -> str:
    'Pay.'
    done.append(sum)
    return f"paid {sum}"


@agent(tools=[erase, book, pay], model=ScriptedModel(SCRIPT), readers="role:boss")
class Clerk:
    'You do things.'


@agent(agents=[Clerk], model=ScriptedModel([[call("ask_clerk", message="go")], "The clerk is done."]))
class Chief:
    'You have things done.'
"""


def source(script: str = "[]") -> str:
    """Return the app with what the clerk's model says."""
    return SOURCE.replace("SCRIPT", script)


class Person:
    """Whom the client asks: answers in order, and what was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, context: Any, params: Any) -> wire.ElicitResult:
        self.asked.append(params)
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return wire.ElicitResult(action=answer)  # type: ignore[arg-type] - a test gives one of the three
        return wire.ElicitResult(action="accept", content=answer)


ANN, BOB = "anns-token-0123456789", "bobs-token-0123456789"
PEOPLE = {
    ANN: Principal(id="user:ann", name="Ann", channel="mcp"),
    BOB: Principal(id="user:bob", name="Bob", channel="mcp", roles=frozenset({"boss"})),
}


APPROVING = {"ai.mcp.approvals": "wait"}
ERASE = '[[call("erase", path="a.txt")], "That is all."]'


def text_of(result: Any) -> str:
    return result.content[0].text


async def first_round(client: Any, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
    result = await client.session.call_tool(tool, arguments or {}, allow_input_required=True, **more)
    assert isinstance(result, wire.InputRequiredResult), result
    return result


def accept(**content: Any) -> wire.ElicitResult:
    return wire.ElicitResult(action="accept", content=content)


async def test_a_question_is_put_to_the_person_and_the_call_gets_its_result(mcp_app: Any) -> None:
    person = Person({"name": "Ann", "persons": 3})
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=person) as client:
        result = await client.call_tool("book", {"day": "Monday"})
        assert text_of(result) == "Ann, 3, fish on Monday"
        assert not result.is_error
        assert len(app.module.done) == 1
    (asked,) = person.asked
    assert asked.message == "Who comes?"
    assert asked.requested_schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 2},
            "persons": {"type": "integer", "minimum": 1, "maximum": 8, "description": "How many come"},
            "food": {"type": "string", "enum": ["fish", "vegan"], "default": "fish"},
        },
        "required": ["name", "persons"],
    }


async def test_one_question_comes_after_the_other(mcp_app: Any) -> None:
    person = Person({"answer": "Ann"}, {"answer": "blue"})
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("introduce", {})) == "Ann likes blue"
    assert [asked.message for asked in person.asked] == ["Your name?", "Your colour?"]


async def test_an_answer_that_does_not_fit_is_asked_for_again_with_the_reason(mcp_app: Any) -> None:
    person = Person({"name": "A", "persons": 9}, {"name": "Ann", "persons": 2})
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("book", {"day": "Monday"})) == "Ann, 2, fish on Monday"
    assert "The last answer cannot be used: name: " in person.asked[1].message


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_that_the_person_does_not_answer_stays_open_under_the_runs_id(
    mcp_app: Any, action: str
) -> None:
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=Person(action)) as client:
        result = await client.call_tool("introduce", {})
        assert result.is_error
        run_id = result.meta["amoxi/run-id"]
        assert run_id in text_of(result)
        assert "Your name?" in text_of(result)
        run = await app.serving.runs.get(run_id)
        assert run.status == "waiting"
        person = Person({"answer": "Ann"}, {"answer": "red"})
        async with app.client(NEW, elicitation_callback=person) as again:
            told = await again.call_tool("introduce", {}, meta={"amoxi/run-id": run_id})
            assert text_of(told) == "Ann likes red"


async def test_a_client_that_cannot_ask_gets_the_runs_id(mcp_app: Any) -> None:
    for era in ("legacy", NEW):
        async with mcp_app(source(), answer_within=0.05) as app, app.client(era) as client:
            result = await client.call_tool("introduce", {})
            assert result.is_error
            assert "Your name?" in text_of(result)


async def test_an_older_client_is_never_asked_this_way(mcp_app: Any) -> None:
    person = Person()
    async with (
        mcp_app(source(), answer_within=0.05) as app,
        app.client("legacy", elicitation_callback=person) as client,
    ):
        assert (await client.call_tool("introduce", {})).is_error
    assert person.asked == []


async def test_what_joins_the_rounds_is_sealed_and_bound_to_caller_tool_and_arguments(mcp_app: Any) -> None:
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=Person()) as client:
        asked = await first_round(client, "book", {"day": "Monday"})
        run_id = (await app.engine.list_runs(Principal(id="mcp:desktop", channel="mcp"))).items[0].id
        assert run_id not in asked.request_state
        assert asked.meta["amoxi/run-id"] == run_id
        assert list(asked.input_requests) == ["who_comes"]
        given = {"input_responses": {"who_comes": accept(name="Ann", persons=2)}}
        good = asked.request_state

        async def refused(tool: str, arguments: dict[str, Any], state: str, by: Any = client) -> None:
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await by.session.call_tool(tool, arguments, request_state=state, allow_input_required=True, **given)

        await refused("book", {"day": "Monday"}, good + "x")
        await refused("book", {"day": "Monday"}, "v1." + "A" * 80)
        await refused("book", {"day": "Tuesday"}, good)
        await refused("introduce", {}, good)
        async with app.client(NEW, LAPTOP, elicitation_callback=Person()) as other:
            await refused("book", {"day": "Monday"}, good, other)
        assert (await app.serving.runs.get(run_id)).status == "waiting"
        result = await client.session.call_tool("book", {"day": "Monday"}, request_state=good, **given)
        assert text_of(result) == "Ann, 2, fish on Monday"


async def test_any_server_of_the_app_goes_on_with_a_round(mcp_app: Any) -> None:
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=Person()) as client:
        asked = await first_round(client, "introduce")
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=Person()) as client:
        given = {"your_name": accept(answer="Ann")}
        asked = await first_round(client, "introduce", input_responses=given, request_state=asked.request_state)
        (key,) = asked.input_requests
        assert key.startswith("your_colour.call_")
        assert key.endswith(".2")


async def test_what_was_not_asked_is_ignored_and_what_is_missing_is_asked_again(mcp_app: Any) -> None:
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=Person()) as client:
        asked = await first_round(client, "introduce", input_responses={"other": accept(answer="x")})
        assert list(asked.input_requests) == ["your_name"]
        more = {"nothing": accept(answer="x")}
        again = await first_round(client, "introduce", input_responses=more, request_state=asked.request_state)
        assert list(again.input_requests) == ["your_name"]
        both = {**more, "your_name": accept(answer="Ann")}
        second = await first_round(client, "introduce", input_responses=both, request_state=again.request_state)
        assert "your_name" not in second.input_requests


async def test_an_answer_that_another_gave_first_stays_and_the_call_goes_on(mcp_app: Any) -> None:
    desktop = Principal(id="mcp:desktop", channel="mcp")
    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=Person()) as client:
        asked = await first_round(client, "book", {"day": "Monday"})
        run = (await app.engine.list_runs(desktop)).items[0]
        await app.engine.answers.answer(run.waiting_for[0].call_id, desktop, {"name": "Bob", "persons": 1})
        given = {"who_comes": accept(name="Ann", persons=2)}
        state = asked.request_state
        result = await client.session.call_tool(
            "book", {"day": "Monday"}, input_responses=given, request_state=state, allow_input_required=True
        )
        assert text_of(result) == "Bob, 1, fish on Monday"


async def test_a_client_that_leaves_in_a_later_round_withdraws_the_run_that_its_call_started(
    mcp_app: Any, until: Any
) -> None:
    import anyio

    async with mcp_app(source()) as app, app.client(NEW, elicitation_callback=Person({"answer": True})) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "confirm_slowly", {})
            await app.module.entered.wait()
            group.cancel_scope.cancel()
        desktop = Principal(id="mcp:desktop", channel="mcp")

        async def cancelled() -> bool:
            return (await app.engine.list_runs(desktop)).items[0].status == "cancelled"

        await until(cancelled)


@pytest.mark.parametrize(
    ("decision", "text"), [("approve", "erased a.txt"), ("decline", "The person declined this action.")]
)
async def test_a_person_decides_about_a_call_in_the_client(signed_in: Any, decision: str, text: str) -> None:
    person = Person({"decision": decision, "reason": "because"})
    async with signed_in(source(ERASE)) as app, app.client(NEW, ANN, elicitation_callback=person) as client:
        result = await client.call_tool("ask_clerk", {"message": "Erase it"})
        assert text_of(result) == "That is all."
        page = await app.engine.read_conversation(result.structured_content["conversation_id"], PEOPLE[ANN])
        (call,) = page.messages.items[1].calls
        assert text in call.result
        assert (call.approval.by, call.approval.decision) == ("user:ann", decision)
        assert app.module.done == (["a.txt"] if decision == "approve" else [])
    (asked,) = person.asked
    assert "'erase'" in asked.message
    assert '{"path":"a.txt"}' in asked.message
    assert [one["const"] for one in asked.requested_schema["properties"]["decision"]["oneOf"]] == ["approve", "decline"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_who_does_not_decide_declines(signed_in: Any, action: str) -> None:
    async with signed_in(source(ERASE)) as app, app.client(NEW, ANN, elicitation_callback=Person(action)) as client:
        result = await client.call_tool("ask_clerk", {"message": "Erase it"})
        assert text_of(result) == "That is all."
        assert app.module.done == []


async def test_an_approval_in_an_agent_that_an_agent_asked_is_decided_in_the_same_way(signed_in: Any) -> None:
    person = Person({}, {"decision": "approve"})
    never = 3600.0
    async with (
        signed_in(source(ERASE), answer_within=never) as app,
        app.client(NEW, ANN, elicitation_callback=person) as client,
    ):
        async with asyncio.timeout(30):
            result = await client.call_tool("ask_chief", {"message": "Have it erased"})
        assert text_of(result) == "The clerk is done."
        assert app.module.done == ["a.txt"]
    assert "The last answer cannot be used: decision: it must be" in person.asked[1].message


async def test_several_things_that_a_run_waits_for_are_asked_at_once_and_answered_one_by_one(
    signed_in: Any, until: Any
) -> None:
    script = '[[call("erase", path="a"), call("erase", path="b"), call("book", day="Monday")], "All three."]'
    async with signed_in(source(script)) as app, app.client(NEW, ANN, elicitation_callback=Person()) as client:
        run_id = (await app.engine.submit("clerk", "Do three things", principal=PEOPLE[ANN])).run.id

        async def waits_for_all() -> bool:
            return len((await app.engine.get_run(run_id, PEOPLE[ANN])).waiting_for) == 3

        await until(waits_for_all)
        arguments = {"run_id": run_id}
        asked = await first_round(client, "ask_clerk", arguments)
        a, b = (key for key in asked.input_requests if key.startswith("call_"))
        (question,) = (key for key in asked.input_requests if key.startswith("who_comes"))
        given: dict[str, Any] = {a: accept(decision="approve"), question: wire.ElicitResult(action="decline")}
        left = await first_round(
            client, "ask_clerk", arguments, input_responses=given, request_state=asked.request_state
        )
        assert list(left.input_requests) == [b]
        assert app.module.done in ([], ["a"])
        given = {b: accept(decision="decline")}
        told = await client.session.call_tool(
            "ask_clerk", arguments, input_responses=given, request_state=left.request_state, allow_input_required=True
        )
        assert told.structured_content["status"] == "waiting"
        assert "Who comes?" in text_of(told)


async def test_nobody_is_asked_to_decide_what_is_for_another_to_decide(signed_in: Any) -> None:
    script = '[[call("pay", sum=5)], "That is all."]'
    async with (
        signed_in(source(script), answer_within=0.3) as app,
        app.client(NEW, ANN, elicitation_callback=Person()) as client,
    ):
        told = await client.call_tool("ask_clerk", {"message": "Pay"})
        assert told.structured_content["waiting_for"][0]["kind"] == "approval"
        assert "until a person approves 'pay'" in text_of(told)
        assert app.module.done == []


async def test_a_role_that_may_decide_is_asked(signed_in: Any) -> None:
    person = Person({"decision": "approve"})
    script = '[[call("pay", sum=5)], "That is all."]'
    async with signed_in(source(script)) as app, app.client(NEW, BOB, elicitation_callback=person) as client:
        await client.call_tool("ask_clerk", {"message": "Pay"})
        assert app.module.done == [5]


async def test_a_token_is_no_person_and_its_approvals_are_declined_unasked(mcp_app: Any) -> None:
    person = Person()
    async with mcp_app(source(ERASE), APPROVING) as app, app.client(NEW, elicitation_callback=person) as client:
        assert text_of(await client.call_tool("ask_clerk", {"message": "Erase it"})) == "That is all."
        assert app.module.done == []
    assert person.asked == []


class TaskParams(wire.RequestParams):
    task_id: str


class TaskRequest(wire.Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"


async def test_who_only_reads_a_run_is_not_asked_its_questions_and_has_no_task_of_it(signed_in: Any) -> None:
    script = '[[call("book", day="Monday")], "That is all."]'
    tasks = [advertise("io.modelcontextprotocol/tasks")]
    async with (
        signed_in(source(script), task_after=0.0) as app,
        app.client(NEW, ANN, elicitation_callback=Person()) as client,
        app.client(NEW, BOB, elicitation_callback=Person(), extensions=tasks) as boss,
    ):
        await first_round(client, "ask_clerk", {"message": "Book"})
        run_id = (await app.engine.list_runs(PEOPLE[ANN])).items[0].id
        async with asyncio.timeout(60):  # the question may be open a moment before the run waits for it
            while (await app.engine.get_run(run_id, PEOPLE[ANN])).status.value != "waiting":
                await asyncio.sleep(0.005)
        with pytest.raises(MCPError, match="there is no such task"):
            await boss.session.send_request(TaskRequest(params=TaskParams(task_id=run_id)), wire.Result)
        told = await boss.call_tool("ask_clerk", {"run_id": run_id})
        assert told.structured_content["status"] == "waiting"
        assert "Who comes?" in text_of(told)
