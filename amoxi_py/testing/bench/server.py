"""A server under load: its address, how it is talked to, and what it and its store take."""

from __future__ import annotations

from collections.abc import Callable

from amoxi_py.testing.bench.child import Child
from amoxi_py.testing.bench.target import Load, Target
from amoxi_py.testing.bench.usage import Usage


class Server:
    """A running server.

    Args:
        name: Its name in tables.
        child: Its process.
        port: Of 127.0.0.1.
        target: How it is talked to.
        stored: Returns the bytes of its store, None while they are not known; None where they never are.
    """

    def __init__(
        self, name: str, child: Child, port: int, target: Target, stored: Callable[[], int | None] | None = None
    ) -> None:
        self.name = name
        self._child = child
        self._port = port
        self._target = target
        self._stored = stored

    def load(
        self,
        clients: int,
        *,
        turn_s: float,
        window_s: float,
        windows: int = 1,
        warmup_s: float | None = None,
        turns_each: int = 10,
    ) -> Load:
        """Return a load of so many clients on it.

        They begin within one turn's time, and are counted after another one, so that they are spread out by then.
        """
        return Load(
            host="127.0.0.1",
            port=self._port,
            target=self._target,
            clients=clients,
            ramp_s=turn_s,
            warmup_s=2 * turn_s if warmup_s is None else warmup_s,
            window_s=window_s,
            windows=windows,
            turns_each=turns_each,
        )

    def usage(self) -> Usage:
        """Return what its processes use now."""
        return self._child.usage()

    def store_bytes(self) -> int | None:
        """Return what its store takes now, or None when that is not known."""
        return None if self._stored is None else self._stored()
