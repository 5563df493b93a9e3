"""One message of a conversation: a person's words, or a model's reply with the calls it asks for."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from amoxi_py.domain.tool_call import ToolCall

Role = Literal["user", "assistant"]
MessageStatus = Literal["complete", "stopped"]


class Message(Struct, frozen=True, kw_only=True):
    """A stored message. `turn` is its place in its run: 0 is the person's message, 1 the first reply.

    `kept` is what its model wants to have back with it, such as signed reasoning (JSON text); no reader sees it.
    """

    id: str
    run_id: str
    turn: int
    role: Role
    text: str
    status: MessageStatus = "complete"
    files: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    created_at: float = 0.0
    kept: str | None = None
