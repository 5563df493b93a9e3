"""Where a test's runs are kept: each in a folder of its own, unless a crash test has set a scene for all of them."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from amoxi_py.ports.store import Store


class Scratch:
    """A folder that lasts as long as this object does."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="amoxi-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a process of a crash test gives to the runs in it.

    The n-th run of a scenario has the n-th key, in each process that plays it: the next one goes on with the same run.

    Attributes:
        store: The folder of the store that all processes share.
        wrap_store: Gives the store that may kill this process.
        keys: Idempotency keys, in order.
    """

    store: Path
    wrap_store: Callable[[Store], Store]
    keys: count[int] = field(default_factory=lambda: count(1))

    def next_key(self) -> str:
        """Return the key of the next run."""
        return f"crash-{next(self.keys)}"


SCENE: ContextVar[Scene | None] = ContextVar("amoxi_scene", default=None)
