"""`.../runs/{id}/answers/{call_id}` and `.../runs/{id}/signals/{name}`: what a waiting tool is told from outside."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.surfaces.http.answers import QuestionJson, SignalJson, json_answer, question_json
from amoxi_py.surfaces.http.bodies import AnswerBody, SignalBody
from amoxi_py.surfaces.http.door import Door, principal_of
from amoxi_py.surfaces.http.problems import documented
from amoxi_py.surfaces.http.requests import CallId, RunId, idempotency_key, known_id, read_body
from amoxi_py.surfaces.http.schema import AGENT, IDEMPOTENCY_KEY, body_schema

SignalName = Annotated[str, Path(description="What a tool of the run waits for.")]


class QuestionRoutes:
    """The routes of answers and signals."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes, under an agent and over all agents."""
        for path, name, parameters in (
            ("/agents/{agent}/runs", "agent_run", AGENT["parameters"]),
            ("/runs", "run", []),
        ):
            self._door.add(
                router,
                path + "/{id}/answers/{call_id}",
                self.answer,
                methods=["POST"],
                tags=["questions"],
                operation_id=f"answer_{name}_call",
                response_model=QuestionJson,
                responses=documented(401, 403, 404, 409, 413, 415, 422, 503),
                openapi_extra={"parameters": parameters, "requestBody": body_schema(AnswerBody)},
            )
            self._door.add(
                router,
                path + "/{id}/signals/{name}",
                self.signal,
                methods=["POST"],
                status_code=202,
                tags=["questions"],
                operation_id=f"signal_{name}",
                response_model=SignalJson,
                responses=documented(401, 403, 404, 409, 413, 415, 422, 503),
                openapi_extra={"parameters": [*parameters, IDEMPOTENCY_KEY], "requestBody": body_schema(SignalBody)},
            )

    async def answer(self, request: Request, id: RunId, call_id: CallId) -> Response:
        """Answer a question of a call; the first answer counts, and the same again answers the same."""
        agent = self._door.agent_name(request)
        body = await read_body(request, AnswerBody, self._door.settings.max_body)
        view = await self._door.engine.answers.answer(
            known_id("question", call_id),
            principal_of(request),
            body.answer,
            question=body.question,
            k=body.k,
            run_id=known_id("run", id),
            agent=agent,
        )
        return json_answer(question_json(view))

    async def signal(self, request: Request, id: RunId, name: SignalName) -> Response:
        """Send a signal to a run; it is kept until a tool of the run waits for one of its name."""
        agent = self._door.agent_name(request)
        key = idempotency_key(request)
        run_id = known_id("run", id)
        body = await read_body(request, SignalBody, self._door.settings.max_body)
        signal_id = await self._door.engine.answers.signal(
            run_id, principal_of(request), name, body.payload, idempotency_key=key, agent=agent
        )
        told: SignalJson = {"id": signal_id, "run_id": run_id, "name": name}
        return json_answer(told, 202)
