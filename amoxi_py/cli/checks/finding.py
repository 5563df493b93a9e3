"""One thing that was looked at, and what is to be done about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found; an `error` keeps the app from starting, or from what it promises.

    Attributes:
        check: What was looked at, such as `store`.
        level: How bad it is.
        text: What is so.
        fix: The way out; empty when nothing is wrong.
        starts: Whether the app starts in spite of it.
    """

    check: str
    level: Level
    text: str
    fix: str = ""
    starts: bool = False


def found(check: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Return what a check finds; one that breaks is a finding itself and hides no other."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001 - a boundary: on a broken machine a check can fail in any way
        text = f"this could not be looked at: {type(error).__name__}: {error}"
        yield Finding(check=check, level="error", text=text, fix="look at what the message names, and try again")
