"""From runs to tasks: a task is a run, its context the conversation, its one artifact the answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from a2a.types import a2a_pb2 as wire
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct

from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import NotFound
from amoxi_py.ports.records import RecordStore
from amoxi_py.surfaces.a2a.contexts import Contexts
from amoxi_py.surfaces.a2a.kept_answers import answers_of
from amoxi_py.surfaces.a2a.open_things import KINDS, SOMEBODY_ELSE, OpenThing, asking_parts, open_things
from amoxi_py.surfaces.a2a.parts import data_part, file_part, file_url, message_of_agent, text_part
from amoxi_py.surfaces.file_contents import file_contents

ANSWER = "answer"
"""The id of the artifact."""
FINAL = frozenset({wire.TASK_STATE_COMPLETED, wire.TASK_STATE_FAILED, wire.TASK_STATE_CANCELED})
SETTLED = FINAL | {wire.TASK_STATE_INPUT_REQUIRED}
"""Where nothing goes on without somebody outside."""
_TASK_ID = re.compile(r"run_[0-9a-f]{26}")
_STATES = {
    RunStatus.QUEUED: wire.TASK_STATE_SUBMITTED,
    RunStatus.RUNNING: wire.TASK_STATE_WORKING,
    RunStatus.WAITING: wire.TASK_STATE_WORKING,
    RunStatus.COMPLETED: wire.TASK_STATE_COMPLETED,
    RunStatus.FAILED: wire.TASK_STATE_FAILED,
    RunStatus.CANCELLED: wire.TASK_STATE_CANCELED,
}
_FAILED = "The agent failed."


def state_of(run: Run) -> wire.TaskState:
    """Return the state of a run's task; one that has begun and waits for a worker again is still working."""
    if run.status is RunStatus.WAITING and any(waiting.kind in KINDS for waiting in run.waiting_for):
        return wire.TASK_STATE_INPUT_REQUIRED
    if run.status is RunStatus.QUEUED and run.attempt > 0:
        return wire.TASK_STATE_WORKING
    return _STATES[run.status]


def moved_at(run: Run) -> float:
    """Return when a run came to its status."""
    return run.updated_at if run.status_at is None else run.status_at


def timestamp(seconds: float) -> Timestamp:
    """Return a time as the protocol has it, in whole milliseconds."""
    stamp = Timestamp()
    stamp.FromMilliseconds(round(seconds * 1000))
    return stamp


def seconds_of(stamp: Timestamp) -> float:
    """Return a time of the protocol in seconds since 1970."""
    found = stamp.ToDatetime(tzinfo=UTC)
    assert isinstance(found, datetime), "the library's own type"
    return found.timestamp()


class Place(Struct, frozen=True, kw_only=True):
    """Where a message belongs, by the ids that its caller knows."""

    task_id: str
    context_id: str


class Tasks:
    """Makes tasks of runs.

    Attributes:
        contexts: Of the tasks.
    """

    def __init__(self, engine: Engine, records: RecordStore) -> None:
        self.contexts = Contexts(engine, records)
        self._engine = engine
        self._records = records

    async def find(self, task_id: str, principal: Principal) -> Run:
        """Return the run of a caller's task; raise `NotFound` for anything else, whatever it is."""
        if not _TASK_ID.fullmatch(task_id):
            raise NotFound("run", task_id)
        run = await self._engine.get_run(task_id, principal)
        if run.root_id is not None or run.principal.owner_key != principal.owner_key:
            raise NotFound("run", task_id)
        return run

    async def of(
        self,
        run: Run,
        principal: Principal,
        *,
        history_length: int | None = None,
        artifacts: bool = True,
        base: str,
        note: str | None = None,
    ) -> wire.Task:
        """Return a run as a task.

        Args:
            run: The run, as it is now.
            principal: Whose it is.
            history_length: How many of its last messages to give; None for all.
            artifacts: Whether to give the answer.
            base: Where this server is, for links to files.
            note: Why nothing comes of the caller's last message for now.
        """
        messages: Sequence[Message] = ()
        if history_length != 0 or (artifacts and run.attempt > 0):
            messages = await self._engine.messages_of(run.id, principal, calls=False)
        things = await open_things(self._engine, run, principal) if _asks(run) else ()
        note = note or await self.held_up_by(run, principal)
        place = await self.place_of(run)
        artifact = await self._artifacts(run, messages, principal, base) if artifacts else ()
        if history_length != 0:
            messages = await self.with_answers(run, messages)
        return wire.Task(
            id=run.id,
            context_id=place.context_id,
            status=status_of(place, run, state_of(run), things, note, stamped=True),
            artifacts=artifact,
            history=history_of(place, messages, history_length, base),
        )

    async def held_up_by(self, run: Run, principal: Principal) -> str | None:
        """Return why a task cannot begin yet: an earlier one of its context asks something, of its caller or not.

        Many clients forget the taskId when they answer, and would wait for ever.
        """
        if state_of(run) != wire.TASK_STATE_SUBMITTED:
            return None
        asking = await self._engine.asking_before(run, principal)
        if asking is None:
            return None
        mine = any(thing.yours for thing in await open_things(self._engine, asking, principal))
        way_out = "answer it by its taskId" if mine else SOMEBODY_ELSE
        return f"this begins when the task {asking.id} has ended, which requires input: {way_out}"

    async def place_of(self, run: Run) -> Place:
        """Return what every message of a run's task names."""
        return Place(task_id=run.id, context_id=await self.contexts.id_of(run.conversation_id))

    async def with_answers(self, run: Run, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages of a run with those by which its caller has answered it, in their order."""
        answers = await answers_of(self._records, run)
        return sorted([*messages, *answers], key=lambda message: message.created_at) if answers else messages

    async def results(self, run: Run, files: Sequence[str], principal: Principal, base: str) -> list[wire.Part]:
        """Return what a completed run has beside its text: the typed result, and files that it shows."""
        if run.status is not RunStatus.COMPLETED:
            return []
        result = [] if run.result is None else [data_part(decode_json(run.result))]
        contents = await file_contents(self._engine.files, files, principal) if files else ()
        return [*result, *(file_part(stored, data, base) for stored, data in contents)]

    async def _artifacts(
        self, run: Run, messages: Sequence[Message], principal: Principal, base: str
    ) -> tuple[wire.Artifact, ...]:
        replies = [message for message in messages if message.role == "assistant"]
        said = next((message.text for message in reversed(replies) if message.text), "")
        text = run.output if run.status is RunStatus.COMPLETED and run.output else said
        files = [file_id for message in replies for file_id in message.files]
        parts = [*([text_part(text)] if text else ()), *await self.results(run, files, principal, base)]
        return (answer(parts),) if parts else ()


def answer(parts: Sequence[wire.Part]) -> wire.Artifact:
    """Return the artifact that the outputs of a task are in."""
    return wire.Artifact(artifact_id=ANSWER, name=ANSWER, parts=parts)


def status_of(
    place: Place,
    run: Run,
    state: wire.TaskState,
    things: Sequence[OpenThing] = (),
    note: str | None = None,
    *,
    stamped: bool,
) -> wire.TaskStatus:
    """Return the status of a task; without a stamp where the time is not known to every reader of it."""
    parts: list[wire.Part] = []
    if state == wire.TASK_STATE_INPUT_REQUIRED:
        parts = asking_parts(things, note)
    elif state == wire.TASK_STATE_FAILED:
        parts = [text_part(_FAILED if run.error is None else run.error.message)]
    elif note is not None and state == wire.TASK_STATE_SUBMITTED:
        parts = [text_part(note)]
    return wire.TaskStatus(
        state=state,
        message=message_of_agent(place.task_id, place.context_id, _id_of(run, parts), parts) if parts else None,
        timestamp=timestamp(moved_at(run)) if stamped else None,
    )


def history_of(place: Place, messages: Sequence[Message], length: int | None, base: str) -> list[wire.Message]:
    """Return the last messages of a run: what was said, not what an answer holds beside that."""
    if length == 0:
        return []
    told = [_message(place, message, base) for message in messages if message.text or message.files]
    return told if length is None else told[-length:]


def _message(place: Place, message: Message, base: str) -> wire.Message:
    files = [wire.Part(url=file_url(file_id, base)) for file_id in message.files]
    return wire.Message(
        message_id=message.id,
        context_id=place.context_id,
        task_id=place.task_id,
        role=wire.ROLE_USER if message.role == "user" else wire.ROLE_AGENT,
        parts=[*([text_part(message.text)] if message.text else ()), *files],
    )


def _asks(run: Run) -> bool:
    return state_of(run) == wire.TASK_STATE_INPUT_REQUIRED


def _id_of(run: Run, parts: Sequence[wire.Part]) -> str:
    """Return an id that the same words about a run always have."""
    digest = hashlib.blake2s(run.id.encode(), digest_size=13)
    for part in parts:
        digest.update(part.SerializeToString(deterministic=True))
    return f"status_{digest.hexdigest()}"
