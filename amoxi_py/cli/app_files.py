"""The files of the template app: found in the installed package or in a checkout, and named after a new app."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from pathlib import Path

import amoxi_py

_NAME = b"agent-app"
_REQUIREMENT = b'"amoxi-py[openai]"'
_NAMED = {"pyproject.toml", "application.json", "README.md"}
_LEFT_BEHIND = (".venv", "__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".env", "dist", "build")


def files_of_new_app(name: str) -> dict[str, bytes]:
    """Return the files of an app called `name`, by their path in its folder with `/`.

    Only the app's name and the version of amoxi_py that it needs differ from the template.
    """
    files = dict(_read(_template(), ""))
    for path in _NAMED:
        files[path] = files[path].replace(_NAME, name.encode())
    needed = f'"amoxi-py[openai]>={version("amoxi-py")}"'.encode()
    files["pyproject.toml"] = files["pyproject.toml"].replace(_REQUIREMENT, needed)
    return files


def _template() -> Traversable:
    installed = resources.files("amoxi_py").joinpath("_app_template")
    return installed if installed.is_dir() else Path(amoxi_py.__file__).parents[1] / "app_template"


def _read(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Read what a clone would hold: not what running the template in a checkout leaves behind."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name in _LEFT_BEHIND or entry.name.endswith((".pyc", ".egg-info")):
            continue
        if path == "data/" and entry.name != ".gitkeep":
            continue
        if entry.is_dir():
            yield from _read(entry, f"{path}{entry.name}/")
        else:
            yield path + entry.name, entry.read_bytes()
