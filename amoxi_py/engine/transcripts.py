"""What was said in conversations, kept in memory between their runs, so that a long one is not read anew each time.

The store is asked all the same: for what was said since. What is kept is the messages of runs that have ended, which
nothing changes any more, under the conversation's key, which is never given again; and the store says whether its
newest summary is still the same. So what is kept can be old, but not wrong.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunRows
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.ports.changes import History
from amoxi_py.ports.store import Store

MOST_BYTES = 64 * 1024 * 1024
_OF_A_MESSAGE = 400  # beside its texts
_OF_A_CALL = 600


class _Kept(Struct, frozen=True, kw_only=True):
    history: History
    size: int
    used_at: float


class Transcripts:
    """The conversations that were talked in last, at most so many bytes (about), each for `ttl` seconds after its use.

    With a `ttl` of 0 nothing is kept.

    Attributes:
        size: The bytes that are kept, about.
    """

    def __init__(self, store: Store, ttl: float, most_bytes: int = MOST_BYTES) -> None:
        self.size = 0
        self._store = store
        self._ttl = ttl
        self._most_bytes = most_bytes
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # the one that was used last is the last
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._kept)

    async def history(self, rows: RunRows) -> History:
        """Return what `Store.history` does for a run; what is kept of it is not read."""
        lease = rows.lease
        if not self._ttl or rows.ancestors:  # a run that another one asked for has nothing before it
            return await self._store.history(lease)
        kept = self._kept.get(lease.conversation)
        found = await self._store.history(lease, None if kept is None else kept.history.mark)
        size = sum(map(_size_of, found.messages))
        if kept is not None and found.follows:
            found = replace(found, messages=(*kept.history.messages, *found.messages), follows=False)
            size += kept.size
        elif found.summary is not None:
            size += sys.getsizeof(found.summary.text)
        self._keep(lease.conversation, found, size)
        return found

    def forget(self, conversation: int) -> None:
        """Keep nothing of a conversation, by its key."""
        kept = self._kept.pop(conversation, None)
        if kept is not None:
            self.size -= kept.size

    def close(self) -> None:
        """Keep nothing."""
        self._kept.clear()
        self.size = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep(self, conversation: int, history: History, size: int) -> None:
        loop = asyncio.get_running_loop()
        self.forget(conversation)
        if size > self._most_bytes:
            return
        self._kept[conversation] = _Kept(history=history, size=size, used_at=loop.time())
        self.size += size
        while self.size > self._most_bytes:
            self.forget(next(iter(self._kept)))
        if self._timer is None:
            self._timer = loop.call_later(self._ttl, self._expire)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._kept:
            oldest, kept = next(iter(self._kept.items()))
            left = kept.used_at + self._ttl - loop.time()
            if left > 0:
                self._timer = loop.call_later(left, self._expire)
                return
            self.forget(oldest)


def _size_of(message: Message) -> int:
    texts = (message.text, message.kept)
    return _OF_A_MESSAGE + _bytes_of(texts) + sum(map(_size_of_call, message.calls))


def _size_of_call(call: ToolCall) -> int:
    approval, wait = call.approval, call.wait
    texts = [call.arguments, call.result]
    texts += [] if approval is None else [approval.reason, approval.arguments]
    texts += [] if wait is None else [wait.name, wait.schema, wait.value]
    return _OF_A_CALL + _bytes_of(texts)


def _bytes_of(texts: Iterable[str | None]) -> int:
    return sum(sys.getsizeof(text) for text in texts if text)
