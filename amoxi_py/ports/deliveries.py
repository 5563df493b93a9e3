"""What handlers of events get of durable storage: a lease, what they are behind with, and the events themselves."""

from __future__ import annotations

from msgspec import Struct

from amoxi_py.domain.event import Event
from amoxi_py.domain.principal import Principal


class HandlerLease(Struct, frozen=True, kw_only=True):
    """A worker's exclusive right to call one handler of events; keys are the store's own."""

    name: str
    handler: int
    worker: int
    fence: int


class Behind(Struct, frozen=True, kw_only=True):
    """A conversation with events that a handler is not done with: those from `seq` on.

    `tries` counts the noted calls for the first of them, which is not due before `again_at`, in seconds since 1970.
    """

    conversation: int
    seq: int
    tries: int = 0
    again_at: float | None = None


class Arrival(Struct, frozen=True, kw_only=True):
    """An event that a handler is to be told; `place` is its place in the order of all events."""

    place: int
    conversation: int
    seq: int


class ArrivalPage(Struct, frozen=True, kw_only=True):
    """Arrivals in the order of their places: all there are up to `read_to`; `more` when the log goes on after it."""

    arrivals: tuple[Arrival, ...]
    read_to: int
    more: bool


class Delivery(Struct, frozen=True, kw_only=True):
    """An event as a handler is told it."""

    place: int
    event: Event
    agent: str
    conversation_id: str
    principal: Principal
