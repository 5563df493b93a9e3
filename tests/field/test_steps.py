"""Steps across a kill: each runs once when it was recorded, keeps its own value, and gives the same type again."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.crash

THREE_STEPS = '''
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call
from .ledger import gate, note


@tool(idempotent=True)
async def build_shed(ctx: ToolContext) -> list[str]:
    """Build a shed in three steps."""
    ctx.progress("the first")
    one = await ctx.step("first", work, 1, ctx)
    ctx.progress("the second")
    two = await ctx.step("second", work, 2, ctx)
    ctx.progress("the third")
    three = await ctx.step("third", work, 3, ctx)
    return [one, two, three]


async def work(number: int, ctx: ToolContext) -> str:
    if number == 2:
        await gate("before-two")
    note("step", ctx, number=number)
    if number == 2:
        await gate("after-two")
    return f"{number} in try {ctx.attempt}"


@agent(tools=[build_shed], model=ScriptedModel([["One ", "moment.", call("build_shed")], ["It ", "stands."]]))
class Builder:
    """You build."""
'''


@pytest.mark.parametrize(
    ("open_before", "lines", "told"),
    [
        (True, [1, 2, 2, 3], ["1 in try 1", "2 in try 2", "3 in try 2"]),
        (False, [1, 2, 3], ["1 in try 1", "2 in try 2", "3 in try 2"]),
    ],
    ids=["after its effect", "before its effect"],
)
def test_a_tool_of_three_steps_killed_in_the_second_ends_by_itself_with_at_most_four_lines(
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    until: Any,
    one_story: Any,
    lease_s: float,
    open_before: bool,
    lines: list[int],
    told: list[str],
) -> None:
    folder = field_app(THREE_STEPS)
    if open_before:
        folder.open_gate("before-two")
    server = start(folder)
    api = client(server)
    run = api.submit("builder", "Build a shed")
    person = reader(server, run)
    person.wait_for("tool.progress", text="the second")
    if open_before:
        until(lambda: folder.ledger("step", number=2))
    person.leave()
    server.kill9()
    folder.open_gate("before-two")
    folder.open_gate("after-two")
    again = start(folder, wait_ready=False)  # and nothing is called: it ends by itself
    again.wait_log("is ready")
    until(lambda: folder.ledger("step", number=3), lease_s + 21, "the run goes on by itself")
    assert [line["number"] for line in folder.ledger("step")] == lines
    assert len({line["call"] for line in folder.ledger("step")}) == 1
    api = client(again)
    api.until_status(run["id"], "completed")
    seen = list(person.events)
    events = [*seen, *api.events(run["id"], after=seen[-1].id)]
    one_story(events)
    [completed] = [event for event in events if event.type == "tool.completed"]
    assert completed.data["result"] == told
    whole = api.events(run["id"], after=0)
    assert [event for event in whole if event.type != "message.delta"] == [
        event for event in events if event.type != "message.delta"
    ]


# O02: a step gives one type on the first pass and another after a crash.

KINDS = '''
import dataclasses, datetime, decimal, enum, typing, uuid
from pydantic import BaseModel


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.datetime
    tags: set[str]


class Address(BaseModel):
    street: str
    since: datetime.date | None = None


class Person(BaseModel):
    name: str
    addresses: list[Address]


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Pair(typing.NamedTuple):
    left: int
    right: decimal.Decimal


class Typed(typing.TypedDict):
    a: int


ZONE = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
AT = datetime.datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=ZONE)

GOOD = {
    "none": None,
    "true": True,
    "integer": 7,
    "big integer": 2**70,
    "negative": -(2**64),
    "float": 0.1,
    "whole float": 2.0,
    "infinite": float("inf"),
    "text": "Zażółć \\u0000 \\U0001f600",
    "bytes": b"\\x00\\xff",
    "tuple": (1, (2, "three")),
    "empty tuple": (),
    "list": [1, [2.0, None]],
    "set": {1, 2, 3},
    "frozenset": frozenset({"a"}),
    "datetime": AT,
    "naive datetime": AT.replace(tzinfo=None),
    "date": AT.date(),
    "time": AT.time(),
    "timedelta": datetime.timedelta(days=-1, microseconds=3),
    "decimal": decimal.Decimal("1.10"),
    "uuid": uuid.UUID(int=5),
    "dict with integer keys": {1: "one", 2: {3: "three"}},
    "dict with tuple keys": {(1, 2): "pair"},
    "dict with mixed keys": {1: "a", "1": "b"},
    "dict that looks like ours": {"$type": "tuple", "value": [1]},
    "typed dict": Typed(a=1),
    "dataclass": Point(x=1, when=AT, tags={"a"}),
    "model": Person(name="Ann", addresses=[Address(street="Main", since=AT.date())]),
    "models in a dict": {"all": [Address(street="x")], "pairs": (Pair(1, decimal.Decimal("2.50")),)},
    "enum": Colour.RED,
    "int enum": Level.HIGH,
    "named tuple": Pair(1, decimal.Decimal("2.50")),
}


class Opaque:
    """Nobody knows how to write this down."""


def make_local():
    @dataclasses.dataclass
    class Local:
        x: int = 1

    return Local()


REFUSED = {
    "object": Opaque,
    "function": lambda: len,
    "generator": lambda: (n for n in ()),
    "file": lambda: open(__file__),
    "class in a function": make_local,
    "object in a list": lambda: [1, {"deep": Opaque()}],
}
'''

TYPES = '''
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call
from .kinds import GOOD, REFUSED
from .ledger import gate, note


@tool(idempotent=True)
async def try_types(ctx: ToolContext) -> str:
    """Give one value of each type back from a step."""
    for name, value in GOOD.items():
        got = await ctx.step(name, give, value)
        note("got", ctx, name=name, type=type(got).__qualname__, value=repr(got), equal=got == value)
    for name, make in REFUSED.items():
        try:
            got = await ctx.step(name, make_noted, name, make, ctx)
        except Exception as error:
            note("refused", ctx, name=name, error=type(error).__qualname__, text=str(error))
        else:
            note("got", ctx, name=name, type=type(got).__qualname__, value=repr(got), equal=True)
    await ctx.step("last", gate, "last")
    return "ok"


def give(value):
    return value


def make_noted(name, make, ctx):
    note("made", ctx, name=name)
    return make()


@agent(tools=[try_types], model=ScriptedModel([call("try_types"), "Done."]))
class Typist:
    """You try types."""
'''


def test_a_step_gives_the_same_type_and_value_after_a_kill_or_is_refused_on_the_first_pass(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(TYPES, kinds=KINDS)
    server = start(folder)
    run = client(server).submit("typist", "Try all types")
    until(lambda: folder.ledger("refused", name="object in a list") or folder.ledger("got", name="object in a list"))
    server.kill9()
    folder.open_gate("last")
    again = start(folder)
    assert client(again).until_status(run["id"])["status"] == "completed"

    def passed(what: str, attempt: int) -> list[dict[str, Any]]:
        lines = folder.ledger(what, attempt=attempt)
        return [{key: line[key] for key in line if key not in ("pid", "attempt")} for line in lines]

    assert passed("got", 1) == passed("got", 2)
    assert passed("refused", 1) == passed("refused", 2)
    assert [line["name"] for line in passed("got", 1) if not line["equal"]] == []
    assert len(passed("got", 1)) == 33
    refused = passed("refused", 1)
    assert len(refused) == 6
    kinds = ("Opaque", "builtin_function", "generator", "TextIOWrapper", "Local", "Opaque")
    for line, kind in zip(refused, kinds, strict=True):
        assert line["error"] == "ValueNotStorable", line
        assert repr(line["name"]) in line["text"], line
        assert kind in line["text"], line
    # a refused value is an outcome as well: its effect has happened, so it is not asked for again
    assert passed("made", 2) == []


# O03: the same step name used again, or several steps at once.

NAMES = '''
import asyncio, itertools
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call, reply
from .ledger import gate, note

numbers = itertools.count(1)


async def fresh(name: str, ctx: ToolContext) -> str:
    number = next(numbers)
    note("step", ctx, name=name, number=number)
    return f"{name} {ctx.call_id} {number} {ctx.attempt}"


@tool(idempotent=True)
async def poll_thrice(ctx: ToolContext) -> list[str]:
    """Ask three times."""
    got = []
    for n in range(3):
        try:
            got.append(await ctx.step("poll", fresh, "poll", ctx))
        except Exception as error:
            got.append(f"{type(error).__name__}: {error}")
    note("polled", ctx, got=got)
    await ctx.step("last", gate, "last")
    return got


@tool(idempotent=True)
async def ask_all(ctx: ToolContext) -> list[str]:
    """Ask three at once, in the other order after a restart."""
    got = await asyncio.gather(*(ctx.step(name, slow, name, place, ctx) for place, name in enumerate("abc")))
    note("all", ctx, got=got)
    await ctx.step("last", gate, "last")
    return got


async def slow(name: str, place: int, ctx: ToolContext) -> str:
    await asyncio.sleep(0.1 * (place if ctx.attempt == 1 else 2 - place))
    return await fresh(name, ctx)


@tool(idempotent=True)
async def ask_held(ctx: ToolContext) -> list[str]:
    """Ask three at once, of whom the first and the third have to wait."""
    return await asyncio.gather(*(ask(name, ctx) for name in "abc"))


async def ask(name: str, ctx: ToolContext) -> str:
    got = await ctx.step(name, held, name, ctx)
    note("recorded", ctx, name=name)
    return got


async def held(name: str, ctx: ToolContext) -> str:
    note("entered", ctx, name=name)
    if name != "b":
        await gate("last")
    return await fresh(name, ctx)


@tool(idempotent=True)
async def ask_once(ctx: ToolContext) -> str:
    """Ask once, under a name that others use too."""
    got = await ctx.step("poll", fresh, "poll", ctx)
    note("recorded", ctx, name="once")
    await ctx.step("last", gate, "last")
    return got


SCRIPT = {
    "poll": [call("poll_thrice"), "done"],
    "all": [call("ask_all"), "done"],
    "held": [call("ask_held"), "done"],
    "same": [[call("ask_once"), call("ask_once")], "done"],
}


@agent(tools=[poll_thrice, ask_all, ask_held, ask_once], model=ScriptedModel(SCRIPT))
class Asker:
    """You ask."""
'''


def test_steps_keep_their_own_values_across_a_kill_whatever_their_names_and_order(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(NAMES)
    server = start(folder)
    api = client(server)
    runs = {text: api.submit("asker", text)["id"] for text in ("poll", "all", "held", "same")}
    runs["same in another run"] = api.submit("asker", "same")["id"]
    until(lambda: folder.ledger("polled") and folder.ledger("all") and folder.ledger("recorded", name="b"))
    until(lambda: len(folder.ledger("recorded", name="once")) == 4)
    server.kill9()
    folder.open_gate("last")
    api = client(start(folder))
    for run_id in runs.values():
        assert api.until_status(run_id)["status"] == "completed"

    def result(text: str) -> list[Any]:
        events = api.events(runs[text], after=0)
        return [event.data["result"] for event in events if event.type == "tool.completed"]

    # the second use of a name is an error that shows the way out, at once and after the restart; never the first value
    [first, second] = folder.ledger("polled")
    assert first["got"] == second["got"] == result("poll")[0]
    assert first["got"][0].startswith("poll ")
    assert all("'poll'" in text and "'poll-2'" in text for text in first["got"][1:])
    # finished steps of a gather keep their values and are not run again
    [first, second] = folder.ledger("all", run=runs["all"])
    assert first["got"] == second["got"] == result("all")[0]
    assert [value.split()[0] for value in first["got"]] == ["a", "b", "c"]
    assert len(folder.ledger("step", run=runs["all"])) == 3
    # killed while b is done: only a and c are run again
    assert [value.split()[0] for value in result("held")[0]] == ["a", "b", "c"]
    assert [value.split()[-1] for value in result("held")[0]] == ["2", "1", "2"]
    assert sorted(line["name"] for line in folder.ledger("entered")) == ["a", "a", "b", "c", "c"]
    # two calls, and two runs, that use one name share nothing
    values = [*result("same"), *result("same in another run")]
    assert len(set(values)) == 4
    assert len({value.split()[1] for value in values}) == 4
    assert len(folder.ledger("step", name="poll")) == 1 + 4
