"""The verbs of the port of webhooks."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from amoxi_py.domain.principal import Principal
from amoxi_py.ports.views import Page
from amoxi_py.ports.webhooks import HeldWebhook, Webhook
from amoxi_py.stores.sql import webhooks
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.door import VerbDoor
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.verb import Act, Touches


class WebhookVerbs(VerbDoor):
    """`WebhookStore` in terms of statements."""

    async def keep_webhook(self, run_id: str, principal: Principal, id: str, content: str, *, limit: int) -> Webhook:
        def keep(batch: Batch) -> Webhook:
            return webhooks.keep_webhook(batch, run_id, principal, id, content, limit)

        return cast(Webhook, await self._perform(Act(keep, touches=Touches(run_ids=(run_id,)))))

    async def find_webhook(self, run_id: str, principal: Principal, id: str) -> Webhook:
        return await self._read(lambda tx: webhooks.find_webhook(tx, run_id, principal, id))

    async def list_webhooks(
        self, run_id: str, principal: Principal, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Webhook]:
        return await self._read(lambda tx: webhooks.list_webhooks(tx, run_id, principal, limit, cursor))

    async def drop_webhook(self, run_id: str, principal: Principal, id: str) -> None:
        touches = Touches(run_ids=(run_id,))
        await self._perform(Act(lambda batch: webhooks.drop_webhook(batch, run_id, principal, id), touches=touches))

    async def claim_webhooks(self, holder: str, lease_s: float, limit: int) -> tuple[HeldWebhook, ...]:
        if not await self._read(lambda tx: webhooks.due_webhooks(tx, millis(self.clock.now()), 1)):
            return ()  # nearly always: nothing is written then
        claimed = await self._perform(Act(webhooks.Claim(holder, lease_s, limit)))
        return cast(tuple[HeldWebhook, ...], claimed)

    async def renew_webhooks(
        self, holder: str, lease_s: float, *, keys: Collection[int] | None = None
    ) -> frozenset[int]:
        renewed = await self._perform(Act(lambda batch: webhooks.renew_webhooks(batch, holder, lease_s, keys)))
        return cast(frozenset[int], renewed)

    async def note_delivery(self, held: HeldWebhook, cursor: int, *, over: bool = False) -> bool:
        return cast(bool, await self._perform(Act(lambda batch: webhooks.note_delivery(batch, held, cursor, over))))

    async def put_off_webhook(self, held: HeldWebhook, due_at: float, *, over: bool = False) -> bool:
        return cast(bool, await self._perform(Act(lambda batch: webhooks.put_off_webhook(batch, held, due_at, over))))

    async def release_webhooks(self, holder: str) -> None:
        await self._perform(Act(lambda batch: webhooks.release_webhooks(batch, holder)))
