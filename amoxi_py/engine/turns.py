"""One turn: ask the model, check its reply, and turn it into a message with calls that can be recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.declare.before_after import PlannedCall, Refuse
from amoxi_py.declare.definitions import AgentDefinition, Instances, ToolDefinition
from amoxi_py.declare.structured_result import RESULT_TOOL
from amoxi_py.domain.approval import Approval
from amoxi_py.domain.direct import direct_tool
from amoxi_py.domain.encoding import clean_json, clean_text, decode_json, encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.ids import call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.engine.approvers import declined_at_once
from amoxi_py.engine.call_memories import MemoriesToRead
from amoxi_py.engine.calls import read_arguments
from amoxi_py.engine.children import asks, begun
from amoxi_py.engine.context import AgentContext, CallToolContext
from amoxi_py.engine.deltas import Deltas, NoDeltas
from amoxi_py.engine.exits import cancelled_from_outside
from amoxi_py.engine.files import Files, FilesToRead
from amoxi_py.engine.final_results import refusal, result_tool
from amoxi_py.engine.hooks import REFUSED_BY_FAILURE, RunHooks
from amoxi_py.engine.memories import Memories
from amoxi_py.engine.results import DECLINED_TEXT, completed_event, settled_call
from amoxi_py.engine.settings import McpApprovals
from amoxi_py.engine.steps import Steps, error_text
from amoxi_py.engine.sync_context import SyncCallContext
from amoxi_py.engine.waits import Waits
from amoxi_py.errors import ArgumentsInvalid, ModelFailed, ValueNotStorable
from amoxi_py.ports.chat_model import Asked, CallRequest, ChatModel, ModelRequest, Reply, TextDelta, ToolSpec

log = logging.getLogger("amoxi_py.models")

_MOST_CALLS = 128


async def ask(
    model: ChatModel,
    request: ModelRequest,
    deltas: Deltas | NoDeltas,
    tell: Callable[[Asked], None],
    heard: Callable[[], None] | None = None,
) -> Reply:
    """Return the model's finished reply, while its pieces are stored as deltas.

    Args:
        model: Asked once.
        request: With what.
        deltas: Take the pieces.
        tell: Is told which one is asked, by a model that asks others.
        heard: Called when the first piece of text comes.

    Raises:
        ModelFailed: there is no reply, or none that can be used; with what it has used, where that is known.
    """
    reply: Reply | None = None
    stream = model.stream(request)
    try:
        async for item in stream:
            if isinstance(item, TextDelta):
                if heard is not None:
                    heard()
                    heard = None
                deltas.add(item.text)
            elif isinstance(item, Asked):
                tell(item)
            else:
                reply = item
    except (ModelFailed, GeneratorExit):
        raise
    except BaseException as error:  # a model object of the app's own may raise anything
        if cancelled_from_outside(error):
            raise
        log.exception("the model %s raised an error", getattr(model, "name", type(model).__name__))
        raise ModelFailed(f"the model raised {type(error).__qualname__}", retryable=False) from error
    finally:
        deltas.stop()
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
    return _usable(reply)


def _usable(reply: Reply | None) -> Reply:
    if reply is None:
        raise ModelFailed("the model's answer ended before it was finished", code="model_stream_cut")
    if not reply.text.strip() and not reply.calls:
        if reply.cut:
            text = "the answer came to its length limit before it had any text"
            raise ModelFailed(text, code="model_reply_cut", retryable=False, usage=reply.usage)
        raise ModelFailed("the model gave an empty answer", code="model_empty_reply", usage=reply.usage)
    if len(reply.calls) > _MOST_CALLS:
        text = f"the model asked for {len(reply.calls)} calls at once"
        raise ModelFailed(text, code="model_too_many_calls", usage=reply.usage)
    return reply


class ReplyReader(Struct, frozen=True, kw_only=True):
    """Turns the replies of one run into messages. `now` gives seconds since 1970; `expire_after` is in seconds.

    `values` keeps, by (turn, n), the arguments of calls that can start at once, as the tool's Python values.
    """

    agent: AgentDefinition
    run: AgentContext
    instances: Instances
    parallel_calls: int
    max_result: int
    now: Callable[[], float]
    expire_after: float | None
    files: Files
    memories: Memories
    hooks: RunHooks
    values: dict[tuple[int, int], dict[str, Any]]
    mcp_approvals: McpApprovals

    async def read(self, reply: Reply, turn: int, message_id: str) -> Message:
        """Return the message: each call is open, started, or settled already when it can never run."""
        text = clean_text(reply.text)
        calls = [await self._read_call(request, reply, turn, n) for n, request in enumerate(reply.calls)]
        free = {False: self.parallel_calls, True: self.parallel_calls}  # of code, and of child runs
        for n, call in enumerate(calls):
            asking = asks(self.agent, call.tool)
            if call.status is CallStatus.OPEN and call.approval is None and free[asking] > 0:
                free[asking] -= 1
                calls[n] = begun(self.agent, call, self.now())
        return Message(
            id=message_id,
            run_id=self.run.run_id,
            turn=turn,
            role="assistant",
            text=text,
            calls=tuple(calls),
            created_at=self.now(),
            kept=reply.kept,
        )

    async def _read_call(self, request: CallRequest, reply: Reply, turn: int, n: int) -> ToolCall:
        tool = self._tool(request.name)
        arguments, wrong = _read_object(request.arguments)
        call = ToolCall(
            id=call_id(self.run.run_id, turn, n),
            turn=turn,
            n=n,
            tool=_storable_name(request.name),
            arguments=encode_json(arguments),
            effect=tool.effect if tool is not None else Effect.UNSAFE,
        )
        if self.agent.result is not None and request.name == RESULT_TOOL:
            return self._refuse(call, refusal(self.agent.result, request, reply))
        if tool is None:
            return self._refuse(call, self._unknown_tool(request.name))
        if reply.cut and n == len(reply.calls) - 1:
            wrong = wrong or "the answer was cut at its length limit, so the arguments may not be whole"
        if wrong is not None:
            return self._refuse(call, f"The arguments cannot be used: {wrong}. Nothing was done; call it again.")
        try:
            values = read_arguments(tool, arguments)
        except ArgumentsInvalid as error:
            return self._refuse(call, f"The arguments do not fit: {error}. Nothing was done; correct them.")
        return await self._plan(tool, call, arguments, values)

    async def _plan(
        self, tool: ToolDefinition, call: ToolCall, arguments: dict[str, Any], values: dict[str, Any]
    ) -> ToolCall:
        """Return a call that fits, after the hooks before it, with the approval that it needs."""
        planned = PlannedCall(call_id=call.id, tool=call.tool, arguments=arguments)
        found = await self.hooks.before_tool(planned)
        if isinstance(found, Refuse):
            return self._refuse(call, found.text)
        if found is not planned:
            try:
                values = read_arguments(tool, dict(found.arguments))
            except ArgumentsInvalid as error:
                log.error("the hooks before %s gave it arguments that do not fit: %s", tool.where, error)
                return self._refuse(call, REFUSED_BY_FAILURE)
            call = replace(call, arguments=encode_json(found.arguments))
        if await self._needs_approval(tool, call, values):
            if declined_at_once(tool, self.run.principal, self.mcp_approvals):
                return settled_call(call, CallStatus.DECLINED, DECLINED_TEXT, self.max_result)
            now = self.now()
            expires_at = None if self.expire_after is None else now + self.expire_after
            return replace(call, approval=Approval(approver=tool.approver, created_at=now, expires_at=expires_at))
        if isinstance(tool.needs_approval, bool):  # a rule of the app's own may have changed them
            self.values[call.turn, call.n] = values
        return call

    def _tool(self, name: str) -> ToolDefinition | None:
        tool = self.agent.tool(name)
        return tool if tool is not None and tool.exists_for(self.run.principal) else None

    def _unknown_tool(self, name: str) -> str:
        if direct_tool(self.agent.name) == name:
            return f"The tool {name!r} does not exist any more; nothing was done."
        names = [tool.name for tool in tool_specs(self.agent, self.run)]
        known = f"the tools are: {', '.join(names)}" if names else "there are no tools"
        return f"There is no tool {clean_text(name)[:100]!r}; {known}."

    def _refuse(self, call: ToolCall, text: str) -> ToolCall:
        return settled_call(call, CallStatus.FAILED, text, self.max_result)

    async def _needs_approval(self, tool: ToolDefinition, call: ToolCall, values: dict[str, Any]) -> bool:
        if isinstance(tool.needs_approval, bool):
            return tool.needs_approval
        context = CallToolContext(
            run=self.run,
            call_id=call.id,
            attempt=1,
            steps=Steps.refusing("needs_approval"),
            waits=Waits.elsewhere("needs_approval"),
            progress=lambda _text: None,
            files=FilesToRead(files=self.files, principal=self.run.principal, where="needs_approval"),
            memories=MemoriesToRead(self.memories, self.run.principal, "needs_approval"),
        )
        try:
            ctx = SyncCallContext(context) if tool.sync else context
            return bool(await tool.needs_approval(self.instances, ctx, values))
        except BaseException as error:  # the app's rule failed; asking a person is the safe side
            if cancelled_from_outside(error):
                raise
            log.warning("needs_approval of %s failed, so a person is asked: %s", tool.where, error_text(error))
            return True
        finally:
            context.close()


def _read_object(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments and what is wrong with them; nothing at all means no arguments."""
    if not text.strip() or text.strip() == "null":
        return {}, None
    try:
        value = decode_json(text)
        if isinstance(value, str) and value.lstrip().startswith("{"):  # some models encode them twice
            value = decode_json(value)
    except ValueError as error:
        return {}, f"they are not JSON ({clean_text(str(error))[:100]}): {clean_text(text)[:200]}"
    if isinstance(value, dict):
        try:
            return clean_json(value), None
        except ValueNotStorable as error:
            return {}, f"they cannot be stored ({error})"
    if value == []:
        return {}, None
    return {}, f"they must be a JSON object, not {clean_text(text)[:200]}"


def _storable_name(name: str) -> str:
    """Return a name that every provider accepts back in a history."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name)
    return kept[:64] or "unnamed"


def tool_specs(agent: AgentDefinition, context: AgentContext) -> tuple[ToolSpec, ...]:
    """Return the tools that the model is offered: those that exist for the principal, and the one for the result."""
    specs = tuple(
        ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters)
        for tool in agent.tools
        if tool.exists_for(context.principal)
    )
    return specs if agent.result is None else (*specs, result_tool(agent.result))


def reply_events(message: Message, *, ended: bool) -> list[NewEvent]:
    """Return the events that tell of a recorded reply; `ended` when it is the last word of its run."""
    turn = message.turn
    events = [NewEvent(type=EventType.MESSAGE_COMPLETED, turn=turn, subject=message)]
    for call in message.calls:
        events.append(NewEvent(type=EventType.TOOL_CALLED, turn=turn, n=call.n, subject=call))
        if call.approval is not None:
            events.append(NewEvent(type=EventType.APPROVAL_REQUESTED, turn=turn, n=call.n, subject=call))
        if call.status.settled:
            events.append(completed_event(call))
    if ended:
        events.append(NewEvent(type=EventType.RUN_COMPLETED))
    return events
