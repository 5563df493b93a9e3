"""The app that `amoxi new` gives, over MCP."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from amoxi_py.app.web import create_app
from amoxi_py.config.load import load_settings

pytestmark = pytest.mark.anyio
TEMPLATE = Path(__file__).parents[2] / "app_template"
TOKEN = "desktop-token-0123456789"


SIGN_IN = """
from fastapi import Request

from amoxi_py import Principal, authenticate


@authenticate
def sign_in(request: Request) -> Principal | None:
    return Principal(id="42", name="Ann") if request.cookies.get("session") == "ann" else None
"""


@pytest.fixture
def make_template(tmp_path: Path, monkeypatch: Any) -> Any:
    folder = tmp_path / "agent-app"
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__", ".env", "ai"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RECEIPT_SECONDS", "0")
    paths = list(sys.path)
    forget_app()
    store = {"ai.mcp.enabled": True, "ai.store.path": str(tmp_path / "store"), "server.stop-grace-s": 1.0}

    def make(given: Any = None, **modules: str) -> Any:
        for name, source in modules.items():
            (folder / "app" / f"{name}.py").write_text(source, "utf-8")
        environ = {"AI_MCP_CALLERS_DESKTOP": TOKEN}
        return create_app(load_settings(folder, profile="test", environ=environ, given={**store, **(given or {})}))

    yield make
    sys.path[:] = paths
    forget_app()


def forget_app() -> None:
    """Let the package `app` be imported anew: other tests run apps of that name in this process too."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "app"]:
        del sys.modules[name]


def text_of(result: Any) -> str:
    return result.content[0].text


async def token_of_ann(app: Any) -> str:
    """Connect a program by OAuth, as the person with the cookie of Ann allows it."""
    verifier, callback = "v" * 64, "http://127.0.0.1:3333/callback"
    challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    async with app.http(None) as program, app.http(None) as browser:
        browser.cookies.set("session", "ann", domain="127.0.0.1")
        known = {"client_name": "Kit", "redirect_uris": [callback], "token_endpoint_auth_method": "none"}
        client_id = (await program.post("/oauth/register", json=known)).json()["client_id"]
        asked = {"response_type": "code", "client_id": client_id, "redirect_uri": callback, "state": "s"}
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        page = (await browser.get("/oauth/authorize", params=asked)).text
        ticket = re.search(r'name="ticket" value="([^"]+)"', page)
        assert ticket is not None, page
        allowed = {"ticket": ticket[1], "decision": "allow"}
        origin = {"origin": "http://127.0.0.1:8080"}
        back = (await browser.post("/oauth/consent", data=allowed, headers=origin)).headers["location"]
        code = parse_qs(urlsplit(back).query)["code"][0]
        fields = {"grant_type": "authorization_code", "client_id": client_id, "code": code, "redirect_uri": callback}
        answer = await program.post("/oauth/token", data={**fields, "code_verifier": verifier})
        return str(answer.json()["access_token"])


async def test_what_a_person_who_came_by_oauth_asks_for_completes_when_they_approve_it_in_the_app(
    make_template: Any, running: Any
) -> None:
    given = {"ai.mcp.approvals": "wait", "ai.mcp.oauth.enabled": True, "server.public-url": "http://127.0.0.1:8080"}
    async with running(make_template(given, sign_in=SIGN_IN), answer_within=0.2) as app:
        async with app.client(token=await token_of_ann(app)) as client:
            waits = await client.call_tool("ask_support_agent", {"message": "Cancel order A-1002"})
            run_id = waits.structured_content["run_id"]
            assert "waits until a person approves 'cancel_order' in the app" in text_of(waits)
            assert not Path("data/cancelled.log").exists()
            async with app.http(None) as browser:
                browser.cookies.set("session", "ann", domain="127.0.0.1")
                [approval] = (await browser.get("/approvals")).json()["items"]
                decision = {"decision": "approve"}
                decided = await browser.post(f"/approvals/{approval['call_id']}", json=decision)
                assert decided.status_code == 200, decided.text
            await app.serving.runs.wait(run_id)
            done = await client.call_tool("ask_support_agent", {"run_id": run_id})
            assert done.structured_content["status"] == "completed"
        assert len(Path("data/cancelled.log").read_text("utf-8").splitlines()) == 1


async def test_the_template_is_an_mcp_server_as_it_is(make_template: Any, running: Any) -> None:
    async with running(make_template()) as app:
        for era in ("legacy", "2026-07-28"):
            async with app.client(era) as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                assert list(tools) == [
                    *("list_notes", "add_note", "lookup_order", "refund_order"),
                    *("ask_assistant", "ask_support_agent"),
                ]
                assert tools["lookup_order"].annotations.read_only_hint
                assert tools["refund_order"].annotations.idempotent_hint
                found = await client.call_tool("lookup_order", {"order_id": "A-1001"})
                assert found.structured_content == {
                    "id": "A-1001",
                    "item": "Trail backpack, 28 L",
                    "status": "shipped",
                }
                assert '"Trail backpack, 28 L"' in text_of(found)
                declined = await client.call_tool("ask_support_agent", {"message": "Cancel order A-1002"})
                assert text_of(declined) == "That didn't work: The person declined this action."
                answer = await client.call_tool("ask_support_agent", {"message": "Where is order A-1001?"})
                assert text_of(answer) == (
                    "Here's what I found:\nID: A-1001\nItem: Trail backpack, 28 L\nStatus: shipped"
                )
                refund = await client.call_tool("refund_order", {"order_id": "A-1001"})
                assert refund.structured_content["emailed"] is True
        refunds = Path("data/refunds.log").read_text("utf-8").splitlines()
        assert len(refunds) == 2
        assert not Path("data/cancelled.log").exists()
