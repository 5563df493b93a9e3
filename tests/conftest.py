"""What the whole suite shares: what a system cannot run is left out here, an app's folder made on the spot, servers."""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from forks import Forks
from postgres_server import GivenServer, shared_postgres
from processes import ServerProcess, clean_environment, free_port

AppFolder = Callable[..., Path]
Serve = Callable[..., ServerProcess]

POSIX_ONLY = {
    "fcntl, resource, os.fork, pty and /proc": (
        "bench/test_bench_figures.py",
        "cli/test_bench_command.py",
        "cli/test_chat_on_a_terminal.py",
        "cli/test_keyboard.py",
        "cli/test_lists_on_a_terminal.py",
        "cli/test_output_refused.py",
        "crash/test_kill_at_every_store_call.py",
        "field/test_files.py",
        "field/test_full_disk.py",
        "field/test_streams.py",
        "field/test_takeover.py",
        "stores/test_sqlite_damage.py",
        "stores/test_sqlite_processes.py",
    ),
    "SIGKILL, SIGSTOP, and SIGTERM as a request": (
        "a2a/test_a2a_processes.py",
        "cli/test_failing_providers.py",
        "cli/test_ingest_command.py",
        "cli/test_metrics_of_processes.py",
        "cli/test_newcomer.py",
        "cli/test_serving.py",
        "cli/test_signals_at_the_start.py",
        "cli/test_supervised.py",
        "docs/test_examples.py",
        "docs/test_pages.py",
        "field/test_bad_tools.py",
        "field/test_both_wires.py",
        "field/test_database_workers.py",
        "field/test_event_handlers.py",
        "field/test_hot_reload.py",
        "field/test_max_attempts.py",
        "field/test_orderly_stop.py",
        "field/test_owners_and_secrets.py",
        "field/test_probes.py",
        "field/test_redaction_everywhere.py",
        "field/test_seed_story.py",
        "field/test_servers_refund.py",
        "field/test_servers_versions.py",
        "field/test_side_by_side.py",
        "field/test_two_servers.py",
        "mcp/test_mcp_processes.py",
        "template/test_images.py",
        "template/test_template.py",
        "template/test_template_with_each_provider.py",
        "testing/test_strict_model_server.py",
    ),
}
LINUX_ONLY = {
    "forks that lack nothing": ("testing/test_forks.py",),
    "/proc, and Debian's packages": (
        "chaos/test_chaos.py",
        "cli/test_allocator.py",
        "databases/test_own_servers.py",
        "field/test_behind_nginx.py",
        "field/test_database_clocks.py",
        "field/test_database_connections.py",
        "field/test_database_long_conversation.py",
        "field/test_database_lost_lines.py",
        "field/test_database_poolers.py",
        "field/test_servers_recovery.py",
        "stores/test_postgres_first_open.py",
        "stores/test_postgres_traps.py",
    ),
}
LONG = ("test_kill_at_every_store_call.py", "test_newcomer.py", "test_both_wires.py", "test_examples.py")
LEFT_OUT = (POSIX_ONLY if sys.platform == "win32" else {}) | (LINUX_ONLY if sys.platform != "linux" else {})
collect_ignore = [name for names in LEFT_OUT.values() for name in names]


gc.disable()  # a third of what the collection of the tests takes would be looks at modules, which stay


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Keep the tests of a group in one process: the marks do not come through to it from the others."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # where there are several processes

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group_of(config.rootpath / nodeid.partition("::")[0]) or nodeid

    return ByGroup(config, log)


@cache
def _group_of(path: Path) -> str | None:
    """Return the group that all tests of a file are in."""
    found = re.search(r'pytest\.mark\.xdist_group\("([^"]+)"\)', path.read_text("utf-8"))
    return None if found is None else found[1]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if sys.platform == "win32":
        items[:] = [item for item in items if not _needs_postgres(item)]
    items.sort(key=_when)


def _when(item: Any) -> int:
    """Return when a test begins: what one process does alone for minutes is not left for the end."""
    if item.get_closest_marker("xdist_group") is not None:
        return 0
    return 1 if item.path.name in LONG else 2


def _needs_postgres(item: Any) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "postgres" in (*getattr(item, "fixturenames", ()), *parameters)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for what, names in LEFT_OUT.items():
        terminalreporter.write_line(f"left out, because this system has no {what}: {', '.join(names)}")
    if sys.platform == "win32":
        terminalreporter.write_line("left out, because no PostgreSQL is started on this system: all tests that use one")


MINIMAL_APP = {
    "app/__init__.py": "",
    "app/echo.py": '''
from amoxi_py import agent, tool


@tool(read_only=True)
def lookup_thing(thing_id: str) -> dict[str, str]:
    """Look up a thing.

    Args:
        thing_id: The thing's number, e.g. T-1
    """
    return {"id": thing_id, "status": "found"}


@agent(tools=[lookup_thing])
class Echo:
    """You look up things."""
''',
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def app_folder(tmp_path: Path) -> AppFolder:
    """Make a folder with an app: `app_folder(files, settings)`; without files, an agent `echo` with one tool."""
    made = 0

    def make(files: Mapping[str, str] | None = None, settings: Mapping[str, Any] | None = None) -> Path:
        nonlocal made
        made += 1
        folder = tmp_path / f"app-folder-{made}"
        for name, text in (MINIMAL_APP if files is None else files).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        folder.mkdir(exist_ok=True)
        (folder / "application.json").write_text(json.dumps(settings or {}), "utf-8")
        return folder

    return make


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this test run, one for all its processes."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def forks(run_folder: Path) -> Iterator[Forks | None]:
    """Processes of `amoxi` without the second that the imports of each take, where there are such."""
    if sys.platform != "linux":
        yield None
        return
    forks = Forks(clean_environment(), run_folder)
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def postgres(run_folder: Path) -> Iterator[GivenServer]:
    """The PostgreSQL of this test run, one for all its processes; for one to restart there is `own_postgres`."""
    with shared_postgres(run_folder) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: GivenServer) -> Iterator[str]:
    """The address of an empty database for this test alone."""
    url = postgres.fresh_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def serve(forks: Forks | None) -> Iterator[Serve]:
    """Start an `amoxi` command as a real process group, `serve(folder, env=..., command="start")`.

    It is a fork, or with `anew` an interpreter of its own, for what is about its start.
    """
    started: list[ServerProcess] = []

    def start(
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        command: str = "start",
        args: Sequence[str] = (),
        port: int | None = None,
        wait_ready: bool = True,
        anew: bool = False,
    ) -> ServerProcess:
        arguments = list(args)
        if command == "start" and "--workers" not in arguments:
            arguments += ["--workers", "1"]
        server = ServerProcess(
            folder,
            [command, *arguments],
            port=port or free_port(),
            env=env or {},
            forks=None if anew else forks,
        )
        started.append(server)
        if wait_ready:
            server.wait_ready()
        return server

    yield start
    for server in started:
        server.kill9()
