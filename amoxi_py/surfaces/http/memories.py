"""`/memories`: what is remembered of the caller, to read, to search and to forget. Nobody else's can be named."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.domain.memory import MOST_FOUND
from amoxi_py.errors import InvalidRequest
from amoxi_py.surfaces.http.answers import json_answer
from amoxi_py.surfaces.http.door import Door, principal_of
from amoxi_py.surfaces.http.memory_answers import MemoriesJson, memories_json
from amoxi_py.surfaces.http.problems import documented
from amoxi_py.surfaces.http.requests import Cursor, Limit, known_id

MemoryId = Annotated[str, Path(description="The memory's id.")]
Wanted = Annotated[
    str | None, Query(min_length=1, max_length=1000, description="What is looked for: those that fit best come first.")
]


class MemoryRoutes:
    """The routes of memories."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes."""
        self._door.add(
            router,
            "/memories",
            self.list_memories,
            tags=["memories"],
            operation_id="list_memories",
            response_model=MemoriesJson,
            responses=documented(401, 422, 503),
        )
        self._door.add(
            router,
            "/memories",
            self.forget_all,
            methods=["DELETE"],
            status_code=204,
            tags=["memories"],
            operation_id="forget_memories",
            response_model=None,
            responses=documented(401, 403, 503),
        )
        self._door.add(
            router,
            "/memories/{id}",
            self.forget,
            methods=["DELETE"],
            status_code=204,
            tags=["memories"],
            operation_id="forget_memory",
            response_model=None,
            responses=documented(401, 403, 404, 503),
        )

    async def list_memories(
        self, request: Request, limit: Limit = 50, cursor: Cursor = None, q: Wanted = None
    ) -> Response:
        """List what is remembered of the caller, the newest first; with `q` what fits best, at most 50 on one page."""
        memories, principal = self._door.engine.memories, principal_of(request)
        if q is None:
            page = await memories.list(principal, limit=limit, cursor=cursor)
            return json_answer(memories_json(page.items, page.next_cursor))
        if cursor is not None:
            message = "a search has one page"
            raise InvalidRequest(
                "a search takes no cursor: ask for more with limit", errors=({"field": "cursor", "message": message},)
            )
        found = await memories.recall(principal, q, min(limit, MOST_FOUND))
        return json_answer(memories_json(found, None))

    async def forget(self, request: Request, id: MemoryId) -> Response:
        """Forget one memory, at once and for good."""
        await self._door.engine.memories.delete(principal_of(request), known_id("memory", id))
        return Response(status_code=204)

    async def forget_all(self, request: Request) -> Response:
        """Forget all that is remembered of the caller, at once and for good."""
        await self._door.engine.memories.clear(principal_of(request))
        return Response(status_code=204)
