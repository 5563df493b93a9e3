"""What the operations of the protocol do: each is done for its caller alone, in terms of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus
from amoxi_py.engine.engine import Engine
from amoxi_py.ports.records import RecordStore
from amoxi_py.surfaces.a2a.answers import Answers
from amoxi_py.surfaces.a2a.bodies import made_of
from amoxi_py.surfaces.a2a.card import extended_card
from amoxi_py.surfaces.a2a.context import V0_3
from amoxi_py.surfaces.a2a.errors import answering, streaming
from amoxi_py.surfaces.a2a.fold import Update
from amoxi_py.surfaces.a2a.incoming import check_output_modes, read_message
from amoxi_py.surfaces.a2a.listing import list_tasks
from amoxi_py.surfaces.a2a.sending import NewTasks
from amoxi_py.surfaces.a2a.settings import A2aSettings
from amoxi_py.surfaces.a2a.skills import Skills
from amoxi_py.surfaces.a2a.streaming import held_up, settled, task_events, until_ended
from amoxi_py.surfaces.a2a.tasks import FINAL, SETTLED, Tasks
from amoxi_py.surfaces.a2a.webhooks import Expected, Webhooks
from amoxi_py.surfaces.closing import Closing, end_task


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asker:
    """Who asks, in which version of the protocol, and how this server is reached."""

    principal: Principal
    version: str
    base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    """The task that a message has led to.

    Attributes:
        run: The run.
        note: Why the message, an answer, decided nothing.
        behind: Whether an earlier task of its context may have to end first.
    """

    run: Run
    note: str | None = None
    behind: bool = False


class A2aHandler(RequestHandler):
    """Answers the operations of both versions, in every binding."""

    def __init__(
        self,
        engine: Engine,
        records: RecordStore,
        settings: A2aSettings,
        closing: Closing,
        webhooks: Webhooks,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._closing = closing
        self._webhooks = webhooks
        self._tasks = Tasks(engine, records)
        skills = Skills(engine, settings.default_agent)
        self._new = NewTasks(engine, records, skills, self._tasks.contexts, deduplicate=settings.deduplicate)
        self._answers = Answers(engine, records, deduplicate=settings.deduplicate)

    @answering
    async def on_message_send(self, params: wire.SendMessageRequest, context: ServerCallContext) -> wire.Task:
        """Take a message, and return its task when it has ended or requires input; or at once, where that is asked."""
        asker = _asker(params, context)
        history = _history_length(params.configuration)
        accepted = await self._accept(params, asker)
        run = accepted.run
        if accepted.note is None and not params.configuration.return_immediately and not run.status.final:
            await self._wait(accepted, asker.principal)
        if accepted.note is None:
            run = await self._tasks.find(run.id, asker.principal)
        return await self._tasks.of(run, asker.principal, history_length=history, base=asker.base, note=accepted.note)

    @streaming
    async def on_message_send_stream(
        self, params: wire.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update, None]:
        """Take a message, and give its task and what happens to it, until it ends or requires input."""
        asker = _asker(params, context)
        history = _history_length(params.configuration)
        accepted = await self._accept(params, asker)
        if accepted.note is not None:
            yield await self._tasks.of(
                accepted.run, asker.principal, history_length=history, base=asker.base, note=accepted.note
            )
            return
        async for update in self._events(accepted.run.id, asker, history=history, behind=accepted.behind):
            yield update
            if isinstance(update, wire.Task) and _is_held_up(update):
                return

    @streaming
    async def on_subscribe_to_task(
        self, params: wire.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Update, None]:
        """Give a task and what happens to it until it ends; one that has ended is told so, in 1.0 by an error."""
        asker = _asker(params, context)
        run = await self._tasks.find(params.id, asker.principal)
        if run.status.final:
            if asker.version != V0_3:
                raise UnsupportedOperationError(f"the task is {run.status.value}: get it, nothing comes any more")
            yield await self._tasks.of(run, asker.principal, base=asker.base)
            return
        async for update in self._events(run.id, asker, open_ended=True):
            yield update

    @answering
    async def on_get_task(self, params: wire.GetTaskRequest, context: ServerCallContext) -> wire.Task:
        """Return a task as it is."""
        asker = _asker(params, context)
        history = _history_length(params)
        run = await self._tasks.find(params.id, asker.principal)
        return await self._tasks.of(run, asker.principal, history_length=history, base=asker.base)

    @answering
    async def on_list_tasks(self, params: wire.ListTasksRequest, context: ServerCallContext) -> wire.ListTasksResponse:
        """Return a page of the caller's tasks, the newest status first."""
        asker = _asker(params, context)
        return await list_tasks(self._engine, self._tasks, params, asker.principal, asker.base)

    @answering
    async def on_cancel_task(self, params: wire.CancelTaskRequest, context: ServerCallContext) -> wire.Task:
        """End a task now."""
        asker = _asker(params, context)
        run = await self._tasks.find(params.id, asker.principal)
        if run.status.final:
            raise _not_cancelable(run)
        run = await self._engine.cancel(run.id, asker.principal)
        if run.status is not RunStatus.CANCELLED:  # it ended in the last moment
            raise _not_cancelable(run)
        return await self._tasks.of(run, asker.principal, base=asker.base)

    @answering
    async def on_create_task_push_notification_config(
        self, params: wire.TaskPushNotificationConfig, context: ServerCallContext
    ) -> wire.TaskPushNotificationConfig:
        """Keep a webhook for a task."""
        asker = _asker(params, context)
        await self._tasks.find(params.task_id, asker.principal)
        return await self._webhooks.create(asker.principal, params, version=asker.version, base=asker.base)

    @answering
    async def on_get_task_push_notification_config(
        self, params: wire.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> wire.TaskPushNotificationConfig:
        """Return a webhook of a task."""
        asker = _asker(params, context)
        await self._tasks.find(params.task_id, asker.principal)
        return await self._webhooks.get(asker.principal, params.task_id, params.id)

    @answering
    async def on_list_task_push_notification_configs(
        self, params: wire.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> wire.ListTaskPushNotificationConfigsResponse:
        """Return the webhooks of a task."""
        asker = _asker(params, context)
        await self._tasks.find(params.task_id, asker.principal)
        return await self._webhooks.list(asker.principal, params.task_id, params.page_size, params.page_token)

    @answering
    async def on_delete_task_push_notification_config(
        self, params: wire.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Remove a webhook of a task, if it is there."""
        asker = _asker(params, context)
        await self._tasks.find(params.task_id, asker.principal)
        await self._webhooks.delete(asker.principal, params.task_id, params.id)

    @answering
    async def on_get_extended_agent_card(
        self, params: wire.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> wire.AgentCard:
        """Return the card with the skills of the caller."""
        asker = _asker(params, context)
        return extended_card(self._engine, self._settings, asker.principal, asker.base)

    async def _accept(self, params: wire.SendMessageRequest, asker: _Asker) -> _Accepted:
        """Make a task of a message, or give its answer to the task that it names."""
        check_output_modes(params.configuration.accepted_output_modes)
        message = params.message
        given = await made_of(message, lambda: read_message(message))
        webhook = await self._webhook_of(params, asker)
        if message.task_id:
            run = await self._tasks.find(message.task_id, asker.principal)
            self._new.check_same(params, run, asker.principal)
            note = await self._answers.take(run, message.message_id, given, asker.principal)
            accepted = _Accepted(run=run, note=note)
        else:
            submitted = await self._new.submit(params, given, asker.principal)
            accepted = _Accepted(run=submitted.run, behind=submitted.busy or not submitted.created)
        if webhook is not None:
            await self._webhooks.keep_expected(asker.principal, accepted.run.id, webhook)
        return accepted

    async def _webhook_of(self, params: wire.SendMessageRequest, asker: _Asker) -> Expected | None:
        """Return the webhook that comes with a message, which is looked at before the message is taken."""
        if not params.configuration.HasField("task_push_notification_config"):
            return None
        told = params.configuration.task_push_notification_config
        if told.task_id and told.task_id != params.message.task_id:
            raise InvalidParamsError("the webhook of a message is for its own task: leave taskId out")
        return await self._webhooks.expect(asker.principal, params, version=asker.version, base=asker.base)

    async def _wait(self, accepted: _Accepted, principal: Principal) -> None:
        """Wait until a task has ended, requires input or is held up by one that does, or the server closes."""
        run = accepted.run
        if accepted.behind and await self._tasks.held_up_by(run, principal) is not None:
            return
        ends: list[Coroutine[Any, Any, object]] = [settled(self._engine, self._tasks, principal, run.id)]
        ends.append(self._closing.wait())
        if accepted.behind:
            ends.append(held_up(self._tasks, principal, run.id))
        waiting = [asyncio.create_task(end) for end in ends]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in waiting:
                await end_task(each)

    async def _events(
        self,
        run_id: str,
        asker: _Asker,
        *,
        history: int | None = None,
        open_ended: bool = False,
        behind: bool = False,
    ) -> AsyncGenerator[Update, None]:
        events = task_events(
            self._engine,
            self._tasks,
            asker.principal,
            run_id,
            asker.base,
            until=FINAL if open_ended else SETTLED,
            history_length=history,
        )
        ends: list[Coroutine[Any, Any, Update | None]] = [self._closing.wait()]
        if behind:
            ends.append(held_up(self._tasks, asker.principal, run_id))
        async with aclosing(until_ended(events, *ends)) as updates:
            async for update in updates:
                yield update


def _asker(params: object, context: ServerCallContext) -> _Asker:
    if getattr(params, "tenant", "") or context.tenant:
        raise InvalidParamsError("there is no such tenant; leave it out")
    state = context.state
    return _Asker(principal=state["principal"], version=state["version"], base=state["base"])


def _history_length(params: wire.SendMessageConfiguration | wire.GetTaskRequest) -> int | None:
    if not params.HasField("history_length"):
        return None
    if params.history_length < 0:
        raise InvalidParamsError("historyLength must be 0 or more")
    return params.history_length


def _is_held_up(task: wire.Task) -> bool:
    return task.status.state == wire.TASK_STATE_SUBMITTED and task.status.HasField("message")


def _not_cancelable(run: Run) -> TaskNotCancelableError:
    return TaskNotCancelableError(f"the task is {run.status.value} already")
