"""`agents=[...]`: from the agents that an agent may ask to the tools `ask_<agent>` by which its model asks them.

Such a tool has no code of its own: a call of it is a run of the asked agent, which the engine starts and waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from amoxi_py.declare.agent import AgentMark
from amoxi_py.declare.agent_definition import agent_where
from amoxi_py.declare.arguments import read_parameters
from amoxi_py.declare.context import CallContext
from amoxi_py.declare.definitions import AgentDefinition, Instances, ToolDefinition
from amoxi_py.declare.marks import get_mark
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.signature import ToolParameter
from amoxi_py.domain.encoding import clean_json
from amoxi_py.domain.tool_call import Effect
from amoxi_py.errors import ToolError

_MOST_TOOLS = 128  # what OpenAI's API takes in one request
_MESSAGE = (
    "What it is to do or to find out. It sees nothing of this conversation, so say all that it needs to know, "
    "and what it is to answer with."
)


def with_asked(things: Iterable[Any]) -> list[Any]:
    """Return what is declared, each once, with the agents that agents among it may ask."""
    found = {id(thing): thing for thing in things}
    new = list(found.values())
    while new:
        asked = [item for thing in new for item in _listed(get_mark(thing, AgentMark))]
        new = [item for item in asked if id(item) not in found and _is_agent(item)]
        found.update((id(item), item) for item in new)
    return list(found.values())


def link_agents(agents: Mapping[type[Any], AgentDefinition], mistakes: Mistakes) -> list[AgentDefinition]:
    """Return the definitions of agents, by class, with the tools by which they ask each other."""
    asked = {cls: _asked_by(cls, agents, mistakes) for cls in agents}
    _refuse_circles(asked, mistakes)
    linked = []
    for cls, definition in agents.items():
        tools = (*definition.tools, *(_ask_tool(agents[other]) for other in asked[cls]))
        if len(tools) > _MOST_TOOLS:
            mistakes.add(
                agent_where(cls),
                f"it has {len(tools)} tools, and providers take {_MOST_TOOLS} at most; part them among several agents",
            )
        linked.append(replace(definition, tools=tools))
    return linked


def ask_tool_name(agent: str) -> str:
    """Return the name of the tool by which an agent is asked: `billing-agent` is asked by `ask_billing_agent`."""
    return "ask_" + agent.replace("-", "_")


def _listed(mark: AgentMark | None) -> list[Any]:
    return [] if mark is None or not _is_list(mark.agents) else list(mark.agents)


def _is_list(agents: Any) -> bool:
    return isinstance(agents, Sequence) and not isinstance(agents, str)


def _is_agent(item: Any) -> bool:
    return isinstance(item, type) and get_mark(item, AgentMark) is not None


def _asked_by(cls: type[Any], agents: Mapping[type[Any], AgentDefinition], mistakes: Mistakes) -> list[type[Any]]:
    mark, where = get_mark(cls, AgentMark), agent_where(cls)
    if mark is not None and not _is_list(mark.agents):
        mistakes.add(where, f"`agents={mark.agents!r}` must be a list of classes")
    asked: list[type[Any]] = []
    for item in _listed(mark):
        wrong = _what_is_wrong(item, cls, asked)
        if wrong is not None:
            mistakes.add(where, wrong)
        elif item in agents:
            asked.append(item)
    return asked


def _what_is_wrong(item: Any, cls: type[Any], asked: list[type[Any]]) -> str | None:
    shown = getattr(item, "__qualname__", None) or repr(item)
    if _is_agent(item):
        if item is cls:
            return f"{shown!r} in `agents` is the agent itself; take it out"
        return f"{shown!r} stands twice in `agents`; name it once" if item in asked else None
    if _is_agent(type(item)):
        return f"{shown!r} in `agents` is an instance; name its class {type(item).__qualname__!r}"
    if isinstance(item, str):
        return f"{item!r} in `agents` is a text; name the class of the agent"
    return f"{shown!r} in `agents` is no agent; mark the class with @agent"


def _refuse_circles(asked: Mapping[type[Any], list[type[Any]]], mistakes: Mistakes) -> None:
    """Note each circle once; a run could ask round and round in it."""
    done: set[type[Any]] = set()

    def walk(cls: type[Any], path: list[type[Any]]) -> None:
        if cls in path:
            circle = [*path[path.index(cls) :], cls]
            shown = " -> ".join(one.__qualname__ for one in circle)
            mistakes.add(agent_where(cls), f"its `agents` go round in a circle: {shown}; take one of them out")
        elif cls not in done:
            for other in asked[cls]:
                walk(other, [*path, cls])
            done.add(cls)

    for cls in asked:
        walk(cls, [])


def _ask_tool(agent: AgentDefinition) -> ToolDefinition:
    parameter = ToolParameter(
        name="message", hint=Annotated[str, AfterValidator(_said)], field=Field(description=_MESSAGE)
    )
    arguments = read_parameters((parameter,), {}, agent.where, Mistakes())
    return ToolDefinition(
        name=ask_tool_name(agent.name),
        description=agent.description or f"Ask the agent {agent.name!r}.",
        parameters=arguments.schema,
        output_schema=None,
        effect=Effect.IDEMPOTENT,
        where=agent.where,
        read_arguments=arguments.read,
        call=_changed,
        encode_result=clean_json,
        allow=agent.allow,
        expose=False,
        asks=agent.name,
    )


def _said(message: str) -> str:
    if not message.strip():
        raise ValueError("the message is empty")
    return message


async def _changed(_instances: Instances, _ctx: CallContext, _arguments: dict[str, Any]) -> Any:
    """Refuse a call that was started when a tool with code had this name."""
    raise ToolError("The tool was changed while it was being used.")
