"""How this process asks its embedder: soon or not at all for who waits, and with pauses while it is away."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Sequence

from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.errors import ModelFailed
from amoxi_py.ports.embedder import Embedder

log = logging.getLogger("amoxi_py.memory")

NO_EMBEDDER = "none"
OF_THE_TEXT = frozenset({"model_refused", "model_context_too_long", "model_content_filtered"})
"""Failures that say nothing about the next text."""
_SOON_S = 5.0
_PATIENT = RetryPolicy(tries=sys.maxsize, first=1.0, longest=60.0)


class Embedding:
    """The embedder of a process, or none; `usable` is whether vectors are made and searched here at all."""

    def __init__(self, embedder: Embedder | None) -> None:
        self.usable = embedder is not None
        self._embedder = embedder
        self._failures = 0
        self._rests_until = 0.0

    @property
    def name(self) -> str:
        """The name that vectors are stored under."""
        return NO_EMBEDDER if self._embedder is None else self._embedder.name

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return 0 if self._embedder is None else self._embedder.dimensions

    @property
    def lexical(self) -> bool:
        """Whether nothing much is lost without it."""
        return self._embedder is None or self._embedder.lexical

    @property
    def rest(self) -> float:
        """The seconds for which it is better not asked, because it has just failed."""
        return max(self._rests_until - asyncio.get_running_loop().time(), 0.0)

    async def soon(self, text: str) -> bytes | None:
        """Return the vector of a text; None when it cannot be had in a few seconds."""
        if not self.usable or self.rest > 0:
            return None
        try:
            async with asyncio.timeout(_SOON_S) as limit:
                return (await self.of([text]))[0]
        except TimeoutError:
            if not limit.expired():
                raise
            self._failed(ModelFailed(f"nothing came for {_SOON_S:g} s", code="model_timeout"))
        except ModelFailed:
            pass  # it is logged
        return None

    async def of(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts; raise `ModelFailed`."""
        assert self._embedder is not None
        try:
            vectors = await self._embedder.embed(texts)
        except ModelFailed as error:
            self._failed(error)
            raise
        if self._failures:
            log.info("the embedder %s answers again", self.name)
        self._failures, self._rests_until = 0, 0.0
        return vectors

    def _failed(self, error: ModelFailed) -> None:
        if error.code in OF_THE_TEXT:
            return
        if not self._failures:
            log.warning(
                "the embedder %s fails, so memories are searched by words until it answers; nothing is lost: %s",
                self.name,
                error,
            )
        self._failures += 1
        chance = random.random()  # noqa: S311 - it spreads the tries of many
        pause = retry_delay(_PATIENT, self._failures, chance=chance, asked=error.retry_after)
        self._rests_until = asyncio.get_running_loop().time() + (pause or _PATIENT.longest)
