"""The benchmark of MCP calls runs whole: the same call on the app and on a bare server, on both wires."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "bench" / "mcp_calls.py"


def test_the_benchmark_of_mcp_calls_prints_a_row_for_each_server_and_wire(tmp_path: Path) -> None:
    few = ["--calls", "4", "--rounds", "1", "--connections", "2", "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, str(PROGRAM), *few], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["wire", "connections", "server", "CPU", "ms", "times", "calls/s", "p50", "ms"]
    assert [row[25:42].strip() for row in rows] == ["SDK", "amoxi read-only", "amoxi stored run"] * 2
    assert [row.split()[0] for row in rows] == ["2025-11-25"] * 3 + ["2026-07-28"] * 3
    for row in rows:
        cpu, times, per_s, p50 = map(float, row[42:].split())
        assert min(cpu, times, per_s, p50) > 0
