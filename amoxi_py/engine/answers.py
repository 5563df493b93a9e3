"""The door for what a waiting tool is told from outside: a person's answer to its question, and signals."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.ids import new_id, parse_call_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.fitting_answers import fitting_answer, storable_json
from amoxi_py.engine.waits import SIGNAL_NAME
from amoxi_py.errors import Conflict, InvalidRequest, NotFound
from amoxi_py.ports.inputs import Answer, Signal
from amoxi_py.ports.store import Store
from amoxi_py.ports.views import CallView

log = logging.getLogger("amoxi_py.engine")


class Answers:
    """Answers questions and sends signals; the first answer to a question wins."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def answer(
        self,
        call_id: str,
        principal: Principal,
        value: Any,
        *,
        question: str | None = None,
        k: int | None = None,
        run_id: str | None = None,
        agent: str | None = None,
        owner: Principal | None = None,
    ) -> CallView:
        """Answer a question of a call, and return the call with that question, as it is recorded, in `call.wait`.

        Without `question` and `k` it is the open question of the call, or, when none is open, the last one.

        Args:
            call_id: The call.
            principal: Who answers: the run's owner, if `owner` is left out.
            value: A JSON value that fits the question's schema, or a text when it has none.
            question: The text of the question that is answered, so that an answer that is sent twice is not taken for
                one to the next question. Of two with the same text it is the later one.
            k: The number of the question among all that the call has waited for, which no other question has.
            run_id: The run that the question must be told in, when the caller named one.
            agent: The agent of that run, when the caller named one.
            owner: Whose run it is, when the operator answers.

        Raises:
            NotFound: the call is none of this principal's, or has asked nothing.
            Conflict: answered otherwise (`already_answered`), not asked any more (`question_closed`), or the call has
                no such question (`question_changed`).
            InvalidRequest: the answer does not fit, or is too long.
        """
        view, questions = await self._asked(call_id, owner or principal, run_id, agent)
        wait = _meant(questions, question, k)
        if wait is None:
            last = questions[-1]
            raise Conflict(
                f"the call {call_id!r} has no such question; its last one, with k={last.k}, is {last.name!r}",
                code="question_changed",
            )
        if wait.value is None:
            text = await asyncio.to_thread(fitting_answer, wait, value)  # patterns of a schema may take their time
        else:
            text = storable_json(value, "answer")  # it is only looked whether it is the same
        answered = Answer(call_id=call_id, k=wait.k, principal=principal, value=text, operator=owner is not None)
        view = await self._store.answer(answered)
        by = None if view.call.wait is None else view.call.wait.by
        log.info("run %s, call %s, tool %r: answered by %s", view.run_id, view.call.id, view.call.tool, by)
        return view

    async def signal(
        self,
        run_id: str,
        principal: Principal,
        name: str,
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
        agent: str | None = None,
        owner: Principal | None = None,
    ) -> str:
        """Send a signal to a run, and return its id; it is kept until a tool of the run waits for its name.

        Args:
            run_id: The run.
            principal: Who sends it: the run's owner, if `owner` is left out.
            name: What tools wait for; letters, digits, `_`, `.` and `-`, up to 100.
            payload: A JSON value.
            idempotency_key: The same key for the same run is the same signal, which comes once.
            agent: The agent that the run must belong to, when the caller named one.
            owner: Whose run it is, when the operator sends it.

        Raises:
            NotFound: no such run of this principal.
            Conflict: the run has ended (`run_ended`), keeps too many signals (`too_many_signals`), or the key was used
                with another payload (`idempotency_key_reused`).
            InvalidRequest: the name is none, or the payload is no JSON or too long.
        """
        if not isinstance(name, str) or not SIGNAL_NAME.fullmatch(name):
            raise InvalidRequest(
                f"the signal's name {name!r} is none: it has letters, digits, `_`, `.` and `-`, up to 100",
                code="invalid_signal_name",
            )
        if idempotency_key is None:
            signal_id = new_id("sig")
        else:
            digest = hashlib.blake2s(encode_json([run_id, name, idempotency_key]).encode(), digest_size=13)
            signal_id = f"sig_{digest.hexdigest()}"
        await self._store.signal(
            Signal(
                id=signal_id,
                run_id=run_id,
                principal=principal,
                agent=agent,
                name=name,
                payload=storable_json(payload, "payload"),
                operator=owner is not None,
            )
        )
        return signal_id

    async def _asked(
        self, call_id: str, owner: Principal, run_id: str | None, agent: str | None
    ) -> tuple[CallView, tuple[Wait, ...]]:
        """Return a call that has asked, and what; a question of a run below the named one is told in that one too."""
        place = parse_call_id(call_id)
        if place is None:
            raise NotFound("question", call_id)
        try:
            view = await self._store.get_call(call_id, owner)
        except NotFound:
            raise NotFound("question", call_id) from None
        questions = tuple(wait for wait in view.waits if wait.kind == "question")
        elsewhere = run_id not in (None, view.run_id, place[0]) or agent not in (None, view.agent)
        if elsewhere or not questions or view.requested_by.owner_key != owner.owner_key:
            raise NotFound("question", call_id)
        return view, questions


def _meant(questions: Sequence[Wait], text: str | None, k: int | None) -> Wait | None:
    """Return the question that is answered: the last one that is said, of which only the call's last can be open."""
    said = [one for one in questions if k in (None, one.k) and text in (None, one.name)]
    return said[-1] if said else None
