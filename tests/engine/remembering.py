"""An engine with memories around a test's story, on a store that outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engines import Story, play

from amoxi_py import Principal, agent
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import ModelFailed
from amoxi_py.models.offline_embedder import OfflineEmbedder
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.clock import SystemClock
from amoxi_py.ports.embedder import Embedder
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann", channel="code")
ANN_ELSEWHERE = Principal(id="user:ann", channel="code", tenant="globex")
BOB = Principal(id="user:bob", channel="code")


class Named:
    """The offline embedder under another name, which can be away, or refuse a text."""

    dimensions = 384
    lexical = False

    def __init__(self, name: str = "other") -> None:
        self.name = name
        self.away: ModelFailed | None = None
        self.refuses = ""
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if self.away is not None:
            raise self.away
        if self.refuses and any(self.refuses in text for text in texts):
            raise ModelFailed("too long", code="model_context_too_long", retryable=False)
        self.asked.extend(texts)
        return await OfflineEmbedder().embed(texts)

    async def aclose(self) -> None:
        return None


@agent(memory=True)
class Friend:
    """You are a friend."""


class Model:
    """A scripted model for all agents, with what it was asked."""

    def __init__(self, script: Any) -> None:
        self.model = ScriptedModel(script)

    async def model_for(self, agent: object, ctx: object) -> ScriptedModel:
        return self.model


class Ahead(SystemClock):
    """The machine's calendar, some seconds later."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return super().now() + self._seconds


Play = Callable[..., Any]


def player(folder: Path) -> Play:
    """Return what plays a story on an engine: `play(story, model, things, embedder=..., setting=...)`."""

    def run(
        story: Story,
        model: Model | None = None,
        things: Sequence[Any] = (Friend,),
        embedder: Embedder | None = None,
        ahead: float = 0.0,
        store: type[SqliteStore] = SqliteStore,
        **settings: Any,
    ) -> Any:
        return play(
            story,
            things,
            store=store(folder, clock=Ahead(ahead)),
            models=model or Model([]),
            settings=EngineSettings(**{"memory_poll": 0.02, **settings}),
            embedder=embedder or OfflineEmbedder(),
        )

    return run


async def ended(engine: Engine, message: str, name: str = "friend", who: Principal = ANN) -> Any:
    submitted = await engine.submit(name, message, principal=who)
    return await engine.wait(submitted.run.id, who, timeout=60)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def texts(engine: Engine, who: Principal = ANN) -> list[str]:
    return [memory.text for memory in (await engine.memories.list(who)).items]
