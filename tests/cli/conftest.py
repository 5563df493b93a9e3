"""Commands from outside: as processes with pipes, and with a terminal where the system has one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.stores.sqlite.store import SqliteStore
from forks import Fork, Forks
from processes import clean_environment

Run = Callable[..., subprocess.CompletedProcess[str]]

SHOP = {
    "app/__init__.py": "",
    "app/shop.py": '''
import asyncio
from typing import Annotated

from pydantic import Field

from amoxi_py import ToolContext, agent, tool

OrderId = Annotated[str, Field(pattern=r"^A-\\d{4}$", description="The order number, e.g. A-1001")]


@tool(read_only=True)
def lookup_order(order_id: OrderId) -> dict[str, str]:
    """Look up an order."""
    return {"id": order_id, "status": "shipped"}


@tool(needs_approval=True)
def cancel_order(order_id: OrderId, ctx: ToolContext) -> str:
    """Cancel an order."""
    with open("cancelled.log", "a") as log:
        log.write(f"{order_id} {ctx.call_id}\\n")
    return f"{order_id} is cancelled"


@tool(needs_approval=True, approver="role:finance")
def erase_order(order_id: OrderId) -> str:
    """Erase an order."""
    return "erased"


@tool(idempotent=True)
async def boil_water(seconds: float, ctx: ToolContext) -> str:
    """Boil water for some seconds."""
    ctx.progress("the water gets warm")
    await asyncio.sleep(seconds)
    return "it boils"


@agent(tools=[lookup_order, cancel_order, erase_order, boil_water], description="Knows the orders.")
class Shop:
    """You know the orders."""
'''.replace("def cancel_order", "async def cancel_order"),
}


@pytest.fixture
def shop(app_folder: Any) -> Path:
    """A folder with an app: one agent whose tools look up, cancel and erase orders, and boil water."""
    folder: Path = app_folder(SHOP)
    return folder


@pytest.fixture
def make_store() -> Callable[[Path], None]:
    """Make an empty store in a folder, as the first start of a server does."""

    async def make(folder: Path) -> None:
        store = SqliteStore(folder)
        await store.open(lambda events: None)
        await store.close()

    return lambda folder: asyncio.run(make(folder))


@pytest.fixture
def amoxi(forks: Forks | None) -> Run:
    """Run a command to its end, `amoxi(folder, "runs", "list", stdin="...")`, with pipes."""

    def run(
        folder: Path, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        whole_env = clean_environment(env)
        if forks is not None and forks.can_start(whole_env):
            return forks.run(arguments, folder=folder, env=whole_env, stdin=stdin, timeout=60)
        return subprocess.run(
            [sys.executable, "-m", "amoxi_py", *arguments],
            cwd=folder,
            env=whole_env,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=60,
        )

    return run


@pytest.fixture
def read(amoxi: Run) -> Callable[..., Any]:
    """Run a command that succeeds, and return its JSON document."""

    def read_json(folder: Path, *arguments: str) -> Any:
        answer = amoxi(folder, *arguments, "--json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    return read_json


@pytest.fixture
def say(amoxi: Run) -> Callable[..., dict[str, Any]]:
    """Say something to the shop's agent in one turn, and return the run."""

    def one_turn(folder: Path, message: str, *options: Sequence[str]) -> dict[str, Any]:
        answer = amoxi(folder, "chat", "--message", message, "--json", *options)  # type: ignore[arg-type]  # texts
        assert answer.stdout, answer.stderr
        run: dict[str, Any] = json.loads(answer.stdout)
        return run

    return one_turn


class Terminal:
    """A command on a terminal of its own: what it shows is read, what a person types is written."""

    def __init__(self, start: Callable[[int], subprocess.Popen[bytes] | Fork], columns: int) -> None:
        import fcntl
        import struct
        import termios

        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = start(theirs)
        os.close(theirs)
        self.raw = ""
        self._seen = 0

    def see(self, pattern: str, timeout: float = 60.0) -> re.Match[str]:
        """Return when the pattern is on the screen, after what was seen before."""
        deadline = time.monotonic() + timeout
        while not (found := re.compile(pattern, re.DOTALL).search(self.text, self._seen)):
            assert self._read(max(0.0, deadline - time.monotonic())), f"{pattern!r} did not come:\n{self.text}"
        self._seen = found.end()
        return found

    @property
    def text(self) -> str:
        """All that was shown, without colours and the like."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.raw).replace("\r\n", "\n")

    def type(self, text: str) -> None:
        """Press keys; `\\x03` is Ctrl-C and `\\x04` is Ctrl-D."""
        os.write(self._ours, text.encode())

    def end(self, timeout: float = 60.0) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + timeout
        while self._read(max(0.0, deadline - time.monotonic())):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def kill(self) -> None:
        """Kill it without asking."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(30)

    def close(self) -> None:
        self.kill()
        os.close(self._ours)

    def _read(self, timeout: float) -> bool:
        if not select.select([self._ours], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


def start_on_terminal(
    command: Sequence[str], folder: Path, env: Mapping[str, str], tty: int
) -> subprocess.Popen[bytes]:
    import fcntl
    import termios

    return subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=tty,
        stdout=tty,
        stderr=tty,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )


@pytest.fixture
def on_terminal(forks: Forks | None) -> Iterator[Callable[..., Terminal]]:
    """Start a command on a terminal, `on_terminal(folder, "chat", columns=80)`."""
    started: list[Terminal] = []

    def start(
        folder: Path, *arguments: str, columns: int = 100, env: Mapping[str, str] | None = None, module: bool = True
    ) -> Terminal:
        whole_env = clean_environment({"TERM": "xterm", **(env or {})})

        def begin(tty: int) -> subprocess.Popen[bytes] | Fork:
            if module and forks is not None and forks.can_start(whole_env):
                return forks.start(arguments, folder=folder, env=whole_env, stdin=tty, stdout=tty, stderr=tty)
            return start_on_terminal(
                [sys.executable, *(["-m", "amoxi_py"] if module else []), *arguments], folder, whole_env, tty
            )

        started.append(Terminal(begin, columns))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()
