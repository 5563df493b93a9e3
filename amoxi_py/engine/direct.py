"""Runs of one tool: what stands for their agent, and their first and only reply, which no model is asked for.

They are executed like every other run. The tool's arguments are the message, as JSON.
"""

from __future__ import annotations

from dataclasses import replace as replaced

from amoxi_py.declare.definitions import AgentDefinition, Catalog, Hooks, ToolDefinition
from amoxi_py.domain.direct import direct_agent, direct_tool
from amoxi_py.domain.ids import call_id, new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.ports.chat_model import CallRequest, Reply

CALL_KEY = (1, 0)
"""The turn of the one call, and its place in it."""


def with_direct(catalog: Catalog) -> Catalog:
    """Return the catalog with what runs of each of its tools are executed with."""
    direct = {direct_agent(name): _stand_in(name, tool) for name, tool in catalog.tools.items()}
    return replaced(catalog, direct=direct)


def found_for(catalog: Catalog, agent: str) -> AgentDefinition | None:
    """Return what a run is executed with; None when it is an agent's that is gone.

    A run of a tool that is gone has a call with a result all the same, which says so.
    """
    tool = direct_tool(agent)
    return catalog.of_run(agent) or (None if tool is None else _stand_in(tool))


def asks_hooks(hooks: Hooks, tool: str) -> bool:
    """Whether a hook of the app is asked about direct calls of a tool; one for certain agents never is."""
    return any(hook.agents is None and (hook.tools is None or tool in hook.tools) for hook in hooks.before_tool)


def asked_call(agent: str, message: Message) -> Reply:
    """Return what a model would have replied: the one call of the run that begins with this message."""
    tool = direct_tool(agent)
    assert tool is not None
    return Reply(text="", calls=(CallRequest(id="", name=tool, arguments=message.text),))


def direct_call(tool: str, effect: Effect, run_id: str, arguments: str, *, started: bool) -> ToolCall:
    """Return the one call of a run of a tool; `arguments` are JSON text."""
    return ToolCall(
        id=call_id(run_id, *CALL_KEY),
        turn=CALL_KEY[0],
        n=CALL_KEY[1],
        tool=tool,
        arguments=arguments,
        effect=effect,
        status=CallStatus.STARTED if started else CallStatus.OPEN,
        tries=int(started),
    )


def started_reply(tool: ToolDefinition, run_id: str, arguments: str, now: float) -> Message:
    """Return the reply of a run whose call starts in the commit that stores its message."""
    call = direct_call(tool.name, tool.effect, run_id, arguments, started=True)
    return Message(id=new_id("msg"), run_id=run_id, turn=1, role="assistant", text="", calls=(call,), created_at=now)


def _stand_in(name: str, *tools: ToolDefinition) -> AgentDefinition:
    return AgentDefinition(
        name=direct_agent(name),
        description="",
        instructions="",
        tools=tools,
        where=tools[0].where if tools else "",
        model_options={},
        expose=False,
        compaction=None,
    )
