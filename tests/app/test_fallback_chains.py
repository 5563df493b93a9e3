"""A list of models, whole: two providers on real connections, and what a run's log says when the first one fails."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal
from amoxi_py.app.runtime import open_runtime
from amoxi_py.config.load import load_settings
from amoxi_py.testing import StrictModelServer, broken, call, fail, reply

AGENTS = '''
from amoxi_py import agent, tool


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


@agent(tools=[look])
class Helper:
    """You help."""
'''
PACKAGE = "app_of_a_chain"
ANN = Principal(id="user:ann")


@pytest.fixture
def talk(app_folder: Any) -> Iterator[Any]:
    """Asks the app's agent once, with two models of which each has a server, and returns the run and its log."""
    folder: Path = app_folder({f"{PACKAGE}/__init__.py": "", f"{PACKAGE}/agents.py": AGENTS})
    path = list(sys.path)

    def run(first: StrictModelServer, second: StrictModelServer) -> tuple[Any, list[tuple[str, Any]]]:
        environ = {
            "APP_PACKAGE": PACKAGE,
            "AI_MODEL": "anthropic:first, openai:second",
            "ANTHROPIC_API_KEY": "sk-first",
            "ANTHROPIC_BASE_URL": first.anthropic_url,
            "OPENAI_API_KEY": "sk-second",
            "OPENAI_BASE_URL": second.url,
        }

        async def play() -> tuple[Any, list[tuple[str, Any]]]:
            settings = load_settings(folder, environ=environ)
            assert settings.ai.model == ("anthropic:first", "openai:second")
            async with open_runtime(settings) as runtime:
                submitted = await runtime.engine.submit("helper", "Hello", principal=ANN)
                events = [(event.type, event.data) async for event in runtime.runs.events(submitted.run.id)]
                return await runtime.engine.get_run(submitted.run.id, ANN), events

        return asyncio.run(play())

    yield run
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


@pytest.mark.parametrize("failure", [fail(429, retry_after=3600), fail(401)])
def test_a_run_notices_nothing_of_a_model_that_fails_before_it_has_said_anything(talk: Any, failure: Any) -> None:
    script = {"*": [call("look"), "From the second."]}
    with StrictModelServer({"*": [failure] * 5}) as first, StrictModelServer(script) as second:
        run, events = talk(first, second)
        assert (run.status, run.output) == ("completed", "From the second.")
        assert "message.discarded" not in [kind for kind, _ in events]
        assert (second.refused, len(second.bodies)) == ([], 2)


def test_words_of_a_model_that_fails_are_discarded_and_the_next_one_begins_anew(talk: Any) -> None:
    script = {"*": ["Whole answer."]}
    with (
        StrictModelServer({"*": [broken("Half an ans", ending="error")] * 5}) as first,
        StrictModelServer(script) as second,
    ):
        run, events = talk(first, second)
        assert (run.status, run.output) == ("completed", "Whole answer.")
        assert (len(first.bodies), len(second.bodies)) == (1, 1)
    shown: dict[str, str] = {}
    for kind, data in events:
        if kind == "message.delta":
            shown[data["message_id"]] = shown.get(data["message_id"], "") + data["text"]
        elif kind == "message.discarded":
            assert shown.pop(data["message_id"]) == "Half an ans"
        elif kind == "message.completed" and data["message"]["role"] == "assistant":
            shown[data["message"]["id"]] = data["message"]["text"]
    assert list(shown.values()) == ["Whole answer."]


def test_a_later_turn_may_be_answered_by_another_model_than_the_first_one(talk: Any) -> None:
    begun = reply("I look. ", call("look"))
    with (
        StrictModelServer({"*": [begun, fail(503), fail(503)]}) as first,
        StrictModelServer({"*": ["never", "Seen."]}) as second,
    ):
        run, _ = talk(first, second)
        assert (run.status, run.output) == ("completed", "Seen.")
        assert (first.refused, second.refused) == ([], [])
        [asked] = second.requests
        assert [type(message).__name__ for message in asked.messages] == [
            "UserMessage",
            "AssistantMessage",
            "ToolResult",
        ]
