"""Tokens of somebody else's authorization server: JWTs (RFC 9068) whose signature its published keys prove."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import jwt

from amoxi_py.domain.addresses import is_safe
from amoxi_py.domain.placing import signed_in
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import InvalidRequest, StoreUnavailable
from amoxi_py.surfaces.mcp.oauth.answers import json_object
from amoxi_py.surfaces.mcp.oauth.fetching import Fetched, FetchFailed, fetch_known
from amoxi_py.surfaces.mcp.oauth.places import AUTHORIZATION_SERVER, OPENID
from amoxi_py.surfaces.mcp.oauth.settings import ExternalIssuer

log = logging.getLogger("amoxi_py.mcp")

ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "ES256K"}
)
"""Those with a key that only the issuer has; a shared one would let everybody who may check a token make one."""

_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt", ""})
_LARGEST = 512 * 1024
_LONGEST_TOKEN = 16 * 1024
_CLOCKS_DIFFER_S = 30.0
_KEYS_LIFE_S = 3600.0
_KEYS_LAST_LIFE_S = 24 * 3600.0
_LOOK_AGAIN_S = 30.0
_TRY_AGAIN_S = 5.0

Fetch = Callable[[str], Awaitable[Fetched]]


class IssuerUnavailable(StoreUnavailable):
    """The issuer's keys cannot be read, so nobody knows whether a token holds: ask again in a moment."""

    code = "issuer_unavailable"


class ExternalTokens:
    """Checks tokens of one issuer; its keys are read anew each hour, and when a token has one that is not known.

    While the issuer is away the keys that are known go on for a day. `fetch` and `running` are for tests.
    """

    def __init__(
        self, issuer: ExternalIssuer, *, fetch: Fetch | None = None, running: Callable[[], float] = time.monotonic
    ) -> None:
        self._issuer = issuer
        self._fetch = fetch or _fetch
        self._running = running
        self._keys: Mapping[str | None, list[jwt.PyJWK]] = {}
        self._read_at: float | None = None
        self._failed_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    async def verify(self, token: str, resource: str) -> Principal | None:
        """Return whose token it is, or None when it does not hold; raise `IssuerUnavailable`."""
        head = _head(token)
        if head is None:
            return None
        for key in await self._keys_for(head.get("kid")):
            claims = self._claims(token, head["alg"], key, resource)
            if claims is not None:
                return self._principal(claims)
        return None

    async def _keys_for(self, kid: str | None) -> list[jwt.PyJWK]:
        known, age = self._named(kid), self._age()
        if age <= (_KEYS_LIFE_S if known else _LOOK_AGAIN_S):
            return known
        reading = self._begin_to_read()
        if not known or age > _KEYS_LAST_LIFE_S:  # a key that is known waits for nobody
            await asyncio.shield(reading)
        if self._age() > _KEYS_LAST_LIFE_S:
            raise IssuerUnavailable(f"the keys of the issuer {self._issuer.issuer!r} cannot be read now")
        return self._named(kid)

    def _age(self) -> float:
        return math.inf if self._read_at is None else self._running() - self._read_at

    def _begin_to_read(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return self._reading

    def _named(self, kid: str | None) -> list[jwt.PyJWK]:
        if kid is None:
            return [key for keys in self._keys.values() for key in keys]
        return self._keys.get(kid, [])

    async def _read(self) -> None:
        now = self._running()
        if self._failed_at is not None and now - self._failed_at <= _TRY_AGAIN_S:
            return
        try:
            self._keys = await self._published()
        except (FetchFailed, ValueError, TypeError) as error:
            self._failed_at = now
            log.warning("the keys of the issuer %r cannot be read: %s", self._issuer.issuer, error)
        else:
            self._read_at, self._failed_at = now, None

    async def _published(self) -> Mapping[str | None, list[jwt.PyJWK]]:
        document = await self._discover()
        address = document.get("jwks_uri")
        if not isinstance(address, str):
            raise ValueError("its document names no 'jwks_uri'")
        if not is_safe(urlsplit(address)):
            raise ValueError(f"its 'jwks_uri' is {address!r}, which does not begin with https://")
        published = _object((await self._fetch(address)).body).get("keys")
        keys: dict[str | None, list[jwt.PyJWK]] = {}
        for one in published if isinstance(published, list) else ():
            if not isinstance(one, dict) or one.get("kty") == "oct" or one.get("use", "sig") != "sig":
                continue
            kid = one.get("kid")
            if kid is not None and not isinstance(kid, str):
                continue
            try:
                keys.setdefault(kid, []).append(jwt.PyJWK(one))
            except (jwt.PyJWTError, ValueError, TypeError):  # of a kind that nobody here can use
                continue
        if not keys:
            raise ValueError("it publishes no key that can be used")
        return keys

    async def _discover(self) -> dict[str, Any]:
        failure: Exception = ValueError("it has no document")
        for address in _documents_of(self._issuer.issuer):
            try:
                document = _object((await self._fetch(address)).body)
            except (FetchFailed, ValueError) as error:
                failure = error
                continue
            if document.get("issuer") == self._issuer.issuer:
                return document
            failure = ValueError(f"its document is of the issuer {document.get('issuer')!r}")
        raise failure

    def _claims(self, token: str, algorithm: str, key: jwt.PyJWK, resource: str) -> dict[str, Any] | None:
        named = key._jwk_data.get("alg")  # PyJWK has no public word for what the key itself says
        if named is not None and named != algorithm:
            return None
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key=key.key,
                algorithms=[algorithm],
                audience=self._issuer.audience or resource,
                issuer=self._issuer.issuer,
                leeway=_CLOCKS_DIFFER_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        return claims

    def _principal(self, claims: dict[str, Any]) -> Principal | None:
        name, tenant = _claim(claims, self._issuer.name_claim), _claim(claims, self._issuer.tenant_claim)
        roles = _claim(claims, self._issuer.roles_claim)
        if isinstance(roles, str):
            roles = roles.split()
        texts = [role for role in roles if isinstance(role, str)] if isinstance(roles, list) else []
        if self._issuer.tenant_claim is not None and not isinstance(tenant, str):
            log.warning("a token of the issuer %r names no tenant", self._issuer.issuer)
            return None
        try:
            person = signed_in(
                Principal(
                    id=claims["sub"],
                    name=name if isinstance(name, str) else "",
                    tenant=tenant if isinstance(tenant, str) else None,
                    roles=frozenset(texts),
                )
            )
        except InvalidRequest as error:
            log.warning("a token of the issuer %r names nobody that can be stored: %s", self._issuer.issuer, error)
            return None
        return Principal(
            id=f"user:{person.id}", name=person.name, channel="mcp", tenant=person.tenant, roles=person.roles
        )


async def _fetch(url: str) -> Fetched:
    return await fetch_known(url, largest=_LARGEST)


def _head(token: str) -> dict[str, Any] | None:
    """Return a token's head when it says that it may hold; it proves nothing."""
    if len(token) > _LONGEST_TOKEN or token.count(".") != 2:
        return None
    try:
        head: dict[str, Any] = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError):
        return None
    kind, kid = head.get("typ", ""), head.get("kid")
    known = isinstance(kind, str) and kind.lower() in _TYPES and (kid is None or isinstance(kid, str))
    algorithm = head.get("alg")
    return head if known and isinstance(algorithm, str) and algorithm in ALGORITHMS else None


def _documents_of(issuer: str) -> list[str]:
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    found = [f"{origin}{AUTHORIZATION_SERVER}{path}", f"{origin}{path}{OPENID}", f"{origin}{OPENID}{path}"]
    return list(dict.fromkeys(found))


def _object(body: bytes) -> dict[str, Any]:
    found = json_object(body)
    if found is None:
        raise ValueError("what it answers is no JSON object")
    return found


def _claim(claims: dict[str, Any], name: str | None) -> Any:
    """Return a claim by its name, or by a way into objects with dots."""
    if name is None or name in claims:
        return None if name is None else claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found
