"""What a store does for `ctx.transaction`: an app's function works in a transaction that also records its outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct

from amoxi_py.domain.run import Lease
from amoxi_py.domain.tool_call import StepRecord

Work = Callable[[Any], Awaitable[StepRecord]]
"""Works with a connection to the app's database, whose transaction is begun, and returns the outcome to be recorded."""


class StepPlace(Struct, frozen=True, kw_only=True):
    """A step by its name in a call of a leased run."""

    lease: Lease
    turn: int
    n: int
    name: str


class WorkFailed(Exception):
    """The work came to nothing, and nothing of it is in the database; `error` says why.

    Work raises it for what the app's function raised. The store raises it for what the database made of that: a
    constraint that is checked at the commit, a function that ended its transaction or its connection.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class TransactionStore(Protocol):
    """Steps whose effect is in the store's own database."""

    async def commit_step(self, place: StepPlace, work: Work, *, threaded: bool) -> StepRecord:
        """Do work in a transaction, record its outcome in the same commit, and return what is recorded.

        A step that is recorded already stays: what the work did is rolled back then. Work that the database could not
        finish beside others (a serialization failure, a deadlock, a lost connection) is undone and done again, a few
        times. When this is cancelled, or the work raises anything, all is rolled back.

        Args:
            place: The step; its name may have no failed outcome.
            work: Called once for each try. A connection is good for one try.
            threaded: Whether its connection blocks, for code in a thread.

        Raises:
            WorkFailed: with its cause.
            LeaseLost: the lease is not current; nothing has happened.
            InvalidRequest: the store has no such database.
            StoreUnavailable: nothing of the work has happened that a second call would not find.
        """
        ...
