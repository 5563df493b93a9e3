"""One server that answers `tools/call`: the app's, or a bare one of the SDK; started by `mcp_calls.py`.

    python bench/mcp_server.py amoxi|bare|open PORT_FD FOLDER

`amoxi` is the app with the two tools below, `bare` the SDK's low-level server with its own check of bearer tokens, and
`open` the same without one; these two begin with the first line that they read, when `tools.json` is there. Prints
`ready`, and for each line that it reads then the CPU seconds that it has used.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

from amoxi_py.app.process import tune_memory, tune_process

TOKEN = "0123456789abcdef-of-the-benchmark"
ORDER = {"id": "A-1001", "item": "Trail backpack, 28 L", "status": "shipped"}
APP = '''
from typing import Annotated

from pydantic import BaseModel, Field

from amoxi_py import agent, tool

OrderId = Annotated[str, Field(pattern=r"^A-\\d{4}$", description="The order number, e.g. A-1001")]


class Order(BaseModel):
    id: str
    item: str
    status: str


ORDER = Order(id="A-1001", item="Trail backpack, 28 L", status="shipped")


@tool(read_only=True)
async def lookup_order(order_id: OrderId) -> Order:
    """Look an order up."""
    return ORDER


@tool(idempotent=True)
async def refund_order(order_id: OrderId) -> Order:
    """Refund an order."""
    return ORDER


@agent(tools=[lookup_order, refund_order], expose=False)
class SupportAgent:
    """You look up and refund orders."""
'''


def make_app(folder: Path) -> Any:
    """Return the app."""
    from amoxi_py.app.web import create_app
    from amoxi_py.config.load import load_settings

    (folder / "app").mkdir()
    (folder / "app" / "__init__.py").write_text(APP, "utf-8")
    environ = {"AI_MCP_ENABLED": "true", "AI_MODEL": "offline", "AI_MCP_CALLERS_BENCH": TOKEN, "LOG_LEVEL": "error"}
    os.chdir(folder)
    return create_app(load_settings(folder, environ=environ))


def make_bare(tools: Path, *, checks_tokens: bool) -> Any:
    """Return a server of the SDK alone that offers the same list, whose JSON is in a file when a line was read."""
    import mcp_types as wire
    from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
    from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
    from mcp.server.auth.provider import AccessToken
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.middleware.authentication import AuthenticationMiddleware
    from starlette.routing import Route

    sys.stdin.readline()
    listed = wire.ListToolsResult.model_validate_json(tools.read_bytes())
    schemas = {tool.name: tool.input_schema for tool in listed.tools}
    callers = {hashlib.sha256(TOKEN.encode()).digest(): "bench"}

    class Callers:
        async def verify_token(self, token: str) -> AccessToken | None:
            name = callers.get(hashlib.sha256(token.encode()).digest())
            return None if name is None else AccessToken(token=token, client_id=name, scopes=[], subject=name)

    async def list_tools(ctx: Any, params: Any) -> wire.ListToolsResult:
        return listed

    async def call_tool(ctx: Any, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        text = wire.TextContent(type="text", text=json.dumps(ORDER))
        return wire.CallToolResult(content=[text], structured_content=ORDER)

    server: Any = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=schemas.get)
    manager = StreamableHTTPSessionManager(server, stateless=True)
    endpoint: Any = StreamableHTTPASGIApp(manager)
    if checks_tokens:
        checked = AuthContextMiddleware(RequireAuthMiddleware(endpoint, []))
        endpoint = AuthenticationMiddleware(checked, backend=BearerAuthBackend(Callers()))

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route("/mcp", endpoint=endpoint)], lifespan=lifespan)


def tell_cpu() -> None:
    """Answer each line with the CPU time so far; the end of them is the end of the process."""
    for _ in sys.stdin:
        print(time.process_time(), flush=True)
    os._exit(0)


class Announcing(uvicorn.Server):
    """Says when it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)


def main() -> None:
    """Serve until the program that measures closes the door."""
    kind, descriptor, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    tune_process()
    app = make_app(folder) if kind == "amoxi" else make_bare(folder / "tools.json", checks_tokens=kind == "bare")
    tune_memory()
    threading.Thread(target=tell_cpu, daemon=True).start()
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", server_header=False)
    Announcing(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main()
