"""What the app's `@redact` functions hide, hidden in every text before it is stored, told or logged.

What is hidden is hidden here too: people, models and tools get the text that is stored, now and after a restart.
Names (of tools, steps' tags, classes) and what is no text (numbers, bytes, files' content) stay.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from amoxi_py.declare.definitions import NO_HOOKS, Hooks, Instances
from amoxi_py.domain.encoding import clean_text, decode_json, encode_json
from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.values import decode_value
from amoxi_py.errors import ValueNotStorable
from amoxi_py.ports.chat_model import CallRequest, Reply

log = logging.getLogger("amoxi_py.runs")

HIDDEN = "[hidden]"
_TAG = "$"
_NO_TEXTS = frozenset(
    {"float", "bytes", "bytearray", "datetime", "date", "time", "timedelta", "decimal", "uuid", "complex"}
)


class _Telling(threading.local):
    of_failure = False


class Redaction:
    """Hides in texts, or does nothing when the app hides nothing."""

    def __init__(self, hooks: Hooks, instances: Instances | None = None) -> None:
        self.active = bool(hooks.redact)
        self._definitions = hooks.redact
        self._instances = instances
        self._telling = _Telling()

    @property
    def longest(self) -> int | None:
        """The length of the longest text that is hidden, or None when nobody says so."""
        known = [definition.longest for definition in self._definitions]
        return None if None in known else max(filter(None, known), default=0)

    @cached_property
    def _functions(self) -> tuple[tuple[str, Callable[[str], Any]], ...]:
        assert self._instances is not None, "there is nothing to hide otherwise"
        return tuple((definition.where, definition.bind(self._instances)) for definition in self._definitions)

    def text(self, text: str) -> str:
        """Return the text without what is hidden; all of it is hidden when a function fails."""
        if not self.active or not text or self._telling.of_failure:
            return text
        was_blank = text.isspace()
        for where, function in self._functions:
            try:
                found = function(text)
            except Exception as error:  # noqa: BLE001 - the app's own code, and its error may hold the text
                self._tell(f"{where} raised {type(error).__qualname__}")
                return HIDDEN
            if not isinstance(found, str):
                self._tell(f"{where} returned {type(found).__qualname__}, not text")
                return HIDDEN
            text = found
        return clean_text(text) if was_blank or text.strip() else HIDDEN  # no provider takes a message of nothing

    def _tell(self, failure: str) -> None:
        """Log a failure; that line would go through the function that fails."""
        self._telling.of_failure = True
        try:
            log.error("%s, so a whole text is hidden", failure)
        finally:
            self._telling.of_failure = False

    def value(self, value: Any) -> Any:
        """Return plain JSON values with all texts in them, keys too, without what is hidden."""
        return self._map(value) if self.active else value

    def json(self, text: str) -> str:
        """Do the same for JSON text; one that is none is hidden in as a text."""
        if not self.active:
            return text
        try:
            value = decode_json(text)
        except ValueError:
            return self.text(text)
        hidden = self._map(value)
        return text if hidden == value else encode_json(hidden)

    def reply(self, reply: Reply) -> Reply:
        """Return a model's reply without what is hidden; reasoning that holds some of it is not kept."""
        if not self.active:
            return reply
        calls = tuple(
            CallRequest(id=call.id, name=self.text(call.name), arguments=self.json(call.arguments))
            for call in reply.calls
        )
        kept = reply.kept if reply.kept is not None and self.json(reply.kept) == reply.kept else None
        return replace(reply, text=self.text(clean_text(reply.text)), calls=calls, kept=kept)

    def step(self, record: StepRecord) -> StepRecord:
        """Return the outcome of a step without what is hidden.

        A value that cannot be read back then is an error of the step: it has happened, and must not happen again.
        """
        if not self.active:
            return record
        value = decode_json(record.value)
        hidden = self._packed(value)
        if hidden == value:
            return record
        text = encode_json(hidden)
        if not record.failed:
            try:
                decode_value(text)
            except ValueNotStorable:
                told = [
                    ValueNotStorable.__name__,
                    f"step {record.name!r}: its value cannot be read any more, now that @redact has hidden some of it",
                ]
                return replace(record, value=encode_json(told), failed=True)
        return replace(record, value=text)

    def wait(self, wait: Wait) -> Wait:
        """Return what a call waits for without what is hidden in a question."""
        if not self.active or wait.kind != "question":
            return wait
        schema = None if wait.schema is None else self.json(wait.schema)
        return replace(wait, name=self.text(wait.name), schema=schema)

    def _map(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._map(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._map(item) for item in value]
        return value

    def _packed(self, packed: Any) -> Any:
        """Hide in a step's value as it is stored, and leave what says of which type it is."""
        if isinstance(packed, str):
            return self.text(packed)
        if isinstance(packed, list):
            return [self._packed(item) for item in packed]
        if not isinstance(packed, dict):
            return packed
        if _TAG not in packed:
            return {self.text(key): self._packed(item) for key, item in packed.items()}
        if packed[_TAG] in _NO_TEXTS:
            return packed
        return {key: item if key in (_TAG, "c") else self._packed(item) for key, item in packed.items()}


class HeldText:
    """The text of a reply while it comes, told so far behind that nothing of what is hidden is told before it is known.

    What is told is always the beginning of what the whole text will be without what is hidden. Only the end of the text
    is looked at: a window, which begins where nothing hidden reaches over.
    """

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._behind = redaction.longest or 0
        self._window = ""
        self._told = ""  # of the window, without what is hidden in it

    def more(self, text: str) -> str:
        """Take a piece, and return what can be told now."""
        self._window += text
        whole = self._redaction.text(self._window)
        for place in self._places(len(self._window) - self._behind):
            safe = self._redaction.text(self._window[:place])
            if len(safe) > len(self._told) and safe.startswith(self._told) and self._parts_well(place, safe, whole):
                told, self._told = self._told, safe
                if len(self._window) > _WINDOW + 4 * self._behind:
                    self._move_on(place - 2 * self._behind, whole)
                return safe[len(told) :]
        return ""

    def _move_on(self, last: int, whole: str) -> None:
        """Let the window begin later, at `last` or before it."""
        for place in self._places(last):
            before = self._redaction.text(self._window[:place])
            if self._told.startswith(before) and self._parts_well(place, before, whole):
                self._window, self._told = self._window[place:], self._told[len(before) :]
                return

    def _places(self, last: int) -> Iterator[int]:
        """Give where the window may be parted, the last place first."""
        place = last
        for _ in range(_MOST_PLACES):
            if place <= 0:
                return
            yield place
            place = max(self._window.rfind(" ", 0, place), self._window.rfind("\n", 0, place))

    def _parts_well(self, place: int, before: str, whole: str) -> bool:
        """Whether nothing that is hidden reaches over the place; `before` is what is before it."""
        return before + self._redaction.text(self._window[place:]) == whole


_WINDOW = 500
_MOST_PLACES = 20
NOTHING_HIDDEN = Redaction(NO_HOOKS)
