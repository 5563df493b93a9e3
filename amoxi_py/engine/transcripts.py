"""What was said in conversations, kept in memory between their runs, so that a long one is not read anew each time.

The store is asked all the same: for what was said since. What is kept is the messages of runs that have ended, which
nothing changes any more, under the conversation's key, which is never given again; and the store says whether its
newest summary is still the same. So what is kept can be old, but not wrong.

It is not asked by the first who executes a run whose first event follows directly on the end of the one that was
executed here last: all that adds to a history, summaries too, has an event in the conversation's log.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.domain.direct import direct_tool
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import Lease, RunRows
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.ports.changes import History, HistoryMark
from amoxi_py.ports.store import Store

MOST_BYTES = 64 * 1024 * 1024
_OF_A_MESSAGE = 400  # beside its texts
_OF_A_CALL = 600
_OF_A_CONVERSATION = 400


class _Kept(Struct, frozen=True, kw_only=True):
    """The history of the run that `history.mark` names; when it ended here, its own messages, and its last event."""

    history: History
    size: int
    used_at: float
    own: tuple[Message, ...] = ()
    ended_seq: int | None = None


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
        first = lease.fence == 1  # else the run itself may have added a summary before, elsewhere
        if first and kept is not None and kept.history.mark is not None and kept.ended_seq == rows.first_seq - 1:
            mark = HistoryMark(lease.run, kept.history.mark.summary)
            found = replace(kept.history, messages=(*kept.history.messages, *kept.own), mark=mark)
            self._keep(lease.conversation, found, kept.size)
            return found
        found = await self._store.history(lease, None if kept is None else kept.history.mark)
        size = sum(map(_size_of, found.messages))
        if kept is not None and found.follows:
            found = replace(found, messages=(*kept.history.messages, *found.messages), follows=False)
            size += kept.size - sum(map(_size_of, kept.own))  # these have been read again
        else:
            size += _OF_A_CONVERSATION + (0 if found.summary is None else sys.getsizeof(found.summary.text))
        self._keep(lease.conversation, found, size)
        return found

    def begun(self, rows: RunRows) -> None:
        """Keep that nothing was said before a run, unless nothing is ever said after it."""
        if self._ttl and not rows.ancestors and direct_tool(rows.agent) is None:
            lease = rows.lease
            self._keep(lease.conversation, History(mark=HistoryMark(lease.run, None)), _OF_A_CONVERSATION)

    def ended(self, lease: Lease, messages: Sequence[Message], seq: int) -> None:
        """Add the messages of a run that has ended with the event `seq`, and has added no summary.

        Those with calls are left to be read: what they came to may have been told by others.
        """
        kept = self._kept.get(lease.conversation)
        if kept is None or kept.history.mark is None or kept.history.mark.run != lease.run:
            return
        if any(message.calls for message in messages):
            return
        now = asyncio.get_running_loop().time()
        size = kept.size + sum(map(_size_of, messages))
        self._put(lease.conversation, replace(kept, own=tuple(messages), ended_seq=seq, size=size, used_at=now))

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
        self._put(conversation, _Kept(history=history, size=size, used_at=asyncio.get_running_loop().time()))

    def _put(self, conversation: int, kept: _Kept) -> None:
        self.forget(conversation)
        if kept.size > self._most_bytes:
            return
        self._kept[conversation] = kept
        self.size += kept.size
        while self.size > self._most_bytes:
            self.forget(next(iter(self._kept)))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._ttl, self._expire)

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
