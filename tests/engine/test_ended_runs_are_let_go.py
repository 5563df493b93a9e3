"""An ended run is freed by reference counts alone: a server under load must not wait for its garbage collector."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

from amoxi_py import ToolContext, ToolError, agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.engine.call_batch import CallBatch
from amoxi_py.engine.calls import CallExecution
from amoxi_py.engine.context import CallToolContext
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.execution import RunExecution
from amoxi_py.models.script import call
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
KINDS = (RunExecution, CallBatch, CallExecution, CallToolContext, ToolCall)


@tool(idempotent=True)
async def fetch(number: int, ctx: ToolContext) -> str:
    """Fetch something long.

    Args:
        number: Which
    """
    ctx.progress("fetching")
    return await ctx.step("fetch", str.ljust, str(number), 10_000)


@tool(idempotent=True)
def fail(number: int) -> str:
    """Fail in a thread.

    Args:
        number: Which
    """
    raise ToolError(f"no {number}")


@agent(tools=[fetch, fail])
class Fetcher:
    """You fetch things."""


def of_runs() -> list[Any]:
    return [each for each in gc.get_objects() if type(each) in KINDS]


def test_nothing_of_an_ended_run_waits_for_the_garbage_collector(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> list[Any]:
        for _ in range(20):
            submitted = await engine.submit("fetcher", "Fetch", principal=ANN)
            assert (await engine.wait(submitted.run.id, ANN, timeout=20)).status == "completed"
        await asyncio.sleep(0.1)  # the last progress lines' timers go
        return of_runs()

    script = [call("fetch", number=1), call("fetch", number=2), call("fail", number=3), "Fetched."]
    gc.collect()
    before = of_runs()  # what other tests keep
    gc.disable()
    try:
        alive = with_engine(SqliteStore(tmp_path), [Fetcher], script, story)
    finally:
        gc.enable()
    assert [type(each).__name__ for each in alive if all(each is not one for one in before)] == []
