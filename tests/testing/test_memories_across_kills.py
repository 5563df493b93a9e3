"""Memories in the crash kit: killed at any step, an agent has remembered each thing once, and forgotten for good."""

from __future__ import annotations

import json

import pytest

from amoxi_py import agent
from amoxi_py.testing import ScriptedModel, call, crash, run_agent
from whole import WHOLE

pytestmark = pytest.mark.crash


@agent(memory=True)
class Friend:
    """You are a friend."""


def learn_and_forget() -> None:
    """Learn three things, look, forget one; the next run knows the other two, in the same order."""
    script = [
        [call("remember", text="likes tea"), call("remember", text="lives in Lima", key="address")],
        [call("remember", text="has a cat"), call("recall", query="tea", limit=1), call("forget", key="address")],
        "Done.",
    ]
    first = run_agent(Friend, "hi", model=ScriptedModel(script))
    assert first.run.output == "Done."
    assert all(request.instructions == "You are a friend." for request in first.requests)
    [recalled] = [one for one in first.calls if one.tool == "recall"]
    assert [one["text"] for one in recalled.result] == ["likes tea"]
    again = run_agent(Friend, "again", model=ScriptedModel(["Hello again."]))
    told = [request.instructions.splitlines() for request in again.requests]
    for lines in told:  # there is no request when the kill came after it
        assert sorted(json.loads(line)["text"] for line in lines if line.startswith("{")) == ["has a cat", "likes tea"]


def test_at_whatever_step_it_is_killed_each_thing_is_remembered_once() -> None:
    report = crash.at_every_step(learn_and_forget, part=(1, 1) if WHOLE else (1, 2))
    assert (report.verbs["keep_passages"], report.verbs["forget_passages"]) == (3, 1)
    assert report.kills > 10
