"""`amoxi bench` from outside: it measures, writes, compares, and says what it cannot do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from amoxi_py.testing.bench.app_process import App, app_server
from amoxi_py.testing.bench.figures import Times
from amoxi_py.testing.bench.memory import probe_memory
from amoxi_py.testing.bench.outcome import SweepRow, begin_outcome, read_outcome, write_outcome
from amoxi_py.testing.bench.overload import overload
from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.provider_process import played_provider
from amoxi_py.testing.bench.soak import growth_of, soak
from amoxi_py.testing.bench.tables import memory_line
from processes import clean_environment

QUICK = ["--seconds", "0.5", "--ttft-ms", "50", "--workers", "1"]
PROFILE = Profile(ttft_ms=50)


def bench(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "amoxi_py", "bench", *arguments],
        cwd=folder,
        env=clean_environment(env),
        text=True,
        capture_output=True,
        timeout=100,
    )


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".amoxi-bench-")]


def test_a_sweep_prints_and_writes_its_figures_beside_a_pass_through(tmp_path: Path) -> None:
    earlier("", rss=10**12, file=tmp_path / "then.json")
    files = ["--out", "now.json", "--plot", "now.svg", "--compare", "then.json"]
    proxy = "http://127.0.0.1:1"  # nobody there; it must not be asked for what is on this machine
    done = bench(tmp_path, "--c", "2", *QUICK, "--peer", "passthrough", *files, http_proxy=proxy)
    assert done.returncode == 0, done.stderr + done.stdout
    head, ours, peer, ratio, *compared = done.stdout.splitlines()
    assert head.split()[:3] == ["c", "turns/s", "ideal"]
    assert ours.split()[:2] == ["amoxi", "2"]
    assert peer.split()[:2] == ["passthrough", "2"]
    assert ratio.startswith("amoxi / passthrough, c=2: ")
    assert [line[:4] for line in compared] == ["ok  "] * 4
    found = read_outcome(tmp_path / "now.json")
    assert [row.server for row in found.sweep] == ["amoxi", "passthrough"]
    for row in found.sweep:
        assert 0 < row.turns_per_s <= row.ideal * 1.5
        assert row.errors == {}
        assert row.cpu_ms is not None
        assert row.cpu_ms > 0
        assert row.rss > 10_000_000
        assert 0 < row.most_at_provider <= 2
    assert (tmp_path / "now.svg").read_text().startswith("<svg ")
    assert left_over(tmp_path) == []


def test_a_comparison_fails_when_a_figure_grew_and_says_which(tmp_path: Path) -> None:
    app = tmp_path / "shop"
    (app / "app").mkdir(parents=True)
    (app / "app" / "__init__.py").write_text('from amoxi_py import agent\n\n\n@agent\nclass Keeper:\n    """Help."""\n')
    (app / "application.json").write_text(json.dumps({"ai": {"http": {"prefix": "/ai"}}}))
    earlier("shop", rss=1_000_000, file=app / "then.json")
    done = bench(app, "--app", "--c", "2", *QUICK, "--compare", "then.json")
    assert not (app / "data").exists()  # its own store is not touched
    assert done.returncode == 1
    compared = {line.split(", ", 1)[1].partition(":")[0]: line[:4] for line in done.stdout.splitlines()[2:]}
    assert compared == {
        "turn p95, ms": "ok  ",
        "first word p95, ms": "ok  ",
        "CPU per turn, ms": "ok  ",
        "memory, bytes": "GREW",
    }


def earlier(app: str, *, rss: int, file: Path) -> None:
    """Write an outcome of 2 clients whose figures but memory are so high that nothing exceeds them."""
    endless = Times(count=1, p50=1e9, p95=1e9, p99=1e9, longest=1e9)
    written = begin_outcome(profile=PROFILE, app=app, workers=1, store="file", window_s=0.5)
    row = SweepRow(
        server="amoxi",
        clients=2,
        ideal=1.0,
        turns_per_s=1.0,
        ttft=endless,
        turn=endless,
        cpu_ms=1e9,
        rss=rss,
        errors={},
        samples={},
        refused=0,
        most_at_provider=2,
    )
    written.sweep = [row]
    write_outcome(written, file)


def test_a_soak_tells_each_part(tmp_path: Path) -> None:
    done = bench(tmp_path, "--soak", "0.02", "--c", "8", *QUICK)
    assert done.returncode == 0, done.stderr + done.stdout
    head, part, check = done.stdout.splitlines()
    assert head.split()[:3] == ["part", "c", "turns/s"]
    assert part.split()[:2] == ["1", "4"]  # half of the clients
    assert check == "ok    errors: 0 (limit 0)"


def test_a_soak_of_several_parts_has_the_figures_of_each(tmp_path: Path) -> None:
    with played_provider(PROFILE, tmp_path) as provider, app_server(App(workers=1), tmp_path, provider.url) as server:
        rows = soak(server, PROFILE, clients=4, minutes=0.02, part_s=0.4, on_row=lambda row: None)
    assert [row.number for row in rows] == [0, 1, 2]
    for row in rows:
        assert row.errors == {}
        assert row.rss > 10_000_000
        assert row.turns_per_s > 0
        assert row.cpu_ms is not None
        assert row.store_bytes is not None
    assert len(growth_of(rows)) > 1


def test_in_an_overload_what_was_accepted_completes_and_the_rest_is_refused(tmp_path: Path) -> None:
    quick = Profile(ttft_ms=40)
    (tmp_path / "server").mkdir()
    with played_provider(quick, tmp_path) as provider:
        row = overload(App(workers=1), provider, quick, tmp_path / "server", clients=40, seconds=0.4, calm_after_s=0.2)
        assert provider.stats()["most_in_flight"] <= row.provider_limit
    assert row.errors == {}
    assert row.completed > 0
    assert row.refused.count > 0
    assert row.refused_without_wait == 0
    assert row.refusal_cpu_ms is not None
    assert row.before.count > 0
    assert row.after.count > 0
    checked = {check.name: check.ok for check in row.checks}
    assert checked["accepted runs, answers and streams that failed"]
    assert checked["refused"]


def test_memory_is_looked_at_before_with_and_after_the_conversations(tmp_path: Path) -> None:
    with played_provider(PROFILE, tmp_path) as provider:
        told: list[Any] = []
        (row,) = probe_memory(
            App(workers=1, settings={"AI_RUNS_MAX_IN_FLIGHT": "20"}),
            provider,
            PROFILE,
            tmp_path,
            counts=[30],
            seconds=1.2,
            ttl_s=1,
            after_ttl_s=0.1,
            on_row=told.append,
        )
    assert told == [row]
    assert min(row.before, row.during, row.after) > 10_000_000
    assert row.errors == {}
    assert row.refused > 0  # so it is no figure of 30 conversations, and that is told
    assert memory_line(row).endswith(f"  0, {row.refused} refused")


def test_in_postgresql_it_measures_in_a_schema_of_its_own_and_drops_it(tmp_path: Path, postgres_url: str) -> None:
    done = bench(tmp_path, "--store", "postgres", "--soak", "0.01", "--c", "4", *QUICK, DATABASE_URL=postgres_url)
    assert done.returncode == 0, done.stderr + done.stdout
    assert float(done.stdout.splitlines()[1].split()[-2]) > 0  # KB per run: they were stored there
    with psycopg.connect(postgres_url) as connection:
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'amoxi%'").fetchall()
    assert schemas == []


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--c", "4,x"], 2, "is no list of numbers"),
        (["--c", "0"], 2, "each count is from 1"),
        (["--gate", "--memory"], 2, "--memory and --gate"),
        (["--soak", "1", "--plot", "a.svg"], 2, "belong to the sweep"),
        (["--gate", "--compare", "a.json"], 2, "not for --gate"),
        (["--header", "Authorization"], 2, "is no header"),
        (["--ttft-ms", "0", "--tokens-per-s", "0"], 2, "an answer takes some time"),
        (["--compare", "none.json"], 1, "'none.json' cannot be read"),
        (["--peer", "none.py"], 1, "'none.py' cannot be read"),
        (["--peer", "passthrough", "--peer", "passthrough"], 2, "need names of their own"),
        (["--out", "none/now.json"], 1, "there is no folder 'none'"),
        (["--store", "postgres"], 1, "export DATABASE_URL="),
    ],
)
def test_a_wrong_use_is_told_with_the_way_out(
    amoxi: Any, tmp_path: Path, arguments: list[str], code: int, reason: str
) -> None:
    done = amoxi(tmp_path, "bench", *arguments)
    assert done.returncode == code
    assert reason in done.stderr
    assert left_over(tmp_path) == []


def test_a_database_that_is_not_there_is_told_by_the_app(tmp_path: Path) -> None:
    done = bench(tmp_path, "--store", "postgres", *QUICK, DATABASE_URL="postgresql://none@127.0.0.1:1/none")
    assert done.returncode == 1
    assert "before it was ready" in done.stderr
    assert "drop it by hand" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_app_that_does_not_start_or_has_several_agents_is_told(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "application.json").write_text('{"ai": {"runs": {"worker": "perhaps"}}}')
    done = bench(tmp_path, "--app", *QUICK)
    assert done.returncode == 1
    assert "'ai.runs.worker'" in done.stderr
    (tmp_path / "application.json").write_text("{}")
    agents = 'from amoxi_py import agent\n\n\n@agent\nclass One:\n    """1"""\n\n\n@agent\nclass Two:\n    """2"""\n'
    (tmp_path / "app" / "__init__.py").write_text(agents)
    done = bench(tmp_path, "--app", *QUICK)
    assert done.returncode == 1
    assert "--agent; there are: one, two" in done.stderr


def test_a_benchmark_that_is_stopped_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "amoxi_py", "bench", "--c", "2", "--workers", "1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().split()[0] == "c"  # its servers run
    below = _children_of(process.pid)
    assert len(below) >= 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 1  # it is no measurement that went well
    deadline = time.monotonic() + 30
    while any(_lives(pid) for pid in below):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert left_over(tmp_path) == []


def _children_of(parent: int) -> list[int]:
    if sys.platform == "linux":
        told = [
            int(pid) for file in Path(f"/proc/{parent}/task").glob("*/children") for pid in file.read_text().split()
        ]
        return sorted(told)
    pgrep = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=True)
    return [*map(int, pgrep.stdout.split())]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
