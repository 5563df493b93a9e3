#!/usr/bin/env python3
"""Lets this version and an older one run side by side on one store, in both orders: what a deploy and its way back do.

`python tools/side_by_side.py OLDER`, where OLDER is a folder with the older checkout, such as one of `git worktree`, or
an unpacked release. It plays on the embedded store, and with `--database URL` on PostgreSQL too, in schemas of its own.
Each version takes over from the other after a kill, and decides and reads what the other has begun; at the end one is
left. It is for before a release: which versions may do that is a promise (docs/guides/production.md).
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from newcomer import ROOT, SETTINGS
from psycopg import sql

from amoxi_py.testing.client import Client

TOKEN = "a-token-of-side-by-side"
LONGEST_S = 60.0
APP = '''
import asyncio
from pathlib import Path

from amoxi_py import agent, tool


@tool(idempotent=True)
async def boil_water() -> str:
    """Boil water, until somebody takes it."""
    while not Path("taken").exists():
        await asyncio.sleep(0.02)
    return "it boils"


@tool(needs_approval=True)
def pour() -> str:
    """Pour it out."""
    return "poured"


@agent(tools=[boil_water, pour])
class Kettle:
    """You boil water."""
'''


class Server:
    """`amoxi start` of one version."""

    def __init__(self, code: Path, folder: Path, environment: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._log = folder / f"{code.name}-{port}.log"
        env = {name: text for name, text in os.environ.items() if not name.startswith(SETTINGS)}
        env |= {"PYTHONPATH": str(code), "SERVER_PORT": str(port), "AI_API_CALLERS_TEST": TOKEN}
        env |= {"AI_RUNS_LEASE_MS": "2000", "AI_MODEL": "offline", **environment}
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "amoxi_py", "start", "--workers", "1"]
            self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        self.api = Client(f"http://127.0.0.1:{port}", token=TOKEN)
        self.wait_for(lambda: "is ready" in self.log(), "get ready")

    def log(self) -> str:
        """Return what it has printed."""
        return self._log.read_text("utf-8", "replace")

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        """Return when the condition holds."""
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"it did not {what}; its log:\n{self.log()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self.process.kill()
        self.process.wait(30)

    def close(self) -> None:
        """End it, and tell what is not in order."""
        self.kill()
        self.api.close()
        if "Traceback" in self.log():
            sys.exit(f"something went wrong in it:\n{self.log()}")


def play(first: Path, second: Path, environment: dict[str, str]) -> None:
    """Let the second version join the first, take over from it, and be left by it in the end."""
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as place, ExitStack() as left:
        folder = Path(place)
        (folder / "app").mkdir()
        (folder / "app" / "__init__.py").write_text(APP, "utf-8")
        (folder / "application.json").write_text("{}", "utf-8")

        def start(code: Path) -> Server:
            server = Server(code, folder, environment)
            left.callback(server.close)
            return server

        one = start(first)
        begun = one.api.submit("kettle", "boil water")["id"]
        two = start(second)
        kept = two.api.submit("kettle", "boil water")["id"]
        two.wait_for(lambda: two.api.run(begun)["status"] == "running", "see what the other does")
        one.kill()
        two.wait_for(lambda: two.api.run(begun)["attempt"] == 2, "take over")
        (folder / "taken").touch()
        expect([two.api.until_status(run) for run in (begun, kept)], [("completed", 2), ("completed", 1)])
        one = start(first)
        for here, there in ((one.api, two.api), (two.api, one.api)):
            asked = here.submit("kettle", "pour")["id"]
            call_id = here.until_status(asked, "waiting")["waiting_for"][0]["call_id"]
            there.decide(asked, call_id, "approve")
            expect([there.until_status(asked), here.until_status(asked)], [("completed", 1)] * 2)
        two.kill()
        expect([one.api.until_status(one.api.submit("kettle", "hello")["id"])], [("completed", 1)])


def expect(runs: list[dict[str, Any]], wanted: list[tuple[str, int]]) -> None:
    """End with what came instead."""
    found = [(run["status"], run["attempt"]) for run in runs]
    if found != wanted:
        sys.exit(f"{wanted} was expected, but this came: {runs}")


def drop(database: str, schema: str) -> None:
    """Remove what was made in the database."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def main() -> int:
    """Play in both orders on each store."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("older", type=Path, help="folder of the older checkout")
    options.add_argument("--database", help="address of a PostgreSQL database")
    given = options.parse_args()
    if not (given.older / "amoxi_py").is_dir():
        sys.exit(f"{str(given.older)!r} has no package amoxi_py: name the folder of a checkout")
    older = given.older.resolve()
    with ExitStack() as left:
        for number, (first, second) in enumerate(((older, ROOT), (ROOT, older))):
            stores = {"the embedded store": {"AI_STORE_TYPE": "file"}}
            if given.database:
                schema = f"side_by_side_{os.getpid()}_{number}"
                left.callback(drop, given.database, schema)
                postgres = {"AI_STORE_TYPE": "postgres", "DATABASE_URL": given.database, "AI_STORE_SCHEMA": schema}
                stores["PostgreSQL"] = postgres
            for store, environment in stores.items():
                began = time.monotonic()
                play(first, second, environment)
                order = "the older one was first" if first == older else "this one was first"
                print(
                    f"{time.monotonic() - began:6.1f} s  {store}, {order}: both have done each other's work", flush=True
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
