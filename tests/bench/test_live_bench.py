"""The benchmark with a real model: it runs whole against the strict server, and says what is missing without a key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from amoxi_py.testing import StrictModelServer, call

PROGRAM = Path(__file__).parents[2] / "bench" / "live.py"
SCRIPT = {
    "Where is order A-1001?": [call("lookup_order", order_id="A-1001"), "It is shipped."],
    "*": [call("refund_order", order_id="A-1001"), "It is refunded."],
}


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env={"PATH": "/usr/bin:/bin", "AMOXI_LOOPBACK_MODELS": "1", **variables},
    )


def test_the_live_benchmark_refunds_with_a_model_and_prints_what_it_took() -> None:
    with StrictModelServer(SCRIPT) as server:
        done = run("--conversations", "1", "--model", "openai:m", OPENAI_BASE_URL=server.url, OPENAI_API_KEY="sk-live")
        assert server.refused == []
    assert done.returncode == 0, done.stderr
    head, columns, first, second, medians = done.stdout.splitlines()
    assert head == "model: openai:m"
    assert columns.split()[:2] == ["TTFT", "s"]
    for row in (first, second):
        _, _, requests, tokens_in, _, tokens_out, *_ = row.split()
        assert (requests, tokens_in, tokens_out) == ("2", "20", "10")
    assert "medians of 2 messages" in medians
    assert "sk-live" not in done.stdout + done.stderr


def test_without_a_key_it_says_so_and_exits_with_2() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "set ANTHROPIC_API_KEY or OPENAI_API_KEY" in done.stderr
