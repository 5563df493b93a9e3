"""The named statements of `queries.sql`, as the server takes them, for the tables of one schema."""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct
from psycopg import sql

from amoxi_py.stores.sql.transaction import load_queries

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b(?!\()")
_ROWS = re.compile(r":rows\(([a-z,\s]+)\)")
_TABLE = re.compile(r"@(\w+)")


class Statement(Struct, frozen=True):
    """A statement, and the names of its parameters in the order of their numbers."""

    text: bytes
    parameters: tuple[str, ...]


@cache
def statements(schema: str) -> dict[str, Statement]:
    """Return all statements by name."""
    queries = load_queries("amoxi_py.stores.postgres")
    return {name: translated(query, schema) for name, query in queries.items()}


def in_schema(query: str, schema: str) -> str:
    """Put the quoted schema before each `@name`."""
    return _TABLE.sub(lambda match: f"{quoted(schema)}.{match[1]}", query)


def quoted(name: str) -> str:
    """Return a name as it stands in a statement."""
    return sql.Identifier(name).as_string(None)


def translated(query: str, schema: str) -> Statement:
    """Give parameters their numbers, write `:rows` as one array for each column, and put tables in the schema."""
    parameters: dict[str, int] = {}

    def number(parameter: str) -> str:
        return f"${parameters.setdefault(parameter, len(parameters) + 1)}"

    def arrays(match: re.Match[str]) -> str:
        types = [kind.strip() for kind in match[1].split(",")]
        return "unnest(" + ", ".join(f"{number(f'c{n}')}::{kind}[]" for n, kind in enumerate(types)) + ")"

    text = _PARAMETER.sub(lambda match: number(match[1]), _ROWS.sub(arrays, query))
    return Statement(in_schema(text, schema).encode(), tuple(parameters))
