"""X03: runs that a dead server left behind are all taken up and ended once, whatever happens to the database then."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from postgres_server import PostgresServer, own_postgres

pytestmark = pytest.mark.crash

RUNS = 250
HOLDING = '''
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call
from .ledger import gate, note


@tool(idempotent=True)
async def hold(ctx: ToolContext) -> str:
    """Wait for the gate."""
    note("hold", ctx)
    await gate("hold")
    note("held", ctx)
    return "held"


@tool
async def charge(ctx: ToolContext) -> str:
    """Charge; nobody may do that twice."""
    note("charge", ctx)
    await gate("hold")
    return "charged"


@agent(tools=[hold, charge], model=ScriptedModel({name: [call(name), "Done."] for name in ("hold", "charge")}))
class Holder:
    """You hold."""
'''


@pytest.fixture
def restartable() -> Iterator[PostgresServer]:
    """A PostgreSQL that nobody else uses."""
    with own_postgres() as server:
        yield server


def test_runs_that_a_dead_server_left_all_end_once_though_the_database_restarts_while_they_are_taken_up(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    one_story: Any,
    lease_s: float,
    trials: Any,
    database_env: Any,
    restartable: PostgresServer,
) -> None:
    chance = random.Random(3)
    for trial in range(trials(1)):
        folder = field_app(HOLDING)
        url = restartable.fresh_database()
        env = database_env(url)
        first = start(folder, env=env)
        api = client(first)
        runs = {api.submit("holder", "charge" if n % 5 == 0 else "hold")["id"]: n for n in range(RUNS)}
        until(lambda folder=folder: len(folder.ledger()) == RUNS, 30)
        first.kill9()
        second = start(folder, env=env)
        api = client(second)
        until(lambda folder=folder: folder.ledger("hold", attempt=2), lease_s + 5, "the recovery begins")
        begun = time.monotonic()
        pause = 0.2 if trial == 0 else chance.uniform(0, 0.4)
        until(lambda begun=begun, pause=pause: time.monotonic() > begun + pause)
        restartable.restart("immediate" if trial % 2 == 0 else "fast")
        until(
            lambda folder=folder, pid=second.pid: (
                len({line["run"] for line in folder.ledger("hold", pid=pid)}) == RUNS * 4 // 5
            ),
            30,
        )
        folder.open_gate("hold")
        for run_id in runs:
            run = api.until_status(run_id, patient=True)
            assert (run["status"], run["output"]) == ("completed", "Done."), run
            assert run["attempt"] >= 2
        started, ended = (Counter(line["run"] for line in folder.ledger(what)) for what in ("charge", "held"))
        assert set(started.values()) == set(ended.values()) == {1}
        assert len(started) + len(ended) == RUNS
        for run_id in list(runs)[::25]:
            one_story(api.events(run_id, after=0))
        left = restartable.ask(
            "SELECT count(*) FROM amoxi.run WHERE status <> 'completed'", database=url.rpartition("/")[2]
        )
        assert left == [(0,)]
        assert "Traceback" not in second.log()
        second.stop()
