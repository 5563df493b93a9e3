"""The Inspector's command line as a client that is not ours: it lists, calls and fails as its users would see it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kits import Kits

pytestmark = [pytest.mark.xdist_group("inspector"), pytest.mark.timeout(300)]  # one server, a few calls at a time

TEMPLATE = Path(__file__).parents[2] / "app_template"
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
TOKEN = ("--header", "Authorization: Bearer kits-token-0123456789")
LIST = ("--method", "tools/list", "--strict")
PUBLISHED = ["list_notes", "add_note", "lookup_order", "refund_order", "ask_assistant", "ask_support_agent"]
NO_TOKEN, TOOL_FAILED = 3, 5


def call(tool: str, **arguments: str) -> tuple[str, ...]:
    return ("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))


CALLS = {
    f"{what}, {era}": (*TOKEN, "--protocol-era", era, *asked)
    for era in ("legacy", "modern")
    for what, asked in {
        "list": LIST,
        "order": call("lookup_order", order_id="A-1001"),
        "no such order": call("lookup_order", order_id="A-9999"),
        "agent": call("ask_support_agent", message="Cancel order A-1002"),
    }.items()
} | {
    "without a token": LIST,
    "unfit arguments": (*TOKEN, *call("lookup_order", order_id="1001")),
    "a run": (*TOKEN, *call("add_note", text="buy tent pegs")),
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def result(self) -> Any:
        assert self.out, self
        return json.loads(self.out)["result"]

    @property
    def text(self) -> str:
        return str(self.result["content"][0]["text"])


@pytest.fixture(scope="module")
def answers(kits: Kits, serve_copy: Any) -> Any:
    """What the Inspector told of each call, by its name; all are made at the start, three at a time."""
    address = f"{serve_copy(TEMPLATE).url}/mcp"

    def ask(arguments: tuple[str, ...]) -> Answer:
        given = ("--cli", "--server-url", address, "--transport", "http", "--format", "json", "--stored-auth-only")
        process: subprocess.Popen[str]
        with kits.start_node(kits.packages / INSPECTOR, *given, *arguments) as process:
            out, err = process.communicate(timeout=90)
        return Answer(code=process.returncode, out=out, err=err)

    with ThreadPoolExecutor(3) as pool:
        asked: dict[str, Future[Answer]] = {name: pool.submit(ask, arguments) for name, arguments in CALLS.items()}
        yield lambda name: asked[name].result()


Answers = Callable[[str], Answer]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_it_lists_the_templates_tools_and_finds_their_schemas_portable(answers: Answers, era: str) -> None:
    answer = answers(f"list, {era}")
    assert (answer.code, [tool["name"] for tool in answer.result["tools"]]) == (0, PUBLISHED), answer
    assert answer.err == ""


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_it_calls_a_tool_and_gets_its_result_as_text_and_structured(answers: Answers, era: str) -> None:
    answer = answers(f"order, {era}")
    order = {"id": "A-1001", "item": "Trail backpack, 28 L", "status": "shipped"}
    assert answer.code == 0, answer
    assert (json.loads(answer.text), answer.result["structuredContent"]) == (order, order)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_it_sees_what_a_tool_says_of_its_failure(answers: Answers, era: str) -> None:
    answer = answers(f"no such order, {era}")
    assert (answer.code, answer.text) == (TOOL_FAILED, "There is no order A-9999."), answer


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_it_asks_an_agent_and_is_told_that_nobody_approved(answers: Answers, era: str) -> None:
    answer = answers(f"agent, {era}")
    assert (answer.code, answer.text) == (0, "That didn't work: The person declined this action."), answer
    assert answer.result["structuredContent"]["output"] == answer.text


def test_it_calls_a_tool_whose_call_is_a_stored_run(answers: Answers) -> None:
    answer = answers("a run")
    assert (answer.code, answer.result["structuredContent"]) == (0, {"result": "Noted: buy tent pegs"}), answer


def test_it_sees_unfit_arguments_as_a_failure_that_names_the_field(answers: Answers) -> None:
    answer = answers("unfit arguments")
    assert answer.code == TOOL_FAILED, answer
    assert "order_id" in answer.text


def test_without_a_token_it_says_that_one_is_needed(answers: Answers) -> None:
    answer = answers("without a token")
    assert (answer.code, answer.out) == (NO_TOKEN, ""), answer
