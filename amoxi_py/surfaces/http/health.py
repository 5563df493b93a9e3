"""`/health`: probes for whoever restarts a process or sends it traffic."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.errors import NotReady
from amoxi_py.surfaces.http.answers import HealthJson, json_answer
from amoxi_py.surfaces.http.door import Door
from amoxi_py.surfaces.http.problems import documented


class HealthRoutes:
    """The routes of probes; they ask nobody who they are."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes."""
        for path, endpoint, responses in (
            ("/health/live", self.live, None),
            ("/health/ready", self.ready, documented(503)),
        ):
            self._door.add(
                router,
                path,
                endpoint,
                known=False,
                tags=["health"],
                operation_id=f"health_{endpoint.__name__}",
                response_model=HealthJson,
                responses=responses,
            )
            self._door.add(router, path, endpoint, known=False, methods=["HEAD"], include_in_schema=False)

    async def live(self, request: Request) -> Response:
        """Say that the process answers."""
        return json_answer({"status": "live"})

    async def ready(self, request: Request) -> Response:
        """Say that the process can do work; 503 while it cannot, and from the moment that it stops."""
        if self._door.closing.is_set():
            raise NotReady("the server stops")
        await self._door.engine.ready()
        return json_answer({"status": "ready"})
