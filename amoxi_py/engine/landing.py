"""Brings submissions into the store, and begins at once what was claimed with them: also when an answer was lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from msgspec.structs import replace

from amoxi_py.domain.message import Message
from amoxi_py.engine.worker import Worker
from amoxi_py.errors import NotFound, StoreUnavailable
from amoxi_py.ports.store import Store, Submission, Submitted

_LONGEST_PAUSE = 5.0


class Landing:
    """Stores submissions; `poll` is the first pause in seconds before it looks for one that may have landed."""

    def __init__(self, store: Store, poll: float) -> None:
        self._store = store
        self._poll = poll
        self._findings: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Look for nothing more."""
        for finding in self._findings:
            finding.cancel()

    async def land(
        self, submission: Submission, worker: Worker | None, values: dict[str, Any] | None = None
    ) -> Submitted:
        """Store a submission; with a free place of this process's worker its run is claimed in the same commit.

        `values` are the arguments of the call that it starts, as the tool's Python values.
        """
        if worker is not None:
            worker.adopt(submission.conversation_id, submission.run_id)
        place = worker.reserve() if worker is not None else None
        if worker is None or place is None:
            submitted = await self._store.submit(submission)
            if worker is not None:
                _take_on(worker, submitted)
            return submitted
        submission = replace(submission, claim_by=place)
        try:
            stored = self._store.submit(submission)
        except StoreUnavailable:
            worker.unreserve()
            raise
        # Not after the await: a caller that gives up must not leave a run that is claimed here and nobody executes.
        stored.add_done_callback(partial(self._begin, submission, worker, values))
        return await asyncio.shield(stored)

    def _begin(
        self,
        submission: Submission,
        worker: Worker,
        values: dict[str, Any] | None,
        stored: asyncio.Future[Submitted],
    ) -> None:
        worker.unreserve()
        if stored.cancelled():
            return
        failure = stored.exception()
        if isinstance(failure, StoreUnavailable):
            finding = asyncio.get_running_loop().create_task(self._find_out(submission, worker))
            self._findings.add(finding)
            finding.add_done_callback(self._findings.discard)
        elif failure is None:
            submitted = stored.result()
            _take_on(worker, submitted, () if submitted.began else None, values)

    async def _find_out(self, submission: Submission, worker: Worker) -> None:
        """Find out whether a submission landed although its answer was an error, and execute it if it did."""
        pause = self._poll
        while True:
            await asyncio.sleep(pause)
            try:
                await self._store.get_run(submission.run_id, submission.principal)
                found = await self._store.submit(submission)  # it is there, so this finds it
            except NotFound:
                return
            except StoreUnavailable:
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            _take_on(worker, found)
            return


def _take_on(
    worker: Worker,
    submitted: Submitted,
    history: tuple[Message, ...] | None = None,
    values: dict[str, Any] | None = None,
) -> None:
    """Execute the run if it was claimed here; else it may be an earlier one, found by its key."""
    if submitted.rows is not None:
        worker.begin(submitted.rows, history, new=True, values=values)
    else:
        worker.take_up(submitted.run.conversation_id, submitted.run.id)
