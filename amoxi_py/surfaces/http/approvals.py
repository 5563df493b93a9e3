"""`/approvals`, and `.../runs/{id}/approvals/{call_id}`: what waits for a person's decision, and the decision."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.errors import InvalidRequest
from amoxi_py.surfaces.http.answers import ApprovalJson, ApprovalsJson, approval_json, approvals_json, json_answer
from amoxi_py.surfaces.http.bodies import DecisionBody
from amoxi_py.surfaces.http.door import Door, principal_of
from amoxi_py.surfaces.http.problems import documented
from amoxi_py.surfaces.http.requests import CallId, Cursor, Limit, RunId, known_id, read_body
from amoxi_py.surfaces.http.schema import AGENT, body_schema


class ApprovalRoutes:
    """The routes of approvals."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes, under an agent and over all agents."""
        for path, name, extra in (("/agents/{agent}/runs", "agent_run_call", AGENT), ("/runs", "run_call", {})):
            self._door.add(
                router,
                path + "/{id}/approvals/{call_id}",
                self.decide,
                methods=["POST"],
                tags=["approvals"],
                operation_id=f"decide_{name}",
                response_model=ApprovalJson,
                responses=documented(401, 403, 404, 409, 413, 415, 422, 503),
                openapi_extra={**extra, "requestBody": body_schema(DecisionBody)},
            )

        self._door.add(
            router,
            "/approvals",
            self.list_approvals,
            tags=["approvals"],
            operation_id="list_approvals",
            response_model=ApprovalsJson,
            responses=documented(401, 422, 503),
        )
        self._door.add(
            router,
            "/approvals/{call_id}",
            self.decide_call,
            methods=["POST"],
            tags=["approvals"],
            operation_id="decide_call",
            response_model=ApprovalJson,
            responses=documented(401, 403, 404, 409, 413, 415, 422, 503),
            openapi_extra={"requestBody": body_schema(DecisionBody)},
        )

    async def list_approvals(self, request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """List the open approvals that the caller may decide, over all agents, those of the oldest run first.

        A page may hold fewer than `limit`, even none, and have a `next_cursor`: only one without it is the last.
        """
        page = await self._door.engine.list_approvals(principal_of(request), limit=limit, cursor=cursor)
        return json_answer(approvals_json(page))

    async def decide(self, request: Request, id: RunId, call_id: CallId) -> Response:
        """Approve or decline a call of a run; the first decision counts, and the same again answers the same."""
        agent = self._door.agent_name(request)
        return await self._decide(request, call_id, run_id=known_id("run", id), agent=agent)

    async def decide_call(self, request: Request, call_id: CallId) -> Response:
        """Approve or decline a call; the first decision counts, and the same again answers the same."""
        return await self._decide(request, call_id)

    async def _decide(
        self, request: Request, call_id: str, *, run_id: str | None = None, agent: str | None = None
    ) -> Response:
        body = await read_body(request, DecisionBody, self._door.settings.max_body)
        if body.arguments is not None and body.decision != "approve":
            raise InvalidRequest(
                "a declined call takes no arguments",
                errors=({"field": "arguments", "message": "only an approval can change them"},),
            )
        approval, view = await self._door.engine.decide(
            known_id("approval", call_id),
            principal_of(request),
            body.decision,
            reason=body.reason,
            arguments=body.arguments,
            run_id=run_id,
            agent=agent,
        )
        return json_answer(approval_json(approval, view))
