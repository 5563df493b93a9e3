"""The script: killed and interrupted as a process, started again, and with a tenant whose books are wrong."""

import json
import os
import signal
import time

from app.mail import LEDGER, Mail

TENANTS = 25


def reminded() -> list[str]:
    lines = LEDGER.read_text("utf-8").split("\n")[:-1] if LEDGER.exists() else []
    return sorted(json.loads(line)["invoice"] for line in lines)


def wait_for_the_middle(process) -> None:
    deadline = time.monotonic() + 30
    while len(reminded()) < 10:
        assert process.poll() is None, "it had ended before the middle"
        assert time.monotonic() < deadline, "it did not come to the middle"
        time.sleep(0.005)


def test_a_script_that_is_killed_in_the_middle_is_finished_by_the_next_and_nothing_is_done_twice(books, start, summary):
    due = books(TENANTS)
    first = start("--at-once", "5")
    wait_for_the_middle(first)
    first.kill()
    first.wait()
    assert len(reminded()) < len(due)

    code, second, _ = summary()
    assert code == 0
    assert reminded() == sorted(due)
    assert second["reminders"] == len(due)

    assert summary() == (0, second, "")  # the same runs: nothing new was submitted
    assert reminded() == sorted(due)


def test_ctrl_c_stops_the_script_in_an_orderly_way(books, script, monkeypatch):
    due = books(TENANTS)
    send_reminder, presses = Mail.send_reminder, iter([signal.SIGINT])

    def send_and_press_ctrl_c(mail, *reminder, **key):
        send_reminder(mail, *reminder, **key)
        if len(reminded()) >= 10:  # two are sent at a time
            for press in presses:
                os.kill(os.getpid(), press)

    monkeypatch.setattr(Mail, "send_reminder", send_and_press_ctrl_c)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start jobs in the background without it
    try:
        assert script("--at-once", "2") == (130, "", "stopped; start it again to do the rest\n")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(set(reminded())) == len(reminded()) < len(due)


def test_a_tenant_that_fails_is_named_with_its_run_and_the_others_are_done(books, summary):
    due = books(5, broken="Tenant 3")
    code, told, err = summary()
    (failed,) = [outcome for outcome in told["tenants"] if outcome["problem"]]
    assert code == 1
    assert failed["tenant"] == "Tenant 3"
    assert err.startswith("Tenant 3: An invoice of Tenant 3 is wrong: amount 'a lot'")
    assert f"(run {failed['run']})" in err
    assert reminded() == sorted(due)


def test_what_was_made_anew_is_remembered_by_every_start_after_it(books, summary):
    books(2, broken="Tenant 1")
    assert summary()[0] == 1
    _, told, _ = summary("--retry")  # the books are as wrong as before
    failed = told["tenants"][1]
    assert failed["problem"].startswith("An invoice of Tenant 1 is wrong")

    due = books(2)  # somebody corrects them
    assert summary()[0] == 1
    code, told, _ = summary("--retry")
    assert (code, told["tenants"][1]["reminders"], reminded()) == (0, 2, sorted(due))
    assert told["tenants"][1]["run"] != failed["run"]
    assert summary() == summary("--retry") == (0, told, "")  # nothing is left to make anew
