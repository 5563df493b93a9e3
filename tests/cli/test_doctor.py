"""`amoxi doctor` finds what keeps an app from starting, says the way out, changes nothing and shows no secret."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from processes import free_port

SECRETS = {
    "OPENAI_API_KEY": "sk-very-secret-key-of-the-provider",
    "AI_API_CALLERS_ACME": "first-secret-token-1234,second-secret-token-5678",
    "SERVER_SECRET": "the-secret-that-signs-cookies",
    "DATABASE_URL": "postgres://shop:very-secret-password@db/shop",
    "PAYMENTS_TOKEN": "secret-of-the-payment-provider",
}


@pytest.fixture
def ask(amoxi: Any) -> Any:
    """Run it in a folder: `ask(folder, "--json", env={...})`."""

    def run(folder: Path, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        answer: subprocess.CompletedProcess[str] = amoxi(
            folder, "doctor", *args, env={"SERVER_PORT": str(free_port()), **(env or {})}
        )
        return answer

    return run


@pytest.fixture
def doctor(ask: Any) -> Any:
    """Run it in a folder: `doctor(folder, env={...})` gives its exit code and its JSON, which is all of its output."""

    def run(folder: Path, *args: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        answer = ask(folder, "--json", *args, env=env)
        return answer.returncode, json.loads(answer.stdout)

    return run


def levels(report: dict[str, Any], level: str) -> list[dict[str, str]]:
    return [finding for finding in report["findings"] if finding["level"] == level]


def value(report: dict[str, Any], key: str) -> tuple[str, str]:
    [row] = [row for row in report["settings"] if row["key"] == key]
    return row["value"], row["source"]


def test_an_app_that_can_start_is_said_so_and_nothing_is_made(doctor: Any, app_folder: Any) -> None:
    folder = app_folder()
    before = sorted(folder.rglob("*.*"))
    code, report = doctor(folder, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert (code, report["ok"], levels(report, "error")) == (0, True, [])
    checks = {finding["check"] for finding in levels(report, "ok")}
    assert {"python", "installation", "settings", "app", "store", "disk", "port", "system"} <= checks
    assert sorted(folder.rglob("*.*")) == before


def test_each_setting_is_shown_with_where_it_came_from(doctor: Any, app_folder: Any) -> None:
    folder = app_folder(settings={"app": {"name": "kiosk"}, "ai": {"runs": {"on-busy": "queue"}}})
    (folder / ".env").write_text("AI_MODEL=offline\nOPENAI_API_KEY=sk-of-the-file\n", "utf-8")
    (folder / ".env").chmod(0o600)
    (folder / "secret").write_text("the-secret-that-signs-cookies\n", "utf-8")
    env = {"AI_RUNS_LEASE_MS": "1000", "SERVER_SECRET_FILE": str(folder / "secret")}
    _, report = doctor(folder, "--profile", "dev", env=env)
    assert report["profile"] == "dev"
    assert value(report, "app.name") == ("kiosk", "application.json")
    assert value(report, "ai.runs.on-busy") == ("queue", "application.json")
    assert value(report, "ai.model") == ("offline", "AI_MODEL in .env")
    assert value(report, "ai.runs.lease-ms") == ("1000", "AI_RUNS_LEASE_MS")
    assert value(report, "server.secret") == ("set", "SERVER_SECRET_FILE")
    assert value(report, "OPENAI_API_KEY") == ("set", "OPENAI_API_KEY in .env")
    assert value(report, "ai.tools.threads") == ("64", "default")
    assert value(report, "ai.http.anonymous") == ("true", "default"), "in dev"


def test_the_model_is_shown_with_the_key_that_decides_for_it(doctor: Any, app_folder: Any) -> None:
    folder = app_folder()
    (folder / "key").write_text("sk-of-anthropic-in-a-file\n", "utf-8")
    keys = {"OPENAI_API_KEY": "sk-of-openai"}
    for env, shown in (
        ({}, ("offline", "default")),
        (keys, ("openai:gpt-5-mini", "OPENAI_API_KEY")),
        ({**keys, "ANTHROPIC_API_KEY_FILE": "key"}, ("anthropic:claude-sonnet-5-5", "ANTHROPIC_API_KEY_FILE")),
    ):
        code, report = doctor(folder, env=env)
        assert (code, value(report, "ai.model")) == (0, shown)
        model = next(finding for finding in report["findings"] if finding["check"] == "model")
        assert shown[0].split(":")[0] in model["text"]


OWN_SETTINGS = """
from pydantic import BaseModel, SecretStr
from amoxi_py import agent, settings

@settings("shop")
class Shop(BaseModel):
    currency: str = "EUR"
    api_key: SecretStr | None = None

@agent
class Helper:
    "Help."
"""


def test_the_sections_of_an_app_are_shown_and_checked_too(ask: Any, app_folder: Any) -> None:
    files = {"app/__init__.py": "", "app/shop.py": OWN_SETTINGS}
    folder = app_folder(files, {"shop": {"api-key": "hidden-key-of-the-shop", "curency": "x"}})
    answer = ask(folder, "--json", env={"SHOP_CURRENCY": "USD"})
    assert "hidden-key-of-the-shop" not in answer.stdout + answer.stderr
    report = json.loads(answer.stdout)
    assert value(report, "shop.currency") == ("USD", "SHOP_CURRENCY")
    assert value(report, "shop.api-key") == ("set", "application.json")
    [mistake] = levels(report, "error")
    assert mistake["text"] == "'shop.curency' in application.json is no setting; did you mean 'shop.currency'?"


def test_one_broken_thing_does_not_hide_the_others(doctor: Any, app_folder: Any) -> None:
    files = {"app/__init__.py": "", "app/bad.py": "print('noise')\ndef broken(:\n"}
    folder = app_folder(files, {"ai": {"runs": {"lease-ms": 3}}, "app": {"nmae": "x"}})
    (folder / "data" / "ai").mkdir(parents=True)
    (folder / "data" / "ai" / "amoxi.db").write_bytes(b"SQLite format 3\x00" + b"garbage" * 1000)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, report = doctor(folder, env={"SERVER_PORT": port, "AI_MODEL": "openai:some-model"})
    assert (code, report["ok"]) == (1, False)
    told = {(finding["check"], finding["text"]) for finding in levels(report, "error")}
    for check, part in (
        ("settings", "'ai.runs.lease-ms' from application.json is 3"),
        ("settings", "did you mean 'app.name'?"),
        ("app", "SyntaxError"),
        ("model", "needs OPENAI_API_KEY"),
        ("store", "is damaged"),
        ("port", f"port {port} of '127.0.0.1' is in use"),
    ):
        assert any(check == found and part in text for found, text in told), (check, part, told)
    assert all(finding["fix"] for finding in [*levels(report, "error"), *levels(report, "warning")])
    assert any(finding["check"] == "python" for finding in levels(report, "ok"))


@pytest.mark.parametrize("as_json", [["--json"], []])
def test_no_secret_is_in_the_output(ask: Any, app_folder: Any, as_json: list[str]) -> None:
    raising = "import os\nraise RuntimeError(' '.join(map(repr, os.environ.values())))\n"
    folder = app_folder({"app/__init__.py": "", "app/bad.py": raising})
    (folder / "token").write_text("token-that-is-in-a-file\n", "utf-8")
    env = {
        **SECRETS,
        "OPENAI_BASE_URL": "https://me:password-in-url@models.example/v1",
        "AI_API_CALLERS_GLOBEX_FILE": str(folder / "token"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    answer = ask(folder, *as_json, env=env)
    assert "RuntimeError" in answer.stdout
    for text in (*SECRETS.values(), *SECRETS["AI_API_CALLERS_ACME"].split(","), "password-in-url", "in-a-file"):
        assert text not in answer.stdout + answer.stderr
    assert "models.example" in answer.stdout
    assert "false" in answer.stdout, "what is no secret is shown"


@pytest.mark.parametrize("as_json", [["--json"], []])
def test_of_a_url_neither_who_asks_nor_the_values_of_its_query_are_shown(
    ask: Any, app_folder: Any, as_json: list[str]
) -> None:
    url = "https://token-as-user@models.example/v1?api_key=value-of-query&flag-of-query#end-of-url"
    settings = {"server": {"public-url": "https://me@shop.example/?k=v1a1u1e"}}
    answer = ask(app_folder(settings=settings), *as_json, env={"OPENAI_BASE_URL": url})
    for text in ("token-as-user", "value-of-query", "flag-of-query", "end-of-url", "me@shop", "v1a1u1e"):
        assert text not in answer.stdout + answer.stderr
    assert "https://***@models.example/v1?api_key=***&***#***" in answer.stdout


def test_a_store_is_looked_at_while_a_server_uses_it(doctor: Any, serve: Any, app_folder: Any) -> None:
    folder = app_folder()
    server = serve(folder)
    code, report = doctor(folder, env={"SERVER_PORT": str(server.port)})
    assert code == 0, levels(report, "error")
    assert any("is whole" in finding["text"] for finding in levels(report, "ok"))
    assert any("up to date" in finding["text"] for finding in levels(report, "ok"))
    assert any("in use by a server of amoxi_py" in finding["text"] for finding in levels(report, "note"))


def test_migrations_that_are_missing_or_unknown_are_told(doctor: Any, serve: Any, app_folder: Any) -> None:
    folder = app_folder()
    assert serve(folder, command="migrate", wait_ready=False).wait_exit() == 0
    with sqlite3.connect(folder / "data" / "ai" / "amoxi.db") as database:
        database.execute("INSERT INTO migration VALUES (9999, '9999_later.sql', 0)")
    database.close()
    assert any("migration 9999" in finding["text"] for finding in levels(doctor(folder)[1], "warning"))
    with sqlite3.connect(folder / "data" / "ai" / "amoxi.db") as database:
        database.execute("DELETE FROM migration")
    database.close()
    code, report = doctor(folder)
    assert code == 0
    assert any("0001_runs.sql" in finding["text"] for finding in levels(report, "note"))


def test_a_folder_without_an_app_is_told_so(doctor: Any, tmp_path: Path) -> None:
    code, report = doctor(tmp_path)
    assert code == 1
    assert any("is no app's folder" in finding["text"] for finding in levels(report, "error"))
    assert any("there is no application.json" in finding["text"] for finding in levels(report, "note"))


def test_people_get_lines_with_the_way_out_and_a_last_one_that_sums_up(ask: Any, app_folder: Any) -> None:
    answer = ask(app_folder(), env={"AI_MODEL": "openai:m"})
    assert answer.returncode == 1
    assert "error    model" in answer.stdout
    assert "fix: " in answer.stdout
    assert answer.stdout.splitlines()[-1].endswith("1 warning: the app cannot start")
    assert "\x1b" not in answer.stdout, "no colours where nobody sees them"


def test_what_mcp_clients_will_find_is_said(doctor: Any, app_folder: Any) -> None:
    folder = app_folder(settings={"server": {"public-url": "https://kiosk.example.com"}, "ai.mcp.enabled": True})
    env = {"AI_MCP_CALLERS_DESKTOP": "a-token-of-this-test"}
    code, report = doctor(folder, env=env)
    [found] = [finding for finding in report["findings"] if finding["check"] == "mcp"]
    assert (code, found["level"]) == (0, "ok")
    assert "https://kiosk.example.com/mcp offers " in found["text"]
    assert "ask_echo to mcp:desktop" in found["text"]
    assert "a-token-of-this-test" not in json.dumps(report)


def test_what_other_agents_will_find_is_said(doctor: Any, app_folder: Any) -> None:
    settings = {"server": {"public-url": "https://kiosk.example.com"}, "ai": {"a2a": {"enabled": True}}}
    code, report = doctor(app_folder(settings=settings), env={"AI_A2A_CALLERS_PARTNER": "a-token-of-this-test"})
    [found] = [finding for finding in report["findings"] if finding["check"] == "a2a"]
    assert (code, found["level"]) == (0, "ok")
    assert found["text"] == "https://kiosk.example.com/a2a has the skills echo, for a2a:partner"
    assert "a-token-of-this-test" not in json.dumps(report)


def test_an_a2a_door_that_cannot_work_is_an_error_and_one_that_hardly_can_a_warning(
    doctor: Any, app_folder: Any
) -> None:
    settings = {"server": {"public-url": "http://kiosk.example.com"}, "ai": {"a2a": {"enabled": True}}}
    settings["ai"]["a2a"] |= {"default-agent": "nobody"}
    code, report = doctor(app_folder(settings=settings), env={"AI_A2A_CARD_KEY": "canary-of-the-key"})
    assert code == 1
    errors = [finding["text"] for finding in levels(report, "error")]
    assert any("'nobody', but this agent is not there: set it to one of echo" in text for text in errors)
    assert any("'ai.a2a.card-key' from AI_A2A_CARD_KEY cannot sign the agent card" in text for text in errors)
    told = [finding["text"] for finding in levels(report, "warning")]
    assert any("amoxi token NAME --kind a2a" in text for text in told)
    assert any("'server.public-url' is 'http://kiosk.example.com'" in text for text in told)
    assert "canary-of-the-key" not in json.dumps(report)


def test_mcp_without_anybody_who_may_come_in_or_an_address_is_warned_about(doctor: Any, app_folder: Any) -> None:
    folder = app_folder(settings={"ai": {"mcp": {"enabled": True}}, "server": {"host": "0.0.0.0"}})
    code, report = doctor(folder)
    assert code == 0
    told = {finding["text"]: finding["fix"] for finding in levels(report, "warning")}
    assert any("amoxi token NAME --kind mcp" in text for text in told)
    [fix] = [fix for text, fix in told.items() if text.startswith("'server.public-url' is not set: clients are told")]
    assert "https://shop.example.com" in fix
