"""Who asks, for the app's own routes and its sign-in: the same for all, under `install` as with `create_app`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from amoxi_py import create_app, install
from amoxi_py.config.callers import read_callers
from amoxi_py.errors import Forbidden, NotAuthenticated, StoreUnavailable

SOURCE = '''
from fastapi import FastAPI, Request

from amoxi_py import NotAuthenticated, Principal, agent, authenticate, configure
from amoxi_py.testing import ScriptedModel


@authenticate
async def sign_in(request: Request) -> Principal | None:
    user = request.headers.get("x-user")
    if user == "expired":
        raise NotAuthenticated("sign in anew")
    if user is None:
        return None
    key = request.app.state.keys[user]
    assert request.app.state.amoxi.settings.app_name == "shop"
    return Principal(id=user, name=f"{key} {request.state.pool} {request.app.title}", tenant="acme")


@configure
def routes(app: FastAPI) -> None:
    app.state.keys = {"42": "key", "user:42": "other"}

    @app.post("/own")
    async def own(request: Request) -> dict[str, str | None]:
        amoxi = request.app.state.amoxi
        run = await amoxi.runs.submit("helper", "hello", principal=await amoxi.principal(request))
        return {"id": run.id, "owner": run.principal.id, "name": run.principal.name, "tenant": run.principal.tenant}


@agent(model=ScriptedModel({"hello": ["Hello."]}, record=False))
class Helper:
    """You greet."""
'''


def created(settings: Any) -> tuple[FastAPI, str]:
    app = create_app(settings)
    app.title, serve = "host", app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        async with serve(app):
            yield {"pool": "pool"}

    app.router.lifespan_context = lifespan
    return app, ""


def installed(settings: Any) -> tuple[FastAPI, str]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        yield {"pool": "pool"}

    app = FastAPI(title="host", lifespan=lifespan)
    install(app, "/ai", settings=settings)
    return app, "/ai"


@pytest.mark.parametrize("make", [created, installed])
def test_a_route_of_the_app_is_told_the_principal_that_the_agents_routes_see(
    make_app: Callable[..., Any], make: Callable[[Any], tuple[FastAPI, str]]
) -> None:
    token = "token-of-a-program-long-enough"
    callers, _ = read_callers({"AI_API_CALLERS_ACME": token})
    app, prefix = make(replace(make_app(SOURCE, {"ai.http.anonymous": False}), callers=callers))
    with TestClient(app, base_url="http://localhost") as client:
        ann, posing, program = {"x-user": "42"}, {"x-user": "user:42"}, {"authorization": f"Bearer {token}"}
        run = client.post("/own", headers=ann).json()
        told = {"owner": "user:42", "name": "key pool host", "tenant": "acme"}
        assert run == {"id": run["id"], **told}
        assert client.get(f"{prefix}/runs/{run['id']}", headers=ann).status_code == 200
        assert client.get(f"{prefix}/runs/{run['id']}", headers=posing).status_code == 404
        assert client.get(f"{prefix}/runs/{run['id']}", headers=program).status_code == 404
        assert client.post("/own", headers=posing).json()["owner"] == "user:user:42"
        assert client.post("/own", headers=program).json()["owner"] == "api:acme"

        for headers, error in (
            ({}, NotAuthenticated),
            ({"x-user": "expired"}, NotAuthenticated),
            ({"authorization": "Bearer of nobody"}, NotAuthenticated),
            ({**ann, "origin": "https://evil.example"}, Forbidden),
        ):
            if prefix:  # the app's own handlers are its own
                with pytest.raises(error):
                    client.post("/own", headers=headers)
            else:
                assert client.post("/own", headers=headers).status_code == (401 if error is NotAuthenticated else 403)


def test_before_the_start_nobody_is_known(make_app: Callable[..., Any]) -> None:
    app = create_app(make_app(SOURCE))

    @app.get("/who")
    async def who(request: Request) -> str:
        with pytest.raises(StoreUnavailable):
            await app.state.amoxi.principal(request)
        return "nobody"

    assert TestClient(app).get("/who").json() == "nobody"
