"""A chain of models: when one cannot answer, the next one is asked, and a run notices nothing of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence

from msgspec.structs import replace

from amoxi_py.errors import ModelFailed
from amoxi_py.models.reading import reading
from amoxi_py.ports.chat_model import Asked, ChatModel, ModelRequest, Reply, TextDelta

_log = logging.getLogger("amoxi_py.models")

STAYS = frozenset({"model_refused", "model_content_filtered", "model_out_of_reach"})
"""Failures that another model is not asked after: the request itself is what is wrong, or what a provider judged."""

_LASTS = frozenset({"model_key_refused", "model_quota_exhausted", "model_unknown"})
_RESTS_S = 10.0
_RESTS_LONG_S = 60.0
_RESTS_AT_MOST_S = 600.0
_RESTING = frozenset({"model_rate_limited", "model_unavailable", "model_timeout"}) | _LASTS


class FallbackModel:
    """Asks the first of its models, and the next one when that fails in a way in which another may not.

    A model that fails before it has said anything is followed by the next one at once. What fails after that is a
    failed try of the run, whose words are discarded; the run's try number k begins with model number k of the chain, so
    this survives a crash. A model that was away, busy or refused its key is asked after the others for a while, by all
    runs of this process.
    """

    def __init__(self, models: Sequence[ChatModel], *, now: Callable[[], float] = time.monotonic) -> None:
        self._models = tuple(models)
        self._now = now
        self._rests_until = [0.0] * len(self._models)

    @property
    def name(self) -> str:
        return ", ".join(model.name for model in self._models)

    @property
    def window(self) -> int | None:
        """Tokens that every one of its models takes, as far as that is known."""
        return min(filter(None, (getattr(model, "window", None) for model in self._models)), default=None)

    @property
    def identity(self) -> tuple[object, ...] | None:
        """What makes two chains the same, or None when one of the models is only the same as itself."""
        own = tuple(getattr(model, "identity", None) for model in self._models)
        return None if None in own else ("fallback", *own)

    async def aclose(self) -> None:
        """Close the connections of all models that have any."""
        closings = [close() for model in self._models if (close := getattr(model, "aclose", None)) is not None]
        await asyncio.gather(*closings)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply | Asked]:
        failures: list[tuple[ChatModel, ModelFailed]] = []
        for place in self._order(request.failures):
            model = self._models[place]
            shown = False
            yield Asked(model=model.name, failed=failures[-1][1] if failures else None)
            try:
                async with reading(model, request) as stream:
                    async for item in stream:
                        shown = shown or not isinstance(item, Asked)
                        yield _named(item, model) if isinstance(item, Reply) else item
                        if isinstance(item, Reply):
                            self._rests_until[place] = 0.0
                            return
                raise ModelFailed("the model's answer ended before it was finished", code="model_stream_cut")
            except ModelFailed as error:
                if error.code in STAYS:
                    raise
                self._let_rest(place, error)
                failures.append((model, error))
                if shown:
                    break
                _log.warning("the model %s failed (%s): %s", model.name, error.code, error)
        raise self._failure(failures, request.failures)

    def _order(self, failures: int) -> list[int]:
        count = len(self._models)
        turned = [(failures + step) % count for step in range(count)]
        now = self._now()
        return sorted(turned, key=lambda place: self._rests_until[place] > now)  # stable: the order stays otherwise

    def _let_rest(self, place: int, error: ModelFailed) -> None:
        if error.code not in _RESTING:
            return
        rest = _RESTS_LONG_S if error.code in _LASTS else _RESTS_S
        if error.retry_after is not None:
            rest = min(error.retry_after, _RESTS_AT_MOST_S)
        self._rests_until[place] = self._now() + rest

    def _failure(self, failures: list[tuple[ChatModel, ModelFailed]], before: int) -> ModelFailed:
        """Return the failure of a try: it is worth another one when a model was not asked, or may work later.

        A request that was too long for one of them stays so, and can be made shorter; the others may stay away.
        """
        again = [error for _, error in failures if error.retryable]
        unasked = before + len(failures) < len(self._models)
        asked = [error.retry_after for error in again if error.retry_after]
        hurried = unasked or len(asked) < len(again)
        too_long = [error for _, error in failures if error.code == "model_context_too_long"]
        error = (too_long or again or [error for _, error in failures])[-1]
        told = "; ".join(f"{model.name}: {error}" for model, error in failures)
        return ModelFailed(
            told,
            code=error.code,
            retryable=bool(again) or unasked,
            retry_after=None if hurried else min(asked, default=None),
            usage=failures[-1][1].usage,  # that of the others was told with `Asked`
        )


def _named(reply: Reply, model: ChatModel) -> Reply:
    return reply if reply.model is not None else replace(reply, model=model.name)
