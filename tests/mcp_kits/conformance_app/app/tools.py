"""The kits' tools, declared with amoxi_py's own `@tool`; their names are the kits'."""

from __future__ import annotations

import base64
import json
from typing import Annotated

from pydantic import BaseModel, Field

from amoxi_py import File, ToolContext, ToolError, tool

RED_PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==")


@tool(read_only=True)
def test_simple_text() -> str:
    """Answer with a sentence."""
    return "This is a simple text response for testing."


@tool(read_only=True)
async def test_image_content(ctx: ToolContext) -> File:
    """Answer with a picture."""
    return await ctx.save_file("red.png", RED_PIXEL, media_type="image/png")


@tool(read_only=True)
async def test_audio_content(ctx: ToolContext) -> File:
    """Answer with a sound."""
    return await ctx.save_file("silence.wav", SILENCE, media_type="audio/wav")


@tool(read_only=True)
async def test_embedded_resource(ctx: ToolContext) -> File:
    """Answer with a text file."""
    return await ctx.save_file("resource.txt", b"This is an embedded resource content.", media_type="text/plain")


@tool(read_only=True)
async def test_multiple_content_types(ctx: ToolContext) -> list[File]:
    """Answer with a picture and a data file."""
    data = json.dumps({"test": "data", "value": 123}).encode()
    return [
        await ctx.save_file("red.png", RED_PIXEL, media_type="image/png"),
        await ctx.save_file("data.json", data, media_type="application/json"),
    ]


@tool(read_only=True)
async def test_tool_with_progress(ctx: ToolContext) -> str:
    """Tell of its progress three times."""
    for step in ("started", "half of it", "nearly done"):
        ctx.progress(step)
    return "All of it is done."


@tool(read_only=True)
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


class address(BaseModel):
    """Where somebody lives; the kit looks for a definition of this name."""

    street: str | None = None
    city: str | None = None


@tool(read_only=True)
def json_schema_2020_12_tool(name: str | None = None, address: address | None = None) -> str:
    """Take arguments whose schema has definitions."""
    return f"{name} lives in {address.city if address else 'no city'}"


@tool(read_only=True)
def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Take an argument that is also in a header of the request."""
    return f"in {region}"
