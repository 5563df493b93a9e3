"""More calls than may run at once: a place that becomes free is taken in the commit that frees it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from amoxi_py import agent, tool
from amoxi_py.domain.event import EventType
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.models.script import call, reply
from amoxi_py.ports.changes import Change
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
order: list[tuple[str, int]] = []


@tool(idempotent=True)
async def work(number: int) -> int:
    """Work on a number.

    Args:
        number: Which
    """
    order.append(("begins", number))
    await asyncio.sleep(0.01 * (number % 3))
    order.append(("ends", number))
    return number


@agent(tools=[work])
class Worker:
    """You work."""


class Seen(SqliteStore):
    """Keeps the changes that were asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.changes: list[Change] = []

    def write(self, change: Change) -> asyncio.Future[float | None]:
        self.changes.append(change)
        return super().write(change)


def test_a_free_place_is_taken_in_the_commit_of_the_result_that_frees_it(tmp_path: Path, with_engine: Any) -> None:
    order.clear()
    calls, places = 11, 3

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("worker", "Work", principal=ANN)
        assert (await engine.wait(submitted.run.id, ANN, timeout=20)).status == "completed"

    store = Seen(tmp_path)
    script = [reply(*(call("work", number=number) for number in range(calls))), "All done."]
    with_engine(store, [Worker], script, story, parallel_calls=places)
    recorded = [change for change in store.changes if change.results]
    assert len(recorded) == calls
    assert sorted(n for change in recorded for _, n in change.starts) == list(range(places, calls))
    assert [change for change in store.changes if change.starts and not change.results] == []
    assert len(store.changes) == calls + 2, "a reply, the results, and the end"
    completed = [event for change in store.changes for event in change.events if event.type is EventType.TOOL_COMPLETED]
    assert sorted(event.n for event in completed if event.n is not None) == list(range(calls))
    running = most = 0
    for what, _ in order:
        running += 1 if what == "begins" else -1
        most = max(most, running)
    assert most == places
    assert sorted(number for what, number in order if what == "begins") == list(range(calls))
