"""Programs that ask for a connection: registered ones (RFC 7591), and those whose id is the address of a document."""

from __future__ import annotations

import hmac
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from starlette.requests import Request

from amoxi_py.domain.encoding import clean_text, decode_json
from amoxi_py.surfaces.mcp.oauth.answers import OAuthError, json_object
from amoxi_py.surfaces.mcp.oauth.client_documents import ClientDocuments
from amoxi_py.surfaces.mcp.oauth.keeping import Keeping, digest, new_secret
from amoxi_py.surfaces.mcp.oauth.redirects import redirect_problem
from amoxi_py.surfaces.mcp.oauth.settings import SCOPE

DAY_S = 24 * 3600.0
UNUSED_LIFE_S = 7 * DAY_S
"""How long a registered client is known that nobody who is signed in has seen: anybody may register one."""
SEEN_LIFE_S = 90 * DAY_S
USED_LIFE_S = 180 * DAY_S
_METHODS = ("none", "client_secret_post", "client_secret_basic")
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_MOST_REDIRECTS = 20
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A program.

    Attributes:
        id: As it says in each request.
        name: As it calls itself, which proves nothing.
        redirect_uris: Where browsers may be sent back to.
        secret_digest: Of its secret; None when it has none.
        document: Whether the id is the address of its document, so that its host is known to be its own.
    """

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    secret_digest: str | None = None
    document: bool = False


class Clients:
    """All programs that are known."""

    def __init__(self, keeping: Keeping, documents: ClientDocuments) -> None:
        self._keeping = keeping
        self._documents = documents

    async def register(self, body: bytes) -> dict[str, Any]:
        """Make a client of what a program says of itself, and return what it is told."""
        asked = _metadata(body)
        redirect_uris = _redirect_uris(asked)
        method = _method(asked)
        client_id = f"client_{new_secret()}"
        secret = None if method == "none" else new_secret()
        name = _name(asked.get("client_name"))
        kept = {
            "name": name,
            "redirect_uris": redirect_uris,
            "secret": None if secret is None else digest(secret),
        }
        await self._keeping.keep("client", digest(client_id), kept, UNUSED_LIFE_S)
        told: dict[str, Any] = {
            "client_id": client_id,
            "client_id_issued_at": int(self._keeping.now()),
            "client_name": name,
            "redirect_uris": redirect_uris,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
            "scope": SCOPE,
        }
        if secret is not None:
            told |= {"client_secret": secret, "client_secret_expires_at": 0}
        return told

    async def find(self, client_id: str, request: Request) -> Client | None:
        """Return the client, or None when nobody knows it.

        Raises:
            DocumentRefused: the id is an address, and there is no document that can be used.
            DocumentBusy: the id is an address, and too many are read now.
        """
        if "://" in client_id:
            document = await self._documents.get(client_id, request)
            return Client(
                id=client_id,
                name=_name(document.get("client_name")),
                redirect_uris=tuple(document["redirect_uris"]),
                document=True,
            )
        return await self._registered(client_id)

    async def _registered(self, client_id: str) -> Client | None:
        kept = await self._keeping.find("client", digest(client_id))
        if kept is None:
            return None
        return Client(
            id=client_id, name=kept["name"], redirect_uris=tuple(kept["redirect_uris"]), secret_digest=kept["secret"]
        )

    async def seen(self, client: Client) -> None:
        """Keep a registered client longer that somebody is asked about."""
        await self._keep_longer(client, SEEN_LIFE_S)

    async def used(self, client: Client) -> None:
        """Keep a registered client for long that somebody connects with."""
        await self._keep_longer(client, USED_LIFE_S)

    async def _keep_longer(self, client: Client, life: float) -> None:
        if client.document:
            return
        found = await self._keeping.find_with_rest("client", digest(client.id))
        if found is not None and found[1] < life / 2:
            await self._keeping.keep("client", digest(client.id), found[0], life)

    async def authenticated(self, request: Request, form: Mapping[str, str]) -> Client:
        """Return the client of a request to the token endpoint; raise `OAuthError` for one that proves nothing.

        One with a document proves nothing by it, so it is not read: what it shows is good for its id alone. What it
        signs is no proof here either, and only says which client it is.
        """
        headers = request.headers.getlist("authorization")
        basic = _basic(headers)
        told = {"www-authenticate": 'Basic realm="oauth"'} if headers else {}
        client_id = form.get("client_id") or _of_assertion(form)
        if basic is not None and (form.get("client_secret") or client_id not in (None, basic[0])):
            raise OAuthError("invalid_request", "the client says in two ways who it is")
        secret = form.get("client_secret")
        if basic is not None:
            client_id, secret = basic
        if client_id is not None and "://" in client_id:
            return Client(id=client_id, name="", redirect_uris=(), document=True)
        client = None if client_id is None else await self._registered(client_id)
        if client is None:
            raise OAuthError("invalid_client", "this server does not know the client", status=401, headers=told)
        if client.secret_digest is not None and (
            secret is None or not hmac.compare_digest(digest(secret), client.secret_digest)
        ):
            raise OAuthError("invalid_client", "the client's secret is wrong", status=401, headers=told)
        return client


def _metadata(body: bytes) -> dict[str, Any]:
    asked = json_object(body)
    if asked is None:
        raise OAuthError("invalid_client_metadata", "the body is no JSON object")
    for name, needed in (("grant_types", "authorization_code"), ("response_types", "code")):
        given = asked.get(name)
        if given is not None and (not isinstance(given, list) or needed not in given):
            raise OAuthError("invalid_client_metadata", f"{name!r} must be a list that has {needed!r}")
    return asked


def _redirect_uris(asked: dict[str, Any]) -> list[str]:
    uris = asked.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= _MOST_REDIRECTS:
        raise OAuthError("invalid_redirect_uri", f"'redirect_uris' must be a list of 1 to {_MOST_REDIRECTS} addresses")
    for n, uri in enumerate(uris):
        problem = redirect_problem(uri)
        if problem is not None:
            raise OAuthError("invalid_redirect_uri", f"'redirect_uris' cannot have its item {n}: {problem}")
    return uris


def _method(asked: dict[str, Any]) -> str:
    method = asked.get("token_endpoint_auth_method")
    if method is None:
        return "client_secret_basic"  # RFC 7591, section 2
    if method not in _METHODS:
        raise OAuthError(
            "invalid_client_metadata", f"'token_endpoint_auth_method' must be one of {', '.join(_METHODS)}"
        )
    return str(method)


def _name(name: object) -> str:
    """Return a name as it is shown: one line, and not long."""
    if not isinstance(name, str):
        return ""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in clean_text(name)).split())
    return line[:_LONGEST_NAME]


def _of_assertion(form: Mapping[str, str]) -> str | None:
    """Return the client that a signed assertion names (RFC 7523, section 3); whoever sends one may leave its id out."""
    if form.get("client_assertion_type") != _ASSERTION_TYPE:
        return None
    try:
        claims = urlsafe_b64decode(form["client_assertion"].split(".")[1] + "==")
        subject = decode_json(claims.decode())["sub"]
    except (ValueError, LookupError, TypeError):
        return None
    return subject if isinstance(subject, str) else None


def _basic(headers: list[str]) -> tuple[str, str] | None:
    if not headers:
        return None
    scheme, _, text = headers[0].partition(" ")
    try:
        client_id, separator, secret = b64decode(text.strip(), validate=True).decode().partition(":")
    except ValueError:
        separator = ""
    if len(headers) > 1 or scheme.lower() != "basic" or not separator:
        raise OAuthError("invalid_client", "the Authorization header cannot be read", status=401)
    return unquote_plus(client_id), unquote_plus(secret)
