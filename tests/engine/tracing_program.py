"""Executes one run with spans that are written to a file as they end: `tracing_program.py STORE SPANS [die]`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from amoxi_py import ToolContext, agent, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.declare.injection import open_instances
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import ModelFailed
from amoxi_py.models.fallback import FallbackModel
from amoxi_py.models.pool import ModelPool, PooledModel
from amoxi_py.models.script import call, reply
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.chat_model import ChatModel, ModelRequest, Reply, TextDelta, UserMessage
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
DIES = sys.argv[3:] == ["die"]


class File(SpanExporter):
    """Appends a line of JSON for each span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(sys.argv[2]).open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(_told(span))}\n" for span in spans)
        return SpanExportResult.SUCCESS


def _told(span: ReadableSpan) -> dict[str, Any]:
    assert span.context is not None
    return {
        "name": span.name,
        "trace": span.context.trace_id,
        "id": span.context.span_id,
        "parent": None if span.parent is None else span.parent.span_id,
        "error": not span.status.is_ok,
        "attributes": dict(span.attributes or {}),
    }


@tool(idempotent=True)
async def refund(order: str, ctx: ToolContext) -> str:
    """Refund an order.

    Args:
        order: Its number, which is a secret
    """
    await ctx.step("pay", _nothing)
    await ctx.sleep(2.5)
    await ctx.step("mail", _die_once)
    return "secret result"


@tool(read_only=True)
def fails() -> str:
    """Fail."""
    raise RuntimeError("secret reason")


@tool(read_only=True)
def peek(secret: str) -> str:
    """Look, without a run."""
    return secret


async def _nothing() -> None:
    return None


async def _die_once() -> None:
    if DIES:
        os.kill(os.getpid(), signal.SIGKILL)


@agent(tools=[fails], expose=False)
class Looker:
    """You look."""


@agent(tools=[refund], agents=[Looker])
class Desk:
    """You refund."""


def _script(request: ModelRequest) -> Any:
    asked = next(message for message in request.messages if isinstance(message, UserMessage))
    said = len(request.messages)
    if asked.text == "Look.":
        return call("fails") if said == 1 else "I saw."
    if said == 1:
        return reply("Secret words.", call("refund", order="A-1001"))
    return call("ask_looker", message="Look.") if said == 3 else "Done."


class _Away:
    name = "anthropic:claude-away"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        raise ModelFailed("secret words of a provider", code="model_unavailable")
        yield


class _AtHome(ScriptedModel):
    @property
    def name(self) -> str:
        return "openai:llama3.1:8b"


class _Models:
    def __init__(self) -> None:
        chain = FallbackModel([_Away(), _AtHome(_script, record=False)])
        self._of_looker = PooledModel(chain, ModelPool())

    async def model_for(self, agent: AgentDefinition, ctx: object) -> ChatModel:
        return self._of_looker if agent.name == "looker" else ScriptedModel(_script, record=False)


async def main() -> None:
    """Submit a run, or take up the one that is there, and wait until it has ended."""
    declarations = build_declarations([Desk, Looker, peek])
    async with open_instances(declarations.singletons, {}) as instances:
        store = SqliteStore(Path(sys.argv[1]))
        engine = Engine(
            store=store,
            catalog=declarations.catalog,
            instances=instances,
            models=_Models(),
            settings=EngineSettings(lease=0.5, poll=0.05),
        )
        await engine.start()
        runs = (await engine.list_runs(ANN)).items
        run = runs[0] if runs else (await engine.submit("desk", "Refund A-1001", principal=ANN)).run
        ended = await engine.wait(run.id, ANN, timeout=20)
        assert ended.output == "Done.", ended
        await engine.call_now("peek", {"secret": "secret"}, principal=ANN)
        await engine.stop()


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[2] != "-":
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(File()))
        trace.set_tracer_provider(provider)
    asyncio.run(main())
