"""One request's part in the talk with a client of 2026-07-28: what came with it, and what it is answered with.

A run that waits for what the client can give is answered with a question to it; one that takes its time with a task,
where the client takes tasks.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as wire

from amoxi_py.domain.run import Run, RunStatus, Waiting
from amoxi_py.engine.engine import Engine
from amoxi_py.surfaces.mcp.contents import RUN_ID
from amoxi_py.surfaces.mcp.inputs import Inputs, Refused
from amoxi_py.surfaces.mcp.progress import Follower
from amoxi_py.surfaces.mcp.requests import ToolRequest
from amoxi_py.surfaces.mcp.rounds import Round
from amoxi_py.surfaces.mcp.tasks import created_task

Interim = wire.InputRequiredResult | dict[str, Any]
"""An answer to a call that is not its result: what the client is to be asked for, or a task."""

QUICK_S = 0.1
"""So long a run is only waited for: most have ended by then."""

_LOOK_AGAIN_S = 1.0
_FOR_EVER_S = 3600.0


def open_question(run: Run) -> Waiting | None:
    """Return the question that a run has asked and that is open, if there is one."""
    return next((waiting for waiting in run.waiting_for if waiting.kind == "question"), None)


class Dialogue:
    """What one request can do beside waiting for its run."""

    def __init__(self, engine: Engine, request: ToolRequest, *, started: bool, task_after: float) -> None:
        self._engine = engine
        self._request = request
        self._inputs = Inputs(engine)
        self._started = started
        self._responses = dict(request.responses)
        self._left_open = set(request.round.left_open if request.round is not None else ())
        self._loop = asyncio.get_running_loop()
        self._task_at = self._loop.time() + task_after if request.takes_tasks else None

    async def wait(
        self, run_id: str, follower: Follower, *, deadline: float | None = None, until_asked: bool = False
    ) -> tuple[Run, Interim | None]:
        """Return the run when it has ended, or is waited for no longer, or when there is something else to answer with.

        Args:
            run_id: The run.
            follower: Of its log.
            deadline: By the loop's clock: after it the run is waited for no longer. None: as long as it takes.
            until_asked: Whether a question is worth to be told of where the client cannot be asked.
        """
        engine, principal = self._engine, self._request.principal
        while True:
            run = await engine.get_run(run_id, principal)
            if run.status.final:
                return run, None
            own = run.principal.owner_key == principal.owner_key  # and not one that is only read
            task_at = self._task_at if own else None
            if self._request.fills_forms and own:
                asked, over = await self._go_on(run)
                if asked is not None:
                    return run, asked
            else:
                over = until_asked and open_question(run) is not None
            now = self._loop.time()
            if over or (deadline is not None and now >= deadline):
                return run, None
            if task_at is not None and now >= task_at:
                return run, created_task(run, engine.now())
            left = min((time - now for time in (task_at, deadline) if time is not None), default=_FOR_EVER_S)
            if follower.failed:
                await engine.wait(run_id, principal, timeout=min(left, _LOOK_AGAIN_S))
            else:
                await follower.news(left)

    async def _go_on(self, run: Run) -> tuple[wire.InputRequiredResult | None, bool]:
        """Hand over what came with the request, and return what else to ask for.

        The second value is whether the run waits only for answers that the person did not want to give.
        """
        asks = await self._inputs.open(run, self._request.principal)
        requests: dict[str, wire.ElicitRequest] = {}
        left_open = 0
        for key, ask in asks.items():
            response, refusal = self._responses.pop(key, None), None
            if isinstance(response, wire.ElicitResult):
                try:
                    if await self._inputs.take(run, ask, response, self._request.principal):
                        continue
                    self._left_open.add(key)
                except Refused as error:
                    refusal = str(error)
            if key in self._left_open:
                left_open += 1
            else:
                requests[key] = ask.request(refusal)
        if not requests:
            rest = [waiting for waiting in run.waiting_for if waiting.kind != "child"]  # which tell what it waits for
            return None, run.status is RunStatus.WAITING and 0 < left_open == len(rest)
        state = Round(run_id=run.id, started=self._started, left_open=frozenset(self._left_open))
        asked = wire.InputRequiredResult(
            input_requests=dict(requests), request_state=state.told(), _meta={RUN_ID: run.id}
        )
        return asked, False
