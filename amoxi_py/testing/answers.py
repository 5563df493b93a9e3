"""Answers the questions that tools ask in a test, and sends the signals that they wait for."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, InvalidRequest
from amoxi_py.testing.waits import is_nobody, told


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question that a tool asks; `schema` is the JSON Schema of the answer, or None for a text."""

    call_id: str
    tool: str
    question: str
    schema: Mapping[str, Any] | None


GivenAnswers = Sequence[Any] | Callable[[AskedQuestion], Any | Awaitable[Any]]
"""JSON values, one for each question of the tool, or a function of the question that returns one.

`TimeoutError` stands for nobody: the question's time passes.
"""


class Answering:
    """What a test answers in one run, by tool, and the signals that it sends, by name; `agents` may ask.

    `unanswered` are the questions that nobody answers: calls, and the question's number in each.
    """

    def __init__(
        self,
        answers: Mapping[str, GivenAnswers],
        signals: Mapping[str, Sequence[Any]],
        agents: Sequence[AgentDefinition],
        principal: Principal,
    ) -> None:
        tools = [tool.name for agent in agents for tool in agent.tools]
        for name in answers:
            if name not in tools:
                known = ", ".join(tools) or "none"
                raise LookupError(
                    f"`answers` names {name!r}, which is no tool of {agents[0].name!r}; its tools: {known}"
                )
        self._answers = answers
        self._signals = signals
        self._principal = principal
        self._asked: Counter[str] = Counter()
        self.unanswered: set[tuple[str | None, int | None]] = set()
        if any(map(is_nobody, itertools.chain.from_iterable(signals.values()))):
            raise ValueError("`signals` of a run are payloads; leave a signal out that does not come: its time passes")

    async def send_signals(self, engine: Engine, run_id: str) -> None:
        """Send all signals; one that was sent before this process was started is not sent again."""
        for name, payloads in self._signals.items():
            for n, payload in enumerate(payloads):
                try:
                    key = f"{name} {n}"
                    await engine.answers.signal(run_id, self._principal, name, payload, idempotency_key=key)
                except Conflict:
                    return  # the run has ended meanwhile

    async def answer(self, engine: Engine, events: tuple[Event, ...]) -> None:
        """Answer what these events ask, unless they tell of the answer as well.

        Raises:
            AssertionError: there is no answer for a question, or it is refused.
        """
        answered = Counter(event.data["call_id"] for event in events if event.type is EventType.QUESTION_ANSWERED)
        for event in events:
            if event.type is not EventType.QUESTION_ASKED:
                continue
            data = event.data
            place = self._asked[data["tool"]]
            self._asked[data["tool"]] += 1
            if answered[data["call_id"]]:
                answered[data["call_id"]] -= 1
                continue
            asked = AskedQuestion(
                call_id=data["call_id"], tool=data["tool"], question=data["question"], schema=data["schema"]
            )
            answer = await self._answer_to(asked, place)
            if not is_nobody(answer):
                await self._give(engine, asked, data["k"], answer)
            elif data["expires_at"] is not None:
                self.unanswered.add((asked.call_id, data["k"]))
            else:
                raise AssertionError(
                    f"nobody answers {asked.question!r} of the tool {asked.tool!r}, which has no timeout: "
                    "the run would wait for ever"
                )

    async def _answer_to(self, asked: AskedQuestion, place: int) -> Any:
        answers = self._answers.get(asked.tool, ())
        if callable(answers):
            found = answers(asked)
            return await found if isawaitable(found) else found
        if place >= len(answers):
            raise AssertionError(
                f"the tool {asked.tool!r} asks {asked.question!r}, and the test has no answer left; "
                f"give one more, or TimeoutError for nobody: answers={{{asked.tool!r}: [...]}}"
            )
        return answers[place]

    async def _give(self, engine: Engine, asked: AskedQuestion, k: int, answer: Any) -> None:
        try:
            await engine.answers.answer(asked.call_id, self._principal, answer, k=k)
        except Conflict:
            pass  # answered before this process was started, or the run has ended meanwhile: the log says which
        except InvalidRequest as error:
            raise AssertionError(f"the answer {answer!r} to {asked.question!r} is refused: {told(error)}") from None
