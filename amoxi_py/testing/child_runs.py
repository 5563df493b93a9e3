"""The runs of agents that a test's run asked, read when it has ended."""

from __future__ import annotations

from collections.abc import Sequence

from amoxi_py.app.runtime import Runtime
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.testing.agent_run import AgentRun, event_record, message_records
from amoxi_py.testing.files import saved_files
from amoxi_py.testing.recording import RecordingModels


async def read_children(
    runtime: Runtime, messages: Sequence[Message], principal: Principal, recording: RecordingModels
) -> tuple[AgentRun, ...]:
    """Return the runs that the calls of a run's messages asked for, with those below them."""
    calls = [call for message in messages for call in message.calls]
    asked = [call.wait.name for call in calls if call.wait is not None and call.wait.kind == "child"]
    return tuple([await _read_child(runtime, run_id, principal, recording) for run_id in asked])


async def _read_child(runtime: Runtime, run_id: str, principal: Principal, recording: RecordingModels) -> AgentRun:
    run = await runtime.engine.get_run(run_id, principal)
    messages = await runtime.store.run_messages(run_id, principal)
    events = [event async for batch in await runtime.engine.follow(principal, run_id=run_id) for event in batch]
    model = recording.by_agent[run.agent]
    return AgentRun(
        run=run,
        events=tuple(map(event_record, events)),
        messages=message_records(messages),
        requests=tuple(model.requests),
        model_failures=tuple(model.failures),
        files=await saved_files(runtime.engine, messages, principal),
        children=await read_children(runtime, messages, principal, recording),
    )
