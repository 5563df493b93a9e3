"""A store behind which nothing is stored that the app's `@redact` functions hide: what comes in by any door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any, cast

from msgspec.structs import replace

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.direct import direct_tool
from amoxi_py.engine.redaction import Redaction
from amoxi_py.ports.files import NewFile, StoredFile
from amoxi_py.ports.inputs import Answer, Signal, Verdict
from amoxi_py.ports.store import Store, Submission, Submitted
from amoxi_py.ports.views import CallView


def redacting(store: Store, redaction: Redaction) -> Store:
    """Return what stands before the store, or the store itself when nothing is hidden.

    A worker's changes pass as they are: what a worker goes on with must be what it stores, so it hides before. So do
    the arguments of a tool that is called directly, for the same reason.
    """
    return cast(Store, _RedactingStore(store, redaction)) if redaction.active else store


class _RedactingStore:
    def __init__(self, store: Store, redaction: Redaction) -> None:
        self._store = store
        self._redaction = redaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def submit(self, submission: Submission) -> asyncio.Future[Submitted]:
        if direct_tool(submission.agent) is None:
            submission = replace(submission, text=self._redaction.text(submission.text))
        return self._store.submit(submission)

    async def decide(self, verdict: Verdict) -> tuple[Approval, CallView]:
        reason, arguments = verdict.reason, verdict.arguments
        hidden = replace(
            verdict,
            reason=None if reason is None else self._redaction.text(reason),
            arguments=None if arguments is None else self._redaction.json(arguments),
        )
        return await self._store.decide(hidden)

    async def answer(self, answer: Answer) -> CallView:
        return await self._store.answer(replace(answer, value=self._redaction.json(answer.value)))

    async def signal(self, signal: Signal) -> None:
        await self._store.signal(replace(signal, payload=self._redaction.json(signal.payload)))

    async def save_file(self, new: NewFile, parts: AsyncIterable[bytes]) -> StoredFile:
        return await self._store.save_file(replace(new, name=self._redaction.text(new.name)), parts)
