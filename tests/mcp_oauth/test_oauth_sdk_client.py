"""The whole app in one process, and the SDK's own client, which finds its way by itself."""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from amoxi_py.app.install import install
from amoxi_py.app.web import create_app
from amoxi_py.config.load import load_settings
from amoxi_py.errors import ConfigError
from amoxi_py.surfaces.mcp.oauth import client_documents
from amoxi_py.surfaces.mcp.oauth.fetching import Fetched

pytestmark = pytest.mark.anyio

URL = "https://shop.example.com"
CALLBACK = "http://localhost:3333/callback"
DOCUMENT = "https://client.example.com/oauth/client.json"
TOKEN = "desktop-token-0123456789"
NUMBERS = itertools.count(1)
APP = '''
from fastapi import Request
from amoxi_py import Principal, ToolContext, agent, authenticate, tool

@authenticate
def sign_in(request: Request) -> Principal | None:
    return Principal(id="42", name="Ann") if request.cookies.get("session") == "ann" else None

@tool(read_only=True)
async def who_am_i(ctx: ToolContext) -> str:
    """Say who asks."""
    return ctx.principal.id

@agent(tools=[who_am_i])
class ShopAgent:
    """You are a shop."""
'''


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Any]:
    """Serve the app: `await served(prefix)` gives an ASGI app that has started."""
    name = f"oauth_app_{next(NUMBERS)}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(APP, "utf-8")
    paths = list(sys.path)
    given = {
        "app.package": name,
        "server.public-url": URL,
        "server.stop-grace-s": 1.0,
        "ai.model": "offline",
        "ai.mcp.enabled": True,
        "ai.mcp.oauth.enabled": True,
        "ai.mcp.oauth.sign-in-url": "/login",
    }
    settings = load_settings(tmp_path, profile="test", environ={"AI_MCP_CALLERS_DESKTOP": TOKEN}, given=given)
    async with AsyncExitStack() as exits:

        async def serve(prefix: str = "") -> FastAPI:
            if prefix:
                app = FastAPI()
                install(app, prefix, settings=settings)
            else:
                app = create_app(settings)
            await exits.enter_async_context(app.router.lifespan_context(app))
            return app

        yield serve
    sys.path[:] = paths
    for module in [one for one in sys.modules if one.partition(".")[0] == name]:
        del sys.modules[module]


class Memory:
    """What a client keeps."""

    tokens: OAuthToken | None = None
    info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.info

    async def set_client_info(self, info: OAuthClientInformationFull) -> None:
        self.info = info


class Person:
    """Somebody with a browser that is signed in, who allows what is asked."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._told: dict[str, str] = {}
        self.asked = 0
        self.sdk: Any = None

    async def open(self, url: str) -> None:
        self.asked += 1
        transport = httpx2.ASGITransport(self._app)
        async with httpx2.AsyncClient(transport=transport, base_url=URL) as browser:
            browser.cookies.set("session", "ann", domain="shop.example.com")
            page = (await browser.get(url)).text
            assert "Who am i" in page or "who am i" in page
            ticket = page.partition('name="ticket" value="')[2].partition('"')[0]
            action = page.partition('method="post" action="')[2].partition('"')[0]
            answer = await browser.post(action, data={"ticket": ticket, "decision": "allow"}, headers={"origin": URL})
        query = parse_qs(urlsplit(answer.headers["location"]).query)
        self._told = {name: values[0] for name, values in query.items()}

    async def answer(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=self._told["code"], state=self._told["state"], iss=self._told["iss"])


@asynccontextmanager
async def connected(
    app: FastAPI, memory: Memory, person: Person, path: str = "/mcp", **more: Any
) -> AsyncIterator[Client]:
    metadata = OAuthClientMetadata(client_name="Kit", redirect_uris=[CALLBACK])  # type: ignore[list-item]  # it reads text
    auth = OAuthClientProvider(f"{URL}{path}", metadata, memory, person.open, person.answer, **more)
    person.sdk = auth
    transport = httpx2.ASGITransport(app)
    async with (
        httpx2.AsyncClient(transport=transport, auth=auth, timeout=30) as http,
        Client(streamable_http_client(f"{URL}{path}", http_client=http)) as client,
    ):
        yield client


async def test_the_sdks_client_registers_connects_calls_and_refreshes(served: Any) -> None:
    app, memory = await served(), Memory()
    person = Person(app)
    async with connected(app, memory, person) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"who_am_i", "ask_shop_agent"}
        result = await client.call_tool("who_am_i", {})
        assert result.structured_content == {"result": "user:42"}
    assert memory.tokens is not None
    assert memory.tokens.refresh_token
    first = memory.tokens.access_token
    async with connected(app, memory, person) as client:
        await client.list_tools()
        person.sdk.context.token_expiry_time = 1.0
        assert (await client.call_tool("who_am_i", {})).structured_content == {"result": "user:42"}
    assert memory.tokens.access_token != first
    assert person.asked == 1, "the person is not asked again"


async def test_the_sdks_client_connects_by_its_document(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(url: str, *, largest: int) -> Fetched:
        assert url == DOCUMENT
        return Fetched(
            b'{"client_id":"https://client.example.com/oauth/client.json","client_name":"Kit",'
            b'"redirect_uris":["http://localhost/callback"],"token_endpoint_auth_method":"none"}'
        )

    monkeypatch.setattr(client_documents, "fetch_public", fetch)
    app, memory = await served(), Memory()
    async with connected(app, memory, Person(app), client_metadata_url=DOCUMENT) as client:
        assert (await client.call_tool("who_am_i", {})).structured_content == {"result": "user:42"}
    assert memory.info is not None
    assert memory.info.client_id == DOCUMENT


async def test_an_installed_app_has_its_documents_at_the_root_of_the_host(served: Any) -> None:
    app, memory = await served("/ai"), Memory()
    async with connected(app, memory, Person(app), "/ai/mcp") as client:
        assert (await client.call_tool("who_am_i", {})).structured_content == {"result": "user:42"}


async def test_static_tokens_keep_working_beside_oauth_and_on_the_path_that_says_nothing_of_it(served: Any) -> None:
    app = await served()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    told = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=URL) as http:
        for path in ("/mcp", "/mcp/", "/mcp/token"):
            assert (await http.post(path, json=body, headers=told)).status_code == 200, path
        known = await http.post("/mcp", json=body)
        assert known.status_code == 401
        assert (
            f'resource_metadata="{URL}/.well-known/oauth-protected-resource/mcp"' in known.headers["www-authenticate"]
        )
        silent = await http.post("/mcp/token", json=body, headers={"authorization": "Bearer wrong"})
        assert silent.status_code == 401
        assert "resource_metadata" not in silent.headers["www-authenticate"]
        wrong = await http.post("/mcp", json=body, headers={"authorization": "Bearer wrong"})
        assert 'error="invalid_token"' in wrong.headers["www-authenticate"]
        for document in ("openid-configuration", "oauth-protected-resource/mcp/token"):
            answer = await http.get(f"/.well-known/{document}")
            assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_an_app_in_which_nobody_could_sign_in_does_not_start(tmp_path: Path, served: Any) -> None:
    package = next(path.name for path in tmp_path.iterdir() if path.is_dir())
    source = tmp_path / package / "__init__.py"
    source.write_text(APP.replace("@authenticate\n", "").replace(", authenticate,", ","), "utf-8")
    given = {"app.package": package, "ai.mcp.enabled": True, "ai.mcp.oauth.enabled": True}
    settings = load_settings(tmp_path, profile="dev", environ={}, given=given)
    with pytest.raises(ConfigError, match="nobody can sign in"):
        create_app(settings)
