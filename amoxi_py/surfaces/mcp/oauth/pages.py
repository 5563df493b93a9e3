"""The pages that a person sees: plain HTML that works without scripts, and that no other page may frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.surfaces.mcp.oauth.grants import Connection
from amoxi_py.surfaces.mcp.oauth.places import base_of
from amoxi_py.surfaces.mcp.oauth.settings import OAuthSettings

_MOST_OFFERS = 30


class Pages:
    """Makes the pages of one app."""

    def __init__(self, settings: OAuthSettings) -> None:
        self._settings = settings
        self._app = escape(settings.app_name)

    def notice(
        self, request: Request, status: int, title: str, text: str, *, link: tuple[str, str] | None = None
    ) -> Response:
        """Return a page that says one thing; `link` is an address and its text."""
        way = "" if link is None else f'<p><a href="{escape(link[0])}">{escape(link[1])}</a></p>'
        return self._page(request, status, escape(title), f"<p>{escape(text)}</p>{way}")

    def sign_in(
        self,
        request: Request,
        *,
        ticket: str,
        client: str,
        sign_in_url: str | None,
        with_token: bool,
        problem: str | None = None,
        status: int = 200,
    ) -> Response:
        """Return the page for somebody whom the app does not know."""
        base = escape(base_of(self._settings, request))
        parts = [f'<p><span class="name">{escape(client)}</span> asks for a connection to {self._app}.</p>']
        if sign_in_url is not None:
            link = f'<a class="button primary" href="{escape(sign_in_url)}">Sign in to {self._app}</a>'
            parts.append(f'<div class="buttons">{link}</div>')
        elif not with_token:
            parts.append(f"<p>Sign in to {self._app} in this browser, then come back and load this page again.</p>")
        if with_token:
            title = "Or use a token" if sign_in_url is not None else "Use a token"
            told = "" if problem is None else f'<p class="problem" role="alert" id="problem">{escape(problem)}</p>'
            invalid = "" if problem is None else ' aria-invalid="true" aria-describedby="problem"'
            parts.append(
                f'<h2>{title}</h2><p class="soft">The connection is then that of the token, and of no person.</p>{told}'
                f'<form method="post" action="{base}/sign-in"><input type="hidden" name="ticket" value="{ticket}">'
                '<label for="token">Token</label>'
                f'<input id="token" name="token" type="password" autocomplete="off" required{invalid}>'
                '<div class="buttons"><button>Go on</button></div></form>'
            )
        return self._page(request, status, "Please sign in", "".join(parts))

    def consent(
        self,
        request: Request,
        *,
        ticket: str,
        client: str,
        source: str,
        target: str,
        who: str,
        offers: Sequence[str],
    ) -> Response:
        """Return the page that asks whether a program may connect; `source` says what is known of it."""
        base = escape(base_of(self._settings, request))
        able = "".join(f"<li>{escape(one)}</li>" for one in offers[:_MOST_OFFERS])
        if len(offers) > _MOST_OFFERS:
            able += f"<li>and {len(offers) - _MOST_OFFERS} more</li>"
        ability = f"<h2>It will be able to use</h2><ul>{able}</ul>" if able else ""
        body = (
            f'<p class="soft">{escape(source)} Go on only if you have just asked it to connect.</p>'
            f"<dl><dt>You are</dt><dd>{escape(who)}</dd><dt>It goes to</dt><dd>{escape(target)}</dd></dl>{ability}"
            "<p>What it does is done in your name, and it sees only what is yours.</p>"
            f'<form method="post" action="{base}/consent"><input type="hidden" name="ticket" value="{ticket}">'
            '<div class="buttons"><button class="primary" name="decision" value="allow">Allow</button>'
            '<button name="decision" value="deny">Deny</button></div></form>'
            f'<p class="soft">You can end it at any time at <a href="{base}/connections">your connections</a>.</p>'
        )
        title = f"Let {escape(client)} use {self._app}?"
        return self._page(request, 200, title, body, sends_away=True)

    def connections(self, request: Request, *, ticket: str, who: str, found: Iterable[Connection]) -> Response:
        """Return the page with what a person has allowed."""
        base = escape(base_of(self._settings, request))
        rows = "".join(
            f'<form class="one" method="post" action="{base}/connections">'
            f'<p><strong class="name">{escape(one.client_name) or "A program without a name"}</strong></p>'
            f'<p class="soft">{escape(one.target)}, since {datetime.fromtimestamp(one.created_at, UTC):%d %B %Y}</p>'
            f'<input type="hidden" name="ticket" value="{ticket}"><input type="hidden" name="grant" value="{one.id}">'
            '<div class="buttons">'
            f'<button aria-label="End the connection of {escape(one.client_name)}">End</button></div>'
            "</form>"
            for one in found
        )
        body = f'<p class="soft">You are {escape(who)}.</p>' + (rows or "<p>There are none.</p>")
        return self._page(request, 200, f"Your connections to {self._app}", body)

    def style(self) -> Response:
        """Return the pages' style."""
        return Response(_style(), media_type="text/css", headers={**security(), "cache-control": "max-age=3600"})

    def _page(self, request: Request, status: int, title: str, body: str, *, sends_away: bool = False) -> Response:
        """Return a page; title and body are HTML."""
        base = escape(base_of(self._settings, request))
        html = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>{title}</title><link rel="stylesheet" href="{base}/page.css"></head>'
            f"<body><main><h1>{title}</h1>{body}</main></body></html>"
        )
        headers = {**security(sends_away=sends_away), "cache-control": "no-store"}
        return Response(html, status_code=status, headers=headers, media_type="text/html")


def security(*, sends_away: bool = False) -> Mapping[str, str]:
    """Return what keeps a page from being framed, and from loading anything that is not its own.

    Browsers hold `form-action` against all redirects that follow a form, and where the program's own address leads to
    nobody knows: so a page whose form sends the person away says nothing of it.
    """
    forms = "" if sends_away else "; form-action 'self'"
    return {
        "content-security-policy": (
            f"default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'{forms}"
        ),
        "referrer-policy": "same-origin",  # with `no-referrer` a form's Origin would be `null`
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }


@cache
def _style() -> str:
    return (files("amoxi_py.surfaces.mcp.oauth") / "page.css").read_text("utf-8")
