"""Debian's PgBouncer before a PostgreSQL of a test, as a cloud puts a pooler there: transactions share connections."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString
from urllib.parse import urlsplit

import psycopg

from keeper import Kept
from postgres_server import GivenServer, outer_port

_READY_S = 60.0
_NAME = "pgbouncer"


class PgBouncer:
    """A running pooler.

    Attributes:
        port: Where it listens; it stays the same when it is restarted.
    """

    def __init__(self, kept: Kept, server: GivenServer, settings: Mapping[str, str | int]) -> None:
        self.port = outer_port()
        self._kept = kept
        behind = urlsplit(server.dsn())
        secret = f" password={behind.password}" if behind.password else ""
        lines = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "admin_users": "amoxi",
            "pool_mode": "transaction",
            "max_client_conn": 1000,
            "default_pool_size": 20,
            **settings,
        }
        self._config = kept.folder / "pgbouncer.ini"
        self._config.write_text(
            "[databases]\n"
            f"* = host={behind.hostname} port={behind.port or 5432} user={behind.username}{secret}\n"
            "[pgbouncer]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items()),
            "utf-8",
        )
        kept.account.own(self._config)
        self.start()

    def dsn(self, database: str) -> str:
        """Return the address of a database behind it; an address of the server itself is also understood."""
        name = urlsplit(database).path.strip("/") if "://" in database else database
        return f"postgresql://amoxi@127.0.0.1:{self.port}/{name}"

    def admin(self, command: LiteralString) -> list[dict[str, Any]]:
        """Run a command of its console, such as `RECONNECT`, `PAUSE`, `KILL x`, `SHOW SERVERS`; return its rows."""
        with psycopg.connect(self.dsn("pgbouncer"), autocommit=True) as console:
            cursor = console.execute(command)
            names = [column.name for column in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor] if names else []

    def start(self) -> None:
        """Start it and return when it takes connections."""
        program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if program is None:
            raise RuntimeError("pgbouncer is not here: install the package 'pgbouncer', or run: python3 dev.py test")
        self._kept.start(_NAME, [program, self._config], end_signal=signal.SIGTERM)
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return
            except ConnectionRefusedError:
                if self._kept.code(_NAME) is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"pgbouncer does not start; its log:\n{self.log()}") from None
                time.sleep(0.01)

    def stop(self) -> None:
        """Stop it at once, with all connections."""
        self._kept.stop(_NAME, signal.SIGTERM)

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()

    def log(self) -> str:
        """Return what it has printed."""
        return self._kept.log(_NAME)


@contextmanager
def pgbouncer(server: GivenServer, **settings: str | int) -> Iterator[PgBouncer]:
    """Give a pooler before a server; `settings` are lines of its file, such as `server_idle_timeout=1`."""
    kept = Kept.new("pgbouncer")
    try:
        yield PgBouncer(kept, server, settings)
    finally:
        kept.leave()
