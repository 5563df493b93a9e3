"""An app that is started again in one process, as by two tests with one app object: the second life is a whole one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from amoxi_py import create_app, install
from amoxi_py.config.settings import Settings
from amoxi_py.errors import AmoxiError

SOURCE = '''
import asyncio

from amoxi_py import Principal, Runs, agent, authenticate, on, singleton, tool
from amoxi_py.testing import ScriptedModel, call

MODEL = ScriptedModel({"wait": [call("wait"), "Waited."], "work": [call("work"), "Worked."]}, record=False)
told = []
made = []


@singleton
class Desk:
    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.closed = False
        self.waits = asyncio.Event()
        made.append(self)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        self.closed = True

    @tool(idempotent=True)
    async def work(self) -> bool:
        """Work."""
        return self.closed

    @tool(idempotent=True)
    async def wait(self) -> str:
        """Wait."""
        self.waits.set()
        await asyncio.Event().wait()


@authenticate
def sign_in(request, desk: Desk) -> Principal | None:
    assert not desk.closed
    user = request.headers.get("x-user")
    return Principal(id=user) if user else None


@on("run.completed")
async def hear(event, desk: Desk) -> None:
    assert not desk.closed
    told.append(event.run_id)


@agent(tools=[Desk], model=MODEL)
class Helper:
    """You work."""
'''


def created(settings: Settings) -> tuple[FastAPI, str]:
    return create_app(settings), ""


def installed(settings: Settings) -> tuple[FastAPI, str]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with pytest.raises(LookupError):  # the last life's is gone, and this one's is not there yet
            app.state.amoxi.get(sys.modules[settings.app.package].Desk)
        yield

    app = FastAPI(lifespan=lifespan)
    install(app, "/ai", settings=settings)
    return app, "/ai"


@contextmanager
def life(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://localhost", headers={"x-user": "ana"}) as client:
        yield client


@pytest.mark.parametrize("make", [created, installed])
def test_an_app_that_is_started_again_is_whole_and_goes_on_with_the_runs_it_had(make_app: Any, make: Any) -> None:
    settings = make_app(SOURCE, {"server.stop-grace-s": 0.05, "ai.runs.lease-ms": 500})
    app, prefix = make(settings)
    package: Any = sys.modules[settings.app.package]
    path = f"{prefix}/agents/helper/runs"
    runs = app.state.amoxi.runs
    done = []
    with life(app) as client:
        done.append(client.post(f"{path}?wait=15", json={"message": "work"}).json())
        left = client.post(path, json={"message": "wait"}).json()
        stream = f"{prefix}/runs/{left['id']}/events"
        assert client.get(f"{prefix}/health/ready").status_code == 200
        client.portal.call(package.made[0].waits.wait)
    assert client.get(f"{prefix}/health/ready").status_code == 503

    with life(app) as client:
        assert client.get(f"{prefix}/health/ready").json() == {"status": "ready"}
        done.append(client.post(f"{path}?wait=15", json={"message": "work"}).json())
        client.portal.call(package.made[1].waits.wait)  # the run that the first life has left
        assert client.portal.call(runs.get, left["id"]).attempt == 1, "it was handed over"
        assert client.post(f"{prefix}/runs/{left['id']}/cancel").json()["status"] == "cancelled"
        assert "event: run.cancelled" in client.get(stream).text
        assert client.get(f"{prefix}/runs/{done[0]['id']}").json()["status"] == "completed"
        client.portal.call(until_told, package.told, {run["id"] for run in done})
    assert [run["output"] for run in done] == ["Worked.", "Worked."]
    assert [(desk.closed, desk.runs is runs) for desk in package.made] == [(True, True)] * 2


async def until_told(told: list[str], runs: set[str]) -> None:
    async with asyncio.timeout(60):
        while not runs <= set(told):
            await asyncio.sleep(0.005)


def test_an_app_whose_first_start_failed_starts_when_the_reason_is_gone(make_app: Any) -> None:
    settings = make_app(
        "from amoxi_py import agent, singleton, tool\n\nreasons = [ConnectionError]\n\n@singleton\nclass Desk:\n"
        "    def __init__(self) -> None:\n        if reasons:\n            raise reasons.pop()\n\n"
        '    @tool(read_only=True)\n    def look(self) -> str:\n        """Look."""\n        return "seen"\n\n'
        '@agent(tools=[Desk])\nclass Helper:\n    """You look."""\n'
    )
    app = create_app(settings)
    with pytest.raises((ConnectionError, AmoxiError)) as failed, life(app):
        pass
    assert app.state.amoxi.failure is failed.value
    with life(app) as client:
        assert app.state.amoxi.failure is None
        answer = client.post("/agents/helper/runs?wait=15", json={"message": "look"})
        assert answer.json()["status"] == "completed"


def test_an_app_that_runs_is_not_started_beside_itself(make_app: Any) -> None:
    settings = make_app(SOURCE)
    app = create_app(settings)
    with life(app) as client:
        with pytest.raises(RuntimeError, match="the app 'shop' has started already; stop it first"), life(app):
            pass
        assert app.state.amoxi.failure is None
        run = client.post("/agents/helper/runs?wait=15", json={"message": "work"}).json()
        assert run["output"] == "Worked."
