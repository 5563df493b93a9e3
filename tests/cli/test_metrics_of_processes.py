"""`/metrics` of `amoxi start` with several processes: one answer for all of them, also when one is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from amoxi_py.testing.client import Client

pytestmark = pytest.mark.crash

if sys.platform != "win32":
    import fcntl

TOKEN = "a-token-that-is-long-enough"
APP = {
    "app/__init__.py": "",
    "app/packing.py": '''
import os
from prometheus_client import Counter
from amoxi_py import agent, tool
from amoxi_py.testing import ScriptedModel, call

packed = Counter("shop_packed", "Parcels that were packed.", ["size"])


@tool(idempotent=True)
def pack() -> str:
    """Pack."""
    packed.labels("small").inc()
    with open("pids", "a") as log:
        log.write(f"{os.getpid()}\\n")
    return "packed"


@agent(tools=[pack], model=ScriptedModel({"*": [call("pack"), "Packed."]}))
class Packer:
    """You pack."""
''',
}


def wait_for(look: Callable[[], Any], expected: Any, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while (found := look()) != expected:
        assert time.monotonic() < deadline, f"{found}, and not {expected}"
        time.sleep(0.05)


def told_by(url: str, headers: Mapping[str, str] | None = None) -> dict[tuple[str, ...], float]:
    request = urllib.request.Request(f"{url}/metrics", headers=dict(headers or {}))
    with urllib.request.urlopen(request, timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {(sample.name, *sorted(sample.labels.values())): sample.value for one in families for sample in one.samples}


def may_be_cleaned(folder: Path) -> bool:
    """Whether systemd-tmpfiles would delete what is old in it: it asks for a lock on it first."""
    if sys.platform == "win32":
        return False
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_one_process_tells_of_all_and_a_killed_one_leaves_what_it_counted_and_no_gauge(
    app_folder: Any, serve: Any, tmp_path: Path
) -> None:
    shared = tmp_path / "numbers"
    folder = app_folder(APP)
    env = {"AI_API_CALLERS_ACME": TOKEN, "PROMETHEUS_MULTIPROC_DIR": str(shared)}
    shared.mkdir()
    server = serve(folder, env=env, args=("--workers", "2"), anew=True)  # prometheus_client looks when it is imported
    server.wait_log("(2 processes)")

    def pack(count: int) -> None:
        for _ in range(count):  # each over a connection of its own, so that either process may get it
            client = Client(server.url, token=TOKEN)
            assert client.submit("packer", "pack", wait=30)["status"] == "completed"
            client.close()

    def counted() -> tuple[float | None, ...]:
        told = told_by(server.url)
        ended = ("amoxi_runs_ended_total", "completed"), ("amoxi_run_duration_seconds_count", "packer")
        return tuple(told.get(key) for key in (*ended, ("shop_packed_total", "small"), ("amoxi_processes",)))

    pack(6)
    wait_for(counted, (6, 6, 6, 2))
    killed = int((folder / "pids").read_text().split()[0])
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: len(list(shared.glob("amoxi_*.json"))), 3)  # of the one that is started in its place
    wait_for(counted, (6, 6, 6, 2))
    pack(3)
    wait_for(counted, (9, 9, 9, 2))
    assert server.stop() == 0
    assert "Traceback" not in server.log()


def test_the_folder_of_the_numbers_is_gone_after_the_stop(app_folder: Any, serve: Any, tmp_path: Path) -> None:
    env = {"AI_API_CALLERS_ACME": TOKEN, "TMPDIR": str(tmp_path)}
    server = serve(app_folder(APP), env=env, args=("--workers", "2"), anew=True)
    server.wait_log("(2 processes)")
    wait_for(lambda: len(list(tmp_path.glob("amoxi-metrics-*/amoxi_*.json"))), 2)
    assert told_by(server.url)["amoxi_processes",] == 2
    [folder] = tmp_path.glob("amoxi-metrics-*")
    assert not may_be_cleaned(folder)
    assert server.stop() == 0
    assert list(tmp_path.glob("amoxi-metrics-*")) == []


def test_a_token_opens_the_metrics_over_any_way_and_by_any_name(app_folder: Any, serve: Any) -> None:
    env = {
        "AI_API_CALLERS_PROMETHEUS": TOKEN,
        "SERVER_PUBLIC_URL": "https://shop.example",
        "SERVER_TRUSTED_PROXIES": "127.0.0.1",
    }
    server = serve(app_folder(APP), env=env)

    def status(**headers: str) -> int:
        request = urllib.request.Request(f"{server.url}/metrics")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return int(error.code)

    token = {"Authorization": f"Bearer {TOKEN}"}
    assert status() == 200
    assert status(X_Forwarded_For="203.0.113.7") == 401
    assert status(X_Forwarded_For="127.0.0.1") == 401
    assert status(X_Forwarded_For="203.0.113.7", **token) == 200
    assert status(Host="10.0.0.5:8080") == 421, "a foreign name that leads here is not this machine's own"
    assert status(Host="10.0.0.5:8080", **token) == 200
    assert status(Authorization="Bearer some-other-token-0123") == 401
