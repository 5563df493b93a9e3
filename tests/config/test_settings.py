"""Settings: where they come from, which wins, and what stops the start."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from amoxi_py.config.load import load_settings
from amoxi_py.config.sections import known_keys, variable_of
from amoxi_py.errors import ConfigError

TOKEN = "a-token-that-is-long-enough"
CARD_KEY = (
    ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
)

PROMISED = """
app.package app.name server.host server.port server.public-url server.secret server.stop-grace-s
server.trusted-proxies server.cors-origins ai.model ai.store.type ai.store.path ai.store.schema ai.store.listen-url
ai.store.connections ai.runs.worker ai.runs.concurrency ai.runs.parallel-calls ai.tools.threads ai.runs.lease-ms
ai.runs.max-attempts ai.runs.max-in-flight ai.runs.on-busy ai.models.concurrency ai.models.max-wait-s
ai.limits.runs-at-once ai.limits.requests-per-minute ai.limits.runs-per-day ai.limits.tokens-per-day
ai.limits.usd-per-day
ai.tools.max-result-kb
ai.files.max-mb ai.conversations.ttl-s ai.retention.days ai.approvals.expire-after-s ai.http.anonymous ai.http.prefix
ai.memory.embedder ai.memory.most ai.memory.days ai.memory.at-start
ai.mcp.enabled ai.mcp.approvals ai.mcp.answer-within-s
ai.mcp.oauth.enabled ai.mcp.oauth.sign-in-url ai.mcp.oauth.issuer ai.mcp.oauth.audience ai.mcp.oauth.name-claim
ai.mcp.oauth.roles-claim ai.mcp.oauth.tenant-claim ai.mcp.oauth.scopes ai.a2a.enabled
ai.a2a.default-agent ai.a2a.deduplicate ai.a2a.push-allow ai.a2a.card-key log.level log.format
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str = "application.json", **content: Any) -> Path:
        (tmp_path / name).write_text(json.dumps(content), "utf-8")
        return tmp_path

    return write


def refusal(folder: Path, profile: str | None = None, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(folder, profile=profile, environ=environ)
    return str(caught.value)


def test_the_settings_are_those_that_are_promised() -> None:
    assert sorted(known_keys()) == sorted(PROMISED.split())


def test_every_setting_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text("utf-8")
    assert [key for key in known_keys() if f"| `{key}` |" not in page] == []


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={})
    assert (settings.profile, settings.app_name) == ("production", tmp_path.name)
    assert (settings.server.host, settings.server.port, settings.server.stop_grace_s) == ("127.0.0.1", 8080, 20)
    assert (settings.ai.runs.lease_ms, settings.ai.runs.concurrency, settings.ai.runs.on_busy) == (
        30000,
        2000,
        "replace",
    )
    assert (settings.anonymous, settings.log_format) == (False, "json")
    assert settings.store_folder == tmp_path.resolve() / "data/ai"
    assert settings.warnings == ()


def test_in_dev_visitors_are_let_in_and_the_log_is_text(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, profile="dev", environ={})
    assert (settings.dev, settings.anonymous, settings.log_format) == (True, True, "text")


def test_later_sources_win_and_each_key_knows_its_source(write: Callable[..., Path]) -> None:
    folder = write(server={"port": 1, "host": "10.0.0.1"}, ai={"runs": {"lease-ms": 1000, "max-attempts": 7}})
    write("application-dev.json", server={"port": 2}, ai={"runs": {"lease-ms": 2000}})
    (folder / ".env").write_text("SERVER_PORT=3\nAI_MODEL=offline\n", "utf-8")
    settings = load_settings(folder, profile="dev", environ={"SERVER_PORT": "4"})
    assert (settings.server.port, settings.server.host) == (4, "10.0.0.1")
    assert (settings.ai.runs.lease_ms, settings.ai.runs.max_attempts, settings.ai.model) == (2000, 7, "offline")
    assert settings.sources == {
        "server.port": "SERVER_PORT",
        "server.host": "application.json",
        "ai.runs.lease-ms": "application-dev.json",
        "ai.runs.max-attempts": "application.json",
        "ai.model": "AI_MODEL in .env",
    }


def test_dotenv_is_read_in_dev_only(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SERVER_PORT=3\nOPENAI_API_KEY=secret-of-dev\n", "utf-8")
    assert load_settings(tmp_path, profile="dev", environ={}).server.port == 3
    production = load_settings(tmp_path, environ={})
    assert (production.server.port, dict(production.provider)) == (8080, {})


def test_the_profile_comes_from_its_variable_and_a_command_may_say_otherwise(tmp_path: Path) -> None:
    assert load_settings(tmp_path, environ={"AMOXI_PROFILE": "staging"}).profile == "staging"
    assert load_settings(tmp_path, profile="dev", environ={"AMOXI_PROFILE": "staging"}).profile == "dev"
    assert "AMOXI_PROFILE" in refusal(tmp_path, AMOXI_PROFILE="../etc")


@pytest.mark.parametrize("key", known_keys())
def test_every_key_has_its_variable(tmp_path: Path, key: str) -> None:
    values = {
        "server.port": "81", "server.public-url": "https://x.example", "server.secret": "s" * 16,
        "ai.store.type": "file", "ai.runs.worker": "false", "ai.runs.max-in-flight": "0", "ai.runs.on-busy": "queue",
        "ai.http.prefix": "/ai", "ai.mcp.approvals": "wait", "ai.mcp.answer-within-s": "30", "log.level": "debug",
        "log.format": "text", "ai.http.anonymous": "yes", "ai.mcp.enabled": "0", "ai.a2a.enabled": "no",
        "ai.a2a.deduplicate": "no", "ai.a2a.push-allow": "10.0.0.0/8", "ai.a2a.card-key": CARD_KEY,
        "ai.mcp.oauth.enabled": "0", "ai.mcp.oauth.issuer": "https://x.example", "ai.mcp.oauth.sign-in-url": "/login",
        "app.package": "shop.agents",
        "server.trusted-proxies": "10.0.0.1", "server.cors-origins": "https://x.example",
        "ai.store.schema": "shop", "ai.store.connections": "70", "ai.memory.embedder": "offline",
        "ai.memory.at-start": "7",
    }  # fmt: skip
    texts = {"app.name", "server.host", "ai.model", "ai.store.path", "ai.store.listen-url", "ai.a2a.default-agent"}
    value = values.get(key, "abc" if key in texts else "700")
    settings = load_settings(tmp_path, environ={variable_of(key): value})
    assert settings.sources == {key: variable_of(key)}
    assert settings.warnings == ()


def test_port_is_a_second_name_and_the_full_one_wins(write: Callable[..., Path]) -> None:
    folder = write(server={"port": 1})
    assert load_settings(folder, environ={"PORT": "5000"}).server.port == 5000
    assert load_settings(folder, environ={"PORT": "5000", "SERVER_PORT": "5001"}).server.port == 5001


def test_an_empty_variable_and_a_null_are_not_set(write: Callable[..., Path]) -> None:
    folder = write(server={"port": 81, "public-url": None})
    settings = load_settings(folder, environ={"SERVER_PORT": "", "AI_MODEL": ""})
    assert (settings.server.port, settings.server.public_url, settings.ai.model) == (81, None, None)


def test_a_model_is_a_name_or_a_list_of_names(write: Callable[..., Path]) -> None:
    folder = write(ai={"model": ["openai:a", "openai:b"]})
    assert load_settings(folder, environ={}).ai.model == ("openai:a", "openai:b")
    assert load_settings(folder, environ={"AI_MODEL": "openai:c"}).ai.model == "openai:c"
    assert load_settings(folder, environ={"AI_MODEL": "openai:c, openai:d"}).ai.model == ("openai:c", "openai:d")
    assert "a name is needed" in refusal(write(ai={"model": []}))


def test_lists_are_written_with_commas_or_as_json(write: Callable[..., Path]) -> None:
    folder = write(server={"cors-origins": ["https://a.example", "https://b.example"]})
    settings = load_settings(folder, environ={"SERVER_TRUSTED_PROXIES": "10.0.0.1, 10.0.0.2,"})
    assert settings.server.cors_origins == ("https://a.example", "https://b.example")
    assert settings.server.trusted_proxies == ("10.0.0.1", "10.0.0.2")


def test_dotted_names_in_a_file_are_the_same_as_nested_ones(write: Callable[..., Path]) -> None:
    folder = write(**{"ai.runs": {"lease-ms": 900}, "server.port": 82})
    settings = load_settings(folder, environ={})
    assert (settings.ai.runs.lease_ms, settings.server.port) == (900, 82)


def test_an_unknown_key_stops_with_the_nearest_one(write: Callable[..., Path]) -> None:
    folder = write(ai={"runs": {"lease-msec": 900}}, shop=5)
    message = refusal(folder)
    assert "'ai.runs.lease-msec' in application.json is no setting; did you mean 'ai.runs.lease-ms'?" in message
    assert "'shop' in application.json is no setting" in message


def test_a_known_key_in_the_place_of_a_section_stops(write: Callable[..., Path]) -> None:
    assert "'ai.runs' in application.json is no setting" in refusal(write(ai={"runs": 5}))
    assert "'server.port.number' in application.json is no setting" in refusal(write(server={"port": {"number": 5}}))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"server": {"port": "many"}}, "'server.port' from application.json is 'many'"),
        ({"server": {"port": True}}, "'server.port' from application.json is True"),
        ({"server": {"port": 70000}}, "65535"),
        ({"server": {"stop-grace-s": -1}}, "'server.stop-grace-s'"),
        ({"server": {"public-url": "shop.example"}}, "'server.public-url'"),
        ({"server": {"cors-origins": {"a": 1}}}, "'server.cors-origins.a'"),
        ({"ai": {"runs": {"lease-ms": 499}}}, "500"),
        ({"ai": {"runs": {"worker": "perhaps"}}}, "'ai.runs.worker' from application.json is 'perhaps'"),
        ({"ai": {"runs": {"on-busy": "wait"}}}, "'replace', 'queue' or 'reject'"),
        ({"ai": {"store": {"type": "mysql"}}}, "'file' or 'postgres'"),
        ({"ai": {"store": {"schema": "Shop"}}}, "'Shop': use small letters, digits and '_'"),
        ({"ai": {"store": {"schema": "shop-ai"}}}, "'shop-ai': use small letters"),
        ({"ai": {"store": {"schema": "pg_shop"}}}, "PostgreSQL's own"),
        ({"ai": {"store": {"schema": "a" * 64}}}, "at most 63"),
        ({"ai": {"store": {"connections": 4}}}, "'ai.store.connections' from application.json is 4"),
        ({"ai": {"store": {"connections": 201}}}, "200"),
        ({"ai": {"http": {"prefix": "ai/"}}}, "'ai.http.prefix'"),
        ({"ai": {"approvals": {"expire-after-s": 0}}}, "'ai.approvals.expire-after-s'"),
        ({"log": {"level": "loud"}}, "'log.level'"),
        ({"app": {"package": "my-app"}}, "'app.package'"),
    ],
)
def test_a_bad_value_stops_with_its_key_and_the_value(write: Callable[..., Path], content: Any, named: str) -> None:
    assert named in refusal(write(**content))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AI_LIMITS_USD_PER_DAY", "-1"),
        ("AI_LIMITS_USD_PER_DAY", "inf"),
        ("AI_LIMITS_RUNS_PER_DAY", "2.5"),
        ("AI_LIMITS_TOKENS_PER_DAY", "1" + 20 * "0"),
        ("AI_RUNS_MAX_IN_FLIGHT", "-1"),
        ("AI_RETENTION_DAYS", "0"),
        ("AI_CONVERSATIONS_TTL_S", "-1"),
    ],
)
def test_a_limit_that_cannot_be_one_stops_the_start(tmp_path: Path, variable: str, value: str) -> None:
    assert f"from {variable} is {value!r}: " in refusal(tmp_path, **{variable: value})


def test_all_mistakes_are_told_at_once(write: Callable[..., Path]) -> None:
    folder = write(server={"port": -1}, ai={"runs": {"lease-ms": 1, "typo": 1}, "mcp": {"approvals": "ask"}})
    variables = {"AI_API_CALLERS_ACME": "short", "AI_RUNS_LEASE": "5000", "AI_RETENTION_DAYS": "0"}
    with pytest.raises(ConfigError) as caught:
        load_settings(folder, environ=variables)
    assert len(caught.value.problems) == 6
    assert "besides: the variable 'AI_RUNS_LEASE' is no setting; did you mean 'AI_RUNS_LEASE_MS'?" in str(caught.value)


def test_what_a_command_says_wins_over_all_and_is_checked(write: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "port").write_text("81\n", "utf-8")
    environ = {"SERVER_PORT_FILE": str(tmp_path / "port"), "SERVER_HOST": "10.0.0.1"}
    settings = load_settings(write(), environ=environ, given={"server.port": 82})
    assert (settings.server.port, settings.server.host) == (82, "10.0.0.1")
    with pytest.raises(ConfigError, match=r"'server\.host' from the command is ''"):
        load_settings(tmp_path, environ={}, given={"server.host": ""})


@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"ai": 1, "ai": 2}', "\x00"])
def test_a_file_that_is_no_settings_file_stops_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "application.json").write_text(text, "utf-8")
    assert "application.json" in refusal(tmp_path)


def test_a_variable_that_looks_like_a_setting_warns_with_the_nearest_one(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={"AI_RUN_LEASE_MS": "1", "AID": "1", "AI_MODEL_FILE": ""})
    assert settings.warnings == ("the variable 'AI_RUN_LEASE_MS' is no setting; did you mean 'AI_RUNS_LEASE_MS'?",)


@pytest.mark.parametrize("name", ["AI_FOOO", "AI_X", "AI_SHOP_CURRENCY"])
def test_what_is_near_to_nothing_gets_no_suggestion(tmp_path: Path, name: str) -> None:
    [warning] = load_settings(tmp_path, environ={name: "1"}).warnings
    assert warning == f"the variable {name!r} is no setting; docs/settings.md lists them all"


def test_a_caller_of_a_door_that_is_shut_is_warned_about(tmp_path: Path) -> None:
    environ = {"AI_MCP_CALLERS_DESK_TOP": TOKEN, "AI_A2A_CALLERS_PARTNER": f"{TOKEN}2"}
    assert load_settings(tmp_path, environ=environ).warnings == (
        "AI_MCP_CALLERS_DESK_TOP opens nothing, because 'ai.mcp.enabled' is false",
        "AI_A2A_CALLERS_PARTNER opens nothing, because 'ai.a2a.enabled' is false",
    )


@pytest.mark.parametrize("door", ["MCP", "A2A"])
def test_a_door_that_nobody_can_use_yet_is_warned_about(tmp_path: Path, door: str) -> None:
    [warning] = load_settings(tmp_path, environ={f"AI_{door}_ENABLED": "true"}).warnings
    assert f"nobody can use {door} yet" in warning
    callers = {f"AI_{door}_ENABLED": "true", f"AI_{door}_CALLERS_DESKTOP": TOKEN}
    assert load_settings(tmp_path, environ=callers).warnings == ()


def test_webhooks_may_go_to_hosts_and_networks_and_to_nothing_else(tmp_path: Path) -> None:
    allowed = "hooks.example.com, 127.0.0.1:9000,10.0.0.0/8,[::1]:9000"
    settings = load_settings(tmp_path, environ={"AI_A2A_PUSH_ALLOW": allowed})
    assert settings.ai.a2a.push_allow == ("hooks.example.com", "127.0.0.1:9000", "10.0.0.0/8", "[::1]:9000")
    for wrong in ("https://hooks.example.com", "*", "hooks.example.com/path", "10.0.0.0/99", "a b", "x:99999", "[:::]"):
        told = refusal(tmp_path, AI_A2A_PUSH_ALLOW=wrong)
        assert "'ai.a2a.push-allow' from AI_A2A_PUSH_ALLOW is" in told
        assert f": {wrong!r} " in told


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the-key\n", "utf-8")
    (tmp_path / "secret").write_text("0123456789abcdef0\n", "utf-8")
    settings = load_settings(
        tmp_path,
        environ={"OPENAI_API_KEY_FILE": str(tmp_path / "key"), "SERVER_SECRET_FILE": str(tmp_path / "secret")},
    )
    assert settings.provider == {"OPENAI_API_KEY": "the-key"}
    assert settings.server.secret is not None
    assert settings.server.secret.get_secret_value() == "0123456789abcdef0"
    assert settings.sources["server.secret"] == "SERVER_SECRET_FILE"
    assert settings.warnings == ()


def test_a_secret_file_that_is_missing_or_doubled_stops(tmp_path: Path) -> None:
    assert "AI_MODEL_FILE" in refusal(tmp_path, AI_MODEL_FILE=str(tmp_path / "nowhere"))
    (tmp_path / "model").write_text("offline", "utf-8")
    assert "keep one" in refusal(tmp_path, AI_MODEL_FILE=str(tmp_path / "model"), AI_MODEL="offline")


def test_the_environment_wins_over_dotenv_also_with_the_other_form(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("openai:x", "utf-8")
    (tmp_path / ".env").write_text("AI_MODEL=offline\n", "utf-8")
    settings = load_settings(tmp_path, profile="dev", environ={"AI_MODEL_FILE": str(tmp_path / "model")})
    assert settings.ai.model == "openai:x"


def test_callers_are_known_by_digest_and_name(tmp_path: Path) -> None:
    settings = load_settings(
        tmp_path, environ={"AI_API_CALLERS_ACME_EU": f"{TOKEN}1, {TOKEN}2", "AI_A2A_CALLERS_PARTNER": f"{TOKEN}3"}
    )
    assert [(caller.door, caller.name) for caller in settings.callers] == [("a2a", "partner"), ("api", "acme-eu")]
    assert settings.callers[1].digests == tuple(hashlib.sha256(f"{TOKEN}{n}".encode()).digest() for n in (1, 2))


def test_a_callers_token_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n", "utf-8")
    settings = load_settings(tmp_path, environ={"AI_API_CALLERS_ACME_FILE": str(tmp_path / "token")})
    assert [caller.name for caller in settings.callers] == ["acme"]


@pytest.mark.parametrize(
    "environ",
    [
        {"AI_API_CALLERS_ACME": "tooshort-XYZ"},
        {"AI_API_CALLERS_ACME": f"{TOKEN},tooshort-XYZ"},
        {"AI_API_CALLERS_ACME": TOKEN, "AI_API_CALLERS_GLOBEX": TOKEN},
        {"AI_API_CALLERS_ACME": TOKEN, "AI_MCP_CALLERS_ACME": TOKEN},
        {"AI_API_CALLERS_ACME": f"{TOKEN},{TOKEN}"},
    ],
)
def test_a_token_that_is_short_or_used_twice_stops_and_is_not_told(tmp_path: Path, environ: dict[str, str]) -> None:
    message = refusal(tmp_path, **environ)
    assert "AI_API_CALLERS_" in message or "AI_MCP_CALLERS_" in message
    assert "XYZ" not in message
    assert TOKEN not in message


def test_no_secret_is_in_a_message_or_a_printed_value(write: Callable[..., Path]) -> None:
    secrets = {
        "OPENAI_API_KEY": "KEY-OF-OPENAI", "DATABASE_URL": "postgresql://u:KEY-OF-DB@h/d",
        "SERVER_SECRET": "KEY-OF-SERVER-123", "AI_API_CALLERS_ACME": "KEY-OF-ACME-1234567",
    }  # fmt: skip
    printed = repr(load_settings(write(), environ=secrets))
    bad = {**secrets, "AI_STORE_LISTEN_URL": "postgresql://u:KEY-OF-LISTEN@h/d"}
    message = refusal(write(server={"secret": "KEY-SHORT"}), **{k: v for k, v in bad.items() if "SECRET" not in k})
    assert "KEY" not in printed.replace("OPENAI_API_KEY", "")
    assert "'server.secret' from application.json" in message
    assert "KEY" not in message


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("server.trusted-proxies", "proxy.internal", "'proxy.internal' is no address and no network"),
        ("server.trusted-proxies", "10.0.0.0/8, *", "'*' is no address and no network"),
        ("server.cors-origins", "*", "'*' is no origin"),
        ("server.cors-origins", "https://app.example.com/", "'https://app.example.com/' is no origin"),
        ("server.cors-origins", "app.example.com", "'app.example.com' is no origin"),
    ],
)
def test_who_is_trusted_is_named_exactly(write: Callable[..., Path], key: str, value: str, told: str) -> None:
    message = refusal(write(**{key: value}))
    assert key in message
    assert told in message
