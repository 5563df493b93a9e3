"""Answers the approvals of a test: by tool, with a word, edited arguments, or a function that looks at the call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.approval import FUNCTION
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, RequestError

Verdict = Literal["approve", "decline"]
PlainAnswer = Verdict | tuple[Verdict, str] | Mapping[str, Any]
Answer = PlainAnswer | Callable[["Asked"], PlainAnswer | Awaitable[PlainAnswer]]
"""`"approve"`, `"decline"`, `("decline", "the reason")`, edited arguments (an approval), or a function of the call."""

_ROLE = "role:"
_ANYBODY = "user:approver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A call that waits for an approval."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]


class Decisions:
    """The answers of one run; the first of `agents` is asked by the test, the others by it."""

    def __init__(self, answers: Mapping[str, Answer], agents: Sequence[AgentDefinition], principal: Principal) -> None:
        agent = agents[0]
        self._tools = {tool.name: tool for one in agents for tool in one.tools}
        for name in answers:
            if name not in self._tools:
                known = ", ".join(self._tools) or "none"
                raise LookupError(f"`decide` names {name!r}, which is no tool of {agent.name!r}; its tools: {known}")
        self._answers = answers
        self._agent = agent
        self._principal = principal

    async def answer(self, engine: Engine, events: tuple[Event, ...]) -> None:
        """Decide what these events ask for, unless they tell of the decision as well.

        Raises:
            AssertionError: there is no answer for a call, or none that can be taken.
        """
        decided = {event.data["call_id"] for event in events if event.type is EventType.APPROVAL_DECIDED}
        for event in events:
            if event.type is EventType.APPROVAL_REQUESTED and event.data["call_id"] not in decided:
                data = event.data
                await self._decide(
                    engine, Asked(call_id=data["call_id"], tool=data["tool"], arguments=data["arguments"])
                )

    async def _decide(self, engine: Engine, asked: Asked) -> None:
        answer = self._answers.get(asked.tool)
        if answer is None:
            raise AssertionError(
                f"the call {asked.tool!r} of {self._agent.name!r} with {dict(asked.arguments)!r} waits for an approval "
                f"that the test has no answer for; give one: decide={{{asked.tool!r}: 'approve'}}"
            )
        if callable(answer):
            found = answer(asked)
            answer = await found if isawaitable(found) else found
        decision, reason, arguments = _read(asked.tool, answer)
        decider = self._decider(asked.tool)
        owner = self._principal if decider.id == _ANYBODY else None
        try:
            await engine.decide(asked.call_id, decider, decision, reason=reason, arguments=arguments, owner=owner)
        except Conflict:
            pass  # decided before this process was started, or the run has ended meanwhile: the log says which
        except RequestError as error:
            raise AssertionError(f"the answer {answer!r} to {asked.tool!r} was refused: {error}") from error

    def _decider(self, tool: str) -> Principal:
        """Return somebody who may decide: the one who asked, or a person who has the role that the tool names.

        Whom a function lets decide is not known; a person stands for them.
        """
        definition = self._tools.get(tool)
        approver = "" if definition is None else definition.approver
        if approver == FUNCTION:
            return Principal(id=_ANYBODY, name="approver", channel="code", tenant=self._principal.tenant)
        if not approver.startswith(_ROLE):
            return self._principal
        role = approver.removeprefix(_ROLE)
        tenant, roles = self._principal.tenant, frozenset({role})
        return Principal(id=f"user:{role}", name=role, channel="code", tenant=tenant, roles=roles)


def _read(tool: str, answer: PlainAnswer) -> tuple[Verdict, str | None, dict[str, object] | None]:
    if isinstance(answer, Mapping):
        return "approve", None, dict(answer)
    decision, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
    if decision == "approve" or decision == "decline":
        return decision, reason, None
    raise AssertionError(
        f"the answer {answer!r} to {tool!r} is none; use 'approve', 'decline', ('decline', 'why') or edited arguments"
    )
