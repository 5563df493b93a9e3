"""The verbs of the port of all that is kept."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from amoxi_py.domain.memory import space_of
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.files import StoredFile
from amoxi_py.ports.kept_data import Forgotten, KeptRun, MadeDecision, Purged
from amoxi_py.ports.records import Record
from amoxi_py.ports.views import Page
from amoxi_py.stores.sql import kept_data, records
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.passage_verbs import PassageVerbs
from amoxi_py.stores.sql.readers import Readers
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.verb import Act, Touches
from amoxi_py.stores.sql.webhook_verbs import WebhookVerbs

_AT_ONCE = 10
_TURN = ("store.purge", "turn")
_TURN_S = 3000.0  # a little less than the time between two sweeps
_REST = 4.0
"""How many times as long as a piece of a purge took nothing is done after it: the others go first."""


class KeptDataVerbs(WebhookVerbs, PassageVerbs):
    """`KeptDataStore` in terms of statements.

    `keep_s` is how long conversations are kept after the last thing that was added to them; None for ever.
    """

    def __init__(self, readers: Readers, keep_s: float | None) -> None:
        super().__init__(readers)
        self._keep_s = keep_s

    @abstractmethod
    async def _remove_blobs(self, blobs: set[str]) -> None:
        """Give back the space of bytes that no row refers to any more."""

    async def _give_space_back(self) -> None:
        """Return when the space of what was deleted is given back, where that takes a while."""

    async def _clear_log(self) -> None:
        """Let the database's log hold nothing that was deleted, where it would for longer and no reader needs it."""

    async def purge(self, before: float, *, after: int = 0, limit: int = _AT_ONCE, dry_run: bool = False) -> Purged:
        purged = await self._purge(before, after, limit, dry_run=dry_run)
        if purged.next is None and not dry_run:
            await self._give_space_back()
        return purged

    async def _purge(self, before: float, after: int, limit: int, *, dry_run: bool = False) -> Purged:
        until = millis(before)
        keys, next_one = await self._read(lambda tx: kept_data.find_old(tx, after, until, limit))
        counts, done, blobs = (0, 0), list[tuple[int, int]](), set[str]()

        def purge(batch: Batch) -> tuple[int, int]:
            conversations, runs, names = kept_data.purge(batch, keys, until)
            blobs.update(names)
            done.append((conversations, runs))
            return max(done)  # a second pass, after a commit whose answer was lost, finds them gone

        if keys and dry_run:
            counts = await self._read(lambda tx: kept_data.count_old(tx, keys, until))
        elif keys:
            touches = Touches(conversations=tuple(keys))
            counts = cast(tuple[int, int], await self._perform(Act(purge, touches=touches)))
            await self._remove_blobs(blobs)
        return Purged(conversations=counts[0], runs=counts[1], next=next_one)

    async def _purge_old(self) -> None:
        """Delete what is older than it is kept, with rests, unless another process does or has just done so."""
        if self._keep_s is None:
            return
        now, (kind, key) = self.clock.now(), _TURN
        if await self._read(lambda tx: records.find_record(tx, kind, key, millis(now))) is not None:
            return
        turn = Record(kind=kind, key=key, content="null", expires_at=now + _TURN_S)
        await self._perform(Act(lambda batch: records.keep_record(batch, turn)))
        after: int | None = 0
        clock = asyncio.get_running_loop().time
        while after is not None:
            begun = clock()
            after = (await self._purge(now - self._keep_s, after, _AT_ONCE)).next
            if after is not None:
                await asyncio.sleep(_REST * (clock() - begun))

    async def _delete_old_keys(self) -> None:
        """Delete all idempotency keys that are known no more."""
        more = True
        while more and await self._read(lambda tx: kept_data.has_old_keys(tx, millis(self.clock.now()))):
            more = await self._perform(Act(kept_data.sweep_idempotency_keys))

    async def forget_principal(self, principal: Principal) -> Forgotten:
        files = await _all(partial(self._forget_files, principal))
        keys = await _all(partial(self._forget_keys, principal))
        found = await self._forget_records(principal)
        await self._perform(Act(lambda batch: batch.tx.run("forget_usage", principal=principal.owner_key)))
        decisions = await _all(partial(self._forget_decisions, principal))
        memories = await self.clear_space(space_of(principal))
        await self._wipe_words()
        await self._clear_log()
        return Forgotten(files=files, idempotency_keys=keys, records=found, decisions=decisions, memories=memories)

    async def _forget_decisions(self, principal: Principal) -> int:
        rows = await self._read(lambda tx: kept_data.some_decisions(tx, principal))
        if rows:
            touches = Touches(run_ids=tuple({row[3] for row in rows}))
            forget = partial(kept_data.forget_decider, decisions=rows, principal=principal)
            await self._perform(Act(forget, touches=touches))
        return len(rows)

    async def _forget_keys(self, principal: Principal) -> int:
        return cast(int, await self._perform(Act(partial(kept_data.forget_keys, principal=principal))))

    async def _forget_records(self, principal: Principal) -> int:
        total, more = 0, True
        while more:
            piece = Act(partial(kept_data.forget_records, principal=principal))
            count, more = cast(tuple[int, bool], await self._perform(piece))
            total += count
        return total

    async def _forget_files(self, principal: Principal) -> int:
        blobs: set[str] = set()

        def forget(batch: Batch) -> int:
            count, names = kept_data.forget_files(batch, principal)
            blobs.update(names)
            return count

        count = cast(int, await self._perform(Act(forget)))
        await self._remove_blobs(blobs)
        return count

    async def kept_runs(
        self, conversation_id: str, principal: Principal, *, limit: int = 10, cursor: str | None = None
    ) -> Page[KeptRun]:
        return await self._read(lambda tx: kept_data.kept_runs(tx, conversation_id, principal, limit, cursor))

    async def kept_files(
        self, principal: Principal, *, limit: int = 100, cursor: str | None = None
    ) -> Page[StoredFile]:
        return await self._read(lambda tx: kept_data.kept_files(tx, principal, limit, cursor))

    async def made_decisions(
        self, principal: Principal, *, limit: int = 100, cursor: str | None = None
    ) -> Page[MadeDecision]:
        return await self._read(lambda tx: kept_data.made_decisions(tx, principal, limit, cursor))

    async def tenants_with(self, principal_id: str) -> tuple[str, ...]:
        return await self._read(lambda tx: kept_data.tenants_with(tx, principal_id))


async def _all(piece: Callable[[], Awaitable[int]]) -> int:
    """Do a piece until one is not full, so that who adds meanwhile does not keep it from ending; return the sum."""
    total = 0
    while True:
        count = await piece()
        total += count
        if count < kept_data.AT_ONCE:
            return total
