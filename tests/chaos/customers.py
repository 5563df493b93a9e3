"""Those who use the servers while the chaos is on: each sends a message, follows its run, decides, changes its mind.

A customer is patient: what fails because a server is gone is done again, as a browser does it, and nothing else is.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

FINAL = ("completed", "failed", "cancelled")
ENDS = tuple(f"run.{status}" for status in FINAL)
_KINDS = ("talk", "buy", "buy", "twice", "twice", "ask", "pack", "book")
_PAUSE_S = 0.05
_NEIGHBOURS = 10  # of so many that come one after another, some share a conversation
_AGAIN = (502, 503, 504)


@dataclass(frozen=True, kw_only=True)
class Told:
    """An event as a reader got it, and when."""

    id: int
    type: str
    data: dict[str, Any]
    at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(kw_only=True)
class Customer:
    """One message, and what became of it.

    Attributes:
        told: What its reader got live, over all its connections.
        status: What the run was at last.
        log: What a reader gets who comes when all is over.
    """

    number: int
    agent: str
    kind: str
    run_id: str = ""
    conversation_id: str = ""
    told: list[Told] = field(default_factory=list)
    connections: int = 0
    cancels: bool = False
    status: str = ""
    output: str | None = None
    took_s: float = 0.0
    log: list[Told] = field(default_factory=list)


class Market:
    """All customers of one web server."""

    def __init__(self, url: str, token: str, seed: int) -> None:
        self.customers: list[Customer] = []
        self.talking = 0
        self._random = random.Random(seed + 1)  # so that it can be repeated
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(20, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            verify=False,
        )
        self._places: dict[tuple[str, int], str] = {}

    async def open(self, runs: int, seconds: float) -> list[asyncio.Task[None]]:
        """Let so many customers come in so many seconds; return what they are doing."""
        tasks = []
        begun = time.monotonic()
        for number in range(runs):
            tasks.append(asyncio.create_task(self._live(self._customer(number))))
            await asyncio.sleep(max(0.0, begun + (number + 1) * seconds / runs - time.monotonic()))
        return tasks

    async def read_logs(self) -> None:
        """Read every run and its log whole."""
        places = asyncio.Semaphore(8)

        async def read(customer: Customer) -> None:
            async with places:
                run = await self._ask("GET", f"/runs/{customer.run_id}")
                customer.status, customer.output = run["status"], run["output"]
                async with self._http.stream("GET", f"/runs/{customer.run_id}/events") as response:
                    customer.log = [event async for event in _events(response)]

        await asyncio.gather(*(read(customer) for customer in self.customers if customer.run_id))

    async def close(self) -> None:
        """Leave."""
        await self._http.aclose()

    def _customer(self, number: int) -> Customer:
        kind = self._random.choice(_KINDS)
        customer = Customer(number=number, agent="fickle" if number % 5 == 0 else "shop", kind=kind)
        customer.cancels = self._random.random() < 0.06
        self.customers.append(customer)
        return customer

    async def _live(self, customer: Customer) -> None:
        began = time.monotonic()
        self.talking += 1
        body: dict[str, Any] = {"message": f"A-{customer.number} {customer.kind}"}
        place = (customer.agent, customer.number // _NEIGHBOURS)
        if place in self._places and self._random.random() < 0.5:
            body["conversation_id"] = self._places[place]
        key = {"idempotency-key": f"customer-{customer.number}"}
        run = await self._ask("POST", f"/agents/{customer.agent}/runs", json=body, headers=key)
        customer.run_id, customer.conversation_id = run["id"], run["conversation_id"]
        self._places.setdefault(place, customer.conversation_id)
        cancelling = asyncio.create_task(self._cancel(customer)) if customer.cancels else None
        while not any(event.type in ENDS for event in customer.told):
            await self._follow(customer)
        if cancelling is not None:
            await cancelling
        customer.took_s = time.monotonic() - began
        self.talking -= 1

    async def _cancel(self, customer: Customer) -> None:
        await asyncio.sleep(self._random.random() * 2)
        run = await self._ask("POST", f"/runs/{customer.run_id}/cancel")
        assert run["status"] in FINAL, run

    async def _follow(self, customer: Customer) -> None:
        headers = {"last-event-id": str(customer.told[-1].id)} if customer.told else {}
        try:
            async with self._http.stream("GET", f"/runs/{customer.run_id}/events", headers=headers) as response:
                if response.status_code == 200:
                    customer.connections += 1
                    async for event in _events(response):
                        customer.told.append(event)
                        if event.type == "approval.requested":
                            await self._decide(customer, event.data["call_id"])
                    return
                if response.status_code not in _AGAIN:
                    text = (await response.aread()).decode("utf-8", "replace")
                    raise AssertionError(f"{customer}: {response.status_code} {text}")
        except httpx2.TransportError:
            pass
        await asyncio.sleep(_PAUSE_S)

    async def _decide(self, customer: Customer, call_id: str) -> None:
        decision = "approve" if customer.number % 3 else "decline"
        path = f"/runs/{customer.run_id}/approvals/{call_id}"
        await self._ask("POST", path, json={"decision": decision}, also=(409,))  # cancelled meanwhile

    async def _ask(self, method: str, path: str, also: tuple[int, ...] = (), **more: Any) -> Any:
        while True:
            try:
                answer = await self._http.request(method, path, **more)
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.status_code not in _AGAIN:
                if answer.status_code not in (200, 202, *also):
                    raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text}")
                return answer.json()
            await asyncio.sleep(_PAUSE_S)


async def _events(response: httpx2.Response) -> AsyncIterator[Told]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield Told(id=int(fields["id"]), type=fields["event"], data=json.loads(fields["data"]))
            fields = {}
