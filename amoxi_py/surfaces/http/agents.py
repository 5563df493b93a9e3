"""`/agents`: which agents the caller may use."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.surfaces.http.answers import AgentsJson, agent_json, json_answer
from amoxi_py.surfaces.http.door import Door, caller_of
from amoxi_py.surfaces.http.problems import documented


class AgentRoutes:
    """The routes of agents."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes."""
        self._door.add(
            router,
            "/agents",
            self.list_agents,
            tags=["agents"],
            operation_id="list_agents",
            response_model=AgentsJson,
            responses=documented(401, 503),
        )

    async def list_agents(self, request: Request) -> Response:
        """List the agents that the caller may use, with their tools."""
        caller = caller_of(request)
        agents = self._door.engine.agents(caller.principal)
        answer = json_answer({"items": [agent_json(agent, caller.principal) for agent in agents], "next_cursor": None})
        self._door.authentication.welcome(request, caller, answer)
        return answer
