"""Nobody waits behind a flood of somebody else's, on either store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call

FLOOD = 1000
AT_MOST = 100
"""Of the flood's runs may begin before another's first one does; more than two seconds pass while twice as many do."""
WORKING = '''
import asyncio
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def work(ctx: ToolContext) -> str:
    """Work for a moment, when the gate is open."""
    note("work", ctx, whose=ctx.principal.id)
    await gate("begin")
    await asyncio.sleep(0.05)
    return "worked"


@agent(tools=[work])
class Worker:
    """You work."""
'''


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_the_first_run_of_another_starts_within_two_seconds_although_a_thousand_of_one_principal_are_queued(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, last_words: Any, until: Any
) -> None:
    def play(request: ModelRequest) -> Any:
        return "Done." if last_words(request)[1] else call("work")

    folder = field_app(WORKING)
    env = {**model_env(strict_model(play)), "AI_RUNS_CONCURRENCY": "2"}
    servers = [start(folder, env=env) for _ in range(2)]
    flooding, other = client(servers[0]), client(servers[1], "globex")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: flooding.submit("worker", f"number {n}"), range(FLOOD)))
    until(lambda: len(folder.ledger("work")) == 4)
    folder.open_gate("begin")
    until(lambda: len(folder.ledger("work")) > 8, 60, "the flood is worked off")
    for _ in range(3):
        before = len(folder.ledger("work"))
        run = other.submit("worker", "hello")
        until(lambda run=run: folder.ledger("work", run=run["id"]))
        order = [line["run"] for line in folder.ledger("work")]
        assert order.index(run["id"]) - before < AT_MOST
        assert other.until_status(run["id"])["status"] == "completed"
    worked = {line["run"] for line in folder.ledger("work", whose="api:acme")}
    assert 8 < len(worked) < FLOOD / 2, "the flood goes on meanwhile, and most of it still waits"
