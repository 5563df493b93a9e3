"""What a task that requires input waits for, and how its caller is told to answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from a2a.types import a2a_pb2 as wire
from msgspec import Struct

from amoxi_py.domain.encoding import decode_json, encode_json_unicode
from amoxi_py.domain.event import time_text
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, Waiting
from amoxi_py.engine.engine import Engine
from amoxi_py.surfaces.a2a.kept_answers import Asked
from amoxi_py.surfaces.a2a.parts import data_part, text_part

KINDS = frozenset({"approval", "question"})
_LONGEST_SHOWN = 2000
SOMEBODY_ELSE = "somebody else decides about it in the app; your message cannot approve it"
HOW_TO_DECIDE = 'Answer "approve", or "decline" (with a reason: "decline: not this one").'
HOW_TO_ADDRESS = (
    'Answer one of them by a data part: {"call_id": ..., "decision": "approve" or "decline", "reason"?: ...} for a '
    'decision, {"call_id": ..., "k": ..., "answer": ...} for an answer.'
)


class OpenThing(Struct, frozen=True, kw_only=True):
    """A call to be decided about, or a question; `yours` is whether the caller may do it."""

    waiting: Waiting
    yours: bool

    @property
    def order(self) -> tuple[str, int]:
        """Its place among others, which is the same wherever they come from."""
        return self.waiting.call_id or "", self.waiting.k or 0

    @property
    def is_question(self) -> bool:
        """Whether it is a question."""
        return self.waiting.kind == "question"

    @property
    def asked(self) -> Asked:
        """What is remembered of it."""
        call_id, k = self.order
        return Asked(call_id=call_id, k=k, schema=self.waiting.schema) if self.is_question else Asked(call_id=call_id)


def thing_asked(asked: Asked) -> OpenThing:
    """Return what a message was for, by what is remembered of it."""
    kind: Literal["approval", "question"] = "approval" if asked.k is None else "question"
    waiting = Waiting(kind=kind, call_id=asked.call_id, k=asked.k, schema=asked.schema)
    return OpenThing(waiting=waiting, yours=True)


async def open_things(engine: Engine, run: Run, principal: Principal) -> tuple[OpenThing, ...]:
    """Return what a run waits for from outside."""
    found = []
    for waiting in run.waiting_for:
        if waiting.call_id is not None and waiting.kind in KINDS:
            yours = waiting.kind == "question" or await engine.may_decide(waiting.call_id, principal)
            found.append(OpenThing(waiting=waiting, yours=yours))
    return tuple(sorted(found, key=lambda thing: thing.order))


def asking_parts(things: Sequence[OpenThing], note: str | None = None) -> list[wire.Part]:
    """Return what a caller is told: a text for its model or its people, then each open thing as data.

    `note` says why the last message decided nothing.
    """
    lines = [] if note is None else [f"Nothing was changed: {note}"]
    lines += map(_sentence, things)
    mine = [thing for thing in things if thing.yours]
    if len(mine) > 1:
        lines.append(HOW_TO_ADDRESS)
    elif mine:
        lines.append(_how(mine[0]))
    return [text_part("\n".join(lines)), *(data_part(_data(thing)) for thing in things)]


def _sentence(thing: OpenThing) -> str:
    waiting = thing.waiting
    if thing.is_question:
        return f"The agent asks: {waiting.name}"
    arguments = encode_json_unicode(decode_json(waiting.arguments or "{}"))
    if len(arguments) > _LONGEST_SHOWN:
        arguments = f"{arguments[:_LONGEST_SHOWN]}..."
    told = f"The agent wants to call {waiting.tool!r} with {arguments}"
    return f"{told}." if thing.yours else f"{told}: {SOMEBODY_ELSE}."


def _how(thing: OpenThing) -> str:
    if not thing.is_question:
        return HOW_TO_DECIDE
    schema = thing.waiting.schema
    if schema is None:
        return "Answer with a text."
    return f"Answer with a text or a data part that fits this schema: {schema[:_LONGEST_SHOWN]}"


def _data(thing: OpenThing) -> dict[str, Any]:
    waiting = thing.waiting
    told: dict[str, Any] = {"kind": waiting.kind, "call_id": waiting.call_id}
    if thing.is_question:
        told |= {"k": waiting.k, "question": waiting.name}
        if waiting.schema is not None:
            told["schema"] = decode_json(waiting.schema)
    else:
        told |= {"tool": waiting.tool, "arguments": decode_json(waiting.arguments or "{}"), "yours": thing.yours}
    if waiting.expires_at is not None:
        told["expires_at"] = time_text(waiting.expires_at)
    return told
