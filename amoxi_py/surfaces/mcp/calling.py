"""Calls of the app's tools: at once where nothing is lost by that, else as a durable run of the caller."""

from __future__ import annotations

import mcp_types as wire

from amoxi_py.domain.direct import direct_agent
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.surfaces.mcp.contents import RUN_ID, Reply, failure
from amoxi_py.surfaces.mcp.dialogue import QUICK_S, Interim, open_question
from amoxi_py.surfaces.mcp.flights import Flight
from amoxi_py.surfaces.mcp.progress import Progress
from amoxi_py.surfaces.mcp.publishing import Published
from amoxi_py.surfaces.mcp.requests import ToolRequest
from amoxi_py.surfaces.mcp.run_calls import RunCalls

_LOOK_AGAIN_S = 5.0


class ToolCalls(RunCalls):
    """Calls tools."""

    async def call(self, request: ToolRequest, published: Published) -> Reply:
        """Return the result of a call of a tool; raise `MCPError` as `Answering.answer` does."""
        if not self._engine.needs_run(request.name) and request.run_id is None and request.round is None:
            return await self._answering.answer(
                request,
                lambda flight: self._at_once(request, published, flight),
                linger=self._settings.linger_at_once,
                goes_on=_goes_on,
            )
        return await self._answering.answer(
            request,
            lambda flight: self._as_run(request, published, flight),
            linger=self._settings.linger_of_runs,
            goes_on=_goes_on,
        )

    async def _at_once(self, request: ToolRequest, published: Published, flight: Flight) -> wire.CallToolResult:
        self._answering.began_at_once(flight, request)
        if request.report is None:
            call = await self._engine.call_now(request.name, request.arguments, principal=request.principal)
            return await self._contents.of_call(published, call, request.principal)
        progress = Progress(request.report, self._settings.heartbeat)
        progress.start()
        try:
            call = await self._engine.call_now(request.name, request.arguments, principal=request.principal)
        finally:
            progress.stop()
        return await self._contents.of_call(published, call, request.principal)

    async def result_of(self, run: Run, published: Published, principal: Principal) -> wire.CallToolResult:
        """Return the result of a call whose run has ended."""
        view = await self._engine.call_of(run.id, principal)
        return await self._result(run, view.call, published, principal)

    async def _as_run(self, request: ToolRequest, published: Published, flight: Flight) -> Reply:
        if request.round is not None:
            run_id = request.round.run_id
            self._answering.began(flight, request, run_id, started=request.round.started)
        elif request.run_id is None:
            submission = self._engine.submit_call(
                request.name,
                request.arguments,
                principal=request.principal,
                idempotency_key=request.idempotency_key,
            )
            run_id = (await self._submitted(flight, request, submission)).id
        else:
            run = await self._engine.get_run(request.run_id, request.principal, direct_agent(request.name))
            run_id = run.id
            self._answering.began(flight, request, run_id, started=False)
        run, call, interim = await self._wait(request, flight, run_id)
        if interim is not None:
            return interim
        return await self._result(run, call, published, request.principal)

    async def _result(
        self, run: Run, call: ToolCall, published: Published, principal: Principal
    ) -> wire.CallToolResult:
        if call.status.settled:
            return await self._contents.of_call(published, call, principal, run.id)
        if run.status.final:
            return failure("The call failed." if run.error is None else run.error.message, run.id)
        return failure(_question_open(run), run.id)

    async def _wait(self, request: ToolRequest, flight: Flight, run_id: str) -> tuple[Run, ToolCall, Interim | None]:
        """Return the run when it has ended, or when it has asked a question and nobody has answered in good time.

        With a client that can be asked, or takes tasks, there may be something else to answer with before that.
        """
        engine, principal = self._engine, request.principal
        async with self._telling(request, flight, run_id, of_agent=False) as telling:
            if telling.wanted:
                await telling.follower()
            interim = None
            dialogue = self._dialogue(request, started=flight.started) if request.talks else None
            patience = self._settings.answer_within if dialogue is None else QUICK_S
            run, view = await engine.wait_call(run_id, principal, timeout=patience)
            if dialogue is not None and not run.status.final:
                run, interim = await dialogue.wait(run_id, await telling.follower())
                view = await engine.call_of(run_id, principal)
            while interim is None and not run.status.final and open_question(run) is None:
                run, view = await engine.wait_call(run_id, principal, timeout=_LOOK_AGAIN_S)
            if run.status.final:
                await telling.rest()
            return run, view.call, interim


def _question_open(run: Run) -> str:
    question = open_question(run)
    asked = "" if question is None else question.name or ""
    return (
        f"The tool waits for an answer to its question: {asked}\nIt goes on as the run {run.id} when that is "
        f"answered in the app. Do not call it anew; its result can be had with _meta {RUN_ID!r} set to {run.id!r}."
    )


def _goes_on(run_id: str) -> str:
    return (
        f"The call goes on as the run {run_id}: do not call it anew; its result can be had with _meta {RUN_ID!r} set "
        f"to {run_id!r}."
    )
