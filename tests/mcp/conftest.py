"""Apps with an open MCP door in this process, and clients of them: the SDK's own, and bare HTTP."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from amoxi_py.app.web import Serving, create_app
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.domain.principal import Principal
from app_wire import Exchange

_NUMBERS = itertools.count(1)
DESKTOP, LAPTOP = "desktop-token-0123456789", "laptop-token-0123456789"
PAUSE_S = 0.005


class _Stream(Exchange, httpx2.AsyncByteStream):
    pass


class Wire(httpx2.AsyncBaseTransport):
    """Carries requests to an app in this process as a connection does."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        stream = _Stream(self._app, request, await request.aread())
        status, headers = await stream.start()
        return httpx2.Response(status, headers=headers, stream=stream)


class Running:
    """An app whose lifespan has begun."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.serving: Serving = app.state.amoxi
        self.wire = Wire(app)

    @property
    def engine(self) -> Any:
        return self.serving.runtime.engine

    @property
    def module(self) -> Any:
        """The app's own package, as it was imported."""
        return sys.modules[self.serving.settings.app.package]

    def http(self, token: str | None = DESKTOP) -> httpx2.AsyncClient:
        """A bare client."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(transport=self.wire, base_url="http://127.0.0.1:8080", headers=headers, timeout=30)

    @asynccontextmanager
    async def client(self, mode: str = "legacy", token: str = DESKTOP, **options: Any) -> AsyncIterator[Client]:
        """The SDK's client; `legacy` for the versions with a handshake, or a version's date."""
        async with self.http(token) as http:
            transport = streamable_http_client("http://127.0.0.1:8080/mcp", http_client=http)
            async with Client(transport, mode=mode, **options) as client:
                yield client

    async def rpc(self, http: httpx2.AsyncClient, method: str, params: Any = None, **headers: str) -> Any:
        """Send one message of the older versions, and return the answer's body."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        answer = await http.post("/mcp", json=message, headers={"accept": "application/json", **headers})
        return answer.json()


Serve = Callable[..., AbstractAsyncContextManager[Running]]


@asynccontextmanager
async def _running(app: Any, **limits: Any) -> AsyncIterator[Running]:
    door = app.state.amoxi.mcp
    door.settings = replace(door.settings, **limits)
    async with app.router.lifespan_context(app):
        yield Running(app)


@pytest.fixture
def mcp_settings(tmp_path: Path) -> Iterator[Callable[..., Settings]]:
    """Write an app on the spot and return its settings, with MCP on: `mcp_settings(source, {"ai.model": ...})`."""
    paths = list(sys.path)
    made: list[str] = []

    def make(
        source: str,
        given: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        store: str = "store",
    ) -> Settings:
        name = f"app_of_mcp_test_{next(_NUMBERS)}"
        made.append(name)
        folder = tmp_path / name
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source, "utf-8")
        own = {
            "app.package": name,
            "app.name": "shop",
            "ai.mcp.enabled": True,
            "ai.store.path": str(tmp_path / store),
            "server.stop-grace-s": 1.0,
        }
        callers = {"AI_MCP_CALLERS_DESKTOP": DESKTOP, "AI_MCP_CALLERS_LAPTOP": LAPTOP}
        return load_settings(
            folder, profile="test", environ=callers if environ is None else environ, given={**own, **(given or {})}
        )

    yield make
    sys.path[:] = paths
    for name in list(sys.modules):
        if name.partition(".")[0] in made:
            del sys.modules[name]


@pytest.fixture
def mcp_app(mcp_settings: Callable[..., Settings]) -> Serve:
    """Run an app made on the spot: `async with mcp_app(source, settings) as app`; `limits` are of `McpSettings`."""

    def start(
        source: str,
        given: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        store: str = "store",
        **limits: Any,
    ) -> Any:
        return _running(create_app(mcp_settings(source, given, environ=environ, store=store)), **limits)

    return start


@pytest.fixture
def running() -> Callable[..., AbstractAsyncContextManager[Running]]:
    """Run an app that is there."""
    return _running


@pytest.fixture
def until() -> Callable[..., Any]:
    """Wait until something is so: `await until(lambda: ...)`; what it is asked may be async."""

    async def wait(condition: Callable[[], Any]) -> Any:
        async with asyncio.timeout(20):
            while True:
                found = condition()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(PAUSE_S)

    return wait


PEOPLE = {
    "anns-token-0123456789": Principal(id="user:ann", name="Ann", channel="mcp"),
    "bobs-token-0123456789": Principal(id="user:bob", name="Bob", channel="mcp", roles=frozenset({"boss"})),
}


class SignIn:
    """Lets two people in by their tokens, as OAuth does."""

    async def verify(self, token: str, *scope: Any) -> Principal | None:
        return PEOPLE.get(token)

    def challenge(self, *told: Any) -> str:
        return "Bearer"

    def routes(self) -> list[Any]:
        return []

    own_routes = well_known_routes = routes


@pytest.fixture
def people() -> Mapping[str, Principal]:
    """Who comes in where `signed_in` runs an app, by their tokens."""
    return PEOPLE


@pytest.fixture
def signed_in(mcp_settings: Callable[..., Settings]) -> Serve:
    """Run an app made on the spot into which people come, with approvals that wait: `async with signed_in(source)`."""

    @asynccontextmanager
    async def start(source: str, **limits: Any) -> AsyncIterator[Running]:
        app = create_app(mcp_settings(source, {"ai.mcp.approvals": "wait"}))
        door = app.state.amoxi.mcp
        door.oauth = SignIn()
        app.router.routes[:0] = door.routes()
        async with _running(app, **limits) as served:
            yield served

    return start
