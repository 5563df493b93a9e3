"""The addresses of MCP: which method is answered how, with and without a token, and what never is a redirect."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from amoxi_py import install

pytestmark = pytest.mark.anyio

TOKEN = "desktop-token-0123456789"
SOURCE = '''
from amoxi_py import agent, configure, tool

seen = []


@tool(read_only=True)
def look(thing: str = "") -> str:
    """Look."""
    return f"seen {thing}"


@agent(tools=[look])
class Looker:
    """You look."""


@configure
def add_own(app):
    from fastapi import Request
    from fastapi.responses import HTMLResponse

    @app.middleware("http")
    async def mark(request: Request, call_next):
        seen.append(request.url.path)
        answer = await call_next(request)
        answer.headers["x-own"] = "yes"
        return answer

    @app.get("/token")
    async def own_token():
        return {"own": True}

    @app.api_route("/{path:path}", methods=["GET", "DELETE", "OPTIONS"])
    async def everything(path: str):
        return HTMLResponse("<h1>page</h1>")
'''
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
PATHS = ("/mcp", "/mcp/", "/mcp/token", "/mcp/token/")
BOTH = {"accept": "application/json, text/event-stream"}


def result_of(answer: httpx2.Response) -> Any:
    """Return the one message of an answer in events or in JSON."""
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()["result"]
    line = next(line for line in answer.text.splitlines() if line.startswith("data: {"))
    return json.loads(line.removeprefix("data: "))["result"]


async def test_each_method_has_its_status_on_each_address_and_nothing_is_a_redirect(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, app.http() as known, app.http(None) as stranger:
        for path in PATHS:
            statuses = {}
            for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"):
                body = {"json": LIST} if method == "POST" else {}
                with_token = await known.request(method, path, headers=BOTH, **body)
                without = await stranger.request(method, path, headers=BOTH, **body)
                statuses[method] = (with_token.status_code, without.status_code)
                if with_token.status_code == 405:
                    assert with_token.headers["allow"] == "POST"
                if without.status_code == 401:
                    assert without.headers["www-authenticate"] == "Bearer"
                    assert without.headers["content-type"] == "application/problem+json"
            assert statuses == {
                "GET": (405, 401),
                "HEAD": (405, 401),
                "POST": (200, 401),
                "DELETE": (405, 401),
                "OPTIONS": (405, 405),
                "PUT": (405, 405),
                "PATCH": (405, 405),
            }, path


async def test_where_clients_look_for_oauth_there_is_json_that_says_no_whatever_the_app_shows_for_other_pages(
    mcp_app: Any,
) -> None:
    names = ("oauth-protected-resource", "oauth-authorization-server", "openid-configuration")
    paths = [f"/.well-known/{name}{ending}" for name in names for ending in ("", "/mcp", "/mcp/token")]
    paths += [f"{endpoint}/.well-known/{name}" for endpoint in ("/mcp", "/mcp/token") for name in names]
    async with mcp_app(SOURCE) as app, app.http(None) as http:
        answers = [await http.get(path) for path in paths]
        answers += [await http.post(path, json={}) for path in ("/register", "/token")]
        answers += [await http.get(path) for path in ("/register", "/authorize")]
        for answer in answers:
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json"), answer.url
            assert answer.json()["error"] == "not_found"
        assert (await http.get("/token")).json() == {"own": True}, "the app's own route is first"
        visit = await http.get("/register", headers={"accept": "text/html,*/*"})
        assert visit.text == "<h1>page</h1>", "a person's browser gets the app's page"


OWN_KINDS = {
    "included": """
    from fastapi import APIRouter
    inner, outer = APIRouter(), APIRouter()
    inner.post("/token")(lambda: "own")
    inner.post("/register")(lambda: "own")
    inner.get("/.well-known/openid-configuration")(lambda: "own")
    outer.include_router(inner)
    outer.get("/{path:path}")(lambda path: "page")
    app.include_router(outer)
""",
    "mounted": """
    from fastapi import FastAPI
    inner = FastAPI()
    inner.post("/token")(lambda: "own")
    inner.post("/register")(lambda: "own")
    inner.get("/.well-known/openid-configuration")(lambda: "own")
    inner.get("/{path:path}")(lambda path: "page")
    app.mount("/", inner)
""",
    "handed on to an older app": """
    app.get("/.well-known/openid-configuration")(lambda: "own")
    app.post("/{path:path}")(lambda path: "own")
    app.get("/{path:path}")(lambda path: "page")
""",
}


@pytest.mark.parametrize("kind", OWN_KINDS)
async def test_what_the_app_answers_itself_at_such_an_address_stays_its_own(mcp_app: Any, kind: str) -> None:
    source = SOURCE.partition("@configure")[0] + "\n\n@configure\ndef own(app):" + OWN_KINDS[kind]
    async with mcp_app(source) as app, app.http(None) as http:
        assert (await http.post("/token")).json() == (await http.post("/register")).json() == "own"
        assert (await http.get("/.well-known/openid-configuration")).json() == "own"
        assert (await http.get("/.well-known/oauth-authorization-server")).json()["error"] == "not_found"
        assert (await http.get("/elsewhere")).json() == "page"


async def test_the_apps_own_middleware_runs_before_it(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http:
        answer = await http.post("/mcp", json=LIST, headers=BOTH)
        assert (answer.status_code, answer.headers["x-own"]) == (200, "yes")


async def test_an_accept_header_that_says_too_little_is_answered_all_the_same(mcp_app: Any) -> None:
    modern = {
        **LIST,
        "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        },
    }
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list "}  # the space is no part of the value
    async with mcp_app(SOURCE) as app, app.http() as http:
        del http.headers["accept"]
        for accept, kind in {
            None: "text/event-stream",
            "*/*": "text/event-stream",
            "text/event-stream": "text/event-stream",
            "application/json": "application/json",
            "text/html": "application/json",
            "application/json, text/event-stream;q=0.5": "text/event-stream",
        }.items():
            told = {} if accept is None else {"accept": accept}
            old = await http.post("/mcp", json=LIST, headers=told)
            assert (old.status_code, old.headers["content-type"].partition(";")[0]) == (200, kind), accept
            new = await http.post("/mcp", json=modern, headers={**told, **headers})
            assert (new.status_code, new.headers["content-type"]) == (200, "application/json"), (accept, new.text)
            assert [tool["name"] for tool in result_of(old)["tools"]] == ["look", "ask_looker"]
            assert [tool["name"] for tool in result_of(new)["tools"]] == ["look", "ask_looker"]


async def test_bodies_that_are_no_message_are_refused_without_a_trace(mcp_app: Any, caplog: Any) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http:
        for headers in ({}, {"mcp-protocol-version": "2026-07-28"}):
            for body, status in {
                b"": 400,
                b"{": 400,
                b"[]": 400,
                b"[1, 2]": 400,
                b"[" * 9_000: 400,
                b'"notifications/cancelled"': 400,
                b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": []}': (202, 400),
                b"\xff\xfe": 400,
                b"1" * 9_000: 400,
                b"x" * (4 << 20) + b"x": 413,
            }.items():
                told = {**BOTH, "content-type": "application/json", **headers}
                answer = await http.post("/mcp", content=body, headers=told)
                statuses = status if isinstance(status, tuple) else (status,)
                assert answer.status_code in statuses, (body[:40], answer.text)
        assert "Traceback" not in caplog.text
        assert not [record for record in caplog.records if record.exc_info and record.levelname == "ERROR"]


async def test_a_session_id_is_given_out_kept_nowhere_and_any_is_taken(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http:
        ids = {(await http.post("/mcp", json=HELLO, headers=BOTH)).headers["mcp-session-id"] for _ in range(3)}
        assert len(ids) == 3
        for session in (*ids, "another-servers", "x" * 5000, "ünknown".encode()):
            answer = await http.post("/mcp", json=LIST, headers={**BOTH, "mcp-session-id": session})
            assert result_of(answer)["tools"][0]["name"] == "look"


async def test_a_page_of_a_foreign_origin_and_a_foreign_host_are_refused(mcp_app: Any) -> None:
    settings = {"server.public-url": "https://shop.example", "server.cors-origins": "https://desk.example"}
    async with mcp_app(SOURCE, settings) as app, app.http() as http:
        for origin, status in {
            "https://evil.example": 403,
            "null": 403,
            "http://127.0.0.1:8080": 200,
            "https://shop.example": 200,
            "https://desk.example": 200,
        }.items():
            answer = await http.post("/mcp", json=LIST, headers={**BOTH, "origin": origin})
            assert answer.status_code == status, origin
        for host, status in {"evil.example": 421, "shop.example": 200, "localhost:8080": 200}.items():
            answer = await http.post("/mcp", json=LIST, headers={**BOTH, "host": host})
            assert answer.status_code == status, host


async def test_pages_that_may_call_are_told_so_before_they_have_a_token(mcp_app: Any) -> None:
    ask = {
        "origin": "https://desk.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,mcp-protocol-version,mcp-session-id",
    }
    async with (
        mcp_app(SOURCE, {"server.cors-origins": "https://desk.example"}) as app,
        app.http() as http,
        app.http(None) as stranger,
    ):
        preflight = await stranger.options("/mcp", headers=ask)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, ask["origin"])
        for name in ask["access-control-request-headers"].split(","):
            assert name in preflight.headers["access-control-allow-headers"].lower()
        answer = await http.post("/mcp", json=HELLO, headers={**BOTH, "origin": ask["origin"]})
        assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]


async def test_installed_in_another_app_it_is_under_the_prefix_and_no_page_of_the_app_is_taken_for_oauth(
    mcp_settings: Any, running: Any
) -> None:
    host = FastAPI()

    @host.get("/register")
    async def register() -> dict[str, str]:
        return {"own": "page"}

    install(host, "/ai", settings=mcp_settings(SOURCE.replace('"/{path:path}"', '"/all/{path:path}"')))

    @host.get("/{path:path}")
    async def everything(path: str) -> dict[str, str]:
        return {"page": path}

    async with running(host) as app, app.http() as http:
        for path in ("/ai/mcp", "/ai/mcp/"):
            answer = await http.post(path, json=LIST, headers=BOTH)
            assert result_of(answer)["tools"][0]["name"] == "look"
        assert (await http.post("/ai/mcp", json=LIST, headers={"authorization": "Bearer x"})).status_code == 401
        assert (await http.get("/mcp")).json() == {"page": "mcp"}
        assert (await http.get("/register")).json() == {"own": "page"}
        for path in ("/.well-known/oauth-protected-resource/ai/mcp", "/.well-known/oauth-authorization-server"):
            assert (await http.get(path)).json()["error"] == "not_found"
        for path in ("/ai/.well-known/openid-configuration", "/ai/mcp/.well-known/openid-configuration"):
            assert (await http.get(path)).status_code == 404


async def test_without_the_setting_there_is_no_such_address(mcp_settings: Any) -> None:
    from amoxi_py.app.web import create_app

    app = create_app(mcp_settings(SOURCE.partition("@configure")[0], {"ai.mcp.enabled": False}))
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http:
            headers = {**BOTH, "authorization": f"Bearer {TOKEN}"}
            assert (await http.post("/mcp", json=LIST, headers=headers)).status_code == 404


async def test_before_the_start_it_says_that_it_cannot_answer_yet(mcp_settings: Any) -> None:
    from amoxi_py.app.web import create_app

    transport = httpx2.ASGITransport(app=create_app(mcp_settings(SOURCE.partition("@configure")[0])))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http:
        answer = await http.post("/mcp", json=LIST, headers={**BOTH, "authorization": f"Bearer {TOKEN}"})
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_every_version_lists_calls_and_is_told_of_errors(mcp_app: Any, version: str) -> None:
    modern = version == "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    async def ask(http: httpx2.AsyncClient, method: str, params: dict[str, Any]) -> Any:
        headers = {**BOTH, "mcp-protocol-version": version}
        if modern:
            params = {**params, "_meta": meta}
            headers |= {"mcp-method": method, "mcp-name": params.get("name", "")}
        answer = await http.post("/mcp", json={**LIST, "method": method, "params": params}, headers=headers)
        if answer.headers["content-type"].startswith("application/json"):
            return answer.json()
        return json.loads(next(line for line in answer.text.splitlines() if line.startswith("data: {"))[6:])

    async with mcp_app(SOURCE) as app, app.http() as http:
        if not modern:
            hello = {**HELLO["params"], "protocolVersion": version}
            assert (await ask(http, "initialize", hello))["result"]["protocolVersion"] == version
        listed = (await ask(http, "tools/list", {}))["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["look", "ask_looker"]
        seen = (await ask(http, "tools/call", {"name": "look", "arguments": {"thing": "a"}}))["result"]
        assert seen["content"][0]["text"] == "seen a"
        asked = (await ask(http, "tools/call", {"name": "ask_looker", "arguments": {"message": "Look"}}))["result"]
        assert "seen" in asked["content"][0]["text"]
        wrong = (await ask(http, "tools/call", {"name": "look", "arguments": {"thing": 7}}))["result"]
        assert wrong["isError"] is True
        unknown = await ask(http, "tools/call", {"name": "nothing", "arguments": {}})
        assert unknown["error"]["code"] == -32602
