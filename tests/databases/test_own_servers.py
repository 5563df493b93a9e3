"""What the tests of databases stand on: servers that can be stopped in each way, and of which nothing is left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import keeper_program
from keeper import Kept
from pgbouncer import pgbouncer
from postgres_server import PostgresServer, debian_binaries, own_postgres, shared_postgres
from wrong_clock import faketime_env

HERE = Path(__file__).parent
USES_SHARED = """
import sys
from pathlib import Path
from postgres_server import shared_postgres

with shared_postgres(Path(sys.argv[1])) as server:
    print(server.port, server.folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def own() -> Iterator[PostgresServer]:
    with own_postgres(settings={"deadlock_timeout": "123ms"}) as server:
        yield server


def processes_of(folder: Path) -> list[Path]:
    """The processes that work in a folder or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(process)
        except OSError:
            continue
    return found


def user(run_folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", USES_SHARED, str(run_folder)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate", "kill"])
def test_a_commit_survives_each_way_to_stop_a_server(own: PostgresServer, mode: Any) -> None:
    url = own.fresh_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1")
    pid = own.pid
    own.restart(mode)
    assert own.pid != pid
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT * FROM kept").fetchall() == [(1,)]


def test_a_server_has_the_settings_and_extensions_of_its_test(own: PostgresServer) -> None:
    assert own.ask("SHOW deadlock_timeout") == [("123ms",)]
    assert own.ask("SHOW synchronous_commit") == [("on",)]
    own.ask("CREATE EXTENSION vector")
    with own_postgres(binaries=debian_binaries()) as other:
        assert other.version == debian_binaries().version
        assert other.ask("SELECT * FROM pg_available_extensions WHERE name = 'vector'") == []


def test_a_frozen_server_answers_when_it_goes_on(own: PostgresServer) -> None:
    with psycopg.connect(own.dsn(), autocommit=True) as connection:
        own.freeze()
        with ThreadPoolExecutor() as threads:
            answer = threads.submit(connection.execute, "SELECT 1")
            with pytest.raises(TimeoutError):
                answer.result(0.3)
            own.resume()
            assert answer.result(10).fetchone() == (1,)


def test_nothing_is_left_of_a_server_and_of_one_whose_test_was_killed(tmp_path: Path) -> None:
    with own_postgres() as server:
        assert processes_of(server.folder)
    assert not server.folder.exists()
    assert not processes_of(server.folder)
    killed = user(tmp_path)
    assert killed.stdout is not None
    folder = Path(killed.stdout.readline().split()[1])
    assert processes_of(folder)
    killed.kill()
    killed.communicate()
    deadline = time.monotonic() + 30
    while processes_of(folder) or folder.exists():
        assert time.monotonic() < deadline, "a server is left over"
        time.sleep(0.01)


def test_the_processes_of_a_run_share_one_server_until_the_last_has_ended(tmp_path: Path) -> None:
    users = [user(tmp_path) for _ in range(3)]
    told = {one.stdout.readline() for one in users if one.stdout is not None}
    assert len(told) == 1
    folder = Path(told.pop().split()[1])
    users[0].send_signal(signal.SIGKILL)
    for one in users[:2]:
        one.communicate("")
    assert processes_of(folder)
    users[2].communicate("")
    assert not folder.exists()
    assert not processes_of(folder)
    with shared_postgres(tmp_path) as server:
        assert server.ask("SELECT 1") == [(1,)]


def test_a_pooler_gives_transactions_of_several_clients_one_connection(own: PostgresServer) -> None:
    url = own.fresh_database()
    with pgbouncer(own, default_pool_size=1) as pooler:
        clients = [psycopg.connect(pooler.dsn(url), autocommit=True, prepare_threshold=None) for _ in range(3)]
        pids = {client.execute("SELECT pg_backend_pid()").fetchone() for client in clients}
        assert len(pids) == 1
        pooler.admin("RECONNECT")
        assert {client.execute("SELECT pg_backend_pid()").fetchone() for client in clients}.isdisjoint(pids)
        assert [row["database"] for row in pooler.admin("SHOW SERVERS")] == [url.rpartition("/")[2]]
        for client in clients:
            client.close()
        pooler.restart()
        with psycopg.connect(pooler.dsn(url), prepare_threshold=None) as client:
            assert client.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("seconds", [300, -7200.5])
def test_a_wrong_clock_is_wrong_only_about_the_date(seconds: float) -> None:
    program = (
        "import time; print(time.time()); start = time.monotonic(); time.sleep(0.1); print(time.monotonic(), start)"
    )
    ran = [
        subprocess.run([sys.executable, "-c", program], env={**os.environ, **more}, capture_output=True, text=True)
        for more in ({}, faketime_env(seconds))
    ]
    right, wrong = ([float(word) for word in one.stdout.split()] for one in ran)
    assert wrong[0] - right[0] == pytest.approx(seconds, abs=20)
    assert 0.1 <= wrong[1] - wrong[2] < 5
    assert 0 < wrong[1] - right[1] < 60


def test_a_program_that_cannot_start_says_why() -> None:
    kept = Kept.new("test")
    try:
        with pytest.raises(RuntimeError, match="No such file"):
            kept.start("gone", ["/no/such/program"], end_signal=signal.SIGTERM)
        assert (kept.folder / keeper_program.DOOR).exists()
    finally:
        kept.leave()
    assert not kept.folder.exists()
