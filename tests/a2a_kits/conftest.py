"""The clients that others made, and the one server that all of them ask: the template's app."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forks import Forks
from kits import MISSING, Kits, find_kits
from processes import ServerProcess, free_port

TEMPLATE = Path(__file__).parents[2] / "app_template"
LONGER_THAN_ANY_TEST_S = "600"


@pytest.fixture(scope="session")
def tokens() -> dict[str, str]:
    """The tokens of two callers, by name."""
    return {"kits": "kits-token-0123456789", "others": "others-token-0123456789"}


@pytest.fixture(scope="session")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Kits:
    """The clients, where they are installed."""
    found = find_kits(tmp_path_factory.mktemp("home-of-the-kits"))
    if found is None:
        pytest.fail(MISSING, False)
    return found


@pytest.fixture(scope="session")
def server(
    tokens: dict[str, str], forks: Forks | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A server of the template's app, where a refund takes longer than any test."""
    folder = tmp_path_factory.mktemp("template") / "app"
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__", "ai", "*.log"))
    env = {
        "AI_A2A_ENABLED": "true",
        "AI_A2A_PUSH_ALLOW": "hooks.example.com",
        "RECEIPT_SECONDS": LONGER_THAN_ANY_TEST_S,
        **{f"AI_A2A_CALLERS_{name.upper()}": token for name, token in tokens.items()},
    }
    started = ServerProcess(folder, ["start", "--workers", "1"], port=free_port(), env=env, forks=forks)
    started.wait_ready()
    yield started
    started.kill9()


@pytest.fixture(scope="session")
def found_order() -> str:
    """What the offline model says of order A-1001."""
    return "Here's what I found:\nID: A-1001\nItem: Trail backpack, 28 L\nStatus: shipped"


@pytest.fixture(scope="session")
def declined() -> Any:
    """What it says when a person has said no."""
    return "That didn't work: The person declined this action."
