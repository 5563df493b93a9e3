"""A task as its run's log tells it: each event in, what a reader of the task is told out.

It knows nothing but the events, so all readers of a task are told the same, in the same order, on every server.
"""

from __future__ import annotations

from collections.abc import Sequence

from a2a.types import a2a_pb2 as wire
from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.domain.approval import OWNER
from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, Waiting
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.engine.engine import Engine
from amoxi_py.surfaces.a2a.open_things import OpenThing
from amoxi_py.surfaces.a2a.parts import text_part
from amoxi_py.surfaces.a2a.tasks import FINAL, Place, Tasks, answer, history_of, status_of

Update = wire.Task | wire.TaskStatusUpdateEvent | wire.TaskArtifactUpdateEvent
Told = tuple[int, Update]
"""What a reader is told, and the number of the log up to which it has been told all by that."""

_RUNS = frozenset({EventType.RUN_STARTED, EventType.RUN_RESUMED})
_ENDS = {
    EventType.RUN_COMPLETED: wire.TASK_STATE_COMPLETED,
    EventType.RUN_FAILED: wire.TASK_STATE_FAILED,
    EventType.RUN_CANCELLED: wire.TASK_STATE_CANCELED,
}
_GIVEN = frozenset({EventType.APPROVAL_DECIDED, EventType.QUESTION_ANSWERED, EventType.QUESTION_CLOSED})


class _Chunk(Struct, frozen=True, kw_only=True):
    """Text of the answer that no reader has been told yet."""

    text: str
    append: bool
    seq: int


class Fold:
    """What has become of a task so far.

    Attributes:
        run: The run, as it was read last.
        state: Of the task.
    """

    def __init__(
        self,
        engine: Engine,
        tasks: Tasks,
        run: Run,
        place: Place,
        principal: Principal,
        base: str,
        *,
        for_snapshot: bool,
    ) -> None:
        self.run = run
        self._place = place
        self._answered = False
        self.state: wire.TaskState = wire.TASK_STATE_SUBMITTED
        self._engine, self._tasks = engine, tasks
        self._principal, self._base = principal, base
        self._paused = False
        self._open: dict[tuple[str, int], OpenThing] = {}
        self._history: list[Message] | None = [] if for_snapshot else None
        self._files: list[str] = []
        self._said = ""
        self._reply: str | None = None
        self._held: _Chunk | None = None

    async def snapshot(self, history_length: int | None) -> wire.Task:
        """Return the task with all that the events so far tell; a reader who has it has been told what is held back."""
        history: Sequence[Message] = self._history or ()
        self._history, self._held = None, None
        if self.state in FINAL:
            return await self._tasks.of(self.run, self._principal, history_length=history_length, base=self._base)
        if self._answered and history_length != 0:
            history = await self._tasks.with_answers(self.run, history)
        self.run = await self._engine.get_run(self.run.id, self._principal)  # its time is not before what is told
        note = None
        if self.state == wire.TASK_STATE_SUBMITTED:
            note = await self._tasks.held_up_by(self.run, self._principal)
        return wire.Task(
            id=self.run.id,
            context_id=self._place.context_id,
            status=status_of(self._place, self.run, self.state, self._things(), note, stamped=True),
            artifacts=(answer([text_part(self._said)]),) if self._said else (),
            history=history_of(self._place, history, history_length, self._base),
        )

    async def skip(self, event: Event) -> None:
        """Take an event whose readers have been told of it."""
        await self._note(event)
        self._held = None

    async def take(self, event: Event) -> list[Told]:
        """Take the next event; return what a reader is told."""
        state, things = self.state, self._things()
        chunk = self._held if self._holds_no_more(event) else None
        if chunk is not None:
            self._held = None
        await self._note(event)
        told: list[Told] = []
        if chunk is not None:
            told.append((chunk.seq, self._artifact(chunk)))
        if event.type in _ENDS:
            told += [(event.seq - 1, last) for last in await self._last()]
        changed = state != self.state or (self.state == wire.TASK_STATE_INPUT_REQUIRED and things != self._things())
        if changed:
            told.append((event.seq, self._status()))
        return told

    async def _note(self, event: Event) -> None:
        kind, data = event.type, event.data
        if kind is EventType.MESSAGE_DELTA:
            self._add(str(data["message_id"]), int(data["offset"]), str(data["text"]), event.seq)
        elif kind is EventType.MESSAGE_COMPLETED and isinstance(event.subject, Message):
            self._complete(event.subject, event.seq)
        elif kind is EventType.MESSAGE_DISCARDED and data["message_id"] == self._reply:
            self._reply, self._said, self._held = None, "", None
        elif kind in _RUNS:
            self._paused = False
        elif kind is EventType.RUN_WAITING:
            self._paused = True
        elif kind is EventType.APPROVAL_REQUESTED or kind is EventType.QUESTION_ASKED:
            await self._ask(event)
        elif kind in _GIVEN or kind is EventType.TOOL_COMPLETED:
            self._answered |= kind in _GIVEN
            self._close(event)
        elif kind in _ENDS:
            self.run = await self._engine.get_run(self.run.id, self._principal)
        self.state = self._state(event)

    def _state(self, event: Event) -> wire.TaskState:
        if event.type in _ENDS:
            return _ENDS[event.type]
        if self._paused:
            return wire.TASK_STATE_INPUT_REQUIRED if self._open else wire.TASK_STATE_WORKING
        if event.type in _RUNS or self.state == wire.TASK_STATE_INPUT_REQUIRED:
            return wire.TASK_STATE_WORKING
        return self.state

    # -- what the task waits for

    async def _ask(self, event: Event) -> None:
        call, data = event.subject, event.data
        if not isinstance(call, ToolCall):
            return
        if event.type is EventType.QUESTION_ASKED:
            schema = None if data.get("schema") is None else encode_json(data["schema"])
            until = None if call.wait is None else call.wait.until
            thing = OpenThing(
                waiting=Waiting(
                    kind="question",
                    call_id=call.id,
                    tool=call.tool,
                    name=str(data["question"]),
                    schema=schema,
                    k=data["k"],
                    expires_at=until,
                ),
                yours=True,
            )
        elif call.approval is not None:
            waiting = Waiting(
                kind="approval",
                call_id=call.id,
                tool=call.tool,
                arguments=call.arguments,
                expires_at=call.approval.expires_at,
            )
            yours = call.approval.approver == OWNER or await self._engine.may_decide(call.id, self._principal)
            thing = OpenThing(waiting=waiting, yours=yours)
        else:
            return
        self._open[thing.order] = thing

    def _close(self, event: Event) -> None:
        """Take note that something waits no more; what was given to a call of the run itself wakes it."""
        call_id, k = str(event.data["call_id"]), event.data.get("k")
        for order in [order for order in self._open if order[0] == call_id and (k is None or order[1] == k)]:
            del self._open[order]
        if event.type in _GIVEN and event.source is None:
            self._paused = False

    def _things(self) -> tuple[OpenThing, ...]:
        return tuple(self._open[order] for order in sorted(self._open))

    # -- the answer

    def _add(self, reply: str, offset: int, text: str, seq: int) -> None:
        if offset == 0:
            self._reply, self._said = reply, ""
        elif reply != self._reply or offset != len(self._said):
            return  # its beginning is not known here; the whole reply follows
        self._said += text
        self._held = _Chunk(text=text, append=offset > 0, seq=seq)

    def _complete(self, message: Message, seq: int) -> None:
        if self._history is not None:
            self._history.append(replace(message, calls=()))
        if message.role == "user":
            return
        self._files += [file_id for file_id in message.files if file_id not in self._files]
        streamed = self._said if self._reply == message.id else None
        self._reply = None
        if not message.text or message.text == streamed:
            return
        if streamed and message.text.startswith(streamed):
            rest = message.text.removeprefix(streamed)
            held = self._held
            text, append = (rest, True) if held is None else (held.text + rest, held.append)
        else:
            text, append = message.text, False
        self._said, self._held = message.text, _Chunk(text=text, append=append, seq=seq)

    def _holds_no_more(self, event: Event) -> bool:
        """Whether an event shows that the text that is held back was not the last of the answer.

        A whole reply shows it when it asks for tools, or is another one.
        """
        if event.type in _ENDS or event.type is EventType.MESSAGE_DISCARDED:
            return False
        if event.type is EventType.MESSAGE_COMPLETED and isinstance(event.subject, Message):
            return bool(event.subject.calls) and event.subject.text == self._said
        return True

    async def _last(self) -> list[Update]:
        """Return the whole answer, if there is one, with what else it holds.

        There are clients that show the pieces of an answer and keep its last part alone.
        """
        more = await self._tasks.results(self.run, self._files, self._principal, self._base)
        held, self._held = self._held, None
        if self.state == wire.TASK_STATE_COMPLETED:
            self._said = self.run.output or self._said
        elif held is None:
            return []
        parts = [*([text_part(self._said)] if self._said else ()), *more]
        return [self._update(answer(parts), append=False, last=True)] if parts else []

    def _artifact(self, chunk: _Chunk) -> Update:
        return self._update(answer([text_part(chunk.text)]), append=chunk.append, last=False)

    def _update(self, artifact: wire.Artifact, *, append: bool, last: bool) -> Update:
        return wire.TaskArtifactUpdateEvent(
            task_id=self.run.id,
            context_id=self._place.context_id,
            artifact=artifact,
            append=append,
            last_chunk=last,
        )

    def _status(self) -> Update:
        """Return the status; only that of an ended run has a time, which the log does not tell of the others."""
        status = status_of(self._place, self.run, self.state, self._things(), stamped=self.state in FINAL)
        return wire.TaskStatusUpdateEvent(task_id=self.run.id, context_id=self._place.context_id, status=status)
