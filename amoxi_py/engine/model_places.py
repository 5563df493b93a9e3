"""Places for requests to models: so many at once in this process, and those that wait are served in turn.

A round gives every principal that waits one place, and each of its conversations one after another. So neither a
principal with a thousand conversations nor a conversation with fifty child runs keeps others waiting longer than that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

Conversations = dict[Hashable, deque[asyncio.Future[None]]]


class ModelPlaces:
    """At most `at_once` places are taken at any moment."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: dict[Hashable, Conversations] = {}  # both dicts: whose turn is next stands first

    @asynccontextmanager
    async def place(self, principal: Hashable, conversation: Hashable) -> AsyncIterator[None]:
        """Wait for a place and have it; the runs of one conversation, child runs too, share its turns."""
        await self._take(principal, conversation)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, principal: Hashable, conversation: Hashable) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal, {}).setdefault(conversation, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                self._leave(principal, conversation, turn)
            else:  # it was given in the same moment in which the waiting ended
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give a place to who is next, or let it be free."""
        turn = self._next()
        while turn is not None and turn.done():  # cancelled, and about to leave
            turn = self._next()
        if turn is None:
            self._free += 1
        else:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        if not self._waiting:
            return None
        principal = next(iter(self._waiting))
        conversations = self._waiting.pop(principal)
        conversation = next(iter(conversations))
        turns = conversations.pop(conversation)
        turn = turns.popleft()
        if turns:
            conversations[conversation] = turns
        if conversations:
            self._waiting[principal] = conversations
        return turn

    def _leave(self, principal: Hashable, conversation: Hashable, turn: asyncio.Future[None]) -> None:
        conversations = self._waiting.get(principal, {})
        turns = conversations.get(conversation, deque())
        if turn not in turns:
            return
        turns.remove(turn)
        if not turns:
            del conversations[conversation]
        if not conversations:
            del self._waiting[principal]
