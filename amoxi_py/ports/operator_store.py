"""What an operator's door needs of durable storage besides: reads over all principals, which no other door has."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus
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


class OperatorStore(Store, Protocol):
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

    async def owner_of(self, run_id: str) -> Principal:
        """Return whose run it is, so that the ordinary verbs can be used in the owner's name; raise `NotFound`."""
        ...
