"""A message to a task that requires input: what it decides or answers, and nothing else, however often it is sent.

Which open thing a message is for is kept before the answer is given. So the same message sent again, because an answer
was lost, is for the same thing, and never for what is asked next.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError, UnsupportedOperationError
from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, Forbidden, InvalidRequest
from amoxi_py.ports.records import RecordStore
from amoxi_py.surfaces.a2a.errors import MESSAGE_REUSED
from amoxi_py.surfaces.a2a.incoming import Incoming
from amoxi_py.surfaces.a2a.kept_answers import MOST_REFUSED, KeptAnswer, KeptAnswers
from amoxi_py.surfaces.a2a.open_things import HOW_TO_DECIDE, SOMEBODY_ELSE, OpenThing, open_things, thing_asked
from amoxi_py.surfaces.a2a.tasks import state_of
from amoxi_py.surfaces.question_answers import answer_from_text

log = logging.getLogger("amoxi_py.a2a")

_APPROVES = re.compile(r"(?:approved?|yes|ok|y)[.!]*", re.IGNORECASE)
_DECLINES = re.compile(r"(?:declined?|no?|reject(?:ed)?)(?:[.!]*|\s*:\s*(?P<reason>.*))", re.IGNORECASE | re.DOTALL)
_DECISIONS = ("approve", "decline")

Decision = Literal["approve", "decline"]


class Target(Struct, frozen=True, kw_only=True):
    """The one open thing that a message is for, and what it says about it."""

    thing: OpenThing
    decision: Decision | None = None
    reason: str | None = None
    value: Any = None


class Refused(Exception):
    """A message decides nothing; the text says why, for the caller. `late`: because what it is for is over."""

    def __init__(self, why: str, *, late: bool = False) -> None:
        super().__init__(why)
        self.late = late


class Answers:
    """Gives the answers of messages to their tasks."""

    def __init__(self, engine: Engine, records: RecordStore, *, deduplicate: bool) -> None:
        self._engine = engine
        self._kept = KeptAnswers(records, engine.redaction, deduplicate=deduplicate)

    async def take(self, run: Run, message_id: str, given: Incoming, principal: Principal) -> str | None:
        """Do what a message says about what its task waits for; return why it decides nothing, or None.

        Args:
            run: The task's run, read before this is called: what it waits for then is what a new message is about.
            message_id: Of the message, the caller's own.
            given: What the message holds.
            principal: The caller.

        Raises:
            UnsupportedOperationError: the task has ended, or waits for nothing; what the message is for is over; or too
                many messages have decided nothing.
            InvalidParamsError: the id was used with another message, or the message is too long.
        """
        key = self._kept.key_of(message_id, principal)
        new = KeptAnswer(
            run_id=run.id, message_id=message_id, said=given.said, at=self._engine.now(), digest=given.digest(run.id)
        )
        kept = await self._kept.find(key)
        if kept is not None and (kept.run_id, kept.digest) != (run.id, new.digest):
            raise InvalidParamsError(MESSAGE_REUSED)
        if kept is not None and kept.refusal is not None:
            return _told(kept.refusal, late=kept.late)
        try:
            if kept is None or kept.asked is None:
                self._check(run, given)
                target = await self._meant(run, given, principal)
                kept = await self._kept.keep(key, replace(new, asked=target.thing.asked))
            else:  # the message holds all that it says, as it did the first time
                target = _target(given, (thing_asked(kept.asked),))
            await self._apply(run, target, principal)
            return None
        except Refused as error:
            refused = await self._kept.refuse(key, kept or new, str(error), late=error.late)
            if refused is None or refused.refusal is None:
                raise UnsupportedOperationError(
                    f"{error} (it is not kept: {MOST_REFUSED} messages to this task have decided nothing before)"
                ) from None
            return _told(refused.refusal, late=refused.late)

    def _check(self, run: Run, given: Incoming) -> None:
        if run.status.final:
            raise UnsupportedOperationError(
                f"the task is {run.status.value}: send a new message with its contextId, and without taskId"
            )
        if state_of(run) != wire.TASK_STATE_INPUT_REQUIRED:
            raise UnsupportedOperationError(
                "the task is still working and asks nothing: wait for it, cancel it, or send a new message with its "
                "contextId, and without taskId"
            )
        if given.files:
            raise ContentTypeNotSupportedError("an answer is a text or data; a file can come with a new message")
        size, longest = len(given.said), self._engine.settings.max_message
        if size > longest:
            raise InvalidParamsError(f"the message has {size} characters; the limit is {longest}")

    async def _meant(self, run: Run, given: Incoming, principal: Principal) -> Target:
        """Return what a new message is for; what has been decided since the run was read is told when it is applied."""
        things = await open_things(self._engine, run, principal)
        try:
            return _target(given, things)
        except Refused:
            still = (await self._engine.get_run(run.id, principal)).waiting_for
            if still == run.waiting_for:
                raise
        try:
            return _target(given, [thing if thing.waiting in still else replace(thing, yours=True) for thing in things])
        except Refused as error:
            raise Refused(f"what the task waits for has changed meanwhile: {error}", late=True) from None

    async def _apply(self, run: Run, target: Target, principal: Principal) -> None:
        asked = target.thing.asked
        try:
            if target.decision is not None:
                await self._engine.decide(
                    asked.call_id, principal, target.decision, reason=target.reason, run_id=run.id
                )
            else:
                await self._engine.answers.answer(asked.call_id, principal, target.value, k=asked.k, run_id=run.id)
        except InvalidRequest as error:
            told = "; ".join(f"{one.get('field', '')}: {one.get('message', '')}" for one in error.errors)
            raise Refused(f"{error}{': ' if told else ''}{told}") from None
        except Forbidden:
            raise Refused(SOMEBODY_ELSE) from None
        except Conflict as error:
            log.info("run %s: a message of its caller came too late: %s", run.id, error)
            raise Refused(f"the message came too late: {error}", late=True) from None


def _told(refusal: str, *, late: bool) -> str:
    if late:
        raise UnsupportedOperationError(refusal)
    return refusal


def _target(given: Incoming, things: Sequence[OpenThing]) -> Target:
    """Return what a message is for; raise `Refused` when it is for nothing."""
    addressed = [data for data in given.data if isinstance(data, dict) and "call_id" in data]
    if len(addressed) > 1:
        raise Refused("a message answers one thing; send one message for each")
    if addressed:
        return _addressed(addressed[0], things)
    mine = [thing for thing in things if thing.yours]
    if not mine:
        raise Refused(SOMEBODY_ELSE)
    if len(mine) > 1:
        raise Refused("several things are open, and the message does not say which it is for")
    thing = mine[0]
    if thing.is_question:
        return Target(thing=thing, value=_answer(given, thing))
    if len(given.data) == 1 and not given.texts:
        return _decision(given.data[0], thing)
    return _spoken(given.said.strip(), thing)


def _addressed(data: Mapping[str, Any], things: Sequence[OpenThing]) -> Target:
    found = [
        thing
        for thing in things
        if thing.order[0] == data["call_id"]
        and ("k" not in data or not thing.is_question or thing.order[1] == data["k"])
    ]
    if not found:
        raise Refused("the task does not wait for what the call_id (and k) of the message names")
    thing = found[0]
    if not thing.yours:
        raise Refused(SOMEBODY_ELSE)
    if not thing.is_question:
        return _decision(data, thing)
    if "answer" not in data:
        raise Refused('the question is answered by "answer" beside the call_id')
    return Target(thing=thing, value=data["answer"])


def _decision(data: Any, thing: OpenThing) -> Target:
    decision = data.get("decision") if isinstance(data, dict) else None
    if decision not in _DECISIONS:
        raise Refused(f'a decision is "approve" or "decline". {HOW_TO_DECIDE}')
    more = set(data) - {"call_id", "decision", "reason"}
    if more:
        raise Refused("a decision has a call_id, a decision and a reason, and nothing else: the call stays as it is")
    reason = data.get("reason")
    if reason is not None and not isinstance(reason, str):
        raise Refused("the reason of a decision is a text")
    return Target(thing=thing, decision=cast(Decision, decision), reason=reason or None)


def _spoken(text: str, thing: OpenThing) -> Target:
    """Return the decision that a text is, if it is one and no more: anything else a model may say decides nothing."""
    if _APPROVES.fullmatch(text):
        return Target(thing=thing, decision="approve")
    declined = _DECLINES.fullmatch(text)
    if declined is not None:
        return Target(thing=thing, decision="decline", reason=(declined["reason"] or "").strip() or None)
    raise Refused(f"the message is no decision. {HOW_TO_DECIDE}")


def _answer(given: Incoming, thing: OpenThing) -> Any:
    if len(given.data) == 1 and not given.texts:
        return given.data[0]
    return answer_from_text(thing.waiting.schema, given.said)
