"""A server killed at any point of a tool: what is recorded is not run again, and an unsafe tool never runs twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from amoxi_py.testing import Gate, call, fail, reply, tries

pytestmark = pytest.mark.crash

UNKNOWN = "outcome is unknown"


# O01: the effect is done, the process dies before the result is recorded.

SHOP = '''
import os, pathlib, signal
from amoxi_py import ToolContext, agent, tool
from amoxi_py.models.lookup import resolve_model
from .ledger import gate, note


@tool
async def refund_plain(order: str, ctx: ToolContext) -> str:
    """Refund an order; nobody may do that twice."""
    note("entered", ctx, tool="plain")
    await gate("before")
    note("effect", ctx, tool="plain")
    await gate("after")
    return "refunded"


@tool(idempotent=True)
async def refund_idem(order: str, ctx: ToolContext) -> str:
    """Refund an order in two steps."""
    note("entered", ctx, tool="idem")
    refund = await ctx.step("refund", pay, ctx)
    await ctx.step("mail", mail, ctx)
    return refund


async def pay(ctx: ToolContext) -> str:
    await gate("before")
    note("effect", ctx, tool="idem")
    await gate("after")
    return f"refund of {ctx.call_id} in try {ctx.attempt}"


async def mail(ctx: ToolContext) -> None:
    note("mail", ctx, tool="idem")


@tool(read_only=True)
async def lookup(order: str, ctx: ToolContext) -> str:
    """Look an order up."""
    note("entered", ctx, tool="lookup")
    await gate("before")
    note("effect", ctx, tool="lookup")
    await gate("after")
    return "shipped"


class Mortal:
    """A model that can die just before it is asked for what follows a tool's result."""

    name = "mortal"

    def __init__(self):
        self.inner = None

    async def stream(self, request):
        if type(request.messages[-1]).__name__ == "ToolResult" and pathlib.Path("kill-before-model").exists():
            note("asked")
            await gate("never")
        if self.inner is None:
            self.inner = resolve_model("openai:test", os.environ)
        async for item in self.inner.stream(request):
            yield item


@agent(tools=[refund_plain, refund_idem, lookup], model=Mortal())
class Shop:
    """You run a shop."""
'''

TOOLS = {"plain": "refund_plain", "idem": "refund_idem", "lookup": "lookup"}


@pytest.mark.parametrize(
    "point", ["before the effect", "after the effect", "before the model", "while the model answers"]
)
def test_a_kill_at_any_point_of_a_call_repeats_only_what_may_be_repeated(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    one_story: Any,
    strict_model: Any,
    model_env: Any,
    results_in: Any,
    point: str,
) -> None:
    answering = Gate()
    script = {
        name: [["Let me ", "see.", call(tool, order="A-1")], reply("It ", "is", answering, " done.")]
        for name, tool in TOOLS.items()
    }
    model = strict_model(script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    if point != "before the effect":
        folder.open_gate("before")
    if point in ("before the model", "while the model answers"):
        folder.open_gate("after")
    if point == "before the model":
        (folder / "kill-before-model").touch()
    runs = {name: api.submit("shop", name)["id"] for name in TOOLS}
    reached = {
        "before the effect": lambda: len(folder.ledger("entered")) == 3,
        "after the effect": lambda: len(folder.ledger("effect")) == 3,
        "before the model": lambda: len(folder.ledger("asked")) == 3,
        "while the model answers": lambda: len(model.requests) == 6,
    }
    until(reached[point])
    server.kill9()
    (folder / "kill-before-model").unlink(missing_ok=True)
    folder.open_gate("before") if point == "before the effect" else None
    folder.open_gate("after") if point in ("before the effect", "after the effect") else None
    answering.open()
    api = client(start(folder, env=model_env(model)))
    recorded = point in ("before the model", "while the model answers")
    for name, run_id in runs.items():
        run = api.until_status(run_id)
        assert (run["status"], run["output"], run["attempt"]) == ("completed", "It is done.", 2)
        events = api.events(run_id, after=0)
        one_story(events)
        [completed] = [event.data for event in events if event.type == "tool.completed"]
        assert sum(event.type == "tool.called" for event in events) == 1
        last = [request for request in model.requests if request.messages[0].text == name][-1]
        [result] = results_in(last)
        assert result.tool == TOOLS[name]
        if name == "plain" and not recorded:
            assert completed["is_error"]
            assert UNKNOWN in completed["result"]
            assert UNKNOWN in result.content
        else:
            assert not completed["is_error"]
            assert not result.is_error
            assert UNKNOWN not in result.content
    assert len({line["call"] for line in folder.ledger("entered")}) == 3
    entered = Counter(line["tool"] for line in folder.ledger("entered"))
    effects = Counter(line["tool"] for line in folder.ledger("effect"))
    again = 1 if recorded else 2
    assert entered == {"plain": 1, "idem": again, "lookup": again}
    once_more = 2 if point == "after the effect" else 1
    plain = 0 if point == "before the effect" else 1
    assert effects == Counter({"plain": plain, "idem": once_more, "lookup": once_more}) + Counter()
    assert len(folder.ledger("mail")) == 1


def test_errors_of_the_model_after_a_result_never_run_a_tool_again(
    field_app: Any, start: Any, client: Any, one_story: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model(
        {name: [call(tool, order="A-1"), tries(fail(500), fail(500), "Done.")] for name, tool in TOOLS.items()}
    )
    folder = field_app(SHOP)
    folder.open_gate("before")
    folder.open_gate("after")
    api = client(start(folder, env=model_env(model)))
    runs = [api.submit("shop", name)["id"] for name in TOOLS]
    for run_id in runs:
        assert api.until_status(run_id)["status"] == "completed"
        one_story(api.events(run_id, after=0))
    assert Counter(line["tool"] for line in folder.ledger("effect")) == {"plain": 1, "idem": 1, "lookup": 1}
    assert len(model.requests) == 3 * (1 + 3)


# O04: runs left "running" by a crash block everything behind them.

QUEUE = '''
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call
from .ledger import gate, note


@tool(idempotent=True)
async def work(name: str, ctx: ToolContext) -> str:
    """Work."""
    note("work", ctx, name=name)
    if name == "first":
        await gate("first")
    return name


SCRIPT = {name: [call("work", name=name), f"{name} done"] for name in ("first", "second", "third", "other")}


@agent(tools=[work], on_busy="queue", model=ScriptedModel(SCRIPT))
class Clerk:
    """You work."""
'''


@pytest.mark.parametrize("restarts", [1, 4])
def test_runs_behind_one_that_a_crash_left_running_go_on_in_order(
    field_app: Any, start: Any, client: Any, until: Any, lease_s: float, restarts: int
) -> None:
    folder = field_app(QUEUE)
    server = start(folder)
    api = client(server)
    first = api.submit("clerk", "first")
    conversation = first["conversation_id"]
    until(lambda: folder.ledger("work", name="first"))
    second = api.submit("clerk", "second", conversation_id=conversation)
    third = api.submit("clerk", "third", conversation_id=conversation)
    for _ in range(restarts):
        server.kill9()
        server = start(folder)
    api = client(server)
    other = api.submit("clerk", "other", wait=lease_s / 2)
    assert other["status"] == "completed", "another conversation is not delayed"
    until(lambda: folder.ledger("work", name="first", pid=server.pid), lease_s + 2, "the first run is taken up")
    assert [line["name"] for line in folder.ledger("work") if line["name"] not in ("first", "other")] == []
    folder.open_gate("first")
    for run in (first, second, third):
        assert api.until_status(run["id"])["status"] == "completed"
    order = [line["name"] for line in folder.ledger("work", pid=server.pid) if line["name"] != "other"]
    assert order == ["first", "second", "third"]
    texts = [message["text"] for message in api.messages("clerk", conversation) if message["role"] == "user"]
    assert texts == ["first", "second", "third"]
