"""`run_agent`: one message to an agent on a store of its own, followed to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.placing import placed_by_code
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.testing.agent_run import AgentRun, event_record, message_records
from amoxi_py.testing.answers import Answering, GivenAnswers
from amoxi_py.testing.app_under_test import (
    AnyModel,
    agent_of,
    agents_asked,
    declarations_of,
    open_parts,
    settings_of_test,
)
from amoxi_py.testing.child_runs import read_children
from amoxi_py.testing.decisions import Answer, Decisions
from amoxi_py.testing.files import bring_files, saved_files
from amoxi_py.testing.passing_time import JumpingClock, PassingTime
from amoxi_py.testing.recording import RecordingModels
from amoxi_py.testing.scene import SCENE, Scratch

SOMEBODY = Principal(id="user:test", name="Test", channel="code")
_CRASH_LEASE = {"ai.runs.lease-ms": 600}
_LAST_EVENTS = 5


def run_agent(
    agent: type[Any] | str,
    message: str,
    *,
    model: AnyModel | Mapping[str, AnyModel] = "offline",
    replace: Mapping[type[Any], Any] | None = None,
    decide: Mapping[str, Answer] | None = None,
    answers: Mapping[str, GivenAnswers] | None = None,
    signals: Mapping[str, Sequence[Any]] | None = None,
    principal: Principal = SOMEBODY,
    conversation: AgentRun | None = None,
    files: Mapping[str, bytes] | None = None,
    package: str | None = None,
    hooks: Sequence[Any] = (),
    memories: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    timeout: float = 30.0,
) -> AgentRun:
    """Send a message to an agent, execute the run to its end, and return all that was recorded of it.

    The run is a real one: with the engine, the steps and a store of its own, which is deleted when the result is not
    used any more. Nothing is read of the environment, and no provider is asked. When all that the run waits for is a
    time, as in `ctx.sleep`, the clock jumps to it.

    Args:
        agent: The agent's class; its name on the wire does together with `package`.
        message: What the person says.
        model: Answers: a `ScriptedModel` or another model object; the offline model by default. Its connections are
            closed at the end. A mapping by the agent's name gives each agent that is asked its own.
        replace: Instances by type, in place of singletons, of what is provided, also per call, and of settings.
        decide: Answers to approvals by tool, its own and those of agents that it asks: `"approve"`, `"decline"`,
            `("decline", "the reason")`, a dict of edited arguments, or a function that takes `Asked` and returns one of
            these.
        answers: Answers to questions by tool: JSON values, one after the other, or a function that takes
            `AskedQuestion` and returns one; `TimeoutError` when nobody answers.
        signals: Payloads of signals by name, sent at the start: `wait_for` takes them one after the other, in the
            tools of agents that it asks too.
        principal: Who asks; a user of the app by a plain id, as from a sign-in, or one with its channel.
        conversation: An earlier result; the message goes on with its conversation.
        files: Files that the person sends with the message, by name; the id of `table.csv` is `file_table_csv`.
        package: The app's package, such as `app`: all of its modules are searched, as at a start. Without it the
            agent's own tools are there, with what they ask for.
        hooks: Functions and singletons with `@before_model`, `@redact` and the like; those of a package are found.
        memories: What is remembered of who asks when the run begins, by key.
        settings: By key, such as `{"ai.runs.parallel-calls": 1}`.
        timeout: Seconds for the whole run.

    Raises:
        AssertionError: an approval or a question has no answer, the script came to its end, the model would have been
            refused by a real provider, or the run did not end in time.
        RuntimeError: an event loop runs in this thread; await `arun_agent` there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("run_agent() blocks, and an event loop runs in this thread: use `await arun_agent(...)`")
    return asyncio.run(
        arun_agent(
            agent,
            message,
            model=model,
            replace=replace,
            decide=decide,
            answers=answers,
            signals=signals,
            principal=principal,
            conversation=conversation,
            files=files,
            package=package,
            hooks=hooks,
            memories=memories,
            settings=settings,
            timeout=timeout,
        )
    )


async def arun_agent(
    agent: type[Any] | str,
    message: str,
    *,
    model: AnyModel | Mapping[str, AnyModel] = "offline",
    replace: Mapping[type[Any], Any] | None = None,
    decide: Mapping[str, Answer] | None = None,
    answers: Mapping[str, GivenAnswers] | None = None,
    signals: Mapping[str, Sequence[Any]] | None = None,
    principal: Principal = SOMEBODY,
    conversation: AgentRun | None = None,
    files: Mapping[str, bytes] | None = None,
    package: str | None = None,
    hooks: Sequence[Any] = (),
    memories: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    timeout: float = 30.0,
) -> AgentRun:
    """Do the same as `run_agent` in a test that has an event loop."""
    principal = placed_by_code(principal)
    replaced = dict(replace or {})
    declarations = declarations_of(agent, package, replaced.keys(), hooks)
    definition = agent_of(declarations, agent)
    asked = agents_asked(declarations, definition)
    decisions = Decisions(decide or {}, asked, principal)
    answering = Answering(answers or {}, signals or {}, asked, principal)
    recording = RecordingModels(model, declarations.catalog.agents, [one.name for one in asked])
    scene = SCENE.get()
    scratch: Scratch | None = None
    if scene is not None:
        store, wrap, key, own = scene.store, scene.wrap_store, scene.next_key(), _CRASH_LEASE
    else:
        scratch = (conversation.scratch if conversation else None) or Scratch()
        store, wrap, key, own = scratch.folder / "ai", None, None, {}
    wanted = settings_of_test(store.parent, store, {**own, **(settings or {})})
    clock = JumpingClock(store.parent / f"{store.name}.ahead")
    stand_ins = StandIns(model=recording.by_agent, instances=replaced, wrap_store=wrap, clock=clock)
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    try:
        async with open_parts(wanted, declarations, stand_ins) as runtime:
            for name, text in (memories or {}).items():
                await runtime.engine.memories.remember(principal, text, key=name)
            submitted = await runtime.engine.submit(
                definition.name,
                message,
                principal=principal,
                conversation_id=None if conversation is None else conversation.run.conversation_id,
                idempotency_key=key,
                files=await bring_files(runtime.engine, files or {}, principal),
            )
            await answering.send_signals(runtime.engine, submitted.run.id)
            passing = PassingTime(runtime, clock, submitted.run.id, principal, answering)
            case = _Case(runtime, submitted.run.id, principal, decisions, answering, passing, timeout)
            events = await case.follow()
            recording.check()
            run = await runtime.engine.get_run(submitted.run.id, principal)
            messages = await _all_messages(runtime.engine, run.conversation_id, principal)
            mine = [message for message in messages if message.run_id == run.id]
            saved = await saved_files(runtime.engine, mine, principal)
            children = await read_children(runtime, mine, principal, recording)
    finally:
        loop.set_task_factory(factory)
    return AgentRun(
        run=run,
        events=tuple(map(event_record, events)),
        messages=message_records(messages),
        requests=tuple(recording.by_agent[definition.name].requests),
        model_failures=tuple(recording.by_agent[definition.name].failures),
        files=saved,
        children=children,
        first_message=next((n for n, one in enumerate(messages) if one.run_id == run.id), 0),
        scratch=scratch,
    )


class _Case:
    """One run of a test, from its submission to its end."""

    def __init__(
        self,
        runtime: Runtime,
        run_id: str,
        principal: Principal,
        decisions: Decisions,
        answering: Answering,
        passing: PassingTime,
        timeout: float,
    ) -> None:
        self._engine = runtime.engine
        self._run_id = run_id
        self._principal = principal
        self._decisions = decisions
        self._answering = answering
        self._passing = passing
        self._timeout = timeout
        self._events: list[Event] = []

    async def follow(self) -> list[Event]:
        """Return the events up to the last one of the run, deciding on the way; cancel the run when that fails."""
        passing = asyncio.get_running_loop().create_task(self._passing.pass_by())
        try:
            async with asyncio.timeout(self._timeout) as limit:
                async for events in await self._engine.follow(self._principal, run_id=self._run_id):
                    self._events.extend(events)
                    self._passing.waits.clear()
                    await self._decisions.answer(self._engine, events)
                    await self._answering.answer(self._engine, events)
                    if any(event.type is EventType.RUN_WAITING for event in events):
                        self._passing.waits.set()
        except BaseException as error:
            doing = await self._doing() if isinstance(error, TimeoutError) and limit.expired() else None
            await self._engine.cancel(self._run_id, self._principal)
            if doing is not None:
                raise AssertionError(doing) from None
            raise
        finally:
            passing.cancel()
        return self._events

    async def _doing(self) -> str:
        run = await self._engine.get_run(self._run_id, self._principal)
        messages = await _all_messages(self._engine, run.conversation_id, self._principal)
        lines = [f"the run of {run.agent!r} did not end in {self._timeout:g} s; it is {run.status.value}"]
        calls = (call for message in messages for call in message.calls if not call.status.settled)
        lines += [f"the call {call.tool!r} with {call.arguments} is {call.status.value}" for call in calls]
        lines += [f"it waits for: {one.kind} {one.tool or ''}".rstrip() for one in run.waiting_for]
        lines += [f"event: {event.type.label} {dict(event.data)!r}" for event in self._events[-_LAST_EVENTS:]]
        return "\n  ".join(lines)


async def _all_messages(engine: Engine, conversation_id: str, principal: Principal) -> list[Message]:
    found: list[Message] = []
    cursor: str | None = None
    while True:
        page = await engine.read_conversation(conversation_id, principal, limit=100, cursor=cursor)
        found = [*page.messages.items, *found]
        cursor = page.messages.next_cursor
        if cursor is None:
            return found
