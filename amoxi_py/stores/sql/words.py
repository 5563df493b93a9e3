"""The words of a text, in one way for all stores: what is searched and what is asked for are cut alike.

Letters are folded: small, and without accents. Scripts that are written without spaces are cut into pairs of letters.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import combining, normalize

MOST_WANTED: Final = 32
BEGINS: Final = 4
"""A word that is asked for and has as many letters also finds those that begin with it."""
_LONGEST: Final = 64
_READ: Final = 8000
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")


def words_of(text: str) -> list[str]:
    """Return all words of a text, in order."""
    folded = text.casefold()
    if not folded.isascii():
        bare = "".join(letter for letter in normalize("NFKD", folded) if not combining(letter))
        folded = normalize("NFC", bare)
    words: list[str] = []
    for word in _WORD.findall(folded):
        words.extend((word[:_LONGEST],) if word.isascii() else _cut(word))
    return words


def wanted_words(text: str) -> list[str]:
    """Return the different words that somebody asks for, at most `MOST_WANTED`: of more, the longest."""
    words = list(dict.fromkeys(words_of(text[:_READ])))
    if len(words) > MOST_WANTED:
        longest = set(sorted(words, key=len, reverse=True)[:MOST_WANTED])
        words = [word for word in words if word in longest]
    return words


def _cut(word: str) -> list[str]:
    parts: list[str] = []
    place = 0
    for run in _UNSPACED.finditer(word):
        parts.append(word[place : run.start()])
        letters = run[0]
        parts.extend(letters[n : n + 2] for n in range(max(1, len(letters) - 1)))
        place = run.end()
    parts.append(word[place:])
    return [part[:_LONGEST] for part in parts if part]
