"""From an empty schema, or one of an earlier version, to what this version uses, whoever starts first and how many.

A migration only adds: tables, indexes, and columns with a default. So an older version can use what a newer one has
changed, for as long as both run side by side: it leaves alone what it does not know, and says so in the log.
"""

from __future__ import annotations

import logging
import re
import time

import psycopg

from amoxi_py.errors import StoreDamaged
from amoxi_py.stores.postgres.connection import OLDEST_SERVER, Address, lock_number
from amoxi_py.stores.postgres.statements import in_schema, quoted
from amoxi_py.stores.sql.migrations import Migration, load_migrations
from amoxi_py.stores.sql.transaction import Row

log = logging.getLogger("amoxi_py.stores")

_TABLE = re.compile(r"^CREATE TABLE @(\w+)", re.MULTILINE)
_CREATE = (
    "CREATE TABLE IF NOT EXISTS @migration "
    '(number integer PRIMARY KEY, name text COLLATE "C" NOT NULL, made_at bigint NOT NULL)'
)

# Asked of the catalog itself: `to_regclass` may answer from before the wait for the lock.
_TAKEN = (
    "SELECT c.relname FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid "
    "WHERE n.nspname = %s AND c.relname = ANY(%s) ORDER BY c.relname"
)
_COLUMNS = (
    "SELECT a.attname FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid "
    "JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 "
    "WHERE n.nspname = %s AND c.relname = 'migration'"
)


def migrations() -> list[Migration]:
    """Return all migrations in order: number, name, SQL with `@` before the names of tables."""
    return load_migrations("amoxi_py.stores.postgres")


def store_tables() -> frozenset[str]:
    """Return the names of all tables of a store."""
    return frozenset(("migration", *(name for _, _, script in migrations() for name in _TABLE.findall(script))))


def migrate(address: Address, connection: psycopg.Connection[Row]) -> None:
    """Make what is missing.

    Raises:
        StoreDamaged: the server is too old, its database cannot hold all text, or the role may not make what is
            missing.
    """
    if connection.info.server_version < OLDEST_SERVER:
        raise address.damaged(f"PostgreSQL {connection.info.server_version // 10000} is too old; 15 or newer is needed")
    encoding = connection.execute("SHOW server_encoding").fetchone()
    if encoding is not None and encoding[0] != "UTF8":
        raise address.damaged(f"the database's encoding is {encoding[0]!r}; make one with ENCODING 'UTF8'")
    if _missing(address, connection):
        prepare_vectors(connection)
        try:
            _make(address, connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise address.damaged(
                f"the role may not make what is missing ({' '.join(str(error).split())}); run 'amoxi migrate' once "
                "with a role that may create, by its DATABASE_URL"
            ) from error


def made(address: Address, connection: psycopg.Connection[Row]) -> set[int] | None:
    """Return the numbers of the migrations that were made, or None when the schema has none."""
    columns = [name for (name,) in connection.execute(_COLUMNS, (address.schema,))]
    if not columns:
        return None
    if not {"number", "made_at"} <= set(columns):
        raise _not_ours(address, ["migration"])
    rows = connection.execute(in_schema("SELECT number FROM @migration", address.schema)).fetchall()
    return {number for (number,) in rows}


def _not_ours(address: Address, names: list[str]) -> StoreDamaged:
    return address.damaged(
        f"it holds no store, but tables of something else: {', '.join(names)}; "
        "set 'ai.store.schema' to the name of a schema that is the store's alone"
    )


def _missing(address: Address, connection: psycopg.Connection[Row]) -> bool:
    found = made(address, connection)
    known = {number for number, _, _ in migrations()}
    if found is None:
        return True
    newer = found - known
    if newer:
        log.warning(
            "the store in %s was changed by a newer version (migration %d); this one uses what it knows of it",
            address,
            max(newer),
        )
    return bool(known - found)


def _make(address: Address, connection: psycopg.Connection[Row]) -> None:
    lock = lock_number(address.schema, "migrate")
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '60s'")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        connection.execute("SET LOCAL lock_timeout = '3s'")  # what waits for a table holds up all that come after it
        found = made(address, connection)
        if found is None:
            if (
                connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (address.schema,)).fetchone()
                is None
            ):
                connection.execute(f"CREATE SCHEMA {quoted(address.schema)}")
            taken = connection.execute(_TAKEN, (address.schema, list(store_tables()))).fetchall()
            if taken:
                raise _not_ours(address, [name for (name,) in taken])
            connection.execute(in_schema(_CREATE, address.schema))
        for number, name, script in migrations():
            if number not in (found or ()):
                connection.execute(in_schema(script, address.schema))
                connection.execute(
                    in_schema("INSERT INTO @migration (number, name, made_at) VALUES (%s, %s, %s)", address.schema),
                    (number, name, time.time_ns() // 1_000_000),
                )


def prepare_vectors(connection: psycopg.Connection[Row]) -> None:
    """Make pgvector usable where the server has it and the role may."""
    row = connection.execute(
        "SELECT installed_version IS NULL FROM pg_available_extensions WHERE name = 'vector'"
    ).fetchone()
    if row is None or not row[0]:
        return
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number("", "vector"),))
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except psycopg.Error as error:
        log.info("pgvector is there, but could not be set up: %s", " ".join(str(error).split()))
