"""`run_agent`: one message to an agent on a store of its own, followed to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.domain.event import Event
from amoxi_py.domain.message import Message
from amoxi_py.domain.placing import placed_by_code
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import ModelFailed
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.chat_model import ChatModel, ModelRequest, Reply, TextDelta
from amoxi_py.testing.agent_run import AgentRun, event_record, message_records
from amoxi_py.testing.app_under_test import (
    AnyModel,
    agent_of,
    declarations_of,
    model_of_test,
    open_parts,
    settings_of_test,
)
from amoxi_py.testing.decisions import Answer, Decisions
from amoxi_py.testing.files import bring_files, saved_files
from amoxi_py.testing.scene import SCENE, Scratch

SOMEBODY = Principal(id="user:test", name="Test", channel="code")
_CRASH_LEASE = {"ai.runs.lease-ms": 600}
_LAST_EVENTS = 5


def run_agent(
    agent: type[Any] | str,
    message: str,
    *,
    model: AnyModel = "offline",
    replace: Mapping[type[Any], Any] | None = None,
    decide: Mapping[str, Answer] | None = None,
    principal: Principal = SOMEBODY,
    conversation: AgentRun | None = None,
    files: Mapping[str, bytes] | None = None,
    package: str | None = None,
    settings: Mapping[str, Any] | None = None,
    timeout: float = 30.0,
) -> AgentRun:
    """Send a message to an agent, execute the run to its end, and return all that was recorded of it.

    The run is a real one: with the engine, the steps and a store of its own, which is deleted when the result is not
    used any more. Nothing is read of the environment, and no provider is asked.

    Args:
        agent: The agent's class; its name on the wire does together with `package`.
        message: What the person says.
        model: Answers: a `ScriptedModel` or another model object; the offline model by default. Its connections are
            closed at the end.
        replace: Instances by type, in place of singletons, of what is provided, also per call, and of settings.
        decide: Answers to approvals by tool: `"approve"`, `"decline"`, `("decline", "the reason")`, a dict of edited
            arguments, or a function that takes `Asked` and returns one of these.
        principal: Who asks; a user of the app by a plain id, as from a sign-in, or one with its channel.
        conversation: An earlier result; the message goes on with its conversation.
        files: Files that the person sends with the message, by name; the id of `table.csv` is `file_table_csv`.
        package: The app's package, such as `app`: all of its modules are searched, as at a start. Without it the
            agent's own tools are there, with what they ask for.
        settings: By key, such as `{"ai.runs.parallel-calls": 1}`.
        timeout: Seconds for the whole run.

    Raises:
        AssertionError: an approval has no answer, the script came to its end, the model would have been refused by a
            real provider, or the run did not end in time.
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
            principal=principal,
            conversation=conversation,
            files=files,
            package=package,
            settings=settings,
            timeout=timeout,
        )
    )


async def arun_agent(
    agent: type[Any] | str,
    message: str,
    *,
    model: AnyModel = "offline",
    replace: Mapping[type[Any], Any] | None = None,
    decide: Mapping[str, Answer] | None = None,
    principal: Principal = SOMEBODY,
    conversation: AgentRun | None = None,
    files: Mapping[str, bytes] | None = None,
    package: str | None = None,
    settings: Mapping[str, Any] | None = None,
    timeout: float = 30.0,
) -> AgentRun:
    """Do the same as `run_agent` in a test that has an event loop."""
    principal = placed_by_code(principal)
    replaced = dict(replace or {})
    declarations = declarations_of(agent, package, replaced.keys())
    definition = agent_of(declarations, agent)
    decisions = Decisions(decide or {}, definition, principal)
    recording = RecordingModel(model_of_test(model))
    scene = SCENE.get()
    scratch: Scratch | None = None
    if scene is not None:
        store, wrap, key, own = scene.store, scene.wrap_store, scene.next_key(), _CRASH_LEASE
    else:
        scratch = (conversation.scratch if conversation else None) or Scratch()
        store, wrap, key, own = scratch.folder / "ai", None, None, {}
    wanted = settings_of_test(store.parent, store, {**own, **(settings or {})})
    stand_ins = StandIns(model=recording, instances=replaced, wrap_store=wrap)
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    try:
        async with open_parts(wanted, declarations, stand_ins) as runtime:
            submitted = await runtime.engine.submit(
                definition.name,
                message,
                principal=principal,
                conversation_id=None if conversation is None else conversation.run.conversation_id,
                idempotency_key=key,
                files=await bring_files(runtime.engine, files or {}, principal),
            )
            case = _Case(runtime, submitted.run.id, principal, decisions, timeout)
            events = await case.follow()
            recording.check()
            run = await runtime.engine.get_run(submitted.run.id, principal)
            messages = await _all_messages(runtime.engine, run.conversation_id, principal)
            mine = [message for message in messages if message.run_id == run.id]
            saved = await saved_files(runtime.engine, mine, principal)
    finally:
        loop.set_task_factory(factory)
    return AgentRun(
        run=run,
        events=tuple(map(event_record, events)),
        messages=message_records(messages),
        requests=tuple(recording.requests),
        model_failures=tuple(recording.failures),
        files=saved,
        first_message=next((n for n, one in enumerate(messages) if one.run_id == run.id), 0),
        scratch=scratch,
    )


class RecordingModel:
    """Stands before a model and keeps what it was asked and how it failed."""

    def __init__(self, model: ChatModel) -> None:
        self.requests: list[ModelRequest] = []
        self.failures: list[str] = []
        self._model = model
        self._refused_before = len(model.refused) if isinstance(model, ScriptedModel) else 0

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        self.requests.append(request)
        try:
            async with aclosing(self._model.stream(request)) as pieces:  # type: ignore[type-var]  # all are generators
                async for piece in pieces:
                    yield piece
        except ModelFailed as error:
            self.failures.append(str(error))
            raise

    async def aclose(self) -> None:
        """Close the model's connections, which belong to the event loop of this run."""
        close = getattr(self._model, "aclose", None)
        if close is not None:
            await close()

    def check(self) -> None:
        """Raise `AssertionError` when a scripted model was asked what its script or a real provider does not take."""
        if isinstance(self._model, ScriptedModel):
            refused = self._model.refused[self._refused_before :]
            if refused:
                raise AssertionError("the scripted model refused: " + "; ".join(refused))


class _Case:
    """One run of a test, from its submission to its end."""

    def __init__(
        self, runtime: Runtime, run_id: str, principal: Principal, decisions: Decisions, timeout: float
    ) -> None:
        self._engine = runtime.engine
        self._run_id = run_id
        self._principal = principal
        self._decisions = decisions
        self._timeout = timeout
        self._events: list[Event] = []

    async def follow(self) -> list[Event]:
        """Return the events up to the last one of the run, deciding on the way; cancel the run when that fails."""
        try:
            async with asyncio.timeout(self._timeout) as limit:
                async for events in await self._engine.follow(self._principal, run_id=self._run_id):
                    self._events.extend(events)
                    await self._decisions.answer(self._engine, events)
        except BaseException as error:
            doing = await self._doing() if isinstance(error, TimeoutError) and limit.expired() else None
            await self._engine.cancel(self._run_id, self._principal)
            if doing is not None:
                raise AssertionError(doing) from None
            raise
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
