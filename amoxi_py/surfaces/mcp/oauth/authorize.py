"""Where a person's browser comes: to be known, to allow or deny, and to be sent back to the program with a code."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from amoxi_py.domain.addresses import is_local
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import NotAuthenticated, StoreUnavailable, TooMany
from amoxi_py.surfaces.mcp.oauth.answers import OAuthError, parse_fields, read_form
from amoxi_py.surfaces.mcp.oauth.client_documents import DocumentBusy, DocumentRefused
from amoxi_py.surfaces.mcp.oauth.clients import Client, Clients
from amoxi_py.surfaces.mcp.oauth.grants import Grants
from amoxi_py.surfaces.mcp.oauth.keeping import digest, kept_principal, read_principal
from amoxi_py.surfaces.mcp.oauth.limits import Allowance, address_of
from amoxi_py.surfaces.mcp.oauth.pages import Pages
from amoxi_py.surfaces.mcp.oauth.places import base_of, places_of
from amoxi_py.surfaces.mcp.oauth.redirects import matching_redirect, shown_target, with_parameters
from amoxi_py.surfaces.mcp.oauth.settings import OAuthSettings, SignInBroken
from amoxi_py.surfaces.mcp.oauth.tickets import Ticket, TicketRefused, Tickets
from amoxi_py.surfaces.tokens import caller_of_token

log = logging.getLogger("amoxi_py.mcp")

_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_ASKED_A_MINUTE = 120
_WRONG_TOKENS = 5
_WRONG_PAUSE_S = 0.5
_LONGEST_STATE = 2048
_READ = ("response_type", "client_id", "redirect_uri", "code_challenge", "code_challenge_method", "state", "resource")
_SOON = "Load this page again in a few seconds."
_AGAIN = "Start again from the program that you want to connect."

Page = Callable[[Request], Awaitable[Response]]


class Misasked(Exception):
    """A request that no program should make; `code` is what the standard calls it."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code


class Authorize:
    """`/oauth/authorize`, `/oauth/sign-in` and `/oauth/consent`."""

    def __init__(
        self,
        settings: OAuthSettings,
        clients: Clients,
        grants: Grants,
        tickets: Tickets,
        pages: Pages,
        *,
        wrong_pause: float = _WRONG_PAUSE_S,
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._grants = grants
        self._tickets = tickets
        self._pages = pages
        self._wrong_pause = wrong_pause
        self._asked = Allowance("requests", _ASKED_A_MINUTE, 60.0)
        self._wrong = Allowance("wrong tokens", 10, 600.0)

    async def authorize(self, request: Request) -> Response:
        """Begin: find out what is asked for and who asks, and show the page for it."""
        self._asked.use(request)
        try:
            asked = parse_fields(request.url.query.encode())
        except OAuthError as error:
            return self._pages.notice(request, 400, "This request cannot be read", f"{error.description}. {_AGAIN}")
        try:
            client = await self._clients.find(asked.get("client_id", ""), request)
        except DocumentBusy:
            response = self._pages.notice(request, 503, "This program cannot be looked up now", _SOON)
            response.headers["retry-after"] = "5"
            return response
        except DocumentRefused as refused:
            return self._pages.notice(request, 400, "This program cannot be connected", f"{refused}.")
        if client is None:
            text = f"This server does not know it, or not any more. {_AGAIN}"
            return self._pages.notice(request, 400, "This program is not known", text)
        redirect_uri = matching_redirect(asked.get("redirect_uri"), client.redirect_uris)
        if redirect_uri is None:
            text = "It asks to send you to an address that it has not named before."
            return self._pages.notice(request, 400, "This request is not right", text)
        try:
            content = self._content(request, asked, client, redirect_uri)
        except Misasked as error:
            return self._misasked(request, redirect_uri, asked.get("state"), error)
        who = await person_of(self._settings, request)
        if who is None:
            ticket = await self._tickets.issue(request, "sign-in", content)
            return self._tickets.remember(request, ticket, self._sign_in_page(request, ticket))
        await self._clients.seen(client)
        ticket = await self._tickets.issue(request, "consent", _with_principal(content, who))
        return self._tickets.remember(request, ticket, self._consent_page(request, ticket, who))

    async def sign_in(self, request: Request) -> Response:
        """Take a caller's token in place of a sign-in."""
        form = await read_form(request)
        self._wrong.check(request)
        ticket = await self._tickets.take(request, "sign-in", form)  # one try for one form, however many come at once
        token = form.get("token", "").strip()
        name = caller_of_token(token.encode("utf-8", "surrogatepass"), self._settings.callers)
        if name is not None:
            caller = Principal(id=f"mcp:{name}", name=name, channel="mcp")
            content = {**_with_principal(ticket.content, caller), "token": digest(token)}
            ticket = await self._tickets.issue(request, "consent", content)
            return self._tickets.remember(request, ticket, self._consent_page(request, ticket, caller))
        self._wrong.use(request)
        log.warning("a wrong token was given on the sign-in page, from %s", address_of(request))
        await asyncio.sleep(self._wrong_pause)
        wrong = ticket.content.get("wrong", 0) + 1
        if wrong >= _WRONG_TOKENS:
            return self._pages.notice(request, 403, "Too many wrong tokens", _AGAIN)
        ticket = await self._tickets.issue(request, "sign-in", {**ticket.content, "wrong": wrong})
        page = self._sign_in_page(request, ticket, problem="This server does not know the token.", status=403)
        return self._tickets.remember(request, ticket, page)

    async def consent(self, request: Request) -> Response:
        """Take the person's decision, once, and send the browser back."""
        form = await read_form(request)
        content = (await self._tickets.find(request, "consent", form)).content
        principal = read_principal(content["principal"])
        if form.get("decision") == "allow" and principal.id.startswith("user:"):
            now = await person_of(self._settings, request)
            if now is None or now.owner_key != principal.owner_key:
                text = f"It is not the one that the page was made for. {_AGAIN}"
                return self._pages.notice(request, 403, "Somebody else is signed in now", text)
            principal = now
        await self._tickets.take(request, "consent", form)
        redirect_uri, state = content["redirect_uri"], content["state"]
        if form.get("decision") != "allow":
            told = "the person did not allow it"
            return self._back(request, redirect_uri, state, error="access_denied", error_description=told)
        client = Client(id=content["client"], name=content["client_name"], redirect_uris=(redirect_uri,))
        code = await self._grants.allow(
            client,
            principal,
            redirect_uri=redirect_uri,
            challenge=content["challenge"],
            resource=places_of(self._settings, request.scope).resource,
            target=content["known_by"] if _is_proven(content) else shown_target(redirect_uri),
            token=content.get("token"),
        )
        return self._back(request, redirect_uri, state, code=code)

    def _content(self, request: Request, asked: dict[str, str], client: Client, redirect_uri: str) -> dict[str, Any]:
        if asked.get("response_type") != "code":
            raise Misasked("unsupported_response_type", "'response_type' must be code")
        if asked.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(asked.get("code_challenge", "")):
            raise Misasked("invalid_request", "a 'code_challenge' with the method S256 is needed (PKCE)")
        resource = asked.get("resource")
        if resource is not None and not places_of(self._settings, request.scope).is_resource(resource):
            raise Misasked("invalid_target", "'resource' is not the address of this server's MCP endpoint")
        if len(asked.get("state", "")) > _LONGEST_STATE:
            raise Misasked("invalid_request", f"'state' is longer than {_LONGEST_STATE} letters")
        return {
            "client": client.id,
            "client_name": client.name,
            "known_by": urlsplit(client.id).netloc if client.document else None,
            "redirect_uri": redirect_uri,
            "state": asked.get("state"),
            "challenge": asked["code_challenge"],
            "asked": urlencode({name: asked[name] for name in _READ if name in asked}),
        }

    def _consent_page(self, request: Request, ticket: Ticket, principal: Principal) -> Response:
        content = ticket.content
        return self._pages.consent(
            request,
            ticket=ticket.secret,
            client=_shown(content),
            source=_source(content),
            target=shown_target(content["redirect_uri"]),
            who=shown_person(principal),
            offers=self._settings.offers(principal),
        )

    def _sign_in_page(
        self, request: Request, ticket: Ticket, *, problem: str | None = None, status: int = 200
    ) -> Response:
        return self._pages.sign_in(
            request,
            ticket=ticket.secret,
            client=_shown(ticket.content),
            sign_in_url=sign_in_link(self._settings, request, f"/authorize?{ticket.content['asked']}"),
            with_token=bool(self._settings.callers),
            problem=problem,
            status=status,
        )

    def _misasked(self, request: Request, redirect_uri: str, state: str | None, error: Misasked) -> Response:
        """Tell of an error before the person has agreed: anybody may have named the address, so nobody is sent there.

        A program on the person's own machine is told at once, because it waits.
        """
        told = {"error": error.code, "error_description": str(error)}
        if is_local(urlsplit(redirect_uri)):
            return self._back(request, redirect_uri, state, **told)
        back = self._address_back(request, redirect_uri, state, told)
        link = (back, f"Back to {shown_target(redirect_uri)}")
        return self._pages.notice(request, 400, "This request is not right", f"{error}. {_AGAIN}", link=link)

    def _back(self, request: Request, redirect_uri: str, state: str | None, **told: str) -> Response:
        location = self._address_back(request, redirect_uri, state, told)
        headers = {"location": location, "cache-control": "no-store", "referrer-policy": "no-referrer"}
        return Response(status_code=302, headers=headers)

    def _address_back(self, request: Request, redirect_uri: str, state: str | None, told: dict[str, str]) -> str:
        issuer = places_of(self._settings, request.scope).issuer
        return with_parameters(redirect_uri, {**told, "state": state, "iss": issuer})


def for_people(pages: Pages, page: Page) -> Page:
    """Return the endpoint with every error answered as a page."""

    async def answer(request: Request) -> Response:
        try:
            return await page(request)
        except TicketRefused:
            return pages.notice(
                request, 403, "This page does not hold any more", f"It was answered, or is too old. {_AGAIN}"
            )
        except OAuthError as error:
            return pages.notice(request, error.status, "This request cannot be read", f"{error.description}. {_AGAIN}")
        except TooMany as error:
            response = pages.notice(request, 429, "Too many requests", "Wait a moment, then try again.")
            response.headers["retry-after"] = str(max(1, round(error.retry_after)))
            return response
        except StoreUnavailable:
            return pages.notice(request, 503, "The server is away for a moment", "Try again in a few seconds.")
        except SignInBroken:
            return pages.notice(request, 500, "The sign-in failed", "It has been logged.")
        except Exception:  # the surface's boundary
            log.exception("%s %s failed", request.method, request.scope.get("path"))
            return pages.notice(request, 500, "The server failed", "It has been logged.")

    return answer


async def person_of(settings: OAuthSettings, request: Request) -> Principal | None:
    """Return whom the app's own sign-in knows, as the one who comes by `/mcp`; None for nobody."""
    if settings.sign_in is None:
        return None
    try:
        found = await settings.sign_in(Request(request.scope, _no_body))  # the body is ours
    except NotAuthenticated:
        return None
    except HTTPException as answer:  # what FastAPI's own helpers raise for nobody, or to lead to a page of the app
        if answer.status_code in (401, 403) or 300 <= answer.status_code < 400:
            return None
        raise
    return None if found is None else replace(found, id=f"user:{found.id}", channel="mcp")


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def sign_in_link(settings: OAuthSettings, request: Request, back: str) -> str | None:
    """Return where a person signs in, with the way back under `/oauth`: whole when the sign-in is on another host."""
    if settings.sign_in_url is None:
        return None
    origin = "" if settings.sign_in_url.startswith("/") else places_of(settings, request.scope).origin
    return with_parameters(settings.sign_in_url, {"next": f"{origin}{base_of(settings, request)}{back}"})


def shown_person(principal: Principal) -> str:
    """Return how a person is told who they are."""
    if principal.id.startswith("mcp:"):
        return f"the caller {principal.name}"
    plain = principal.id.removeprefix("user:")
    return f"{principal.name} ({plain})" if principal.name and principal.name != plain else plain


def _with_principal(content: dict[str, Any], principal: Principal) -> dict[str, Any]:
    return {**content, "principal": kept_principal(principal)}


def _is_proven(content: dict[str, Any]) -> bool:
    """Whether the host of a document says where the person is sent; on a machine any program may use its id."""
    return content["known_by"] is not None and urlsplit(content["redirect_uri"]).scheme == "https"


def _source(content: dict[str, Any]) -> str:
    known_by = content["known_by"]
    if known_by is None:
        return "It calls itself so."
    if _is_proven(content):
        return f"It is the one of {known_by}."
    return f"It says that it is the one of {known_by}; any program on this device can say so."


def _shown(content: dict[str, Any]) -> str:
    return content["client_name"] or content["known_by"] or "A program without a name"
