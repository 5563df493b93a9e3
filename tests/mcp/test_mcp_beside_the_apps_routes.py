"""An app that is there already keeps its own `/token`, `/register` and `/authorize`, however it has made them."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from amoxi_py import Principal, install
from amoxi_py.app.oauth import grants_of
from amoxi_py.surfaces.mcp.oauth.clients import Client

pytestmark = pytest.mark.anyio

SOURCE = '''
from amoxi_py import agent


@agent
class Looker:
    """You look."""
'''
GUESSED = (("POST", "/token"), ("POST", "/register"), ("GET", "/authorize?response_type=code"))
KNOWN = ("/.well-known/oauth-protected-resource/ai/mcp", "/.well-known/oauth-authorization-server")


def own(app: Any) -> None:
    @app.post("/token")
    @app.post("/register")
    @app.get("/authorize")
    def answer() -> str:
        return "own"


def included(app: FastAPI) -> None:
    router = APIRouter()
    own(router)
    app.include_router(router)


def included_twice(app: FastAPI) -> None:
    inner, outer = APIRouter(), APIRouter()
    own(inner)
    outer.include_router(inner)

    @outer.api_route("/{path:path}", methods=["GET", "POST"])
    def page(path: str) -> str:
        return "page"

    app.include_router(outer)


def mounted(app: FastAPI) -> None:
    sub = FastAPI()
    own(sub)
    app.mount("/", sub)


def mounted_routes(app: FastAPI) -> None:
    def answer(request: Any) -> PlainTextResponse:
        return PlainTextResponse("own")

    methods = {"/token": "POST", "/register": "POST", "/authorize": "GET"}
    routes = [Route(path, answer, methods=[method]) for path, method in methods.items()]
    app.router.routes.append(Mount("", app=Starlette(routes=routes)))


def with_a_part_that_varies(app: FastAPI) -> None:
    @app.api_route("/{name}", methods=["GET", "POST"])
    def answer(name: str) -> str:
        return "own"


def before_a_page_for_all(app: FastAPI) -> None:
    own(app)
    page_for_all(app)


def page_for_all(app: FastAPI) -> None:
    @app.get("/{path:path}")
    def page(path: str) -> str:
        return "page"


def included_page_for_all(app: FastAPI) -> None:
    router = APIRouter()
    page_for_all(router)  # type: ignore[arg-type]
    app.include_router(router)


def files_for_all(app: FastAPI) -> None:
    app.mount("/", StaticFiles(directory="."))


def all_that_is_sent(app: FastAPI) -> None:
    """An older app that stands behind this one takes what is sent, the login too."""

    @app.post("/{path:path}")
    def answer(path: str) -> str:
        return "own"

    @app.get("/authorize")
    def authorize() -> str:
        return "own"


WITH_OWN = (
    all_that_is_sent,
    own,
    included,
    included_twice,
    mounted,
    mounted_routes,
    with_a_part_that_varies,
    before_a_page_for_all,
)


def ask(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8080")


@pytest.fixture
def app_with(mcp_settings: Any) -> Callable[..., FastAPI]:
    def make(routes: Callable[[FastAPI], None], oauth: bool) -> FastAPI:
        app = FastAPI(openapi_url=None)
        routes(app)
        settings = mcp_settings(SOURCE, {"ai.mcp.oauth.enabled": oauth, "server.public-url": "http://127.0.0.1:8080"})
        install(app, "/ai", settings=settings)
        return app

    return make


@pytest.mark.parametrize("oauth", [False, True])
@pytest.mark.parametrize("routes", WITH_OWN, ids=lambda one: one.__name__)
async def test_an_app_keeps_its_own_login_however_it_is_made(
    app_with: Any, routes: Callable[[FastAPI], None], oauth: bool
) -> None:
    async with ask(app_with(routes, oauth)) as http:
        for method, path in GUESSED:
            answer = await http.request(method, path)
            assert (answer.status_code, answer.text.strip('"')) == (200, "own"), path
        for path in ("/token", "/register"):
            preflight = {"origin": "https://evil.example", "access-control-request-method": "POST"}
            answer = await http.options(path, headers=preflight)
            assert "access-control-allow-origin" not in answer.headers, "no page of another origin is let in"
        for path in KNOWN:
            assert (await http.get(path)).status_code == (200 if oauth else 404), path


@pytest.mark.parametrize("oauth", [False, True])
@pytest.mark.parametrize("routes", [page_for_all, included_page_for_all, files_for_all], ids=lambda one: one.__name__)
async def test_what_an_app_shows_for_all_unknown_addresses_is_no_answer_to_a_program(
    app_with: Any, routes: Callable[[FastAPI], None], oauth: bool
) -> None:
    async with ask(app_with(routes, oauth)) as http:
        for method, path in GUESSED:
            if method == "POST" and routes is files_for_all:
                continue
            answer = await http.request(method, path)
            page = oauth and path.startswith("/authorize")  # which needs the store, that is not open here
            assert answer.status_code == (503 if page else 400 if oauth else 404), path
            assert answer.headers["content-type"].startswith("text/html" if page else "application/json")
        for path in KNOWN:
            answer = await http.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200 if oauth else 404, "application/json")


async def test_a_token_as_long_as_issuers_make_them_comes_to_who_checks_it(app_with: Any, monkeypatch: Any) -> None:
    from amoxi_py.surfaces.mcp.oauth.door import OAuth

    seen: list[int] = []

    async def verify(self: OAuth, token: str, scope: Any = None) -> None:
        seen.append(len(token))

    monkeypatch.setattr(OAuth, "verify", verify)
    app = app_with(own, True)
    async with app.router.lifespan_context(app), ask(app) as http:
        for length in (7500, 16 * 1024, 16 * 1024 + 1):
            answer = await http.post("/ai/mcp", headers={"authorization": f"Bearer {'x' * length}"}, json={})
            assert answer.status_code == 401
    assert seen == [7500, 16 * 1024]


async def test_a_route_of_the_app_ends_the_connections_of_somebody_who_leaves(app_with: Any) -> None:
    app = app_with(own, True)
    program = Client(id="c", name="Kit", redirect_uris=())
    verifier = "v" * 43
    challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    async with app.router.lifespan_context(app), ask(app) as http:
        serving = app.state.amoxi
        grants = grants_of(lambda: serving.runtime.store)
        told = {"redirect_uri": "http://localhost/cb", "challenge": challenge, "target": "a program"}
        resource = "http://127.0.0.1:8080/ai/mcp"
        code = await grants.allow(program, Principal(id="user:42", channel="mcp"), resource=resource, **told)
        given = await grants.exchange(program, {"code": code, "code_verifier": verifier}, resource)
        headers = {"authorization": f"Bearer {given['access_token']}"}
        assert (await http.get("/ai/mcp", headers=headers)).status_code == 405
        assert await serving.end_connections("42", tenant="other") == 0
        assert await serving.end_connections("42") == 1
        assert (await http.get("/ai/mcp", headers=headers)).status_code == 401
