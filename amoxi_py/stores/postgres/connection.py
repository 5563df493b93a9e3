"""Where the database is: how connections to it are made, and what its errors mean."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from amoxi_py.errors import AmoxiError, StoreDamaged, StoreUnavailable
from amoxi_py.stores.postgres.cures import reason_of, unavailable
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.postgres.place import place_of
from amoxi_py.stores.postgres.statements import Statement, statements
from amoxi_py.stores.postgres.transaction import PostgresTransaction
from amoxi_py.stores.sql.transaction import Row

log = logging.getLogger("amoxi_py.stores")

OLDEST_SERVER = 150000
CONNECT_S = 5
_LOST_PREPARED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)
_PLAIN: dict[str, Any] = {
    "application_name": "amoxi",
    "connect_timeout": CONNECT_S,
    "client_encoding": "utf8",
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class Address:
    """Where the database is, and how connections to it are made.

    Attributes:
        schema: Of all tables.
        prepares: Whether statements are prepared; turned off for good when a pooler is found to lose them.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self.prepares = True
        self._conninfo = make_conninfo(url, **{key: v for key, v in _PLAIN.items() if key not in conninfo_to_dict(url)})
        self.statements: Mapping[str, Statement] = statements(schema)

    def __str__(self) -> str:
        return f"schema {self.schema!r} of {place_of(self._conninfo)}"

    @property
    def conninfo(self) -> str:
        """What libpq connects with; it holds the password."""
        return self._conninfo

    def connect(self) -> psycopg.Connection[Row]:
        """Connect, every statement in a transaction of its own unless one is begun, and none prepared."""
        connection: psycopg.Connection[Row] = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        return connection

    def line(self) -> Line:
        """Connect, to send many statements at once."""
        return Line(self.connect(), prepares=self.prepares)

    def fits(self, line: Line) -> bool:
        """Whether a line can still be used."""
        return line.usable and line.prepares == self.prepares

    def transaction(self, line: Line) -> PostgresTransaction:
        """Return the store's statements on a line."""
        return PostgresTransaction(line, self.statements)

    def error(self, error: Exception) -> AmoxiError:
        """Return the store's error for PostgreSQL's or the system's, with the place and the way out."""
        if isinstance(error, _LOST_PREPARED) and self.prepares:
            self.prepares = False
            log.warning(
                "the database at %s forgets prepared statements, as poolers do: they are not used any more; "
                "a pooler that keeps them (PgBouncer 1.21 with max_prepared_statements) makes the store faster",
                self,
            )
        if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
            return StoreUnavailable(f"the store in {self} is not there ({reason_of(error)}); run 'amoxi migrate'")
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return StoreUnavailable(
                f"the role may not do what the store in {self} needs ({reason_of(error)}); give it USAGE on the "
                "schema, SELECT, INSERT, UPDATE and DELETE on its tables, and SELECT on its sequences"
            )
        if isinstance(error, psycopg.errors.DiskFull):
            return StoreUnavailable(
                f"the store in {self} cannot be written now ({reason_of(error)}); make room on its disk"
            )
        return unavailable(error, f"the store in {self}")

    def damaged(self, what: str) -> StoreDamaged:
        """Return the error for a database that cannot be used; `what` says why, and the way out."""
        return StoreDamaged(f"the store in {self} cannot be used: {what}")


def lock_number(schema: str, name: str) -> int:
    """Return the number of an advisory lock that stands for something of the store in a schema."""
    digest = hashlib.blake2b(f"{schema}\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
