"""How a server holds webhooks: leases are renewed in time and not more often, and what others did is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.retry import RetryPolicy
from amoxi_py.ports.clock import SystemClock
from receivers import Receiver, receiving

pytestmark = pytest.mark.anyio

Start = Callable[..., Awaitable[Any]]
Until = Callable[..., Awaitable[Any]]
PARTNER = Principal(id="a2a:partner", name="partner", channel="a2a")
OTHER = Principal(id="a2a:other", name="other", channel="a2a")


class StandingClock:
    """Of a server: it stands still until it is moved, and the calendar with it where that is asked."""

    def __init__(self) -> None:
        self._began = SystemClock().now()
        self._ran = 1000.0
        self.ahead = 0.0

    def now(self) -> float:
        return self._began + self.ahead

    def running(self) -> float:
        return self._ran + self.ahead


class Watched:
    """A store that counts what is done to webhooks; a `clock` of its own is the server's that holds them."""

    def __init__(self, store: Any, clock: Any = None) -> None:
        self._store = store
        self.clock = clock or store.clock
        self.renewed: list[int] = []
        self.looked = 0
        self.claimed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def renew_webhooks(self, holder: str, lease_s: float, *, keys: Any = None) -> Any:
        kept = await self._store.renew_webhooks(holder, lease_s, keys=keys)
        self.renewed.append(len(kept))
        return kept

    async def claim_webhooks(self, holder: str, lease_s: float, limit: int) -> Any:
        found = await self._store.claim_webhooks(holder, lease_s, limit)
        self.claimed += len(found)
        self.looked += 1
        return found


async def test_leases_are_renewed_when_a_third_is_over_and_not_at_each_look(
    start: Start, until: Until, receiver: Receiver
) -> None:
    clock, made = StandingClock(), []

    def wrap(store: Any) -> Watched:
        made.append(Watched(store, clock))
        return made[-1]

    server = await start(wrap=wrap)
    (store,) = made
    runs = [await server.send() for _ in range(3)]
    for run in runs:
        await server.watch(run, receiver)
    await until(lambda: len(receiver.heard) == 3)
    for run in runs:
        await until(lambda run=run: server.told_up_to(run))
    looked = store.looked
    await until(lambda: store.looked > looked + 5)
    assert store.renewed == []
    clock.ahead = 10.5
    await until(lambda: sum(store.renewed) == 3)
    looked = store.looked
    await until(lambda: store.looked > looked + 5)
    assert sum(store.renewed) == 3
    clock.ahead = 35.0  # the first leases would be over
    await server.approve(runs[0])
    await until(lambda: server.over(runs[0]))
    assert store.claimed == 3, "it was held all the time"


async def test_what_failed_is_tried_again_when_it_is_due_and_not_at_the_next_look(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start(claim_every=3600.0, lease=20_000.0, retry=RetryPolicy(tries=9, first=0.05, longest=0.05))
    runs = [await server.send() for _ in range(3)]
    receiver.answer = lambda n: 503 if n <= 6 else 200
    for run in runs:
        await server.watch(run, receiver)
    for run in runs:
        await until(lambda run=run: server.told_up_to(run))
    assert len(receiver.heard) == 9


@pytest.mark.parametrize("over", [False, True])
async def test_nothing_is_told_that_another_server_has_told_meanwhile(
    start: Start, until: Until, receiver: Receiver, over: bool
) -> None:
    server = await start(claim_every=3600.0, lease=20_000.0)
    run = await server.send()
    await server.watch(run, receiver)
    await until(lambda: server.told_up_to(run))
    deliveries = server.webhooks._deliveries
    await server.store.release_webhooks(deliveries._holder)
    (held,) = await server.store.claim_webhooks("another", 3600.0, 1)
    told = await server.told_up_to(run)
    assert await server.store.note_delivery(held, told if over else told + 1, over=over)
    await server.approve(run)
    await until(lambda: not deliveries._lines)
    assert len(receiver.heard) == 1


async def test_a_pause_that_a_receiver_asked_for_is_waited_for(start: Start, until: Until, receiver: Receiver) -> None:
    clock, made = StandingClock(), []

    def wrap(store: Any) -> Watched:
        made.append(Watched(store))
        return made[-1]

    policy = RetryPolicy(tries=9, first=0.001, longest=0.001, jitter=0.0, longest_asked=300.0)
    server = await start(clock=clock, wrap=wrap, retry=policy)
    (store,) = made
    run = await server.send()
    slow = b"HTTP/1.1 429 Slow\r\nretry-after: 120\r\ncontent-length: 0\r\n\r\n"
    receiver.answer = lambda n: slow if n == 1 else 200
    await server.watch(run, receiver)
    await until(lambda: server.failures(run))
    clock.ahead = 119.0
    looked = store.looked
    await until(lambda: store.looked > looked + 5)
    assert len(receiver.heard) == 1
    clock.ahead = 121.0
    await until(lambda: server.told_up_to(run))
    assert len(receiver.heard) == 2


async def test_a_caller_whose_receivers_hang_does_not_hold_all_that_a_server_can_hold(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start(most=8)
    async with receiving() as hanging:
        hanging.answer = lambda n: None
        run = await server.send()
        for n in range(10):
            await server.watch(run, hanging, id=f"w{n}")
        more = await server.send()
        for n in range(10):
            await server.watch(more, hanging, id=f"w{n}")
        await until(lambda: hanging.waiting == 4)
        others = await server.send(principal=OTHER)
        await server.watch(others, receiver)
        await until(lambda: receiver.heard)
        assert len(hanging.heard) == 4, "none of them has ended yet"


async def test_a_server_that_stops_leaves_nothing_behind_that_wakes_it(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start(retry=RetryPolicy(tries=9, first=60.0, longest=60.0))
    receiver.answer = lambda n: 503
    run = await server.send()
    await server.watch(run, receiver)
    await until(lambda: server.failures(run))
    await server.webhooks.close()
    deliveries = server.webhooks._deliveries
    assert not deliveries._lines
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    assert not [timer for timer in timers if getattr(timer._callback, "__self__", None) is deliveries]
