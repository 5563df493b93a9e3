"""The script as a process: killed, interrupted, started again, and with a tenant whose books are wrong."""

import signal
import time

from app.mail import LEDGER

TENANTS = 40


def reminded() -> list[str]:
    return sorted(line.split(" ")[2] for line in LEDGER.read_text("utf-8").splitlines()) if LEDGER.exists() else []


def wait_for_the_middle(process) -> None:
    deadline = time.monotonic() + 30
    while len(reminded()) < 10:
        assert process.poll() is None, "it had ended before the middle"
        assert time.monotonic() < deadline, "it did not come to the middle"
        time.sleep(0.001)


def test_a_script_that_is_killed_in_the_middle_is_finished_by_the_next_and_nothing_is_done_twice(
    books, nightly, summary
):
    due = books(TENANTS)
    first = nightly("--at-once", "5")
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


def test_ctrl_c_stops_the_script_in_an_orderly_way(books, nightly):
    due = books(TENANTS)
    process = nightly("--at-once", "2")
    wait_for_the_middle(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "stopped; start it again to do the rest\n")
    assert len(set(reminded())) == len(reminded()) < len(due)


def test_a_tenant_that_fails_is_named_with_its_run_and_the_others_are_done(books, summary):
    due = books(5, broken="t3")
    code, told, err = summary()
    (failed,) = [outcome for outcome in told["tenants"] if outcome["problem"]]
    assert code == 1
    assert failed["tenant"] == "t3"
    assert err.startswith("t3: An invoice of t3 is wrong: amount 'a lot'")
    assert f"(run {failed['run']})" in err
    assert reminded() == sorted(due)

    due = books(5)  # somebody corrects the books, and has it run anew
    code, told, _ = summary("--retry")
    assert code == 0
    assert reminded() == sorted(due)
