"""What the delivery of news to other servers needs of durable storage: to whom, how far, and who does it now.

Who holds a webhook delivers its news, for as long as its lease is renewed. A hold has a fence: what is said about one
that is over changes nothing. All times are of the store's clock.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from amoxi_py.domain.principal import Principal
from amoxi_py.ports.views import Page


class Webhook(Struct, frozen=True, kw_only=True):
    """An address that wants to be told of a run.

    Attributes:
        id: Its name among those of its run.
        run_id: The run.
        content: JSON text; it may hold what the address must be shown, so nothing of it is told to others.
        cursor: Number in the log of the last event that was delivered; 0 when none was.
        failures: How often in a row a delivery has failed.
        over: Whether nothing more will be delivered.
        created_at: When it was kept with this content, in seconds since 1970.
    """

    id: str
    run_id: str
    content: str
    cursor: int = 0
    failures: int = 0
    over: bool = False
    created_at: float


class HeldWebhook(Struct, frozen=True, kw_only=True):
    """A webhook with the right to deliver for it; `principal` is whose run it is, `key` the store's own name for it."""

    webhook: Webhook
    principal: Principal
    key: int
    fence: int


class WebhookStore(Protocol):
    """Webhooks of runs, durably. They go with their run, and those that are over some days later."""

    async def keep_webhook(self, run_id: str, principal: Principal, id: str, content: str, *, limit: int) -> Webhook:
        """Store a webhook of the principal's run; one of the same id gets the content and starts anew.

        Raises:
            NotFound: no such run of this principal.
            Conflict: the run has `limit` others already (`too_many_webhooks`).
        """
        ...

    async def find_webhook(self, run_id: str, principal: Principal, id: str) -> Webhook:
        """Return a webhook of the principal's run; raise `NotFound` when there is no such run, or none of this id."""
        ...

    async def list_webhooks(
        self, run_id: str, principal: Principal, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Webhook]:
        """Return the webhooks of the principal's run, the first one that was kept first.

        Raises:
            NotFound: no such run of this principal.
            InvalidRequest: the cursor is none.
        """
        ...

    async def drop_webhook(self, run_id: str, principal: Principal, id: str) -> None:
        """Remove a webhook, if it is there; raise `NotFound` when there is no such run of this principal."""
        ...

    async def claim_webhooks(self, holder: str, lease_s: float, limit: int) -> tuple[HeldWebhook, ...]:
        """Hold up to `limit` webhooks for `lease_s` seconds, those that are due for the longest time first.

        Due are those that are not over, whose time has come, and that nobody holds; so no two holders have the same.
        """
        ...

    async def renew_webhooks(
        self, holder: str, lease_s: float, *, keys: Collection[int] | None = None
    ) -> frozenset[int]:
        """Hold what `holder` holds for `lease_s` seconds from now, and return the keys of what that is.

        With `keys` only those, so that what a claim got whose answer never arrived is soon somebody's again. What is
        not returned is held no more.
        """
        ...

    async def note_delivery(self, held: HeldWebhook, cursor: int, *, over: bool = False) -> bool:
        """Note that all events up to a number are delivered, and whether that is all; False when it is held no more.

        Its failures are 0 then. One that is over is let go.
        """
        ...

    async def put_off_webhook(self, held: HeldWebhook, due_at: float, *, over: bool = False) -> bool:
        """Count a failure, and let the webhook go until a time, a day ahead at most; False when it is held no more.

        One that is over has had its last try.
        """
        ...

    async def release_webhooks(self, holder: str) -> None:
        """Let go all that `holder` holds, for whoever claims it next."""
        ...
