"""The text of a reply while it is written: the first piece is stored at once, later ones at most every 50 ms."""

from __future__ import annotations

import asyncio

from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.engine.journal import Journal
from amoxi_py.engine.redaction import HeldText

_GAP = 0.05


class NoDeltas:
    """Takes pieces of a reply that nobody is shown while it is written."""

    stored = False

    def add(self, text: str) -> None:
        """Take a piece."""

    def stop(self) -> None:
        """Take no more pieces."""


class Deltas:
    """Pieces of one reply's text. `offset` counts the characters (code points) before a piece."""

    def __init__(self, journal: Journal, message_id: str) -> None:
        self.stored = False
        self._journal = journal
        self._message_id = message_id
        self._pieces: list[str] = []
        self._offset = 0
        self._held = HeldText(journal.redaction) if journal.redaction.active else None
        self._timer: asyncio.Handle | None = None
        self._busy = False
        self._next = 0.0
        self._loop = asyncio.get_running_loop()

    def add(self, text: str) -> None:
        """Take a piece; it is stored soon."""
        if text:
            self._pieces.append(text)
            self._arm()

    def stop(self) -> None:
        """Store no more pieces: the whole reply, or its end, follows."""
        self._pieces.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._busy or self._timer is not None:
            return
        wait = self._next - self._loop.time()
        # Not at once but after what is ready now: a reply that is whole already needs no deltas.
        self._timer = self._loop.call_later(wait, self._flush) if wait > 0 else self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._timer = None
        text = clean_text(self._take())
        if self._held is not None:
            text = self._held.more(text)
        if not text:
            return
        self._busy = self.stored = True
        self._next = self._loop.time() + _GAP
        data = {"message_id": self._message_id, "offset": self._offset, "text": text}
        self._offset += len(text)
        event = NewEvent(type=EventType.MESSAGE_DELTA, data=encode_json(data))
        self._journal.write_soon(self._journal.change(events=(event,)), self._stored)

    def _take(self) -> str:
        text = "".join(self._pieces)
        self._pieces.clear()
        if text and "\ud800" <= text[-1] <= "\udbff":  # half of a character: its other half is in the next piece
            self._pieces.append(text[-1])
            text = text[:-1]
        return text

    def _stored(self) -> None:
        self._busy = False
        if self._pieces:
            self._arm()
