"""What MCP has beside tools, put onto the low-level server by hand: amoxi_py offers none of it to apps.

The kits have scenarios for all of MCP. Those of prompts, resources, completion and logging say nothing of what the
product publishes, but much of the door that they come through: the endpoint, the versions, the streams. This module
takes the place of the function that makes the server when it is imported, which only a test may do.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as t
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from amoxi_py.surfaces.mcp import server as protocol
from amoxi_py.surfaces.mcp.abilities import is_modern
from amoxi_py.surfaces.mcp.answer_streams import ANSWER, message_event
from app.tools import RED_PIXEL

PICTURE = base64.b64encode(RED_PIXEL).decode()
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
BINARY, TEXT, WATCHED = "test://static-binary", "test://static-text", "test://watched-resource"

Handler = Callable[[Any, Any], Awaitable[Any]]


def add_to(server: Server[Any]) -> None:
    """Add all of it; the server's own tools stay as they are."""
    for method, params, handler in (
        ("prompts/list", t.PaginatedRequestParams, list_prompts),
        ("prompts/get", t.GetPromptRequestParams, get_prompt),
        ("resources/list", t.PaginatedRequestParams, list_resources),
        ("resources/templates/list", t.PaginatedRequestParams, list_templates),
        ("resources/read", t.ReadResourceRequestParams, read_resource),
        ("resources/subscribe", t.SubscribeRequestParams, accept),
        ("resources/unsubscribe", t.UnsubscribeRequestParams, accept),
        ("completion/complete", t.CompleteRequestParams, complete),
        ("logging/setLevel", t.SetLevelRequestParams, accept),
    ):
        server.add_request_handler(method, params, handler)
    of_list, of_call = server.get_request_handler("tools/list"), server.get_request_handler("tools/call")
    assert of_list is not None
    assert of_call is not None
    server.add_request_handler("tools/list", of_list.params_type, with_more_tools(of_list.handler))
    server.add_request_handler("tools/call", of_call.params_type, with_their_calls(of_call.handler))


async def accept(ctx: Any, params: Any) -> t.EmptyResult:
    """Do nothing."""
    return t.EmptyResult()


async def list_prompts(ctx: Any, params: Any) -> t.ListPromptsResult:
    """Return the prompts that the kits ask for."""
    arg1, arg2, uri = (t.PromptArgument(name=name, required=True) for name in ("arg1", "arg2", "resourceUri"))
    prompts = {
        "test_simple_prompt": [],
        "test_prompt_with_arguments": [arg1, arg2],
        "test_prompt_with_embedded_resource": [uri],
        "test_prompt_with_image": [],
    }
    described = [t.Prompt(name=name, description="A prompt.", arguments=given) for name, given in prompts.items()]
    return t.ListPromptsResult(prompts=described)


async def get_prompt(ctx: Any, params: t.GetPromptRequestParams) -> t.GetPromptResult:
    """Return the messages of a prompt."""
    given = params.arguments or {}
    said: t.ContentBlock
    if params.name == "test_simple_prompt":
        said = t.TextContent(text="This is a simple prompt for testing.")
    elif params.name == "test_prompt_with_arguments":
        said = t.TextContent(text=f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")
    elif params.name == "test_prompt_with_embedded_resource":
        text = t.TextResourceContents(uri=given["resourceUri"], mime_type="text/plain", text="Embedded content.")
        said = t.EmbeddedResource(resource=text)
    elif params.name == "test_prompt_with_image":
        said = t.ImageContent(data=PICTURE, mime_type="image/png")
    else:
        raise MCPError(t.INVALID_PARAMS, f"Unknown prompt: {params.name}")
    return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=said)])


async def list_resources(ctx: Any, params: Any) -> t.ListResourcesResult:
    """Return the resources that the kits ask for."""
    types = {TEXT: "text/plain", BINARY: "image/png", WATCHED: "text/plain"}
    described = [t.Resource(uri=uri, name=uri, description="It.", mime_type=kind) for uri, kind in types.items()]
    return t.ListResourcesResult(resources=described)


async def list_templates(ctx: Any, params: Any) -> t.ListResourceTemplatesResult:
    """Return the one template."""
    template = t.ResourceTemplate(uri_template="test://template/{id}/data", name="data", mime_type="application/json")
    return t.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Any, params: t.ReadResourceRequestParams) -> t.ReadResourceResult:
    """Return what a resource holds."""
    uri = str(params.uri)
    contents: t.TextResourceContents | t.BlobResourceContents
    if uri == BINARY:
        contents = t.BlobResourceContents(uri=uri, mime_type="image/png", blob=PICTURE)
    elif uri in (TEXT, WATCHED) or uri.startswith("test://template/"):
        contents = t.TextResourceContents(uri=uri, mime_type="text/plain", text=f"This is {uri}.")
    else:
        raise MCPError(t.INVALID_PARAMS, "Resource not found", {"uri": uri})
    return t.ReadResourceResult(contents=[contents])


async def complete(ctx: Any, params: t.CompleteRequestParams) -> t.CompleteResult:
    """Return the words that an argument may go on with."""
    words = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
    return t.CompleteResult(completion=t.Completion(values=words, total=len(words), has_more=False))


def with_more_tools(listed: Handler) -> Handler:
    """Return a list that also has the tools below, and in which one schema has words that no Python type gives."""

    async def list_tools(ctx: Any, params: Any) -> t.ListToolsResult:
        result: t.ListToolsResult = await listed(ctx, params)
        for tool in result.tools:
            if tool.name == "json_schema_2020_12_tool":
                tool.input_schema = with_all_words(tool.input_schema)
        more = [t.Tool(name=name, description="It.", input_schema={"type": "object"}) for name in (*CALLS, *AGENTS)]
        return result.model_copy(update={"tools": [*result.tools, *more]})

    return list_tools


def with_all_words(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the words of JSON Schema 2020-12 that the kits look for."""
    either = [{"required": ["name"]}, {"required": ["address"]}]
    definitions = {name: {"$anchor": name, **definition} for name, definition in schema["$defs"].items()}
    return {
        **schema,
        "$schema": DRAFT_2020_12,
        "$defs": definitions,
        "allOf": [{"anyOf": either}],
        "if": either[0],
        "then": either[0],
        "else": either[1],
    }


def with_their_calls(called: Handler) -> Handler:
    """Return a call that also knows the tools below."""

    async def call_tool(ctx: Any, params: t.CallToolRequestParams) -> Any:
        call = CALLS.get(params.name)
        if params.name in AGENTS:
            asked = {"name": AGENTS[params.name], "arguments": {"message": "Go"}}
            return await called(ctx, params.model_copy(update=asked))
        return await (call(ctx) if call else called(ctx, params))

    return call_tool


async def log(ctx: Any) -> t.CallToolResult:
    """Send log messages to an older client; one of 2026-07-28 would have to ask for them, which no kit does."""
    if not is_modern(ctx):
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await tell(ctx, "notifications/message", {"level": "info", "data": text})
    return said("logged")


async def need_sampling(ctx: Any) -> t.CallToolResult:
    """Refuse a client that has no model to lend."""
    raise MCPError(
        t.MISSING_REQUIRED_CLIENT_CAPABILITY, "It needs sampling", {"requiredCapabilities": {"sampling": {}}}
    )


async def stream(ctx: Any) -> t.CallToolResult:
    """Send a message before the result."""
    token = (ctx.meta or {}).get("progress_token")
    if token is not None:
        await tell(ctx, "notifications/progress", {"progressToken": token, "progress": 1})
    return said("streamed")


async def tell(ctx: Any, method: str, params: dict[str, Any]) -> None:
    """Send a notification in the answer to the request."""
    notification = {"jsonrpc": "2.0", "method": method, "params": params}
    await ctx.request.scope[ANSWER].tell(message_event(json.dumps(notification).encode()))


def said(text: str) -> t.CallToolResult:
    """Return a result of text alone."""
    return t.CallToolResult(content=[t.TextContent(text=text)])


CALLS: dict[str, Callable[[Any], Awaitable[t.CallToolResult]]] = {
    "test_tool_with_logging": log,
    "test_logging_tool": log,
    "test_missing_capability": need_sampling,
    "test_streaming_elicitation": stream,
}


AGENTS = {"multi_input": "ask_multi_input"}
"""What the kits call as a tool, and an agent does: only its calls ask several things at once."""


def with_all_of_it(make: Callable[..., Server[Any]]) -> Callable[..., Server[Any]]:
    """Return what makes the door's server and adds to it."""

    def make_server(*given: Any, **named: Any) -> Server[Any]:
        server = make(*given, **named)
        add_to(server)
        return server

    return make_server


protocol.make_server = with_all_of_it(protocol.make_server)
