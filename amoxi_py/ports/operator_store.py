"""What an operator's door needs of durable storage besides: reads over all principals, which no other door has."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus
from amoxi_py.ports.kept_data import KeptDataStore
from amoxi_py.ports.store import Store
from amoxi_py.ports.views import CallView, Page


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs are looked for; what is None does not matter.

    Attributes:
        status: Runs in it.
        agent: Runs of it.
        principal: Runs of this principal's id, in whatever tenant.
        owner_key: Runs of exactly the principal that has this `owner_key`; it goes before `principal`.
    """

    status: RunStatus | None = None
    agent: str | None = None
    principal: str | None = None
    owner_key: str | None = None


class Backlog(Struct, frozen=True, kw_only=True):
    """What is open in a store, over all principals and processes; each count stops at a few thousand.

    Attributes:
        queued: Runs that may be claimed now, or at a time that is set.
        running: Runs that a worker has, alive or not.
        approvals: Calls that wait for a decision and have not expired.
        oldest: For how many seconds the oldest run has been waiting that may be claimed now; 0 when there is none.
    """

    queued: int
    running: int
    approvals: int
    oldest: float


class OperatorStore(KeptDataStore, Store, Protocol):
    """The store, as only the person who runs the app may use it."""

    async def find_runs(self, wanted: RunFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        """Return runs of all principals that fit, newest first.

        One page looks at a bounded number of runs. So it may hold fewer than `limit`, even none, and still have a
        cursor: only a page without one is the last.

        Raises:
            InvalidRequest: the cursor is none.
        """
        ...

    async def open_approvals(self, now: float, *, limit: int = 50, cursor: str | None = None) -> Page[CallView]:
        """Return the calls that wait for a decision and have not expired at `now`, those of the oldest run first.

        They are those of all principals; each says who asked and which rule names its approver.

        Raises:
            InvalidRequest: the cursor is none.
        """
        ...

    async def backlog(self, now: float) -> Backlog:
        """Return what is open; it looks at a bounded number of rows, along indexes."""
        ...

    async def owner_of(self, run_id: str) -> Principal:
        """Return whose run it is, so that the ordinary verbs can be used in the owner's name; raise `NotFound`."""
        ...
