"""`install`: agents in a FastAPI app that is there already, behind a real server; the app stays as it was."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import JSONResponse, Response

from amoxi_py import Principal, install
from amoxi_py.errors import DeclarationError

SOURCE = '''
from amoxi_py import Runs, agent, configure, singleton, tool

story = []


@singleton
class Desk:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    async def __aenter__(self):
        story.append("agents start")
        return self

    async def __aexit__(self, *error):
        story.append("agents stop")

    @tool(read_only=True)
    def lookup_thing(self, thing_id: str) -> str:
        """Look up a thing.

        Args:
            thing_id: The number, e.g. T-1
        """
        return f"found {thing_id}"


@agent(tools=[Desk])
class Helper:
    """You look up things."""


@configure
def add_page(app):
    @app.get("/page")
    def page(request: Request):
        return {"script": request.url_for("chat/page.js").path}


from fastapi import Request
'''


@contextmanager
def serving(app: FastAPI, **options: Any) -> Iterator[httpx2.Client]:
    """Run a real server in a thread, and give a client of it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="on", **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until(lambda: server.started or not thread.is_alive())
        assert server.started, "the app did not start"
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with httpx2.Client(base_url=url, timeout=20, verify=False) as client:
            yield client
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def host_app(story: list[str] | None = None) -> FastAPI:
    """An app that has all of its own: a lifespan with a state, middleware, an exception handler, a catch-all route."""
    heard = [] if story is None else story

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        heard.append("host starts")
        yield {"pool": "open"}
        heard.append("host stops")

    app = FastAPI(title="shop", lifespan=lifespan)

    @app.middleware("http")
    async def mark(request: Request, call_next: Any) -> Response:
        answer: Response = await call_next(request)
        answer.headers["x-host"] = "seen"
        return answer

    @app.exception_handler(ValueError)
    async def teapot(request: Request, error: ValueError) -> JSONResponse:
        return JSONResponse({"own": "handler"}, status_code=418)

    @app.get("/pool")
    async def pool(request: Request) -> dict[str, str]:
        return {"pool": request.state.pool}

    @app.get("/broken")
    async def broken() -> None:
        raise ValueError

    @app.get("/{path:path}")
    async def everything_else(path: str) -> dict[str, str]:
        return {"host": path}

    return app


def test_the_agents_live_under_the_prefix_and_the_app_stays_as_it_was(make_app: Any) -> None:
    settings = make_app(SOURCE)
    app = host_app()
    described = app.openapi()["paths"].keys() | {"/page"}
    app.openapi_schema = None
    install(app, "/ai", settings=settings)

    @app.post("/orders")
    async def order(request: Request) -> dict[str, str]:
        run = await request.app.state.amoxi.runs.submit("helper", "thing T-1", principal=Principal(id="7"))
        return {"id": run.id, "owner": run.principal.id}

    with serving(app) as client:
        run = client.post("/ai/agents/helper/runs?wait=15", json={"message": "Look up thing T-1"})
        assert (run.status_code, run.json()["status"]) == (200, "completed")
        assert run.json()["output"].endswith("found T-1")
        assert client.get(f"/ai/runs/{run.json()['id']}/events").text.count("event: run.completed") == 1
        assert client.get("/ai/health/ready").json() == {"status": "ready"}

        cookie = run.headers["set-cookie"]
        assert "Path=/ai;" in cookie
        page = client.get("/ai/chat/helper")
        assert page.headers["content-type"].startswith("text/html")
        assert client.get("/ai/chat/page.js").headers["content-type"].startswith("text/javascript")

        for path in ("/ai", "/ai/nothing", "/ai/agents/nobody/runs"):
            problem = client.get(path)
            assert (problem.status_code, problem.headers["content-type"]) == (404, "application/problem+json"), path
        assert {answer.headers.get("x-host") for answer in (run, page, problem)} == {"seen"}

        assert client.get("/airport").json() == {"host": "airport"}
        assert client.get("/pool").json() == {"pool": "open"}
        assert (client.get("/broken").status_code, client.get("/broken").json()) == (418, {"own": "handler"})
        assert client.get("/openapi.json").json()["paths"].keys() == described | {"/orders"}
        ordered = client.post("/orders").json()
        assert ordered["owner"] == "user:7"
        assert client.get(f"/ai/runs/{ordered['id']}").status_code == 404, "it is not the visitor's"


def test_the_app_opens_before_the_agents_and_closes_after_them_and_finds_their_routes_by_name(make_app: Any) -> None:
    settings = make_app(SOURCE)
    story: list[str] = []
    app = FastAPI(lifespan=host_app(story).router.lifespan_context)
    install(app, "/inner/ai", settings=settings)
    sys.modules[settings.app.package].story = story  # type: ignore[attr-defined]  # a name of the package above
    with serving(app, root_path="/proxied") as client:
        assert story == ["host starts", "agents start"]
        assert client.get("/page").json() == {"script": "/proxied/inner/ai/chat/page.js"}
        answer = client.post("/inner/ai/agents/helper/runs", json={"message": "thing T-1"})
        assert answer.headers["location"].startswith("/proxied/inner/ai/agents/helper/runs/")
        assert "Path=/proxied/inner/ai;" in answer.headers["set-cookie"]
    assert story == ["host starts", "agents start", "agents stop", "host stops"]


def test_the_apps_own_routes_and_lifespan_are_given_things_by_type(make_app: Any) -> None:
    settings = make_app(
        "from pydantic import BaseModel\nfrom amoxi_py import settings, singleton\n\n"
        '@settings("till")\nclass Till(BaseModel):\n    coin: str = "crown"\n\n'
        "@singleton\nclass Payments:\n    def __init__(self, till: Till) -> None:\n        self.till = till\n"
    )
    heard: list[Any] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        heard.append(app.state.amoxi.get(package.Till).coin)
        with pytest.raises(LookupError, match="'Payments' is made when the process starts"):
            app.state.amoxi.get(package.Payments)
        yield

    app = FastAPI(lifespan=lifespan)
    install(app, settings=settings)
    package: Any = sys.modules[settings.app.package]

    @app.get("/coin")
    async def coin(request: Request) -> list[str]:
        return [*heard, request.app.state.amoxi.get(package.Payments).till.coin]

    with serving(app) as client:
        assert client.get("/coin").json() == ["crown", "crown"]


def test_a_second_install_or_a_late_one_or_a_taken_prefix_is_refused_by_name(make_app: Any) -> None:
    settings = make_app(SOURCE)
    app = FastAPI(title="shop")
    install(app, settings=settings)
    with pytest.raises(DeclarationError, match="called twice for the app 'shop'"):
        install(app, "/other", settings=settings)

    started = FastAPI(title="shop")
    with serving(started), pytest.raises(DeclarationError, match="after the app 'shop' had started"):
        install(started, settings=settings)

    taken = FastAPI(title="shop")
    taken.get("/ai/mine")(lambda: None)
    with pytest.raises(DeclarationError, match="has '/ai/mine' already; give another prefix"):
        install(taken, settings=settings)

    inner, outer = APIRouter(), APIRouter(prefix="/ai")
    inner.get("/mine")(lambda: None)
    outer.include_router(inner)
    included = FastAPI(title="shop")
    included.include_router(outer)
    with pytest.raises(DeclarationError, match="has '/ai/mine' already; give another prefix"):
        install(included, settings=settings)

    for prefix in ("", "/", "ai", "/ai/", "/a b"):
        with pytest.raises(DeclarationError, match="it must be like '/ai'"):
            install(FastAPI(), prefix, settings=settings)
    with pytest.raises(DeclarationError, match="which is no FastAPI app"):
        install(object(), settings=settings)  # type: ignore[arg-type]  # what is refused


def test_an_install_while_its_package_is_imported_is_refused(make_app: Any) -> None:
    settings = make_app("from fastapi import FastAPI\nfrom amoxi_py import install\ninstall(FastAPI())\n")
    with pytest.raises(DeclarationError, match=r"install\(\) was called while the modules of"):
        install(FastAPI(), settings=settings)
