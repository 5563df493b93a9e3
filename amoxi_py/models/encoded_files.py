"""The bytes of files in base64, as providers want them: made once, and for large ones beside the event loop.

A file of a conversation is sent again with every turn. What was used longest ago is forgotten, so that the encoded
files of all runs of a process stay within a bound.
"""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable

from amoxi_py.ports.chat_model import ModelMessage, UserMessage

LARGE = 256 * 1024
_MOST = 128 * 1024 * 1024


class EncodedFiles:
    """Texts by the bytes that they stand for; together they and the bytes have at most `most` bytes."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._size = 0
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, data: bytes) -> str:
        """Return the bytes in base64; large ones are kept."""
        if len(data) < LARGE:
            return b64encode(data).decode()
        with self._lock:
            known = self._texts.get(data)
            if known is not None:
                self._texts.move_to_end(data)
                return known
        text = b64encode(data).decode()
        with self._lock:
            if data not in self._texts:
                self._texts[data] = text
                self._size += len(data) + len(text)
            while self._size > self._most:
                oldest, forgotten = self._texts.popitem(last=False)
                self._size -= len(oldest) + len(forgotten)
        return text

    async def prepare(self, messages: Iterable[ModelMessage]) -> None:
        """Encode the large files of messages in a thread, one after the other, so that `of` has them at hand."""
        for message in messages:
            if not isinstance(message, UserMessage):
                continue
            for file in message.files:
                if len(file.data) >= LARGE and not self._has(file.data):
                    await asyncio.to_thread(self.of, file.data)

    def _has(self, data: bytes) -> bool:
        with self._lock:
            return data in self._texts


ENCODED = EncodedFiles()
"""The ones of this process."""
