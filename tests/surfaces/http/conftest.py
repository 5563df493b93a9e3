"""A whole server for each test: the HTTP surface, the engine and the file store behind a real socket."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import AgentDefinition, Catalog, ToolDefinition
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import Effect
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import ArgumentsInvalid
from amoxi_py.models.script import Gate, call, reply
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.chat_model import UserMessage
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.surfaces.http.app import build_http
from amoxi_py.surfaces.http.door import Door
from amoxi_py.surfaces.http.settings import HttpSettings, token_digest
from amoxi_py.testing import EventRecord
from amoxi_py.testing.client import read_events
from amoxi_py.testing.servers import AppServer

sys.path.append(str(Path(__file__).parent))  # the apps beside the tests are imported by name

TOKENS = {"acme": "acme-token-0123456789", "globex": "globex-token-0123456789"}
ORDER = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}


@dataclass
class House:
    """A running server and what a test needs to talk to it."""

    url: str
    door: Door
    model: ScriptedModel
    gate: Gate
    ledger: list[tuple[str, str]]
    server: uvicorn.Server
    thread: threading.Thread
    clients: list[httpx2.Client] = field(default_factory=list)

    def visitor(self, **headers: str) -> httpx2.Client:
        """A browser that nobody knows, with cookies of its own."""
        # Without `verify` every client reads the machine's certificates, which takes longer than most of the tests.
        client = httpx2.Client(base_url=self.url, headers=headers, timeout=20, verify=False)
        self.clients.append(client)
        return client

    def api(self, name: str = "acme") -> httpx2.Client:
        """A program with a token."""
        return self.visitor(authorization=f"Bearer {TOKENS[name]}")

    def submit(self, client: httpx2.Client, message: str, *, wait: float | None = None, **body: Any) -> dict[str, Any]:
        response = client.post(
            "/agents/support-agent/runs",
            json={"message": message, **body},
            params={} if wait is None else {"wait": str(wait)},
        )
        assert response.status_code in (200, 202), response.text
        run: dict[str, Any] = response.json()
        return run

    @contextmanager
    def follow(self, client: httpx2.Client, path: str, **kwargs: Any) -> Iterator[Iterator[EventRecord]]:
        """Open a stream; what it gives is read as it comes."""
        with client.stream("GET", path, **kwargs) as response:
            assert response.status_code == 200, response.status_code
            assert response.headers["content-type"].startswith("text/event-stream")
            yield read_events(response)

    def events(self, client: httpx2.Client, path: str, **kwargs: Any) -> list[EventRecord]:
        """Read a run's stream to its end."""
        with self.follow(client, path, **kwargs) as events:
            return list(events)


class OneModel:
    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    async def model_for(self, agent: AgentDefinition, ctx: RunContext) -> ScriptedModel:
        return self.model


class NoInstances:
    def get(self, kind: type[Any]) -> Any:
        raise LookupError(kind)


def read_order(arguments: Mapping[str, Any]) -> dict[str, Any]:
    if set(arguments) != {"order_id"} or not str(arguments["order_id"]).startswith("A-"):
        raise ArgumentsInvalid((("order_id", "must be like A-1001"),))
    return dict(arguments)


def make_catalog(ledger: list[tuple[str, str]]) -> Catalog:
    async def lookup(instances: Any, ctx: Any, arguments: dict[str, Any]) -> Any:
        ctx.progress("looking")
        return {"id": arguments["order_id"], "status": "shipped"}

    async def cancel(instances: Any, ctx: Any, arguments: dict[str, Any]) -> Any:
        ledger.append((ctx.call_id, arguments["order_id"]))
        return "cancelled"

    def tool(name: str, run: Any, effect: Effect, **options: Any) -> ToolDefinition:
        return ToolDefinition(
            name=name,
            description=f"{name} of an order.",
            parameters=ORDER,
            output_schema=None,
            effect=effect,
            where=f"tests.{name}",
            read_arguments=read_order,
            call=run,
            encode_result=lambda value: value,
            **options,
        )

    def acme_only(principal: Principal) -> bool:
        return principal.id == "api:acme"

    tools = (
        tool("lookup_order", lookup, Effect.READ_ONLY),
        tool("cancel_order", cancel, Effect.UNSAFE, needs_approval=True),
        tool("acme_order", lookup, Effect.IDEMPOTENT, allow=acme_only),
    )

    def agent(name: str, **options: Any) -> AgentDefinition:
        return AgentDefinition(
            name=name,
            description=f"The {name}.",
            instructions="You help.",
            tools=tools,
            where=f"tests.{name}",
            model_options={},
            **options,
        )

    agents = (
        agent("support-agent"),
        agent("strict-agent", on_busy="reject"),
        agent("inner-agent", expose=False),
        agent("acme-agent", allow=acme_only),
    )
    return Catalog(agents={each.name: each for each in agents}, tools={each.name: each for each in tools})


def make_script(gate: Gate) -> dict[str, list[Any]]:
    return {
        "story": [
            reply("Let ", "me ", "look. ", call("lookup_order", order_id="A-1001")),
            reply("It ", "is ", "shipped. \u00e4\u20ac\U0001f600"),
        ],
        "cancel": [reply(call("cancel_order", order_id="A-1002")), "That is settled."],
        "wait": [reply("Thinking... ", gate, "done.")],
        "flood": [reply(*[f"{n:04}" * 1024 for n in range(2000)])],
        "*": ["Hello."],
    }


def start_house(folder: Path, wrap: Callable[[FastAPI], Any], store: Callable[[Any], Any], **options: Any) -> House:
    gate = Gate()
    ledger: list[tuple[str, str]] = []
    model = ScriptedModel(make_script(gate))
    callers = {name: (token_digest(token),) for name, token in TOKENS.items()}
    door = Door(HttpSettings(**{"anonymous": True, "docs": True, "callers": callers, **options}))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = Engine(
            store=store(SqliteStore(folder / "ai")),
            catalog=make_catalog(ledger),
            instances=NoInstances(),
            models=OneModel(model),
            settings=EngineSettings(lease=10.0),
        )
        await engine.start()
        door.open(engine, b"the secret of this test")
        try:
            yield
        finally:
            await engine.stop(0.0)

    listening = socket.create_server(("127.0.0.1", 0))
    app = wrap(build_http(door, lifespan=lifespan))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    return House(url, door, model, gate, ledger, server, thread)


def stop_house(house: House) -> None:
    house.gate.open()
    for client in house.clients:
        client.close()
    house.door.closing.set()
    house.server.should_exit = True
    house.thread.join(60)
    assert not house.thread.is_alive(), "the server did not stop"
    assert house.model.refused == []


@pytest.fixture
def open_house(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """Start servers: `open_house(**fields of HttpSettings)`; `wrap` changes the app, `store` the store."""
    running: list[House] = []

    def start(*, wrap: Any = lambda app: app, store: Any = lambda it: it, **options: Any) -> House:
        running.append(start_house(tmp_path, wrap, store, **options))
        return running[-1]

    yield start
    for house in running:
        stop_house(house)


@pytest.fixture
def house(open_house: Callable[..., House]) -> House:
    """A server of the test's own, with the settings of a development server."""
    return open_house()


@pytest.fixture(scope="module")
def shared_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server that the tests of a module share: for many small requests that leave nothing behind."""
    house = start_house(tmp_path_factory.mktemp("house"), lambda app: app, lambda it: it)
    yield house
    stop_house(house)


class Staffed:
    """The app of `staffed_app` behind a real socket, asked by its people."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "ai"
        self.server = AppServer(
            folder, self.store, model=ScriptedModel(_say_or_call), settings=_STAFFED, package="staffed_app"
        )
        self.token = TOKENS["acme"]
        door: Door = self.server._app.state.amoxi.door
        door.settings = replace(door.settings, callers={"acme": (token_digest(self.token),)})

    def asks(self, who: str | None = None, **headers: str) -> httpx2.Client:
        """Somebody who signs in, or a visitor with a cookie of its own."""
        http = self.server.client().http
        http.headers.update(headers if who is None else {"x-user": who, **headers})
        return http

    def waiting(self, http: httpx2.Client, tool: str, what: str = "x", agent: str = "desk") -> dict[str, Any]:
        """A run of somebody that waits for an approval of a call."""
        run = http.post(f"/agents/{agent}/runs", json={"message": f"{tool} {what}"}).json()
        with http.stream("GET", f"/runs/{run['id']}/events") as stream:
            next(event for event in read_events(stream) if event.type == "run.waiting")
        waiting: dict[str, Any] = http.get(f"/runs/{run['id']}").json()
        return waiting


_STAFFED = {"ai.http.anonymous": True, "ai.runs.on-busy": "queue"}


def _say_or_call(request: Any) -> Any:
    last = request.messages[-1]
    tool, _, what = getattr(last, "text", "").partition(" ")
    if not what or not isinstance(last, UserMessage):
        return "Hello."
    return reply(call(tool, **{"message" if tool.startswith("ask_") else "what": what}))


@pytest.fixture(scope="session")
def staffed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staffed]:
    staffed = Staffed(tmp_path_factory.mktemp("staffed"))
    with staffed.server:
        yield staffed
