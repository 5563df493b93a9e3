"""Public ids: a prefix that says what it names, then time and chance, unique in the world and ordered by time."""

from __future__ import annotations

import os
import re
import time

_CALL = re.compile(r"call_([0-9a-f]{26})_(0|[1-9][0-9]{0,8})_(0|[1-9][0-9]{0,8})")


def new_id(prefix: str) -> str:
    """Return a new id such as `run_0193...`: 48 bits of time in ms and 56 random bits, as 26 hex digits."""
    return f"{prefix}_{(time.time_ns() // 1_000_000).to_bytes(6).hex()}{os.urandom(7).hex()}"


def call_id(run_id: str, turn: int, n: int) -> str:
    """Return the id of the `n`-th call of a turn; it never changes and no other call has it."""
    return f"call_{run_id[4:]}_{turn}_{n}"


def parse_call_id(id: str) -> tuple[str, int, int] | None:
    """Return the run's id, the turn and the place in it, or None when it is no call id."""
    match = _CALL.fullmatch(id)
    return None if match is None else (f"run_{match[1]}", int(match[2]), int(match[3]))
