"""Calls of `ask_<agent>`: a message, the rest of an earlier answer, or the answer to a question of the agent."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as wire

from amoxi_py.domain.encoding import clean_text, decode_json
from amoxi_py.domain.event import time_text
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus, Waiting
from amoxi_py.errors import ArgumentsInvalid, Conflict
from amoxi_py.surfaces.mcp.contents import Reply, answer, failure
from amoxi_py.surfaces.mcp.dialogue import Interim, open_question
from amoxi_py.surfaces.mcp.flights import Flight
from amoxi_py.surfaces.mcp.publishing import Published
from amoxi_py.surfaces.mcp.requests import ToolRequest
from amoxi_py.surfaces.mcp.run_calls import RunCalls
from amoxi_py.surfaces.mcp.schemas import RESULT
from amoxi_py.surfaces.question_answers import answer_from_text

_FIELDS = ("message", "conversation_id", "run_id")
_LAST_MESSAGES = 20


class AgentCalls(RunCalls):
    """Asks agents."""

    async def call(self, request: ToolRequest, published: Published) -> Reply:
        """Return what an agent answers; raise `MCPError` as `Answering.answer` does."""
        return await self._answering.answer(
            request,
            lambda flight: self._ask(request, published, flight),
            linger=self._settings.linger_of_runs,
            goes_on=lambda run_id: _goes_on(request, run_id),
        )

    async def result_of(self, run: Run, published: Published, principal: Principal) -> wire.CallToolResult:
        """Return what an agent has answered, with the files that it shows, or how far it has come."""
        result = _told(run, published)
        if run.status is RunStatus.COMPLETED:
            result.content += await self._contents.files_of(await self._shown(run, principal), principal)
        return result

    async def _ask(self, request: ToolRequest, published: Published, flight: Flight) -> Reply:
        waited = 0.0 if request.stream is None else request.stream.waited
        deadline = asyncio.get_running_loop().time() + max(self._settings.answer_within - waited, 0.0)
        agent = published.agent
        assert agent is not None, "what asks an agent names it"
        given = _read(request)
        run_id, message = given.get("run_id", request.run_id), given.get("message")
        if request.round is not None:
            run = await self._engine.get_run(request.round.run_id, request.principal, agent)
            self._answering.began(flight, request, run.id, started=request.round.started)
        elif run_id is None:
            submission = self._engine.submit(
                agent,
                given["message"],
                principal=request.principal,
                conversation_id=given.get("conversation_id"),
                idempotency_key=request.idempotency_key,
            )
            run = await self._submitted(flight, request, submission)
        else:
            run = await self._engine.get_run(run_id, request.principal, agent)
            self._answering.began(flight, request, run.id, started=False)
            if message is not None and "run_id" in given:
                await self._answer_question(run, message, request, agent)
        run, interim = await self._wait(request, flight, run.id, deadline)
        return await self.result_of(run, published, request.principal) if interim is None else interim

    async def _answer_question(self, run: Run, message: str, request: ToolRequest, agent: str) -> None:
        question = open_question(run)
        if question is None or question.call_id is None:
            raise Conflict(
                f"the run {run.id!r} is {run.status.value} and asks nothing: leave `message` out to wait for it, or "
                "leave `run_id` out to say something new"
            )
        await self._engine.answers.answer(
            question.call_id,
            request.principal,
            answer_from_text(question.schema, message),
            k=question.k,
            run_id=run.id,
            agent=None,  # a question of a run below it is told in this one too
        )

    async def _shown(self, run: Run, principal: Principal) -> list[str]:
        """Return the ids of the files that the agent's answers of this run show."""
        page = await self._engine.read_conversation(run.conversation_id, principal, run.agent, limit=_LAST_MESSAGES)
        of_run = [message for message in page.messages.items if message.run_id == run.id]
        return [file_id for message in of_run if message.role == "assistant" for file_id in message.files]

    async def _wait(
        self, request: ToolRequest, flight: Flight, run_id: str, deadline: float
    ) -> tuple[Run, Interim | None]:
        """Return the run when it has ended, asks something, or the time is over.

        With a client that can be asked, or takes tasks, there may be something else to answer with before that.
        """
        async with self._telling(request, flight, run_id, of_agent=True) as telling:
            follower = await telling.follower()
            dialogue = self._dialogue(request, started=flight.started)
            run, interim = await dialogue.wait(run_id, follower, deadline=deadline, until_asked=True)
            if run.status.final:
                await telling.rest()
            return run, interim


def _told(run: Run, published: Published) -> wire.CallToolResult:
    if run.status is RunStatus.FAILED:
        return failure("The run failed." if run.error is None else run.error.message, run.id)
    if run.status is RunStatus.CANCELLED:
        return failure("The run was cancelled.", run.id)
    structured = _structured(run)
    if not published.fits(structured):
        structured.pop(RESULT, None)  # of a version of the app with another form of it
    return answer(_text(run), structured, run.id)


def _read(request: ToolRequest) -> dict[str, str]:
    """Return what was given; raise `ArgumentsInvalid` for what the schema, or the door, does not allow."""
    wrong: list[tuple[str, str]] = []
    given: dict[str, str] = {}
    for name, value in request.arguments.items():
        if name not in _FIELDS:
            wrong.append((str(name)[:100], "there is no such argument"))
        elif value is not None and not isinstance(value, str):
            wrong.append((name, "it must be a text"))
        elif value:  # some clients send every argument, those that they leave out as empty
            given[name] = clean_text(value)
    if "conversation_id" in given and "run_id" in given:
        wrong.append(("conversation_id", "a run is in a conversation already; give `run_id` without it"))
    elif "message" not in given and "run_id" not in given and request.run_id is None and not wrong:
        wrong.append(("message", "give what the agent is asked, or the `run_id` of an earlier answer"))
    if wrong:
        raise ArgumentsInvalid(tuple(wrong))
    return given


def _structured(run: Run) -> dict[str, Any]:
    told: dict[str, Any] = {
        "run_id": run.id,
        "conversation_id": run.conversation_id,
        "status": run.status.value,
        "output": run.output,
    }
    if run.result is not None:
        told[RESULT] = decode_json(run.result)
    if not run.status.final:
        told["waiting_for"] = [_waiting(waiting) for waiting in run.waiting_for]
    return told


def _waiting(waiting: Waiting) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": waiting.kind}
    if waiting.tool is not None:
        told["tool"] = waiting.tool
    if waiting.kind == "question":
        told["question"] = waiting.name
        told["schema"] = None if waiting.schema is None else decode_json(waiting.schema)
    if waiting.expires_at is not None:
        told["expires_at"] = time_text(waiting.expires_at)
    return told


def _text(run: Run) -> str:
    if run.status is RunStatus.COMPLETED:
        return run.output or ""
    question = open_question(run)
    if question is not None:
        schema = "" if question.schema is None else f" The answer must be JSON that fits this schema: {question.schema}"
        return (
            f"The agent asks: {question.name}\nTo answer it, call this tool again with run_id={run.id!r} and the "
            f"answer as message.{schema}"
        )
    approval = next((waiting for waiting in run.waiting_for if waiting.kind == "approval"), None)
    if approval is not None:
        return (
            f"The agent waits until a person approves {approval.tool!r} in the app. To wait for the rest, call this "
            f"tool again with run_id={run.id!r}."
        )
    return f"The agent is still working. To wait for the rest, call this tool again with run_id={run.id!r}."


def _goes_on(request: ToolRequest, run_id: str) -> str:
    return (
        f"The agent goes on: do not ask it anew. To wait for the rest, call {request.name!r} again in a moment with "
        f"run_id={run_id!r}."
    )
