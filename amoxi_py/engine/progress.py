"""The progress lines of one call: the first is stored at once, later ones together, at most every 50 ms."""

from __future__ import annotations

import asyncio

from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.engine.journal import Journal

_GAP = 0.05
_MOST_WAITING = 20
_LONGEST = 2000


class ProgressLines:
    """Stores lines in order; a tool that says more than can be stored loses the oldest that wait."""

    def __init__(self, journal: Journal, call: ToolCall) -> None:
        self._journal = journal
        self._call = call
        self._lines: list[str] = []
        self._busy = False

    def add(self, text: str) -> None:
        """Take a line; it is cut at 2,000 characters."""
        self._lines.append(self._journal.redaction.text(clean_text(text))[:_LONGEST])
        del self._lines[:-_MOST_WAITING]
        if not self._busy:
            self._store()

    def rest(self) -> tuple[NewEvent, ...]:
        """Return the lines that still wait, to go in with the call's result."""
        lines, self._lines = self._lines, []
        return tuple(self._event(line) for line in lines)

    def _store(self) -> None:
        events = self.rest()
        if events:
            self._busy = True
            self._journal.write_soon(self._journal.change(events=events), self._stored)

    def _stored(self) -> None:
        asyncio.get_running_loop().call_later(_GAP, self._again)

    def _again(self) -> None:
        self._busy = False
        self._store()

    def _event(self, line: str) -> NewEvent:
        data = encode_json({"text": line})
        return NewEvent(
            type=EventType.TOOL_PROGRESS, turn=self._call.turn, n=self._call.n, data=data, subject=self._call
        )
