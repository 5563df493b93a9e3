"""An engine with a scripted model, opened and closed around a test's story."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.stores.sqlite.store import SqliteStore

sys.path.append(str(Path(__file__).parent))  # what the tests of memories share is imported by name


class OneModel:
    """The same model for every run."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model

    async def model_for(self, agent: object, ctx: object) -> ScriptedModel:
        return self._model


def run_engine(
    store: SqliteStore,
    agents: list[Any],
    script: Any,
    story: Callable[[Engine], Awaitable[Any]],
    **settings: Any,
) -> Any:
    """Run a story on an engine of these agents and handlers, and return what it returns."""

    async def main() -> Any:
        declarations = build_declarations(agents)
        async with open_instances(declarations.singletons, {}, declarations.providers) as instances:
            engine = Engine(
                store=store,
                catalog=declarations.catalog,
                instances=instances,
                models=OneModel(ScriptedModel(script, record=False)),
                settings=EngineSettings(**settings),
                handlers=declarations.handlers,
            )
            await engine.start()
            try:
                return await story(engine)
            finally:
                await engine.stop()

    return asyncio.run(main())


@pytest.fixture
def with_engine() -> Any:
    """The function `run_engine`."""
    return run_engine
