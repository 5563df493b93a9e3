"""For tests of apps: a model that plays a script, and the same script behind a real HTTP server."""

from __future__ import annotations

from amoxi_py.models.script import Gate, Script, broken, call, fail, pause, raw_call, reply, tries
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.testing.model_server import StrictModelServer

__all__ = [
    "Gate",
    "Script",
    "ScriptedModel",
    "StrictModelServer",
    "broken",
    "call",
    "fail",
    "pause",
    "raw_call",
    "reply",
    "tries",
]
