"""What a wire format of the strict model server is: it reads requests, and writes the answers of a script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from amoxi_py.models.script import ScriptedCall, ScriptedFailure, ScriptedReply, ScriptedThinking
from amoxi_py.ports.chat_model import ModelRequest

Spoken = str | ScriptedCall | ScriptedThinking
"""What a client gets of a reply's parts; the others are waits."""


class CutHere(Exception):
    """The script loses the connection at this point of a stream."""


class AskedBody(Protocol):
    """The body of a request that was read."""

    @property
    def request(self) -> ModelRequest:
        """What is asked, as the model port knows it."""
        ...

    @property
    def stream(self) -> bool:
        """Whether the answer is wanted as a stream."""
        ...


class Wire(Protocol):
    """One wire format."""

    def read(self, body: bytes, headers: Mapping[str, str]) -> tuple[Any, list[str]]:
        """Return the `AskedBody` of a request, or None, and what the real API would refuse about it."""
        ...

    def failure(self, failure: ScriptedFailure) -> dict[str, Any]:
        """Return the body of an answer with an error status."""
        ...

    def whole(self, asked: Any, reply: ScriptedReply, spoken: Sequence[Spoken]) -> dict[str, Any]:
        """Return the body of an answer in one piece."""
        ...

    def stream(self, asked: Any, reply: ScriptedReply, spoken: AsyncIterator[Spoken]) -> AsyncIterator[bytes]:
        """Yield the events of a stream; raise `CutHere` where the connection is to be lost."""
        ...
