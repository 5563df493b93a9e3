"""Packages of apps made on the spot, each under a name of its own, because all are imported into this process."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings

_NUMBERS = itertools.count(1)

MakeApp = Callable[..., Settings]


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[MakeApp]:
    """Write an app and return its settings: `make_app(source, {"ai.runs.worker": False})`; no other one is read."""
    paths = list(sys.path)
    made: list[str] = []

    def make(source: str, given: dict[str, Any] | None = None, *, profile: str = "test") -> Settings:
        name = f"app_of_test_{next(_NUMBERS)}"
        made.append(name)
        folder = tmp_path / name
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(source, "utf-8")
        own = {"app.package": name, "app.name": "shop", "ai.http.anonymous": True, "server.stop-grace-s": 2.0}
        return load_settings(folder, profile=profile, environ={}, given={**own, **(given or {})})

    yield make
    sys.path[:] = paths
    for name in list(sys.modules):
        if name.partition(".")[0] in made:
            del sys.modules[name]
