"""What a tool waits for in a test that calls its function itself: answers, sleeps and signals, all there at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from amoxi_py.domain.encoding import clean_json, encode_json
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.fitting_answers import fitting_answer
from amoxi_py.engine.waits import Waits
from amoxi_py.errors import InvalidRequest


class GivenWaits:
    """Gives each question the next answer of the test and each `wait_for` the next signal; a sleep passes at once.

    Attributes:
        questions: What the tool asked, in order.
        slept: For how many seconds it wanted to sleep, in order.
    """

    def __init__(self, answers: Sequence[Any], signals: Mapping[str, Sequence[Any]]) -> None:
        self.questions: list[str] = []
        self.slept: list[float] = []
        self._answers = list(answers)
        self._signals = {name: list(payloads) for name, payloads in signals.items()}
        self._records: dict[int, Wait] = {}

    def of_next_try(self) -> Waits:
        """Return the waits of a try; what earlier ones have waited for is over."""
        return Waits(records=self._records, record=self._record, now=lambda: 0.0)

    async def _record(self, wait: Wait) -> Wait:
        if wait.kind == "question":
            self.questions.append(wait.name)
            value = self._answer(wait)
        elif wait.kind == "signal":
            value = self._signal(wait)
        else:
            self.slept.append(wait.until or 0.0)
            value = None
        over = self._records[wait.k] = replace(wait, until=0.0, value=value)
        return over

    def _answer(self, wait: Wait) -> str | None:
        if not self._answers:
            raise AssertionError(
                f"the tool asks {wait.name!r}, and the test has no answer left; "
                "give one more: tool_context(answers=[...])"
            )
        answer = self._answers.pop(0)
        if is_nobody(answer):
            return None
        try:
            return fitting_answer(wait, answer)
        except InvalidRequest as error:
            raise AssertionError(f"the answer {answer!r} to {wait.name!r} is refused: {told(error)}") from None

    def _signal(self, wait: Wait) -> str | None:
        waiting = self._signals.get(wait.name)
        if waiting:
            payload = waiting.pop(0)
            return None if is_nobody(payload) else encode_json(clean_json(payload))
        if wait.until is None:
            raise AssertionError(
                f"the tool waits for the signal {wait.name!r}, and the test has none left; "
                f"give one more: tool_context(signals={{{wait.name!r}: [...]}})"
            )
        return None


def is_nobody(given: Any) -> bool:
    """Whether a test says with an answer or a payload that none comes."""
    return given is TimeoutError or isinstance(given, TimeoutError)


def told(error: InvalidRequest) -> str:
    """Return what an error says, with the fields that are at fault."""
    return "; ".join((str(error), *(f"{one['field']}: {one['message']}" for one in error.errors)))
