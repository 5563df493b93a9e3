"""What an operator has named that webhooks may go to: hosts, hosts at a port, and networks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from msgspec import Struct

_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


class Allowed(Struct, frozen=True, kw_only=True):
    """What an operator has named.

    Attributes:
        hosts: At any port.
        places: A host at one port.
        networks: Of addresses.
    """

    hosts: frozenset[str] = frozenset()
    places: frozenset[tuple[str, int]] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def names(self, host: str, port: int) -> bool:
        """Whether a host is named itself; then its addresses are the operator's business."""
        return host in self.hosts or (host, port) in self.places

    def holds(self, address: str) -> bool:
        """Whether an address is in one of the networks."""
        found = ip_address(address.partition("%")[0])
        return any(found in network for network in self.networks if network.version == found.version)


def parse_allowed(entries: Iterable[str]) -> Allowed:
    """Read hosts, `host:port` and networks; raise `ValueError` with a sentence about the first bad one."""
    hosts: set[str] = set()
    places: set[tuple[str, int]] = set()
    networks: list[IPv4Network | IPv6Network] = []
    for entry in entries:
        told = entry.strip().lower()
        if "/" in told:
            networks.append(_network(entry, told))
            continue
        host, port = _place(entry, told)
        if port is None:
            hosts.add(host)
        else:
            places.add((host, port))
    return Allowed(hosts=frozenset(hosts), places=frozenset(places), networks=tuple(networks))


def _network(entry: str, told: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(told)
    except ValueError:
        raise ValueError(f"{entry!r} is no network; write its first address, such as '10.20.0.0/16'") from None


def _place(entry: str, told: str) -> tuple[str, int | None]:
    """Return a host with its port, if it has one."""
    try:
        return ip_address(told.removeprefix("[").removesuffix("]")).compressed, None
    except ValueError:
        host, colon, port = told.rpartition(":")
    if not colon:
        host = told
    elif not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{entry!r} has no port after its colon; write a host, 'host:port' or a network")
    host = host.rstrip(".")
    try:
        host = ip_address(host.removeprefix("[").removesuffix("]")).compressed
    except ValueError:
        if not _NAME.fullmatch(host):
            raise ValueError(f"{entry!r} is no host; write a host, 'host:port' or a network") from None
    return host, int(port) if colon else None
