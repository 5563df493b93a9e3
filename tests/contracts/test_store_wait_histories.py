"""Invented histories of calls that wait, with lost answers: what is given, kept and due is what a small model says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st

from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.errors import Conflict

CALLS = st.integers(0, 2)
NAMES = st.sampled_from("ab")
LOST = st.booleans()
TRIALS = int(os.environ.get("AMOXI_TRIALS", "8"))


class WaitHistory(stateful.RuleBasedStateMachine):
    """One run with three started calls, and a worker that executes it whenever it is due."""

    def __init__(self, new_world: Callable[[], Any]) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.world = new_world()
        self.run(self.world.open())
        self.store = self.world.store
        self.worker = self.run(self.world.worker(lease_s=10**6))
        self.lease = self.run(self.world.start(self.worker))
        self.calls = [self.world.call(self.lease, 1, n, status=CallStatus.STARTED) for n in range(3)]
        self.run(self.store.write(self.world.reply(self.lease, 1, *self.calls)))
        self.waits: list[list[dict[str, Any]]] = [[], [], []]
        self.settled: set[int] = set()
        self.kept: list[tuple[str, str]] = []
        self.status = RunStatus.RUNNING
        self.due: float | None = None
        self.sent = 0

    def run(self, verb: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await verb

        return self.loop.run(wait())

    def teardown(self) -> None:
        try:
            log = self.run(self.world.log(self.lease))
            assert [event.data for event in log] == [event.data for event in self.world.told]
        finally:
            self.run(self.store.close())
            self.loop.close()

    def lose(self, lost: bool) -> None:
        if lost:
            self.world.lose_answer()

    @property
    def now(self) -> float:
        now: float = self.world.clock.now()
        return now

    def is_open(self, n: int, wait: dict[str, Any]) -> bool:
        late = wait["until"] is not None and wait["until"] <= self.now
        return self.status is not RunStatus.CANCELLED and n not in self.settled and wait["value"] is None and not late

    def give(self, wait: dict[str, Any], value: str) -> None:
        wait["value"] = value
        if self.status is RunStatus.WAITING:
            self.status, self.due = RunStatus.QUEUED, self.now

    @stateful.rule(
        n=CALLS, kind=st.sampled_from(["question", "signal"]), name=NAMES, s=st.sampled_from([None, 20]), lost=LOST
    )
    def wait(self, n: int, kind: str, name: str, s: int | None, lost: bool) -> None:
        free = [one for one, mine in enumerate(self.waits) if not (mine and self.is_open(one, mine[-1]))]
        free = [one for one in free if one not in self.settled]
        if self.status is not RunStatus.RUNNING or not free:
            return
        n = free[n % len(free)]
        mine = self.waits[n]
        until = None if s is None else self.now + s
        change = self.world.waits_for(self.lease, self.calls[n], kind, name, k=len(mine) + 1, until=until)
        self.lose(lost)
        self.run(self.store.write(change))
        mine.append({"kind": kind, "name": name, "until": until, "since": self.now, "value": None})
        kept = [one for one in self.kept if one[0] == name]
        if kind == "signal" and kept:
            self.kept.remove(kept[0])
            mine[-1]["value"] = kept[0][1]

    @stateful.rule(n=CALLS, back=st.integers(0, 1), value=NAMES, lost=LOST)
    def answer(self, n: int, back: int, value: str, lost: bool) -> None:
        asked = [one for one, mine in enumerate(self.waits) if [wait for wait in mine if wait["kind"] == "question"]]
        if not asked:
            return
        n = asked[n % len(asked)]
        mine = self.waits[n]
        k = max(len(mine) - back, 1)
        if mine[k - 1]["kind"] != "question":
            return
        wait = mine[k - 1]
        answer = self.world.answer(self.calls[n], value, k=k)
        takes_it = self.is_open(n, wait)
        self.lose(lost)
        try:
            self.run(self.store.answer(answer))
        except Conflict:
            assert not takes_it
            assert wait["value"] != answer.value
            return
        assert takes_it or wait["value"] == answer.value
        if takes_it:
            self.give(wait, answer.value)

    @stateful.rule(name=NAMES, lost=LOST)
    def signal(self, name: str, lost: bool) -> None:
        self.sent += 1
        signal = self.world.signal(self.lease, name, self.sent)
        self.lose(lost)
        try:
            self.run(self.store.signal(signal))
        except Conflict:
            assert self.status is RunStatus.CANCELLED
            return
        listening = [
            (mine[-1]["since"], n)
            for n, mine in enumerate(self.waits)
            if mine and (mine[-1]["kind"], mine[-1]["name"]) == ("signal", name) and self.is_open(n, mine[-1])
        ]
        if listening:
            self.give(self.waits[min(listening)[1]][-1], signal.payload)
        else:
            self.kept.append((name, signal.payload))

    @stateful.precondition(lambda self: sum(map(len, self.waits)) > 2 * len(self.settled) + 2)
    @stateful.rule(n=CALLS, lost=LOST)
    def settle(self, n: int, lost: bool) -> None:
        if self.status is RunStatus.RUNNING and n not in self.settled:
            self.lose(lost)
            self.run(self.store.write(self.world.result(self.lease, self.calls[n])))
            self.settled.add(n)

    @stateful.precondition(lambda self: any(self.waits))
    @stateful.rule(lost=LOST)
    def pause(self, lost: bool) -> None:
        if self.status is not RunStatus.RUNNING:
            return
        last = [mine[-1] for n, mine in enumerate(self.waits) if mine and n not in self.settled]
        given = any(wait["value"] is not None for wait in last)
        until = min((wait["until"] for wait in last if wait["until"] is not None), default=None)
        self.lose(lost)
        assert self.run(self.store.pause(self.world.change(self.lease), until, ("question",))) is not given
        if not given:
            self.status, self.due = RunStatus.WAITING, until

    @stateful.rule(seconds=st.sampled_from([1, 20]))
    def let_time_pass(self, seconds: int) -> None:
        self.world.clock.move(seconds)

    @stateful.rule(lost=LOST)
    def claim(self, lost: bool) -> None:
        if self.status is RunStatus.RUNNING:
            return
        self.lose(lost)
        claimed = self.run(self.world.claim(self.worker))
        assert bool(claimed) is (self.due is not None and self.due <= self.now)
        if claimed:
            (self.lease,) = claimed
            self.status, self.due = RunStatus.RUNNING, None

    @stateful.precondition(lambda self: sum(map(len, self.waits)) > 7)
    @stateful.rule()
    def cancel(self) -> None:
        self.run(self.store.cancel(self.lease.run_id, self.world.ann))
        self.status, self.due = RunStatus.CANCELLED, None

    @stateful.invariant()
    def readers_and_the_worker_see_the_model(self) -> None:
        run = self.run(self.store.get_run(self.lease.run_id, self.world.ann))
        last = [(n, mine[-1]) for n, mine in enumerate(self.waits) if mine and n not in self.settled]
        open_to_readers = [(n, wait) for n, wait in last if wait["value"] is None and not run.status.final]
        assert run.status is self.status
        assert [(one.call_id, one.kind, one.name) for one in run.waiting_for] == [
            (self.calls[n].id, wait["kind"], wait["name"]) for n, wait in open_to_readers
        ]
        if self.status is RunStatus.RUNNING:
            rows = self.run(self.store.load(self.lease))
            seen = [[wait.value for wait in rows.waits.get((1, n), ())] for n in range(3)]
            assert seen == [[wait["value"] for wait in mine] for mine in self.waits]


def test_no_history_of_waits_parts_the_store_from_its_model(new_world: Callable[[], Any]) -> None:
    stateful.run_state_machine_as_test(
        lambda: WaitHistory(new_world),
        settings=settings(
            max_examples=TRIALS, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
