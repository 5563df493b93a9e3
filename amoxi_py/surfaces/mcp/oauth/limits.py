"""How often one address may do what costs something; counted by each process for itself."""

from __future__ import annotations

import time
from collections import OrderedDict
from ipaddress import IPv6Address, IPv6Network, ip_address

from starlette.requests import Request

from amoxi_py.errors import TooMany

_MOST_ADDRESSES = 10_000


class Allowance:
    """Lets each address do something `most` times at once, and that often again in each `per` seconds.

    Of IPv6 a whole /64 counts as one address, because that is what one person has.
    """

    def __init__(self, what: str, most: int, per: float) -> None:
        self._what = what
        self._most = most
        self._gap = per / most
        self._free_at: OrderedDict[str, float] = OrderedDict()

    def use(self, request: Request) -> None:
        """Count one; raise `TooMany`."""
        self.use_of(network_of(address_of(request)), "from this address")

    def check(self, request: Request) -> None:
        """Raise `TooMany` where `use` would, and count nothing."""
        network, now = network_of(address_of(request)), time.monotonic()
        late = self._late(max(self._free_at.get(network, now), now), now)
        if late > 0:
            raise TooMany(f"too many {self._what} from this address", retry_after=late)

    def use_of(self, name: str, told: str) -> None:
        """Count one of something else than an address; raise `TooMany` with `told` in its text."""
        now = time.monotonic()
        free_at = max(self._free_at.pop(name, now), now)
        late = self._late(free_at, now)
        self._free_at[name] = free_at if late > 0 else free_at + self._gap
        while len(self._free_at) > _MOST_ADDRESSES:
            self._free_at.popitem(last=False)
        if late > 0:
            raise TooMany(f"too many {self._what} {told}", retry_after=late)

    def _late(self, free_at: float, now: float) -> float:
        return free_at - now - (self._most - 1) * self._gap


def address_of(request: Request) -> str:
    """Return where a request comes from."""
    return "" if request.client is None else request.client.host


def network_of(address: str) -> str:
    """Return what counts as one address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address) or found.ipv4_mapped is not None:
        return address
    return str(IPv6Network((found, 64), strict=False))
