"""`/chat/{agent}`: the chat page and the files that it is made of. They are the same for everybody and hold no data.

All of them are files of this package, so the page works without the internet, and its policy allows nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.errors import NotAuthenticated, NotFound
from amoxi_py.surfaces.http.door import Door, Endpoint

PageAgent = Annotated[str, Path(description="The agent's name, in kebab-case.")]

SECURITY: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_FOLDER = files("amoxi_py.surfaces.http") / "chat_page"
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_UNKNOWN = ("There is no such agent", "It does not exist, or you may not use it.")
_SIGN_IN = ("Please sign in", "This server wants to know who asks.")


@dataclass(frozen=True, slots=True)
class _Asset:
    body: bytes
    media_type: str
    etag: str


class ChatRoutes:
    """The routes of the chat page."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes. Those of files come first: no agent has a dot in its name."""
        for name in _names():
            self._door.add(
                router, f"/chat/{name}", _sender(name), known=False, name=f"chat/{name}", include_in_schema=False
            )
        self._door.add(router, "/chat/{agent}", self.page, known=False, name="chat", include_in_schema=False)

    async def page(self, request: Request, agent: PageAgent) -> Response:
        """Return the page of an agent, or a page that says why there is none."""
        try:
            caller = await self._door.identify(request)
            found = self._door.agent(request)
        except NotAuthenticated:
            return _notice(401, *_SIGN_IN, headers={"www-authenticate": "Bearer"})
        except NotFound:
            return _notice(404, *_UNKNOWN)
        assert found is not None, "the path names an agent"
        html = _text("page.html").replace("{agent}", escape(found.name))
        answer = _html(200, html)
        self._door.authentication.welcome(request, caller, answer)
        return answer


def _names() -> list[str]:
    """Return the files that a browser asks for: all that are there, but the pages that are filled in."""
    folders = {"": _FOLDER, "vendor/": _FOLDER / "vendor"}
    names = (f"{path}{entry.name}" for path, folder in folders.items() for entry in folder.iterdir())
    return sorted(name for name in names if name.rpartition(".")[2] in _TYPES)


def _sender(name: str) -> Endpoint:
    async def send(request: Request) -> Response:
        asset = _asset(name)
        headers = {**SECURITY, "cache-control": "no-cache", "etag": asset.etag}  # asked for again, sent when changed
        if asset.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(asset.body, headers=headers, media_type=asset.media_type)

    return send


@cache
def _asset(name: str) -> _Asset:
    body = _FOLDER.joinpath(name).read_bytes()
    digest = hashlib.sha256(body).hexdigest()[:32]
    return _Asset(body, _TYPES[name.rpartition(".")[2]], f'"{digest}"')


@cache
def _text(name: str) -> str:
    return _FOLDER.joinpath(name).read_text("utf-8")


def _notice(status: int, title: str, text: str, *, headers: Mapping[str, str] | None = None) -> Response:
    html = _text("notice.html").replace("{title}", escape(title)).replace("{text}", escape(text))
    return _html(status, html, headers)


def _html(status: int, html: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        html,
        status_code=status,
        headers={**SECURITY, "cache-control": "no-store", **(headers or {})},
        media_type="text/html",
    )
