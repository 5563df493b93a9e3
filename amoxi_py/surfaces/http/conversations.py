"""`/agents/{agent}/conversations`: list, read, follow and erase what a caller and an agent have said."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.surfaces.http.answers import (
    ConversationPageJson,
    ConversationsJson,
    conversation_page_json,
    conversations_json,
    json_answer,
)
from amoxi_py.surfaces.http.door import Door, principal_of
from amoxi_py.surfaces.http.following import events_answer
from amoxi_py.surfaces.http.problems import documented
from amoxi_py.surfaces.http.requests import After, ConversationId, Cursor, Limit, cursor_of_stream, known_id
from amoxi_py.surfaces.http.schema import AGENT, EVENTS, LAST_EVENT_ID

_PATH = "/agents/{agent}/conversations"


class ConversationRoutes:
    """The routes of conversations."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes."""
        self._door.add(
            router,
            _PATH,
            self.list_conversations,
            tags=["conversations"],
            operation_id="list_conversations",
            response_model=ConversationsJson,
            responses=documented(401, 404, 422, 503),
            openapi_extra=AGENT,
        )
        self._door.add(
            router,
            _PATH + "/{id}",
            self.read,
            tags=["conversations"],
            operation_id="read_conversation",
            response_model=ConversationPageJson,
            responses=documented(401, 404, 422, 503),
            openapi_extra=AGENT,
        )
        self._door.add(
            router,
            _PATH + "/{id}",
            self.erase,
            methods=["DELETE"],
            status_code=204,
            tags=["conversations"],
            operation_id="erase_conversation",
            response_model=None,
            responses=documented(401, 403, 404, 422, 503),
            openapi_extra=AGENT,
        )
        self._door.add(
            router,
            _PATH + "/{id}/events",
            self.follow,
            tags=["conversations"],
            operation_id="follow_conversation",
            response_model=None,
            responses={**documented(401, 404, 422, 503), 200: EVENTS[200]},
            openapi_extra={"parameters": [*AGENT["parameters"], LAST_EVENT_ID]},
        )

    async def list_conversations(self, request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """List the caller's conversations with an agent, newest first."""
        agent = self._door.agent_name(request)
        page = await self._door.engine.list_conversations(principal_of(request), agent, limit=limit, cursor=cursor)
        return json_answer(conversations_json(page))

    async def read(self, request: Request, id: ConversationId, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """Return the newest messages of a conversation, oldest first; the cursor gives the ones before."""
        agent = self._door.agent_name(request)
        page = await self._door.engine.read_conversation(
            known_id("conversation", id), principal_of(request), agent, limit=limit, cursor=cursor
        )
        return json_answer(conversation_page_json(page, self._door.engine.now()))

    async def erase(self, request: Request, id: ConversationId) -> Response:
        """Cancel what runs in a conversation, and delete it with all that belongs to it."""
        agent = self._door.agent_name(request)
        await self._door.engine.erase(known_id("conversation", id), principal_of(request), agent)
        return Response(status_code=204)

    async def follow(self, request: Request, id: ConversationId, after: After = None) -> Response:
        """Stream the events of all runs of a conversation; the stream stays open."""
        return await events_answer(
            self._door,
            request,
            conversation_id=known_id("conversation", id),
            agent=self._door.agent_name(request),
            after=cursor_of_stream(request, after),
        )
