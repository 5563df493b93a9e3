"""Who finishes by itself what a crash has interrupted: an agent's three steps, killed in the second one.

    python bench/crash_peers.py [amoxi dbos aaa langgraph agno] [--wait 90]

A played model lets each agent call three tools, one after the other. Each leaves a line; the second one then takes
four seconds, within which the server gets `kill -9`. It is started again, and asked nothing. Printed are whether the
work came to its end, after how many seconds since the second start, and the lines: 1,2,2,3 is the best possible, since
nobody can know what the second step had done. The environments are those of `bench/peers/install.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from amoxi_py.testing.bench.peer import ENVIRONMENTS
from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.provider_process import PlayedProvider, played_provider

HERE = Path(__file__).parent / "crash"
ROOT = Path(__file__).parents[1]
PROFILE = Profile(ttft_ms=50, tokens=4, tools=("first_step", "second_step", "third_step"))
START_S = 60.0
LOOK_S = 0.05
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An agent with the three steps: its program, the environment that has it, and how its work is started."""

    name: str
    environment: str | None
    path: str
    body: str = "{}"
    content_type: str = JSON


CASES = (
    Case(name="amoxi", environment=None, path="/agents/worker/runs", body='{"message": "Do the work."}'),
    Case(name="dbos", environment="dbos_chat", path="/start"),
    Case(name="aaa", environment="aaa_chat", path="/start"),
    Case(name="langgraph", environment="langgraph_chat", path="/start"),
    Case(
        name="agno",
        environment="agno_chat",
        path="/agents/worker/runs",
        body="message=Do+the+work&stream=false&background=true",
        content_type="application/x-www-form-urlencoded",
    ),
)


class Steps:
    """The lines that the steps have left."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def lines(self) -> list[str]:
        """Return them in their order."""
        return self.file.read_text("utf-8").split() if self.file.exists() else []


def command_of(case: Case, folder: Path, port: int) -> list[str]:
    """Return how the server of a case is started."""
    if case.environment is None:
        return [sys.executable, "-m", "amoxi_py", "start", "--workers", "1", "--port", str(port)]
    python = ROOT / ENVIRONMENTS / case.environment / "bin" / "python"
    return [str(python), str(HERE / f"{case.name}_steps.py")]


@contextmanager
def server(case: Case, folder: Path, provider: PlayedProvider, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a case's server until it answers; it is killed at the end."""
    env = {
        **os.environ,
        "PORT": str(port),
        "PYTHONPATH": str(HERE),
        "STEPS_LOG": str(folder / "steps.log"),
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "OPENAI_API_KEY": "bench",
        "AI_MODEL": "openai:bench",
        "AI_HTTP_ANONYMOUS": "true",
    }
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command_of(case, folder, port), cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(lambda: answers(port) or process.poll() is not None, START_S)
        if process.poll() is not None:
            raise RuntimeError(f"{case.name} did not start:\n{(folder / 'server.log').read_text()[-2000:]}")
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def measure(case: Case, provider: PlayedProvider, folder: Path, wait_s: float) -> tuple[float | None, list[str]]:
    """Kill a case's server in its second step, and start it again; return seconds until its end, and the lines."""
    if case.environment is None:
        (folder / "app").mkdir()
        shutil.copy(HERE / "amoxi_steps.py", folder / "app" / "__init__.py")
        (folder / "application.json").write_text("{}", "utf-8")
    provider.answer_like(PROFILE)
    steps, port = Steps(folder / "steps.log"), free_port()
    with server(case, folder, provider, port):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{case.path}", case.body.encode(), {"Content-Type": case.content_type}
        )
        urllib.request.urlopen(request, timeout=START_S).close()
        if not wait_for(lambda: "2" in steps.lines(), START_S):
            raise RuntimeError(f"{case.name} did not come to its second step: {steps.lines()}")
    begun = time.monotonic()
    with server(case, folder, provider, port):
        done = wait_for(lambda: "3" in steps.lines() and in_words(provider), wait_s)
        return time.monotonic() - begun if done else None, steps.lines()


def in_words(provider: PlayedProvider) -> bool:
    """Whether the model's last answer, in words, was had."""
    seen = provider.stats()
    return bool(seen["completed"] > seen["tool_calls"])


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether a condition came true within some time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def answers(port: int) -> bool:
    """Whether a server answers there, whatever it says."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1).close()
    except urllib.error.HTTPError as answer:
        answer.close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Play all that are named, or all that are installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(case.name for case in CASES))
    parser.add_argument("--wait", type=float, default=90.0, help="seconds after the second start")
    options = parser.parse_args()
    if unknown := set(options.names) - {case.name for case in CASES}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C does: no server is left behind
    print(f"{'':<12}{'ends by itself':>16}{'after s':>9}  lines")
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        if not Path(command_of(case, ROOT, 0)[0]).exists():
            print(f"{case.name:<12}  not installed: python bench/peers/install.py {case.environment}")
            continue
        with tempfile.TemporaryDirectory(prefix=".amoxi-crash-", dir=Path.cwd()) as name:
            folder = Path(name)
            with played_provider(PROFILE, folder) as provider:
                seconds, lines = measure(case, provider, folder, options.wait)
        told = f"{seconds:.1f}" if seconds is not None else "-"
        print(f"{case.name:<12}{'yes' if seconds is not None else 'no':>16}{told:>9}  {','.join(lines)}", flush=True)


if __name__ == "__main__":
    main()
