"""The crash kit, as an app's own tests use it: it kills for real, and finds what is done twice or lost."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import ToolContext, agent, singleton, tool
from amoxi_py.testing import AgentRun, ScriptedModel, arun_agent, call, crash, run_agent


def note(file: str, line: str) -> None:
    descriptor = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@singleton
class Till:
    """Pays in three ways: by key, blindly, and as an unsafe tool."""

    @tool(idempotent=True)
    async def pay_by_key(self, order: str, ctx: ToolContext) -> str:
        """Pay once per key."""

        def pay() -> str:
            paid = Path("paid.log").read_text("utf-8").splitlines() if Path("paid.log").exists() else []
            if ctx.call_id not in paid:
                note("paid.log", ctx.call_id)
            return order

        return await ctx.step("pay", pay)

    @tool(idempotent=True)
    async def pay_blindly(self, order: str) -> str:
        """Say to be idempotent, and pay each time."""
        note("paid.log", order)
        return order

    @tool
    async def pay_unsafely(self, order: str) -> str:
        """Never to be run twice."""
        note("paid.log", order)
        return order

    @tool(needs_approval=True)
    async def pay_when_told(self, order: str) -> str:
        """Ask first."""
        note("paid.log", order)
        return order


@agent(tools=[Till])
class Cashier:
    """You pay."""


def pay(tool: str, **options: Any) -> AgentRun:
    return run_agent(Cashier, "Pay", model=ScriptedModel([call(tool, order="A-1"), "Paid."]), **options)


def pay_by_key() -> None:
    assert pay("pay_by_key").output == "Paid."


def pay_blindly() -> None:
    pay("pay_blindly")


def pay_unsafely() -> None:
    result = pay("pay_unsafely")
    assert result.call("pay_unsafely").status in ("done", "unknown")


async def runs_with_scripts_of_their_own() -> None:
    first = await arun_agent(Cashier, "Pay", model=ScriptedModel([call("pay_by_key", order="A-1"), "By key."]))
    asked = ScriptedModel([call("pay_when_told", order="A-2"), "When told."])
    other = await arun_agent(Cashier, "Pay", model=asked, decide={"pay_when_told": "approve"})
    third = await arun_agent(Cashier, "Again", model=ScriptedModel(["In words."]), conversation=first)
    assert [(one.tool, one.arguments) for one in first.calls] == [("pay_by_key", {"order": "A-1"})]
    assert [(one.tool, one.arguments) for one in other.calls] == [("pay_when_told", {"order": "A-2"})]
    assert (first.output, other.output, third.output) == ("By key.", "When told.", "In words.")
    assert [message.text for message in third.messages] == ["Pay", "", "By key.", "Again", "In words."]


def expect_the_impossible() -> None:
    assert pay("pay_by_key").output == "Never said."


def two_parameters(one: str, two: str) -> None:
    """Cannot be played."""


@pytest.fixture(autouse=True)
def own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_an_effect_by_key_happens_once_at_every_kill(capsys: pytest.CaptureFixture[str]) -> None:
    report = crash.at_every_step(pay_by_key, ledgers={"paid.log": crash.exactly(1)})
    assert 8 < report.kills <= 2 * len(report.commits)
    assert report.commits[0] == "submit"
    assert any("the step 'pay'" in commit for commit in report.commits)
    assert f"crash.at_every_step(pay_by_key): {report.kills} kills, 0 broken promises" in capsys.readouterr().out


def test_an_effect_that_happens_twice_is_told_with_the_kill_and_the_ledger() -> None:
    with pytest.raises(AssertionError) as caught:
        crash.at_every_step(pay_blindly, ledgers={"paid.log": crash.exactly(1)})
    told = str(caught.value)
    assert "killed before commit" in told
    assert "the result of call 1.0" in told
    assert "ledger 'paid.log': 1 lines are promised, and there are 2; it holds:\n      A-1\n      A-1" in told


def test_an_unsafe_tool_may_be_left_undone_but_is_never_repeated() -> None:
    seen: list[int] = []

    def look(killed: crash.Killed) -> None:
        seen.append(len((killed.at_kill / "paid.log").read_bytes()) if (killed.at_kill / "paid.log").exists() else 0)

    crash.at_every_step(pay_unsafely, ledgers={"paid.log": crash.at_most(1)}, check=look)
    assert set(seen) == {0, 4}, "some were killed before the effect and some after it"


def test_each_run_of_a_scenario_goes_on_with_its_own_script_and_decisions() -> None:
    report = crash.at_every_step(runs_with_scripts_of_their_own, ledgers={"paid.log": crash.at_most(2)}, part=(1, 3))
    assert report.commits.count("submit") == 3
    assert any(commit.startswith("decide") for commit in report.commits)


def test_the_kills_can_be_shared_out_among_tests() -> None:
    parts = [crash.at_every_step(pay_by_key, part=(n, 2)) for n in (1, 2)]
    assert all(part.kills for part in parts)
    assert 8 < sum(part.kills for part in parts) <= 2 * len(parts[0].commits)


def test_a_scenario_that_fails_by_itself_says_so_with_its_error() -> None:
    with pytest.raises(AssertionError, match=r"(?s)'expect_the_impossible' fails without any kill.*Never said"):
        crash.at_every_step(expect_the_impossible)


def test_a_check_that_does_not_hold_is_told_in_its_words() -> None:
    def never(killed: crash.Killed) -> None:
        raise AssertionError("the books do not balance")

    with pytest.raises(AssertionError, match=r"killed before commit 1: submit: the books do not balance"):
        crash.at_every_step(pay_by_key, check=never, part=(1, 5))


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (crash.exactly(2), ["a", "b"], ["a"]),
        (crash.exactly(2), ["a", "b"], ["a", "a"]),
        (crash.at_most(1), [], ["a", "b"]),
        (crash.each_line_once, ["a", "b"], ["a", "b", "a"]),
    ],
)
def test_the_checks_hold_for_good_ledgers_only(check: Any, good: list[str], bad: list[str]) -> None:
    check(good)
    with pytest.raises(AssertionError):
        check(bad)


def test_what_another_process_cannot_import_is_refused() -> None:
    def inner() -> None:
        """Stands in a function."""

    with pytest.raises(TypeError, match="at the top of a module"):
        crash.at_every_step(inner)
    with pytest.raises(TypeError, match="at the top of a module"):
        crash.at_every_step(lambda: None)
    with pytest.raises(TypeError, match="has parameters"):
        crash.at_every_step(two_parameters)  # type: ignore[arg-type]
    names: dict[str, Any] = {}
    exec("def typed_in(): pass", names)
    with pytest.raises(TypeError, match="in no module"):
        crash.at_every_step(names["typed_in"])


def test_nothing_is_left_behind_when_all_promises_hold(tmp_path: Path) -> None:
    crash.at_every_step(pay_by_key, part=(1, 5))
    assert list(tmp_path.glob("amoxi-crash-*")) == []


def test_a_run_outside_of_a_crash_test_is_not_touched_by_it() -> None:
    assert asyncio.run(arun_agent(Cashier, "Hi", model=ScriptedModel(["Hello."]))).output == "Hello."
