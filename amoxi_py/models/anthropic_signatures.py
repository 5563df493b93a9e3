"""Signatures of reasoning as the strict model server gives them out and checks them, like the real API.

A signature is bound to the reasoning and to all that stood before it; the mark of a cache is no part of that. It needs
no memory: a server that was started anew knows those of the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

_PREFIX = "signed-"


def sign(value: Mapping[str, Any], before: Sequence[Mapping[str, Any]], thinking: str) -> str:
    """Return the signature of a reasoning in the answer to a body, behind these blocks of the answer."""
    asked = [*_joined(value, value["messages"])]
    if before:
        asked.append(["assistant", _plain(before)])
    return _signature(asked, thinking)


def check_signature(value: Mapping[str, Any], index: int, place: int) -> str | None:
    """Return why the API refuses the reasoning at a place of a body, or None."""
    message = value["messages"][index]
    block = message["content"][place]
    hidden = block["type"] == "redacted_thinking"
    signature = block["data"] if hidden else block["signature"]
    thinking = signature.partition(":")[2] if hidden else block["thinking"]
    asked = [*_joined(value, value["messages"][:index])]
    if place:
        asked.append(["assistant", _plain(message["content"][:place])])
    if signature.partition(":")[0] == _signature(asked, thinking):
        return None
    if not signature.startswith(_PREFIX):
        return f"Invalid `signature` in `{block['type']}` block"
    return f"Invalid `signature` in `{block['type']}` block. The block is bound to a different conversation"


def _joined(value: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    joined: list[list[Any]] = [["front", [_plain(value.get("system") or []), _plain(value.get("tools") or [])]]]
    for message in messages:
        blocks = _plain(message["content"])
        if joined[-1][0] == message["role"]:
            joined[-1][1] += blocks
        else:
            joined.append([message["role"], blocks])
    return joined


def _plain(content: str | Sequence[Mapping[str, Any]]) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [{key: part for key, part in block.items() if key != "cache_control"} for block in content]


def _signature(asked: list[list[Any]], thinking: str) -> str:
    text = json.dumps([asked, thinking], sort_keys=True)
    return _PREFIX + sha256(text.encode()).hexdigest()[:32]
