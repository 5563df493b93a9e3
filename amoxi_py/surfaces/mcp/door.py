"""The MCP door of one app: made with the app, opened when the engine has started."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.routing import BaseRoute, Route

from amoxi_py.declare.definitions import Catalog
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import StoreUnavailable
from amoxi_py.ports.store import Store
from amoxi_py.surfaces.mcp import server as protocol
from amoxi_py.surfaces.mcp.answering import Answering
from amoxi_py.surfaces.mcp.asking import AgentCalls
from amoxi_py.surfaces.mcp.bookmarks import SEALING_KEY as BOOKMARKS_KEY
from amoxi_py.surfaces.mcp.bookmarks import Bookmarks
from amoxi_py.surfaces.mcp.calling import ToolCalls
from amoxi_py.surfaces.mcp.contents import Contents
from amoxi_py.surfaces.mcp.discovery import NoDiscovery
from amoxi_py.surfaces.mcp.endpoint import Endpoint
from amoxi_py.surfaces.mcp.publishing import publish
from amoxi_py.surfaces.mcp.requests import principal_of
from amoxi_py.surfaces.mcp.rounds import SEALING_KEY, sealing
from amoxi_py.surfaces.mcp.serving import Serving, SignIn
from amoxi_py.surfaces.mcp.settings import McpSettings
from amoxi_py.surfaces.mcp.tasks import Tasks

log = logging.getLogger("amoxi_py.mcp")

PATH = "/mcp"
STATIC_PATH = "/mcp/token"
"""For clients that leave the token that they were given unused as soon as they hear of OAuth."""


class McpDoor:
    """The routes of the door, and what they lead to while the server is up."""

    def __init__(self, settings: McpSettings, catalog: Catalog, oauth: SignIn | None = None) -> None:
        self.settings = settings
        self.oauth = oauth
        self._published = publish(catalog)
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
        endpoints = {
            PATH: Endpoint(self.settings, lambda: self.serving, self.oauth),
            STATIC_PATH: Endpoint(self.settings, lambda: self.serving),
        }
        routes = [
            Route(f"{prefix}{path}{ending}", endpoint, include_in_schema=False)
            for path, endpoint in endpoints.items()
            for ending in ("", "/")  # both, because clients lose their headers on the way to the other one
        ]
        return [*routes, *(() if self.oauth is None else self.oauth.own_routes())]

    def root_routes(self) -> list[BaseRoute]:
        """Return the routes at the root of the host, where clients look for OAuth."""
        if self.oauth is not None:
            return list(self.oauth.well_known_routes())
        return [NoDiscovery(*(f"{self.settings.prefix}{path}" for path in (PATH, STATIC_PATH)))]

    @asynccontextmanager
    async def open(self, engine: Engine, store: Store) -> AsyncIterator[None]:
        """Let requests in, until the end; the engine has started, and stops after that."""
        answering = Answering(engine, store, self.settings)
        bookmarks = Bookmarks(await store.secret(BOOKMARKS_KEY, secrets.token_hex(32)), engine.now)
        sealing_key = await store.secret(SEALING_KEY, secrets.token_hex(32))
        url = self.settings.public_url
        files_url = None if url is None else f"{url.rstrip('/')}{self.settings.prefix}/files"
        contents = Contents(engine, files_url)
        handlers = protocol.Handlers(
            engine,
            self._published,
            ToolCalls(engine, self.settings, answering, contents),
            AgentCalls(engine, self.settings, answering, contents),
        )
        server = protocol.make_server(
            self.settings, self._published, list_tools=handlers.list_tools, call_tool=handlers.call_tool
        )
        server.middleware.append(sealing(sealing_key, self.settings.name, lambda ctx: principal_of(ctx).owner_key))
        Tasks(engine, handlers.result_of).offer(server)
        manager = StreamableHTTPSessionManager(
            server, stateless=True, json_response=True, max_request_body_size=self.settings.max_body + 1
        )
        try:
            async with manager.run():
                callers = ", ".join(self.settings.callers) or "none"
                log.info("MCP: %s%s, for the callers %s", self.settings.prefix, PATH, callers)
                self._serving = Serving(
                    answering=answering,
                    bookmarks=bookmarks,
                    app=manager.handle_request,
                    retry_after=self.settings.retry_after,
                )
                try:
                    yield
                finally:
                    self._serving = None
                    answering.flights.close()
        finally:
            await answering.finish()

    def close(self) -> None:
        """Let the requests end in their time, because the server is about to stop."""
        if self._serving is not None:
            self._serving.answering.flights.close()
