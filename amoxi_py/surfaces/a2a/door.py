"""The A2A door of one app: made with the app, opened when the engine has started."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from amoxi_py.declare.definitions import Catalog
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import StoreUnavailable
from amoxi_py.ports.store import Store
from amoxi_py.surfaces.a2a.card import CARD_PATH, CardRoute
from amoxi_py.surfaces.a2a.endpoint import REST, Endpoint
from amoxi_py.surfaces.a2a.serving import Serving
from amoxi_py.surfaces.a2a.settings import PATH, A2aSettings
from amoxi_py.surfaces.a2a.signing import KEYS_PATH, Signer
from amoxi_py.surfaces.closing import Closing

log = logging.getLogger("amoxi_py.a2a")


class A2aDoor:
    """The routes of the door, and what they lead to while the server is up."""

    def __init__(self, settings: A2aSettings, catalog: Catalog) -> None:
        self.settings = settings
        self._signer = None if settings.card_key is None else Signer(settings.card_key)
        self._card = CardRoute(settings, catalog, self._signer)
        self._serving: Serving | None = None

    @property
    def serving(self) -> Serving:
        """What answers; raise `StoreUnavailable` before the start."""
        if self._serving is None:
            raise StoreUnavailable("the server has not started yet")
        return self._serving

    def routes(self) -> list[BaseRoute]:
        """Return the routes under the app's prefix."""
        prefix = self.settings.prefix
        endpoint = Endpoint(self.settings, lambda: self.serving)
        paths = [f"{prefix}{PATH}", f"{prefix}{PATH}/{{{REST}:path}}"]
        routes: list[BaseRoute] = [Route(path, endpoint, include_in_schema=False) for path in paths]
        if self._signer is not None:
            routes.insert(0, Route(f"{prefix}{KEYS_PATH}", self._keys, include_in_schema=False))
        if prefix:  # for clients that were told the prefix as the address of the app
            routes.append(Route(f"{prefix}{CARD_PATH}", self._card, include_in_schema=False))
        return routes

    def root_routes(self) -> list[BaseRoute]:
        """Return the route at the root of the host, where clients look for the card."""
        return [Route(CARD_PATH, self._card, include_in_schema=False)]

    @asynccontextmanager
    async def open(self, engine: Engine, store: Store) -> AsyncIterator[None]:
        """Let requests in, until the end; the engine has started, and stops after that."""
        from amoxi_py.surfaces.a2a.handler import A2aHandler
        from amoxi_py.surfaces.a2a.webhooks import Webhooks

        closing = Closing()
        webhooks = Webhooks(engine, store, self.settings)
        await webhooks.open()
        try:
            handler = A2aHandler(engine, store, self.settings, closing, webhooks)
            self._serving = Serving(settings=self.settings, engine=engine, handler=handler, closing=closing)
            callers = ", ".join(self.settings.callers) or "none"
            log.info("A2A: %s%s, for the callers %s", self.settings.prefix, PATH, callers)
            try:
                yield
            finally:
                self._serving = None
                closing.set()
        finally:
            await webhooks.close()

    def close(self) -> None:
        """Let the requests end in their time, because the server is about to stop."""
        if self._serving is not None:
            self._serving.closing.set()

    async def _keys(self, request: Request) -> Response:
        assert self._signer is not None
        return self._signer.keys()
