"""`run_agent`: a real run on a store of its own, with everything that was recorded of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amoxi_py import Principal, ToolContext, agent, singleton, tool
from amoxi_py.errors import ConfigError
from amoxi_py.testing import Asked, Gate, ScriptedModel, arun_agent, call, fail, run_agent


@singleton
class Payments:
    """Asks a provider; never to be reached by a test."""

    def refund(self, order: str) -> str:
        raise AssertionError("the real provider was asked")


class FakePayments:
    """Remembers."""

    def __init__(self) -> None:
        self.refunded: list[str] = []

    def refund(self, order: str) -> str:
        self.refunded.append(order)
        return f"R-{order}"


class Mailer:
    """Declared nowhere."""


@singleton
class Shop:
    """The tools."""

    def __init__(self, payments: Payments) -> None:
        self.payments = payments

    @tool(idempotent=True)
    async def refund_order(self, order: str, ctx: ToolContext) -> str:
        """Refund an order."""
        ctx.progress("refunding")
        return await ctx.step("refund", self.payments.refund, order)

    @tool(needs_approval=True)
    def cancel_order(self, order: str) -> str:
        """Cancel an order."""
        return f"cancelled {order}"

    @tool(needs_approval=True, approver="role:finance")
    def write_off(self, amount: int) -> str:
        """Write an amount off."""
        return f"written off {amount}"

    @tool(read_only=True)
    async def wait_for_ever(self) -> str:
        """Never come back."""
        await asyncio.Event().wait()
        return "never"


@agent(tools=[Shop])
class ShopAgent:
    """You run a shop."""


def run(*script: Any, message: str = "Do it", **options: Any) -> Any:
    return run_agent(ShopAgent, message, model=ScriptedModel([*script]), replace={Payments: FakePayments()}, **options)


def test_a_result_has_the_run_its_events_calls_messages_and_requests() -> None:
    payments = FakePayments()
    model = ScriptedModel([["One moment. ", call("refund_order", order="A-1")], "Refunded."])
    result = run_agent(ShopAgent, "Refund A-1", model=model, replace={Payments: payments})
    assert (result.status, result.output, result.run.attempt) == ("completed", "Refunded.", 1)
    assert payments.refunded == ["A-1"]
    [refund] = result.calls
    assert (refund.tool, refund.arguments, refund.status, refund.result) == (
        "refund_order",
        {"order": "A-1"},
        "done",
        "R-A-1",
    )
    assert [(message.role, message.text) for message in result.messages] == [
        ("user", "Refund A-1"),
        ("assistant", "One moment. "),
        ("assistant", "Refunded."),
    ]
    types = [event.type for event in result.events if event.type != "message.delta"]
    assert types[0] == "run.queued"
    assert types[-1] == "run.completed"
    assert "tool.called" in types
    assert result.progress == ("refunding",)
    assert len(result.requests) == 2


def test_without_a_model_the_offline_one_answers() -> None:
    result = run_agent(ShopAgent, "Refund order A-1001", replace={Payments: FakePayments()})
    assert result.call("refund_order").status == "done"


def test_the_real_singleton_is_made_when_nothing_replaces_it() -> None:
    result = run_agent(ShopAgent, "Refund A-1", model=ScriptedModel([call("refund_order", order="A-1"), "No."]))
    assert result.call("refund_order").status == "failed"


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        ("approve", "done", "cancelled A-1"),
        ("decline", "declined", "The person declined this action."),
        (("decline", "too late"), "declined", "The person declined this action. Reason: too late"),
        ({"order": "A-2"}, "done", "cancelled A-2"),
        (lambda asked: "approve" if asked.arguments == {"order": "A-1"} else "decline", "done", "cancelled A-1"),
    ],
)
def test_an_approval_is_answered_as_the_test_says(answer: Any, status: str, told: str) -> None:
    result = run(call("cancel_order", order="A-1"), "Settled.", decide={"cancel_order": answer})
    assert (result.call("cancel_order").status, result.call("cancel_order").result) == (status, told)


def test_a_function_that_decides_may_be_async_and_is_asked_once_per_call() -> None:
    asked: list[Asked] = []

    async def decide(call: Asked) -> str:
        asked.append(call)
        return "approve"

    calls = [call("cancel_order", order="A-1"), call("cancel_order", order="A-2")]
    result = run(calls, "Settled.", decide={"cancel_order": decide})
    assert sorted(one.arguments["order"] for one in asked) == ["A-1", "A-2"]
    assert {one.status for one in result.calls} == {"done"}


def test_somebody_with_the_role_decides_where_a_tool_asks_for_one() -> None:
    result = run(call("write_off", amount=5), "Settled.", decide={"write_off": "approve"})
    assert result.call("write_off").result == "written off 5"
    [decided] = [event for event in result.events if event.type == "approval.decided"]
    assert decided.data["by"] == "user:finance"


def test_an_approval_without_an_answer_fails_the_test_and_names_the_call() -> None:
    with pytest.raises(AssertionError, match=r"'cancel_order' of 'shop-agent' with \{'order': 'A-1'\}.*decide="):
        run(call("cancel_order", order="A-1"), "never said")


@pytest.mark.parametrize("answer", ["maybe", ("approve",), 5])
def test_an_answer_that_is_none_is_refused(answer: Any) -> None:
    with pytest.raises(AssertionError, match="to 'cancel_order' is none"):
        run(call("cancel_order", order="A-1"), "never said", decide={"cancel_order": answer})


def test_edited_arguments_that_do_not_fit_fail_the_test() -> None:
    with pytest.raises(AssertionError, match="do not fit 'cancel_order'"):
        run(call("cancel_order", order="A-1"), "never said", decide={"cancel_order": {"ordre": "A-2"}})


def test_an_answer_for_a_tool_that_the_agent_has_not_is_a_mistake() -> None:
    with pytest.raises(LookupError, match="'cancel', which is no tool of 'shop-agent'"):
        run("Hello.", decide={"cancel": "approve"})


def test_what_nothing_asks_for_cannot_be_replaced() -> None:
    with pytest.raises(TypeError, match="'Mailer', which nothing asks for"):
        run_agent(ShopAgent, "Hi", replace={Mailer: Mailer()})


def test_a_class_that_is_no_agent_and_a_name_without_a_package_are_refused() -> None:
    with pytest.raises(TypeError, match="'Shop' is no agent"):
        run_agent(Shop, "Hi")
    with pytest.raises(TypeError, match="package='app'"):
        run_agent("shop-agent", "Hi")


def test_a_script_that_comes_to_its_end_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="has 1 replies to 'Do it' and was asked for number 2"):
        run(call("refund_order", order="A-1"))


def test_a_run_that_does_not_end_says_what_it_was_doing() -> None:
    with pytest.raises(AssertionError) as caught:
        run([call("wait_for_ever")], "never said", timeout=1.0)
    assert "the run of 'shop-agent' did not end in 1 s; it is running" in str(caught.value)
    assert "the call 'wait_for_ever' with {} is started" in str(caught.value)


def test_a_model_that_does_not_end_is_told_too() -> None:
    with pytest.raises(AssertionError, match=r"did not end in 0\.5 s; it is running"):
        run(["Thinking", Gate()], timeout=0.5)


def test_a_failed_run_is_a_result_like_any_other() -> None:
    result = run(fail(401))
    assert (result.status, result.output) == ("failed", None)
    assert result.run.error is not None
    assert "401" in result.model_failures[0]


def test_the_one_call_of_a_tool_is_asked_for_by_name() -> None:
    result = run("Hello.")
    with pytest.raises(AssertionError, match="'refund_order' was called 0 times, not once; called: nothing"):
        result.call("refund_order")


def test_a_conversation_goes_on_where_it_was() -> None:
    first = run(call("refund_order", order="A-1"), "Refunded.")
    second = run("You are welcome.", message="Thanks", conversation=first)
    assert second.run.conversation_id == first.run.conversation_id
    assert [message.text for message in second.messages] == ["Do it", "", "Refunded.", "Thanks", "You are welcome."]
    assert second.calls == ()
    assert [type(one).__name__ for one in second.requests[0].messages][:2] == ["UserMessage", "AssistantMessage"]


def test_each_result_has_a_store_of_its_own_which_goes_with_it() -> None:
    first, second = run("One."), run("Two.")
    assert first.scratch is not None
    assert second.scratch is not None
    folder = first.scratch.folder
    assert folder != second.scratch.folder
    assert folder.exists()
    del first
    assert not folder.exists()


def test_who_asks_is_who_the_test_says() -> None:
    result = run("Hello.", principal=Principal(id="ann", name="Ann"))
    assert result.run.principal.id == "user:ann"


def test_settings_can_be_given_by_key_and_are_checked() -> None:
    lines = "word " * 1000
    model = ScriptedModel([call("refund_order", order=lines), "Done."])
    result = run_agent(
        ShopAgent,
        "Hi",
        model=model,
        replace={Payments: FakePayments()},
        settings={"ai.tools.max-result-kb": 1},
    )
    assert len(str(result.call("refund_order").result)) < 1500
    with pytest.raises(ConfigError, match="lease-ms"):
        run("Hi.", settings={"ai.runs.lease-ms": 5})


@pytest.mark.anyio
async def test_an_async_test_awaits_the_same() -> None:
    result = await arun_agent(ShopAgent, "Hi", model=ScriptedModel(["Hello."]), replace={Payments: FakePayments()})
    assert result.output == "Hello."


@pytest.mark.anyio
async def test_runs_at_the_same_time_in_a_conversation_have_each_its_own_model() -> None:
    options: dict[str, Any] = {"replace": {Payments: FakePayments()}, "settings": {"ai.runs.on-busy": "queue"}}
    first = await arun_agent(ShopAgent, "Hi", model=ScriptedModel(["Hello."]), **options)

    async def ask(order: str) -> tuple[Any, str]:
        model = ScriptedModel([call("refund_order", order_id=order), f"Refunded {order}."])
        result = await arun_agent(ShopAgent, f"Refund {order}", model=model, conversation=first, **options)
        return [one.arguments for one in result.calls], result.output

    orders = ["A-1", "A-2", "A-3"]
    answers = await asyncio.gather(*map(ask, orders))
    assert answers == [([{"order_id": order}], f"Refunded {order}.") for order in orders]


@pytest.mark.anyio
async def test_the_blocking_one_says_so_where_an_event_loop_runs() -> None:
    with pytest.raises(RuntimeError, match="await arun_agent"):
        run_agent(ShopAgent, "Hi")


def test_an_apps_whole_package_is_searched_when_it_is_named(app_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'from amoxi_py import agent\n\n@agent\nclass Greeter:\n    """You greet."""\n'
    monkeypatch.syspath_prepend(str(app_folder({"kit_greeters/__init__.py": source})))
    result = run_agent("greeter", "Hi", package="kit_greeters", model=ScriptedModel(["Hello."]))
    assert result.output == "Hello."
    with pytest.raises(LookupError, match="no agent 'greeters'; the app has: greeter"):
        run_agent("greeters", "Hi", package="kit_greeters")


def test_nothing_of_the_environment_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AI_MODEL", "openai:gpt-5")
    monkeypatch.setenv("AI_RUNS_LEASE_MS", "nonsense")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-developer")
    assert run("Hello.").output == "Hello."


def test_what_is_remembered_of_who_asks_can_be_given() -> None:
    @agent(memory=True)
    class Friend:
        """You are a friend."""

    result = run_agent(Friend, "hi", model=ScriptedModel(["Hello."]), memories={"address": "lives in Lima"})
    assert '{"key":"address","text":"lives in Lima"}' in result.requests[0].instructions
