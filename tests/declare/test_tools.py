"""The options of tools, and the functions that belong to them."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from amoxi_py import Done, NotDone, SyncToolContext, ToolContext, Unknown, singleton, step, tool
from amoxi_py.declare.callables import is_async
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.definitions import ToolDefinition
from amoxi_py.declare.injection import OpenInstances
from amoxi_py.declare.step import step_options
from amoxi_py.domain.tool_call import Effect

ToolOf = Callable[[Any], ToolDefinition]
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def test_a_bare_tool_is_unsafe_shown_and_asks_nobody(tool_of: ToolOf) -> None:
    @tool
    def act() -> None:
        """Act."""

    definition = tool_of(act)
    assert (definition.name, definition.description, definition.effect) == ("act", "Act.", Effect.UNSAFE)
    assert (definition.needs_approval, definition.approver, definition.expose) == (False, "owner", True)
    assert (definition.timeout, definition.retries, definition.reconcile) == (None, 0, None)
    assert definition.where.endswith("test_tools.test_a_bare_tool_is_unsafe_shown_and_asks_nobody.<locals>.act")


def test_options_are_in_the_definition(tool_of: ToolOf) -> None:
    @tool(
        name="do_it",
        idempotent=True,
        needs_approval=True,
        approver="role:finance",
        expose=False,
        timeout=2.5,
        retries=3,
    )
    def act() -> None: ...

    definition = tool_of(act)
    assert (definition.name, definition.effect, definition.approver) == ("do_it", Effect.IDEMPOTENT, "role:finance")
    assert (definition.needs_approval, definition.expose) == (True, False)
    assert (definition.timeout, definition.retries) == (2.5, 3)
    assert tool_of(tool(read_only=True)(lambda_named())).effect is Effect.READ_ONLY


def lambda_named() -> Callable[[], None]:
    def look() -> None: ...

    return look


def test_a_sync_tool_runs_in_a_thread_with_the_callers_context_variables(
    tool_of: ToolOf, context_for: Callable[[Any], Any]
) -> None:
    seen: dict[str, tuple[int, str]] = {}

    @tool
    def blocking(ctx: SyncToolContext) -> None:
        seen["sync"] = (threading.get_ident(), WHO.get())

    @tool
    async def quick() -> None:
        seen["async"] = (threading.get_ident(), WHO.get())

    async def main() -> None:
        WHO.set("ana")
        for declared in (blocking, quick):
            definition = tool_of(declared)
            await definition.call(OpenInstances({}), context_for(definition), {})

    asyncio.run(main())
    assert seen["async"] == (threading.get_ident(), "ana")
    assert seen["sync"][0] != threading.get_ident()
    assert seen["sync"][1] == "ana"
    assert (tool_of(blocking).sync, tool_of(quick).sync) == (True, False)


def test_a_plain_wrapper_around_an_async_function_is_an_async_tool(tool_of: ToolOf, call: Callable[..., Any]) -> None:
    import functools

    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @tool
    @logged
    async def act(ctx: ToolContext, x: int) -> int:
        return x + 1

    definition = tool_of(act)
    assert not definition.sync
    assert call(definition, {"x": 1}) == 2


def hooked(tool_of: ToolOf, kind: str) -> ToolDefinition:
    def small_sync(ctx: ToolContext, amount: int, currency: str) -> bool:
        return amount > 100 and currency == "EUR" and ctx.call_id == "call-1"

    async def small_async(amount: int, currency: str) -> bool:
        return amount > 100 and currency == "EUR"

    hooks: dict[str, Callable[..., Any]] = {
        "sync": small_sync,
        "async": small_async,
        "all by name": lambda ctx, **a: a["amount"] > 100 and a["currency"] == "EUR" and ctx.call_id == "call-1",
        "some": lambda c, amount: amount > 100 and c.call_id == "call-1",
        "context last": lambda amount, ctx=None: amount > 100,
    }

    @tool(needs_approval=hooks[kind])
    async def pay(amount: int, currency: str = "EUR") -> None: ...

    return tool_of(pay)


@pytest.mark.parametrize("kind", ["sync", "async", "all by name", "some", "context last"])
def test_needs_approval_is_asked_with_the_arguments_that_it_names(
    tool_of: ToolOf, context_for: Callable[[Any], Any], kind: str
) -> None:
    definition = hooked(tool_of, kind)

    async def ask(amount: int) -> bool:
        assert callable(definition.needs_approval)
        arguments = definition.read_arguments({"amount": amount})
        return await definition.needs_approval(OpenInstances({}), context_for(definition), arguments)

    assert asyncio.run(ask(101)) is True
    assert asyncio.run(ask(1)) is False


@singleton
class Shop:
    def __init__(self) -> None:
        self.sold = {"A-1"}

    async def _find(self, order: str, ctx: ToolContext) -> Any:
        return Done(order) if order in self.sold else NotDone()

    def expensive(self, ctx: ToolContext, order: str) -> bool:
        return order in self.sold

    @tool(reconcile="_find", needs_approval=expensive)
    async def sell(self, order: str) -> str:
        return order

    @tool(reconcile=_find)
    async def sell_again(self, order: str) -> str:
        return order


def test_reconcile_is_a_method_by_name_or_itself_and_gets_the_instance(context_for: Callable[[Any], Any]) -> None:
    tools = build_declarations([Shop]).catalog.tools
    instances = OpenInstances({Shop: Shop()})

    async def look(definition: ToolDefinition, order: str) -> Any:
        assert definition.reconcile is not None
        return await definition.reconcile(instances, context_for(definition), {"order": order})

    for name in ("sell", "sell_again"):
        assert asyncio.run(look(tools[name], "A-1")) == Done("A-1")
        assert asyncio.run(look(tools[name], "A-2")) == NotDone()

    async def ask() -> bool:
        asked = tools["sell"].needs_approval
        assert callable(asked)
        return await asked(instances, context_for(tools["sell"]), {"order": "A-1"})

    assert asyncio.run(ask()) is True


def test_a_reconcile_that_an_heir_replaces_is_the_heirs(context_for: Callable[[Any], Any]) -> None:
    @singleton
    class Outlet(Shop):
        async def _find(self, order: str, ctx: ToolContext) -> Any:
            return Unknown("ask the outlet")

    definition = build_declarations([Outlet]).catalog.tools["sell_again"]
    look = definition.reconcile
    assert look is not None
    instances = OpenInstances({Outlet: Outlet()})
    assert asyncio.run(look(instances, context_for(definition), {"order": "A-1"})) == Unknown("ask the outlet")  # type: ignore[arg-type]  # an awaitable


def test_a_reconcile_that_says_nothing_is_an_error(tool_of: ToolOf, context_for: Callable[[Any], Any]) -> None:
    @tool(reconcile=lambda ctx: None)
    def act() -> None: ...

    @tool(reconcile=lambda ctx: Unknown("no books"))
    def other() -> None: ...

    async def look(definition: ToolDefinition) -> Any:
        assert definition.reconcile is not None
        return await definition.reconcile(OpenInstances({}), context_for(definition), {})

    with pytest.raises(TypeError, match=r"tool 'act'.*returned None; return Done"):
        asyncio.run(look(tool_of(act)))
    assert asyncio.run(look(tool_of(other))) == Unknown("no books")


def test_options_of_a_step_are_found_through_methods_and_partials() -> None:
    import functools

    class Bank:
        @step(retries=2, timeout=1.5)
        async def pay(self, amount: int) -> int:
            return amount

    bank = Bank()
    for function in (
        Bank.pay,
        bank.pay,
        functools.partial(bank.pay, 1),
        functools.partial(functools.partial(bank.pay)),
    ):
        options = step_options(function)
        assert (options.retries, options.timeout) == (2, 1.5)
        assert is_async(function)
    assert step_options(len) == step_options(lambda: None)
    assert step_options(len).retries == 0
    assert asyncio.run(bank.pay(3)) == 3


@pytest.mark.parametrize("options", [{"retries": -1}, {"retries": True}, {"timeout": 0}, {"timeout": float("nan")}])
def test_a_step_with_options_that_cannot_be_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="@step"):
        step(**options)
