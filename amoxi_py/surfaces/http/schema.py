"""Parts of the OpenAPI page that routes read by themselves: bodies, event streams, the agent in the path."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

AGENT: dict[str, Any] = {
    "parameters": [
        {
            "name": "agent",
            "in": "path",
            "required": True,
            "description": "The agent's name, in kebab-case.",
            "schema": {"type": "string"},
        }
    ]
}

IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same body is the same run, for 24 hours.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
}

LAST_EVENT_ID: dict[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The number of the last event that the reader has.",
    "schema": {"type": "string"},
}

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `id` is the event's number in the conversation's log.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    204: {"description": "The run has ended, and there is nothing after the cursor."},
}

FILE_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "additionalProperties": False,
                "properties": {"file": {"type": "string", "contentMediaType": "application/octet-stream"}},
            }
        }
    },
}

_BYTES = {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
FILE_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes of the file.", **_BYTES},
    206: {"description": "With `Range`: the bytes of one range.", **_BYTES},
    304: {"description": "With `If-None-Match`: the client has this file already."},
}


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return what OpenAPI tells of a body."""
    return {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}
