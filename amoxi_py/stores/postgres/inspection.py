"""What state a store's database is in, looked at without changing it, also while servers use it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import class_row
from psycopg.sql import SQL, Identifier

from amoxi_py.stores.postgres.connection import CONNECT_S
from amoxi_py.stores.postgres.cures import reason_of, unavailable
from amoxi_py.stores.postgres.migrate import migrations, store_tables
from amoxi_py.stores.postgres.place import place_of

_ANSWERS_WITHIN = "5s"
_HEARS_WITHIN_S = 2.0
_NO_PRIVILEGE = psycopg.errors.InsufficientPrivilege


@dataclass(frozen=True, kw_only=True)
class Places:
    """How many connections there can be.

    Attributes:
        role: Who asks.
        places: The most connections that this role can have in this database.
        places_taken: Connections of everybody at this moment.
    """

    role: str
    places: int
    places_taken: int


@dataclass(frozen=True, kw_only=True)
class _Row:
    """The row of `inspection.sql`."""

    version: str
    version_number: int
    encoding: str
    replica: bool
    reads_only: bool
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    synchronous_standbys: str
    standbys: int
    vector_made: str | None
    vector_available: str | None
    database: str
    schema_made: bool
    may_create: bool
    may_look: bool
    migrated: bool
    tables: Sequence[str]
    closed_tables: Sequence[str]
    closed_sequences: Sequence[str]
    tables_of_others: Sequence[str]
    size: int


@dataclass(frozen=True, kw_only=True)
class StoreState(_Row, Places):
    """What was found of a store and its database.

    Attributes:
        version, version_number: Of PostgreSQL, such as `15.4` and 150004.
        encoding: Of the database.
        replica: Whether this is a standby, which takes no writes.
        reads_only: Whether transactions of this role only read unless they say otherwise.
        fsync, full_page_writes: Whether what is committed outlives a crash of the machine.
        synchronous_commit: Of this role.
        synchronous_standbys: `synchronous_standby_names`.
        standbys: How many are attached.
        vector_made, vector_available: The version of pgvector in this database, and on the server's disk.
        database: Its name.
        schema_made: Whether the schema is there.
        may_create: Whether the role may make what is missing: the schema, or tables in it.
        may_look: Whether the role may use the schema.
        migrated: Whether there is a store in the schema.
        tables: All tables of the schema, whoever made them.
        closed_tables: Tables of the schema that the role may not read and write (of `migration`: not read).
        closed_sequences: Sequences of the schema that the role may not read.
        tables_of_others: Tables of the schema that the role does not own, and so cannot change.
        size: Bytes of the schema's tables with their indexes.
        missing: Migrations that the next start makes.
        newer: Numbers of migrations that a newer version has made.
        deaf: Why news cannot be listened for; None when they can, or when that cannot be tried.
    """

    missing: tuple[str, ...] = ()
    newer: tuple[int, ...] = ()
    deaf: str | None = None

    @property
    def tables_in_the_way(self) -> list[str]:
        """Tables of something else that have the names of the store's, which therefore cannot be made."""
        return [] if self.migrated else sorted(store_tables() & set(self.tables))


def inspect_store(url: str, schema: str, *, listen_url: str | None = None) -> StoreState:
    """Return the state of the store in a schema of a database.

    Args:
        url: The address of the database.
        schema: The schema's name.
        listen_url: Where news are listened for, when that is another address.

    Raises:
        StoreUnavailable: the database cannot be asked; the message says why, and behind the last `; ` the way out.
    """
    try:
        with _connect(url) as connection:
            row, made = _look(connection, schema)
            places = _places(connection)
    except psycopg.Error as error:
        raise unavailable(error) from error
    known = {number: name for number, name, _ in migrations()}
    return StoreState(
        **vars(row),
        **vars(places),
        missing=() if made is None else tuple(name for number, name in known.items() if number not in made),
        newer=() if made is None else tuple(sorted(made - known.keys())),
        deaf=None if row.replica else _why_deaf(listen_url or url),
    )


def look_at_places(url: str) -> Places:
    """Return how many connections there can be in a database.

    Raises:
        StoreUnavailable: the database cannot be asked.
    """
    try:
        with _connect(url) as connection:
            return _places(connection)
    except psycopg.Error as error:
        raise unavailable(error) from error


def has_store(url: str, schema: str) -> bool:
    """Whether there is a store in a schema of a database.

    Raises:
        StoreUnavailable: the database cannot be asked.
    """
    try:
        with _connect(url) as connection:
            found = connection.execute(
                "SELECT FROM pg_class AS held JOIN pg_namespace AS namespace ON namespace.oid = held.relnamespace"
                " JOIN pg_attribute ON attrelid = held.oid AND attname = 'number'"
                " WHERE namespace.nspname = %s AND held.relname = 'migration'",
                (schema,),
            )
            return found.fetchone() is not None
    except psycopg.Error as error:
        raise unavailable(error, f"the store in schema {schema!r} of {place_of(url)}") from error


def _look(connection: psycopg.Connection[Any], schema: str) -> tuple[_Row, set[int] | None]:
    """Return the row, and the numbers of the migrations that were made; None when the role may not see them."""
    connection.read_only = True
    with connection.transaction():
        connection.execute(SQL("SET LOCAL statement_timeout = {}").format(_ANSWERS_WITHIN))
        with connection.cursor(row_factory=class_row(_Row)) as cursor:
            row = cursor.execute(_sql("inspection.sql"), {"schema": schema}).fetchone()
        assert row is not None, "the statement has exactly one row"
        if not row.migrated:
            return row, set()
        try:
            with connection.transaction():
                made = connection.execute(SQL("SELECT number FROM {}.migration").format(Identifier(schema))).fetchall()
        except _NO_PRIVILEGE:
            return row, None
    return row, {number for (number,) in made}


def _places(connection: psycopg.Connection[Any]) -> Places:
    with connection.cursor(row_factory=class_row(Places)) as cursor:
        return cursor.execute(_sql("places.sql")).fetchall()[0]


def _sql(name: str) -> bytes:
    return resources.files("amoxi_py.stores.postgres").joinpath(name).read_bytes()


def _why_deaf(url: str) -> str | None:
    """Try whether what one connection tells is heard by another, which it is not through a pooler of transactions."""
    channel = f"amoxi_doctor_{secrets.token_hex(4)}"
    try:
        with _connect(url, autocommit=True) as ear, _connect(url, autocommit=True) as mouth:
            ear.execute(SQL("LISTEN {}").format(Identifier(channel)))
            mouth.execute("SELECT pg_notify(%s, '')", (channel,))
            heard = any(True for _ in ear.notifies(timeout=_HEARS_WITHIN_S, stop_after=1))
            ear.execute(SQL("UNLISTEN {}").format(Identifier(channel)))
    except psycopg.Error as error:
        return reason_of(error)
    return None if heard else "what one connection tells is not heard by another"


def _connect(url: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
    if "connect_timeout" not in conninfo_to_dict(url):
        url = make_conninfo(url, connect_timeout=CONNECT_S)
    return psycopg.connect(url, autocommit=autocommit, prepare_threshold=None)
