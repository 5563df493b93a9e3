"""`@singleton`: classes that are made once per process and injected by type."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TypeVar

from amoxi_py.declare.marks import LocalNames, local_names, set_mark

C = TypeVar("C", bound=type[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SingletonMark:
    """Says that a class is made once per process; `names` are those that its annotations may use."""

    names: LocalNames


def singleton(cls: C) -> C:
    """Make a class once per process: its constructor's arguments are injected by type.

    A context manager, sync or async, is entered at the start and left at the stop.
    """
    set_mark(cls, SingletonMark(names=local_names(sys._getframe(1))), "singleton")
    return cls
