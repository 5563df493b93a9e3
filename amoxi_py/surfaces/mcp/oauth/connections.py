"""`/oauth/connections`: a person sees what was allowed, and ends it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.surfaces.mcp.oauth.answers import read_form
from amoxi_py.surfaces.mcp.oauth.authorize import person_of, shown_person, sign_in_link
from amoxi_py.surfaces.mcp.oauth.grants import Grants
from amoxi_py.surfaces.mcp.oauth.limits import Allowance
from amoxi_py.surfaces.mcp.oauth.pages import Pages
from amoxi_py.surfaces.mcp.oauth.places import base_of
from amoxi_py.surfaces.mcp.oauth.settings import OAuthSettings
from amoxi_py.surfaces.mcp.oauth.tickets import TicketRefused, Tickets

_ASKED_A_MINUTE = 120


class Connections:
    """The page and its buttons."""

    def __init__(self, settings: OAuthSettings, grants: Grants, tickets: Tickets, pages: Pages) -> None:
        self._settings = settings
        self._grants = grants
        self._tickets = tickets
        self._pages = pages
        self._asked = Allowance("requests", _ASKED_A_MINUTE, 60.0)

    async def show(self, request: Request) -> Response:
        """Show a person's connections."""
        self._asked.use(request)
        person = await person_of(self._settings, request)
        if person is None:
            link = sign_in_link(self._settings, request, "/connections")
            if link is None:
                text = "Sign in to the app in this browser, then come back."
                return self._pages.notice(request, 403, "Please sign in", text)
            return Response(status_code=302, headers={"location": link, "cache-control": "no-store"})
        ticket = await self._tickets.issue(request, "connections", {"owner": person.owner_key})
        page = self._pages.connections(
            request, ticket=ticket.secret, who=shown_person(person), found=await self._grants.connections(person)
        )
        return self._tickets.remember(request, ticket, page)

    async def end(self, request: Request) -> Response:
        """End one of a person's connections, and show the rest."""
        form = await read_form(request)
        person = await person_of(self._settings, request)
        ticket = await self._tickets.take(request, "connections", form)
        if person is None or ticket.content.get("owner") != person.owner_key:
            raise TicketRefused
        await self._grants.end_of(person, form.get("grant", ""))
        base = base_of(self._settings, request)
        return Response(status_code=303, headers={"location": f"{base}/connections", "cache-control": "no-store"})
