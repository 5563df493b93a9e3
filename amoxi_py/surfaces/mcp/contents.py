"""From results to what an MCP client gets: text, structured content that fits what was advertised, and files."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import mcp_types as wire

from amoxi_py.domain.encoding import decode_json, readable_json
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import Effect, ToolCall
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.results import is_cut
from amoxi_py.ports.files import StoredFile
from amoxi_py.surfaces.file_contents import file_contents
from amoxi_py.surfaces.mcp.publishing import Published

log = logging.getLogger("amoxi_py.mcp")

RUN_ID = "amoxi/run-id"
"""Where in `_meta` the id of a run is."""
IDEMPOTENCY_KEY = "amoxi/idempotency-key"
"""Where in `_meta` a client may say that two calls are one."""

Reply = wire.CallToolResult | wire.InputRequiredResult | dict[str, Any]
"""What a call is answered with: its result, what the client is to be asked for, or a task."""

_FILE_FIELDS = {"id", "name", "media_type", "size"}
_FILE_ID = re.compile(r"file_[0-9a-f]{32}")
_LARGE_RESULT = 16 * 1024
_TEXTS = ("text/", "application/json", "application/xml")


class Contents:
    """Makes the results of calls, as one app's clients get them."""

    def __init__(self, engine: Engine, files_url: str | None) -> None:
        self._engine = engine
        self._files_url = files_url

    async def of_call(
        self, published: Published, call: ToolCall, principal: Principal, run_id: str | None = None
    ) -> wire.CallToolResult:
        """Return the result of a settled call of a tool."""
        result = call.result or "null"
        text = readable_json(result)
        if call.is_error:
            return failure(text, run_id)
        value = decode_json(result)
        structured = published.structured(value)
        if published.check is not None and len(text) > _LARGE_RESULT:
            fits = await asyncio.to_thread(published.fits, structured)
        else:
            fits = published.fits(structured)
        if not fits:
            if isinstance(value, str) and is_cut(value):
                return failure(_too_long(call, text), run_id)
            log.error("the result of %r does not fit the schema that it declares", published.tool.name)
            return failure(f"The result does not have the form that this tool promises. It is:\n{text}", run_id)
        ids = list(dict.fromkeys(_file_ids(value)))
        files = await self.files_of(ids, principal) if ids else []
        return wire.CallToolResult(
            content=[wire.TextContent(text=text), *files], structured_content=structured, _meta=_meta(run_id)
        )

    async def files_of(self, ids: Sequence[str], principal: Principal) -> list[wire.ContentBlock]:
        """Return the files of these ids as content, those that are small whole."""
        return [
            self._told(stored) if data is None else _content(stored, data)
            for stored, data in await file_contents(self._engine.files, ids, principal)
        ]

    def _told(self, stored: StoredFile) -> wire.ContentBlock:
        file = stored.file
        if self._files_url is None:
            return wire.TextContent(text=f"The file {file.name!r} ({file.media_type}, {file.size} bytes) is {file.id}.")
        return wire.ResourceLink(
            name=file.name, uri=f"{self._files_url}/{file.id}", mime_type=file.media_type, size=file.size
        )


def _too_long(call: ToolCall, text: str) -> str:
    what = "The result is too long to be given in the form that this tool promises"
    if call.effect is Effect.READ_ONLY:
        return f"{what}; ask for less. It begins with:\n{text}"
    return f"The action was done; do not repeat it. {what}. It begins with:\n{text}"


def failure(text: str, run_id: str | None = None) -> wire.CallToolResult:
    """Return the result that tells a model what went wrong."""
    return wire.CallToolResult(content=[wire.TextContent(text=text)], is_error=True, _meta=_meta(run_id))


def answer(text: str, structured: dict[str, Any], run_id: str) -> wire.CallToolResult:
    """Return what a run has to say."""
    return wire.CallToolResult(
        content=[wire.TextContent(text=text)], structured_content=structured, _meta=_meta(run_id)
    )


def _meta(run_id: str | None) -> dict[str, Any] | None:
    return None if run_id is None else {RUN_ID: run_id}


def _file_ids(value: Any) -> Iterator[str]:
    """Give the ids of the files in a result: what `ctx.save_file` returned, wherever the tool has put it."""
    if isinstance(value, dict):
        if value.keys() == _FILE_FIELDS and isinstance(value["id"], str) and _FILE_ID.fullmatch(value["id"]):
            yield value["id"]
            return
        for part in value.values():
            yield from _file_ids(part)
    elif isinstance(value, list):
        for part in value:
            yield from _file_ids(part)


def _content(stored: StoredFile, data: bytes) -> wire.ContentBlock:
    file = stored.file
    encoded = base64.b64encode(data).decode("ascii")
    if file.media_type.startswith("image/"):
        return wire.ImageContent(data=encoded, mime_type=file.media_type)
    if file.media_type.startswith("audio/"):
        return wire.AudioContent(data=encoded, mime_type=file.media_type)
    uri = f"amoxi://files/{file.id}/{quote(file.name, safe='')}"
    if file.media_type.startswith(_TEXTS):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            resource = wire.TextResourceContents(uri=uri, mime_type=file.media_type, text=text)
            return wire.EmbeddedResource(resource=resource)
    blob = wire.BlobResourceContents(uri=uri, mime_type=file.media_type, blob=encoded)
    return wire.EmbeddedResource(resource=blob)
