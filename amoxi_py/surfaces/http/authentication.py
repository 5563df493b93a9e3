"""Who asks: a caller's bearer token, else the app's own sign-in, else a visitor with a signed cookie.

A token is compared by its digest and in constant time, and is never told or logged.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import traceback
from dataclasses import dataclass, replace

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from amoxi_py.domain.principal import Principal
from amoxi_py.errors import Forbidden, NotAuthenticated
from amoxi_py.surfaces.cookies import cookie_values, is_secure
from amoxi_py.surfaces.http.settings import Authenticate, HttpSettings
from amoxi_py.surfaces.origins import is_foreign
from amoxi_py.surfaces.tokens import authorizations, bearer_token, caller_of_token, is_bearer

log = logging.getLogger("amoxi_py.http")

COOKIE = "amoxi_visitor"
_COOKIE_AGE_S = 400 * 24 * 3600  # the longest that browsers keep one
_VISITOR = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{64})")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_TOLD = frozenset(
    {"accept", "accept-encoding", "accept-language", "connection", "content-length", "content-type", "host", "origin"}
    | {"last-event-id", "user-agent"}
)
_SHORTEST_SECRET = 8


class SignInFailed(Exception):
    """The app's sign-in failed or gave what cannot be stored; it has been logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks; `cookie` is to be set so that a new visitor is known the next time."""

    principal: Principal
    cookie: str | None = None


class Authentication:
    """Finds out who asks, by the rules of one server."""

    def __init__(self, settings: HttpSettings, secret: bytes) -> None:
        self._settings = settings
        self._secret = hashlib.sha256(b"amoxi visitor cookie\0" + secret).digest()

    async def identify(self, request: Request) -> Caller:
        """Return who asks.

        Raises:
            NotAuthenticated: nobody knows the token, or there is none and visitors are not welcome.
            SignInFailed: the app's own sign-in failed.
            Forbidden: a foreign page tries to change something in the name of a visitor.
        """
        headers = authorizations(request.scope)
        token = bearer_token(headers)
        name = None if token is None else caller_of_token(token, self._settings.callers)
        if name is not None:
            return Caller(principal=Principal(id=f"api:{name}", name=name, channel="api"))
        if not headers or not all(is_bearer(value) for value in headers):  # browsers add other schemes by themselves
            self._refuse_foreign_page(request)
        if self._settings.authenticate is not None:
            signed_in = await ask(self._settings.authenticate, request)
            if signed_in is not None:
                return Caller(principal=replace(signed_in, id=f"user:{signed_in.id}", channel="web"))
        if headers:
            raise NotAuthenticated("the Authorization header holds no known bearer token")
        if not self._settings.anonymous:
            raise NotAuthenticated("this server wants to know who asks; send a bearer token")
        return self._visitor(request)

    def welcome(self, request: Request, caller: Caller, response: Response) -> None:
        """Give a new visitor the cookie. It is done where a visit begins: in answer to a list of agents or a message.

        Elsewhere two answers that cross each other could take a visitor's first run from him.
        """
        if caller.cookie is None:
            return
        secure = is_secure(request, self._settings.public_url)
        prefix = self._settings.prefix
        path = f"{request.scope.get('root_path', '')}{prefix}" if prefix else "/"
        response.set_cookie(
            COOKIE, caller.cookie, max_age=_COOKIE_AGE_S, path=path, secure=secure, httponly=True, samesite="lax"
        )

    def _visitor(self, request: Request) -> Caller:
        for value in cookie_values(request, COOKIE):
            match = _VISITOR.fullmatch(value)
            if match is not None and hmac.compare_digest(match[2], self._signature(match[1])):
                return Caller(principal=_visitor_principal(match[1]))
        visitor = os.urandom(16).hex()
        return Caller(principal=_visitor_principal(visitor), cookie=f"{visitor}.{self._signature(visitor)}")

    def _signature(self, visitor: str) -> str:
        return hmac.new(self._secret, visitor.encode(), hashlib.sha256).hexdigest()

    def _refuse_foreign_page(self, request: Request) -> None:
        origin = request.headers.get("origin")
        if origin is None or request.method in _SAFE_METHODS:
            return
        if is_foreign(request, origin, (self._settings.public_url, *self._settings.cors_origins)):
            raise Forbidden("a page of another origin may not do this in a visitor's name", code="foreign_origin")


async def ask(sign_in: Authenticate, request: Request) -> Principal | None:
    """Return what the app's sign-in says; an error that is no answer of it is logged without what the request holds."""
    try:
        return await sign_in(request)
    except (NotAuthenticated, HTTPException, ClientDisconnect):
        raise
    except Exception:  # noqa: BLE001 - a boundary: the function is the app's, and may raise anything
        log.error("the app's @authenticate failed:\n%s", _without_secrets(traceback.format_exc(), request))
    raise SignInFailed("the app's sign-in failed")


def _without_secrets(text: str, request: Request) -> str:
    """Return a text without what may be a secret of the request: values of the query, and of all but a few headers."""
    held = [value for name, value in request.headers.items() if name not in _TOLD]
    held += [part for value in held for part in re.split(r"[\s;,=:]+", value)]
    held += [value for _, value in request.query_params.multi_items()]
    for secret in sorted((value for value in held if len(value) >= _SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _visitor_principal(visitor: str) -> Principal:
    return Principal(id=f"web:{visitor}", channel="web")
