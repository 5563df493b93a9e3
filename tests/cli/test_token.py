"""`amoxi token` makes a token that opens the HTTP door when its setting is pasted, and writes nothing."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def token(amoxi: Any) -> Any:
    """Run it in a folder: `token(folder, "acme")`."""
    return lambda folder, *arguments: amoxi(folder, "token", *arguments)


@pytest.mark.parametrize("name", ["ACME_EU", "acme-eu", "Acme-Eu"])
def test_the_setting_is_ready_to_paste_and_says_who_is_let_in(token: Any, tmp_path: Path, name: str) -> None:
    answer = token(tmp_path, name)
    assert answer.returncode == 0
    variable, _, made = answer.stdout.strip().partition("=")
    assert variable == "AI_API_CALLERS_ACME_EU"
    assert len(made) >= 43
    assert "'api:acme-eu'" in answer.stderr
    assert made not in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_each_token_is_another_one(token: Any, tmp_path: Path) -> None:
    made = [json.loads(token(tmp_path, "acme", "--json").stdout) for _ in range(2)]
    assert made[0]["token"] != made[1]["token"]
    fixed = {key: made[0][key] for key in ("name", "kind", "principal", "variable")}
    assert fixed == {"name": "acme", "kind": "api", "principal": "api:acme", "variable": "AI_API_CALLERS_ACME"}


def test_the_pasted_setting_opens_the_door(token: Any, serve: Any, app_folder: Any) -> None:
    folder = app_folder()
    with (folder / ".env").open("w", encoding="utf-8") as dotenv:
        dotenv.write(token(folder, "acme").stdout)
    made = (folder / ".env").read_text("utf-8").strip().partition("=")[2]
    server = serve(folder, command="dev", env={"AI_HTTP_ANONYMOUS": "false"})
    request = urllib.request.Request(f"{server.url}/agents", headers={"authorization": f"Bearer {made}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert json.loads(answer.read())["items"][0]["name"] == "echo"


@pytest.mark.parametrize("name", ["", "ac me", "-acme", "acme_", "a__b", "äcme", "a.b"])
def test_a_name_that_no_variable_can_hold_is_refused(token: Any, tmp_path: Path, name: str) -> None:
    answer = token(tmp_path, "--", name)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "is no name for a caller" in answer.stderr


@pytest.mark.parametrize(("kind", "door"), [("mcp", "MCP"), ("a2a", "A2A")])
def test_a_door_that_is_not_there_yet_gets_no_token(token: Any, tmp_path: Path, kind: str, door: str) -> None:
    answer = token(tmp_path, "acme", "--kind", kind)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert f"callers by {door} are not in this version" in answer.stderr
