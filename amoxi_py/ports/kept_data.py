"""What the person who runs an app does with all that is kept: delete what is old, read or forget one principal's.

Each verb does a bounded piece and says where the next one begins, so nothing holds the others up for long.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from amoxi_py.domain.approval import Decision
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunRows
from amoxi_py.ports.files import StoredFile
from amoxi_py.ports.views import Page


class Purged(Struct, frozen=True, kw_only=True):
    """How much a purge has deleted; `next` is where the next one goes on, None at the end."""

    conversations: int
    runs: int
    next: int | None


class Forgotten(Struct, frozen=True, kw_only=True):
    """How much of a principal was forgotten; of `decisions` about runs of others only the name is gone."""

    files: int = 0
    idempotency_keys: int = 0
    records: int = 0
    decisions: int = 0
    memories: int = 0

    def __add__(self, other: Forgotten) -> Forgotten:
        return Forgotten(
            files=self.files + other.files,
            idempotency_keys=self.idempotency_keys + other.idempotency_keys,
            records=self.records + other.records,
            decisions=self.decisions + other.decisions,
            memories=self.memories + other.memories,
        )


class KeptSummary(Struct, frozen=True, kw_only=True):
    """What models are told in place of all messages up to one; `created_at` is seconds since 1970."""

    text: str
    created_at: float


class KeptRun(Struct, frozen=True, kw_only=True):
    """A run as readers see it, all of its rows, and the summaries that end with one of its messages."""

    run: Run
    rows: RunRows
    summaries: tuple[KeptSummary, ...] = ()


class MadeDecision(Struct, frozen=True, kw_only=True):
    """What a principal has decided about a call; `decided_at` is seconds since 1970."""

    call_id: str
    run_id: str
    decision: Decision
    decided_at: float
    reason: str | None = None


class KeptDataStore(Protocol):
    """All that is kept, for who runs the app."""

    async def purge(self, before: float, *, after: int = 0, limit: int = 10, dry_run: bool = False) -> Purged:
        """Delete up to `limit` conversations that nothing has been added to since a time, with all of theirs.

        One with an open run (waiting ones included) stays. Files that were used in them alone go too; the space is
        given back. It begins after a place of all conversations; with `dry_run` it only counts.
        """
        ...

    async def forget_principal(self, principal: Principal) -> Forgotten:
        """Delete what is kept of a principal beside its conversations, and its name in decisions about others' runs.

        That is its files, idempotency keys, the records whose group is `group_of` it, what is remembered of it, and
        what was counted of it for limits. Sent again it finds the rest.
        """
        ...

    async def kept_runs(
        self, conversation_id: str, principal: Principal, *, limit: int = 10, cursor: str | None = None
    ) -> Page[KeptRun]:
        """Return the runs of a principal's conversation, oldest first, those that other runs asked for among them.

        Raises:
            NotFound: no such conversation of this principal.
            InvalidRequest: the cursor is none.
        """
        ...

    async def kept_files(
        self, principal: Principal, *, limit: int = 100, cursor: str | None = None
    ) -> Page[StoredFile]:
        """Return all files of a principal, oldest first; raise `InvalidRequest` when the cursor is none."""
        ...

    async def made_decisions(
        self, principal: Principal, *, limit: int = 100, cursor: str | None = None
    ) -> Page[MadeDecision]:
        """Return what a principal has decided, also about runs of others in its tenant, oldest run first.

        Raises:
            InvalidRequest: the cursor is none.
        """
        ...

    async def tenants_with(self, principal_id: str) -> tuple[str, ...]:
        """Return the first ten tenants in which a principal of this id has conversations."""
        ...
