"""A server whose run stays in its tool until the process is killed; started by `takeover.py`."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection

from loads import ANA, LOADS, started_engine

from amoxi_py.domain.event import EventType
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.stores.postgres.store import FEWEST_CONNECTIONS, PostgresStore


def serve_until_killed(url: str, schema: str, lease: float, told: Connection) -> None:
    """Submit a run, tell its id when it is in the tool, and never end."""
    asyncio.run(_serve(url, schema, lease, told))


async def _serve(url: str, schema: str, lease: float, told: Connection) -> None:
    store = PostgresStore(url, schema=schema, connections=FEWEST_CONNECTIONS)
    settings = EngineSettings(lease=lease, executes="own_runs")
    async with started_engine(store, "stuck", settings=settings) as engine:
        submitted = await engine.submit(LOADS["stuck"][0], "Where is order A-1001?", principal=ANA)
        async for events in await engine.follow(ANA, run_id=submitted.run.id):
            if any(event.type is EventType.TOOL_CALLED for event in events):
                told.send(submitted.run.id)
