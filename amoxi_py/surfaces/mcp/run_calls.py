"""What calls of tools and of agents have in common: a run that is begun, told of while it goes on, and waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import anyio

from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.ports.store import Submitted
from amoxi_py.surfaces.mcp.answering import Answering
from amoxi_py.surfaces.mcp.contents import Contents
from amoxi_py.surfaces.mcp.dialogue import Dialogue
from amoxi_py.surfaces.mcp.flights import Flight
from amoxi_py.surfaces.mcp.progress import Progress, Telling
from amoxi_py.surfaces.mcp.requests import ToolRequest
from amoxi_py.surfaces.mcp.settings import McpSettings


class RunCalls:
    """Calls of one kind, in one life of the server."""

    def __init__(self, engine: Engine, settings: McpSettings, answering: Answering, contents: Contents) -> None:
        self._engine = engine
        self._settings = settings
        self._answering = answering
        self._contents = contents

    async def _submitted(self, flight: Flight, request: ToolRequest, submission: Awaitable[Submitted]) -> Run:
        """Return the run of a submission, which is waited for so that it is known what a client that leaves began."""
        flight.submitting = True
        with anyio.CancelScope(shield=True):
            submitted = await submission
        self._answering.began(flight, request, submitted.run.id, started=submitted.created)
        return submitted.run

    def _dialogue(self, request: ToolRequest, *, started: bool) -> Dialogue:
        return Dialogue(self._engine, request, started=started, task_after=self._settings.task_after)

    @asynccontextmanager
    async def _telling(
        self, request: ToolRequest, flight: Flight, run_id: str, *, of_agent: bool
    ) -> AsyncIterator[Telling]:
        """Tell the client of its run, beginning with its id, until the end of the block."""
        progress = Progress(
            request.report, self._settings.heartbeat, 0 if request.stream is None else request.stream.told
        )
        telling = Telling(progress, lambda: self._engine.follow(request.principal, run_id=run_id), of_agent=of_agent)
        progress.start()
        try:
            if progress.wanted:
                await self._answering.mark(request, flight)  # before anything else is told
                await progress.tell(f"Run {run_id}")
            yield telling
        finally:
            telling.stop()
