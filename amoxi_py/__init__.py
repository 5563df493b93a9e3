"""Agents whose work survives crashes: what an app imports. Every name is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amoxi_py.app.web import create_app
    from amoxi_py.declare.agent import agent
    from amoxi_py.declare.configure import configure
    from amoxi_py.declare.context import RunContext, SyncToolContext, ToolContext
    from amoxi_py.declare.definitions import Done, NotDone, Unknown
    from amoxi_py.declare.singleton import singleton
    from amoxi_py.declare.step import step
    from amoxi_py.declare.tool import tool
    from amoxi_py.domain.principal import Principal
    from amoxi_py.errors import StepError, ToolError

__all__ = [
    "Done",
    "NotDone",
    "Principal",
    "RunContext",
    "StepError",
    "SyncToolContext",
    "ToolContext",
    "ToolError",
    "Unknown",
    "agent",
    "configure",
    "create_app",
    "singleton",
    "step",
    "tool",
]

_MODULES = {
    "Done": "amoxi_py.declare.definitions",
    "NotDone": "amoxi_py.declare.definitions",
    "Principal": "amoxi_py.domain.principal",
    "RunContext": "amoxi_py.declare.context",
    "StepError": "amoxi_py.errors",
    "SyncToolContext": "amoxi_py.declare.context",
    "ToolContext": "amoxi_py.declare.context",
    "ToolError": "amoxi_py.errors",
    "Unknown": "amoxi_py.declare.definitions",
    "agent": "amoxi_py.declare.agent",
    "configure": "amoxi_py.declare.configure",
    "create_app": "amoxi_py.app.web",
    "singleton": "amoxi_py.declare.singleton",
    "step": "amoxi_py.declare.step",
    "tool": "amoxi_py.declare.tool",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
