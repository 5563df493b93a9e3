"""Invented histories: the store against a model of it in dicts, with lost answers and leases that expire."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st

from amoxi_py.domain.event import EventType
from amoxi_py.domain.run import RunStatus, Trigger, next_status
from amoxi_py.domain.settle import settle
from amoxi_py.domain.tool_call import CallStatus, Effect
from amoxi_py.errors import Conflict, LeaseLost, NotFound

LEASE_S = 30
OPEN = ("queued", "running", "waiting")
LOST = st.booleans()
TRIALS = int(os.environ.get("AMOXI_TRIALS", "30"))


async def answer(verb: Any) -> Any:
    return await verb


class StoreHistory(stateful.RuleBasedStateMachine):
    """Two workers and two principals; `runs` and `conversations` say what the store must say.

    A run of the model only moves by the domain's table of transitions, so the store keeps to that table too.
    """

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
        self.ages = itertools.count()  # never the same twice, also when runs are erased
        self.conversations: dict[str, dict[str, Any]] = {}

    def run(self, verb: Any) -> Any:
        return self.loop.run(answer(verb))

    def teardown(self) -> None:
        try:
            self.compare()
        finally:
            self.run(self.store.close())
            self.loop.close()

    # -- what a principal does

    @stateful.rule(
        target=leases,
        who=st.sampled_from(["ann", "bob"]),
        place=st.integers(0, 3),
        on_busy=st.sampled_from(["replace", "queue", "reject"]),
        worker=st.sampled_from([None, 0, 1]),
        lost=LOST,
    )
    def submit(self, who: str, place: int, on_busy: str, worker: int | None, lost: bool) -> Any:
        principal = getattr(self.world, who)
        mine = [name for name, one in self.conversations.items() if one["who"] == principal]
        conversation = mine[place] if place < len(mine) else None
        busy = [] if conversation is None else self.open_runs(conversation)
        claim_by = None if worker is None else self.workers[worker]
        submission = self.world.submission(
            principal=principal, conversation=conversation, on_busy=on_busy, claim_by=claim_by
        )
        self.lose(lost)
        if busy and on_busy == "reject":
            try:
                self.run(self.store.submit(submission))
            except Conflict:
                return stateful.multiple()
            raise AssertionError("a busy conversation took a message")
        submitted = self.run(self.store.submit(submission))
        if conversation is None:
            conversation = submission.conversation_id
            self.conversations[conversation] = {"who": principal, "held": 0.0}
        elif busy and on_busy == "replace" and not any(self.waits_for_others(run) for run in busy):
            for run in busy:
                self.end_from_outside(run)
            busy = []
        held = self.conversations[conversation]["held"]
        claimed = claim_by is not None and not busy and held <= self.now and claim_by.key not in self.dead
        run = self.runs[submission.run_id] = {
            "id": submission.run_id,
            "order": next(self.ages),
            "conversation": conversation,
            "status": RunStatus.QUEUED,
            "wake": None if busy or claimed else max(self.now, held),
            "lease": None,
            "attempt": 1 if claimed else 0,
            "crashes": 0,
            "turn": 0,
            "calls": {},
            "steps": {},
            "kept": [],
            "text": "",
            "stopped": None,
        }
        assert (submitted.rows is not None) is claimed
        if submitted.rows is None:
            return stateful.multiple()
        self.move(run, Trigger.CLAIM)
        run["lease"] = submitted.rows.lease
        return submitted.rows.lease

    @stateful.rule(which=st.integers(0, 20), lost=LOST)
    def cancel(self, which: int, lost: bool) -> None:
        run = self.any_run(which)
        if run is None:
            return
        self.lose(lost)
        answer = self.run(self.store.cancel(run["id"], self.owner(run)))
        if run["status"] in OPEN:
            self.end_from_outside(run)
        assert answer.status == run["status"]

    @stateful.rule(which=st.integers(0, 20), decision=st.sampled_from(["approve", "decline"]), lost=LOST)
    def decide(self, which: int, decision: str, lost: bool) -> None:
        asked = [
            (run, call) for run in self.runs.values() for call in run["calls"].values() if call["approver"] is not None
        ]
        if not asked:
            return
        run, call = asked[which % len(asked)]
        who = self.owner(run) if call["approver"] == "owner" else self.world.fin
        if call["approver"] != "owner" and self.owner(run).tenant != who.tenant:
            return
        self.lose(lost)
        verdict = self.world.verdict(call["call"], run["first_lease"], principal=who, decision=decision)
        allowed = call["decision"] in (None, decision) and (
            call["decision"] is not None or (run["status"] in OPEN and call["status"] == "open")
        )
        try:
            self.run(self.store.decide(verdict))
        except Conflict:
            assert not allowed
            return
        assert allowed
        if call["decision"] is None:
            call["decision"] = decision
            if run["status"] == "waiting":
                self.move(run, Trigger.WAKE)
                run["wake"] = self.now

    @stateful.rule(which=st.integers(0, 20), value=st.sampled_from(["a", "b"]), lost=LOST)
    def answer(self, which: int, value: str, lost: bool) -> None:
        asked = [
            (run, call, wait)
            for run in self.runs.values()
            for call in run["calls"].values()
            for wait in call["waits"]
            if wait["kind"] == "question"
        ]
        if not asked:
            return
        run, call, wait = asked[which % len(asked)]
        answer = self.world.answer(call["call"], value, k=wait["k"], principal=self.owner(run))
        open_to_all = self.is_open(run, call, wait)
        self.lose(lost)
        try:
            view = self.run(self.store.answer(answer))
        except Conflict:
            assert not open_to_all
            assert wait["value"] != answer.value
            return
        assert open_to_all or wait["value"] == answer.value
        assert view.call.wait.value == answer.value
        if open_to_all:
            self.give(run, wait, answer.value)

    @stateful.rule(which=st.integers(0, 20), name=st.sampled_from("ab"), lost=LOST)
    def signal(self, which: int, name: str, lost: bool) -> None:
        run = self.any_run(which)
        if run is None:
            return
        lease = run.get("first_lease")
        if lease is None:
            return
        signal = self.world.signal(lease, name, next(self.ages), principal=self.owner(run))
        self.lose(lost)
        try:
            self.run(self.store.signal(signal))
        except Conflict:
            assert run["status"] not in OPEN
            return
        assert run["status"] in OPEN
        listening = [
            (wait["since"], place, wait)
            for place, call in run["calls"].items()
            for wait in call["waits"]
            if (wait["kind"], wait["name"]) == ("signal", name) and self.is_open(run, call, wait)
        ]
        if listening:
            self.give(run, min(listening, key=lambda found: found[:2])[2], signal.payload)
        else:
            run["kept"].append((name, signal.payload))

    @stateful.rule(which=st.integers(0, 10), lost=LOST)
    def erase(self, which: int, lost: bool) -> None:
        if which >= len(self.conversations):
            return
        conversation = list(self.conversations)[which]
        self.lose(lost)
        self.run(self.store.erase(conversation, self.conversations[conversation]["who"]))
        del self.conversations[conversation]
        self.runs = {key: run for key, run in self.runs.items() if run["conversation"] != conversation}

    # -- what workers do

    @stateful.rule(target=leases, worker=st.integers(0, 1), limit=st.integers(1, 3), lost=LOST)
    def claim(self, worker: int, limit: int, lost: bool) -> Any:
        mine = self.workers[worker]
        abandoned = [run for run in self.runs.values() if self.abandoned(run)]
        due = [run for run in self.runs.values() if run["wake"] is not None and run["wake"] <= self.now]
        due.sort(key=lambda run: (run["wake"], run["order"]))
        self.lose(lost)
        self.world._claims += 1
        claimed = self.run(self.store.claim(mine, self.world._claims, limit))
        first = [] if mine.key in self.dead else abandoned[:limit]
        places = 0 if mine.key in self.dead else limit - len(first)
        ids = [rows.lease.run_id for rows in claimed]
        assert ids[: len(first)] == [run["id"] for run in first]
        self.check_turns(ids[len(first) :], [run["id"] for run in due], places)
        expected = [self.runs[run_id] for run_id in ids]
        for rows, run in zip(claimed, expected, strict=True):
            crashed = self.abandoned(run)
            run["attempt"] += int(crashed or run["attempt"] == 0)
            run["crashes"] += int(crashed)
            self.move(run, Trigger.TAKE_OVER if crashed else Trigger.CLAIM)
            run["lease"], run["wake"] = rows.lease, None
            run.setdefault("first_lease", rows.lease)
            assert (rows.attempt, rows.crashes) == (run["attempt"], run["crashes"])
            calls = {(call.turn, call.n): call.status for message in rows.messages for call in message.calls}
            assert calls == {place: call["status"] for place, call in run["calls"].items()}
            steps = {place: {step.name: step.value for step in of} for place, of in rows.steps.items()}
            assert steps == run["steps"]
            waits = {place: [wait.value for wait in of] for place, of in rows.waits.items()}
            assert waits == {
                place: [wait["value"] for wait in call["waits"]]
                for place, call in run["calls"].items()
                if call["waits"]
            }
        return stateful.multiple(*(rows.lease for rows in claimed))

    def check_turns(self, claimed: list[str], due: list[str], places: int) -> None:
        """Check a claim: all that is due by age while there are places; else some, and the oldest among them."""
        if len(due) < places:
            assert claimed == due
            return
        assert len(set(claimed)) == len(claimed) == places
        assert set(claimed) <= set(due)
        assert places < 2 or due[0] in claimed

    @stateful.rule(
        lease=leases,
        approvers=st.lists(st.sampled_from([None, None, "owner", "role:finance"]), max_size=2),
        effect=st.sampled_from(Effect),
        lost=LOST,
    )
    def reply(self, lease: Any, approvers: list[str | None], effect: Effect, lost: bool) -> None:
        run = self.runs.get(lease.run_id, {"turn": 0})
        turn = run["turn"] + 1
        calls = [
            self.world.call(
                lease,
                turn,
                n,
                effect=effect,
                status=CallStatus.STARTED if approver is None else CallStatus.OPEN,
                approval=None if approver is None else self.world.approval(approver=approver),
            )
            for n, approver in enumerate(approvers)
        ]
        if self.write(lease, self.world.reply(lease, turn, *calls, text="hm"), lost):
            run.update(turn=turn, text="", crashes=0)
            run.setdefault("first_lease", lease)
            for call, approver in zip(calls, approvers, strict=True):
                run["calls"][turn, call.n] = {
                    "call": call,
                    "status": call.status,
                    "result": None,
                    "approver": approver,
                    "decision": None,
                    "waits": [],
                }

    @stateful.rule(lease=leases, which=st.integers(0, 3), failed=st.booleans(), lost=LOST)
    def result(self, lease: Any, which: int, failed: bool, lost: bool) -> None:
        call = self.unsettled_call(lease, which)
        if call is None:
            return
        status = CallStatus.FAILED if failed else CallStatus.DONE
        change = self.world.result(lease, call["call"], f"r{which}", status=status)
        if self.write(lease, change, lost):
            call.update(status=status, result=change.results[0].result)
            self.runs[lease.run_id]["crashes"] = 0

    @stateful.rule(lease=leases, which=st.integers(0, 3), name=st.sampled_from("ab"), lost=LOST)
    def step(self, lease: Any, which: int, name: str, lost: bool) -> None:
        call = self.unsettled_call(lease, which)
        if call is None:
            return
        value = f'"{len(self.world.told)}"'
        if self.write(lease, self.world.step(lease, call["call"], name, value), lost):
            run = self.runs[lease.run_id]
            run["steps"].setdefault((call["call"].turn, call["call"].n), {}).setdefault(name, value)
            run["crashes"] = 0

    @stateful.rule(
        lease=leases,
        which=st.integers(0, 3),
        kind=st.sampled_from(["question", "signal", "sleep"]),
        name=st.sampled_from("ab"),
        wait_s=st.sampled_from([None, 20]),
        lost=LOST,
    )
    def wait(self, lease: Any, which: int, kind: str, name: str, wait_s: int | None, lost: bool) -> None:
        run = self.runs.get(lease.run_id, {"calls": {}})
        started = [call for call in run["calls"].values() if call["status"] == "started"]
        ready = [call for call in started if not call["waits"] or not self.is_open(run, call, call["waits"][-1])]
        if not ready:
            return
        call = ready[which % len(ready)]
        until = None if wait_s is None else self.now + wait_s
        k = len(call["waits"]) + 1
        if self.write(lease, self.world.waits_for(lease, call["call"], kind, name, k=k, until=until), lost):
            wait = {"k": k, "kind": kind, "name": name, "until": until, "since": self.now, "value": None}
            call["waits"].append(wait)
            kept = [one for one in run["kept"] if one[0] == name]
            if kind == "signal" and kept:
                run["kept"].remove(kept[0])
                wait["value"] = kept[0][1]

    @stateful.rule(lease=leases, piece=st.text("ab\N{GRINNING FACE}", min_size=1, max_size=3), lost=LOST)
    def delta(self, lease: Any, piece: str, lost: bool) -> None:
        run = self.runs.get(lease.run_id, {"text": "", "turn": 0})
        if self.write(lease, self.world.delta(lease, f"m{run['turn']}", len(run["text"]), piece), lost):
            run["text"] += piece

    @stateful.rule(lease=leases, lost=LOST)
    def finish(self, lease: Any, lost: bool) -> None:
        run = self.runs.get(lease.run_id, {"turn": 0})
        turn = run["turn"] + 1
        if self.write(lease, self.world.finish(lease, turn), lost):
            self.move(run, Trigger.COMPLETE)
            run.update(turn=turn, text="")
            self.wake_next(run, self.now)

    @stateful.rule(lease=leases, lost=LOST)
    def fail(self, lease: Any, lost: bool) -> None:
        if self.write(lease, self.world.fail(lease), lost):
            run = self.runs[lease.run_id]
            self.move(run, Trigger.FAIL)
            self.wake_next(run, self.now)

    @stateful.rule(lease=leases, pause_s=st.sampled_from([None, 0, 20]), lost=LOST)
    def pause(self, lease: Any, pause_s: int | None, lost: bool) -> None:
        until = None if pause_s is None else self.now + pause_s
        valid = self.valid(lease)
        self.lose(lost)
        try:
            waits = self.run(self.store.pause(self.world.change(lease), until, ("approval",)))
        except LeaseLost:
            assert not valid
            return
        run = self.runs[lease.run_id]
        decided = [call for call in run["calls"].values() if call["status"] == "open" and call["decision"] is not None]
        started = [call for call in run["calls"].values() if call["status"] == "started" and call["waits"]]
        given = [call for call in started if call["waits"][-1]["value"] is not None]
        assert valid
        assert waits is not bool(decided or given)
        if waits:
            self.move(run, Trigger.PAUSE)
            run["wake"] = until

    @stateful.rule(lease=leases, crashed=st.booleans(), lost=LOST)
    def release(self, lease: Any, crashed: bool, lost: bool) -> None:
        valid = self.valid(lease)
        self.lose(lost)
        self.run(self.store.release(lease, crashed=crashed))
        run = self.runs.get(lease.run_id)
        if run is None:
            return
        if valid:
            self.move(run, Trigger.RELEASE)
            run["wake"] = self.now + int(crashed)
            run["attempt"] += int(crashed)
            run["crashes"] += int(crashed)
        elif run["stopped"] == lease:
            run["stopped"] = None
            self.conversations[run["conversation"]]["held"] = 0.0
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

    def move(self, run: dict[str, Any], trigger: Trigger) -> None:
        run["status"] = next_status(run["status"], trigger)

    def lose(self, lost: bool) -> None:
        if lost:
            self.world.lose_answer()

    def write(self, lease: Any, change: Any, lost: bool) -> bool:
        valid = self.valid(lease)
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
        run = self.runs.get(lease.run_id)
        return run is not None and run["status"] == "running" and run["lease"] == lease

    def owner(self, run: dict[str, Any]) -> Any:
        return self.conversations[run["conversation"]]["who"]

    def any_run(self, which: int) -> dict[str, Any] | None:
        runs = list(self.runs.values())
        return runs[which % len(runs)] if runs else None

    def open_runs(self, conversation: str) -> list[dict[str, Any]]:
        return [run for run in self.runs.values() if run["conversation"] == conversation and run["status"] in OPEN]

    def waits_for_others(self, run: dict[str, Any]) -> bool:
        return any(
            (call["status"] == "open" and call["decision"] is None and call["approver"] not in (None, "owner"))
            or any(wait["kind"] == "signal" and self.is_open(run, call, wait) for wait in call["waits"][-1:])
            for call in run["calls"].values()
        )

    def is_open(self, run: dict[str, Any], call: dict[str, Any], wait: dict[str, Any]) -> bool:
        """Whether a wait can still be given what it waits for."""
        due = wait["until"] is not None and wait["until"] <= self.now
        return run["status"] in OPEN and call["status"] == "started" and wait["value"] is None and not due

    def give(self, run: dict[str, Any], wait: dict[str, Any], value: str) -> None:
        wait["value"] = value
        if run["status"] == "waiting":
            self.move(run, Trigger.WAKE)
            run["wake"] = self.now

    def abandoned(self, run: dict[str, Any]) -> bool:
        return run["status"] == "running" and run["lease"].worker in self.dead

    def unsettled_call(self, lease: Any, which: int) -> dict[str, Any] | None:
        run = self.runs.get(lease.run_id, {"calls": {}})
        calls = [call for call in run["calls"].values() if not call["status"].settled]
        return calls[which % len(calls)] if calls else None

    def wake_next(self, run: dict[str, Any], at: float) -> None:
        for head in self.open_runs(run["conversation"])[:1]:
            if head["status"] == "queued" and (head["wake"] is None or head["wake"] > at):
                head["wake"] = at

    def end_from_outside(self, run: dict[str, Any]) -> None:
        conversation = self.conversations[run["conversation"]]
        if run["status"] == "running" and run["lease"].worker not in self.dead:
            conversation["held"] = self.now + 1
            run["stopped"] = run["lease"]
        for call in run["calls"].values():
            if not call["status"].settled:
                effect = call["call"].effect
                unknown = call["status"] == "started" and not effect.repeatable
                call["status"] = CallStatus.UNKNOWN if unknown else CallStatus.STOPPED
        self.move(run, Trigger.CANCEL)
        run["wake"] = None
        self.wake_next(run, max(self.now, conversation["held"]))

    def compare(self) -> None:
        """Hold everything that readers may see against the model."""
        for run in self.runs.values():
            seen = self.run(self.store.get_run(run["id"], self.owner(run)))
            assert (seen.status, seen.attempt) == (run["status"], run["attempt"])
            assert self.told_waits(seen) == self.open_waits(run)
            other = self.world.bob if self.owner(run) == self.world.ann else self.world.ann
            try:
                self.run(self.store.get_run(run["id"], other))
            except NotFound:
                continue
            raise AssertionError("another principal read a run")
        for conversation, one in self.conversations.items():
            self.compare_messages(conversation, one["who"])
            self.compare_log(conversation, one["who"])
        open_runs = [run for run in self.runs.values() if run["status"] in OPEN]
        assert self.run(self.store.busy_runs()) == len(open_runs)

    def told_waits(self, seen: Any) -> list[tuple[str, str | None, str | None]]:
        waits = [one for one in seen.waiting_for if one.kind != "approval"]
        return sorted((one.kind, one.call_id, one.name) for one in waits)

    def open_waits(self, run: dict[str, Any]) -> list[tuple[str, str, str]]:
        """What readers are told of: the last wait of a call, until it is given something or its code went on."""
        started = [call for call in run["calls"].values() if call["waits"] and call["status"] == "started"]
        last = [(call["call"].id, call["waits"][-1]) for call in started if run["status"] in OPEN]
        return sorted((wait["kind"], call_id, wait["name"]) for call_id, wait in last if wait["value"] is None)

    def compare_messages(self, conversation: str, who: Any) -> None:
        page = self.run(self.store.read_conversation(conversation, who, limit=1000))
        calls = {call.id: call for message in page.messages.items for call in message.calls}
        for run in self.runs.values():
            if run["conversation"] != conversation:
                continue
            for call in run["calls"].values():
                seen = calls.get(call["call"].id)
                assert seen is None or (seen.status == call["status"])
                assert seen is None or call["result"] in (None, seen.result)
            if run["status"] == "cancelled":
                mine = [message for message in page.messages.items if message.run_id == run["id"]]
                assert settle(tuple(mine)) == ()
                stopped = [message.text for message in mine if message.status == "stopped"]
                assert stopped == ([run["text"]] if run["text"] else [])

    def compare_log(self, conversation: str, who: Any) -> None:
        position = self.run(self.store.find_log(who, conversation_id=conversation))
        stored = self.run(self.store.read_log(position, 0, 10_000, 10**9)).events
        told = [event for event in self.world.told if event.conversation == position.conversation]
        seqs = [event.seq for event in told]
        assert seqs == sorted(set(seqs))
        by_seq = {event.seq: event.data for event in told}
        assert all(by_seq[event.seq] == event.data for event in stored)
        missing = set(seqs) - {event.seq for event in stored}
        assert all(event.type is EventType.MESSAGE_DELTA for event in told if event.seq in missing)
        for run in self.runs.values():
            if run["conversation"] == conversation:
                ends = [event for event in stored if event.run_id == run["id"] and event.type.ends_run]
                assert len(ends) == int(run["status"] not in OPEN)
                assert not ends or ends[0] is [event for event in stored if event.run_id == run["id"]][-1]


def test_no_history_parts_the_store_from_its_model(new_world: Callable[[], Any]) -> None:
    stateful.run_state_machine_as_test(
        lambda: StoreHistory(new_world),
        settings=settings(
            max_examples=TRIALS,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
