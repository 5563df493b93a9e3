"""The agent card: what it says of an app, at which address, to whom, and that it can be kept and checked."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3 import types as v03
from a2a.utils.signing import create_signature_verifier
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from fastapi import FastAPI
from jwt import PyJWK

from amoxi_py import install
from amoxi_py.app.web import create_app
from amoxi_py.config.load import load_settings
from amoxi_py.errors import ConfigError

pytestmark = pytest.mark.anyio
TEMPLATE = Path(__file__).parents[2] / "app_template"
CARD = "/.well-known/agent-card.json"

SOURCE = '''
from amoxi_py import agent, authenticate

@agent(description="Keeps things.")
class Keeper:
    """You keep."""

@agent(description="Counts money.", allow=lambda principal: principal.id == "a2a:partner")
class MoneyCounter:
    """You count."""

@agent(expose=False)
class Inner:
    """You help."""
'''


def pem(key: Any) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture
def card_app(tmp_path: Path, monkeypatch: Any) -> Any:
    """Make an app of this source that is not started: a card needs no more."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "app_of_cards").mkdir()
    (tmp_path / "app_of_cards" / "__init__.py").write_text(SOURCE, "utf-8")

    def settings(given: Any = None, environ: Any = None, profile: str = "test") -> Any:
        own = {"app.package": "app_of_cards", "app.name": "shop", "ai.a2a.enabled": True}
        callers = {"AI_A2A_CALLERS_PARTNER": "partner-token-0123456789"}
        return load_settings(tmp_path, profile=profile, environ=environ or callers, given={**own, **(given or {})})

    yield settings
    forget("app_of_cards")


def forget(package: str) -> None:
    """Let a package be imported anew: other tests have some of that name too."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def client(app: Any, base: str = "http://localhost:8080") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base)


async def test_the_templates_card_is_as_it_is_promised(tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "any-name"
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__", ".env", "ai"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget("app")
    app = create_app(load_settings(folder, profile="test", environ={}, given={"ai.a2a.enabled": True}))
    forget("app")
    async with client(app) as http:
        card = (await http.get(CARD)).json()
    assert (card["name"], card["url"]) == ("agent-app", "http://localhost:8080/a2a")
    assert [skill["id"] for skill in card["skills"]] == ["assistant", "support-agent"]
    assert [skill["name"] for skill in card["skills"]] == ["Assistant", "Support agent"]
    assert card["description"] == "Keeps your notes. Looks up, refunds and cancels orders."
    assert card["version"] == "0.1.0", "that of its pyproject.toml"


async def test_clients_of_both_versions_read_what_they_need(card_app: Any) -> None:
    async with client(create_app(card_app())) as http:
        told = (await http.get(CARD)).json()
        card = await A2ACardResolver(http, "http://localhost:8080").get_agent_card()
    assert [(i.protocol_binding, i.protocol_version, i.url) for i in card.supported_interfaces] == [
        (binding, version, "http://localhost:8080/a2a")
        for binding in ("JSONRPC", "HTTP+JSON")
        for version in ("1.0", "0.3")
    ]
    can = card.capabilities
    assert (can.streaming, can.push_notifications, can.extended_agent_card) == (True, True, True)
    assert card.security_schemes["bearer"].http_auth_security_scheme.scheme == "Bearer"
    old = v03.AgentCard.model_validate(told)
    assert (old.protocol_version, old.preferred_transport, old.url) == ("0.3", "JSONRPC", "http://localhost:8080/a2a")
    assert (old.supports_authenticated_extended_card, old.security) == (True, [{"bearer": []}])
    assert old.security_schemes is not None
    assert old.security_schemes["bearer"].root.type == "http"


async def test_the_address_in_it_is_one_that_leads_here(card_app: Any) -> None:
    async def urls(app: Any, host: str, base: str = "http://testserver", **scope: Any) -> set[str]:
        transport = httpx.ASGITransport(app, **scope)
        async with httpx.AsyncClient(transport=transport, base_url=base) as http:
            card = (await http.get(CARD, headers={"host": host})).json()
            return {card["url"], *(each["url"] for each in card["supportedInterfaces"])}

    open_app = create_app(card_app({"server.host": "0.0.0.0"}))
    for host, url in (
        ("shop.example.com", "http://shop.example.com/a2a"),
        ("shop.example.com:8443", "http://shop.example.com:8443/a2a"),
        ("[::1]:8080", "http://[::1]:8080/a2a"),
        ("0.0.0.0:8080", "http://localhost:8080/a2a"),
        ("evil/<script>", "http://localhost/a2a"),
        ("", "http://localhost/a2a"),
    ):
        assert await urls(open_app, host) == {url}
    assert await urls(open_app, "shop.example.com", "https://testserver") == {"https://shop.example.com/a2a"}
    assert await urls(open_app, "shop.example.com", root_path="/api") == {"http://shop.example.com/api/a2a"}
    public = {"server.public-url": "https://shop.example.com/base/", "ai.http.prefix": "/ai"}
    assert await urls(create_app(card_app(public)), "localhost") == {"https://shop.example.com/base/ai/a2a"}


async def test_under_a_prefix_the_card_is_at_the_root_of_the_host_too(card_app: Any) -> None:
    app = FastAPI()
    install(app, "/ai", settings=card_app())
    async with client(app) as http:
        for path in (CARD, f"/ai{CARD}"):
            assert (await http.get(path)).json()["url"] == "http://localhost:8080/ai/a2a"
        assert (await http.get("/a2a")).status_code == 404
        assert (await http.post("/ai/a2a", json={})).status_code == 503, "it has not started"


async def test_without_a2a_there_is_neither_card_nor_door(card_app: Any) -> None:
    async with client(create_app(card_app({"ai.a2a.enabled": False}))) as http:
        assert (await http.get(CARD)).status_code == 404
        assert (await http.post("/a2a", json={})).status_code == 404


async def test_who_has_the_card_already_is_told_so(card_app: Any) -> None:
    async with client(create_app(card_app())) as http:
        first = await http.get(CARD)
        assert first.headers["cache-control"] == "public, max-age=300"
        assert (first.status_code, first.headers["content-type"]) == (200, "application/json")
        etag, since = first.headers["etag"], first.headers["last-modified"]
        for headers, status in (
            ({"if-none-match": etag}, 304),
            ({"if-none-match": f'"x", {etag.removeprefix("W/")}'}, 304),
            ({"if-none-match": "*"}, 304),
            ({"if-modified-since": since}, 304),
            ({"if-none-match": '"x"', "if-modified-since": since}, 200),
            ({"if-modified-since": "Mon, 01 Jan 2001 00:00:00 GMT"}, 200),
            ({"if-modified-since": "yesterday"}, 200),
        ):
            answer = await http.get(CARD, headers=headers)
            assert (answer.status_code, answer.headers["etag"]) == (status, etag), headers
            assert bool(answer.content) is (status == 200)
        head = await http.head(CARD)
        assert (head.status_code, head.headers["etag"], head.headers["content-length"]) == (
            200,
            etag,
            first.headers["content-length"],
        )
        assert (await http.post(CARD)).headers["allow"] == "GET, HEAD"
        elsewhere = await http.get(CARD, headers={"host": "127.0.0.1:8080"})
        assert elsewhere.headers["etag"] != etag, "its addresses are others"


async def test_the_public_card_names_what_all_may_use_and_the_extended_one_what_its_caller_may(a2a_app: Any) -> None:
    async with a2a_app(SOURCE) as app, app.http(None) as http:
        public = (await http.get(CARD)).text
        assert [skill["id"] for skill in json.loads(public)["skills"]] == ["keeper"]
        assert "oney" not in public
        for token, skills in (
            ("partner-token-0123456789", ["keeper", "money-counter"]),
            ("other-token-0123456789", ["keeper"]),
        ):
            async with app.caller(token) as new, app.caller(token, "0.3") as old:
                for told in (
                    await new.result("GetExtendedAgentCard"),
                    await old.result("agent/getAuthenticatedExtendedCard"),
                ):
                    assert [skill["id"] for skill in told["skills"]] == skills


async def test_a_signed_card_is_checked_with_the_key_that_it_names(card_app: Any) -> None:
    key = pem(ec.generate_private_key(ec.SECP256R1()))
    callers = {"AI_A2A_CALLERS_PARTNER": "partner-token-0123456789", "AI_A2A_CARD_KEY": key}
    app = create_app(card_app({"server.public-url": "http://localhost:8080"}, environ=callers))
    async with client(app, "http://127.0.0.1:9999") as http:
        first = await http.get(CARD)
        card = parse_agent_card(first.json())
        keys = (await http.get("/a2a/keys")).json()["keys"]
        assert [sorted(each) for each in keys] == [["alg", "crv", "kid", "kty", "use", "x", "y"]]

        def find(kid: str | None, jku: str | None) -> PyJWK:
            assert (kid, jku) == (keys[0]["kid"], "http://localhost:8080/a2a/keys")
            return PyJWK.from_dict(keys[0])

        verify = create_signature_verifier(find, ["ES256"])
        verify(card)
        card.skills[0].description = "Other."
        with pytest.raises(Exception, match="No valid signature"):
            verify(card)
        old = v03.AgentCard.model_validate(first.json())
        assert old.signatures is not None
        assert old.url == "http://localhost:8080/a2a"
    async with client(create_app(card_app({"server.public-url": "http://localhost:8080"}, environ=callers))) as http:
        assert (await http.get(CARD)).headers["etag"] == first.headers["etag"], "another server's signature is another"


async def test_no_address_is_signed_that_may_not_be_the_apps_own(card_app: Any) -> None:
    environ = {"AI_A2A_CARD_KEY": pem(ec.generate_private_key(ec.SECP256R1()))}
    with pytest.raises(ConfigError, match=r"'server\.public-url' is not set"):
        card_app(environ=environ)
    card_app({"ai.a2a.enabled": False}, environ=environ)
    async with client(create_app(card_app({"server.host": "0.0.0.0"}, environ=environ, profile="dev"))) as http:
        for host, signed in (
            ("localhost:8080", True),
            ("127.0.0.1:8080", True),
            ("[::1]:8080", True),
            ("evil.example.com", False),
            ("localhost.evil.example.com", False),
            ("[::1::]:8080", False),
        ):
            answer = await http.get(CARD, headers={"host": host})
            assert (answer.status_code, "signatures" in answer.json()) == (200, signed), host


@pytest.mark.parametrize(
    "key",
    [
        "no-key-at-all-canary",
        pem(rsa.generate_private_key(65537, 2048)),
        pem(ec.generate_private_key(ec.SECP384R1())),
    ],
)
def test_a_key_that_cannot_sign_stops_the_start_and_is_not_shown(card_app: Any, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        card_app(environ={"AI_A2A_CARD_KEY": key})
    assert "'ai.a2a.card-key' from AI_A2A_CARD_KEY cannot sign the agent card" in str(caught.value)
    assert key.strip().splitlines()[-2 if "\n" in key else 0] not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"), [("nobody", "is not there"), ("inner", "is not shown to others (`expose`)")]
)
def test_a_default_agent_that_nobody_can_reach_stops_the_start(card_app: Any, name: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create_app(card_app({"ai.a2a.default-agent": name}))
    assert f"{name!r}, but this agent {reason}: set it to one of keeper, money-counter" in str(caught.value)


async def test_the_card_says_what_the_app_says_of_itself(card_app: Any, tmp_path: Path) -> None:
    async def told() -> tuple[str, str]:
        async with client(create_app(card_app({"ai.a2a.default-agent": "keeper"}))) as http:
            card = (await http.get(CARD)).json()
            return card["description"], card["version"]

    assert await told() == ("Keeps things.", "0")
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "shop"\nversion = "2.3.4"\ndescription = "A shop."\n', "utf-8")
    assert await told() == ("A shop.", "2.3.4")
    project.write_text('[project]\nname = "amoxi-py"\ndynamic = ["version"]\n', "utf-8")
    assert (await told())[1] not in ("0", "2.3.4"), "the installed package knows it"
    project.write_text("no [toml", "utf-8")
    assert await told() == ("Keeps things.", "0")
