"""Client id metadata documents: a client whose id is an https address, and that says there who it is.

The address comes from a stranger, so it is fetched with `fetch_public`, and rarely: what was read is kept for all
servers for as long as it says, within bounds. No stranger can take all places for reading, or a host's.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request

from amoxi_py.errors import TooMany
from amoxi_py.surfaces.mcp.oauth.answers import json_object
from amoxi_py.surfaces.mcp.oauth.fetching import Fetched, FetchFailed, fetch_public
from amoxi_py.surfaces.mcp.oauth.keeping import Keeping, digest
from amoxi_py.surfaces.mcp.oauth.limits import Allowance
from amoxi_py.surfaces.mcp.oauth.redirects import redirect_problem

log = logging.getLogger("amoxi_py.mcp")

Fetch = Callable[[str], Awaitable[Fetched]]

_LONGEST_ID = 2048
_LARGEST = 16 * 1024
_SHORTEST_LIFE_S = 300.0
_LONGEST_LIFE_S = 24 * 3600.0
_USUAL_LIFE_S = 3600.0
_REFUSED_FOR_S = 30.0
_MOST_REFUSED = 1000
_AT_ONCE = 8
_MOST_READING = 24
_TURN_WITHIN_S = 5.0
_ASKED_A_MINUTE = 20
_OLD_LIFE_S = 24 * 3600.0
_SECRET_METHODS = frozenset({"client_secret_post", "client_secret_basic", "client_secret_jwt"})
_MAX_AGE = re.compile(r"(?:^|[,\s])max-age=(\d{1,9})")
_MOST_REDIRECTS = 50


class DocumentRefused(Exception):
    """There is no document at a client's address that can be used; the text may be told to anybody."""


class DocumentBusy(Exception):
    """Too many documents are read now: ask again in a moment."""


class ClientDocuments:
    """Reads and keeps them; `fetch` is for tests."""

    def __init__(self, keeping: Keeping, fetch: Fetch | None = None) -> None:
        self._keeping = keeping
        self._fetch = fetch or _fetch
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._hosts: dict[str, asyncio.Lock] = {}
        self._reading: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._refused: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._asked = Allowance("documents", _ASKED_A_MINUTE, 60.0)

    async def get(self, client_id: str, request: Request) -> dict[str, Any]:
        """Return what the document says; one that is too old while it cannot be read anew.

        Raises:
            DocumentRefused: there is none that can be used.
            DocumentBusy: too many are read now.
            TooMany: the request's address has asked for too many.
        """
        problem = _id_problem(client_id)
        if problem is not None:
            raise DocumentRefused(f"the client's id cannot be used: {problem}")
        kept = await self._keeping.find("document", digest(client_id))
        if kept is not None and kept["until"] > self._keeping.now():
            return kept
        try:
            self._refuse_again(client_id)
            return await self._read_once(client_id, request)
        except (DocumentRefused, DocumentBusy, TooMany):
            if kept is None:
                raise
            return kept

    async def _read_once(self, client_id: str, request: Request) -> dict[str, Any]:
        """Read a document, for all who ask for it now."""
        task = self._reading.get(client_id)
        if task is None:
            if len(self._reading) >= _MOST_READING:
                raise DocumentBusy
            self._asked.use(request)
            task = self._reading[client_id] = asyncio.create_task(self._read(client_id))
            task.add_done_callback(lambda done: self._ended(client_id, done))
        return await asyncio.shield(task)

    def _ended(self, client_id: str, task: asyncio.Task[dict[str, Any]]) -> None:
        del self._reading[client_id]
        if not task.cancelled():
            task.exception()  # whoever waited has it; it may be nobody

    async def _read(self, client_id: str) -> dict[str, Any]:
        try:
            fetched = await self._fetched(client_id)
            document = _read(client_id, fetched.body)
        except (FetchFailed, DocumentRefused) as error:
            log.info("the document of the client %r cannot be used: %s", client_id, error)
            # What came of looking for it is nobody's business: a stranger may have named any host.
            why = "it cannot be read" if isinstance(error, FetchFailed) else str(error)
            self._refused[client_id] = (time.monotonic() + _REFUSED_FOR_S, why)
            while len(self._refused) > _MOST_REFUSED:
                self._refused.popitem(last=False)
            raise _refused(why) from error
        life = _life(fetched.cache_control)
        document["until"] = self._keeping.now() + life
        await self._keeping.keep("document", digest(client_id), document, life + _OLD_LIFE_S)
        return document

    async def _fetched(self, client_id: str) -> Fetched:
        """Read it when it is its turn: one of a host at once, and a few of all."""
        host = urlsplit(client_id).netloc.lower()
        turn = self._hosts.setdefault(host, asyncio.Lock())
        try:
            async with AsyncExitStack() as places:
                try:
                    async with asyncio.timeout(_TURN_WITHIN_S):
                        await places.enter_async_context(turn)
                        await places.enter_async_context(self._places)
                except TimeoutError:
                    raise DocumentBusy from None
                return await self._fetch(client_id)
        finally:
            if not any(urlsplit(one).netloc.lower() == host for one in self._reading if one != client_id):
                self._hosts.pop(host, None)

    def _refuse_again(self, client_id: str) -> None:
        until, why = self._refused.get(client_id, (0.0, ""))
        if until > time.monotonic():
            raise _refused(why)


def _refused(why: str) -> DocumentRefused:
    return DocumentRefused(f"the client's document cannot be used: {why}")


async def _fetch(url: str) -> Fetched:
    return await fetch_public(url, largest=_LARGEST)


def _id_problem(client_id: str) -> str | None:
    try:
        parts = urlsplit(client_id)
        port = parts.port
    except ValueError:
        return "it is no address"
    if len(client_id) > _LONGEST_ID or not client_id.isascii() or any(letter <= " " for letter in client_id):
        return "it is no address"
    if parts.scheme != "https" or not parts.hostname:
        return "it is no https address"
    if port not in (None, 443):
        return "it has a port of its own"
    if "#" in client_id or parts.username is not None or parts.password is not None:
        return "it has a fragment, a name or a password"
    if parts.path in ("", "/") or any(part in (".", "..") for part in parts.path.split("/")):
        return "it has no path, or a dot in place of a name"
    return None


def _read(client_id: str, body: bytes) -> dict[str, Any]:
    document = json_object(body)
    if document is None:
        raise DocumentRefused("it is no JSON object")
    if document.get("client_id") != client_id:
        raise DocumentRefused("its 'client_id' is not the address that it was read from")
    uris = document.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= _MOST_REDIRECTS:
        raise DocumentRefused("it has no 'redirect_uris', or too many")
    problem = next((found for uri in uris if (found := redirect_problem(uri)) is not None), None)
    if problem is not None:
        raise DocumentRefused(f"one of its 'redirect_uris' cannot be used: {problem}")
    if "client_secret" in document or document.get("token_endpoint_auth_method") in _SECRET_METHODS:
        raise DocumentRefused("it speaks of a secret, which a public document cannot have")
    name = document.get("client_name")
    return {"redirect_uris": uris, "client_name": name if isinstance(name, str) else ""}


def _life(cache_control: str) -> float:
    if "no-store" in cache_control or "no-cache" in cache_control:
        return _SHORTEST_LIFE_S
    found = _MAX_AGE.search(cache_control)
    life = float(found[1]) if found is not None else _USUAL_LIFE_S
    return min(max(life, _SHORTEST_LIFE_S), _LONGEST_LIFE_S)
