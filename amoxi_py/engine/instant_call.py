"""A call of a tool that only reads, made without a run: the same result as in one, stored nowhere.

Who asked for it waits for it in this process. When that ends, or the process does, nothing is left of it; it has
changed nothing.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from msgspec.structs import replace

from amoxi_py.declare.definitions import Instances, ToolDefinition
from amoxi_py.domain.direct import direct_agent
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.engine import tracing
from amoxi_py.engine.attempts import Outcome, Returned, guarded
from amoxi_py.engine.call_memories import MemoriesToRead
from amoxi_py.engine.context import AgentContext, CallToolContext
from amoxi_py.engine.direct import direct_call
from amoxi_py.engine.exits import within_run
from amoxi_py.engine.files import Files, FilesToRead
from amoxi_py.engine.memories import Memories
from amoxi_py.engine.outcomes import failure_text, pause_before_retry, result_of, tell
from amoxi_py.engine.redaction import Redaction
from amoxi_py.engine.results import settled_call
from amoxi_py.engine.steps import Steps
from amoxi_py.engine.sync_context import SyncCallContext
from amoxi_py.engine.threads import ThreadPool
from amoxi_py.engine.waits import Waits

_WHERE = "a call without a run"


async def call_at_once(
    tool: ToolDefinition,
    arguments: str,
    values: dict[str, Any],
    *,
    principal: Principal,
    instances: Instances,
    threads: ThreadPool,
    lingering: set[asyncio.Future[Any]],
    files: Files,
    memories: Memories,
    redaction: Redaction,
    max_result: int,
) -> ToolCall:
    """Return the settled call.

    Args:
        tool: Its code gets no context, but what is made for each of its calls may; the run and the conversation that
            it names are nowhere else.
        arguments: JSON text.
        values: The same as the tool's Python values.
        principal: Who calls.
        instances: Give what the tool is injected.
        threads: For a sync tool.
        lingering: Takes code that was told to stop and has not ended yet.
        files: Those that may be read.
        memories: The same.
        redaction: Hides in the result.
        max_result: The most characters of it.
    """
    run = AgentContext(
        run_id=new_id("run"),
        conversation_id=new_id("conv"),
        agent=direct_agent(tool.name),
        principal=principal,
        attempt=1,
        threads=threads,
        lingering=lingering,
    )
    call = direct_call(tool.name, tool.effect, run.run_id, arguments, started=True)
    readable = FilesToRead(files=files, principal=principal, where=_WHERE)
    found = MemoriesToRead(memories, principal, _WHERE)
    with tracing.call_at_once(call) as span:
        while True:
            context = CallToolContext(
                run=run,
                call_id=call.id,
                attempt=call.tries,
                steps=Steps.refusing(_WHERE),
                waits=Waits.elsewhere(_WHERE),
                progress=_nobody_hears,
                files=readable,
                memories=found,
            )
            outcome = await _attempt(tool, context, instances, values, lingering)
            if isinstance(outcome, Returned):
                status, value = result_of(tool, outcome.value)
                break
            tell(outcome, f"call {call.id} without a run, tool {tool.name!r}, try {call.tries}")
            pause = pause_before_retry(tool, outcome, call.failures)
            if pause is None:
                status, value = CallStatus.FAILED, failure_text(tool, outcome)
                break
            await asyncio.sleep(pause)
            call = replace(call, tries=call.tries + 1, failures=call.failures + 1)
        settled = settled_call(call, status, redaction.value(value), max_result)
        if span is not None:
            span.settled(settled)
        return settled


async def _attempt(
    tool: ToolDefinition,
    context: CallToolContext,
    instances: Instances,
    values: dict[str, Any],
    lingering: set[asyncio.Future[Any]],
) -> Outcome:
    ctx = SyncCallContext(context) if tool.sync else context
    try:
        with within_run():
            return await guarded(context, partial(tool.call, instances, ctx, values), tool.timeout, lingering)
    except asyncio.CancelledError:
        context.close()
        raise


def _nobody_hears(_text: str) -> None:
    return None
