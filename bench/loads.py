"""The loads that benchmarks run, an engine for them, and clients that send messages to it and wait for the ends.

trivial   2 turns, 1 tool
support   4 turns, 3 tools with a 1 KB result each, one step
stuck     like trivial, but the tool ends only when it is started again

A scripted model answers, which takes no time and checks nothing of what it is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from amoxi_py import ToolContext, agent, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.models.script import call
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.store import Store

ANA = Principal(id="system:bench", channel="code")
ORDER = {"id": "A-1001", "note": "x" * 1000}
LONGEST_RUN_S = 120.0


@tool(read_only=True)
async def lookup(order_id: str) -> str:
    """Look an order up.

    Args:
        order_id: Its number
    """
    return "x" * 40


@tool(read_only=True)
async def lookup_order(order_id: str) -> dict[str, str]:
    """Look an order up.

    Args:
        order_id: Its number
    """
    return ORDER


@tool(read_only=True)
async def check_policy(order_id: str) -> dict[str, str]:
    """Check whether an order can be refunded.

    Args:
        order_id: Its number
    """
    return ORDER


@tool(idempotent=True)
async def issue_refund(order_id: str, ctx: ToolContext) -> dict[str, str]:
    """Refund an order.

    Args:
        order_id: Its number
    """
    await ctx.step("refund", _refund, ctx.call_id)
    return ORDER


async def _refund(key: str) -> dict[str, str]:
    return {"refund_id": "R-1", "key": key}


@tool(idempotent=True)
async def lookup_in_vain(order_id: str, ctx: ToolContext) -> str:
    """Look an order up.

    Args:
        order_id: Its number
    """
    if ctx.attempt == 1:
        await ctx.signal.wait()
    return "x" * 40


@agent(tools=[lookup])
class TrivialAgent:
    """You answer questions about orders."""


@agent(tools=[lookup_order, check_policy, issue_refund])
class SupportAgent:
    """You refund orders."""


@agent(tools=[lookup_in_vain])
class StuckAgent:
    """You answer questions about orders."""


LOADS: dict[str, tuple[str, list[Any]]] = {
    "trivial": ("trivial-agent", [call("lookup", order_id="A-1001"), "Order A-1001 is shipped."]),
    "support": (
        "support-agent",
        [
            call("lookup_order", order_id="A-1001"),
            call("check_policy", order_id="A-1001"),
            call("issue_refund", order_id="A-1001"),
            "Order A-1001 is refunded; the receipt is on its way.",
        ],
    ),
    "stuck": ("stuck-agent", [call("lookup_in_vain", order_id="A-1001"), "Order A-1001 is shipped."]),
}


class OneModel:
    """The same model for every run."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    async def model_for(self, agent: object, ctx: object) -> ScriptedModel:
        """Return it."""
        return self._model


class Clients:
    """Send one message after another, each in a conversation of its own, and wait until its run has ended."""

    def __init__(self, engine: Engine, load: str) -> None:
        self._engine = engine
        self._agent = LOADS[load][0]
        self.latencies: list[float] = []

    async def send(self, each: int, at_once: int) -> None:
        """Let so many clients send so many each."""
        await asyncio.gather(*(self._send(each) for _ in range(at_once)))

    async def send_until(self, deadline: float, at_once: int) -> None:
        """Let so many clients send until `time.perf_counter()`; what ends later is not counted."""
        await asyncio.gather(*(self._send_until(deadline) for _ in range(at_once)))

    async def _send(self, count: int) -> None:
        for _ in range(count):
            self.latencies.append(await self._run())

    async def _send_until(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            latency = await self._run()
            if time.perf_counter() < deadline:
                self.latencies.append(latency)

    async def _run(self) -> float:
        begun = time.perf_counter()
        submitted = await self._engine.submit(self._agent, "Where is order A-1001?", principal=ANA)
        run = await self._engine.wait(submitted.run.id, ANA, timeout=LONGEST_RUN_S)
        assert run.status == "completed", run
        return time.perf_counter() - begun


@asynccontextmanager
async def started_engine(store: Store, load: str, *, settings: EngineSettings | None = None) -> AsyncIterator[Engine]:
    """Give an engine that executes a load's runs on a store."""
    declarations = build_declarations([TrivialAgent, SupportAgent, StuckAgent])
    async with open_instances(declarations.singletons, {}) as instances:
        engine = Engine(
            store=store,
            catalog=declarations.catalog,
            instances=instances,
            models=OneModel(ScriptedModel(LOADS[load][1], record=False, strict=False)),
            settings=settings,
        )
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()


def percentiles(latencies: list[float]) -> tuple[float, float]:
    """Return p50 and p95 in milliseconds."""
    if not latencies:
        raise ValueError("no run ended within the time; measure for longer")
    ordered, count = sorted(latencies), len(latencies)
    return ordered[count // 2] * 1e3, ordered[count * 95 // 100] * 1e3
