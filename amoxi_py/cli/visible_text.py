"""Text of models, tools and people, made safe for a terminal: it moves no cursor, hides nothing, forges no prompt."""

from __future__ import annotations

import re
import unicodedata

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BREAKS = re.compile(r"[\n\t]")


def visible(text: str) -> str:
    """Return the text with control characters, and those that turn the direction around, shown as their numbers."""
    return _CONTROLS.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str, longest: int | None = None) -> str:
    """Return the same on one line, cut to `longest` characters."""
    line = _BREAKS.sub(" ", visible(text))
    return line if longest is None or len(line) <= longest else line[: longest - 1] + "…"


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) != 0 for letter in text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
