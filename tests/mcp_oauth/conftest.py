"""A shop whose `/mcp` people connect to: OAuth on a real store, without a network, and words for who uses it."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.principal import Principal, principal_to_json
from amoxi_py.errors import NotAuthenticated, StoreUnavailable
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.surfaces.mcp.oauth.door import OAuth
from amoxi_py.surfaces.mcp.oauth.fetching import Fetched, FetchFailed
from amoxi_py.surfaces.mcp.oauth.settings import OAuthSettings

URL = "https://shop.example.com"
RESOURCE = f"{URL}/mcp"
ISSUER = f"{URL}/oauth"
TOKEN = "desktop-token-0123456789"
VERIFIER = "a-verifier-of-a-program-that-is-long-enough-0123456789"
CLAUDE = "https://claude.ai/api/mcp/auth_callback"
PEOPLE = {
    "ann": Principal(id="42", name="Ann", roles=frozenset({"finance"}), tenant="t1", claims={"plan": "gold"}),
    "bob": Principal(id="43", name="Bob"),
}


class MovableClock:
    def __init__(self) -> None:
        self.time = 1_790_000_000.0

    def now(self) -> float:
        return self.time

    def running(self) -> float:
        return self.time

    def move(self, seconds: float) -> None:
        self.time += seconds


def challenge_of(verifier: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


async def sign_in(request: Request) -> Principal | None:
    session = request.cookies.get("session")
    if session == "expired":
        raise NotAuthenticated
    return PEOPLE.get(session or "")


@dataclass
class Browser:
    """A person's browser: it keeps cookies, and never follows a redirect by itself."""

    client: httpx2.AsyncClient
    page: str = ""

    async def open(self, url: str, **parameters: str) -> httpx2.Response:
        return self._seen(await self.client.get(url, params=parameters or None))

    async def send(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> httpx2.Response:
        form = {"ticket": self.ticket, **fields}
        return self._seen(await self.client.post(path, data=form, headers={"origin": URL, **(headers or {})}))

    async def allow(self) -> dict[str, str]:
        """Press the button, and return what the program is told."""
        return told_in(await self.send("/oauth/consent", decision="allow"))

    @property
    def ticket(self) -> str:
        found = re.search(r'name="ticket" value="([^"]+)"', self.page)
        return "" if found is None else found[1]

    @property
    def text(self) -> str:
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", self.page)).split())

    def _seen(self, response: httpx2.Response) -> httpx2.Response:
        if "text/html" in response.headers.get("content-type", ""):
            self.page = response.text
        return response


def told_in(response: httpx2.Response) -> dict[str, str]:
    """What a redirect tells the program."""
    assert response.status_code == 302, response.text
    return {name: values[0] for name, values in parse_qs(urlsplit(response.headers["location"]).query).items()}


@dataclass
class Shop:
    """The app's servers, the documents of clients on the internet, and who uses them."""

    folder: Path
    exits: AsyncExitStack
    settings: OAuthSettings
    clock: MovableClock = field(default_factory=MovableClock)
    documents: dict[str, Any] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    apps: list[Starlette] = field(default_factory=list)
    oauth: list[OAuth] = field(default_factory=list)

    async def start(self, **changes: Any) -> None:
        """Start one more server on the same store."""
        store = SqliteStore(self.folder, clock=self.clock, synchronous="OFF")
        await store.open(lambda events: None)
        self.exits.push_async_callback(store.close)
        oauth = OAuth(replace(self.settings, **changes), lambda: store, fetch_document=self.fetch, wrong_pause=0.0)

        async def mcp(request: Request) -> Response:
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            try:
                principal = await oauth.verify(token, request.scope) if token else None
            except StoreUnavailable:
                return Response(status_code=503)
            if principal is None:
                challenge = oauth.challenge("invalid_token" if token else None, request.scope)
                return Response(status_code=401, headers={"www-authenticate": challenge})
            return JSONResponse({"id": principal.id, **principal_to_json(principal)})

        self.oauth.append(oauth)
        self.apps.append(Starlette(routes=[Route("/mcp", mcp, methods=["POST"]), *oauth.routes()]))

    async def fetch(self, url: str) -> Fetched:
        self.fetched.append(url)
        found = self.documents.get(url)
        if found is None:
            raise FetchFailed("it was answered with the status 404")
        return found if isinstance(found, Fetched) else Fetched(encode_json(found).encode())

    def client(self, server: int = 0, address: str = "203.0.113.7", url: str = URL) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(self.apps[server], client=(address, 4711))
        return httpx2.AsyncClient(transport=transport, base_url=url)

    def browser(self, session: str | None = None, server: int = 0) -> Browser:
        client = self.client(server, "198.51.100.4")
        if session is not None:
            client.cookies.set("session", session, domain="shop.example.com")
        return Browser(client)

    async def register(self, **more: Any) -> dict[str, Any]:
        body = {"client_name": "Claude", "redirect_uris": [CLAUDE], "token_endpoint_auth_method": "none", **more}
        answer = await self.client().post("/oauth/register", json=body)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def asked(self, client_id: str, **changes: str | None) -> dict[str, str]:
        """What a program puts into the address that it opens in the browser."""
        parameters: dict[str, str | None] = {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": CLAUDE,
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "state": "the-state",
            "scope": "mcp",
            "resource": RESOURCE,
            **changes,
        }
        return {name: value for name, value in parameters.items() if value is not None}

    async def code(self, client_id: str, session: str = "ann", **changes: str | None) -> str:
        """Let a signed-in person allow it; return the code."""
        browser = self.browser(session)
        await browser.open("/oauth/authorize", **self.asked(client_id, **changes))
        return (await browser.allow())["code"]

    async def token(self, server: int = 0, headers: dict[str, str] | None = None, **fields: str) -> httpx2.Response:
        return await self.client(server).post("/oauth/token", data=fields, headers=headers)

    async def exchange(self, client_id: str, code: str, server: int = 0, **changes: str) -> httpx2.Response:
        fields = {
            "grant_type": "authorization_code",
            "client_id": client_id,
            "code": code,
            "redirect_uri": CLAUDE,
            "code_verifier": VERIFIER,
            "resource": RESOURCE,
        }
        return await self.token(server, **{**fields, **changes})

    async def refresh(self, client_id: str, token: str, server: int = 0, **more: str) -> httpx2.Response:
        return await self.token(server, grant_type="refresh_token", client_id=client_id, refresh_token=token, **more)

    async def connect(self, session: str = "ann", **more: Any) -> tuple[str, dict[str, Any]]:
        """A program that a person has let in: its id and its tokens."""
        client_id = (await self.register(**more))["client_id"]
        answer = await self.exchange(client_id, await self.code(client_id, session))
        assert answer.status_code == 200, answer.text
        return client_id, answer.json()

    async def records(self, kind: str) -> int:
        """How many records of a kind can be found."""
        with sqlite3.connect(self.folder / "amoxi.db") as db:
            sql = "SELECT count(*) FROM record WHERE kind = ? AND taken_by IS NULL"
            return int(db.execute(sql, (kind,)).fetchone()[0])

    async def call(self, token: str | None, server: int = 0) -> httpx2.Response:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return await self.client(server).post("/mcp", headers=headers)


MakeShop = Callable[..., Any]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with make_shop(tmp_path) as made:
        await made.start()
        yield made


@asynccontextmanager
async def make_shop(folder: Path, **changes: Any) -> AsyncIterator[Shop]:
    settings = OAuthSettings(
        app_name="Shop & Co",
        public_url=URL,
        sign_in=sign_in,
        sign_in_url="/login",
        callers={"desktop": (hashlib.sha256(TOKEN.encode()).digest(),)},
        offers=lambda principal: ["lookup order: find <it>", f"ask for {principal.name}"],
    )
    async with AsyncExitStack() as exits:
        yield Shop(folder=folder, exits=exits, settings=replace(settings, **changes))
