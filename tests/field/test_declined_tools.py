"""A declined tool never runs, whatever form it was declared in."""

from __future__ import annotations

from typing import Any

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call

FORMS = '''
from typing import Annotated
from pydantic import BaseModel, Field
from amoxi_py import Done, SyncToolContext, ToolContext, agent, singleton, tool
from .ledger import note


class Order(BaseModel):
    """The whole input."""

    order_id: str
    lines: list[int] = []


@singleton
class Ledger:
    def add(self, form, ctx=None):
        note(form, ctx)


@tool(needs_approval=True)
def sync_function(order_id: str) -> str:
    note("sync_function")
    return "done"


@tool(needs_approval=True)
async def async_function(order_id: str, ctx: ToolContext) -> str:
    note("async_function", ctx)
    return "done"


@tool(needs_approval=True)
async def whole_model(order: Order, ctx: ToolContext) -> str:
    note("whole_model", ctx)
    return "done"


@tool(name="other_name", needs_approval=True)
def named(order_id: Annotated[str, Field(min_length=1)]) -> str:
    note("other_name")
    return "done"


@tool(needs_approval=lambda ctx, order_id: order_id.startswith("A"))
async def condition(order_id: str, ctx: ToolContext) -> str:
    note("condition", ctx)
    return "done"


async def starts_with_a(ctx: ToolContext, order_id: str) -> bool:
    return order_id.startswith("A")


@tool(needs_approval=starts_with_a)
def async_condition(order_id: str, ctx: SyncToolContext) -> str:
    note("async_condition", ctx)
    return "done"


@tool(needs_approval=lambda ctx, **arguments: 1 / 0)
async def failing_condition(order_id: str, ctx: ToolContext) -> str:
    note("failing_condition", ctx)
    return "done"


@tool(needs_approval=True, idempotent=True, retries=3, timeout=5)
async def with_retries(order_id: str, ctx: ToolContext) -> str:
    note("with_retries", ctx)
    return "done"


@tool(needs_approval=True, read_only=True)
async def read_only(order_id: str, ctx: ToolContext) -> str:
    note("read_only", ctx)
    return "done"


def look(order_id: str, ctx: SyncToolContext):
    note("with_reconcile", ctx)
    return Done("done")


@tool(needs_approval=True, reconcile=look)
async def with_reconcile(order_id: str, ctx: ToolContext) -> str:
    note("with_reconcile", ctx)
    return "done"


@tool(needs_approval=True)
async def with_steps(order_id: str, ctx: ToolContext) -> str:
    ctx.progress("begins")
    await ctx.step("do", note, "with_steps", ctx)
    return "done"


@singleton
class OrderTools:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @tool(needs_approval=True)
    async def method(self, order_id: str, ctx: ToolContext) -> str:
        self.ledger.add("method", ctx)
        return "done"

    @tool(needs_approval=True)
    def sync_method(self, order_id: str, ctx: SyncToolContext) -> str:
        self.ledger.add("sync_method", ctx)
        ctx.step("do", self.ledger.add, "sync_method")
        return "done"

    def asks_first(self, ctx, order_id):
        return True

    @tool(needs_approval=asks_first)
    async def method_with_condition(self, order_id: str, ctx: ToolContext) -> str:
        self.ledger.add("method_with_condition", ctx)
        return "done"


@singleton
class MoreTools:
    @tool(needs_approval=True)
    async def single_method(self, order_id: str) -> str:
        note("single_method")
        return "done"

    @tool
    async def not_given(self, order_id: str) -> str:
        note("not_given")
        return "done"


@agent(tools=[
    sync_function, async_function, whole_model, named, condition, async_condition, failing_condition, with_retries,
    read_only, with_reconcile, with_steps, OrderTools, MoreTools.single_method,
])
class Shop:
    """You run a shop."""
'''

FORM_NAMES = [
    *("sync_function", "async_function", "whole_model", "other_name", "condition", "async_condition"),
    *("failing_condition", "with_retries", "read_only", "with_reconcile", "with_steps", "method", "sync_method"),
    *("method_with_condition", "single_method"),
]


# O10
def test_a_declined_tool_of_any_form_never_runs_and_a_repeated_call_asks_again(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    last_words: Any,
    requests_about: Any,
    results_in: Any,
) -> None:
    def script(request: ModelRequest) -> Any:
        form, said = last_words(request)
        if said == 2:
            return "Then I leave it."
        arguments: dict[str, Any] = {"order_id": "A-1001"}
        return call(form, **({"order": arguments} if form == "whole_model" else arguments))

    model = strict_model(script)
    folder = field_app(FORMS)
    server = start(folder, env=model_env(model))
    api = client(server)
    agents = api.get_path("/agents").json()["items"]
    assert {one["name"] for one in agents[0]["tools"]} == set(FORM_NAMES)
    runs = {form: api.submit("shop", form) for form in FORM_NAMES}
    for form, run in runs.items():
        calls = []
        for decision in ({}, {"reason": "It is too late for that."}):
            [wanted] = api.until_status(run["id"], "waiting")["waiting_for"]
            assert wanted["tool"] == form
            assert wanted["call_id"] not in calls
            calls.append(wanted["call_id"])
            answer = api.decide(run["id"], wanted["call_id"], "decline", **decision)
            assert (answer.status_code, answer.json()["decision"]) == (200, "decline")
            if len(calls) == 1:
                api.until_status(run["id"], "waiting")
        ended = api.until_status(run["id"])
        assert (ended["status"], ended["output"]) == ("completed", "Then I leave it.")
        types = [event.type for event in api.events(run["id"])]
        assert types.count("tool.completed") == types.count("approval.requested") == types.count("tool.called") == 2
        assert "tool.progress" not in types
        messages = api.messages("shop", run["conversation_id"])
        statuses = {one["call_id"]: one["status"] for message in messages for one in message["calls"]}
        assert statuses == dict.fromkeys(calls, "declined")
        first, second, third = requests_about(model, form)
        assert results_in(first) == []
        told = [(one.call_id, one.content) for one in results_in(third)]
        assert told[:1] == [(one.call_id, one.content) for one in results_in(second)]
        assert told == [
            (calls[0], "The person declined this action."),
            (calls[1], "The person declined this action. Reason: It is too late for that."),
        ]
    assert folder.ledger() == []
