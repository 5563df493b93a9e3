"""What comes to an open run from outside: decisions about its calls, answers to its questions, and signals."""

from __future__ import annotations

from msgspec import Struct

from amoxi_py.domain.approval import Decision
from amoxi_py.domain.principal import Principal


class Verdict(Struct, frozen=True, kw_only=True):
    """A decision about a call. `arguments` are edited ones, JSON text, already known to fit the tool.

    `allowed` is whether the engine found that the principal may decide by a rule that only code can know. An
    `operator`, the person who runs the app, may decide whatever the rule is.
    """

    call_id: str
    run_id: str
    principal: Principal
    decision: Decision
    reason: str | None = None
    arguments: str | None = None
    allowed: bool = False
    operator: bool = False


class Answer(Struct, frozen=True, kw_only=True):
    """A person's answer to the open question of a call; `value` is JSON text, already known to fit the question.

    An `operator`, the person who runs the app, may answer whoever owns the run; also below.
    """

    call_id: str
    k: int
    principal: Principal
    value: str
    operator: bool = False


class Signal(Struct, frozen=True, kw_only=True):
    """Something that a run is told from outside; `payload` is JSON text. The engine makes the id."""

    id: str
    run_id: str
    principal: Principal
    agent: str | None = None
    name: str
    payload: str
    operator: bool = False
