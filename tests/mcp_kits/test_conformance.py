"""The protocol's own conformance kits against a real server, through a proxy that adds the token.

The app in `conformance_app` has the tools that the kits call, declared as any app's. A file in `baselines` names what
a kit may find, and why; a finding that is not in it fails, and so does a line that nothing is found for any more.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kits import Kits
from processes import ServerProcess

pytestmark = [pytest.mark.xdist_group("conformance"), pytest.mark.timeout(300)]  # one server, the kits all at once

HERE = Path(__file__).parent
TOKEN = "kits-token-0123456789"
HURRIED = {"server-stateless", "server-sse-multiple-streams"}
"""They give a server half a second for an answer, so on a busy machine they may have a second chance."""
RELEASED, NEXT = "@modelcontextprotocol/conformance", "conformance-of-2026-07-28"


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a kit, and how much it looks at, so that one which looks at nothing is seen."""

    kit: str
    baseline: str
    options: tuple[str, ...] = ()
    scenarios: int
    successes: int


RUNS = {
    "0.1.16": Run(kit=RELEASED, baseline="released.yml", scenarios=32, successes=35),
    "0.2 with extensions": Run(kit=NEXT, baseline="next.yml", scenarios=65, successes=203),
    "0.2 on 2026-07-28": Run(
        kit=NEXT,
        baseline="next-on-2026-07-28.yml",
        options=("--spec-version", "2026-07-28"),
        scenarios=40,
        successes=138,
    ),
}


@pytest.fixture(scope="module")
def server(serve_copy: Any) -> ServerProcess:
    """A server of the conformance app."""
    return serve_copy(HERE / "conformance_app")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def address(kits: Kits, server: ServerProcess) -> Iterator[str]:
    """Where it is asked with a token."""
    proxy = kits.start_node(HERE / "authorizing_proxy.mjs", server.url, env={"MCP_TOKEN": TOKEN})
    with proxy:
        yield f"http://127.0.0.1:{int(proxy.stdout.readline())}/mcp"
        proxy.stdin.close()


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a kit has told, and what it has looked at."""

    code: int
    told: str
    scenarios: list[list[dict[str, Any]]]

    @property
    def successes(self) -> int:
        return sum(check["status"] == "SUCCESS" for checks in self.scenarios for check in checks)

    @property
    def unexpected(self) -> set[str]:
        """The scenarios with findings that the baseline does not have."""
        return set(re.findall(r"✗ ([^\s:]+)(?::\S+)?$", self.told, re.MULTILINE))

    def __str__(self) -> str:
        verdict = self.told.partition("=== SUMMARY ===")[2].partition("Total:")[2] or self.told
        lines = [line for line in verdict.splitlines() if not line.lstrip().startswith("~")]
        found = [check for checks in self.scenarios for check in checks if check["status"] in ("FAILURE", "WARNING")]
        return "\n".join([*lines, *(f"{check['id']}: {check.get('errorMessage')}" for check in found)])


@pytest.fixture(scope="module")
def start(kits: Kits, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Let a kit begin, `start(run)`; what is returned waits for its report."""
    started: list[subprocess.Popen[str]] = []

    def begin(run: Run) -> Callable[[], Report]:
        results = tmp_path_factory.mktemp("results")
        given = ("--url", address, "--suite", "all", *run.options, "-o", str(results))
        baseline = ("--expected-failures", str(HERE / "baselines" / run.baseline))
        process = kits.start_node(kits.packages / run.kit / "dist/index.js", "server", *given, *baseline)
        started.append(process)

        def report() -> Report:
            told = "".join(process.communicate(timeout=250))
            files = [path.read_text("utf-8") for path in results.glob("*/checks.json")]
            return Report(code=process.returncode, told=told, scenarios=[json.loads(text) for text in files])

        return report

    yield begin
    for process in started:
        with process:
            process.kill()


@pytest.fixture(scope="module")
def started(start: Any) -> dict[str, Callable[[], Report]]:
    """All runs, begun at the same time."""
    return {name: start(run) for name, run in RUNS.items()}


@pytest.mark.parametrize("name", RUNS)
def test_a_kit_finds_nothing_but_what_its_baseline_gives_a_reason_for(started: Any, start: Any, name: str) -> None:
    report = started[name]()
    if report.code and report.unexpected and report.unexpected <= HURRIED:
        report = start(RUNS[name])()
    assert report.code == 0, str(report)
    assert len(report.scenarios) == RUNS[name].scenarios
    assert report.successes >= RUNS[name].successes


def test_whitespace_around_header_values_is_no_part_of_them_which_the_proxy_hides_from_the_kits(
    server: ServerProcess,
) -> None:
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    params = {"name": "test_simple_text", "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {
        "Host": f"127.0.0.1:{server.port}",
        "Connection": "close",
        "Authorization": f"  Bearer {TOKEN} \t",
        "Content-Type": "\tapplication/json ",
        "Content-Length": str(len(body)),
        "Accept": " application/json, text/event-stream\t",
        "MCP-Protocol-Version": "2026-07-28 ",
        "Mcp-Method": " tools/call\t ",
        "Mcp-Name": "test_simple_text  ",
    }
    lines = ["POST /mcp HTTP/1.1", *(f"{name}:{value}" for name, value in headers.items()), "", body]
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert answer.startswith("HTTP/1.1 200 "), answer
    assert "This is a simple text response for testing." in answer
