"""What PostgreSQL's and libpq's errors mean, and what to do about them."""

from __future__ import annotations

import re

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
    (r"starting up|shutting down|recovery mode|not yet accepting", "wait until the database is up"),
    (r"SSL|certificate|sslmode", "correct sslmode and sslrootcert in the address, or the server's certificate"),
    (r"could not translate|[Nn]ame or service|resolv|getaddrinfo", "correct the name of its host"),
    (r"statement timeout", "try again when the database is less busy"),
    (r"timeout expired|timed out", "let the network and its firewalls reach it, or correct its host and port"),
)
_CURE = "start the database, or correct its host and port"


def unavailable(error: Exception, place: str = "the database") -> StoreUnavailable:
    """Return the error for a database that cannot be asked, with the reason and the way out."""
    reason = reason_of(error)
    cure = next((cure for pattern, cure in _CURES if re.search(pattern, reason)), _CURE)
    return StoreUnavailable(f"{place} cannot be asked: {reason}; {cure}")


def reason_of(error: Exception) -> str:
    """Return what the server or libpq says, on one line; no address is in it but the host's, and no password."""
    text = " ".join(str(error).split()).removeprefix("connection failed: ")
    return (text[:_LONGEST_REASON] or type(error).__name__).replace("; ", ", ")
