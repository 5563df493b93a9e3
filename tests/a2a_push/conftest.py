"""Servers with webhooks on one store, whose partner is told of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from a2a.types.a2a_pb2 import TaskPushNotificationConfig

from amoxi_py import agent, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.retry import RetryPolicy
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.models.script import call, reply
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.clock import Clock, SystemClock
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.surfaces.a2a.delivery import Pace
from amoxi_py.surfaces.a2a.settings import A2aSettings
from amoxi_py.surfaces.a2a.webhooks import Webhooks
from receivers import Receiver, receiving

PARTNER = Principal(id="a2a:partner", name="partner", channel="a2a")
BASE = "http://localhost:8080"
AT_ONCE = RetryPolicy(tries=50, first=0.001, longest=0.001)
ANSWER = "It is on its way."
SCRIPTS = {"asks": (reply(call("ship")), reply(ANSWER)), "answers": (reply(ANSWER),)}
"""Of runs that ask for an approval first, and of those that answer at once."""


@tool(needs_approval=True)
async def ship() -> str:
    """Ship it."""
    return "shipped"


@agent(tools=[ship])
class Shop:
    """You are a shop."""


class Server:
    """An engine with webhooks, as a process has them."""

    def __init__(self, engine: Engine, store: Any, webhooks: Webhooks) -> None:
        self.engine = engine
        self.store = store
        self.webhooks = webhooks

    async def send(self, *, principal: Principal = PARTNER, text: str = "Ship it") -> Run:
        """Begin a task, and wait until it asks for an approval, or has ended."""
        run = (await self.engine.submit("shop", text, principal=principal)).run
        found = await wait_until(lambda: self._settled(run.id, principal))
        assert isinstance(found, Run)
        return found

    async def _settled(self, run_id: str, principal: Principal) -> Run | None:
        run = await self.engine.get_run(run_id, principal)
        return run if run.status.final or run.waiting_for else None

    async def approve(self, run: Run) -> None:
        await self.engine.decide(str(run.waiting_for[0].call_id), run.principal, "approve")

    async def watch(self, run: Run, receiver: Receiver, *, version: str = "1.0", id: str = "", **more: Any) -> Any:
        told = TaskPushNotificationConfig(task_id=run.id, id=id, url=more.pop("url", receiver.url), **more)
        return await self.webhooks.create(run.principal, told, version=version, base=BASE)

    async def over(self, run: Run, id: str = "") -> bool:
        return bool((await self.store.find_webhook(run.id, run.principal, id or run.id)).over)

    async def ended(self, run: Run) -> bool:
        return (await self.engine.get_run(run.id, run.principal)).status.final

    async def failures(self, run: Run) -> int:
        return int((await self.store.find_webhook(run.id, run.principal, run.id)).failures)

    async def told_up_to(self, run: Run) -> int:
        return int((await self.store.find_webhook(run.id, run.principal, run.id)).cursor)


async def wait_until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(20):
        while True:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.002)


Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start servers on one store: `await start()`; `script` is of the model, `wrap` wraps the store for webhooks.

    `clock` is the store's.
    """
    async with AsyncExitStack() as stack:

        async def begin(
            script: str = "asks",
            *,
            allow: tuple[str, ...] = ("127.0.0.1",),
            wrap: Any = None,
            resolve: Any = None,
            clock: Clock | None = None,
            **pace: Any,
        ) -> Server:
            declarations = build_declarations([Shop])
            instances = await stack.enter_async_context(open_instances(declarations.singletons, {}, ()))
            store = SqliteStore(tmp_path / "store", synchronous="OFF", clock=clock or SystemClock())
            engine = Engine(
                store=store,
                catalog=declarations.catalog,
                instances=instances,
                models=OneModel(ScriptedModel(list(SCRIPTS[script]), record=False)),
                settings=EngineSettings(worker=not pace.pop("web_only", False)),
            )
            await engine.start()
            stack.push_async_callback(engine.stop)
            wrapped = store if wrap is None else wrap(store)
            pace = {"lease": 30.0, "claim_every": 0.01, "retry": AT_ONCE, **pace}
            settings = A2aSettings(name="shop", push_allow=allow)
            webhooks = Webhooks(engine, wrapped, settings, pace=Pace(**pace), resolve=resolve)
            await webhooks.open()
            stack.push_async_callback(webhooks.close)
            return Server(engine, store, webhooks)

        yield begin


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A server of the partner."""
    async with receiving() as made:
        yield made


class OneModel:
    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    async def model_for(self, agent: object, ctx: object) -> ScriptedModel:
        return self._model


@pytest.fixture
def until() -> Callable[..., Awaitable[Any]]:
    """Wait until something is so: `await until(lambda: ...)`; what it is asked may be async."""
    return wait_until
