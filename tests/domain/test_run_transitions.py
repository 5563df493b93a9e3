"""The table of a run's statuses: what leads where, and that an end is an end."""

from __future__ import annotations

import pytest

from amoxi_py.domain.run import FINAL, TRANSITIONS, RunStatus, Trigger, next_status
from amoxi_py.errors import Conflict

PAIRS = [(status, trigger) for status in RunStatus for trigger in Trigger]


def test_every_status_is_reached_from_queued() -> None:
    reached = {RunStatus.QUEUED}
    while True:
        further = {after for (before, _), after in TRANSITIONS.items() if before in reached} - reached
        if not further:
            break
        reached |= further
    assert reached == set(RunStatus)


def test_every_open_status_can_end() -> None:
    ending = set(FINAL)
    for _ in RunStatus:
        ending |= {before for (before, _), after in TRANSITIONS.items() if after in ending}
    assert ending == set(RunStatus)


@pytest.mark.parametrize("trigger", Trigger)
@pytest.mark.parametrize("status", sorted(FINAL))
def test_a_run_that_has_ended_accepts_nothing(status: RunStatus, trigger: Trigger) -> None:
    with pytest.raises(Conflict) as caught:
        next_status(status, trigger)
    assert caught.value.code == "invalid_transition"
    assert status.value in str(caught.value)


@pytest.mark.parametrize(("status", "trigger"), PAIRS)
def test_a_status_that_follows_stands_in_the_table_and_any_other_is_refused(
    status: RunStatus, trigger: Trigger
) -> None:
    if (status, trigger) in TRANSITIONS:
        assert next_status(status, trigger) is TRANSITIONS[status, trigger]
    else:
        with pytest.raises(Conflict):
            next_status(status, trigger)


def test_every_trigger_moves_some_run() -> None:
    assert {trigger for _, trigger in TRANSITIONS} == set(Trigger)


@pytest.mark.parametrize("status", [status for status in RunStatus if status not in FINAL])
def test_an_open_run_can_be_cancelled_at_any_time(status: RunStatus) -> None:
    assert next_status(status, Trigger.CANCEL) is RunStatus.CANCELLED


def test_only_a_worker_that_runs_it_ends_a_run_from_inside() -> None:
    enders = {before for (before, trigger) in TRANSITIONS if trigger in (Trigger.COMPLETE, Trigger.FAIL)}
    assert enders == {RunStatus.RUNNING}


def test_the_final_statuses_are_the_three_of_the_contract() -> None:
    assert {status.value for status in RunStatus if status.final} == {"completed", "failed", "cancelled"}
    assert {status.value for status in RunStatus if not status.final} == {"queued", "running", "waiting"}
