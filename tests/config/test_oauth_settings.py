"""OAuth needs an address that people know, https, and a way to sign in; a start without them says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amoxi_py.config.load import examine_settings

URL = "https://shop.example.com"
ON = {"ai.mcp.enabled": True, "ai.mcp.oauth.enabled": True}


def problems(tmp_path: Path, given: dict[str, Any], profile: str = "production") -> str:
    settings, found = examine_settings(tmp_path, profile=profile, environ={}, given=given)
    assert settings.ai.mcp.oauth.enabled == given.get("ai.mcp.oauth.enabled", False)
    return "\n".join(found)


def test_oauth_in_production_needs_the_address_that_people_know(tmp_path: Path) -> None:
    told = problems(tmp_path, ON)
    assert "'server.public-url' is not set" in told
    assert "set it to where people find this server" in told
    assert problems(tmp_path, ON, "dev") == ""
    assert problems(tmp_path, {**ON, "server.public-url": URL}) == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({**ON, "server.public-url": "http://shop.example.com"}, "begins with https://"),
        ({**ON, "server.public-url": f"{URL}/?x=1"}, "without '?'"),
        ({**ON, "server.public-url": "http://localhost:8080"}, ""),
        ({**ON, "server.public-url": URL, "ai.mcp.enabled": False}, "'ai.mcp.enabled' is false"),
        ({**ON, "server.public-url": URL, "ai.mcp.oauth.issuer": "http://login.example.com"}, "ai.mcp.oauth.issuer"),
        ({**ON, "server.public-url": URL, "ai.mcp.oauth.issuer": "https://login.example.com/realms/shop"}, ""),
        ({**ON, "server.public-url": URL, "ai.mcp.oauth.audience": "api"}, "set 'ai.mcp.oauth.issuer' to it"),
        ({**ON, "server.public-url": URL, "ai.mcp.oauth.scopes": ["openid"]}, "set 'ai.mcp.oauth.issuer' to it"),
        ({"ai.mcp.oauth.scopes": ["open id"]}, "ai.mcp.oauth.scopes"),
        ({"ai.mcp.oauth.sign-in-url": "//evil.example"}, "ai.mcp.oauth.sign-in-url"),
        ({"ai.mcp.oauth.sign-in-url": "javascript:x"}, "ai.mcp.oauth.sign-in-url"),
        ({"ai.mcp.oauth.sign-in-url": "/login?from=mcp"}, ""),
        ({"ai.mcp.oauth.sign-in-url": "https://login.example.com/"}, ""),
    ],
)
def test_settings_of_oauth_that_cannot_work_are_named(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    found = problems(tmp_path, given)
    assert (told in found) if told else found == ""
