"""A message becomes a run: idempotency key first, then the conversation, then what is busy in it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.domain.event import EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import Lease, Run, RunRows, RunStatus
from amoxi_py.errors import Conflict, NotFound, TooMany
from amoxi_py.ports.store import OnBusy, Submission, Submitted
from amoxi_py.stores.sql.admission import Admission
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.cancel import end_run, hold_now
from amoxi_py.stores.sql.files import keys_of_files, use_files
from amoxi_py.stores.sql.log import queued_data
from amoxi_py.stores.sql.rows import call_row, json_rows, load_leased_runs, principal_facts
from amoxi_py.stores.sql.times import KEY_LIFE_MS, seconds
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.views import load_run

TITLE_LENGTH = 80
_SCOPE = "scope:"  # no agent's name has a colon


class _Place(Struct, frozen=True, kw_only=True):
    """Where a submission's run goes: `busy` when an earlier run is open, `held_until` while a cancelled one may be."""

    submission: Submission
    conversation: int
    begun: bool = False
    busy: bool = False
    held_until: int | None = None


class _Known(Struct, frozen=True):
    """What is there of a submission: its run, and its conversation (by key), perhaps with a run that is open."""

    run: bool
    conversation: int | None
    principal: str
    agent: str
    last_seq: int
    held_until: int | None
    busy: bool

    def place_of(self, batch: Batch, one: Submission) -> _Place | None:
        """Return the place in the conversation, if it is the submission's and nothing is going on in it."""
        owned = (self.principal, self.agent) == (one.principal.owner_key, one.agent)
        if self.conversation is None or self.busy or not owned or hold_now(batch, self.held_until) is not None:
            return None
        batch.knows_last_seq(self.conversation, self.last_seq)
        return _Place(submission=one, conversation=self.conversation)


def submit_new(
    batch: Batch, submissions: Sequence[Submission], admission: Admission
) -> list[Submitted | TooMany | None]:
    """Store, together, the submissions that nothing else bears on, and refuse what is too much.

    Those that need `submit` get None.
    """
    known = {row[0]: _Known(*row[1:]) for row in batch.tx.rows("known_submissions", rows=places_of(submissions))}
    begins: list[int] = []
    goes_on: dict[int, _Place] = {}
    met: set[str] = set()  # a second message of a conversation, and one after a harder case, have something before them
    answers: list[Submitted | TooMany | None] = [None] * len(submissions)
    for place, one in enumerate(submissions):
        found = known.get(place)
        plain = not one.files and one.conversation_id not in met
        met.add(one.conversation_id)
        if one.idempotency_key is not None or (found is not None and found.run):  # its run may be there
            continue
        idle = found.place_of(batch, one) if found is not None and plain else None
        principal = one.principal.owner_key
        answers[place] = refusal = admission.refusal(principal, replaces=idle is None and one.may_replace)
        if refusal is not None:
            continue
        if idle is not None:
            admission.take(principal)
            goes_on[place] = idle
        elif plain and found is None and one.new_conversation:
            admission.take(principal)
            begins.append(place)
    begun = _start_conversations(batch, [submissions[place] for place in begins]) if begins else []
    simple = {**goes_on, **dict(zip(begins, begun, strict=True))}
    if simple:
        for place, answer in zip(simple, _store(batch, list(simple.values())), strict=True):
            answers[place] = answer
    return answers


def places_of(submissions: Sequence[Submission]) -> str:
    """Return the ids that `known_submissions` looks for."""
    return json_rows((one.run_id, one.conversation_id) for one in submissions)


def key_scope(submission: Submission) -> str:
    """Return what a submission's idempotency key is unique in, for its principal."""
    return submission.agent if submission.key_scope is None else _SCOPE + submission.key_scope


def knows_key(tx: Transaction, submission: Submission, now: int) -> bool:
    """Whether a run is known under a submission's key."""
    return submission.idempotency_key is not None and _find_key(tx, submission, now) is not None


def submit(batch: Batch, submission: Submission, admission: Admission) -> Submitted:
    """Store a message and its run, claimed at once where that is asked for and nothing is before it."""
    rows = batch.tx.rows("run_of_submission", id=submission.run_id)
    if rows:
        return _stored_before(batch, submission, *rows[0])
    repeated = _run_of_key(batch, submission)
    if repeated is not None:
        return repeated
    principal = submission.principal.owner_key
    replaces = bool(batch.limits.runs_at_once) and _replaces(batch, submission)
    refusal = admission.refusal(principal, replaces=replaces)
    if refusal is not None:
        raise refusal
    files = keys_of_files(batch.tx, submission.files, submission.principal) if submission.files else []
    conversation = _find_conversation(batch, submission)
    if conversation is None:
        admission.take(principal)
        (place,) = _start_conversations(batch, [submission])
        use_files(batch, files, place.conversation)
        return _store(batch, [place])[0]
    busy = _make_room(batch, conversation, submission.on_busy)
    admission.take(principal, replaces=replaces)
    use_files(batch, files, conversation)
    held_until = hold_now(batch, batch.tx.rows("conversation_to_extend", id=submission.conversation_id)[0][4])
    place = _Place(submission=submission, conversation=conversation, busy=busy, held_until=held_until)
    return _store(batch, [place])[0]


def _stored_before(batch: Batch, submission: Submission, run: int, worker: int | None, status: str) -> Submitted:
    batch.flush()
    rows = None
    if status == RunStatus.RUNNING and submission.claim_by is not None and submission.claim_by.key == worker:
        rows = load_leased_runs(batch.tx, [run])[run]
    return Submitted(run=load_run(batch.tx, run), rows=rows)


def _run_of_key(batch: Batch, submission: Submission) -> Submitted | None:
    """Look the key up; a key whose run was erased is refused, because the work was done and cannot be shown."""
    name = submission.idempotency_key
    found = None if name is None else _find_key(batch.tx, submission, batch.now)
    if found is None:
        return None
    digest, run_id = found
    if digest != submission.digest:
        raise Conflict(
            f"idempotency key {name!r} was used with another request; use a new key", code="idempotency_key_reused"
        )
    runs = batch.tx.rows("run_of_submission", id=run_id)
    if not runs:
        raise Conflict(
            f"idempotency key {name!r} was used for a run that has been erased; use a new key",
            code="idempotency_key_reused",
        )
    batch.flush()
    return Submitted(run=load_run(batch.tx, runs[0][0]), created=False)


def _find_key(tx: Transaction, submission: Submission, now: int) -> tuple[str, str] | None:
    where = {"principal": submission.principal.owner_key, "agent": key_scope(submission)}
    rows = tx.rows("idempotency_key", **where, name=submission.idempotency_key)
    if not rows or rows[0][2] <= now - KEY_LIFE_MS:
        return None
    digest, run_id, _ = rows[0]
    return digest, run_id


def _find_conversation(batch: Batch, submission: Submission) -> int | None:
    rows = batch.tx.rows("conversation_to_extend", id=submission.conversation_id)
    if not rows and (submission.new_conversation or submission.begins):
        return None
    if not rows or rows[0][1:3] != (submission.principal.owner_key, submission.agent):
        raise NotFound("conversation", submission.conversation_id)
    conversation: int = rows[0][0]
    batch.knows_last_seq(conversation, rows[0][3])
    return conversation


def _start_conversations(batch: Batch, submissions: Sequence[Submission]) -> list[_Place]:
    rows = []
    for one in submissions:
        title = " ".join(clean_text(one.text[: 10 * TITLE_LENGTH]).split())[:TITLE_LENGTH]
        rows.append((one.conversation_id, one.principal.owner_key, one.agent, title, 0, batch.now, batch.now))
    places = []
    for one, conversation in zip(submissions, batch.tx.insert_all("insert_conversations", rows), strict=True):
        batch.knows_last_seq(conversation, 0)
        places.append(_Place(submission=one, conversation=conversation, begun=True))
    return places


def _replaces(batch: Batch, submission: Submission) -> bool:
    """Whether `_make_room` will end a run that is in flight."""
    rows = batch.tx.rows("conversation_to_extend", id=submission.conversation_id) if submission.may_replace else ()
    if not rows or rows[0][1:3] != (submission.principal.owner_key, submission.agent):
        return False
    conversation = rows[0][0]
    open_runs = batch.tx.rows("open_runs", conversation=conversation, now=batch.now)
    if any(waits_for_others for _, waits_for_others in open_runs):
        return False
    return bool(batch.tx.rows("in_flight_in_conversation", conversation=conversation))


def _make_room(batch: Batch, conversation: int, on_busy: OnBusy) -> bool:
    """Do with the open runs what the submission says; return whether one is still before it."""
    open_runs = batch.tx.rows("open_runs", conversation=conversation, now=batch.now)
    if not open_runs:
        return False
    if on_busy == "reject":
        raise Conflict(
            "the conversation is busy with an earlier message; wait until it has ended, or cancel it",
            code="conversation_busy",
        )
    if on_busy == "queue" or any(waits_for_others for _, waits_for_others in open_runs):
        return True
    batch.flush()
    for run, _ in open_runs:
        end_run(batch, run)
    return False


def _store(batch: Batch, places: Sequence[_Place]) -> list[Submitted]:
    workers = [_claimed_by(batch, place) for place in places]
    rows = [_run_row(batch, place, worker) for place, worker in zip(places, workers, strict=True)]
    runs = batch.tx.insert_all("insert_runs", rows)
    calls = _replies(places, runs, workers)
    if calls:
        batch.tx.run_all("insert_calls", calls)
    return [_submitted(batch, place, run, worker) for place, run, worker in zip(places, runs, workers, strict=True)]


def _claimed_by(batch: Batch, place: _Place) -> int | None:
    worker = place.submission.claim_by
    if worker is None or place.busy or place.held_until is not None or not batch.worker_lives(worker.key):
        return None
    return worker.key


def _replies(places: Sequence[_Place], runs: Sequence[int], workers: Sequence[int | None]) -> list[Row]:
    """Return the rows of calls that start with their runs."""
    return [
        call_row(run, call)
        for place, run, worker in zip(places, runs, workers, strict=True)
        if worker is not None and place.submission.reply is not None
        for call in place.submission.reply.calls
    ]


def _run_row(batch: Batch, place: _Place, worker: int | None) -> Row:
    one, claimed = place.submission, worker is not None
    wake_at = None if claimed or place.busy else place.held_until or batch.now
    status = RunStatus.RUNNING if claimed else RunStatus.QUEUED
    first_seq = batch.last_seq(place.conversation) + 1
    who = (one.run_id, place.conversation, one.principal.owner_key, principal_facts(one.principal))
    return (*who, status.value, wake_at, worker, int(claimed), int(claimed), first_seq, batch.now, batch.now, one.trace)


def _submitted(batch: Batch, place: _Place, run: int, worker: int | None) -> Submitted:
    one, created_at = place.submission, seconds(batch.now)
    if one.idempotency_key is not None:
        _keep_key(batch, one)
    message = Message(
        id=one.message_id,
        run_id=one.run_id,
        turn=0,
        role="user",
        text=clean_text(one.text),
        files=one.files,
        created_at=created_at,
    )
    reply = None if one.reply is None or worker is None else replace(one.reply, created_at=created_at)
    first_seq = batch.last_seq(place.conversation) + 1
    _tell(batch, place, run, message, reply, claimed=worker is not None)
    stored = Run(
        id=one.run_id,
        agent=one.agent,
        conversation_id=one.conversation_id,
        principal=one.principal,
        status=RunStatus.QUEUED if worker is None else RunStatus.RUNNING,
        attempt=int(worker is not None),
        created_at=created_at,
        updated_at=created_at,
    )
    if worker is None:
        return Submitted(run=stored, began=place.begun, busy=place.busy)
    rows = RunRows(
        lease=Lease(run_id=one.run_id, run=run, conversation=place.conversation, worker=worker, fence=1),
        agent=one.agent,
        conversation_id=one.conversation_id,
        principal=one.principal,
        attempt=1,
        messages=(message,) if reply is None else (message, reply),
        steps={},
        created_at=created_at,
        trace=one.trace,
        first_seq=first_seq,
    )
    return Submitted(run=stored, rows=rows, began=place.begun)


def _tell(batch: Batch, place: _Place, run: int, message: Message, reply: Message | None, *, claimed: bool) -> None:
    files = encode_json(list(message.files)) if message.files else None
    batch.add_message(run, (0, message.id, message.text, None, files, batch.now, None))
    conversation, run_id = place.conversation, message.run_id
    told = queued_data(place.submission.agent, place.submission.conversation_id)
    batch.log(EventType.RUN_QUEUED, conversation=conversation, run=run, run_id=run_id, told_data=told)
    batch.log(EventType.MESSAGE_COMPLETED, conversation=conversation, run=run, run_id=run_id, turn=0, subject=message)
    if claimed:
        batch.log(EventType.RUN_STARTED, conversation=conversation, run=run, run_id=run_id)
    if reply is None:
        return
    turn = reply.turn
    batch.add_message(run, (turn, reply.id, reply.text, None, None, batch.now, None))
    batch.log(EventType.MESSAGE_COMPLETED, conversation=conversation, run=run, run_id=run_id, turn=turn, subject=reply)
    for call in reply.calls:
        batch.log(
            EventType.TOOL_CALLED, conversation=conversation, run=run, run_id=run_id, turn=turn, n=call.n, subject=call
        )


def _keep_key(batch: Batch, submission: Submission) -> None:
    oldest = batch.tx.rows("oldest_idempotency_keys", limit=2)
    old = [key for key, created_at in oldest if created_at <= batch.now - KEY_LIFE_MS]
    if old:  # each new key takes two old ones away, so that they never pile up
        batch.tx.run("delete_idempotency_keys", rows=json_rows(old))
    batch.tx.run(
        "insert_idempotency_key",
        principal=submission.principal.owner_key,
        agent=key_scope(submission),
        name=submission.idempotency_key,
        digest=submission.digest,
        run_id=submission.run_id,
        now=batch.now,
    )
