"""What a `tools/call` costs through the whole stack, beside a bare server of the SDK in the same call.

    python bench/mcp_calls.py [--calls 200] [--rounds 15] [--connections 1 16] [--open] [--folder FOLDER]

The same list, call and result on each server: the app's with a `read_only` tool, which is called at once, and with one
that is `idempotent`, each call of which is a durable run on the embedded store with `synchronous=FULL`; and the SDK's
low-level server, stateless, with its own check of bearer tokens, and with `--open` one without it. Both wires:
2025-11-25, answered as server-sent events, and 2026-07-28. In each round every server has one turn of `--calls` calls.

Printed for each: CPU ms per call (user + system, of the server's whole process), how many times that of the SDK's
server in the same round, calls/s and p50 in ms; medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_server import TOKEN

PROGRAM = Path(__file__).with_name("mcp_server.py")
ERAS = ("2025-11-25", "2026-07-28")
ROWS = (
    ("open", "lookup_order", "SDK, open"),
    ("bare", "lookup_order", "SDK"),
    ("amoxi", "lookup_order", "amoxi read-only"),
    ("amoxi", "refund_order", "amoxi stored run"),
)
LONGEST_CALL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one turn came to, in milliseconds."""

    cpu: float
    p50: float
    per_s: float


class Peer:
    """A server in a process of its own."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
            self.port: int = listener.getsockname()[1]
            listener.set_inheritable(True)
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), kind, str(listener.fileno()), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                close_fds=False,
            )

    def wait(self) -> None:
        """Return when it listens."""
        if self._answer() != "ready":
            raise RuntimeError(f"the server {self._kind!r} did not start")

    def begin(self) -> None:
        """Let it begin, when what it needs is there."""
        self._say()
        self.wait()

    def cpu(self) -> float:
        """Return the CPU seconds that it has used."""
        self._say()
        return float(self._answer())

    def _say(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


@contextmanager
def peer(kind: str, folder: Path) -> Iterator[Peer]:
    """Give a server until the end."""
    one = Peer(kind, folder)
    try:
        yield one
    finally:
        one.close()


def request_of(era: str, method: str, params: dict[str, Any]) -> bytes:
    """Return a whole request."""
    headers = {
        "Host": "127.0.0.1",
        "Authorization": f"Bearer {TOKEN}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": era,
    }
    if era == ERAS[1]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": era,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        }
        params = {**params, "_meta": meta}
        headers["Mcp-Method"] = method
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers["Content-Length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


def call_of(era: str, tool: str) -> bytes:
    """Return a call of a tool as a whole request."""
    return request_of(era, "tools/call", {"name": tool, "arguments": {"order_id": "A-1001"}})


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """Send a request and return the body of the answer."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(f"refused: {head!r}")
    if b"content-length:" in head:
        return await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


def message_in(body: bytes) -> Any:
    """Return the message of an answer, of one piece or of events."""
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    return json.loads(lines[-1] if lines else body)


async def ask(port: int, request: bytes) -> Any:
    """Send one request and return the message of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return message_in(await exchange(reader, writer, request))
    finally:
        writer.close()


async def call(port: int, request: bytes, calls: int, connections: int) -> list[float]:
    """Make so many calls over so many connections, and return how long each took."""
    latencies: list[float] = []

    async def client(count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(count):
            begun = time.perf_counter()
            body = await exchange(reader, writer, request)
            latencies.append(time.perf_counter() - begun)
            if b'"structuredContent"' not in body:
                raise RuntimeError(f"no result: {body!r}")
        writer.close()

    async with asyncio.timeout(LONGEST_CALL_S * calls):
        await asyncio.gather(*(client(calls // connections) for _ in range(connections)))
    return latencies


def measure(server: Peer, request: bytes, calls: int, connections: int) -> Figures:
    """Return the figures of one turn."""
    cpu, wall = server.cpu(), time.perf_counter()
    latencies = asyncio.run(call(server.port, request, calls, connections))
    wall, cpu = time.perf_counter() - wall, server.cpu() - cpu
    count = len(latencies)
    return Figures(cpu=cpu / count * 1e3, p50=statistics.median(latencies) * 1e3, per_s=count / wall)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--eras", nargs="*", default=list(ERAS))
    parser.add_argument("--folder", help="where the store is; by default a temporary one")
    parser.add_argument("--open", action="store_true", help="measure the SDK's server without a check of tokens, too")
    options = parser.parse_args()
    bare = ("bare", "open") if options.open else ("bare",)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary, ExitStack() as stack:
        folder = Path(temporary)
        (folder / "amoxi").mkdir()
        servers = {kind: stack.enter_context(peer(kind, folder)) for kind in bare}
        servers["amoxi"] = stack.enter_context(peer("amoxi", folder / "amoxi"))
        servers["amoxi"].wait()
        listed = asyncio.run(ask(servers["amoxi"].port, request_of(ERAS[0], "tools/list", {})))
        (folder / "tools.json").write_text(json.dumps(listed["result"]), "utf-8")
        for kind in bare:
            servers[kind].begin()
        print(f"{'wire':<11}{'connections':>12}  {'server':<17}{'CPU ms':>8}{'times':>7}{'calls/s':>9}{'p50 ms':>8}")
        for era in options.eras:
            for connections in options.connections:
                _print_turns(servers, era, connections, options.calls, options.rounds)


def _print_turns(servers: dict[str, Peer], era: str, connections: int, calls: int, rounds: int) -> None:
    rows = [row for row in ROWS if row[0] in servers]
    found: dict[str, list[Figures]] = {name: [] for _, _, name in rows}
    for number in range(rounds + 1):
        for kind, tool, name in rows:
            few = max(calls // 4, connections)  # before the first one, so that what is made once is there
            figures = measure(servers[kind], call_of(era, tool), calls if number else few, connections)
            if number:
                found[name].append(figures)
    for name, turns in found.items():
        cpu = statistics.median(turn.cpu for turn in turns)
        times = statistics.median(turn.cpu / bare.cpu for turn, bare in zip(turns, found["SDK"], strict=True))
        per_s, p50 = (statistics.median(getattr(turn, figure) for turn in turns) for figure in ("per_s", "p50"))
        print(f"{era:<11}{connections:>12}  {name:<17}{cpu:>8.3f}{times:>7.2f}{per_s:>9.0f}{p50:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
