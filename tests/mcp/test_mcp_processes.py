"""MCP on real servers: two on one store, restarts in the middle of a client's life, and a server that is killed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

pytestmark = [pytest.mark.anyio, pytest.mark.crash]

TOKEN = "desktop-token-0123456789"
LEDGER = "paid.log"
APP = {
    "app/__init__.py": "",
    "app/shop.py": '''
import asyncio
import os

from amoxi_py import ToolContext, agent, tool


@tool(read_only=True)
def look(thing: str) -> str:
    """Look."""
    return f"seen {thing} by {os.getpid()}"


@tool(read_only=True)
async def look_long(thing: str) -> str:
    """Look for long."""
    open("looking", "a").close()
    while not os.path.exists("seen"):
        await asyncio.sleep(0.01)
    return f"seen {thing}"


@tool(idempotent=True)
async def pay(amount: int, ctx: ToolContext) -> str:
    """Pay."""
    paid = await ctx.step("pay", write, f"{amount} {ctx.call_id}")
    ctx.progress("paid, the receipt is on its way")
    while not os.path.exists("release"):
        await asyncio.sleep(0.01)
    return paid


def write(line: str) -> str:
    with open("paid.log", "a") as ledger:
        ledger.write(line + chr(10))
    return f"paid {line.split()[0]}"


@agent(tools=[look, pay])
class Shop:
    """You sell."""
''',
}
SETTINGS = {
    "app": {"name": "shop"},
    "ai": {"mcp": {"enabled": True}, "runs": {"lease-ms": 500}},
    "server": {"stop-grace-s": 4},
    "log": {"level": "debug"},
}
ENVIRON = {"AI_MCP_CALLERS_DESKTOP": TOKEN}


def text_of(result: Any) -> str:
    return str(result.content[0].text)


class Places:
    """Sends each request of a client to the next of several servers, as a balancer does; a dead one is passed over."""

    def __init__(self, *servers: Any) -> None:
        self.servers = list(servers)
        self._next = 0

    async def choose(self, request: httpx2.Request) -> None:
        self._next += 1
        server = self.servers[self._next % len(self.servers)]
        request.url = request.url.copy_with(port=server.port)
        request.headers["host"] = f"127.0.0.1:{server.port}"


def paid(folder: Path, amount: int) -> int:
    """How often an amount was paid."""
    ledger = folder / LEDGER
    lines = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
    return len([line for line in lines if line.startswith(f"{amount} ")])


def takes_connections(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def connect(places: Places, mode: str) -> tuple[httpx2.AsyncClient, Client]:
    http = httpx2.AsyncClient(
        headers={"authorization": f"Bearer {TOKEN}"}, event_hooks={"request": [places.choose]}, timeout=60, verify=False
    )
    return http, Client(streamable_http_client("http://127.0.0.1:1/mcp", http_client=http), mode=mode)


async def test_two_servers_a_restart_and_a_kill_in_the_middle_of_a_clients_life(
    app_folder: Any, serve: Any, until: Any
) -> None:
    folder: Path = app_folder(APP, SETTINGS)
    first, second = serve(folder, env=ENVIRON, wait_ready=False), serve(folder, env=ENVIRON, wait_ready=False)
    first.wait_ready()
    second.wait_ready()
    places = Places(first, second)
    for mode in ("legacy", "2026-07-28"):
        http, client = connect(places, mode)
        async with http, client:
            await client.list_tools()
            answers = [text_of(await client.call_tool("look", {"thing": "a"})) for _ in range(4)]
            assert len(set(answers)) == 2, "both servers answer one client"
            asked = (await client.call_tool("ask_shop", {"message": "Look at thing b"})).structured_content
            again = await client.call_tool("ask_shop", {"run_id": asked["run_id"]})
            assert again.structured_content == asked

    legacy_http, legacy = connect(Places(first), "legacy")
    modern_http, modern = connect(Places(first), "2026-07-28")
    async with legacy_http, modern_http, legacy, modern:
        for client in (legacy, modern):
            await client.list_tools()
        paying, asking, looking = [
            [asyncio.create_task(client.call_tool(name, arguments)) for client in (legacy, modern)]
            for name, arguments in (
                ("pay", {"amount": 1}),
                ("ask_shop", {"message": "Pay amount 2"}),
                ("look_long", {"thing": "a"}),
            )
        ]
        await until(lambda: (folder / "looking").exists() and paid(folder, 1) == paid(folder, 2) == 2)
        first.signal(signal.SIGTERM)
        await until(lambda: not takes_connections(first.port))
        (folder / "seen").touch()
        assert [text_of(await call) for call in looking] == ["seen a", "seen a"], "what is quick comes to its end"
        open_calls = [(await call, name) for calls, name in ((paying, "pay"), (asking, "ask_shop")) for call in calls]
        for result, _ in open_calls:
            assert result.is_error
            assert "The server is stopping." in text_of(result)
            assert result.meta["amoxi/run-id"] in text_of(result)
        assert first.wait_exit() == 0
        replacement = serve(folder, env=ENVIRON, port=first.port)
        for client in (legacy, modern):
            assert text_of(await client.call_tool("look", {"thing": "a"})).endswith(f"by {replacement.pid}")

    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait(message or "")

    meta = {"amoxi/idempotency-key": "k1"}

    dying = Places(replacement)

    async def lose(mode: str, name: str, arguments: dict[str, Any]) -> Any:
        http, client = connect(dying, mode)
        async with http, client:
            given = meta if arguments == {"amount": 3} else None
            return await client.call_tool(name, arguments, progress_callback=hear, meta=given)

    lost: list[tuple[str, dict[str, Any], str]] = []
    calls: dict[str, list[asyncio.Task[Any]]] = {"legacy": [], "2026-07-28": []}
    for mode, name, arguments in (
        ("legacy", "pay", {"amount": 3}),
        ("2026-07-28", "pay", {"amount": 4}),
        ("legacy", "ask_shop", {"message": "Pay amount 5"}),
        ("2026-07-28", "ask_shop", {"message": "Pay amount 6"}),
    ):
        calls[mode].append(asyncio.create_task(lose(mode, name, arguments)))
        run_id = (await asyncio.wait_for(heard.get(), 30)).removeprefix("Run ")
        while not (await asyncio.wait_for(heard.get(), 30)).startswith("paid"):  # so the step is recorded
            pass
        lost.append((name, arguments, run_id))
    replacement.kill9()
    dying.servers[:] = [second]
    for call in calls["2026-07-28"]:
        with pytest.raises(Exception):  # noqa: B017 - whatever a client says of a connection that is gone
            await asyncio.wait_for(call, 30)

    (folder / "release").touch()
    went_on = [await asyncio.wait_for(call, 60) for call in calls["legacy"]]
    assert [result.is_error for result in went_on] == [False, False], "older clients come back for the rest"
    assert text_of(went_on[0]) == "paid 3"
    http, client = connect(Places(second), "legacy")
    async with http, client:
        for name, arguments, run_id in lost:
            by_id = await client.call_tool(name, arguments, meta={"amoxi/run-id": run_id})
            assert not by_id.is_error, text_of(by_id)
            assert by_id.meta == {"amoxi/run-id": run_id}
        by_key = await client.call_tool("pay", {"amount": 3}, meta=meta)
        assert (text_of(by_key), by_key.meta) == ("paid 3", {"amoxi/run-id": lost[0][2]})
        for result, name in open_calls:
            rest = await client.call_tool(name, {"amount": 1} if name == "pay" else {}, meta=result.meta)
            assert not rest.is_error, text_of(rest)
    assert [paid(folder, amount) for amount in range(1, 7)] == [2, 2, 1, 1, 1, 1]
    for server in (first, second, replacement):
        assert TOKEN not in server.log()
        assert "Traceback" not in server.log()
        assert not [line for line in server.log().splitlines() if re.search(r"\b(mcp\.|sse_starlette)", line)]


def test_without_mcp_a_server_loads_nothing_of_its_library(app_folder: Any) -> None:
    import subprocess

    code = (
        "import sys; from amoxi_py.app.web import create_app; create_app(profile='production');"
        "print([name for name in sys.modules if name.partition('.')[0] in ('mcp', 'mcp_types')])"
    )
    folder = app_folder(APP, {"app": {"name": "shop"}})
    told = subprocess.run([sys.executable, "-c", code], cwd=folder, text=True, capture_output=True, check=True)
    assert json.loads(told.stdout.replace("'", '"')) == []
