"""A call of a tool that only reads becomes no run, and counts all the same as something that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amoxi_py import agent, tool
from amoxi_py.domain.limits import Limits
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import ArgumentsInvalid, TooMany
from amoxi_py.ports.clock import SystemClock
from amoxi_py.stores.sqlite.store import SqliteStore

DESKTOP = Principal(id="mcp:desktop", channel="mcp")
LIMITS = Limits(requests_per_minute=1)


@tool(read_only=True)
def look(order: str) -> str:
    """Look."""
    return "seen"


@agent(tools=[look])
class Clerk:
    """You look."""


class OneMinute(SystemClock):
    def now(self) -> float:
        return 1_790_000_010.0


def test_a_call_whose_arguments_do_not_fit_is_not_counted(with_engine: Any, tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        for _ in range(2):
            with pytest.raises(ArgumentsInvalid):
                await engine.call_now("look", {}, principal=DESKTOP)
        await engine.call_now("look", {"order": "A-1"}, principal=DESKTOP)
        with pytest.raises(TooMany) as refused:
            await engine.call_now("look", {"order": "A-1"}, principal=DESKTOP)
        assert refused.value.code == "too_many_requests"

    store = SqliteStore(tmp_path, clock=OneMinute(), limits=LIMITS)
    with_engine(store, [Clerk], {}, story, limits=LIMITS)
