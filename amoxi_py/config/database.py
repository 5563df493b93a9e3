"""The database that the settings name: whether its address can be used, and what it is called without its password.

An address is a URL or a conninfo of libpq's (`host=db dbname=shop`). What libpq says of a bad one is never told,
because it quotes pieces of it; psycopg is imported only when there is an address to look at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from pydantic import SecretStr

from amoxi_py.config.found import Found
from amoxi_py.config.sections import StoreSection
from amoxi_py.config.settings import DATABASE_URL
from amoxi_py.config.sources import FILE
from amoxi_py.stores.postgres.place import read_address

EXAMPLE = "postgresql://user:password@host:5432/database"

_SCHEMES = ("postgresql", "postgres")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_ENCODE = "of user and password every character but letters, digits, '-', '.', '_' and '~' is written as %40 is for @"
_PORT = "5432"


def database_problems(
    store: StoreSection, url: str, found: Mapping[str, Found], variables: Mapping[str, Found], *, dotenv_unread: bool
) -> list[str]:
    """Return what is wrong with the addresses that a PostgreSQL store needs; other stores need none.

    Args:
        store: The settings of the store.
        url: What `DATABASE_URL` says, empty when it is not set.
        found: The settings by key, with their sources.
        variables: All variables.
        dotenv_unread: Whether there is an `.env` that this profile does not read.
    """
    if store.type != "postgres":
        return []
    problems = []
    if not url:
        hint = "; .env is read in the profile 'dev' only" if dotenv_unread else ""
        problems.append(
            f"'ai.store.type' from {_source('ai.store.type', found)} is 'postgres', but {DATABASE_URL} is not set: "
            f"set it to the database's address, such as {EXAMPLE}, or {DATABASE_URL}{FILE} to a file with it{hint}"
        )
    elif reason := wrong_with(url):
        given = variables.get(DATABASE_URL) or variables.get(DATABASE_URL + FILE)
        source = DATABASE_URL if given is None else given.source
        problems.append(f"{source} (not shown) is no address of a PostgreSQL database: {reason}")
    if store.listen_url is not None and (reason := wrong_with(_text(store.listen_url))):
        key = "ai.store.listen-url"
        problems.append(
            f"{key!r} from {_source(key, found)} (not shown) is no address of a PostgreSQL database: {reason}"
        )
    return problems


def wrong_with(url: str) -> str | None:
    """Return why an address cannot be used and the way out, with no piece of it that may be secret; None if it can."""
    scheme, separator, rest = url.partition("://")
    is_url = bool(separator) and _SCHEME.fullmatch(scheme) is not None
    if is_url and scheme not in _SCHEMES:
        return f"it does not begin with 'postgresql://': write it as {EXAMPLE}"
    if is_url and _has_loose_at(rest):
        return f"there is an '@' in it that is not the one before the host: {_ENCODE}"
    from psycopg import Error

    try:
        known = read_address(url)
    except Error:
        if not is_url:
            return f"write it as {EXAMPLE}, or as host=... port=... user=... password='...' dbname=..."
        unknown = _unknown_parameters(rest)
        if unknown:
            return f"its parameters {', '.join(map(repr, unknown))} are none of libpq's: take them out"
        return f"write it as {EXAMPLE}; {_ENCODE}"
    if not all(re.fullmatch(r"\d{1,5}", port) for port in known.get("port", _PORT).split(",")):
        return f"its port is no number; {_ENCODE}"
    return None


def _has_loose_at(rest: str) -> bool:
    """Whether libpq would take a piece of the password for the host or the database: `user:pass@word@host`."""
    at, slash = rest.find("@"), rest.find("/")
    has_user = at != -1 and (slash == -1 or at < slash)
    return "@" in (rest[at + 1 :] if has_user else rest).partition("?")[0]


def _unknown_parameters(rest: str) -> list[str]:
    from psycopg.pq import Conninfo

    known = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}
    _, _, query = rest.rpartition("@")[2].partition("?")
    return [name for name, _ in parse_qsl(query, keep_blank_values=True) if name not in known]


def _text(secret: SecretStr) -> str:
    return secret.get_secret_value().strip()


def _source(key: str, found: Mapping[str, Any]) -> str:
    return found[key].source if key in found else "the defaults"
