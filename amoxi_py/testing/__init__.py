"""For tests of apps: agents on scripts, contexts for tools, real servers, and processes that are killed on purpose.

Every name is loaded when it is first used. `crash` is a module: `crash.at_every_step(...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amoxi_py.engine.context import Interrupted
    from amoxi_py.models.script import (
        Gate,
        Script,
        broken,
        call,
        fail,
        pause,
        raw_call,
        reply,
        slowly,
        thinking,
        tries,
    )
    from amoxi_py.models.scripted import ScriptedModel
    from amoxi_py.testing import crash
    from amoxi_py.testing.agent_run import AgentRun, CallRecord, EventRecord, MessageRecord
    from amoxi_py.testing.agents import arun_agent, run_agent
    from amoxi_py.testing.answers import AskedQuestion
    from amoxi_py.testing.client import Client
    from amoxi_py.testing.contexts import tool_context
    from amoxi_py.testing.decisions import Asked
    from amoxi_py.testing.model_server import StrictModelServer

__all__ = [
    "AgentRun",
    "Asked",
    "AskedQuestion",
    "CallRecord",
    "Client",
    "EventRecord",
    "Gate",
    "Interrupted",
    "MessageRecord",
    "Script",
    "ScriptedModel",
    "StrictModelServer",
    "arun_agent",
    "broken",
    "call",
    "crash",
    "fail",
    "pause",
    "raw_call",
    "reply",
    "run_agent",
    "slowly",
    "thinking",
    "tool_context",
    "tries",
]

_SCRIPT = "amoxi_py.models.script"
_MODULES = {
    "AgentRun": "amoxi_py.testing.agent_run",
    "Asked": "amoxi_py.testing.decisions",
    "AskedQuestion": "amoxi_py.testing.answers",
    "CallRecord": "amoxi_py.testing.agent_run",
    "Client": "amoxi_py.testing.client",
    "EventRecord": "amoxi_py.testing.agent_run",
    "Gate": _SCRIPT,
    "Interrupted": "amoxi_py.engine.context",
    "MessageRecord": "amoxi_py.testing.agent_run",
    "Script": _SCRIPT,
    "ScriptedModel": "amoxi_py.models.scripted",
    "StrictModelServer": "amoxi_py.testing.model_server",
    "arun_agent": "amoxi_py.testing.agents",
    "broken": _SCRIPT,
    "call": _SCRIPT,
    "fail": _SCRIPT,
    "pause": _SCRIPT,
    "raw_call": _SCRIPT,
    "reply": _SCRIPT,
    "run_agent": "amoxi_py.testing.agents",
    "slowly": _SCRIPT,
    "thinking": _SCRIPT,
    "tool_context": "amoxi_py.testing.contexts",
    "tries": _SCRIPT,
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "crash":
        return importlib.import_module("amoxi_py.testing.crash")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
