"""The protocol's own server: which methods there are, and what is handed to them.

Input schemas are given to it one by one, because it would list all tools before each call otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import mcp_types as wire
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from opentelemetry import trace

from amoxi_py.declare.asked_agents import ask_tool_name
from amoxi_py.domain.direct import direct_tool
from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.surfaces.mcp.abilities import Context
from amoxi_py.surfaces.mcp.asking import AgentCalls
from amoxi_py.surfaces.mcp.calling import ToolCalls
from amoxi_py.surfaces.mcp.contents import Reply
from amoxi_py.surfaces.mcp.publishing import Published
from amoxi_py.surfaces.mcp.requests import principal_of, read_request, unknown_tool
from amoxi_py.surfaces.mcp.settings import McpSettings

_HEADER = "x-mcp-header"
_SPANS = "OpenTelemetryMiddleware"  # its module is private

ListTools = Callable[[Context, wire.PaginatedRequestParams | None], Awaitable[wire.ListToolsResult]]
CallTool = Callable[[Context, wire.CallToolRequestParams], Awaitable[Reply]]


class Handlers:
    """Lists and calls what an app publishes, for whoever asks."""

    def __init__(
        self, engine: Engine, published: Mapping[str, Published], tools: ToolCalls, agents: AgentCalls
    ) -> None:
        self._engine = engine
        self._published = published
        self._tools = tools
        self._agents = agents

    async def list_tools(self, ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        """List the tools that the caller may use: the app's in their order, then its agents by name."""
        if params is not None and params.cursor is not None:
            raise MCPError(wire.INVALID_PARAMS, "there is no such cursor: the list has one page")
        principal = principal_of(ctx)
        names = [tool.name for tool in self._engine.tools(principal)]
        found = [self._published[name].tool for name in names if name in self._published]
        agents = {each.agent: each for each in self._published.values() if each.agent is not None}
        found += [agents[agent.name].tool for agent in self._engine.agents(principal) if agent.name in agents]
        return wire.ListToolsResult(tools=found)

    async def call_tool(self, ctx: Context, params: wire.CallToolRequestParams) -> Reply:
        """Call a tool, or ask an agent."""
        request = read_request(ctx, params)
        published = self._published.get(request.name)
        if published is None or not self._exists(published, request.principal):
            raise unknown_tool(request.name)
        if published.agent is not None:
            return await self._agents.call(request, published)
        return await self._tools.call(request, published)

    async def result_of(self, run: Run, principal: Principal) -> wire.CallToolResult | None:
        """Return what the call answers whose run has ended; None where the caller has no such tool."""
        name = direct_tool(run.agent)
        published = self._published.get(ask_tool_name(run.agent) if name is None else name)
        if published is None or not self._exists(published, principal):
            return None
        if published.agent is None:
            return await self._tools.result_of(run, published, principal)
        return await self._agents.result_of(run, published, principal)

    def _exists(self, published: Published, principal: Principal) -> bool:
        if published.agent is None:
            tool = self._engine.catalog.tools.get(published.tool.name)
            return tool is not None and tool.exists_for(principal)
        agent = self._engine.catalog.agents.get(published.agent)
        return agent is not None and agent.exists_for(principal)


def make_server(
    settings: McpSettings, published: Mapping[str, Published], *, list_tools: ListTools, call_tool: CallTool
) -> Server[Any]:
    """Return the protocol's server, with no other methods than these two and the protocol's own."""
    schemas = {name: each.tool.input_schema for name, each in published.items()}
    server: Server[Any] = Server(
        settings.name,
        version=settings.version,
        title=settings.name,
        get_tool_input_schema={name: schema for name, schema in schemas.items() if _names_headers(schema)}.get,
        on_list_tools=list_tools,
        on_call_tool=cast(Any, call_tool),  # a dict is an answer of an extension, which goes through as it is
    )
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # spans would be made for nobody
        server.middleware[:] = [one for one in server.middleware if type(one).__name__ != _SPANS]
    return server


def _names_headers(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says of an argument that it comes as a header too: such calls are checked, which takes time."""
    return _HEADER in encode_json(schema)
