"""`tool_context`: a tool's function called by hand, with the steps, the progress and the signal of a real call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from amoxi_py import Memory, Principal, StepError, SyncToolContext, ToolContext, ToolError, step, tool
from amoxi_py.errors import ValueNotStorable
from amoxi_py.testing import Interrupted, tool_context


@dataclass
class Refund:
    """Stored and brought back in the same type."""

    id: str
    cents: int


class Effects:
    def __init__(self) -> None:
        self.done: list[str] = []

    def refund(self, key: str) -> Refund:
        self.done.append(key)
        return Refund(id=f"R-{len(self.done)}", cents=500)

    async def mail(self, refund_id: str) -> None:
        self.done.append(f"mail {refund_id}")

    def fail(self) -> None:
        self.done.append("fail")
        raise RuntimeError("no connection")


@tool(idempotent=True)
async def refund(effects: Any, ctx: ToolContext) -> Refund:
    """Refund."""
    ctx.progress("refunding")
    done: Refund = await ctx.step("refund", effects.refund, ctx.call_id)
    await ctx.step("mail", effects.mail, done.id)
    ctx.progress(f"done for {ctx.principal.name}")
    return done


@tool(idempotent=True)
def refund_sync(effects: Any, ctx: SyncToolContext) -> Refund:
    """Refund."""
    ctx.progress("refunding")
    done: Refund = ctx.step("refund", effects.refund, ctx.call_id)
    ctx.step("mail", effects.mail, done.id)
    return done


def test_steps_and_progress_of_an_async_tool_are_recorded() -> None:
    effects, ctx = Effects(), tool_context(principal=Principal(id="ann", name="Ann"))
    assert asyncio.run(refund(effects, ctx)) == Refund(id="R-1", cents=500)
    assert effects.done == [ctx.call_id, "mail R-1"]
    assert ctx.progress_lines == ["refunding", "done for Ann"]
    assert ctx.steps_done == {"refund": Refund(id="R-1", cents=500), "mail": None}


def test_the_same_holds_for_a_sync_tool_in_the_tests_own_thread() -> None:
    effects, ctx = Effects(), tool_context(sync=True)
    assert refund_sync(effects, ctx) == Refund(id="R-1", cents=500)
    assert effects.done == [ctx.call_id, "mail R-1"]
    assert ctx.progress_lines == ["refunding"]
    assert ctx.steps_done == {"refund": Refund(id="R-1", cents=500), "mail": None}


def test_the_next_try_of_a_call_gets_what_its_steps_returned_and_does_nothing_again() -> None:
    effects, first = Effects(), tool_context()
    refunded = asyncio.run(refund(effects, first))
    done, again = list(effects.done), first.again()
    assert asyncio.run(refund(effects, again)) == refunded
    assert effects.done == done
    assert (again.call_id, again.attempt) == (first.call_id, 2)


def test_the_next_try_of_a_sync_tool_does_nothing_again_either() -> None:
    effects, first = Effects(), tool_context(sync=True)
    refunded = refund_sync(effects, first)
    done = list(effects.done)
    assert refund_sync(effects, first.again()) == refunded
    assert effects.done == done


def test_a_step_that_raised_raises_again_without_running() -> None:
    effects, ctx = Effects(), tool_context(sync=True)
    with pytest.raises(StepError, match="step 'call' failed: RuntimeError: no connection"):
        ctx.step("call", effects.fail)
    with pytest.raises(StepError, match="step 'call' failed: RuntimeError: no connection"):
        ctx.again().step("call", effects.fail)
    assert effects.done == ["fail"]
    assert ctx.steps_done == {}


def test_a_step_is_tried_again_as_its_options_say() -> None:
    tries: list[int] = []

    @step(retries=2)
    def flaky() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise RuntimeError("not yet")
        return len(tries)

    assert tool_context(sync=True).step("flaky", flaky) == 2


def test_a_name_is_used_once_and_a_value_that_cannot_be_stored_is_refused() -> None:
    ctx = tool_context(sync=True)
    ctx.step("one", lambda: 1)
    with pytest.raises(ValueError, match="'one' was used before"):
        ctx.step("one", lambda: 1)
    with pytest.raises(ValueNotStorable, match="step 'two'"):
        ctx.step("two", lambda: object())


def test_a_cancelled_call_hears_it_and_its_next_step_ends_it() -> None:
    ctx = tool_context(sync=True)
    assert not ctx.signal.cancelled
    ctx.cancel()
    assert ctx.signal.cancelled
    with pytest.raises(Interrupted):
        ctx.step("late", lambda: 1)
    with pytest.raises(Interrupted):
        ctx.signal.raise_if_cancelled()


@pytest.mark.anyio
async def test_an_async_tool_that_waits_for_the_signal_goes_on_when_it_is_cancelled() -> None:
    ctx = tool_context()
    waiting = asyncio.create_task(ctx.signal.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    ctx.cancel()
    await asyncio.wait_for(waiting, 60)


def test_each_context_is_a_call_of_its_own_unless_the_test_says_which() -> None:
    assert tool_context().call_id != tool_context().call_id
    ctx = tool_context(call_id="call_x", agent="shop-agent", attempt=3)
    assert (ctx.call_id, ctx.agent, ctx.attempt) == ("call_x", "shop-agent", 3)


def test_a_context_has_a_memory_that_the_next_try_shares() -> None:
    @tool(idempotent=True)
    async def learn(ctx: ToolContext) -> list[str]:
        """Learn."""
        await ctx.remember("likes green tea")
        await ctx.remember("lives in Quito", "address")
        await ctx.forget("pet")
        return [memory.text for memory in await ctx.recall("Where does she live?", 1)]

    ctx = tool_context(memories={"address": "lives in Lima", "pet": "has a cat"})
    assert asyncio.run(learn(ctx)) == ["lives in Quito"]
    assert asyncio.run(learn(ctx.again())) == ["lives in Quito"]
    assert [(one.key, one.text) for one in ctx.remembered] == [(None, "likes green tea"), ("address", "lives in Quito")]
    with pytest.raises(ToolError, match="what is to be remembered must be a text"):
        asyncio.run(ctx.again().remember(""))


@pytest.mark.anyio
async def test_what_a_step_remembers_stays_when_the_step_does_not_run_again() -> None:
    tries: list[str] = []

    @step(retries=1)
    async def learn(ctx: ToolContext) -> Memory:
        memory = await ctx.remember("likes tea")
        tries.append(memory.id)
        if len(tries) == 1:
            raise RuntimeError("not yet")
        return memory

    async def call(ctx: ToolContext) -> Memory:
        memory = await ctx.step("learn", learn, ctx)
        await ctx.remember("lives in Lima")
        return memory

    ctx = tool_context()
    memory = await call(ctx)
    assert await call(ctx.again()) == memory
    assert tries == [memory.id, memory.id]
    assert [one.text for one in ctx.remembered] == ["likes tea", "lives in Lima"]


def test_a_sync_context_has_one_too() -> None:
    ctx = tool_context(sync=True, memories={"address": "lives in Lima"})
    assert [memory.text for memory in ctx.recall("Who lives in Lima?")] == ["lives in Lima"]
    assert [memory.text for memory in ctx.recall("the address")] == ["lives in Lima"]
    assert ctx.remember("has a cat", metadata={"by": "me"}).metadata == {"by": "me"}
    assert ctx.forget("address")
    assert ([memory.text for memory in ctx.remembered], ctx.search_docs("x")) == (["has a cat"], [])
