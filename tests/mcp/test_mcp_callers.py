"""Who may call over MCP: tokens of callers, what each of them sees, and what is never told."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

pytestmark = pytest.mark.anyio

SOURCE = '''
from amoxi_py import agent, tool

@tool(idempotent=True)
def keep(thing: str) -> str:
    """Keep."""
    return f"kept {thing}"

@tool(idempotent=True)
async def ask_size(ctx: "ToolContext") -> str:
    """Ask for the size."""
    return "size " + await ctx.ask("Which size?")

@agent(tools=[keep, ask_size])
class Keeper:
    """You keep things."""

from amoxi_py import ToolContext
'''
OLD, NEW, OTHER = "old-token-0123456789", "new-token-0123456789", "other-token-0123456789"
API, A2A = "api-token-0123456789", "a2a-token-0123456789"
CALLERS = {"AI_MCP_CALLERS_DESK_TOP": f"{OLD},{NEW}", "AI_MCP_CALLERS_OTHER": OTHER, "AI_API_CALLERS_ACME": API}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def text_of(result: Any) -> str:
    return result.content[0].text


async def test_only_a_callers_own_token_opens_the_door_however_it_is_sent(mcp_app: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    wrong: list[list[tuple[bytes, bytes]]] = [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", NEW.encode())],
        [(b"authorization", b"Basic " + NEW.encode())],
        [(b"authorization", b"Bearer " + NEW.encode()), (b"authorization", b"Bearer " + NEW.encode())],
        [(b"authorization", b"Bearer " + NEW.encode() + b"x")],
        [(b"authorization", b"Bearer t\xc3\xb6ken-0123456789-\xff\xfe")],
        [(b"authorization", b"Bearer " + b"x" * 1_000_000)],
        [(b"authorization", b"Bearer " + API.encode())],
        [(b"authorization", f"Bearer {NEW},{OLD}".encode())],
        [(b"x-api-key", NEW.encode())],
    ]
    async with mcp_app(SOURCE, environ=CALLERS) as app, app.http(None) as http:
        for headers in wrong:
            for path in ("/mcp", "/mcp/token"):
                answer = await http.post(path, json=LIST, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), headers
                assert "token-0123456789" not in answer.text
        for token in (OLD, NEW):
            right = await http.post("/mcp", json=LIST, headers={"authorization": f"bearer  {token}"})
            assert right.status_code == 200
        stranger = await http.get("/runs", headers={"authorization": f"Bearer {NEW}"})
        assert stranger.status_code == 401, "the HTTP routes are another door"
        assert (await http.get("/runs", headers={"authorization": f"Bearer {API}"})).status_code == 200
    assert "token-0123456789" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_both_tokens_of_a_caller_are_the_same_caller(mcp_app: Any) -> None:
    async with (
        mcp_app(SOURCE, environ=CALLERS) as app,
        app.client(token=OLD) as before,
        app.client(token=NEW) as after,
    ):
        kept = await before.call_tool("keep", {"thing": "a"})
        again = await after.call_tool("keep", {"thing": "a"}, meta={"amoxi/run-id": kept.meta["amoxi/run-id"]})
        assert text_of(again) == "kept a"
        [run] = (await app.serving.runs.list(limit=10)).items
        assert run.principal.id == "mcp:desk-top"


async def test_after_a_restart_with_another_token_the_caller_still_owns_its_runs(mcp_app: Any) -> None:
    async with mcp_app(SOURCE, environ=CALLERS) as app, app.client(token=OLD) as client:
        kept = await client.call_tool("keep", {"thing": "a"})
        run_id = kept.meta["amoxi/run-id"]
    changed = {"AI_MCP_CALLERS_DESK_TOP": OTHER + "9"}
    async with mcp_app(SOURCE, environ=changed) as app, app.client(token=OTHER + "9") as client:
        again = await client.call_tool("keep", {"thing": "a"}, meta={"amoxi/run-id": run_id})
        assert text_of(again) == "kept a"


async def test_ids_of_one_caller_are_to_another_one_like_ids_that_do_not_exist(mcp_app: Any) -> None:
    nothing = {"run": "run_" + "0" * 26, "conv": "conv_" + "0" * 26}
    async with (
        mcp_app(SOURCE, environ=CALLERS) as app,
        app.client(token=NEW) as own,
        app.client("2026-07-28", token=OTHER) as modern,
        app.client(token=OTHER) as legacy,
    ):
        done = (await own.call_tool("ask_keeper", {"message": "Keep thing T-1"})).structured_content
        asks = (await own.call_tool("ask_keeper", {"message": "Ask for the size"})).structured_content
        kept = await own.call_tool("keep", {"thing": "a"}, meta={"amoxi/idempotency-key": "k"})
        for other in (modern, legacy):
            for told in (done, asks):
                for mine, theirs in (
                    ({"run_id": told["run_id"]}, {"run_id": nothing["run"]}),
                    ({"run_id": told["run_id"], "message": "large"}, {"run_id": nothing["run"], "message": "large"}),
                    (
                        {"message": "Go on", "conversation_id": told["conversation_id"]},
                        {"message": "Go on", "conversation_id": nothing["conv"]},
                    ),
                ):
                    answers = [await other.call_tool("ask_keeper", arguments) for arguments in (mine, theirs)]
                    texts = [text_of(answer) for answer in answers]
                    assert all(answer.is_error for answer in answers)
                    for real, unreal in ((told["run_id"], nothing["run"]), (told["conversation_id"], nothing["conv"])):
                        texts[0] = texts[0].replace(real, unreal)
                    assert texts[0] == texts[1]
            foreign = await other.call_tool("keep", {"thing": "a"}, meta=kept.meta)
            assert foreign.is_error
            same_key = await other.call_tool("keep", {"thing": "a"}, meta={"amoxi/idempotency-key": "k"})
            assert text_of(same_key) == "kept a"
            assert same_key.meta["amoxi/run-id"] != kept.meta["amoxi/run-id"], "keys are each caller's own"
        assert (await own.call_tool("ask_keeper", {"run_id": asks["run_id"]})).structured_content["waiting_for"]
        with pytest.raises(MCPError):
            await own.call_tool("ask_nobody", {"message": "a"})
