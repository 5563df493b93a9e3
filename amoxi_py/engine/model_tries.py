"""How often the model of a run is asked again after a failed request, and what a person is told in the end."""

from __future__ import annotations

import random

from msgspec import Struct

from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.domain.run import RunFailure
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import ModelFailed

_ANSWERED = frozenset({"model_stream_cut", "model_empty_reply", "model_too_many_calls"})
"""Failures of a provider that is there: each try costs, and waiting for long makes none of them better."""
_WHEN_ANSWERED = RetryPolicy(tries=5, first=0.5, longest=4.0)
_LONGEST_WAIT_IN_PLACE = 2.0
_SILENT = "the model could not answer; please try again later"
_TEXTS = {
    "instructions_failed": "the agent could not be started",
    "hook_failed": "the agent made an error",
    "hook_request_invalid": "the agent made an error",
}


class NextTry(Struct, frozen=True, kw_only=True):
    """When the next try is: after a pause of `seconds`, which is slept when it is `in_place`, and else stored."""

    seconds: float
    in_place: bool


class ModelTries:
    """The tries of one turn. `failures` of them have failed, and are stored.

    Those that a provider has answered are counted apart, in memory: a crash gives them a few more, never as many as all
    may be.
    """

    def __init__(self, failures: int, settings: EngineSettings) -> None:
        self.failures = failures
        self._settings = settings
        self._answered = 0

    def failed(self, error: ModelFailed) -> NextTry | None:
        """Count a failure; return the next try, or None to give up."""
        self.failures += 1
        if not error.retryable:
            return None
        chance = random.random()  # noqa: S311 - spreads the tries of many runs
        settings = self._settings
        policy = settings.rate_limit_retry if error.code == "model_rate_limited" else settings.model_retry
        patient = retry_delay(policy, self.failures, chance=chance, asked=error.retry_after)
        if error.code not in _ANSWERED or patient is None:
            return None if patient is None else NextTry(seconds=patient, in_place=patient <= _LONGEST_WAIT_IN_PLACE)
        self._answered += 1
        pause = retry_delay(_WHEN_ANSWERED, self._answered, chance=chance)
        return None if pause is None else NextTry(seconds=min(pause, patient), in_place=True)

    def answered(self) -> int | None:
        """Begin with the next turn; return what is to be stored as the number of failures, or None for no change."""
        before, self.failures, self._answered = self.failures, 0, 0
        return 0 if before else None


def end_of_tries(error: ModelFailed) -> RunFailure:
    """Return how a run ends whose model is not asked again."""
    return RunFailure(code=error.code, message=_TEXTS.get(error.code, _SILENT))
