"""Time in a test's runs: when all that is left to wait for is a time, the clock jumps to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from amoxi_py.app.runtime import Runtime
from amoxi_py.domain.ids import child_run_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus
from amoxi_py.ports.clock import SystemClock
from amoxi_py.testing.answers import Answering

_LOOK_AGAIN = 0.02
_A_MOMENT = 0.001


class JumpingClock(SystemClock):
    """The machine's calendar, ahead by what it has jumped; `kept` is the file that tells the next process of it."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept
        self._ahead = float(kept.read_text("ascii") or 0.0) if kept.exists() else 0.0

    def now(self) -> float:
        return super().now() + self._ahead

    def jump_to(self, time: float) -> None:
        """Let it be a moment after a time."""
        self._ahead += max(time + _A_MOMENT - self.now(), 0.0)
        self._kept.write_text(repr(self._ahead), "ascii")


class PassingTime:
    """Jumps over the times that a run, and all below it, wait for, when nothing else goes on in them."""

    def __init__(
        self, runtime: Runtime, clock: JumpingClock, run_id: str, principal: Principal, answering: Answering
    ) -> None:
        self._engine = runtime.engine
        self._clock = clock
        self._run_id = run_id
        self._principal = principal
        self._answering = answering
        self.waits = asyncio.Event()

    async def pass_by(self) -> None:
        """Jump whenever the run has come to wait for times alone; `waits` says that it may have."""
        while True:
            await self.waits.wait()
            run = await self._engine.get_run(self._run_id, self._principal)
            times = await self._times(run)
            if times and min(times) > self._clock.now():
                self._clock.jump_to(min(times))
                await self._engine.take_up(run.conversation_id, self._principal)
            await asyncio.sleep(_LOOK_AGAIN)

    async def _times(self, run: Run) -> list[float] | None:
        """Return the times at which a run goes on; None when something else than a time is waited for, or goes on."""
        if run.status is not RunStatus.WAITING:
            return None
        times: list[float] = []
        for one in run.waiting_for:
            if one.kind == "child":
                assert one.call_id is not None
                below = await self._times(await self._engine.get_run(child_run_id(one.call_id), self._principal))
                if below is None:
                    return None
                times += below
            elif one.kind in ("sleep", "signal") or (one.call_id, one.k) in self._answering.unanswered:
                times += [] if one.expires_at is None else [one.expires_at]
            else:
                return None
        return times
