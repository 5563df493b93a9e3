"""The collector of mistakes in declarations, so that one message can name all of them."""

from __future__ import annotations

from collections.abc import Iterable

from amoxi_py.errors import DeclarationError


class Mistakes:
    """Sentences about what cannot work: where, what is wrong, and the way out."""

    def __init__(self) -> None:
        self._sentences: list[str] = []

    def add(self, where: str, sentence: str) -> None:
        """Note a mistake; `where` is the module and the thing in it."""
        self._sentences.append(f"{where}: {sentence}")

    def add_options(self, where: str, decorator: str, unknown: Iterable[str], known: Iterable[str]) -> None:
        """Note options that a decorator does not have."""
        for name in unknown:
            self.add(where, f"@{decorator} has no option {name!r}; the options are: {', '.join(known)}")

    def raise_if_any(self) -> None:
        """Raise one `DeclarationError` that lists them all."""
        if self._sentences:
            raise DeclarationError(*self._sentences)
