"""A deploy never strands a run: what was waiting, crashed or queued goes on, with the code that is there now."""

from __future__ import annotations

import re
from typing import Any

import pytest

from amoxi_py.ports.chat_model import ModelRequest, ToolResult
from amoxi_py.testing import call, reply

SHOP = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(needs_approval=True)
async def cancel_order(order_id: str, ctx: ToolContext) -> str:
    """Cancel an order."""
    note("cancel", ctx, order_id=order_id)
    return f"{order_id} is cancelled"


@tool(idempotent=True)
async def refund(order_id: str, ctx: ToolContext) -> str:
    """Refund an order, slowly."""
    note("refund", ctx, order_id=order_id)
    await gate(ctx.conversation_id)
    note("refunded", ctx)
    return f"{order_id} is refunded"


@agent(tools=[cancel_order, refund], on_busy="queue")
class Shop:
    """You run a shop."""
'''

ANOTHER_TOOL = '''

@tool(read_only=True)
async def lookup(order_id: str) -> str:
    """Look an order up."""
    return order_id


@agent(tools=[lookup, refund, cancel_order], on_busy="queue")
'''


def with_a_comment(folder: Any) -> None:
    module = folder / "app/agents.py"
    module.write_text("# a comment\n" + module.read_text("utf-8"), "utf-8")


def with_another_tool(folder: Any) -> None:
    module = folder / "app/agents.py"
    old = '\n\n@agent(tools=[cancel_order, refund], on_busy="queue")\n'
    text = module.read_text("utf-8")
    assert old in text
    module.write_text(text.replace(old, ANOTHER_TOOL), "utf-8")


def with_other_instructions(folder: Any) -> None:
    module = folder / "app/agents.py"
    module.write_text(module.read_text("utf-8").replace("You run a shop.", "You run a new shop."), "utf-8")


def with_the_module_moved_to_a_package(folder: Any) -> None:
    module = folder / "app/agents.py"
    package = folder / "app/shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tools.py").write_text(module.read_text("utf-8").replace("from .ledger", "from app.ledger"), "utf-8")
    module.unlink()


CHANGES = [with_a_comment, with_another_tool, with_other_instructions, with_the_module_moved_to_a_package]


# O31
@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
@pytest.mark.crash
def test_runs_that_waited_crashed_or_were_queued_go_on_after_every_kind_of_change_of_the_app(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any, requests_about: Any
) -> None:
    model = strict_model(
        {
            "cancel A-1001": [call("cancel_order", order_id="A-1001"), "It is cancelled."],
            "refund A-1002": [call("refund", order_id="A-1002"), "It is refunded."],
            "*": ["You are next."],
        }
    )
    folder = field_app(SHOP)
    env = {**model_env(model), "AI_RUNS_MAX_ATTEMPTS": "20"}
    server = start(folder, env=env)
    api = client(server)
    waiting = [api.submit("shop", "cancel A-1001") for _ in CHANGES]
    crashed = [api.submit("shop", "refund A-1002") for _ in CHANGES]
    wanted = [api.until_status(run["id"], "waiting")["waiting_for"][0] for run in waiting]
    queued = [api.submit("shop", "and then", conversation_id=run["conversation_id"]) for run in waiting]
    until(lambda: len(folder.ledger("refund")) == len(CHANGES))
    for n, change in enumerate(CHANGES):
        started = len(folder.ledger("refund"))
        server.kill9()
        change(folder)
        server = start(folder, env=env)
        api = client(server)
        until(lambda started=started, n=n: len(folder.ledger("refund")) == started + len(CHANGES) - n)
        for run, asked, behind in list(zip(waiting, wanted, queued, strict=True))[n:]:
            assert api.run(run["id"])["waiting_for"] == [asked]
            assert api.run(behind["id"])["status"] == "queued"
        assert api.decide(waiting[n]["id"], wanted[n]["call_id"], "approve").status_code == 200
        assert api.until_status(waiting[n]["id"])["output"] == "It is cancelled."
        assert api.until_status(queued[n]["id"])["output"] == "You are next."
        folder.open_gate(crashed[n]["conversation_id"])
        assert api.until_status(crashed[n]["id"])["output"] == "It is refunded."
        [line] = folder.ledger("cancel", run=waiting[n]["id"])
        assert (line["call"], line["order_id"]) == (wanted[n]["call_id"], "A-1001")
        assert len({line["call"] for line in folder.ledger("refund", run=crashed[n]["id"])}) == 1
        assert len(folder.ledger("refunded", run=crashed[n]["id"])) == 1
        assert api.submit("shop", "later", conversation_id=crashed[n]["conversation_id"], wait=20)["output"]
    assert len(requests_about(model, "cancel A-1001")) == 2 * len(CHANGES), "no model turn was asked for twice"
    assert model.requests[-1].instructions == "You run a new shop."
    assert "lookup" in {tool.name for tool in model.requests[-1].tools}


BEFORE = '''
from amoxi_py import Done, ToolContext, agent, tool
from .ledger import gate, note


@tool(needs_approval=True)
async def asked_gone(order_id: str, ctx: ToolContext) -> str:
    """Wait for a person."""
    note("asked_gone", ctx)
    return "done"


@tool(needs_approval=True)
async def asked_changed(order_id: str, ctx: ToolContext) -> str:
    """Wait for a person."""
    note("asked_changed", ctx)
    return "done"


@tool(read_only=True)
async def reading_gone(order_id: str, ctx: ToolContext) -> str:
    """Be interrupted."""
    note("reading_gone", ctx)
    await gate("never")
    return "done"


@tool(idempotent=True)
async def safe_gone(order_id: str, ctx: ToolContext) -> str:
    """Be interrupted."""
    note("safe_gone", ctx)
    await gate("never")
    return "done"


@tool(idempotent=True)
async def safe_changed(order_id: str, ctx: ToolContext) -> str:
    """Be interrupted."""
    note("safe_changed", ctx)
    await gate("never")
    return "done"


@tool(idempotent=True)
async def safe_made_unsafe(order_id: str, ctx: ToolContext) -> str:
    """Be interrupted."""
    note("safe_made_unsafe", ctx)
    await gate("never")
    return "done"


@tool
async def unsafe_made_safe(order_id: str, ctx: ToolContext) -> str:
    """Be interrupted."""
    note("unsafe_made_safe", ctx)
    await gate("never")
    return "done"


def look(order_id: str, ctx: ToolContext):
    note("looked", ctx)
    return Done("done")


@tool(reconcile=look)
async def reconcile_gone(order_id: str, ctx: ToolContext) -> str:
    """Be interrupted."""
    note("reconcile_gone", ctx)
    await gate("never")
    return "done"


@tool
async def taken_from_the_agent(order_id: str, ctx: ToolContext) -> str:
    """Be interrupted."""
    note("taken_from_the_agent", ctx)
    await gate("never")
    return "done"


@tool(read_only=True)
async def before(ctx: ToolContext) -> str:
    """Keep the next call of the reply from starting."""
    note("before", ctx)
    await gate("before")
    return "before it"


@tool
async def open_gone(order_id: str, ctx: ToolContext) -> str:
    """Never start."""
    note("open_gone", ctx)
    return "done"


@tool
async def open_changed(order_id: str, ctx: ToolContext) -> str:
    """Never start."""
    note("open_changed", ctx)
    return "done"


TOOLS = [
    asked_gone, asked_changed, reading_gone, safe_gone, safe_changed, safe_made_unsafe, unsafe_made_safe,
    reconcile_gone, taken_from_the_agent, before, open_gone, open_changed,
]


@agent(tools=TOOLS)
class Shop:
    """You run a shop."""


@agent(tools=TOOLS)
class ClosedShop:
    """You will be gone."""
'''


def after(source: str) -> str:
    """The app after a deploy: some tools gone, some with other arguments or another effect, one agent gone."""
    for name in ("asked_gone", "reading_gone", "safe_gone", "open_gone"):
        source, found = re.subn(rf"@tool[^\n]*\nasync def {name}\(.*?\n\n\n", "", source, flags=re.DOTALL)
        assert found == 1
        source = source.replace(f" {name},", "")
    source = source.replace(" taken_from_the_agent,", "")
    for name in ("asked_changed", "safe_changed", "open_changed"):
        source = source.replace(f"def {name}(order_id: str", f"def {name}(order_number: int")
    source = source.replace("@tool(idempotent=True)\nasync def safe_made_unsafe", "@tool\nasync def safe_made_unsafe")
    source = source.replace("@tool\nasync def unsafe_made_safe", "@tool(idempotent=True)\nasync def unsafe_made_safe")
    source = source.replace("@tool(reconcile=look)", "@tool")
    return source[: source.index("@agent(tools=TOOLS)\nclass ClosedShop")]


STARTED = [
    "reading_gone",
    "safe_gone",
    "safe_changed",
    "safe_made_unsafe",
    "unsafe_made_safe",
    "reconcile_gone",
    "taken_from_the_agent",
]
ASKED = {
    "gone, approved": "asked_gone",
    "gone, declined": "asked_gone",
    "changed, approved": "asked_changed",
    "changed, declined": "asked_changed",
    "changed, edited": "asked_changed",
}
OPEN = ["open_gone", "open_changed"]


@pytest.mark.crash
def test_a_stored_call_whose_tool_is_gone_or_takes_other_arguments_never_runs_and_its_run_goes_on(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    until: Any,
    last_words: Any,
    requests_about: Any,
    results_in: Any,
) -> None:
    def script(request: ModelRequest) -> Any:
        text, said = last_words(request)
        if said or text == "later":
            return "I see."
        if text in OPEN:
            return reply(call("before"), call(text, order_id="A-1001"))
        return call(ASKED.get(text, text), order_id="A-1001")

    model = strict_model(script)
    folder = field_app(BEFORE)
    env = {**model_env(model), "AI_RUNS_PARALLEL_CALLS": "1"}
    server = start(folder, env=env)
    api = client(server)
    runs = {text: api.submit("shop", text) for text in (*STARTED, *ASKED, *OPEN)}
    closed = {text: api.submit("closed-shop", text) for text in ("gone, approved", "safe_gone", "open_gone")}
    wanted = {text: api.until_status(runs[text]["id"], "waiting")["waiting_for"][0] for text in ASKED}
    for_nobody = api.until_status(closed["gone, approved"]["id"], "waiting")["waiting_for"][0]
    for tool in STARTED:
        until(lambda tool=tool: folder.ledger(tool, run=runs[tool]["id"]))
    until(lambda: folder.ledger("safe_gone", run=closed["safe_gone"]["id"]))
    until(lambda: len(folder.ledger("before")) == len(OPEN) + 1)
    server.kill9()
    module = folder / "app/agents.py"
    module.write_text(after(module.read_text("utf-8")), "utf-8")
    folder.open_gate("before")
    folder.open_gate("never")
    ran = len(folder.ledger())
    server = start(folder, env=env)
    api = client(server)

    for text, asked in wanted.items():
        answer, status = text.split(", ")[1], 200
        run_id = runs[text]["id"]
        if answer == "edited":
            old = api.decide(run_id, asked["call_id"], "approve", arguments={"order_id": "A-1002"})
            assert (old.status_code, old.json()["code"]) == (422, "arguments_invalid")
            decided = api.decide(run_id, asked["call_id"], "approve", arguments={"order_number": 1002})
        else:
            decided = api.decide(run_id, asked["call_id"], answer.removesuffix("d"))
        assert decided.status_code == status, decided.text
    told: dict[str, ToolResult] = {}
    for text, run in runs.items():
        ended = api.until_status(run["id"])
        assert (ended["status"], ended["output"]) == ("completed", "I see."), (text, ended)
        told[text] = results_in(requests_about(model, text)[-1])[-1]
    for tool in STARTED:
        assert "outcome is unknown" in told[tool].content, tool
    for text in ("reading_gone", "safe_gone", "taken_from_the_agent", "gone, approved", "open_gone"):
        assert "does not exist any more" in told[text].content, text
    for text in ("safe_changed", "changed, approved", "open_changed"):
        assert "does not take these arguments any more" in told[text].content, text
    for text in ("gone, approved", "changed, approved", "open_gone", "open_changed"):
        assert "nothing was done" in told[text].content, text
    for text in ("gone, declined", "changed, declined"):
        assert told[text].content == "The person declined this action."
    assert told["changed, edited"].content.startswith("done")

    again = {line["what"] for line in folder.ledger()[ran:]}
    assert again == {"before", "asked_changed"}, "only what was safe, and what a person gave fitting arguments to, ran"
    assert [line["run"] for line in folder.ledger("asked_changed")] == [runs["changed, edited"]["id"]]
    for run in runs.values():
        later = api.submit("shop", "later", conversation_id=run["conversation_id"], wait=20)
        assert later["status"] == "completed"

    assert api.decide(closed["gone, approved"]["id"], for_nobody["call_id"], "approve").status_code == 200
    for run in closed.values():
        ended = api.until_status(run["id"])
        assert (ended["status"], ended["error"]["code"]) == ("failed", "agent_unknown")
        types = [event.type for event in api.events(run["id"])]
        assert types.count("tool.called") == types.count("tool.completed")
        assert types[-1] == "run.failed"
        assert api.post_path("/agents/closed-shop/runs", {"message": "hello"}).status_code == 404
