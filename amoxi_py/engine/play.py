"""What the turns of one run are made with."""

from __future__ import annotations

from msgspec import Struct

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.engine.call_batch import BatchHost
from amoxi_py.engine.turns import ReplyReader
from amoxi_py.ports.chat_model import ToolSpec


class Play(Struct, frozen=True, kw_only=True):
    """The agent of a run, the tools that its model is offered, and who reads its replies and makes its calls."""

    agent: AgentDefinition
    tools: tuple[ToolSpec, ...]
    reader: ReplyReader
    calls: BatchHost
