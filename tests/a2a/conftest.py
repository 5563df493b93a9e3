"""Apps with an open A2A door in this process, and their callers, over bare HTTP."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from amoxi_py.app.web import Serving, create_app
from amoxi_py.config.load import load_settings
from app_wire import Exchange

_NUMBERS = itertools.count(1)
PARTNER, OTHER = "partner-token-0123456789", "other-token-0123456789"
PAUSE_S = 0.005


class _Stream(Exchange, httpx.AsyncByteStream):
    pass


class Wire(httpx.AsyncBaseTransport):
    """Carries requests to an app in this process as a connection does."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        stream = _Stream(self._app, request, await request.aread())
        status, headers = await stream.start()
        return httpx.Response(status, headers=headers, stream=stream)


class Caller:
    """A caller that speaks one version of the protocol in JSON-RPC."""

    def __init__(self, http: httpx.AsyncClient, version: str) -> None:
        self.http = http
        self.version = version
        self._ids = itertools.count(1)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, and return the whole answer."""
        answer = await self.http.post("/a2a", json=self._request(method, params), headers=self._headers)
        found: dict[str, Any] = answer.json()
        return found

    async def result(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the result of a request that works."""
        answer = await self.ask(method, params)
        assert "error" not in answer, answer
        return answer["result"]

    async def error(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the error of a request that does not work."""
        answer = await self.ask(method, params)
        assert "error" in answer, answer
        return answer["error"]

    async def events(self, method: str, params: Mapping[str, Any] | None = None) -> AsyncIterator[dict[str, Any]]:
        """Give the results, or errors, of a request that is answered with a stream."""
        request = self._request(method, params)
        async with self.http.stream("POST", "/a2a", json=request, headers=self._headers) as answer:
            if not answer.headers["content-type"].startswith("text/event-stream"):
                await answer.aread()
                yield answer.json()
                return
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    told = json.loads(line.removeprefix("data:"))
                    yield told.get("result", told)

    async def send(self, text: str | None = None, *, id: str | None = None, **more: Any) -> Any:
        """Send a message in 1.0 and return its task; `more` are fields of the message, `params` those beside it."""
        answer = await self.ask("SendMessage", self.message(text, id=id, **more))
        return answer["result"]["task"] if "result" in answer else answer["error"]

    def message(self, text: str | None = None, *, id: str | None = None, **more: Any) -> dict[str, Any]:
        """The params of a message in 1.0."""
        params = more.pop("params", {})
        parts = more.pop("parts", [{"text": text}])
        message = {"role": "ROLE_USER", "messageId": id or f"m{next(self._ids)}", "parts": parts, **more}
        return {"message": message, **params}

    @property
    def _headers(self) -> dict[str, str]:
        return {"A2A-Version": self.version}

    def _request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


class Running:
    """An app whose lifespan has begun."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.serving: Serving = app.state.amoxi

    @property
    def engine(self) -> Any:
        return self.serving.runtime.engine

    def http(self, token: str | None = PARTNER) -> httpx.AsyncClient:
        """A bare client."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.AsyncClient(
            transport=Wire(self.app), base_url="http://127.0.0.1:8080", headers=headers, timeout=60
        )

    @asynccontextmanager
    async def caller(self, token: str = PARTNER, version: str = "1.0") -> AsyncIterator[Caller]:
        """A caller by its token."""
        async with self.http(token) as http:
            yield Caller(http, version)


Serve = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def a2a_app(tmp_path: Path) -> Iterator[Serve]:
    """Run an app made on the spot, with A2A on: `async with a2a_app(source, settings) as app`."""
    paths = list(sys.path)
    made: list[str] = []

    @asynccontextmanager
    async def start(
        source: str,
        given: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        store: str = "store",
    ) -> Any:
        name = f"app_of_a2a_test_{next(_NUMBERS)}"
        made.append(name)
        folder = tmp_path / name
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source, "utf-8")
        own = {
            "app.package": name,
            "app.name": "shop",
            "ai.a2a.enabled": True,
            "ai.store.path": str(tmp_path / store),
            "server.stop-grace-s": 1.0,
        }
        callers = {"AI_A2A_CALLERS_PARTNER": PARTNER, "AI_A2A_CALLERS_OTHER": OTHER, **(environ or {})}
        settings = load_settings(folder, profile="test", environ=callers, given={**own, **(given or {})})
        app = create_app(settings)
        async with app.router.lifespan_context(app):
            yield Running(app)

    yield start
    sys.path[:] = paths
    for name in list(sys.modules):
        if name.partition(".")[0] in made:
            del sys.modules[name]


@pytest.fixture
def other_token() -> str:
    """The token of the caller `other`; a caller is `partner` when nothing is said."""
    return OTHER


@pytest.fixture
def until() -> Callable[..., Any]:
    """Wait until something is so: `await until(lambda: ...)`; what it is asked may be async."""

    async def wait(condition: Callable[[], Any]) -> Any:
        async with asyncio.timeout(30):
            while True:
                found = condition()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(PAUSE_S)

    return wait
