"""Spans of runs, model requests, tools and steps: one for each that really happened, in one trace, without words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("tracing_program.py")


def execute(folder: Path, *more: str) -> int:
    """Run the program and return its exit code."""
    command = [sys.executable, str(PROGRAM), str(folder / "store"), str(folder / "spans"), *more]
    return subprocess.run(command, check=False, timeout=30).returncode


@pytest.fixture(scope="module")
def all_spans(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The spans of a run whose process was killed in its second step, and that another one went on with."""
    folder = tmp_path_factory.mktemp("traced")
    assert execute(folder, "die") == -9
    assert execute(folder) == 0
    return [json.loads(line) for line in (folder / "spans").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def spans(all_spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the run."""
    return [span for span in all_spans if span["name"] != "execute_tool peek"]


def test_a_call_without_a_run_has_a_span_that_names_no_run(all_spans: list[dict[str, Any]]) -> None:
    (span,) = (span for span in all_spans if span["name"] == "execute_tool peek")
    assert (span["parent"], span["error"]) == (None, False)
    assert span["attributes"].pop("gen_ai.tool.call.id").startswith("call_")
    assert span["attributes"] == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "peek",
        "gen_ai.tool.type": "function",
        "amoxi.call.status": "done",
        "amoxi.call.tries": 1,
    }


def test_what_was_done_before_a_crash_has_one_span(spans: list[dict[str, Any]]) -> None:
    assert Counter(span["name"] for span in spans) == {
        "submit desk": 1,
        "chat scripted": 3,
        "chat claude-away": 1,
        "chat llama3.1:8b": 2,
        "step pay": 1,
        "wait_for sleep": 1,
        "step mail": 1,
        "execute_tool refund": 1,
        "execute_tool fails": 1,
        "invoke_agent looker": 1,
        "invoke_agent desk": 1,
    }


def test_all_spans_of_a_run_are_in_the_trace_of_its_submission(spans: list[dict[str, Any]]) -> None:
    (submitted,) = (span for span in spans if span["name"] == "submit desk")
    assert {span["trace"] for span in spans} == {submitted["trace"]}
    by_id = {span["id"]: span["name"] for span in spans}
    parents = {span["name"]: by_id.get(span["parent"]) for span in spans}
    assert parents.pop("step mail") == "execute_tool refund"
    assert parents.pop("submit desk") is None
    assert parents.pop("step pay") == "wait_for sleep"
    assert set(parents.values()) == {"submit desk"}


def test_spans_are_told_in_the_words_of_the_conventions(spans: list[dict[str, Any]]) -> None:
    chat = next(span for span in spans if span["name"] == "chat scripted")["attributes"]
    assert chat["gen_ai.operation.name"] == "chat"
    assert chat["gen_ai.usage.input_tokens"] == 10
    assert chat["gen_ai.response.finish_reasons"] == ["tool_calls"]
    refund = next(span for span in spans if span["name"] == "execute_tool refund")["attributes"]
    assert refund["gen_ai.tool.call.id"].startswith("call_")
    assert refund["amoxi.run.attempt"] == 2
    failed = next(span for span in spans if span["name"] == "execute_tool fails")
    assert failed["error"]
    assert failed["attributes"]["error.type"] == "call_failed"
    whole = next(span for span in spans if span["name"] == "invoke_agent desk")["attributes"]
    assert whole["amoxi.run.status"] == "completed"


def test_each_model_of_a_chain_that_is_really_asked_has_a_span_of_its_own(spans: list[dict[str, Any]]) -> None:
    (away,) = (span for span in spans if span["name"] == "chat claude-away")
    assert away["error"]
    assert away["attributes"]["error.type"] == "model_unavailable"
    assert away["attributes"]["gen_ai.provider.name"] == "anthropic"
    at_home = [span for span in spans if span["name"] == "chat llama3.1:8b"]
    for span in at_home:
        assert not span["error"]
        assert span["attributes"]["gen_ai.provider.name"] == "openai"
        assert span["attributes"]["gen_ai.request.model"] == "llama3.1:8b"
        assert span["attributes"]["gen_ai.response.model"] == "llama3.1:8b"


def test_no_span_holds_words_of_people_models_or_tools(spans: list[dict[str, Any]]) -> None:
    told = json.dumps(spans)
    for word in ("secret", "Secret", "A-1001", "Done."):
        assert word not in told
