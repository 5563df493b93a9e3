"""What lines of the log are about, where one thing is done in the course of another."""

from __future__ import annotations

from contextvars import copy_context

from amoxi_py.engine.log_facts import about, about_alone, log_facts


def test_a_run_that_a_call_asks_for_is_not_told_as_of_that_call() -> None:
    def one_in_the_course_of_another() -> dict[str, str]:
        about(request_id="req", run_id="one")
        about(call_id="call")
        about(run_id="two", principal="ann")
        return dict(log_facts())

    told = copy_context().run(one_in_the_course_of_another)
    assert told == {"request_id": "req", "run_id": "two", "principal": "ann"}


def test_a_request_that_is_made_in_the_course_of_a_run_leaves_its_lines_as_they_are() -> None:
    def request_of_a_tool() -> list[dict[str, str]]:
        about(run_id="one", call_id="call")
        with about_alone(request_id="req"):
            about(principal="ann")
            inside = dict(log_facts())
        return [inside, dict(log_facts())]

    inside, after = copy_context().run(request_of_a_tool)
    assert inside == {"request_id": "req", "principal": "ann"}
    assert after == {"run_id": "one", "call_id": "call"}
