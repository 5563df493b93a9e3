"""The PostgreSQL that benchmarks measure on, what its processes use, and what a schema weighs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "databases"))
from postgres_server import own_postgres

_SETTINGS: dict[str, str | int] = {
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "autovacuum_naptime": "5s",
}


class Database:
    """A database of a server; `folder` is the server's when it was started here."""

    def __init__(self, url: str, folder: Path | None = None) -> None:
        self.url = url
        self._folder = folder

    def cpu(self) -> float:
        """Return CPU seconds that all processes of the server have used; not a number when it is elsewhere."""
        if self._folder is None:
            return float("nan")
        ticks = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cwd").readlink() == self._folder / "data":
                    fields = (process / "stat").read_text("utf-8").rpartition(")")[2].split()
                    ticks += sum(map(int, fields[11:15]))  # the first process has those of ended ones
            except OSError:
                continue
        return ticks / os.sysconf("SC_CLK_TCK")

    def transactions(self) -> int:
        """Return how many the database has committed."""
        statement = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        with psycopg.connect(self.url, autocommit=True) as connection:
            return int(connection.execute(statement).fetchall()[0][0])

    def size(self, schema: str) -> int:
        """Return the bytes of all tables and indexes of a schema, when what is dead in them can be used again."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            tables = connection.execute(
                "SELECT oid, relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'",
                (schema,),
            ).fetchall()
            for _, name in tables:
                connection.execute(sql.SQL("VACUUM {}").format(sql.Identifier(schema, name)))
            return sum(
                connection.execute("SELECT pg_total_relation_size(%s)", (oid,)).fetchall()[0][0] for oid, _ in tables
            )

    def delay_commits(self, milliseconds: float) -> None:
        """Make every flush of the log of new connections so much slower, as a disk far away does."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            name = sql.Identifier(connection.info.dbname)
            for setting, value in (("commit_delay", round(milliseconds * 1000)), ("commit_siblings", 0)):
                statement = sql.SQL("ALTER DATABASE {} SET {} = {}")
                connection.execute(statement.format(name, sql.Identifier(setting), sql.Literal(value)))

    def make(self, schema: str) -> None:
        """Make an empty schema."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))

    def drop(self, schema: str) -> None:
        """Remove a schema that was measured."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@contextmanager
def database(url: str | None) -> Iterator[Database]:
    """Give the database at an address, or one on a server for the time of the measurement, with `fsync`."""
    if url is not None:
        yield Database(url)
        return
    with own_postgres(fsync=True, max_connections=200, settings=_SETTINGS) as server:
        yield Database(server.fresh_database(), server.folder)
