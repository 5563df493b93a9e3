"""Reading a small document from another server: bounded in size and time, without redirects.

An address that a stranger gave is resolved once, must lead to the public internet alone, and is connected to as it was
resolved: a name that points to another address a moment later (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct

from amoxi_py.surfaces.outgoing import (
    Resolve,
    addresses_of,
    is_public,
    pinned,
    to_first_open,
    trusted_authorities,
)

_WITHIN_S = 5.0
_NEXT_AFTER_S = 2.0


class FetchFailed(Exception):
    """It could not be read; the text holds nothing of what was found, and may be told to anybody."""


class _NoWay(FetchFailed):
    """Nothing answers at the address."""


class Fetched(Struct, frozen=True):
    """What was read, and how long it may be kept."""

    body: bytes
    cache_control: str = ""


async def fetch_public(
    url: str, *, largest: int, resolve: Resolve | None = None, trusted: ssl.SSLContext | None = None
) -> Fetched:
    """Read an https address of the public internet; `resolve` and `trusted` are for tests."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    try:
        async with asyncio.timeout(_WITHIN_S):
            addresses = await (resolve or _look_up)(host, port)
            if not addresses or not all(is_public(address) for address in addresses):
                raise FetchFailed("its host is not on the public internet")

            async def get(address: str, connect_within: float | None) -> Fetched:
                place, told = pinned(parts, address, port), {"host": parts.netloc}
                return await _get(place, largest, trusted, told, host, connect_within=connect_within)

            return await to_first_open(addresses, get, next_after=_NEXT_AFTER_S, shut=_NoWay)
    except (TimeoutError, OSError, UnicodeError) as error:
        raise FetchFailed("its host cannot be reached") from error


async def fetch_known(url: str, *, largest: int) -> Fetched:
    """Read an address that the operator has named."""
    try:
        async with asyncio.timeout(_WITHIN_S):
            return await _get(url, largest, None, {}, None)
    except (TimeoutError, OSError) as error:
        raise FetchFailed("it cannot be reached") from error


async def _look_up(host: str, port: int) -> list[str]:
    return await asyncio.get_running_loop().run_in_executor(_threads(), addresses_of, host, port)


@cache
def _threads() -> ThreadPoolExecutor:
    """Return threads for names of strangers alone: a name server that does not answer holds its thread for long."""
    return ThreadPoolExecutor(4, thread_name_prefix="amoxi-documents")


async def _get(
    url: str,
    largest: int,
    trusted: ssl.SSLContext | None,
    headers: dict[str, str],
    server_name: str | None,
    *,
    connect_within: float | None = None,
) -> Fetched:
    timeout = httpx2.Timeout(_WITHIN_S, connect=connect_within or _WITHIN_S)
    told = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "amoxi-py", **headers}
    extensions = {} if server_name is None else {"sni_hostname": server_name}
    if trusted is None:
        trusted = await asyncio.to_thread(trusted_authorities)
    try:
        async with (
            httpx2.AsyncClient(verify=trusted, trust_env=False, follow_redirects=False, timeout=timeout) as client,
            client.stream("GET", url, headers=told, extensions=extensions) as response,
        ):
            if response.status_code != 200:
                raise FetchFailed(f"it was answered with the status {response.status_code}")
            body = bytearray()
            async for part in response.aiter_raw():
                body += part
                if len(body) > largest:
                    raise FetchFailed("it is too large")
            return Fetched(bytes(body), response.headers.get("cache-control", "").lower())
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise _NoWay("it cannot be reached") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise FetchFailed("it cannot be reached") from error
