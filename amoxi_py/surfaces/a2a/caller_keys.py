"""Under which key something is kept that a caller names: the same names of two callers are two keys."""

from __future__ import annotations

import hashlib

from amoxi_py.domain.principal import Principal


def caller_key(principal: Principal, *names: str) -> str:
    """Return the key, in 64 hex digits, from which none of the names can be read."""
    told = "\n".join((principal.owner_key, *names))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
