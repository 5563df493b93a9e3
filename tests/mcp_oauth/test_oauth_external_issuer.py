"""Tokens of another issuer: real keys and signatures, published by a server on this machine."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.mcp.oauth.door import OAuth
from amoxi_py.surfaces.mcp.oauth.external import ExternalTokens, IssuerUnavailable
from amoxi_py.surfaces.mcp.oauth.fetching import Fetched, FetchFailed
from amoxi_py.surfaces.mcp.oauth.settings import ExternalIssuer, OAuthSettings

pytestmark = pytest.mark.anyio

RESOURCE = "https://shop.example.com/mcp"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(key: Any, kid: str, **more: str) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    found: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    return {**found, "kid": kid, **more}


class Issuer:
    """An HTTP server with an issuer's documents."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.url = f"{base}/realms/shop"
        self.keys: list[dict[str, Any]] = [public_jwk(RSA, "one"), public_jwk(EC, "two")]
        self.asked: list[str] = []
        self.away = False
        self.named = self.url

    def answer(self, path: str) -> tuple[int, Any]:
        self.asked.append(path)
        if self.away:
            return 500, {}
        if path == "/realms/shop/.well-known/openid-configuration":
            return 200, {"issuer": self.named, "jwks_uri": f"{self.base}/keys"}
        return (200, {"keys": self.keys}) if path == "/keys" else (404, {})

    async def fetch(self, url: str) -> Fetched:
        """Give the same without a connection."""
        status, body = self.answer(url.removeprefix(self.base))
        if status != 200:
            raise FetchFailed(f"it was answered with the status {status}")
        return Fetched(json.dumps(body).encode())

    def token(
        self, key: Any = RSA, alg: str = "RS256", kid: str | None = "one", typ: str = "at+jwt", **changes: Any
    ) -> str:
        now = time.time()
        claims: dict[str, Any] = {
            "iss": self.url,
            "sub": "ann",
            "aud": RESOURCE,
            "exp": now + 300,
            "iat": now,
            "name": "Ann",
            "roles": ["finance"],
            **changes,
        }
        head = {"typ": typ} | ({} if kid is None else {"kid": kid})
        return jwt.encode({k: v for k, v in claims.items() if v is not None}, key, algorithm=alg, headers=head)


@pytest.fixture
async def issuer(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Issuer]:
    monkeypatch.setattr("amoxi_py.surfaces.mcp.oauth.fetching._WITHIN_S", 60.0)  # of a busy machine
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    made = Issuer(f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}")

    async def serve(stream: Any) -> None:
        async with stream:
            path = (await stream.receive()).decode().split(" ")[1]
            status, body = made.answer(path)
            sent = json.dumps(body).encode()
            head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(sent)}\r\nconnection: close\r\n\r\n"
            await stream.send(head.encode() + sent)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield made
        tasks.cancel_scope.cancel()


class Clock:
    time = 1000.0

    def __call__(self) -> float:
        return self.time


def tokens_of(issuer: Issuer, clock: Clock | None = None, **settings: Any) -> ExternalTokens:
    return ExternalTokens(ExternalIssuer(issuer=issuer.url, **settings), fetch=issuer.fetch, running=clock or Clock())


async def test_a_token_of_the_issuer_is_a_person_of_the_app(issuer: Issuer) -> None:
    tokens = ExternalTokens(ExternalIssuer(issuer=issuer.url))
    ann = Principal(id="user:ann", name="Ann", channel="mcp", roles=frozenset({"finance"}))
    assert await tokens.verify(issuer.token(), RESOURCE) == ann
    assert await tokens.verify(issuer.token(EC, "ES256", "two"), RESOURCE) == ann
    assert await tokens.verify(issuer.token(RSA, "PS384"), RESOURCE) == ann
    assert await tokens.verify(issuer.token(kid=None), RESOURCE) == ann
    assert await tokens.verify(issuer.token(aud=["other", RESOURCE], typ="JWT"), RESOURCE) == ann
    assert issuer.asked.count("/keys") == 1, "keys are kept"


async def test_names_of_claims_can_be_set(issuer: Issuer) -> None:
    tokens = tokens_of(
        issuer, name_claim="given", roles_claim="realm_access.roles", tenant_claim="https://shop.example.com/tenant"
    )
    claims = {"given": "A", "realm_access": {"roles": ["x", 7]}, "https://shop.example.com/tenant": "t1"}
    found = await tokens.verify(issuer.token(**claims), RESOURCE)
    assert found == Principal(id="user:ann", name="A", channel="mcp", tenant="t1", roles=frozenset({"x"}))
    assert await tokens.verify(issuer.token(given="A"), RESOURCE) is None, "without a tenant nobody knows whose it is"
    plain = tokens_of(issuer)
    spaced = await plain.verify(issuer.token(roles="a b", sub="x:y"), RESOURCE)
    assert spaced is not None
    assert (spaced.id, spaced.roles) == ("user:x:y", frozenset({"a", "b"}))


async def test_an_audience_can_be_set(issuer: Issuer) -> None:
    tokens = tokens_of(issuer, audience="api://shop")
    assert await tokens.verify(issuer.token(aud="api://shop"), RESOURCE) is not None
    assert await tokens.verify(issuer.token(), RESOURCE) is None


async def test_a_token_that_proves_nothing_is_nobodys(issuer: Issuer) -> None:
    tokens = tokens_of(issuer)
    public = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    right = issuer.token()
    head, body, signature = right.split(".")
    for name, token in {
        "alg none": jwt.encode({"iss": issuer.url, "sub": "ann", "aud": RESOURCE, "exp": 9e9}, None, "none"),
        "HS256 with the public key": with_hmac(public, issuer),
        "another key": issuer.token(OTHER),
        "another key under no name": issuer.token(OTHER, kid=None),
        "another issuer": issuer.token(iss="https://evil.example"),
        "another resource": issuer.token(aud="https://other.example.com/mcp"),
        "no audience": issuer.token(aud=None),
        "expired": issuer.token(exp=time.time() - 60),
        "not yet": issuer.token(nbf=time.time() + 600),
        "no end": issuer.token(exp=None),
        "nobody": issuer.token(sub=None),
        "an empty name": issuer.token(sub=" "),
        "a line in the name": issuer.token(sub="a\nb"),
        "another kind": issuer.token(typ="logout+jwt"),
        "the key of another algorithm": issuer.token(EC, "ES256", "one"),
        "changed": f"{head}.{body[:-4]}AAAA.{signature}",
        "cut": f"{head}.{body}.",
        "no token": "a.b.c",
        "long": right + "A" * 20_000,
    }.items():
        assert await tokens.verify(token, RESOURCE) is None, name
    assert await tokens.verify(right, RESOURCE) is not None


def with_hmac(key: bytes, issuer: Issuer) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"iss": issuer.url, "sub": "ann", "aud": RESOURCE, "exp": time.time() + 60}
    signed = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{part(claims)}"
    signature = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


async def test_keys_that_cannot_sign_tokens_are_left_out(issuer: Issuer) -> None:
    issuer.keys = [
        {"kty": "oct", "kid": "one", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"},
        {"kty": "new", "kid": "x"},
        public_jwk(RSA, "enc", use="enc"),
        public_jwk(RSA, "rs512", alg="RS512"),
    ]
    tokens = tokens_of(issuer)
    assert await tokens.verify(issuer.token(kid="enc"), RESOURCE) is None
    assert await tokens.verify(issuer.token(kid="rs512"), RESOURCE) is None
    assert await tokens.verify(issuer.token(RSA, "RS512", "rs512"), RESOURCE) is not None


async def test_a_new_key_is_found_and_an_old_one_is_forgotten(issuer: Issuer) -> None:
    clock = Clock()
    tokens = tokens_of(issuer, clock)
    assert await tokens.verify(issuer.token(), RESOURCE) is not None
    issuer.keys = [public_jwk(OTHER, "three")]
    new = issuer.token(OTHER, kid="three")
    assert await tokens.verify(new, RESOURCE) is None, "who makes up names of keys does not make us ask each time"
    assert issuer.asked.count("/keys") == 1
    clock.time += 31
    assert await tokens.verify(new, RESOURCE) is not None
    assert await tokens.verify(issuer.token(), RESOURCE) is None
    assert issuer.asked.count("/keys") == 2


async def test_an_issuer_that_is_away_is_no_reason_to_send_people_away(issuer: Issuer) -> None:
    clock = Clock()
    issuer.away = True
    tokens = tokens_of(issuer, clock)
    for _ in range(3):
        with pytest.raises(IssuerUnavailable):
            await tokens.verify(issuer.token(), RESOURCE)
    assert len(issuer.asked) == 3, "it is left alone for a moment"
    issuer.away, clock.time = False, clock.time + 6
    assert await tokens.verify(issuer.token(), RESOURCE) is not None
    issuer.away, clock.time = True, clock.time + 3601
    assert await tokens.verify(issuer.token(), RESOURCE) is not None, "known keys go on"
    clock.time += 24 * 3600
    with pytest.raises(IssuerUnavailable):
        await tokens.verify(issuer.token(), RESOURCE)


async def test_the_documents_of_another_issuer_are_not_taken(issuer: Issuer) -> None:
    issuer.named = "https://evil.example"
    with pytest.raises(IssuerUnavailable):
        await tokens_of(issuer).verify(issuer.token(), RESOURCE)


async def test_beside_an_issuer_the_app_is_no_authorization_server(issuer: Issuer, shop: Any) -> None:
    await shop.start(external=ExternalIssuer(issuer=issuer.url))
    server = shop.client(1)
    found = (await server.get("/.well-known/oauth-protected-resource/mcp")).json()
    assert found["authorization_servers"] == [issuer.url]
    assert found["resource"] == RESOURCE
    assert "scopes_supported" not in found
    for path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
        answer = await server.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"] == "not_found"
    assert (await server.get("/oauth/authorize")).status_code == 404
    assert (await server.post("/oauth/token", data={"a": "b"})).status_code == 404
    assert "scope=" not in (await server.post("/mcp")).headers["www-authenticate"]
    assert (await shop.call(issuer.token(), server=1)).json()["id"] == "user:ann"
    assert (await shop.call(issuer.token(aud="x"), server=1)).status_code == 401
    issuer.away = True
    await shop.start(external=ExternalIssuer(issuer=issuer.url))
    assert (await shop.call(issuer.token(), server=2)).status_code == 503
    assert (
        OAuth(OAuthSettings(app_name="x", external=ExternalIssuer(issuer="https://x")), lambda: None).own_routes() == []
    )  # type: ignore[arg-type,return-value]  # no store is needed for it


async def test_clients_are_told_what_scopes_to_ask_the_issuer_for(issuer: Issuer, shop: Any) -> None:
    await shop.start(external=ExternalIssuer(issuer=issuer.url, scopes=("openid", "offline_access")))
    server = shop.client(1)
    found = (await server.get("/.well-known/oauth-protected-resource/mcp")).json()
    assert found["scopes_supported"] == ["openid", "offline_access"]
    assert 'scope="openid offline_access"' in (await server.post("/mcp")).headers["www-authenticate"]


async def test_a_known_key_waits_for_no_issuer_that_hangs(issuer: Issuer) -> None:
    clock, gate = Clock(), asyncio.Event()
    gate.set()
    asked: list[str] = []

    async def fetch(url: str) -> Fetched:
        asked.append(url)
        await gate.wait()
        return await issuer.fetch(url)

    tokens = ExternalTokens(ExternalIssuer(issuer=issuer.url), fetch=fetch, running=clock)
    assert await tokens.verify(issuer.token(), RESOURCE) is not None
    before = len(asked)
    gate.clear()
    clock.time += 31
    strange = asyncio.create_task(tokens.verify(issuer.token(OTHER, kid="made up"), RESOURCE))
    async with asyncio.timeout(20):
        while len(asked) == before:
            await asyncio.sleep(0)
        for later in (0, 3601):
            clock.time += later
            for _ in range(3):
                assert await tokens.verify(issuer.token(), RESOURCE) is not None
        assert len(asked) == before + 1, "one reads for all"
        gate.set()
        assert await strange is None


async def test_what_nobody_would_publish_or_send_breaks_nothing(issuer: Issuer) -> None:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    issuer.keys[:0] = [{**issuer.keys[0], "kid": ["one"]}, {"kty": [], "kid": "x"}, {**issuer.keys[0], "alg": []}]
    tokens = tokens_of(issuer)
    for head in ({"alg": []}, {"alg": {}}, {"alg": "RS256", "typ": []}, {"alg": "RS256", "kid": []}):
        assert await tokens.verify(f"{part(head)}.{part({})}.AAAA", RESOURCE) is None
    assert await tokens.verify(issuer.token(EC, "ES256", "two"), RESOURCE) is not None


async def test_keys_come_encrypted_or_from_this_machine(issuer: Issuer) -> None:
    asked: list[str] = []

    async def fetch(url: str) -> Fetched:
        asked.append(url)
        return Fetched(json.dumps({"issuer": issuer.url, "jwks_uri": "http://keys.example/keys"}).encode())

    with pytest.raises(IssuerUnavailable):
        await ExternalTokens(ExternalIssuer(issuer=issuer.url), fetch=fetch).verify(issuer.token(), RESOURCE)
    assert "http://keys.example/keys" not in asked
