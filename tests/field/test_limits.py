"""Limits of one principal are kept at every door, and each says in its own way what is used up and when to come again.

Field case: one customer's script took the whole day's budget of all.
"""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from amoxi_py.testing import call

SHOP = '''
from amoxi_py import Principal, Runs, agent, configure, tool
from amoxi_py.errors import TooMany


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


@tool(idempotent=True)
def buy() -> str:
    """Buy."""
    return "bought"


@agent(tools=[look, buy])
class Clerk:
    """You sell."""


@configure
def routes(app):
    @app.post("/own/{who}")
    async def own(who: str):
        try:
            run = await app.state.amoxi.runs.submit("clerk", "hello", principal=Principal(id=who))
        except TooMany as error:
            return {"code": error.code, "retry_after": error.retry_after}
        return {"id": run.id}

    @app.post("/passes-it-on/{who}")
    async def passes_it_on(who: str):
        return {"id": (await app.state.amoxi.runs.submit("clerk", "hello", principal=Principal(id=who))).id}
'''
KIOSK = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def work(ctx: ToolContext) -> str:
    """Work until the gate opens."""
    note("work", ctx)
    await gate("work")
    return "worked"


@agent(tools=[work])
class Kiosk:
    """You work."""
'''
DOORS = {
    "AI_MCP_ENABLED": "true",
    "AI_A2A_ENABLED": "true",
    "AI_MCP_CALLERS_DESK": "desk-token-0123456789",
    "AI_A2A_CALLERS_PARTNER": "partner-token-0123456789",
    "AI_A2A_DEFAULT_AGENT": "clerk",
}


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-token-0123456789"}


def mcp_call(server: Any, tool: str) -> tuple[bool, str]:
    """Call a tool over MCP; return whether it is an error, and its text."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
    headers = {**bearer("desk"), "accept": "application/json, text/event-stream"}
    answer = httpx2.post(f"{server.url}/mcp", json=asked, headers=headers, timeout=30, verify=False)
    body = answer.text.partition("data:")[2] if answer.text.startswith(("event:", "id:", ":")) else answer.text
    result = httpx2.Response(200, content=body.strip().splitlines()[0]).json()["result"]
    return result.get("isError", False), result["content"][0]["text"]


def a2a_body(n: int) -> dict[str, Any]:
    return {"message": {"role": "ROLE_USER", "messageId": f"m{n}", "parts": [{"text": "hello"}]}}


def a2a_post(server: Any, path: str, body: Any) -> httpx2.Response:
    headers = {**bearer("partner"), "a2a-version": "1.0"}
    return httpx2.post(server.url + path, json=body, headers=headers, timeout=30, verify=False)


def test_a_days_budget_of_runs_is_kept_at_every_door(field_app: Any, start: Any, client: Any) -> None:
    server = start(field_app(SHOP), env={**DOORS, "AI_LIMITS_RUNS_PER_DAY": "1"})

    api = client(server)
    first = api.submit("clerk", "hello")
    api.until_status(first["id"])
    refused = api.post_path("/agents/clerk/runs", {"message": "again"})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (429, "daily_budget_used")
    assert refused.headers["content-type"] == "application/problem+json"
    assert 1 <= int(refused.headers["retry-after"]) <= 3600
    assert problem["detail"] == "you have used today's budget of 1 run; the next day begins at 00:00 UTC"
    client(server, "globex").submit("clerk", "hello")
    assert api.get_path(f"/runs/{first['id']}").status_code == 200, "who may not ask may look"

    assert mcp_call(server, "buy") == (False, "bought")
    is_error, text = mcp_call(server, "buy")
    assert is_error
    assert text.startswith("Not now: you have used today's budget of 1 run; ")
    assert text.endswith(" s.")
    assert mcp_call(server, "look") == (False, "seen"), "what only reads is no run"

    assert a2a_post(server, "/a2a/message:send", a2a_body(1)).status_code == 200
    refused = a2a_post(server, "/a2a/message:send", a2a_body(2))
    error = refused.json()["error"]
    assert (refused.status_code, error["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert 1 <= int(refused.headers["retry-after"]) <= 3600
    info, retry = error["details"]
    assert (info["reason"], info["metadata"]["code"]) == ("DAILY_BUDGET_USED", "daily_budget_used")
    assert retry["retryDelay"] == f"{refused.headers['retry-after']}s"
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": a2a_body(3)}
    error = a2a_post(server, "/a2a", rpc).json()["error"]
    assert (error["code"], error["data"][0]["reason"]) == (-32603, "DAILY_BUDGET_USED")
    assert a2a_post(server, "/a2a/message:send", a2a_body(1)).status_code == 200, "the same message again"

    with httpx2.Client(base_url=server.url, timeout=30, verify=False) as http:
        assert "id" in http.post("/own/ana").json()
        answer = http.post("/own/ana").json()
        assert (answer["code"], 0 < answer["retry_after"] <= 3600) == ("daily_budget_used", True)
        passed_on = http.post("/passes-it-on/ana")
        assert (passed_on.status_code, passed_on.json()["code"]) == (429, "daily_budget_used")


def test_a_message_may_replace_the_running_turn_though_its_principal_has_no_more_runs_at_once(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(KIOSK)
    model = strict_model({"work": [call("work"), "All done."], "instead": ["Hello."]})
    api = client(start(folder, env={**model_env(model), "AI_LIMITS_RUNS_AT_ONCE": "1"}))
    first = api.submit("kiosk", "work")
    until(lambda: folder.ledger("work", run=first["id"]))
    refused = api.post_path("/agents/kiosk/runs", {"message": "work"})
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_runs")
    instead = api.post_path("/agents/kiosk/runs", {"message": "instead", "conversation_id": first["conversation_id"]})
    assert instead.status_code == 202, "whatever was refused a moment ago"
    assert api.get_path(f"/runs/{first['id']}").json()["status"] == "cancelled"
    assert api.until_status(instead.json()["id"])["output"] == "Hello."


def test_requests_are_counted_whether_they_become_runs_or_not(field_app: Any, start: Any) -> None:
    server = start(field_app(SHOP), env={**DOORS, "AI_LIMITS_REQUESTS_PER_MINUTE": "2"})
    answers = [mcp_call(server, tool) for tool in ("look", "buy", "look", "buy", "look")]
    text = "Not now: you have asked as often as you may in this minute (2 times). Nothing was done; call again in "
    assert any(is_error and told.startswith(text) for is_error, told in answers)  # a new minute may have begun
    assert answers[:2] == [(False, "seen"), (False, "bought")]


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_a_budget_outlives_the_server_and_holds_for_all_of_them(field_app: Any, start: Any, client: Any) -> None:
    folder = field_app(SHOP)
    env = {"AI_LIMITS_RUNS_PER_DAY": "2"}
    one, other = start(folder, env=env), start(folder, env=env)
    for server in (one, other):
        api = client(server)
        api.until_status(api.submit("clerk", "hello")["id"])
    one.kill9()
    again = start(folder, env=env)
    for server in (other, again):
        refused = client(server).post_path("/agents/clerk/runs", {"message": "hello"})
        assert (refused.status_code, refused.json()["code"]) == (429, "daily_budget_used")


def test_a_budget_in_dollars_says_of_which_models_it_counts_nothing(field_app: Any, start: Any) -> None:
    env = {"AI_LIMITS_USD_PER_DAY": "5", "AI_MODEL": "openai:nobody-knows-it", "OPENAI_API_KEY": "sk-of-the-test"}
    log = start(field_app(SHOP), env=env).log()
    assert "'ai.limits.usd-per-day' counts nothing for models without a known price: openai:nobody-knows-it" in log
