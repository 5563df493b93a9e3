"""What `/metrics` tells: sums of all processes of a machine, gauges of the living, in the form of Prometheus."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from amoxi_py import install
from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.metrics import SHARED_GAUGES
from amoxi_py.app.numbers import GAUGES, METRICS, added_up, without_gauges
from amoxi_py.app.numbers_folder import NumbersFolder
from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.app.web import create_app, web_app
from amoxi_py.engine.measures import EngineMeasures, TurnClock
from amoxi_py.errors import StoreUnavailable
from amoxi_py.ports.measures import Histogram

DOCS = Path(__file__).parents[2] / "docs"
NAMES = {metric.name for metric in METRICS} | SHARED_GAUGES.keys()
NEAR = ("127.0.0.1", 50000)
STEPS = '''
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call


@tool(idempotent=True)
async def pack(ctx: ToolContext) -> str:
    """Pack."""
    return await ctx.step("one", lambda: "packed")


@agent(tools=[pack], model=ScriptedModel({"pack": [call("pack"), "Packed."], "*": [call("no_such_tool"), "Hello."]}))
class Packer:
    """You pack."""
'''


def told_by(client: TestClient, path: str = "/metrics") -> dict[tuple[str, ...], float]:
    """Every sample: by its name and the values of its labels, sorted."""
    page = client.get(path)
    assert page.status_code == 200, page.text
    samples: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(page.text):
        for sample in family.samples:
            samples[(sample.name, *sorted(sample.labels.values()))] = sample.value
    return samples


@pytest.fixture
def packer(make_app: Any) -> Iterator[TestClient]:
    with TestClient(create_app(make_app(STEPS)), client=NEAR) as client:
        yield client


def ask(client: TestClient, message: str) -> dict[str, Any]:
    run: dict[str, Any] = client.post("/agents/packer/runs?wait=30", json={"message": message}).json()
    assert run["status"] == "completed", run
    return run


def test_runs_turns_models_tools_and_steps_are_counted_with_names_from_short_lists(packer: TestClient) -> None:
    ask(packer, "pack")
    ask(packer, "say")
    told = told_by(packer)
    assert told["amoxi_runs_submitted_total",] == 2
    assert told["amoxi_runs_ended_total", "completed"] == 2
    assert told["amoxi_run_duration_seconds_count", "packer"] == 2
    assert told["amoxi_turn_duration_seconds_count", "packer"] == 4
    assert told["amoxi_model_requests_total", "ok", "scripted"] == 4
    assert told["amoxi_time_to_first_token_seconds_count", "scripted"] == 2, "a reply of calls alone has no text"
    assert told["amoxi_tool_calls_total", "done", "pack"] == 1
    assert [value for key, value in told.items() if key[0] == "amoxi_tool_calls_total" and "other" in key] == [1]
    assert not any("no_such_tool" in key for key in told)
    assert told["amoxi_steps_executed_total",] == 1
    assert told["amoxi_steps_replayed_total",] == 0
    assert told["amoxi_events_dropped_total",] == 0
    assert told["amoxi_runs_in_flight",] == 0
    assert told["amoxi_store_up",] == 1
    assert told["amoxi_store_commit_duration_seconds_bucket", "+Inf"] > 0
    assert told["amoxi_http_responses_total", "200"] == 2


def test_all_metrics_have_their_names_and_help_and_the_guide_tells_of_each(packer: TestClient) -> None:
    ask(packer, "pack")
    page = packer.get("/metrics").text
    assert set(re.findall(r"^# HELP (amoxi_\w+)", page, re.MULTILINE)) == NAMES
    guide = (DOCS / "guides" / "monitoring.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(amoxi_\w+)` \| (\w+) \|", guide, re.MULTILINE))
    assert rows == {metric.name: metric.kind for metric in METRICS} | dict.fromkeys(SHARED_GAUGES, "gauge")


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_exist() -> None:
    board = json.loads((DOCS / "grafana" / "amoxi.json").read_text("utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    alerts = re.findall(r"expr: (.+)", (DOCS / "guides" / "monitoring.md").read_text("utf-8"))
    assert len(asked) > 25
    assert len(alerts) > 8
    histograms = {metric.name for metric in METRICS if metric.kind == "histogram"}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    for expression in (*asked, *alerts):
        names = set(re.findall(r"\bamoxi_\w+", expression))
        assert names, expression
        assert names <= (NAMES - histograms) | parts, expression
        assert expression.count("(") == expression.count(")"), expression
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


def test_strangers_get_no_metrics_and_a_proxy_does_not_make_anybody_near(make_app: Any) -> None:
    app = create_app(make_app(STEPS))
    with TestClient(app, client=("203.0.113.7", 50000)) as far:
        assert far.get("/metrics").status_code == 401
        near = TestClient(app, client=NEAR)
        assert near.get("/metrics").status_code == 200
        for name in ("X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "X-Real-IP", "Via"):
            assert near.get("/metrics", headers={name: "203.0.113.7"}).status_code == 401
        assert near.get("/metrics", headers={"Authorization": "Bearer a-token-of-nobody"}).status_code == 401


def test_a_scraper_that_asks_for_openmetrics_gets_it(packer: TestClient) -> None:
    answer = packer.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.count("# EOF") == 1
    assert answer.text.endswith("# EOF\n")
    assert "amoxi_runs_ended_total" in answer.text


def test_numbers_of_processes_are_added_and_gauges_are_of_the_living() -> None:
    one = {"amoxi_runs_in_flight": [((), 2)], "amoxi_runs_ended_total": [(("failed",), 1), (("completed",), 5)]}
    two = json.loads(json.dumps({**one, "amoxi_run_duration_seconds": [(("a",), [[1.0], [3, 1], 4.5])]}))
    assert added_up([one, two, without_gauges(two)]) == {
        "amoxi_runs_in_flight": [((), 4)],
        "amoxi_runs_ended_total": [(("failed",), 3), (("completed",), 15)],
        "amoxi_run_duration_seconds": [(("a",), [[1.0], [6, 2], 9.0])],
    }
    other_bounds = {"amoxi_run_duration_seconds": [(("a",), [[2.0], [1, 1], 1.0])]}
    kept = added_up([two, other_bounds])["amoxi_run_duration_seconds"]
    assert kept == [(("a",), [[1.0], [3, 1], 4.5])], "the other one is of another version of the program"
    assert "amoxi_processes" in GAUGES


def test_what_a_process_counted_stays_when_it_dies_and_what_it_had_does_not(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from amoxi_py.app.numbers_folder import NumbersFolder\n"
        "folder = NumbersFolder(Path(sys.argv[1]))\n"
        "folder.write({'amoxi_processes': [[[], 1]], 'amoxi_leases_lost_total': [[[], 3]]}, 1.0)\n"
        "print('there', flush=True); time.sleep(600)"
    )
    folder = NumbersFolder(tmp_path)
    other = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        living = folder.others()
        assert added_up(living.numbers) == {"amoxi_processes": [((), 1)], "amoxi_leases_lost_total": [((), 3)]}
        assert (living.living, living.dead) == ({other.pid, os.getpid()}, set())
    finally:
        other.kill()
        other.communicate()
    dead = folder.others()
    assert added_up(dead.numbers) == {"amoxi_leases_lost_total": [((), 3)]}
    assert (dead.living, dead.dead) == ({os.getpid()}, {other.pid})
    folder.close({"amoxi_processes": [((), 1)], "amoxi_leases_lost_total": [((), 1)]}, 1.0)
    again = NumbersFolder(tmp_path)
    assert added_up(again.others().numbers) == {"amoxi_leases_lost_total": [((), 4)]}, "an orderly stop is the same"
    assert os.getpid() in again.others().living, "the app's own gauges of this process stay"
    again.close({}, 1.0)


def test_numbers_that_are_written_late_do_not_take_back_newer_ones(tmp_path: Path) -> None:
    one, other = NumbersFolder(tmp_path), NumbersFolder(tmp_path)
    one.write({"amoxi_leases_lost_total": [((), 5)]}, 2.0)
    one.write({"amoxi_leases_lost_total": [((), 4)]}, 1.0)
    assert added_up(other.others().numbers) == {"amoxi_leases_lost_total": [((), 5)]}
    one.close({"amoxi_leases_lost_total": [((), 6)]}, 3.0)
    assert added_up(other.others().numbers) == {"amoxi_leases_lost_total": [((), 6)]}
    other.close({}, 1.0)


@pytest.mark.parametrize("spoil", ["a file that is being made", "a folder that is gone"])
def test_a_file_of_the_apps_own_metrics_that_cannot_be_read_does_not_hide_ours(
    make_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    shared = tmp_path / "numbers"
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(shared))
    with TestClient(create_app(make_app(STEPS)), client=NEAR) as client:
        ask(client, "pack")
        if spoil.startswith("a file"):
            (shared / "counter_1.db").touch()
        else:
            shutil.rmtree(shared)
        assert told_by(client)["amoxi_runs_ended_total", "completed"] == 1


def test_a_histogram_puts_each_value_under_its_bound_and_models_beyond_a_hundred_together() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([2, 1, 1], 12.0)
    measures = EngineMeasures()
    for number in range(150):
        measures.request(f"model-{number}", "ok", None)
        measures.turn(f"agent-{number}", 1.0)
    assert measures.requests["other", "ok"] == 50
    assert len(measures.requests) == 101
    assert sum(measures.turn_seconds["other"].counts) == 50


def test_a_turn_ends_where_the_next_begins_and_one_that_failed_is_none() -> None:
    times = iter(range(100))
    told: list[float] = []
    clock = TurnClock(lambda: float(next(times)), told.append)
    clock.begin()
    clock.begin()
    clock.drop()
    clock.end()
    assert told == [1.0]
    clock.begin()
    clock.end()
    clock.end()
    assert told == [1.0, 1.0]


def test_in_an_app_of_ones_own_the_metrics_are_under_the_prefix_and_its_own_routes_stay_as_they_are(
    make_app: Any,
) -> None:
    app = FastAPI()

    @app.get("/own")
    async def own() -> str:
        return "own"

    install(app, settings=make_app(STEPS))
    with TestClient(app, client=NEAR) as client:
        assert told_by(client, "/ai/metrics")["amoxi_store_up",] == 1
        assert client.get("/metrics").status_code == 404
        for name in ("x-request-id", "x-content-type-options", "x-frame-options"):
            assert name not in client.get("/own").headers
        assert client.get("/ai/agents").headers["x-content-type-options"] == "nosniff"


class Away:
    """A store that cannot be asked what is open."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def backlog(self, now: float) -> Any:
        raise StoreUnavailable("the disk is full")


def test_while_the_store_is_away_the_metrics_say_so_and_tell_the_rest(make_app: Any) -> None:
    settings = make_app(STEPS)
    runtime = Runtime(settings, read_declarations(settings), stand_ins=StandIns(wrap_store=Away))
    with TestClient(web_app(runtime), client=NEAR) as client:
        ask(client, "pack")
        told = told_by(client)
    assert told["amoxi_store_up",] == 0
    assert ("amoxi_store_runs_queued",) not in told
    assert told["amoxi_runs_ended_total", "completed"] == 1
