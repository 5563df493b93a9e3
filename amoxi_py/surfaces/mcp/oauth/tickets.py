"""A page with a form, bound to the browser that asked for it, and good for one answer within ten minutes.

The form holds a secret, and the browser a cookie that pages of other sites cannot make it send. Both are kept as
digests, so a form that somebody else made, or one that was answered already, is none.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.ports.records import group_of
from amoxi_py.surfaces.cookies import cookie_values, is_secure
from amoxi_py.surfaces.mcp.oauth.keeping import Keeping, digest, new_secret, read_principal
from amoxi_py.surfaces.mcp.oauth.places import base_of
from amoxi_py.surfaces.mcp.oauth.settings import OAuthSettings
from amoxi_py.surfaces.origins import is_foreign

COOKIE = "amoxi_oauth"
_LIFE_S = 600.0
PageKind = Literal["sign-in", "consent", "connections"]
_BROWSER = re.compile(r"[A-Za-z0-9_-]{43}")


class TicketRefused(Exception):
    """The form is none of this browser, was answered already, or is too old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A form: its secret, the page that it is of, what hangs on it, and the browser's cookie when that is new."""

    secret: str
    page: PageKind
    content: dict[str, Any]
    browser: str


class Tickets:
    """All open forms of the app."""

    def __init__(self, settings: OAuthSettings, keeping: Keeping) -> None:
        self._settings = settings
        self._keeping = keeping

    async def issue(self, request: Request, page: PageKind, content: dict[str, Any]) -> Ticket:
        """Make a form for the browser of a request."""
        ticket = Ticket(secret=new_secret(), page=page, content=content, browser=_browser(request) or new_secret())
        kept = {"browser": digest(ticket.browser), "page": page, "content": content}
        whose = None if "principal" not in content else group_of(read_principal(content["principal"]))
        await self._keeping.keep("form", digest(ticket.secret), kept, _LIFE_S, group=whose)
        return ticket

    async def find(self, request: Request, page: PageKind, form: dict[str, str]) -> Ticket:
        """Return the form that was sent; raise `TicketRefused`."""
        return self._checked(request, page, form, await self._keeping.find("form", digest(form.get("ticket", ""))))

    async def take(self, request: Request, page: PageKind, form: dict[str, str]) -> Ticket:
        """Return the form that was sent, once; raise `TicketRefused`."""
        await self.find(request, page, form)  # another browser uses up nothing
        return self._checked(request, page, form, await self._keeping.take("form", digest(form.get("ticket", ""))))

    def remember(self, request: Request, ticket: Ticket, response: Response) -> Response:
        """Give the browser its cookie with the page."""
        secure, path = is_secure(request, self._settings.public_url), base_of(self._settings, request)
        response.set_cookie(COOKIE, ticket.browser, path=path, secure=secure, httponly=True, samesite="lax")
        return response

    def _checked(self, request: Request, page: PageKind, form: dict[str, str], kept: dict[str, Any] | None) -> Ticket:
        origin = request.headers.get("origin")
        if origin is not None and is_foreign(request, origin, (self._settings.public_url,)):
            raise TicketRefused
        browser = _browser(request)
        if kept is None or browser is None or not hmac.compare_digest(digest(browser), kept["browser"]):
            raise TicketRefused
        if kept["page"] != page:
            raise TicketRefused
        return Ticket(secret=form["ticket"], page=page, content=kept["content"], browser=browser)


def _browser(request: Request) -> str | None:
    return next((value for value in cookie_values(request, COOKIE) if _BROWSER.fullmatch(value)), None)
