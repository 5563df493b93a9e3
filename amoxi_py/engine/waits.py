"""What the code of one call waits for: each wait is recorded once, in the order of the tool, and over once.

A wait that is not over ends the tool's code; when it is over the tool runs again from its start, and what was recorded
is returned at once.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from amoxi_py.declare.answer_type import AnswerRefused, answer_type
from amoxi_py.declare.context import Duration
from amoxi_py.domain.encoding import clean_text, decode_json
from amoxi_py.domain.wait import Wait, WaitOn
from amoxi_py.errors import ToolError

IN_PLACE = 2.0
"""A sleep of so many seconds is not worth to end a tool's code for."""

SIGNAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_LONGEST_QUESTION = 10_000
_MOST_WAITS = 1_000
_LONGEST_WAIT = 3660 * 86_400.0
_REPEATED = (
    "works only in a tool that is declared `read_only=True` or `idempotent=True`, "
    "because the tool runs again from its start when the wait is over"
)


class MustWait(Exception):
    """The code of the tool has to end: `wait` is not over."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(f"the call waits for a {wait.kind}")
        self.wait = wait


class Waits:
    """The waits of one try of one call.

    `records` are from earlier tries, by their place; `record` stores a new one and returns it as it is then, because a
    signal may be there already. `timed_out` is told of one whose time is over before anything came, the first time that
    the code learns of it, and returns it as it is then: something may have come in the last moment. `in_place` is the
    longest sleep that does not end the code.
    """

    def __init__(
        self,
        *,
        records: Mapping[int, Wait],
        record: Callable[[Wait], Awaitable[Wait]],
        timed_out: Callable[[Wait], Awaitable[Wait]] | None = None,
        now: Callable[[], float],
        in_place: float = IN_PLACE,
    ) -> None:
        self._records = records
        self._last = max(records, default=0)
        self._record = record
        self._timed_out = timed_out
        self._now = now
        self._in_place = in_place
        self._refusal: str | None = None
        self._k = 0
        self._two_at_once = False
        self.under_way = False

    @classmethod
    def refusing(cls, refusal: str) -> Waits:
        """Return waits for code that must not wait; the text goes on after the name of what it called."""

        async def record(wait: Wait) -> Wait:
            return wait

        waits = cls(records={}, record=record, now=lambda: 0.0)
        waits._refusal = refusal
        return waits

    @classmethod
    def of_unsafe_tool(cls) -> Waits:
        """Return the waits of a tool that must not run again."""
        return cls.refusing(_REPEATED)

    @classmethod
    def elsewhere(cls, where: str) -> Waits:
        """Return the waits of code that only looks, such as `reconcile`."""
        return cls.refusing(f"can only be used in the tool itself, not in {where}")

    @property
    def repeating(self) -> bool:
        """Whether the code has not come to the last of the earlier tries' waits yet, so that it does what it did."""
        return self._k < self._last

    async def ask(self, question: str, schema: Any, timeout: Duration | None) -> Any:
        """Return a person's answer as a value of the type, asking again until it is one; raise `TimeoutError`."""
        expected = answer_type(schema)
        if not isinstance(question, str) or not question.strip() or len(question) > _LONGEST_QUESTION:
            raise ValueError(f"a question must be text of 1 to {_LONGEST_QUESTION} characters")
        question = clean_text(question)
        asked = question
        until = self._until(timeout)
        while True:
            wait = await self._take("ctx.ask", "question", asked, expected.schema, until)
            if wait.value is None:
                raise TimeoutError(f"nobody has answered in time: {question}")
            try:
                return expected.read(wait.value)
            except AnswerRefused as error:
                asked = f"{question}\n\nThe last answer cannot be used: {error}"
                until = wait.until

    async def sleep(self, duration: Duration) -> None:
        """Return when the time is over."""
        await self._take("ctx.sleep", "sleep", "", None, self._until(duration))

    async def wait_for(self, name: str, timeout: Duration | None) -> Any:
        """Return the payload of the next signal of this name; raise `TimeoutError`."""
        if not isinstance(name, str) or not SIGNAL_NAME.fullmatch(name):
            raise ValueError(f"a signal's name has letters, digits, `_`, `.` and `-`, up to 100; {name!r} is none")
        wait = await self._take("ctx.wait_for", "signal", name, None, self._until(timeout))
        if wait.value is None:
            raise TimeoutError(f"the signal {name!r} has not come in time")
        return decode_json(wait.value)

    async def _take(self, what: str, kind: WaitOn, name: str, schema: str | None, until: float | None) -> Wait:
        if self._refusal is not None:
            raise ValueError(f"{what} {self._refusal}")
        if self.under_way:
            self._two_at_once = True
            raise self._one_at_a_time(what)
        self._k += 1
        self.under_way = True
        try:
            wait = self._records.get(self._k)
            if self._k > _MOST_WAITS:
                raise ToolError(f"The tool waited {_MOST_WAITS:,} times in one call, which is the most that it may.")
            if wait is None:
                wait = await self._record(
                    Wait(k=self._k, kind=kind, name=name, schema=schema, created_at=self._now(), until=until)
                )
            elif wait.kind != kind or (kind == "signal" and wait.name != name):
                raise ToolError(_changed(what, wait))
            await self._rest(wait)
        finally:
            self.under_way = False
        if self._two_at_once:
            raise self._one_at_a_time(what)
        if not wait.over(self._now()):
            raise MustWait(wait)
        if wait.value is None and wait.kind != "sleep" and self._k >= self._last and self._timed_out is not None:
            return await self._timed_out(wait)
        return wait

    async def _rest(self, wait: Wait) -> None:
        """Let a short sleep pass here."""
        if wait.kind != "sleep" or wait.until is None or wait.until - self._now() > self._in_place:
            return
        while (left := wait.until - self._now()) > 0:  # noqa: ASYNC110 - it is a clock, and nobody tells of it
            await asyncio.sleep(left)

    def _until(self, duration: Duration | None) -> float | None:
        if duration is None:
            return None
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
            raise ValueError(f"a time to wait is seconds or a timedelta, not {duration!r}")
        if not 0 <= seconds <= _LONGEST_WAIT:
            raise ValueError(f"a time to wait is from 0 seconds to 3,660 days, not {duration!r}")
        return self._now() + seconds

    def _one_at_a_time(self, what: str) -> ValueError:
        return ValueError(
            f"{what} is called while another wait of this call is under way; wait for one after the other"
        )


def _changed(what: str, wait: Wait) -> str:
    before = {"question": "a question", "sleep": "a sleep", "signal": f"the signal {wait.name!r}"}.get(wait.kind)
    return (
        f"The tool was changed while it waited, or takes another way each time: it waited for {before} before, "
        f"and now calls {what} in its place. It was stopped there; what it did before that is done."
    )
