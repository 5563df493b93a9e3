"""Vectors in PostgreSQL: an index of pgvector's for each embedder, and the search along it or through a whole space.

A space of few vectors is searched through, which is exact; a larger one along the index of all spaces (HNSW), which
goes on until it has enough of this space. Without pgvector there is no search by vectors; they are kept all the same.
"""

from __future__ import annotations

import hashlib
import logging
import random
import re
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg import sql

from amoxi_py.errors import ConfigError
from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.migrate import prepare_vectors
from amoxi_py.stores.postgres.statements import Statement, quoted, translated
from amoxi_py.stores.postgres.transaction import PostgresTransaction
from amoxi_py.stores.sql.transaction import Row, load_queries

log = logging.getLogger("amoxi_py.stores")

SEARCHED_THROUGH: Final = 2000
"""A space of no more vectors is searched through."""
MOST_DIMENSIONS: Final = 4000
_MOST_OF_WHOLE_FLOATS: Final = 2000
_ITERATES: Final = (0, 8)
_BREADTH: Final = 400
_WIDEST: Final = 1000
_SLIGHT: Final = 1e-6
_TRIES: Final = 5
_PATIENCE: Final = "30s"
_REAL: Final = 700
_GAP = re.compile(r"\{(\w+)\}")
_MADE_BY_OTHERS = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.DuplicateTable,
    psycopg.errors.InternalError_,  # "tuple concurrently updated"
    psycopg.errors.UniqueViolation,
    psycopg.errors.UndefinedObject,
)


class _State(Struct, frozen=True, kw_only=True):
    """What the database has: of pgvector, and of the index of one embedder."""

    version: str | None
    schema: str | None
    valid: bool
    there: bool
    growing: bool

    @property
    def iterates(self) -> bool:
        """Whether a search along an index goes on until it has enough that fits."""
        numbers = (self.version or "0.0").split(".")
        return tuple(map(int, numbers[:2])) >= _ITERATES


class VectorSearch:
    """The search of vectors in a schema; for threads."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._templates = load_queries("amoxi_py.stores.postgres", "vectors.sql")
        self._look = translated(self._templates["look"], address.schema)
        self._widen = translated(self._templates["widen"], address.schema)
        self._known: dict[tuple[str, int], _State] = {}
        self._made: dict[tuple[str, str, int], Statement] = {}

    def prepare(self, embedder: str, dimensions: int) -> None:
        """Make the index of an embedder, unless it is there or somebody makes it; blocks.

        Raises:
            ConfigError: pgvector is not in the database, or has no index of so many dimensions.
        """
        if dimensions > MOST_DIMENSIONS:
            raise ConfigError(
                f"the embedder {embedder!r} makes vectors of {dimensions} numbers, and pgvector finds those of at most "
                f"{MOST_DIMENSIONS}: ask for fewer dimensions, or take another embedder by 'ai.memory.embedder'"
            )
        with self._address.connect() as connection:
            state = self._ask(connection, embedder, dimensions)
            if state.version is None:
                prepare_vectors(connection)
                state = self._ask(connection, embedder, dimensions)
            if state.version is None:
                raise ConfigError(
                    f"{self._address} has no pgvector, which finds the vectors of the embedder {embedder!r}: install "
                    "pgvector 0.8 or newer on the server, and run CREATE EXTENSION vector in the database as a role "
                    "that may; the embedder 'offline' does without it, by words alone"
                )
            connection.execute("SELECT set_config('lock_timeout', %s, false)", (_PATIENCE,))
            try:
                self._make(connection, embedder, dimensions, state)
            except psycopg.errors.InsufficientPrivilege as error:
                self._tell_slow(error, "start once with the role that owns the store's tables")
            except psycopg.errors.LockNotAvailable as error:
                self._tell_slow(error, "a transaction that is open for long is in the way; the next start tries again")
            finally:
                with suppress(psycopg.Error):
                    connection.execute("RESET lock_timeout")

    def nearest(
        self, tx: PostgresTransaction, space: int, limit: int, vector: bytes, embedder: str
    ) -> Sequence[int] | None:
        """Return the passages whose vectors are nearest, the nearest first; None without pgvector."""
        dimensions = len(vector) // 4
        state = self._state(tx, embedder, dimensions)
        if state.schema is None:
            return None
        given = {"space": space, "vector": stored_vector(vector), "slight": str(_SLIGHT), "limit": limit}
        if state.valid and state.iterates:
            most = SEARCHED_THROUGH + 1
            ((count,),) = tx.rows("count_vectors", space=space, embedder=embedder, limit=most)
            if count > SEARCHED_THROUGH:
                tx.rows_of(self._widen, breadth=str(min(max(_BREADTH, limit), _WIDEST)))
                rows = tx.rows_of(self._statement("along_index", state.schema, embedder, dimensions), **given)
                if len(rows) == limit:  # else it has given up: the space is a small part of a very large whole
                    return [passage for passage, near in rows if near]
        rows = tx.rows_of(self._statement("through_all", state.schema, embedder, dimensions), **given)
        return [passage for (passage,) in rows]

    def _make(self, connection: psycopg.Connection[Row], embedder: str, dimensions: int, state: _State) -> None:
        schema = state.schema
        assert schema is not None
        failure: psycopg.Error | None = None
        for _ in range(_TRIES):
            if state.valid:
                return
            if state.growing:
                log.info("another process makes the index of the vectors of %r", embedder)
                return
            try:
                if state.there:  # who made it was stopped
                    self._run(connection, "drop_index", schema, embedder, dimensions)
                self._run(connection, "make_index", schema, embedder, dimensions)
            except _MADE_BY_OTHERS as error:  # two at the same moment: one was stopped, and may have left half of it
                failure = error
                time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - not a secret
            state = self._ask(connection, embedder, dimensions)
        if failure is not None and not state.valid:
            self._tell_slow(failure, "the next start tries again")

    def _run(self, connection: psycopg.Connection[Row], name: str, schema: str, embedder: str, dimensions: int) -> None:
        connection.execute(self._statement(name, schema, embedder, dimensions).text)

    def _state(self, tx: PostgresTransaction, embedder: str, dimensions: int) -> _State:
        """Return what is known, or look: nothing of it goes away while the app runs, but for what was not there."""
        known = self._known.get((embedder, dimensions))
        if known is None or not known.valid:
            (row,) = tx.rows_of(self._look, schema=self._address.schema, index=index_name(embedder, dimensions))
            known = self._known[embedder, dimensions] = _read(row)
        return known

    def _ask(self, connection: psycopg.Connection[Row], embedder: str, dimensions: int) -> _State:
        cursor = psycopg.RawCursor(connection)
        values = {"schema": self._address.schema, "index": index_name(embedder, dimensions)}
        row = cursor.execute(self._look.text, [values[name] for name in self._look.parameters]).fetchone()
        assert row is not None
        return _read(row)

    def _statement(self, name: str, schema: str, embedder: str, dimensions: int) -> Statement:
        made = self._made.get((name, embedder, dimensions))
        if made is None:
            plain = "vector" if dimensions <= _MOST_OF_WHOLE_FLOATS else "halfvec"
            of = quoted(schema)
            values = {
                "of": of,
                "type": f"{of}.{plain}({dimensions})",
                "plain": f"{of}.{plain}",
                "dimensions": str(dimensions),
                "embedder": sql.Literal(embedder).as_string(None),
                "schema": quoted(self._address.schema),
                "index": index_name(embedder, dimensions),
            }
            template = translated(self._templates[name], self._address.schema)
            text = _GAP.sub(lambda gap: values[gap[1]], template.text.decode())
            made = self._made[name, embedder, dimensions] = replace(template, text=text.encode())
        return made

    def _tell_slow(self, error: psycopg.Error, cure: str) -> None:
        reason = " ".join(str(error).split())
        log.warning("the index of vectors in %s was not made (%s): search is slow; %s", self._address, reason, cure)


def index_name(embedder: str, dimensions: int) -> str:
    """Return the name of the index of an embedder's vectors."""
    digest = hashlib.blake2b(f"{embedder}\0{dimensions}".encode(), digest_size=8).hexdigest()
    return f"passage_vector_near_{digest}"


def stored_vector(vector: bytes) -> bytes:
    """Return PostgreSQL's binary form of an array of `real`."""
    numbers = len(vector) // 4
    parts: list[Any] = [value for number in struct.unpack(f"<{numbers}f", vector) for value in (4, number)]
    return struct.pack(f">iiIii{'if' * numbers}", 1, 0, _REAL, numbers, 1, *parts)


def _read(row: Row) -> _State:
    version, schema, valid, there, growing = row
    return _State(version=version, schema=schema, valid=bool(valid), there=bool(there), growing=bool(growing))
