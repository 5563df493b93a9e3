"""`amoxi new` makes an app that is the template under another name, and never touches what is there."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

TEMPLATE = Path(__file__).parents[2] / "app_template"
ANSWER = "Here's what I found:\nID: A-1001\nItem: Trail backpack, 28 L\nStatus: shipped"


@pytest.fixture
def new(amoxi: Any) -> Any:
    """Run it in a folder: `new(folder, "shop")`."""
    return lambda folder, *arguments: amoxi(folder, "new", *arguments)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_files_are_the_templates_with_the_apps_name_and_the_needed_version(new: Any, tmp_path: Path) -> None:
    answer = new(tmp_path, "my-shop")
    assert answer.returncode == 0, answer.stderr
    made = files_in(tmp_path / "my-shop")
    differ = {path for path, content in made.items() if content != (TEMPLATE / path).read_bytes()}
    assert differ == {"pyproject.toml", "application.json", "README.md"}
    project = tomllib.loads(made["pyproject.toml"].decode())["project"]
    assert project["name"] == "my-shop"
    assert f"amoxi-py[openai]>={version('amoxi-py')}" in project["dependencies"]
    assert json.loads(made["application.json"])["app"]["name"] == "my-shop"
    assert made["README.md"].startswith(b"# my-shop\n")
    assert b"agent-app" not in b"".join(made.values())
    promised = {".env.example", ".gitignore", "Dockerfile", "data/.gitkeep", "app/__init__.py"}
    assert promised <= made.keys()
    assert any(path.startswith("tests/test_") for path in made)
    left_behind = [path for path in made if "__pycache__" in path or (path.startswith("data/") and "keep" not in path)]
    assert left_behind == []


def test_help_tells_what_is_made(new: Any, tmp_path: Path) -> None:
    told = new(tmp_path, "--help").stdout
    for name in ("app/", "tests/", "application.json", "pyproject.toml", "Dockerfile", ".gitignore", "data/"):
        assert name in told


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(new: Any, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "README.md").write_text("mine", "utf-8")
    answer = new(tmp_path, "shop")
    assert answer.returncode == 1
    assert "the folder 'shop' is not empty" in answer.stderr
    assert "--force would keep README.md as they are" in answer.stderr
    assert files_in(tmp_path / "shop") == {"README.md": b"mine"}


def test_force_adds_what_is_missing_and_overwrites_nothing(new: Any, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "README.md").write_text("mine", "utf-8")
    (tmp_path / "shop" / ".gitignore").symlink_to("nowhere")
    answer = new(tmp_path, "shop", "--force")
    assert answer.returncode == 0, answer.stderr
    assert f"kept {Path('shop', 'README.md')}, which was there" in answer.stdout
    made = files_in(tmp_path / "shop")
    assert made["README.md"] == b"mine"
    assert "app/agents.py" in made
    assert os.readlink(tmp_path / "shop" / ".gitignore") == "nowhere"


def test_an_empty_folder_is_filled_also_the_current_one(new: Any, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    assert new(tmp_path / "shop", ".").returncode == 0
    assert (tmp_path / "shop" / "app" / "agents.py").is_file()


@pytest.mark.parametrize("name", ["1shop", "my shop", "-shop", "shop-", "s.hop", "ümlaut", "con", "a" * 65, "openai"])
def test_a_name_that_cannot_be_used_is_refused_before_anything_is_made(new: Any, tmp_path: Path, name: str) -> None:
    answer = new(tmp_path, "--", name)
    assert answer.returncode == 2
    assert "is no name for an app" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told_without_a_traceback(new: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    for place, reason in ((Path("file"), "is a file"), (Path("file", "shop"), "cannot be made")):
        answer = new(tmp_path, str(place))
        assert answer.returncode == 1
        assert reason in answer.stderr
        assert "Traceback" not in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_next_steps_can_be_typed(new: Any, tmp_path: Path) -> None:
    steps = new(tmp_path, "shop").stdout.split("next:\n")[1].split("\n\n")[0].splitlines()
    commands = [shlex.split(step) for step in steps]
    assert commands[0] == ["cd", "shop"]
    assert [command[-2:] for command in commands[1:]] == [["-e", ".[dev]"], commands[2][-2:], ["-m", "pytest"]]
    assert commands[2][-1] == "dev"
    for command in commands[1:]:
        assert subprocess.run([command[0], "--help"], capture_output=True, timeout=60).returncode == 0
