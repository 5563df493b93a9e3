"""What handlers of events get of durable storage: a lease, deliveries, and what became of them."""

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


class Delivery(Struct, frozen=True, kw_only=True):
    """An event that a handler is not done with.

    `place` is its place in the order of all events. `tries` counts the calls that were noted. It is not due before
    `again_at`, in seconds since 1970.
    """

    place: int
    event: Event
    agent: str
    conversation_id: str
    principal: Principal
    tries: int = 0
    again_at: float | None = None


class DeliveryPage(Struct, frozen=True, kw_only=True):
    """Deliveries in the order of their places: all there are up to `read_to`; `more` when the log goes on after it."""

    deliveries: tuple[Delivery, ...]
    read_to: int
    more: bool


class Delivered(Struct, frozen=True, kw_only=True):
    """What became of a delivery: `done`, or how often it was tried, and when it is due again (now, without a time)."""

    place: int
    tries: int
    done: bool = False
    again_at: float | None = None
