"""Verbs on their way to a transaction, and how one transaction does many of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from amoxi_py.errors import LeaseLost, RequestError, StoreUnavailable
from amoxi_py.ports.changes import Change
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sql.admission import admission_of, store_used
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.changes import write
from amoxi_py.stores.sql.submit import submit, submit_new


class Touches(Struct, frozen=True, kw_only=True):
    """Which conversations a verb may write to, for a database that has many writers: they are locked before it begins.

    Attributes:
        conversations: By key.
        conversation_ids: By public id.
        run_ids: Those of these runs.
        worker: Those of the runs that this worker executes, by its key.
        names: Other things that only one transaction at a time may look for and then make, each by a name of its own.
    """

    conversations: tuple[int, ...] = ()
    conversation_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    worker: int | None = None
    names: tuple[str, ...] = ()


NOTHING = Touches()


class Act(Struct, frozen=True):
    """A verb that checks and changes by itself. `after_writes` when it must not overtake writes that came before it."""

    do: Callable[[Batch], Any]
    after_writes: bool = False
    touches: Touches = NOTHING


Verb = Change | Submission | Act
"""Plain submissions and writes are what they say: those of a batch are stored together."""


class Answer(Struct, frozen=True):
    """What a verb's caller gets: a value, or an error that left the store unchanged."""

    value: Any = None
    error: Exception | None = None


def perform(batch: Batch, verbs: Sequence[Verb]) -> list[Answer]:
    """Do all verbs in one transaction: those that bind to no write first, then writes in order, as few statements.

    A verb that is refused has changed nothing and leaves the others alone. Anything else that goes wrong is raised, and
    the whole batch must be rolled back.
    """
    answers: dict[int, Answer] = {}
    _submit(batch, verbs, answers)
    ordered: list[tuple[int, Change | Act]] = []
    for place, verb in enumerate(verbs):
        if isinstance(verb, Submission):
            continue
        if isinstance(verb, Act) and not verb.after_writes:
            answers[place] = _act(batch, verb.do)
        else:
            ordered.append((place, verb))
    writes: list[tuple[int, Change]] = []
    for place, verb in ordered:
        if isinstance(verb, Act):
            _write(batch, writes, answers)
            writes = []
            answers[place] = _act(batch, verb.do)
        else:
            writes.append((place, verb))
    _write(batch, writes, answers)
    batch.finish()
    store_used(batch)
    return [answers[place] for place in range(len(verbs))]


def _submit(batch: Batch, verbs: Sequence[Verb], answers: dict[int, Answer]) -> None:
    places = [place for place, verb in enumerate(verbs) if isinstance(verb, Submission)]
    if not places:
        return
    submissions = [verb for verb in verbs if isinstance(verb, Submission)]
    admission = admission_of(batch, submissions)
    answered = submit_new(batch, submissions, admission)
    for place, one, answer in zip(places, submissions, answered, strict=True):
        if answer is None:
            answers[place] = _act(batch, partial(submit, submission=one, admission=admission))
        else:
            answers[place] = Answer(error=answer) if isinstance(answer, Exception) else Answer(answer)


def _act(batch: Batch, do: Callable[[Batch], Any]) -> Answer:
    try:
        return Answer(do(batch))
    except (RequestError, LeaseLost, StoreUnavailable) as error:
        return Answer(error=error)


def _write(batch: Batch, writes: list[tuple[int, Change]], answers: dict[int, Answer]) -> None:
    if writes:
        stored = write(batch, [change for _, change in writes])
        for (place, _), one in zip(writes, stored, strict=True):
            answers[place] = Answer(error=one) if isinstance(one, Exception) else Answer(one)
