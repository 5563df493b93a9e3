"""What an app publishes: each tool and agent as an MCP tool, made once, and checked before anything starts.

One list entry that a client cannot read makes most clients drop the whole list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as wire
from mcp_types.methods import serialize_server_result
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from amoxi_py.declare.asked_agents import ask_tool_name
from amoxi_py.declare.definitions import AgentDefinition, Catalog, ToolDefinition
from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import Effect
from amoxi_py.surfaces.mcp.quick_checks import Check, check_of
from amoxi_py.surfaces.mcp.schemas import RESULT, is_object, parted, what_is_wrong, wrapped

_CACHE_FIELDS = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}  # the newest version asks for them
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A tool as clients see it.

    Attributes:
        tool: Its entry in the list.
        wraps: Whether its result is told as the property `result` of an object.
        check: Whether a structured result is what is advertised; None when it declares no form of them.
        agent: The name of the agent that it asks, or None for a tool of the app.
    """

    tool: wire.Tool
    wraps: bool = False
    check: Check | None = None
    agent: str | None = None

    def structured(self, value: Any) -> Any:
        """Return a result as structured content, or None when it has no such form."""
        if self.check is None:
            return value if isinstance(value, dict) else None
        return {RESULT: value} if self.wraps else value

    def fits(self, structured: Any) -> bool:
        """Whether structured content is what was advertised."""
        return self.check is None or self.check(structured)


def publish_tool(tool: ToolDefinition) -> Published:
    """Return a tool of the app as clients see it."""
    output, wraps = tool.output_schema, False
    if output is not None and not is_object(output):
        output, wraps = wrapped(output), True
    return Published(
        tool=wire.Tool(
            name=tool.name,
            title=_title(tool.name),
            description=tool.description,
            input_schema=dict(tool.parameters),
            output_schema=None if output is None else dict(output),
            annotations=wire.ToolAnnotations(
                title=_title(tool.name),
                read_only_hint=tool.effect is Effect.READ_ONLY,
                destructive_hint=tool.effect is not Effect.READ_ONLY,
                idempotent_hint=tool.effect is Effect.IDEMPOTENT,
                open_world_hint=True,
            ),
        ),
        wraps=wraps,
        check=None if output is None else check_of(output),
    )


def publish_agent(agent: AgentDefinition) -> Published:
    """Return an agent as the tool that asks it."""
    name = ask_tool_name(agent.name)
    title = _title(name)
    harmless = all(tool.effect is Effect.READ_ONLY for tool in agent.tools)
    output = _output_of_agent(agent)
    return Published(
        tool=wire.Tool(
            name=name,
            title=title,
            description=f"{agent.description}\n\n{_HOW_TO_ASK}".strip(),
            input_schema=_INPUT_OF_AGENT,
            output_schema=output,
            annotations=wire.ToolAnnotations(
                title=title,
                read_only_hint=False,
                destructive_hint=not harmless,
                idempotent_hint=False,
                open_world_hint=True,
            ),
        ),
        check=check_of(output),
        agent=agent.name,
    )


def publish(catalog: Catalog) -> dict[str, Published]:
    """Return all that an app may show to some caller, by the name on the wire."""
    found = {tool.name: publish_tool(tool) for tool in _tools(catalog)}
    for agent in _agents(catalog):
        published = publish_agent(agent)
        found[published.tool.name] = published
    return found


def mistakes_of(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Give what clients could not use: where it is, and what is wrong with it."""
    for tool in _tools(catalog):
        yield from _mistakes_of_tool(tool)
    for agent in _agents(catalog):
        if agent.result is not None:
            wrong = what_is_wrong(agent.result.parameters)
            if wrong is not None:
                yield agent.result.where, f"MCP clients cannot use the schema of this result: {wrong}"


def _mistakes_of_tool(tool: ToolDefinition) -> Iterator[tuple[str, str]]:
    wrong = what_is_wrong(tool.parameters)
    if wrong is not None:
        yield tool.where, f"MCP clients cannot use the schema of its parameters: {wrong}; {_WAY_OUT}"
    if tool.output_schema is not None:
        output = tool.output_schema
        also_wrong = what_is_wrong(output if is_object(output) else wrapped(output))
        if also_wrong is not None:
            yield tool.where, f"MCP clients cannot use the schema of its result: {also_wrong}; {_WAY_OUT}"
            return
    if wrong is None:
        yield from ((tool.where, f"{sentence}; {_WAY_OUT}") for sentence in _refused_by_a_version(tool))


def _refused_by_a_version(tool: ToolDefinition) -> Iterator[str]:
    try:
        listed = wire.ListToolsResult(tools=[publish_tool(tool).tool]).model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
    except ValidationError as error:
        yield f"MCP clients cannot list it: {_first(error)}"
        return
    for version in KNOWN_PROTOCOL_VERSIONS:
        try:
            serialize_server_result("tools/list", version, {**_CACHE_FIELDS, **listed})
        except ValidationError as error:
            yield f"clients of MCP {version} cannot list it: {_first(error)}"


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:_LONGEST_REASON]


def _tools(catalog: Catalog) -> Iterator[ToolDefinition]:
    return (tool for tool in catalog.tools.values() if tool.callable_directly)


def _agents(catalog: Catalog) -> Iterator[AgentDefinition]:
    return (agent for agent in catalog.agents.values() if agent.expose)


def _title(name: str) -> str:
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def _output_of_agent(agent: AgentDefinition) -> dict[str, Any]:
    properties: dict[str, Any] = dict(_OUTPUT_OF_AGENT)
    definitions: Mapping[str, Any] = {}
    if agent.result is not None:
        inner, definitions = parted(agent.result.parameters)
        properties[RESULT] = inner
    whole: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": ["run_id", "conversation_id", "status", "output"],
    }
    return {**whole, "$defs": dict(definitions)} if definitions else whole


_WAY_OUT = "change the type that it comes from, or hide the tool with expose=False"
_HOW_TO_ASK = (
    "Give `message` to ask; with the `conversation_id` of an earlier answer it goes on from there. When the answer "
    "says that the work goes on, give its `run_id` alone to wait for the rest. When it holds a question, give "
    "`run_id` and the answer to it as `message`."
)
_INPUT_OF_AGENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {
            "type": "string",
            "description": "What the agent is to do or to find out; with run_id, the answer to the run's question",
        },
        "conversation_id": {
            "type": "string",
            "description": "An earlier answer's, to go on with that conversation; only with message",
        },
        "run_id": {
            "type": "string",
            "description": "An earlier answer's: alone to wait for the rest, with message to answer its question",
        },
    },
    "additionalProperties": False,
}
_OUTPUT_OF_AGENT: dict[str, Any] = {
    "run_id": {"type": "string"},
    "conversation_id": {"type": "string"},
    "status": {"type": "string", "enum": [status.value for status in RunStatus]},
    "output": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "The agent's answer"},
    "waiting_for": {
        "type": "array",
        "description": "What the run waits for",
        "items": {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]},
    },
}
