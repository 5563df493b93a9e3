"""The vectors of spaces in memory, as of the version of the space that they were read in, and the nearest of them.

Which version counts is read in the snapshot of the search, so what is in memory is never older than what any process
has committed. Vectors have the length 1, so the product of two is their cosine. What does not fit in memory is read
anew by each search, a block at a time.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest
from operator import mul
from typing import Any, Final, Protocol

from amoxi_py.stores.sql.transaction import Row

MOST_BYTES: Final = 256 * 1024 * 1024
BLOCK: Final = 4096
_KEY_BYTES: Final = 36
_SLIGHT: Final = 1e-6  # what is no more alike is not alike: it may be a rounding error

Scored = tuple[float, int]
_Key = tuple[int, str, int]  # a space, an embedder, and how many numbers a vector has
ReadBlock = Callable[[int], Sequence[Row]]
"""Gives the next `BLOCK` rows after a key: key, passage, vector."""


class Block(Protocol):
    """The vectors of some passages; `size` is in bytes."""

    @property
    def size(self) -> int: ...

    def nearest(self, vector: bytes, limit: int) -> list[Scored]:
        """Return the cosines and passages of those that are nearest, of which the cosine is above 0."""
        ...


class Matrices:
    """The vectors of the spaces that were searched last, as many as have room; for threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._size = 0
        self._held: OrderedDict[_Key, tuple[int, list[Block]]] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes of all that is held."""
        return self._size

    def nearest(self, read: ReadBlock, space: int, version: int, vector: bytes, embedder: str, limit: int) -> list[int]:
        """Return the passages of a space whose vectors are nearest, the nearest first."""
        of = (space, embedder, len(vector) // 4)
        blocks = self._find(of, version)
        if blocks is None:
            with self._reading:  # one at a time: what they read before it is known to be too much adds up
                blocks = self._find(of, version)
                if blocks is None:
                    return _nearest_of(self._read(read, of, version), vector, limit)
        return _nearest_of(blocks, vector, limit)

    def _read(self, read: ReadBlock, of: _Key, version: int) -> Iterator[Block]:
        blocks: list[Block] = []
        size, after = 0, 0
        rows: Sequence[Row] = ((),) * BLOCK
        while len(rows) == BLOCK:
            rows = read(after)
            if rows:
                after = rows[-1][0]
            block = block_of(rows, of[2])
            size += block.size
            if size <= self._most:
                blocks.append(block)
            else:
                blocks.clear()
            yield block
        if size <= self._most:
            self._hold(of, version, blocks)

    def _find(self, of: _Key, version: int) -> list[Block] | None:
        with self._lock:
            held = self._held.get(of)
            if held is None or held[0] != version:
                return None
            self._held.move_to_end(of)
            return held[1]

    def _hold(self, of: _Key, version: int, blocks: list[Block]) -> None:
        with self._lock:
            older = self._held.get(of)
            if older is not None and older[0] > version:  # this search began earlier, and has ended later
                return
            self._let_go(of)
            self._held[of] = (version, blocks)
            self._size += _size(blocks)
            while self._size > self._most:
                self._let_go(next(iter(self._held)))

    def _let_go(self, of: _Key) -> None:
        held = self._held.pop(of, None)
        if held is not None:
            self._size -= _size(held[1])


def block_of(rows: Sequence[Row], dimensions: int) -> Block:
    """Return a block of rows; vectors of other dimensions, which no search can compare, are left out."""
    fitting = [(passage, vector) for _, passage, vector in rows if len(vector) == 4 * dimensions]
    passages, data = [passage for passage, _ in fitting], b"".join([vector for _, vector in fitting])
    try:
        import numpy  # not where nobody searches: it takes a while
    except ImportError:
        return PlainBlock(passages, data, dimensions)
    return NumpyBlock(numpy, passages, data, dimensions)


class NumpyBlock:
    """Vectors as one matrix of numpy's."""

    def __init__(self, numpy: Any, passages: list[int], data: bytes, dimensions: int) -> None:
        self._numpy = numpy
        self._passages = passages
        self._rows = numpy.frombuffer(data, dtype="<f4").reshape(len(passages), dimensions)

    @property
    def size(self) -> int:
        return int(self._rows.nbytes) + _KEY_BYTES * len(self._passages)

    def nearest(self, vector: bytes, limit: int) -> list[Scored]:
        # Not BLAS: its threads wait for each other by spinning, which on a busy machine takes tens of milliseconds.
        cosines = self._numpy.einsum("ij,j->i", self._rows, self._numpy.frombuffer(vector, dtype="<f4"))
        if limit < len(cosines):
            places = self._numpy.argpartition(cosines, -limit)[-limit:].tolist()
        else:
            places = range(len(cosines))
        found = [(float(cosines[place]), self._passages[place]) for place in places]
        return [one for one in found if one[0] > _SLIGHT]


class PlainBlock:
    """The same without numpy: a thousand vectors take some hundredths of a second."""

    def __init__(self, passages: list[int], data: bytes, dimensions: int) -> None:
        self._passages = passages
        self._dimensions = dimensions
        self._numbers = memoryview(_floats(data))

    @property
    def size(self) -> int:
        return self._numbers.nbytes + _KEY_BYTES * len(self._passages)

    def nearest(self, vector: bytes, limit: int) -> list[Scored]:
        wanted, width, numbers = _floats(vector).tolist(), self._dimensions, self._numbers
        cosines = (
            (sum(map(mul, wanted, numbers[place * width : (place + 1) * width])), passage)
            for place, passage in enumerate(self._passages)
        )
        return nlargest(limit, [one for one in cosines if one[0] > _SLIGHT], key=_rank)


def _nearest_of(blocks: Iterable[Block], vector: bytes, limit: int) -> list[int]:
    best: list[Scored] = []
    for block in blocks:
        best = nlargest(limit, [*best, *block.nearest(vector, limit)], key=_rank)
    return [passage for _, passage in best]


def _rank(scored: Scored) -> tuple[float, int]:
    return scored[0], -scored[1]


def _size(blocks: Sequence[Block]) -> int:
    return sum(block.size for block in blocks)


def _floats(data: bytes) -> array[float]:
    numbers = array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
