"""What never stands in a log line: secrets that this process was given, and what looks like one in anybody's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import unquote

_SHORTEST = 8
_HIDDEN = "***"
_OF_ADDRESSES = re.compile(r"(?<=://)([^\s/:@'\"]*):[^\s/@'\"]+@")
_NAMED = re.compile(
    r"((?:password|passwd|passphrase|pwd|secret|api[-_]?key|(?:access|refresh|auth|bearer)[-_]?token)['\"]?\s*[=:]\s*['\"]?)"
    r"[^\s'\",;&)}\]]+",
    re.IGNORECASE,
)
_PASSWORDS = (
    re.compile(r"://[^\s:@/]*:([^\s@/]+)@"),
    re.compile(r"://[^\s:@/]*:(\S+)@"),
    re.compile(r"[?&](?:ssl)?password=([^\s&]+)"),
    re.compile(r"\b(?:ssl)?password\s*=\s*('(?:\\.|[^'\\])+'|(?:\\.|[^\s'\\])+)"),
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
        self._own: list[Callable[[str], str]] = []

    def add(self, function: Callable[[str], str]) -> None:
        """Hide what the app hides too."""
        self._own.append(function)

    def remove(self, function: Callable[[str], str]) -> None:
        """Do so no more."""
        self._own.remove(function)

    def __call__(self, text: str) -> str:
        """Return a text without them."""
        if self._known is not None:
            text = self._known.sub(_HIDDEN, text)
        if "://" in text:  # each of these looks costs little beside its pattern, and every line of the log pays for it
            text = _OF_ADDRESSES.sub(rf"\1:{_HIDDEN}@", text)
        if "=" in text or ":" in text:
            text = _NAMED.sub(rf"\1{_HIDDEN}", text)
        folded = text.casefold()
        if "bearer" in folded or "basic" in folded:
            text = _BEARER.sub(rf"\1{_HIDDEN}", text)
        for function in self._own:
            text = function(text)
        return text


def passwords_in(text: str) -> set[str]:
    """Return the passwords of an address: of a URL as they stand in it and decoded, of a conninfo also unquoted.

    Where characters are not encoded as they must be, each reading counts. A password that is a word of the rest of the
    address, such as the user's name, is no secret, and would hide that word everywhere.
    """
    found = {match[1] for pattern in _PASSWORDS for match in pattern.finditer(text)}
    found |= {unquote(one) for one in found} | {re.sub(r"\\(.)", r"\1", one.strip("'")) for one in found}
    return {one for one in found if one and one not in text.replace(one, "", 1)}


def _parts(secret: str) -> set[str]:
    secret = secret.strip()
    passwords = passwords_in(secret)
    return passwords if "://" in secret else {secret, *passwords}
