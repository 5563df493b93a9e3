"""What PostgreSQL's and libpq's errors mean, and what to do about them."""

from __future__ import annotations

import re

import psycopg

from amoxi_py.errors import StoreUnavailable

_LONGEST_REASON = 300
_CURES = (
    (r"password authentication failed|no password supplied", "correct its user and password"),
    (r'database ".*" does not exist', "make the database (CREATE DATABASE), or correct its name"),
    (r'role ".*" does not exist', "make the role (CREATE ROLE ... LOGIN PASSWORD ...), or correct its name"),
    (
        r"too many (clients|connections)|remaining connection slots",
        "raise max_connections, or let processes have fewer ('ai.store.connections')",
    ),
    (r"no pg_hba\.conf entry", "let pg_hba.conf accept this host, role and database, or add ?sslmode=require"),
    (r"CONNECT privilege", "let its role in (GRANT CONNECT ON DATABASE ... TO ...)"),
    (
        r"read-only transaction",
        "let the address name the primary (of several hosts target_session_attrs=read-write finds it), "
        "or turn default_transaction_read_only off",
    ),
    (r"starting up|shutting down|recovery mode|not yet accepting", "wait until the database is up"),
    (r"SSL|certificate|sslmode", "correct sslmode and sslrootcert in the address, or the server's certificate"),
    (r"could not translate|[Nn]ame or service|resolv|getaddrinfo", "correct the name of its host"),
    (r"lock timeout", "another server is changing the store, so try again"),
    (r"statement timeout", "try again when the database is less busy"),
    (r"timeout expired|timed out", "let the network and its firewalls reach it, or correct its host and port"),
)
_LOG = "nothing that was stored is lost by this; look at the database's log"
_CURE = "start the database, or correct its host and port"


def unavailable(error: Exception, place: str = "the database") -> StoreUnavailable:
    """Return the error for a database that cannot be asked, with the reason and the way out."""
    reason = reason_of(error)
    answered = isinstance(error, psycopg.Error) and error.sqlstate is not None
    cure = next((cure for pattern, cure in _CURES if re.search(pattern, reason)), _LOG if answered else _CURE)
    return StoreUnavailable(f"{place} cannot be asked: {reason}; {cure}")


def reason_of(error: Exception) -> str:
    """Return what the server or libpq says, on one line; no address is in it but the host's, and no password."""
    text = " ".join(str(error).split()).removeprefix("connection failed: ")
    return (text[:_LONGEST_REASON] or type(error).__name__).replace("; ", ", ")
