"""What search by meaning needs of an embedder: a vector for a text, such that texts that are alike have near ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    """Makes vectors of texts.

    Attributes:
        name: Such as `openai:text-embedding-3-small`; stored with each vector, for those of two are never compared.
        dimensions: How many numbers a vector has.
        lexical: Whether it sees only which words are alike, and not what they mean.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def lexical(self) -> bool: ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vector of each text, in order: float32, little endian, one after the other, of length 1.

        It is one try; nothing is tried again here.

        Raises:
            ModelFailed: there are none; `retryable` says whether there may be some later.
        """
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...
