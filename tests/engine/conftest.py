"""An engine with a scripted model, opened and closed around a test's story."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.stores.sqlite.store import SqliteStore

sys.path.append(str(Path(__file__).parent))  # what tests of this folder share is imported by name

from engines import play


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

    model = OneModel(ScriptedModel(script, record=False))
    return play(story, agents, store=store, models=model, settings=EngineSettings(**settings))


@pytest.fixture
def with_engine() -> Any:
    """The function `run_engine`."""
    return run_engine
