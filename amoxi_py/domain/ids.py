"""Public ids: a prefix that says what it names, then time and chance, unique in the world and ordered by time."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import deque

_CALL = re.compile(r"call_([0-9a-f]{26})_(0|[1-9][0-9]{0,8})_(0|[1-9][0-9]{0,8})")


_FIRST_OF_CHILDREN = frozenset("89abcdef")
_CHANCE = 7
_AT_ONCE = 256
_chances: deque[str] = deque()
if hasattr(os, "register_at_fork"):  # a child must not give out the ids of its parent
    os.register_at_fork(after_in_child=_chances.clear)


def new_id(prefix: str) -> str:
    """Return a new id such as `run_0193...`: 48 bits of time in ms and 56 random bits, as 26 hex digits."""
    try:
        chance = _chances.popleft()
    except IndexError:
        chance = _more_chances()
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{chance}"


def _more_chances() -> str:
    """Ask the system for the chance of many ids at once, and return the first: one call of the system is slow."""
    drawn = os.urandom(_CHANCE * _AT_ONCE).hex()
    first, *others = (drawn[start : start + 2 * _CHANCE] for start in range(0, len(drawn), 2 * _CHANCE))
    _chances.extend(others)
    return first


def call_id(run_id: str, turn: int, n: int) -> str:
    """Return the id of the `n`-th call of a turn; it never changes and no other call has it."""
    return f"call_{run_id[4:]}_{turn}_{n}"


def child_run_id(call_id: str) -> str:
    """Return the id of the run that a call asks for; it never changes, and no other run has it.

    Its time is that of the run above with the first bit set, which no clock sets: by that it is told from others.
    """
    digits = _of_call("run", call_id)
    return f"run_{int(digits[0], 16) | 8:x}{digits[1:]}"


def is_child_run_id(id: str) -> bool:
    """Whether an id is of a run that a call asked for."""
    return id[4:5] in _FIRST_OF_CHILDREN


def child_message_id(call_id: str) -> str:
    """Return the id of the message that a run begins with that a call asks for."""
    return f"msg_{_of_call('msg', call_id)}"


def memory_id(call_id: str, text: str) -> str:
    """Return the id of a text that a call remembers; it never changes, and no other memory has it."""
    return f"mem_{_of_call(f'mem {text}', call_id)}"


def _of_call(what: str, call_id: str) -> str:
    """Return the time of the call's run, and chance that is made of the call's id."""
    digits = call_id.removeprefix("call_")[:12]
    return digits + hashlib.blake2s(f"{what} {call_id}".encode(), digest_size=_CHANCE).hexdigest()


def parse_call_id(id: str) -> tuple[str, int, int] | None:
    """Return the run's id, the turn and the place in it, or None when it is no call id."""
    match = _CALL.fullmatch(id)
    return None if match is None else (f"run_{match[1]}", int(match[2]), int(match[3]))
