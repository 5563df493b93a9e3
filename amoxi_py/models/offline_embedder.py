"""The embedder that needs nothing: the words of a text and their pieces, hashed into a vector.

It is lexical: "refund" is near "refunds" and "refunded", and not near "give the money back". No model is behind it.
"""

from __future__ import annotations

import asyncio
import math
import sys
from array import array
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

from amoxi_py.models.offline.words import STOP_WORDS, stem, tokens

DIMENSIONS = 384
_PIECE = 3
_OF_PIECES = 0.5  # what the pieces of a word count beside the word, together
_OF_STOP_WORDS = 0.1


class OfflineEmbedder:
    """Makes vectors of the stems of words and of pieces of three letters; the same for the same text, everywhere."""

    name = "offline"
    dimensions = DIMENSIONS
    lexical = True

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        vectors = []
        for text in texts:
            vectors.append(vector_of(text))
            await asyncio.sleep(0)  # a long text takes milliseconds, which others on the loop wait for
        return vectors

    async def aclose(self) -> None:
        return None


def vector_of(text: str, dimensions: int = DIMENSIONS) -> bytes:
    """Return the vector of a text: float32, little endian, of length 1."""
    numbers = array("f", bytes(4 * dimensions))
    counts = Counter(tokens(text)) or Counter([text])  # a text of signs alone is near the same text
    for word, count in counts.items():
        weight = (_OF_STOP_WORDS if word in STOP_WORDS else 1.0) * (1.0 + math.log(count))
        root = stem(word) or word
        _add(numbers, f"w {root}", weight)
        framed = f"^{root}$"
        pieces = [framed[at : at + _PIECE] for at in range(len(framed) - _PIECE + 1)]
        for piece in pieces:
            _add(numbers, f"p {piece}", weight * _OF_PIECES / math.sqrt(len(pieces)))
    return as_vector(numbers)


def as_vector(numbers: Sequence[float]) -> bytes:
    """Return numbers as a stored vector of length 1; raise `ValueError` where that cannot be."""
    length = math.sqrt(math.fsum(number * number for number in numbers))
    if not math.isfinite(length) or length == 0.0:
        raise ValueError("a vector of no length")
    made = array("f", (number / length for number in numbers))
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


def _add(numbers: array[float], feature: str, weight: float) -> None:
    """Count a feature at its place, with a sign of its own: what falls together by chance evens out."""
    hashed = crc32(feature.encode("utf-8", "surrogatepass"))
    place, sign = (hashed >> 1) % len(numbers), 1.0 if hashed & 1 else -1.0
    numbers[place] += sign * weight
