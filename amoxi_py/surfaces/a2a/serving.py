"""What the door's parts share of one life of the server, and of one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from a2a.server.request_handlers.request_handler import RequestHandler
from starlette.requests import Request

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.surfaces.a2a.events import EventAnswer
from amoxi_py.surfaces.a2a.settings import A2aSettings
from amoxi_py.surfaces.closing import Closing


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What answers in one life of the server; `closing` tells its streams to end, `reading` is one long body's turn."""

    settings: A2aSettings
    engine: Engine
    handler: RequestHandler
    closing: Closing
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request whose caller is known and whose body was read.

    Attributes:
        serving: What answers.
        request: The request; what it receives now is its client's leave.
        principal: Who asks.
        base: The public address of this server with the prefix.
        body: As it came.
    """

    serving: Serving
    request: Request
    principal: Principal
    base: str
    body: bytes

    @property
    def content_type(self) -> str:
        """What the body says that it is."""
        return self.request.headers.get("content-type", "")

    def events(
        self, values: AsyncGenerator[Any, None], tell: Callable[[Exception], Any], *, names_errors: bool = False
    ) -> EventAnswer:
        """Return the answer that streams these values; `tell` makes one of an error in between."""
        settings = self.serving.settings
        return EventAnswer(
            values, tell=tell, names_errors=names_errors, heartbeat=settings.heartbeat, grace=settings.stop_grace
        )
