"""The played provider in a process of its own, as a benchmark has it."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from amoxi_py.testing.bench.child import Child
from amoxi_py.testing.bench.profile import Profile

_PROGRAM = (sys.executable, "-m", "amoxi_py.testing.bench.provider", "--with-parent", "--port", "0")
_ANSWER_S = 30.0


class PlayedProvider:
    """A provider that is asked over HTTP, at `url`."""

    def __init__(self, url: str, child: Child) -> None:
        self.url = url
        self._child = child

    def answer_like(self, profile: Profile) -> None:
        """Answer from now on like this, and count anew."""
        self._ask("/profile", msgspec.json.encode(profile))

    def stats(self) -> dict[str, Any]:
        """Return what it has seen: the fields of `Stats`."""
        told: dict[str, Any] = json.loads(self._ask("/stats"))
        return told

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.url + path, body)  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
            content: bytes = answer.read()
        return content


@contextmanager
def played_provider(profile: Profile, folder: Path) -> Iterator[PlayedProvider]:
    """Start a provider that answers like this; `folder` takes what it prints."""
    with Child("the provider", _PROGRAM, folder=folder, log=folder / "provider.log", with_parent=True) as child:
        provider = PlayedProvider(child.wait_for(r"listening on (\S+)"), child)
        provider.answer_like(profile)
        yield provider
