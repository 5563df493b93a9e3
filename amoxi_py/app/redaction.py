"""What never stands in a log line: secrets that this process was given, and what looks like one in anybody's text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

_SHORTEST = 8
_HIDDEN = "***"
_OF_ADDRESSES = re.compile(r"(?<=://)([^\s/:@'\"]*):[^\s/@'\"]+@")
_NAMED = re.compile(
    r"((?:password|passwd|passphrase|pwd|secret|api[-_]?key|(?:access|refresh|auth|bearer)[-_]?token)['\"]?\s*[=:]\s*['\"]?)"
    r"[^\s'\",;&)}\]]+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)


class Redaction:
    """Hides secrets in text: known ones wherever they stand, passwords of addresses, and values that are named as such.

    Args:
        secrets: Known ones. Of an address, its password is one. Shorter ones than 8 characters would hide what is none.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {part for secret in secrets for part in _parts(secret) if len(part) >= _SHORTEST}
        longest_first = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def __call__(self, text: str) -> str:
        """Return a text without them."""
        if self._known is not None:
            text = self._known.sub(_HIDDEN, text)
        text = _OF_ADDRESSES.sub(rf"\1:{_HIDDEN}@", text)
        text = _NAMED.sub(rf"\1{_HIDDEN}", text)
        return _BEARER.sub(rf"\1{_HIDDEN}", text)


def _parts(secret: str) -> list[str]:
    secret = secret.strip()
    if "://" not in secret:
        return [secret]
    try:
        password = urlsplit(secret).password or ""
    except ValueError:
        return [secret]
    return [password, unquote(password)]
