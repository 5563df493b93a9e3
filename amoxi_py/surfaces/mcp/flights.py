"""Requests that are being answered: what ends one from outside, be it its client or this server's stop."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Literal

import anyio

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.principal import Principal

Reason = Literal["withdrawn", "stopping"]
_LONGEST_SESSION = 256


class Flight:
    """One request in its answering: its work is done within `scope`, which is left when `reason` says why.

    Attributes:
        run_id: Of the run that the request started or waits for.
        started: Whether the request started that run.
        submitting: Whether a run was about to be stored, so that without a `run_id` it is not known whether it was.
        linger: How long it may go on after the server has begun to stop.
        noting: Writes down for the other servers which run it is, when that has begun.
        timer: Of what is to be done when it takes its time.
    """

    def __init__(self, linger: float) -> None:
        self.scope = anyio.CancelScope()
        self.reason: Reason | None = None
        self.run_id: str | None = None
        self.started = False
        self.submitting = False
        self.linger = linger
        self.noting: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def end(self, reason: Reason) -> None:
        """Leave the work; the first reason counts."""
        if self.reason is None:
            self.reason = reason
            self.scope.cancel()


class Flights:
    """All requests that are being answered here, by the key that their clients can name them with."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[Flight]] = {}
        self._all: set[Flight] = set()
        self._loop = asyncio.get_running_loop()
        self.closed = False

    def enter(self, key: str | None, linger: float) -> Flight:
        """Have a request among those that can be ended from outside, until `leave`."""
        flight = Flight(linger)
        self._all.add(flight)
        if key is not None:
            self._by_key.setdefault(key, []).append(flight)
        if self.closed:
            self._end_soon(flight)
        return flight

    def leave(self, key: str | None, flight: Flight) -> None:
        """Have it no more."""
        self._all.discard(flight)
        if flight.timer is not None:
            flight.timer.cancel()
            flight.timer = None  # it knows the flight: together they would wait for the garbage collector
        if key is not None:
            same = self._by_key[key]
            same.remove(flight)
            if not same:
                del self._by_key[key]

    def withdraw(self, key: str) -> bool:
        """End the call of this key in the name of its client; return whether the key is known here."""
        found = self._by_key.get(key, [])
        runs = {flight.run_id for flight in found}
        if len(found) == 1 or (len(runs) == 1 and None not in runs):  # of two calls it is not known which one is meant
            for flight in tuple(found):
                flight.end("withdrawn")
        return bool(found)

    def has(self, flight: Flight) -> bool:
        """Whether a request is still being answered."""
        return flight in self._all

    def close(self) -> None:
        """Let all requests end in their time; it may be called more than once."""
        if not self.closed:
            self.closed = True
            for flight in tuple(self._all):
                self._end_soon(flight)

    def _end_soon(self, flight: Flight) -> None:
        self._loop.call_later(flight.linger, flight.end, "stopping")


def request_key(principal: Principal, session: str | None, request_id: str | int | None) -> str | None:
    """Return what a client's request is known by on all servers; None where the client cannot name it.

    A client counts its requests from the start, so that without a session two of one caller would look the same.
    """
    if request_id is None or not session or len(session) > _LONGEST_SESSION:
        return None
    told = encode_json([principal.owner_key, session, request_id])
    return hashlib.sha256(told.encode()).hexdigest()
