"""What `@provides` gives: made once or per call, given by type, closed in reverse, with the error of its call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, NewType

import pytest

from amoxi_py import Inject, RunContext, provides, singleton, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.testing import tool_context

LOG: list[str] = []
Url = NewType("Url", str)


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


@dataclass
class Engine:
    url: Url


@dataclass
class Session:
    engine: Engine
    asked_by: str


@dataclass
class Orders:
    session: Session


@provides
def url() -> Url:
    return Url("sqlite://")


@provides
async def engine(url: Url) -> AsyncIterator[Engine]:
    LOG.append("open engine")
    yield Engine(url)
    LOG.append("close engine")


@provides(scope="call")
def session(engine: Engine, ctx: RunContext) -> Iterator[Session]:
    LOG.append("open session")
    try:
        yield Session(engine, ctx.principal.id)
    except BaseException as error:
        LOG.append(f"roll back: {type(error).__name__}")
        raise
    LOG.append("commit")


@provides(scope="call")
@asynccontextmanager
async def orders(session: Session) -> AsyncIterator[Orders]:
    LOG.append("open orders")
    try:
        yield Orders(session)
    finally:
        LOG.append("close orders")


@singleton
class Report:
    def __init__(self, engine: Engine, url: Url) -> None:
        self.engine = engine
        self.url = url


@tool
async def look(number: int, orders: Annotated[Orders, Inject], again: Annotated[Session | None, Inject]) -> str:
    """Look."""
    assert orders.session is again
    LOG.append(f"look for {number}")
    if number == 0:
        raise LookupError("no order 0")
    return orders.session.asked_by


@pytest.fixture
def run() -> Callable[..., Any]:
    """Open what is declared, call the one tool with these arguments, one after the other, and return its results."""

    def run(*things: Any, calls: list[dict[str, Any]]) -> list[Any]:
        async def main() -> list[Any]:
            declarations = build_declarations(things)
            [definition] = declarations.catalog.tools.values()
            async with open_instances(declarations.singletons, {}, declarations.providers) as instances:
                return [await definition.call(instances, tool_context(), arguments) for arguments in calls]

        return asyncio.run(main())

    return run


def test_what_is_made_once_stays_and_what_is_made_per_call_is_closed_after_it(run: Callable[..., Any]) -> None:
    found = run(url, engine, session, orders, look, calls=[{"number": 1}, {"number": 2}])
    assert found == ["user:test", "user:test"]
    calls = [["open session", "open orders", f"look for {n}", "close orders", "commit"] for n in (1, 2)]
    whole = ["open engine", *calls[0], *calls[1], "close engine"]
    assert whole == LOG


def test_the_error_of_the_tool_is_raised_where_the_provider_yields(run: Callable[..., Any]) -> None:
    with pytest.raises(LookupError, match="no order 0"):
        run(url, engine, session, orders, look, calls=[{"number": 0}])
    assert LOG[-4:] == ["look for 0", "close orders", "roll back: LookupError", "close engine"]


def test_no_model_is_told_of_what_is_injected() -> None:
    [definition] = build_declarations([url, engine, session, orders, look]).catalog.tools.values()
    assert list(definition.parameters["properties"]) == ["number"]
    assert definition.parameters["required"] == ["number"]


def test_constructors_are_given_what_functions_provide() -> None:
    async def main() -> Report:
        declarations = build_declarations([Report, engine, url])
        async with open_instances(declarations.singletons, {}, declarations.providers) as instances:
            assert instances.get(Report).engine is instances.get(Engine)
            report: Report = instances.get(Report)
            return report

    assert asyncio.run(main()).url == "sqlite://"
    assert LOG == ["open engine", "close engine"]


def test_a_ready_value_takes_the_place_of_a_provider() -> None:
    async def main() -> str:
        values = {Session: (fake := Session(Engine(Url("x")), "fake"))}
        declarations = build_declarations([session, orders, look], provided=values)
        [definition] = declarations.catalog.tools.values()
        async with open_instances(declarations.singletons, values, declarations.providers) as instances:
            assert instances.get(Session) is fake
            return str(await definition.call(instances, tool_context(), {"number": 1}))

    assert asyncio.run(main()) == "fake"
    assert LOG == ["open orders", "look for 1", "close orders"]


def test_an_error_that_a_provider_keeps_to_itself_fails_the_call_all_the_same(run: Callable[..., Any]) -> None:
    @provides(scope="call")
    @contextmanager
    def quiet() -> Iterator[Session]:
        try:
            yield Session(Engine(Url("x")), "quiet")
        except LookupError:
            LOG.append("kept")

    @tool
    async def fail(db: Annotated[Session, Inject]) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(quiet, fail, calls=[{}])
    assert LOG == ["kept"]


def test_what_a_provider_raises_after_its_yield_is_the_error_of_the_call_and_of_what_is_around(
    run: Callable[..., Any],
) -> None:
    @provides(scope="call")
    async def broken(engine: Engine) -> AsyncIterator[Orders]:
        yield Orders(Session(engine, "x"))
        raise ConnectionError("the commit failed")

    @provides(scope="call")
    def around() -> Iterator[Engine]:
        try:
            yield Engine(Url("x"))
        except ConnectionError:
            LOG.append("heard of it")
            raise

    @tool
    async def use(orders: Annotated[Orders, Inject]) -> str:
        return "done"

    with pytest.raises(ConnectionError, match="the commit failed"):
        run(around, broken, use, calls=[{}])
    assert LOG == ["heard of it"]


def test_one_that_cannot_be_made_fails_the_call_and_closes_those_before(run: Callable[..., Any]) -> None:
    @provides(scope="call")
    async def broken(session: Session) -> Orders:
        raise ConnectionError("no database")

    with pytest.raises(ConnectionError, match="no database"):
        run(url, engine, session, broken, look, calls=[{"number": 1}])
    assert LOG == ["open engine", "open session", "roll back: ConnectionError", "close engine"]


@pytest.mark.parametrize("form", ["plain", "async", "wrapped"])
def test_functions_of_every_kind_provide(run: Callable[..., Any], form: str) -> None:
    def plain() -> Session:
        return Session(Engine(Url("x")), form)

    async def asynchronous() -> Session:
        return plain()

    def wrapped() -> Awaitable[Session]:
        return asynchronous()

    wrapped.__annotations__["return"] = Session
    provider = provides(scope="call")({"plain": plain, "async": asynchronous, "wrapped": wrapped}[form])

    @tool
    async def name(db: Annotated[Session, Inject]) -> str:
        return db.asked_by

    assert run(provider, name, calls=[{}]) == [form]


def test_what_nothing_provides_may_be_left_out_with_a_default(run: Callable[..., Any]) -> None:
    @tool
    async def name(db: Annotated[Session | None, Inject] = None) -> str:
        return repr(db)

    assert run(name, calls=[{}]) == ["None"]


def test_a_decorated_function_stays_as_it_was() -> None:
    assert url() == "sqlite://"
    assert asyncio.run(anext(engine(Url("y")))).url == "y"
    with pytest.raises(TypeError, match="either a function or options"):
        provides(url, scope="call")  # type: ignore[call-overload]
