"""`amoxi token` makes a token that opens a door when its setting is pasted, what clients want to have, and no file."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.beta import BetaMCPToolsetParam, BetaRequestMCPServerURLDefinitionParam
from click.testing import CliRunner, Result
from openai.types.responses.tool_param import Mcp
from pydantic import ConfigDict, TypeAdapter, with_config

from amoxi_py.cli.token import token as token_command
from processes import clean_environment

SHOP = {"app": {"name": "shop"}, "ai": {"mcp": {"enabled": True}}}


@pytest.fixture
def token(amoxi: Any) -> Any:
    """Run it in a folder: `token(folder, "acme")`."""
    return lambda folder, *arguments: amoxi(folder, "token", *arguments)


def test_the_setting_is_ready_to_paste_and_says_who_is_let_in(token: Any, tmp_path: Path) -> None:
    answer = token(tmp_path, "Acme_EU")
    assert answer.returncode == 0
    variable, _, made = answer.stdout.strip().partition("=")
    assert variable == "AI_API_CALLERS_ACME_EU"
    assert len(made) >= 43
    assert "'api:acme-eu'" in answer.stderr
    assert made not in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_each_token_is_another_one(here: Any) -> None:
    made = [json.loads(here({}, "acme", "--json").stdout) for _ in range(2)]
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
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.loads(answer.read())["items"][0]["name"] == "echo"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in this process, in a folder with these settings: `here(settings, "desktop", "--json")`."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ.keys() - clean_environment().keys():
        monkeypatch.delenv(name)

    def run(settings: dict[str, Any], *arguments: str, dotenv: str = "") -> Result:
        (tmp_path / "application.json").write_text(json.dumps(settings), "utf-8")
        (tmp_path / ".env").write_text(dotenv, "utf-8")
        return CliRunner().invoke(token_command, arguments)

    return run


@pytest.fixture
def made(here: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    """Make a token for `desktop` in a folder with these settings, and return what is told as JSON."""

    def make(settings: dict[str, Any] | None = None, *arguments: str, dotenv: str = "") -> dict[str, Any]:
        answer = here(settings or SHOP, "desktop", "--json", *arguments, dotenv=dotenv)
        assert answer.exit_code == 0, answer.output
        told: dict[str, Any] = json.loads(answer.stdout)
        return told

    return make


def pasted(told: dict[str, Any], client: str) -> Any:
    """What a client reads of its snippet."""
    return json.loads(told["snippets"][client]["text"])


def test_where_mcp_is_enabled_the_token_is_for_it(made: Any) -> None:
    told = made()
    assert (told["kind"], told["principal"]) == ("mcp", "mcp:desktop")
    assert told["setting"] == f"AI_MCP_CALLERS_DESKTOP={told['token']}"
    assert made(None, "--kind", "api")["principal"] == "api:desktop"
    assert made({"app": {"name": "shop"}})["kind"] == "api"
    assert made({"app": {"name": "shop"}}, dotenv="AI_MCP_ENABLED=true\n")["kind"] == "mcp"


def test_each_client_gets_the_form_that_it_reads(made: Any) -> None:
    told = made()
    url, bearer = told["url"], f"Bearer {told['token']}"
    assert (url, told["client_variable"]) == ("http://localhost:8080/mcp", "SHOP_TOKEN")
    assert shlex.split(told["snippets"]["claude-code"]["text"]) == [
        *("claude", "mcp", "add", "--transport", "http", "shop", url, "--header", f"Authorization: {bearer}")
    ]
    http = {"type": "http", "url": url}
    assert pasted(told, "claude-code-project") == {
        "mcpServers": {"shop": {**http, "headers": {"Authorization": "Bearer ${SHOP_TOKEN}"}}}
    }
    assert pasted(told, "cursor") == {
        "mcpServers": {"shop": {"url": url, "headers": {"Authorization": "Bearer ${env:SHOP_TOKEN}"}}}
    }
    vs_code = pasted(told, "vs-code")
    (asked,) = vs_code["inputs"]
    assert (asked["type"], asked["password"]) == ("promptString", True)
    assert vs_code["servers"] == {"shop": {**http, "headers": {"Authorization": f"Bearer ${{input:{asked['id']}}}"}}}
    bridge = pasted(told, "claude-desktop")["mcpServers"]["shop"]
    assert (bridge["command"], bridge["env"]) == ("npx", {"AUTH_HEADER": bearer})
    assert bridge["args"][:3] == ["-y", "mcp-remote", url]
    assert bridge["args"][-2:] == ["--header", "Authorization:${AUTH_HEADER}"]


def test_the_snippets_for_the_apis_are_what_their_packages_take(made: Any) -> None:
    told = made(SHOP | {"server": {"public-url": "https://shop.example.com/"}})
    url = "https://shop.example.com/mcp"
    anthropic = pasted(told, "anthropic-api")
    (server,) = anthropic["mcp_servers"]
    (toolset,) = anthropic["tools"]
    strict = ConfigDict(extra="forbid")
    assert TypeAdapter(with_config(strict)(BetaRequestMCPServerURLDefinitionParam)).validate_python(server) == {
        "type": "url",
        "url": url,
        "name": "shop",
        "authorization_token": told["token"],
    }
    assert TypeAdapter(with_config(strict)(BetaMCPToolsetParam)).validate_python(toolset)["mcp_server_name"] == "shop"
    (tool,) = pasted(told, "openai-api")["tools"]
    assert TypeAdapter(with_config(strict)(Mcp)).validate_python(tool) == tool
    assert (tool["server_url"], tool["authorization"], tool["type"]) == (url, told["token"], "mcp")


def test_only_those_that_know_no_variable_hold_the_token(made: Any) -> None:
    told = made()
    holding = {client for client, one in told["snippets"].items() if told["token"] in one["text"]}
    assert holding == {"claude-code", "claude-desktop", "anthropic-api", "openai-api"}


@pytest.mark.parametrize(
    ("settings", "arguments", "url"),
    [
        ({"server": {"port": 9000, "host": "10.0.0.5"}}, (), "http://10.0.0.5:9000/mcp"),
        ({"server": {"host": "0.0.0.0"}}, (), "http://localhost:8080/mcp"),
        (
            {"server": {"public-url": "https://x.example.com"}, "ai.http.prefix": "/ai"},
            (),
            "https://x.example.com/ai/mcp",
        ),
        ({}, ("--url", "https://y.example.com/ai/mcp"), "https://y.example.com/ai/mcp"),
    ],
)
def test_clients_are_told_the_address_of_the_settings(
    made: Any, settings: dict[str, Any], arguments: tuple[str, ...], url: str
) -> None:
    told = made({"app.name": "shop", "ai.mcp.enabled": True} | settings, *arguments)
    assert told["url"] == url
    assert pasted(told, "cursor")["mcpServers"]["shop"]["url"] == url
    assert ("--allow-http" in told["snippets"]["claude-desktop"]["text"]) == url.startswith("http://10.")


@pytest.mark.parametrize(
    ("app", "name"), [("Café & Co.", "Caf-Co"), ("42", "app-42"), ("日本", "app"), ("my_app", "my-app")]
)
def test_any_name_of_an_app_becomes_one_that_clients_take(made: Any, app: str, name: str) -> None:
    told = made({"app.name": app, "ai.mcp.enabled": True})
    assert list(pasted(told, "cursor")["mcpServers"]) == [name]
    assert re.fullmatch(r"[A-Z][A-Z0-9_]*_TOKEN", told["client_variable"])


def test_what_is_to_be_pasted_is_on_stdout_and_what_is_told_on_stderr(here: Any) -> None:
    answer = here(SHOP, "desktop")
    setting = answer.stdout.splitlines()[0]
    made = setting.removeprefix("AI_MCP_CALLERS_DESKTOP=")
    assert f"export SHOP_TOKEN={made}" in answer.stdout
    clients = ("Claude Code", "Claude Desktop", "Cursor", "VS Code", "Anthropic", "OpenAI")
    assert [title for title in clients if f"\n# {title}" not in answer.stdout] == []
    assert made not in answer.stderr
    assert "set 'server.public-url', or say --url" in answer.stderr
    alone = here(SHOP, "desktop", "--only-setting").stdout
    assert re.fullmatch(r"AI_MCP_CALLERS_DESKTOP=[\w-]{43}\n", alone)


def test_it_says_what_else_is_needed(here: Any) -> None:
    plain = {"app": {"name": "shop"}}
    assert "--kind mcp makes one for /mcp" in here(plain, "desktop").stderr
    known = "AI_MCP_CALLERS_DESKTOP=0123456789abcdef\n"
    told = here(plain, "desktop", "--kind", "mcp", "--profile", "dev", dotenv=known).stderr
    assert "'ai.mcp.enabled' is not set here" in told
    assert "There is a token of 'mcp:desktop' already" in told
    assert "0123456789abcdef" not in told


@pytest.mark.parametrize("name", ["", "ac me", "-acme", "acme_", "a__b", "äcme", "a.b"])
def test_a_name_that_no_variable_can_hold_is_refused(here: Any, name: str) -> None:
    answer = here(SHOP, "--", name)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "is no name for a caller" in answer.stderr


AGENTS = """
from amoxi_py import agent

@agent
class Clerk:
    'You help.'

@agent
class Keeper:
    'You keep.'
"""
A2A = {"app": {"name": "shop"}, "ai": {"a2a": {"enabled": True}}}


def test_a_token_for_a2a_comes_with_a_first_message(made: Any, tmp_path: Path) -> None:
    told = made(A2A)
    assert (told["kind"], told["principal"]) == ("a2a", "a2a:desktop"), "no other door is open"
    assert told["setting"] == f"AI_A2A_CALLERS_DESKTOP={told['token']}"
    assert (told["url"], told["client_variable"]) == ("http://localhost:8080/a2a", "SHOP_TOKEN")
    words = shlex.split(told["snippets"]["curl"]["text"])
    assert words[:3] == ["curl", "-s", "http://localhost:8080/a2a"]
    assert f"Authorization: Bearer {told['token']}" in words
    assert "metadata" not in json.loads(words[-1])["params"], "without an app it knows of no skill"
    assert told["token"] not in told["snippets"]["a2a-sdk"]["text"], "a program reads it from its environment"
    public = {"server": {"public-url": "https://shop.example.com/"}, "ai": {"http": {"prefix": "/ai"}, **A2A["ai"]}}
    told = made(public)
    assert told["url"] == "https://shop.example.com/ai/a2a"
    assert told["snippets"]["card"]["text"] == "curl -s https://shop.example.com/ai/.well-known/agent-card.json"
    assert made({**SHOP, "ai": {"mcp": {"enabled": True}, "a2a": {"enabled": True}}})["kind"] == "mcp"


def test_the_first_message_by_a2a_names_a_skill_where_it_must(made: Any, tmp_path: Path) -> None:
    (tmp_path / "app_of_tokens").mkdir()
    (tmp_path / "app_of_tokens" / "__init__.py").write_text(AGENTS, "utf-8")
    paths = list(sys.path)
    settings = {"app": {"name": "shop", "package": "app_of_tokens"}, "ai": {"a2a": {"enabled": True}}}
    try:
        told = made(settings)
        chosen = made({**settings, "ai": {"a2a": {"enabled": True, "default-agent": "keeper"}}})
    finally:
        sys.path[:] = paths
        sys.modules.pop("app_of_tokens", None)
    sent = json.loads(shlex.split(told["snippets"]["curl"]["text"])[-1])
    assert sent["params"]["metadata"] == {"skill": "clerk"}
    assert 'request.metadata.update({"skill": "clerk"})' in told["snippets"]["a2a-sdk"]["text"]
    assert "metadata" not in chosen["snippets"]["curl"]["text"]


def test_it_says_what_a2a_needs_besides(here: Any) -> None:
    told = here({"app": {"name": "shop"}}, "partner", "--kind", "a2a").stderr
    assert "it may use the agents at /a2a" in told
    assert "'ai.a2a.enabled' is not set here, so /a2a answers 404" in told
    assert "Partners need an https address" in told
    told = here(A2A, "partner", "--url", "https://shop.example.com/a2a").stderr
    assert "Partners need" not in told


@pytest.mark.parametrize("options", [("--kind", "mcp", "--url", "example.com"), ("--url", "https://example.com/mcp")])
def test_an_address_that_is_of_no_use_is_refused(here: Any, options: tuple[str, ...]) -> None:
    answer = here({"app": {"name": "shop"}}, "desktop", *options)
    assert (answer.exit_code, answer.stdout) == (2, "")
