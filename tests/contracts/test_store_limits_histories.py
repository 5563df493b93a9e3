"""Invented histories of what is admitted: two processes and their limits against a model that only counts."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st

from amoxi_py.domain.limits import Limits
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import TooMany

TRIALS = int(os.environ.get("AMOXI_TRIALS", "30"))
LIMITS = Limits(in_flight=5, runs_at_once=3, requests_per_minute=6, runs_per_day=9, tokens_per_day=100)
MINUTE, DAY = 60, 86_400
WHO = st.sampled_from(["ann", "bob"])
PROCESS = st.integers(0, 1)


async def answer(verb: Any) -> Any:
    return await verb


class LimitsHistory(stateful.RuleBasedStateMachine):
    """`runs` are those that have not ended; the counters hold what was counted, by principal and period."""

    def __init__(self, new_world: Callable[[], Any]) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.world = new_world()
        self.world.store = self.world.place.store(self.world.clock, LIMITS)
        self.other = type(self.world)(self.world.place, self.world.clock, LIMITS)
        self.run(self.world.open())
        self.run(self.other.open())
        self.worker = self.run(self.world.worker(10 * DAY))
        self.runs: list[dict[str, Any]] = []
        self.requests: Counter[tuple[str, int]] = Counter()
        self.begun: Counter[tuple[str, int]] = Counter()
        self.tokens: Counter[tuple[str, int]] = Counter()

    def run(self, verb: Any) -> Any:
        return self.loop.run(answer(verb))

    def ask(self, verb: Any) -> tuple[Any, str | None]:
        """Return the answer to a verb, or the code that it is refused with."""
        try:
            return self.run(verb), None
        except TooMany as error:
            return None, error.code

    def teardown(self) -> None:
        self.run(self.world.store.close())
        self.run(self.other.store.close())
        self.loop.close()

    @stateful.rule(who=WHO, process=PROCESS, lost=st.booleans())
    def submit(self, who: str, process: int, lost: bool) -> None:
        world = (self.world, self.other)[process]
        principal = getattr(world, who)
        expected = self.refusal(who)
        if lost and expected is None:  # of a refusal nothing is committed, and the next one would lose its answer
            world.lose_answer()
        submitted, code = self.ask(world.submit(principal=principal, claim_by=self.worker))
        assert code == expected
        if code is not None:
            return
        self.requests[who, self.period(MINUTE)] += 1
        self.begun[who, self.period(DAY)] += 1
        conversation = submitted.run.conversation_id
        self.runs.append({"who": who, "status": "running", "lease": submitted.rows.lease, "conversation": conversation})

    @stateful.rule(process=PROCESS, which=st.integers(0, 10))
    def replace(self, process: int, which: int) -> None:
        if not self.runs:
            return
        run, world = self.runs[which % len(self.runs)], (self.world, self.other)[process]
        who, conversation = run["who"], run["conversation"]
        submission = world.submission("instead", conversation=conversation, principal=getattr(world, who))
        expected = self.refusal(who, replaces=run["status"] != "waiting")
        submitted, code = self.ask(world.store.submit(submission))
        assert code == expected
        if code is not None:
            return
        self.requests[who, self.period(MINUTE)] += 1
        self.begun[who, self.period(DAY)] += 1
        self.runs.remove(run)
        self.runs.append({"who": who, "status": submitted.run.status.value, "conversation": conversation})

    @stateful.rule(who=WHO, process=PROCESS)
    def ask_for_something_else(self, who: str, process: int) -> None:
        world = (self.world, self.other)[process]
        full = self.requests[who, self.period(MINUTE)] >= LIMITS.requests_per_minute
        _, code = self.ask(world.store.count_request(getattr(world, who)))
        assert code == ("too_many_requests" if full else None)
        self.requests[who, self.period(MINUTE)] += code is None

    @stateful.rule(
        which=st.integers(0, 10), tokens=st.integers(0, 60), end=st.sampled_from(["finish", "fail", "cancel"])
    )
    def end(self, which: int, tokens: int, end: str) -> None:
        run = self.one("running", which)
        if run is None:
            return
        usage = Usage(requests=1, input_tokens=tokens // 2, output_tokens=tokens - tokens // 2)
        self.run(self.world.write(self.world.change(run["lease"], usage=usage)))
        if end == "cancel":
            self.run(self.world.store.cancel(run["lease"].run_id, getattr(self.world, run["who"])))
        else:
            change = self.world.finish(run["lease"], 1) if end == "finish" else self.world.fail(run["lease"])
            self.run(self.world.write(change))
        self.tokens[run["who"], self.period(DAY)] += tokens
        self.runs.remove(run)

    @stateful.rule(which=st.integers(0, 10))
    def wait(self, which: int) -> None:
        run = self.one("running", which)
        if run is None:
            return
        lease = run["lease"]
        run["call"] = self.world.call(lease, 1, approval=self.world.approval())
        self.run(self.world.store.write(self.world.reply(lease, 1, run["call"])))
        assert self.run(self.world.store.pause(self.world.change(lease), None, ("approval",)))
        run["status"] = "waiting"

    @stateful.rule(which=st.integers(0, 10))
    def go_on(self, which: int) -> None:
        run = self.one("waiting", which)
        if run is None:
            return
        verdict = self.world.verdict(run["call"], run["lease"], principal=getattr(self.world, run["who"]))
        self.run(self.other.store.decide(verdict))
        run["status"] = "queued"

    @stateful.rule(seconds=st.sampled_from([1, 20, 45, DAY // 3]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.move(seconds)

    def refusal(self, who: str, *, replaces: bool = False) -> str | None:
        """The code that a submission, which may replace a run in flight, is refused with, or None."""
        going = [run["who"] for run in self.runs if run["status"] in ("queued", "running")]
        day = (who, self.period(DAY))
        if len(going) >= LIMITS.in_flight:
            return "busy"
        if self.requests[who, self.period(MINUTE)] >= LIMITS.requests_per_minute:
            return "too_many_requests"
        if going.count(who) >= LIMITS.runs_at_once and not replaces:
            return "too_many_runs"
        if self.begun[day] >= LIMITS.runs_per_day or self.tokens[day] >= LIMITS.tokens_per_day:
            return "daily_budget_used"
        return None

    def one(self, status: str, which: int) -> dict[str, Any] | None:
        fitting = [run for run in self.runs if run["status"] == status]
        return fitting[which % len(fitting)] if fitting else None

    def period(self, seconds: int) -> int:
        return int(self.world.clock.now() // seconds)


def test_invented_histories_are_admitted_as_a_count_says(new_world: Callable[[], Any]) -> None:
    stateful.run_state_machine_as_test(
        lambda: LimitsHistory(new_world),
        settings=settings(
            max_examples=max(TRIALS // 2, 1),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
