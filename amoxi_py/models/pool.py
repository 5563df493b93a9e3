"""Models that an app makes while it runs, such as one for each tenant's key: equal ones share their connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from amoxi_py.models.reading import reading
from amoxi_py.ports.chat_model import Asked, ChatModel, ModelRequest, Reply, TextDelta

_log = logging.getLogger("amoxi_py.models")

MOST_KEPT = 500
_CLOSING_S = 2.0


@dataclass(slots=True)
class _Place:
    model: ChatModel
    used: int = 0


class ModelPool:
    """Keeps the first of equal models, and closes the ones that were used longest ago when there are too many.

    Two models are equal when their `identity` is. One without an identity is the same only as itself, and its maker's
    to close.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._places: dict[tuple[object, ...], _Place] = {}

    @asynccontextmanager
    async def lend(self, model: ChatModel) -> AsyncIterator[ChatModel]:
        """Give the model to use in place of an equal one; it is not closed while it is used."""
        identity: tuple[object, ...] | None = getattr(model, "identity", None)
        if identity is None:
            yield model
            return
        place = self._places.pop(identity, None) or _Place(model)
        self._places[identity] = place  # the one used last stands at the end
        place.used += 1
        try:
            await close_models(self._too_many())
            yield place.model
        finally:
            place.used -= 1

    async def aclose(self) -> None:
        """Close all of them."""
        places, self._places = self._places, {}
        await close_models(place.model for place in places.values())

    def _too_many(self) -> list[ChatModel]:
        spare = len(self._places) - self._most
        unused = [identity for identity, place in self._places.items() if not place.used][: max(spare, 0)]
        return [self._places.pop(identity).model for identity in unused]


class PooledModel:
    """A model that is asked through the pool, so that it shares the connections of equal ones."""

    def __init__(self, model: ChatModel, pool: ModelPool) -> None:
        self._model = model
        self._pool = pool
        self.name = model.name
        self.window: int | None = getattr(model, "window", None)
        self.identity: tuple[object, ...] | None = getattr(model, "identity", None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply | Asked]:
        async with self._pool.lend(self._model) as model, reading(model, request) as stream:
            async for item in stream:
                if isinstance(item, Reply) and item.model is None:
                    item = replace(item, model=model.name)
                yield item


async def close_models(models: Iterable[ChatModel]) -> None:
    """Close the connections of models, each within two seconds; what fails is logged."""
    for model in models:
        close = getattr(model, "aclose", None)
        if close is None:
            continue
        try:
            async with asyncio.timeout(_CLOSING_S):
                await close()
        except Exception as error:  # noqa: BLE001 - the process stops, and must do so in time
            _log.warning("the connections of %s could not be closed: %s", model.name, type(error).__name__)
