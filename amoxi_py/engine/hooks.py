"""Asks the app's hooks about the requests, replies and calls of one run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from amoxi_py.declare.before_after import PlannedCall, Refuse
from amoxi_py.declare.definitions import HookDefinition
from amoxi_py.domain.encoding import clean_json, clean_text
from amoxi_py.engine.context import AgentContext
from amoxi_py.engine.exits import cancelled_from_outside
from amoxi_py.engine.parts import Parts
from amoxi_py.engine.redaction import Redaction
from amoxi_py.errors import ModelFailed, ValueNotStorable
from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, Reply

log = logging.getLogger("amoxi_py.hooks")

REFUSED_BY_FAILURE = "A check before this action failed, so nothing was done."


class HookFailed(Exception):
    """A hook raised, or gave what it must not; it is in the log already."""


class RunHooks:
    """The hooks that are for the agent of one run."""

    def __init__(self, parts: Parts, context: AgentContext) -> None:
        self._parts = parts
        self._context = context
        hooks = parts.catalog.hooks
        self._before_model = tuple(self._for_agent(hooks.before_model))
        self._after_model = tuple(self._for_agent(hooks.after_model))
        self._before_tool = tuple(self._for_agent(hooks.before_tool))

    @property
    def hold_text(self) -> bool:
        """Whether a reply's text may only be shown when it has been seen."""
        return any(not hook.streams for hook in self._after_model)

    async def before_model(self, request: ModelRequest) -> ModelRequest:
        """Return the request as it is to be sent.

        Raises:
            ModelFailed: a hook failed (`hook_failed`), or made of it what no provider takes (`hook_request_invalid`).
        """
        asked = request
        for hook in self._before_model:
            found = await self._ask_of_model(hook, request, ModelRequest)
            request = request if found is None else found
        if request is asked:
            return request
        problems = self._parts.facts.problems_of(_without_old_kept(request, asked))
        if problems:
            before = self._parts.facts.problems_of(_without_old_kept(asked, asked))
            problems = [problem for problem in problems if problem not in before]
        if problems:
            log.error("the hooks before the model made a request that no provider takes: %s", "; ".join(problems))
            raise ModelFailed("hooks made a request unusable", code="hook_request_invalid", retryable=False)
        return request

    async def after_model(self, reply: Reply) -> Reply:
        """Return the reply as it is to be stored; what it has used stays as it was.

        Raises:
            ModelFailed: a hook failed, or left neither text nor calls (`hook_failed`).
        """
        asked = reply
        for hook in self._after_model:
            found = await self._ask_of_model(hook, reply, Reply)
            reply = reply if found is None else found
        if reply is not asked and not reply.text.strip() and not reply.calls:
            log.error("the hooks after the model left neither text nor calls of a reply")
            raise ModelFailed("hooks left nothing of a reply", code="hook_failed", retryable=False)
        return reply

    async def before_tool(self, call: PlannedCall) -> PlannedCall | Refuse:
        """Return the call as it is to be made, or why it must not be made; `@redact` hides in what a hook gives."""
        redaction = self._parts.redaction
        for hook in self._before_tool:
            if hook.tools is not None and call.tool not in hook.tools:
                continue
            try:
                found = await self._ask(hook, call)
                if isinstance(found, Refuse) and isinstance(found.text, str):
                    return Refuse(redaction.text(clean_text(found.text).strip()) or REFUSED_BY_FAILURE)
                if found is not None:
                    call = _with(hook, call, found, redaction)
            except HookFailed:
                return Refuse(REFUSED_BY_FAILURE)
        return call

    def _for_agent(self, hooks: Iterable[HookDefinition]) -> Iterator[HookDefinition]:
        return (hook for hook in hooks if hook.agents is None or self._context.agent in hook.agents)

    async def _ask_of_model(self, hook: HookDefinition, what: Any, kind: type[Any]) -> Any:
        try:
            found = await self._ask(hook, what)
        except HookFailed as error:
            raise ModelFailed(str(error), code="hook_failed", retryable=False) from error
        if found is None or isinstance(found, kind):
            return found
        log.error("%s returned %s, not %s or None", hook.where, type(found).__qualname__, kind.__qualname__)
        raise ModelFailed(f"{hook.where} returned what it must not", code="hook_failed", retryable=False)

    async def _ask(self, hook: HookDefinition, what: Any) -> Any:
        context = self._context
        try:
            return await hook.ask(self._parts.instances, context.run_in_thread, context, what)
        except BaseException as error:
            if cancelled_from_outside(error):
                raise
            log.exception("run %s: %s failed", context.run_id, hook.where)
            raise HookFailed(f"{hook.where} raised {type(error).__qualname__}") from error


def _without_old_kept(request: ModelRequest, asked: ModelRequest) -> ModelRequest:
    """Return the request without what models have kept with messages that no hook has touched: nobody else reads it."""
    untouched = set(map(id, asked.messages))
    messages = tuple(
        replace(message, kept=None) if isinstance(message, AssistantMessage) and id(message) in untouched else message
        for message in request.messages
    )
    return replace(request, messages=messages)


def _with(hook: HookDefinition, call: PlannedCall, found: Any, redaction: Redaction) -> PlannedCall:
    if isinstance(found, Mapping):
        try:
            arguments = redaction.value(clean_json(dict(found)))
            return PlannedCall(call_id=call.call_id, tool=call.tool, arguments=arguments)
        except ValueNotStorable as error:
            log.error("%s gave arguments that cannot be stored: %s", hook.where, error)
            raise HookFailed(hook.where) from error
    log.error("%s returned %s, not arguments, Refuse or None", hook.where, type(found).__qualname__)
    raise HookFailed(hook.where)
