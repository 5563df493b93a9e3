"""One request to a webhook: to an address that was checked for it, within bounds, and without following anybody.

It goes through the transport alone: a client would write the URL, which may hold a secret, into the log.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult

import httpx2

from amoxi_py.domain.retry import read_retry_after
from amoxi_py.surfaces.a2a.push_allowed import Allowed
from amoxi_py.surfaces.a2a.push_names import Names
from amoxi_py.surfaces.a2a.push_targets import TargetRefused, find_addresses, host_of, port_of, read_target
from amoxi_py.surfaces.outgoing import pinned, to_first_open, trusted_authorities

_NEXT_AFTER_S = 3.0
_MOST_READ = 16 * 1024
_READ_WITHIN_S = 1.0
_AGAIN_LATER = frozenset({408, 425, 429})


class PostFailed(Exception):
    """A webhook did not take what was sent; the text says why, and holds nothing of its URL or of its answer.

    Attributes:
        lasting: It will hardly take it later.
        retry_after: The pause that it asked for, in seconds.
    """

    def __init__(self, why: str, *, lasting: bool = False, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.lasting = lasting
        self.retry_after = retry_after


class Poster:
    """Sends to webhooks.

    Args:
        allowed: Where they may be, beside the public internet.
        names: Finds addresses.
        within: How many seconds a request may take.
        trusted: Certificates; for tests.
    """

    def __init__(
        self,
        allowed: Allowed,
        names: Names,
        *,
        within: float = 15.0,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed = allowed
        self._names = names
        self._within = within
        self._trusted = trusted

    async def post(self, caller: str, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send for a caller, and return when the receiver has taken it; raise `PostFailed`."""
        try:
            async with asyncio.timeout(self._within):
                parts = read_target(url, self._allowed)
                addresses = await find_addresses(parts, self._allowed, self._names.of(caller))

                async def send(address: str, connect_within: float | None) -> None:
                    await self._post(parts, address, body, headers, connect_within)

                shut = (httpx2.ConnectError, httpx2.ConnectTimeout)
                await to_first_open(addresses, send, next_after=_NEXT_AFTER_S, shut=shut)
        except TargetRefused as refused:
            raise PostFailed(str(refused), lasting=True) from refused
        except TimeoutError as error:
            raise PostFailed(f"it did not answer within {self._within:g} s") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise PostFailed(f"it cannot be reached ({type(error).__name__})") from error

    async def _post(
        self, parts: SplitResult, address: str, body: bytes, headers: Mapping[str, str], connect_within: float | None
    ) -> None:
        trusted = self._trusted
        if trusted is None:
            trusted = await asyncio.to_thread(trusted_authorities)
        timeout = httpx2.Timeout(self._within, connect=connect_within or self._within)
        told = {"host": parts.netloc, "user-agent": "amoxi-py", "accept-encoding": "identity", **headers}
        request = httpx2.Request(
            "POST",
            pinned(parts, address, port_of(parts)),
            headers=told,
            content=body,
            extensions={"timeout": timeout.as_dict(), "sni_hostname": host_of(parts)},
        )
        async with httpx2.AsyncHTTPTransport(verify=trusted, trust_env=False) as transport:
            response = await transport.handle_async_request(request)
            try:
                await _read_a_little(response)
            finally:
                await response.aclose()
        if not response.is_success:
            raise _failure(response)


async def _read_a_little(response: httpx2.Response) -> None:
    """Take in a short answer, so that its sender is not cut off; a long one is nobody's business."""
    size = 0
    try:
        async with asyncio.timeout(_READ_WITHIN_S):
            async for part in response.aiter_raw():
                size += len(part)
                if size > _MOST_READ:
                    return
    except (TimeoutError, httpx2.HTTPError, httpx2.StreamError):
        return  # what counts is the status


def _failure(response: httpx2.Response) -> PostFailed:
    status = response.status_code
    lasting = status < 500 and status not in _AGAIN_LATER
    return PostFailed(
        f"it answered with the status {status}",
        lasting=lasting,
        retry_after=read_retry_after(response.headers),
    )
