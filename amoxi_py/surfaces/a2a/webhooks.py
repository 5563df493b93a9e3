"""Webhooks of tasks: the settings that callers keep for them, and their delivery while the server is up.

Every server with A2A delivers, also one that executes no runs.
"""

from __future__ import annotations

import logging

from a2a.types.a2a_pb2 import ListTaskPushNotificationConfigsResponse, SendMessageRequest, TaskPushNotificationConfig
from a2a.utils.errors import InternalError, InvalidParamsError
from msgspec import Struct

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, InvalidRequest, NotFound
from amoxi_py.ports.records import Record, group_of
from amoxi_py.ports.store import Store
from amoxi_py.ports.webhooks import Webhook
from amoxi_py.surfaces.a2a.caller_keys import caller_key
from amoxi_py.surfaces.a2a.delivery import Deliveries, Pace, TaskSource
from amoxi_py.surfaces.a2a.posting import Poster
from amoxi_py.surfaces.a2a.push_allowed import parse_allowed
from amoxi_py.surfaces.a2a.push_config import PushConfig, is_id, push_config_from_json, read_push_config
from amoxi_py.surfaces.a2a.push_names import Names
from amoxi_py.surfaces.a2a.push_targets import (
    NOT_FOUND,
    NotFoundNow,
    TargetRefused,
    find_addresses,
    host_of,
    port_of,
    read_target,
)
from amoxi_py.surfaces.a2a.settings import A2aSettings
from amoxi_py.surfaces.a2a.tasks import Tasks
from amoxi_py.surfaces.outgoing import Resolve

log = logging.getLogger("amoxi_py.a2a")

KIND = "a2a.webhook"
_MOST_OF_A_TASK = 10
_LARGEST_PAGE = 100
_MESSAGE_KNOWN_S = 24 * 3600.0
_ANSWER_KNOWN_S = 30 * 24 * 3600.0
_TOO_MANY = f"the task has {_MOST_OF_A_TASK} webhooks, which is the most; delete one of them first"
_NOT_NOW = "the host of the webhook's url cannot be looked up now; send it again in a moment (with the same messageId)"


class Expected(Struct, frozen=True, kw_only=True):
    """A webhook that comes with a message, from before the message is taken; `again`: so it was sent before."""

    id: str
    config: PushConfig
    again: bool


class Webhooks:
    """What the handler does with webhooks of tasks that it has found to be the caller's.

    Args:
        engine: Of the process.
        store: Its store.
        settings: Where webhooks may go beside the public internet.
        pace: For tests.
        resolve: Finds addresses; for tests.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        settings: A2aSettings,
        *,
        pace: Pace | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self._store = store
        self._deduplicate = settings.deduplicate
        self._allowed = parse_allowed(settings.push_allow)
        self._names = Names(resolve)
        source = TaskSource(engine, Tasks(engine, store))
        self._deliveries = Deliveries(
            store, source, Poster(self._allowed, self._names), pace or Pace(lease=engine.settings.lease)
        )

    async def open(self) -> None:
        """Begin to deliver."""
        self._deliveries.start()

    async def close(self) -> None:
        """End deliveries; other servers go on with them."""
        await self._deliveries.stop()

    async def expect(self, principal: Principal, params: SendMessageRequest, *, version: str, base: str) -> Expected:
        """Return the webhook that comes with a message; all that can be said against it is said before it is taken.

        Of a message that is sent again nothing is looked at anew.

        Args:
            principal: The caller.
            params: Its message, with a webhook.
            version: Of A2A that it speaks.
            base: The public address by which it reached this server.

        Raises:
            NotFound: the message is for no task of this principal.
            InvalidParamsError: the webhook cannot be used, or the task has too many.
            InternalError: its host cannot be looked up now.
        """
        told, message = params.configuration.task_push_notification_config, params.message
        config = read_push_config(told, version=version, base=base)
        key = caller_key(principal, message.task_id, message.message_id, config.url)
        if self._deduplicate and await self._store.find_record(KIND, key) is not None:
            return Expected(id=told.id, config=config, again=True)
        await self._check(principal, config)
        if message.task_id:
            page = await self._store.list_webhooks(message.task_id, principal, limit=_MOST_OF_A_TASK)
            if len({one.id for one in page.items} - {told.id or message.task_id}) >= _MOST_OF_A_TASK:
                raise InvalidParamsError(_TOO_MANY)
        if self._deduplicate:
            known = _ANSWER_KNOWN_S if message.task_id else _MESSAGE_KNOWN_S
            expires_at = self._store.clock.now() + known
            group = group_of(principal)
            await self._store.keep_record(Record(kind=KIND, key=key, group=group, content="{}", expires_at=expires_at))
        return Expected(id=told.id, config=config, again=False)

    async def keep_expected(self, principal: Principal, run_id: str, expected: Expected) -> None:
        """Keep the webhook of a message that has been taken: it has its task, whatever becomes of the webhook.

        One that was kept when the message came first stays as it is by now, though it may be over.

        Raises:
            NotFound: no such task of this principal.
        """
        if expected.again and await self._find(principal, run_id, expected.id or run_id) is not None:
            return
        try:
            await self._keep(principal, run_id, expected.id, expected.config)
        except InvalidParamsError as error:  # others were set since it was looked at
            log.warning("a webhook that came with a message to run %s is not kept: %s", run_id, error)

    async def create(
        self, principal: Principal, told: TaskPushNotificationConfig, *, version: str, base: str
    ) -> TaskPushNotificationConfig:
        """Keep a webhook for the task that it names; set again as it is, it goes on.

        Raises:
            NotFound: no such task of this principal.
            InvalidParamsError: the webhook cannot be used, or the task has too many.
            InternalError: its host cannot be looked up now.
        """
        config = read_push_config(told, version=version, base=base)
        await self._check(principal, config)
        return await self._keep(principal, told.task_id, told.id, config)

    async def get(self, principal: Principal, task_id: str, id: str) -> TaskPushNotificationConfig:
        """Return a webhook with all that was set; raise `NotFound`."""
        if not is_id(id):
            raise NotFound("webhook", id)
        return _told(await self._store.find_webhook(task_id, principal, id or task_id))

    async def list(
        self, principal: Principal, task_id: str, page_size: int = 0, page_token: str = ""
    ) -> ListTaskPushNotificationConfigsResponse:
        """Return a task's webhooks; raise `NotFound`, or `InvalidParamsError` for a page that there is not."""
        if not 0 <= page_size <= _LARGEST_PAGE:
            raise InvalidParamsError(f"pageSize must be from 1 to {_LARGEST_PAGE}")
        try:
            page = await self._store.list_webhooks(
                task_id, principal, limit=page_size or _LARGEST_PAGE, cursor=page_token or None
            )
        except InvalidRequest:
            raise InvalidParamsError("pageToken is none of this list; leave it out for the first page") from None
        return ListTaskPushNotificationConfigsResponse(
            configs=[_told(one) for one in page.items], next_page_token=page.next_cursor or ""
        )

    async def delete(self, principal: Principal, task_id: str, id: str) -> None:
        """Remove a webhook, if it is there; raise `NotFound` for a task that is not the principal's."""
        if is_id(id):
            await self._store.drop_webhook(task_id, principal, id or task_id)
            self._deliveries.end(task_id, id or task_id)

    async def _check(self, principal: Principal, config: PushConfig) -> None:
        """Find out whether a webhook may be told; a host that an operator has named need not be there yet."""
        try:
            parts = read_target(config.url, self._allowed)
            if not self._allowed.names(host_of(parts), port_of(parts)):
                await find_addresses(parts, self._allowed, self._names.of(principal.owner_key))
        except NotFoundNow as error:
            raise InternalError(_NOT_NOW) from error
        except (TargetRefused, OSError) as error:
            why = error if isinstance(error, TargetRefused) else NOT_FOUND
            raise InvalidParamsError(f"the webhook's url cannot be used: {why}") from error

    async def _keep(self, principal: Principal, run_id: str, id: str, config: PushConfig) -> TaskPushNotificationConfig:
        name, content = id or run_id, config.to_json()
        found = await self._find(principal, run_id, name)
        try:
            if found is None or found.content != content or found.over:
                await self._store.keep_webhook(run_id, principal, name, content, limit=_MOST_OF_A_TASK)
                self._deliveries.end(run_id, name)
        except Conflict as error:
            raise InvalidParamsError(_TOO_MANY) from error
        self._deliveries.wake()
        return config.to_proto(name, run_id)

    async def _find(self, principal: Principal, run_id: str, id: str) -> Webhook | None:
        try:
            return await self._store.find_webhook(run_id, principal, id)
        except NotFound:
            return None


def _told(webhook: Webhook) -> TaskPushNotificationConfig:
    return push_config_from_json(webhook.content).to_proto(webhook.id, webhook.run_id)
