"""Secrets come from the environment, or from files of their own that it names; never from `application.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from amoxi_py.config.load import SECRET_KEYS, load_settings
from amoxi_py.config.sections import variable_of
from amoxi_py.errors import ConfigError

CARD_KEY = (
    ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
)
SECRETS = {
    "SERVER_SECRET": "the-cookies-secret",
    "AI_STORE_LISTEN_URL": "host=direct",
    "AI_A2A_CARD_KEY": CARD_KEY,
    "AI_API_CALLERS_ACME": "token-of-the-api",
    "AI_MCP_CALLERS_ACME": "token-of-mcp-0123",
    "AI_A2A_CALLERS_ACME": "token-of-a2a-0123",
    "DATABASE_URL": "host=pooled",
    "ANTHROPIC_API_KEY": "key-of-anthropic",
    "OPENAI_API_KEY": "key-of-openai",
}


@pytest.mark.parametrize("name", ["application.json", "application-production.json"])
@pytest.mark.parametrize(
    ("settings", "told", "variable"),
    [
        ({"server": {"secret": "CANARY-long-enough"}}, "'server.secret' from {} is a secret", "SERVER_SECRET"),
        ({"ai.store.listen-url": "CANARY"}, "'ai.store.listen-url' from {} is a secret", "AI_STORE_LISTEN_URL"),
        ({"ai": {"a2a": {"card-key": "CANARY"}}}, "'ai.a2a.card-key' from {} is a secret", "AI_A2A_CARD_KEY"),
        ({"ai": {"mcp": {"callers": {"me-2": "CANARY"}}}}, "'ai.mcp.callers.me-2' in {} is no", "AI_MCP_CALLERS_ME_2"),
        ({"DATABASE_URL": "CANARY"}, "'DATABASE_URL' in {} is no setting", "DATABASE_URL"),
        ({"openai_api_key": "CANARY"}, "'openai_api_key' in {} is no setting", "OPENAI_API_KEY"),
    ],
)
def test_a_file_of_settings_holds_no_secret(
    tmp_path: Path, name: str, settings: dict[str, Any], told: str, variable: str
) -> None:
    (tmp_path / name).write_text(json.dumps(settings), "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path, environ={})
    assert told.format(name) in str(caught.value)
    assert f"set the variable {variable}, or {variable}_FILE to a file that holds it" in str(caught.value)
    assert "CANARY" not in str(caught.value)


def test_every_secret_can_come_from_a_file_of_its_own(tmp_path: Path) -> None:
    for name, text in SECRETS.items():
        (tmp_path / name).write_text(f"{text}\n", "utf-8")
    by_file = load_settings(tmp_path, environ={f"{name}_FILE": str(tmp_path / name) for name in SECRETS})
    by_text = load_settings(tmp_path, environ=SECRETS)
    assert (by_file.callers, by_file.provider) == (by_text.callers, by_text.provider)
    assert len(by_file.callers) == 3
    assert by_file.server.secret == by_text.server.secret is not None
    assert by_file.listen_url == by_text.listen_url == "host=direct"
    assert by_file.ai.a2a.card_key is not None
    assert by_file.ai.a2a.card_key.get_secret_value() == CARD_KEY.strip()
    assert {variable_of(key) for key in SECRET_KEYS} <= SECRETS.keys()
