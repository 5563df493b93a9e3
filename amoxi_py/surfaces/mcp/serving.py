"""What the door's parts share of one life of the server, and what they need to know of who signs people in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Scope

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.mcp.answering import Answering
from amoxi_py.surfaces.mcp.bookmarks import Bookmarks


class SignIn(Protocol):
    """How people come in by OAuth."""

    async def verify(self, token: str, scope: Scope | None = None) -> Principal | None:
        """Return whose token this is; None when it is nobody's; raise `StoreUnavailable` when nobody can say now."""
        ...

    def challenge(self, error: str | None = None, scope: Scope | None = None) -> str:
        """Return the `WWW-Authenticate` of an answer 401."""
        ...

    def own_routes(self) -> Sequence[BaseRoute]:
        """Return the routes that sign people in, with their whole paths, which have the prefix."""
        ...

    def well_known_routes(self) -> Sequence[BaseRoute]:
        """Return those of documents, at the root of the host."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What answers in one life of the server.

    Attributes:
        app: Answers in JSON.
        retry_after: How many seconds a client waits before it asks for the rest of an answer that was cut off.
    """

    answering: Answering
    bookmarks: Bookmarks
    app: ASGIApp
    retry_after: float
