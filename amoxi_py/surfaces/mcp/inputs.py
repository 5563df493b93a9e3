"""What a run waits for that its caller can give by MCP's forms: answers to questions, and decisions about calls."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import mcp_types as wire

from amoxi_py.domain.encoding import decode_json, encode_json_unicode
from amoxi_py.domain.ids import call_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, Waiting
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, Forbidden, InvalidRequest, NotFound
from amoxi_py.surfaces.mcp.forms import Field, Form, form_of

log = logging.getLogger("amoxi_py.mcp")

_LONGEST_KEY = 40
_LONGEST_ARGUMENTS = 2000
_DECISION = "decision"
_REASON = "reason"
_DECIDING = Form(
    fields=(
        Field(
            name=_DECISION,
            schema={
                "type": "string",
                "title": "Decision",
                "oneOf": [
                    {"const": "approve", "title": "Approve: it is done"},
                    {"const": "decline", "title": "Decline: it is not done"},
                ],
            },
        ),
        Field(
            name=_REASON,
            schema={"type": "string", "title": "Reason", "description": "Told to the agent when you decline"},
            required=False,
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One thing to ask a client for."""

    waiting: Waiting
    message: str
    form: Form

    def request(self, refusal: str | None = None) -> wire.ElicitRequest:
        """Return what the client gets; `refusal` is why its last answer cannot be used."""
        message = self.message if refusal is None else f"{self.message}\n\nThe last answer cannot be used: {refusal}"
        params = wire.ElicitRequestFormParams(message=message, requested_schema=self.form.schema)
        return wire.ElicitRequest(params=params)


class Refused(Exception):
    """A client's answer cannot be used; the text is fit for a person."""


class Inputs:
    """Finds what can be asked, and takes the answers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def open(self, run: Run, principal: Principal) -> dict[str, Ask]:
        """Return what a principal's run waits for and the principal can give, by keys that never mean anything else."""
        asks: dict[str, Ask] = {}
        for waiting in run.waiting_for:
            if waiting.call_id is None:
                continue
            if waiting.kind == "question":
                asks[_question_key(run.id, waiting)] = _question(waiting)
            elif waiting.kind == "approval" and await self._engine.may_decide(waiting.call_id, principal):
                asks[waiting.call_id] = _approval(waiting)
        return asks

    async def take(self, run: Run, ask: Ask, response: wire.ElicitResult, principal: Principal) -> bool:
        """Take what a client answers; return False for a question that it leaves open.

        What somebody else has answered or decided meanwhile stays as it is.

        Raises:
            Refused: it cannot be used.
        """
        if ask.waiting.kind == "question" and response.action != "accept":
            return False
        try:
            if ask.waiting.kind == "question":
                await self._answer(run, ask, response, principal)
            else:
                await self._decide(run, ask, response, principal)
        except (Conflict, Forbidden, NotFound) as error:
            log.info("run %s: what its client answered came too late: %s", run.id, error)
        return True

    async def _answer(self, run: Run, ask: Ask, response: wire.ElicitResult, principal: Principal) -> None:
        waiting = ask.waiting
        assert waiting.call_id is not None, "only calls ask"
        value = ask.form.read(response.content or {})
        try:
            await self._engine.answers.answer(waiting.call_id, principal, value, k=waiting.k, run_id=run.id)
        except InvalidRequest as error:
            raise Refused(_reason(error, ask.form)) from None

    async def _decide(self, run: Run, ask: Ask, response: wire.ElicitResult, principal: Principal) -> None:
        call = ask.waiting.call_id
        assert call is not None, "only calls are approved"
        content = response.content or {}
        decision: Literal["approve", "decline"]
        if response.action != "accept" or content.get(_DECISION) == "decline":
            decision = "decline"
        elif content.get(_DECISION) == "approve":
            decision = "approve"
        else:
            raise Refused(f"{_DECISION}: it must be 'approve' or 'decline'")
        given = content.get(_REASON)
        reason = given if isinstance(given, str) and given.strip() else None
        await self._engine.decide(call, principal, decision, reason=reason, run_id=run.id)


def _question(waiting: Waiting) -> Ask:
    schema = None if waiting.schema is None else decode_json(waiting.schema)
    return Ask(waiting=waiting, message=waiting.name or "", form=form_of(schema))


def _approval(waiting: Waiting) -> Ask:
    arguments = encode_json_unicode(decode_json(waiting.arguments or "{}"))
    shown = arguments if len(arguments) <= _LONGEST_ARGUMENTS else f"{arguments[:_LONGEST_ARGUMENTS]}..."
    message = f"May {waiting.tool!r} be called with these arguments?\n{shown}"
    return Ask(waiting=waiting, message=message, form=_DECIDING)


def _question_key(run_id: str, waiting: Waiting) -> str:
    """Return a question's key: its first words, and for all but the first question of a run, which one it is."""
    first_line = (waiting.name or "").partition("\n")[0]
    words = re.sub(r"[^a-z0-9]+", "_", first_line.lower())[:_LONGEST_KEY].strip("_") or "question"
    if waiting.k == 1 and waiting.call_id == call_id(run_id, 1, 0):
        return words
    return f"{words}.{waiting.call_id}.{waiting.k}"


def _reason(error: InvalidRequest, form: Form) -> str:
    told: Iterable[str] = (f"{_field(one.get('field', ''), form)}{one.get('message', '')}" for one in error.errors)
    return "; ".join(told) or str(error)


def _field(place: str, form: Form) -> str:
    name = place.removeprefix("answer").lstrip(".")
    return f"{name}: " if name and not form.whole else ""
