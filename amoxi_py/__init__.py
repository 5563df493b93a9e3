"""Agents whose work survives crashes: what an app imports. Every name is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amoxi_py.app.install import install
    from amoxi_py.app.open_app import open_app
    from amoxi_py.app.runs import Runs
    from amoxi_py.app.web import create_app
    from amoxi_py.declare.agent import agent
    from amoxi_py.declare.approver import ApprovalRequest
    from amoxi_py.declare.authenticate import authenticate
    from amoxi_py.declare.before_after import PlannedCall, Refuse, after_model, before_model, before_tool
    from amoxi_py.declare.compaction import Compaction
    from amoxi_py.declare.configure import configure
    from amoxi_py.declare.context import OpenFile, RunContext, SyncOpenFile, SyncToolContext, ToolContext
    from amoxi_py.declare.definitions import Done, NotDone, Unknown
    from amoxi_py.declare.on import on
    from amoxi_py.declare.provides import Inject, provides
    from amoxi_py.declare.redact import redact
    from amoxi_py.declare.search_docs import search_docs
    from amoxi_py.declare.settings import settings
    from amoxi_py.declare.singleton import singleton
    from amoxi_py.declare.step import step
    from amoxi_py.declare.tool import tool
    from amoxi_py.domain.budget import Budget
    from amoxi_py.domain.file import File
    from amoxi_py.domain.memory import Citation, Memory
    from amoxi_py.domain.principal import Principal
    from amoxi_py.domain.run import Run
    from amoxi_py.domain.run_event import RunEvent
    from amoxi_py.errors import NotAuthenticated, StepError, ToolError
    from amoxi_py.ports.chat_model import ModelRequest, Reply

__all__ = [
    "ApprovalRequest",
    "Budget",
    "Citation",
    "Compaction",
    "Done",
    "File",
    "Inject",
    "Memory",
    "ModelRequest",
    "NotAuthenticated",
    "NotDone",
    "OpenFile",
    "PlannedCall",
    "Principal",
    "Refuse",
    "Reply",
    "Run",
    "RunContext",
    "RunEvent",
    "Runs",
    "StepError",
    "SyncOpenFile",
    "SyncToolContext",
    "ToolContext",
    "ToolError",
    "Unknown",
    "after_model",
    "agent",
    "authenticate",
    "before_model",
    "before_tool",
    "configure",
    "create_app",
    "install",
    "on",
    "open_app",
    "provides",
    "redact",
    "search_docs",
    "settings",
    "singleton",
    "step",
    "tool",
]

_MODULES = {
    "ApprovalRequest": "amoxi_py.declare.approver",
    "Budget": "amoxi_py.domain.budget",
    "Citation": "amoxi_py.domain.memory",
    "Compaction": "amoxi_py.declare.compaction",
    "Done": "amoxi_py.declare.definitions",
    "File": "amoxi_py.domain.file",
    "Inject": "amoxi_py.declare.provides",
    "Memory": "amoxi_py.domain.memory",
    "ModelRequest": "amoxi_py.ports.chat_model",
    "NotAuthenticated": "amoxi_py.errors",
    "NotDone": "amoxi_py.declare.definitions",
    "OpenFile": "amoxi_py.declare.context",
    "PlannedCall": "amoxi_py.declare.before_after",
    "Principal": "amoxi_py.domain.principal",
    "Refuse": "amoxi_py.declare.before_after",
    "Reply": "amoxi_py.ports.chat_model",
    "Run": "amoxi_py.domain.run",
    "RunContext": "amoxi_py.declare.context",
    "RunEvent": "amoxi_py.domain.run_event",
    "Runs": "amoxi_py.app.runs",
    "StepError": "amoxi_py.errors",
    "SyncOpenFile": "amoxi_py.declare.context",
    "SyncToolContext": "amoxi_py.declare.context",
    "ToolContext": "amoxi_py.declare.context",
    "ToolError": "amoxi_py.errors",
    "Unknown": "amoxi_py.declare.definitions",
    "after_model": "amoxi_py.declare.before_after",
    "agent": "amoxi_py.declare.agent",
    "authenticate": "amoxi_py.declare.authenticate",
    "before_model": "amoxi_py.declare.before_after",
    "before_tool": "amoxi_py.declare.before_after",
    "configure": "amoxi_py.declare.configure",
    "create_app": "amoxi_py.app.web",
    "install": "amoxi_py.app.install",
    "on": "amoxi_py.declare.on",
    "open_app": "amoxi_py.app.open_app",
    "provides": "amoxi_py.declare.provides",
    "redact": "amoxi_py.declare.redact",
    "search_docs": "amoxi_py.declare.search_docs",
    "settings": "amoxi_py.declare.settings",
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
