"""The kits that check the MCP door from outside, and the servers that they call.

They are npm packages. None of them can be given a token for all its requests, so the conformance kits go through a
proxy that adds it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forks import Forks
from kits import MISSING, Kits, find_kits
from processes import ServerProcess, free_port

TOKEN = "kits-token-0123456789"
CALLER = {"AI_MCP_ENABLED": "true", "AI_MCP_CALLERS_KITS": TOKEN}


@pytest.fixture(scope="session")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    """The kits, where they are installed."""
    found = find_kits(tmp_path_factory.mktemp("home-of-the-kits"))
    if found is None:
        pytest.fail(MISSING, False)
    return found


@pytest.fixture(scope="session")
def serve_copy(forks: Forks | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a server on a copy of an app's folder that lives as long as the tests: `serve_copy(folder)`."""
    started: list[ServerProcess] = []

    def serve(folder: Path) -> ServerProcess:
        copy = tmp_path_factory.mktemp(folder.name) / "app"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", "ai", "*.log", "*.jsonl"))
        server = ServerProcess(copy, ["start", "--workers", "1"], port=free_port(), env=CALLER, forks=forks)
        started.append(server)
        server.wait_ready()
        return server

    yield serve
    for server in started:
        server.kill9()
