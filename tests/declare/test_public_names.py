"""The names that an app imports: exactly the listed ones, and light to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import amoxi_py

LISTED = Path(__file__).parent.parent / "public_api.txt"


def test_the_public_names_are_the_listed_ones() -> None:
    assert LISTED.read_text("utf-8").split() == sorted(amoxi_py.__all__)
    assert set(amoxi_py.__all__) <= set(dir(amoxi_py))


@pytest.mark.parametrize("name", [name for name in amoxi_py.__all__ if name != "create_app"])
def test_each_public_name_can_be_imported(name: str) -> None:
    assert getattr(amoxi_py, name).__name__ == name


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = amoxi_py.nonsense


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import amoxi_py", ["amoxi_py.", "pydantic", "asyncio", "importlib.metadata"]),
        (
            "from amoxi_py import tool, agent, singleton, step, configure, ToolContext",
            ["pydantic", "dishka", "asyncio"],
        ),
    ],
)
def test_importing_the_package_imports_nothing_heavy(code: str, unwanted: list[str]) -> None:
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    imported = [line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()]
    assert "amoxi_py" in imported
    assert [name for name in imported if name.startswith(tuple(unwanted))] == []
