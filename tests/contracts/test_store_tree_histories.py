"""Invented trees of runs: the store against a model of them, with lost answers, kills, and cancels of any part."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st
from msgspec.structs import replace

from amoxi_py.domain.run import RunStatus, Trigger, next_status
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import LeaseLost

LEASE_S = 30
TRIALS = int(os.environ.get("AMOXI_TRIALS", "30")) // 3
LOST = st.booleans()


async def answer(verb: Any) -> Any:
    return await verb


class TreeHistory(stateful.RuleBasedStateMachine):
    """Two workers and one principal with two conversations; `runs` says what the store must say."""

    leases = stateful.Bundle("leases")

    def __init__(self, new_world: Callable[[], Any]) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.world = new_world()
        self.run(self.world.open())
        self.store = self.world.store
        self.workers = [self.run(self.world.worker(LEASE_S)) for _ in range(2)]
        self.dead: set[int] = set()
        self.runs: dict[str, dict[str, Any]] = {}
        self.held: dict[str, float] = {}

    def run(self, verb: Any) -> Any:
        return self.loop.run(answer(verb))

    def teardown(self) -> None:
        try:
            self.compare()
        finally:
            self.run(self.store.close())
            self.loop.close()

    # -- what the principal does

    @stateful.rule(place=st.integers(0, 1))
    def submit(self, place: int) -> None:
        conversation = list(self.held)[place] if place < len(self.held) else None
        submission = self.world.submission(conversation=conversation, on_busy="queue")
        self.run(self.store.submit(submission))
        conversation = submission.conversation_id
        held = self.held.setdefault(conversation, 0.0)
        busy = bool(self.roots_of(conversation))
        run = self.new_run(submission.run_id, conversation, None)
        run["wake"] = None if busy else max(self.now, held)

    @stateful.rule(which=st.integers(0, 20), lost=LOST)
    def cancel(self, which: int, lost: bool) -> None:
        runs = list(self.runs.values())
        if not runs:
            return
        run = runs[which % len(runs)]
        self.lose(lost)
        seen = self.run(self.store.cancel(run["id"], self.world.ann))
        if is_open(run):
            busy = self.end_below(run)
            busy = self.end_one(run) or busy
            if run["parent"] is not None:
                self.settle_parent(run, CallStatus.STOPPED)
            else:
                self.held[run["conversation"]] = self.now + 1 if busy else self.held[run["conversation"]]
                self.wake_next(run, max(self.now, self.held[run["conversation"]]))
        assert seen.status == run["status"]

    # -- what workers do

    @stateful.rule(target=leases, worker=st.integers(0, 1), limit=st.sampled_from([1, 10, 10]), lost=LOST)
    def claim(self, worker: int, limit: int, lost: bool) -> Any:
        mine = self.workers[worker]
        abandoned = [run for run in self.runs.values() if self.abandoned(run)]
        due = [run for run in self.runs.values() if run["wake"] is not None and run["wake"] <= self.now]
        self.lose(lost)
        claimed = self.run(self.world.claim_rows(mine, limit))
        ids = [rows.lease.run_id for rows in claimed]
        places = 0 if mine.key in self.dead else limit
        first = [run["id"] for run in abandoned][:places]
        assert ids[: len(first)] == first
        assert set(ids[len(first) :]) <= {run["id"] for run in due}
        assert len(set(ids)) == len(ids) == min(places, len(abandoned) + len(due))
        for rows in claimed:
            run = self.runs[rows.lease.run_id]
            self.move(run, Trigger.TAKE_OVER if self.abandoned(run) else Trigger.CLAIM)
            run.update(lease=rows.lease, wake=None, news=False)
            assert [one.run_id for one in rows.ancestors] == [above["id"] for above in reversed(self.above(run))]
            assert rows.agent == ("researcher" if run["parent"] is not None else self.world.agent)
            calls = {(call.turn, call.n): call.status for message in rows.messages for call in message.calls}
            assert calls == run["calls"]
        return stateful.multiple(*(rows.lease for rows in claimed))

    @stateful.rule(lease=leases, count=st.integers(1, 2), lost=LOST)
    def ask(self, lease: Any, count: int, lost: bool) -> None:
        run = self.runs[lease.run_id]
        if self.unsettled(run):
            return
        turn = run["turn"] + 1
        calls = [self.world.call(lease, turn, n, tool="ask_researcher") for n in range(count)]
        if self.write(lease, self.world.reply(lease, turn, *calls), False):
            run["turn"] = turn
            assert self.write(lease, self.world.asks(lease, *calls), lost)
            for call in calls:
                run["calls"][turn, call.n] = CallStatus.STARTED
                child = self.new_run(self.world.child(call).run_id, run["conversation"], run, (turn, call.n))
                child["wake"] = self.now

    @stateful.rule(lease=leases, failed=st.booleans(), lost=LOST)
    def end(self, lease: Any, failed: bool, lost: bool) -> None:
        run = self.runs[lease.run_id]
        if not failed and self.unsettled(run):
            return
        status = CallStatus.FAILED if failed else CallStatus.DONE
        change = self.world.fail(lease) if failed else self.world.finish(lease, run["turn"] + 1)
        more: dict[str, Any] = {"usage": Usage(requests=1)}
        if run["parent"] is not None:
            call = self.world.call(run["parent"]["any_lease"], *run["place"])
            more["for_parent"] = self.world.for_parent(call, "x", status)
        if not self.write(lease, replace(change, **more), lost):
            return
        run["used"] = 1
        busy = self.end_below(run)
        self.move(run, Trigger.FAIL if failed else Trigger.COMPLETE)
        if run["parent"] is not None:
            self.settle_parent(run, status)
        else:
            self.held[run["conversation"]] = self.now + 1 if busy else self.held[run["conversation"]]
            self.wake_next(run, self.now + 1 if busy else self.now)

    @stateful.rule(lease=leases, lost=LOST)
    def pause(self, lease: Any, lost: bool) -> None:
        run, valid = self.runs[lease.run_id], self.valid(lease)
        self.lose(lost)
        try:
            waits = self.run(self.store.pause(self.world.change(lease), None, ("child",)))
        except LeaseLost:
            assert not valid
            return
        assert valid
        assert waits is not run["news"]
        run["news"] = False
        if waits:
            self.move(run, Trigger.PAUSE)

    @stateful.rule(lease=leases, crashed=st.booleans(), lost=LOST)
    def release(self, lease: Any, crashed: bool, lost: bool) -> None:
        run, valid = self.runs[lease.run_id], self.valid(lease)
        self.lose(lost)
        self.run(self.store.release(lease, crashed=crashed))
        if valid:
            self.move(run, Trigger.RELEASE)
            run["wake"] = self.now + int(crashed)
        elif run["stopped"] == lease:
            run["stopped"] = None
            root = [run, *self.above(run)][-1]
            tree = [root, *self.below(root)]
            if not is_open(root) and not any(one["stopped"] for one in tree):
                self.held[run["conversation"]] = 0.0
                self.wake_next(run, self.now)

    @stateful.rule(worker=st.integers(0, 1), seconds=st.sampled_from([0.5, 1, LEASE_S]))
    def let_time_pass(self, worker: int, seconds: float) -> None:
        """Time passes, and all but one worker renew in it; an expired one comes back under a new id."""
        self.world.clock.move(seconds / 2)
        for place, one in enumerate(self.workers):
            if place != worker and one.key not in self.dead:
                self.store.renew(one, LEASE_S)
        self.world.clock.move(seconds / 2)
        for place, one in enumerate(self.workers):
            try:
                self.store.renew(one, LEASE_S)
            except LeaseLost:
                self.dead.add(one.key)
                self.workers[place] = self.run(self.world.worker(LEASE_S))

    # -- the model

    @property
    def now(self) -> float:
        return self.world.clock.now()

    def new_run(self, run_id: str, conversation: str, parent: Any, place: Any = None) -> dict[str, Any]:
        run = {
            "id": run_id,
            "conversation": conversation,
            "parent": parent,
            "place": place,
            "status": RunStatus.QUEUED,
            "wake": None,
            "lease": None,
            "turn": 0,
            "calls": {},
            "used": 0,
            "news": False,
            "stopped": None,
        }
        self.runs[run_id] = run
        return run

    def move(self, run: dict[str, Any], trigger: Trigger) -> None:
        run["status"] = next_status(run["status"], trigger)

    def lose(self, lost: bool) -> None:
        if lost:
            self.world.lose_answer()

    def write(self, lease: Any, change: Any, lost: bool) -> bool:
        valid = self.valid(lease)
        self.runs[lease.run_id]["any_lease"] = lease
        self.lose(lost)

        async def write() -> None:
            await self.store.write(change)
            await self.store.write(change)

        try:
            self.run(write())
        except LeaseLost:
            assert not valid
            return False
        assert valid
        return True

    def valid(self, lease: Any) -> bool:
        run = self.runs[lease.run_id]
        return run["status"] == "running" and bool(run["lease"] == lease)

    def abandoned(self, run: dict[str, Any]) -> bool:
        return run["status"] == "running" and run["lease"].worker in self.dead

    def unsettled(self, run: dict[str, Any]) -> bool:
        return any(not status.settled for status in run["calls"].values())

    def above(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        return [] if run["parent"] is None else [run["parent"], *self.above(run["parent"])]

    def below(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        return [one for one in self.runs.values() if any(above is run for above in self.above(one))]

    def roots_of(self, conversation: str) -> list[dict[str, Any]]:
        roots = [run for run in self.runs.values() if run["parent"] is None and run["conversation"] == conversation]
        return [run for run in roots if is_open(run)]

    def end_below(self, run: dict[str, Any]) -> bool:
        ends = [self.end_one(one) for one in self.below(run) if is_open(one)]
        return any(ends)

    def end_one(self, run: dict[str, Any]) -> bool:
        running = run["status"] == "running"
        run["stopped"] = run["lease"] if running else None
        for place, status in run["calls"].items():
            if not status.settled:
                run["calls"][place] = CallStatus.STOPPED
        self.move(run, Trigger.CANCEL)
        run["wake"] = None
        return running and run["lease"].worker not in self.dead

    def settle_parent(self, run: dict[str, Any], status: CallStatus) -> None:
        parent = run["parent"]
        parent["calls"][run["place"]] = status
        if parent["status"] == "waiting":
            self.move(parent, Trigger.WAKE)
            parent["wake"] = self.now
        elif parent["status"] == "running":
            parent["news"] = True

    def wake_next(self, run: dict[str, Any], at: float) -> None:
        for head in self.roots_of(run["conversation"])[:1]:
            if head["status"] == "queued" and (head["wake"] is None or head["wake"] > at):
                head["wake"] = at

    def compare(self) -> None:
        """Hold everything that readers may see against the model."""
        for run in self.runs.values():
            seen = self.run(self.store.get_run(run["id"], self.world.ann))
            assert seen.status == run["status"]
            assert seen.usage.requests == run["used"] + sum(one["used"] for one in self.below(run))
            messages = self.run(self.store.run_messages(run["id"], self.world.ann))
            calls = {(call.turn, call.n): call.status for message in messages for call in message.calls}
            assert calls == run["calls"]
            log = self.log(run_id=run["id"])
            told = [event for event in self.world.told if event.run_id == run["id"]]
            assert [event.data for event in log] == [event.data for event in told]
            assert all(event.hidden is (run["parent"] is not None) for event in told)
            assert [event.type.ends_run for event in told].count(True) == int(not is_open(run))
            assert is_open(run) or told[-1].type.ends_run
        for conversation in self.held:
            shown = [event for event in self.world.told if not event.hidden]
            ids = {run["id"] for run in self.runs.values() if run["conversation"] == conversation}
            assert [event.seq for event in self.log(conversation_id=conversation)] == [
                event.seq for event in shown if event.run_id in ids
            ]
        open_roots = [run for run in self.runs.values() if run["parent"] is None and is_open(run)]
        assert self.run(self.store.busy_runs()) == len(open_roots)

    def log(self, **what: str) -> list[Any]:
        position = self.run(self.store.find_log(self.world.ann, **what))
        return list(self.run(self.store.read_log(position, 0, 10_000, 10**8)).events)


def is_open(run: dict[str, Any]) -> bool:
    return run["status"] in ("queued", "running", "waiting")


def test_any_tree_of_runs_reads_like_the_model(new_world: Callable[[], Any]) -> None:
    stateful.run_state_machine_as_test(  # type: ignore[no-untyped-call]  # hypothesis has no types here
        lambda: TreeHistory(new_world),
        settings=settings(
            max_examples=TRIALS,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
