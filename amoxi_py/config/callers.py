"""Who may call with a token: read from variables, and kept only as digests, so that no token can be shown."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

CallerDoor = Literal["api", "mcp", "a2a"]
SHORTEST_TOKEN = 16

_CALLER = re.compile(r"AI_(API|MCP|A2A)_CALLERS_([A-Z0-9]+(?:_[A-Z0-9]+)*)")
_DOORS: dict[str, CallerDoor] = {"API": "api", "MCP": "mcp", "A2A": "a2a"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A program that calls through one door; `digests` are SHA-256 of its tokens, two while one is rotated."""

    door: CallerDoor
    name: str
    digests: tuple[bytes, ...] = field(repr=False)


def is_caller_variable(variable: str) -> bool:
    """Whether a variable declares a caller."""
    return _CALLER.fullmatch(variable) is not None


def read_callers(values: Mapping[str, str]) -> tuple[tuple[Caller, ...], tuple[str, ...]]:
    """Return the callers that variables declare, and what is wrong with them, without any token.

    Args:
        values: By variable, such as `AI_API_CALLERS_ACME_EU` (the caller `acme-eu`), one token or more with commas.
    """
    callers: list[Caller] = []
    problems: list[str] = []
    first_use: dict[bytes, str] = {}
    for variable, text in sorted(values.items()):
        match = _CALLER.fullmatch(variable)
        if match is None:
            continue
        digests = []
        for token in (part.strip() for part in text.split(",")):
            digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
            if len(token) < SHORTEST_TOKEN:
                problems.append(f"{variable} has a token of fewer than {SHORTEST_TOKEN} characters: make a longer one")
            elif digest in first_use:
                problems.append(f"{variable} has the same token as {first_use[digest]}: give each caller its own")
            else:
                first_use[digest] = variable
                digests.append(digest)
        callers.append(Caller(door=_DOORS[match[1]], name=match[2].lower().replace("_", "-"), digests=tuple(digests)))
    return tuple(callers), tuple(problems)
