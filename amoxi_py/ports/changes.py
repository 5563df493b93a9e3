"""What a worker adds to a run: one change is stored whole, or not at all."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from amoxi_py.domain.event import NewEvent
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import Lease, RunFailure
from amoxi_py.domain.tool_call import CallStatus, StepRecord
from amoxi_py.domain.usage import Usage
from amoxi_py.domain.wait import Wait


class CallResult(Struct, frozen=True, kw_only=True):
    """The one result of a call; `result` is JSON text."""

    turn: int
    n: int
    status: CallStatus
    result: str


class NewStep(Struct, frozen=True, kw_only=True):
    """The outcome of a step of a call."""

    turn: int
    n: int
    record: StepRecord


class NewWait(Struct, frozen=True, kw_only=True):
    """What a call waits for from now on."""

    turn: int
    n: int
    wait: Wait


class NewChild(Struct, frozen=True, kw_only=True):
    """A run that a call of this run asks for; the engine makes the ids, the same ones whenever it is sent again."""

    turn: int
    n: int
    run_id: str
    message_id: str
    agent: str
    text: str


class Summary(Struct, frozen=True, kw_only=True):
    """A text in place of all messages up to (and with) a turn of a run of the same thread."""

    run_id: str
    turn: int
    text: str


class HistoryMark(Struct, frozen=True):
    """How far a history goes: to before a run, after a summary (or none), by the store's own keys."""

    run: int
    summary: int | None


class History(Struct, frozen=True, kw_only=True):
    """What was said in a thread before a run's own messages: what is left after the newest summary, and that one.

    When it `follows` its messages are only those after what was known; its `mark` is what is known with it.
    """

    messages: tuple[Message, ...] = ()
    summary: Summary | None = None
    follows: bool = False
    mark: HistoryMark | None = None


class Change(Struct, frozen=True, kw_only=True):
    """What a worker adds to a run, as one whole.

    `number` grows by one with each change under a lease. A change whose number is not greater than the last one stored
    under the same lease was stored already, and is not stored again; one that leaves a gap is refused with
    `StoreUnavailable`, because the one before it has still to be sent again. The number of a refused change is free:
    the next change takes it.

    Attributes:
        lease: The proof.
        number: Its place among the changes of this lease, from 1.
        message: A finished reply with its calls (statuses `open`, `started`, or settled with a result at once,
            approvals where asked). Deltas of the run are dropped in the same commit.
        starts: Calls, as (turn, n), that start now: status `started`, one more try.
        retries: Calls that start again after a failed try: one more try and one more failure; failed steps are
            forgotten.
        results: Results of calls.
        expired: Calls whose approval expired undecided: its decision becomes `expire`. A change that says so of a call
            that a person has decided about is refused as a whole, with its results.
        steps: Outcomes of steps; the first outcome of a name stays.
        discard: Drop the stored deltas of the run (a new try follows, or a new worker).
        usage: The run's whole usage so far, or None for no change.
        model_failures: Failed model requests since the last reply, or None for no change.
        instructions: What the agent's method said for this run, to be kept for later turns, or None for no change.
        waits: What calls of this run wait for from now on; the first one of a number stays. One for a signal takes the
            oldest one of its name that was kept for the run.
        children: Runs that calls of this run ask for, one for each, stored with the `starts` of those calls: queued and
            due at once, in the same conversation, with a wait of kind `child` (`k` 1) of the call.
        for_parent: With `end` of a child run: the result of the call that asked for it. It is settled, its run woken
            and `tool.completed` logged for it in the same commit. Without it, the call counts as stopped.
        summary: What takes the place of old messages when a model is asked, from now on.
        end: `completed` or `failed`, or None; its terminal event is the last of `events`.
        failure: Why it failed.
        result: The structured result, JSON text.
        events: For the log, in order, after the rows they point to.
    """

    lease: Lease
    number: int
    message: Message | None = None
    starts: tuple[tuple[int, int], ...] = ()
    retries: tuple[tuple[int, int], ...] = ()
    results: tuple[CallResult, ...] = ()
    expired: tuple[tuple[int, int], ...] = ()
    steps: tuple[NewStep, ...] = ()
    discard: bool = False
    usage: Usage | None = None
    model_failures: int | None = None
    instructions: str | None = None
    waits: tuple[NewWait, ...] = ()
    children: tuple[NewChild, ...] = ()
    for_parent: CallResult | None = None
    summary: Summary | None = None
    end: Literal["completed", "failed"] | None = None
    failure: RunFailure | None = None
    result: str | None = None
    events: tuple[NewEvent, ...] = ()
