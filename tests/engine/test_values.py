"""Values of steps: each comes back as it was, type and content, or is refused at once with its type named."""

from __future__ import annotations

import dataclasses
import decimal
import math
import sys
import uuid
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from fractions import Fraction
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, SecretStr, TypeAdapter, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from amoxi_py.engine.values import decode_value, encode_value
from amoxi_py.errors import ValueNotStorable
from whole import some_of

T = TypeVar("T")
BERLIN = ZoneInfo("Europe/Berlin")


class Color(Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796 - an alias
    PAIR = (1, 2)


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = auto()


class Access(Flag):
    READ = auto()
    WRITE = auto()
    BOTH = READ | WRITE
    RUN = auto()


class Bits(IntFlag):
    A = 1
    B = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    amount: Decimal
    currency: str = "EUR"


@dataclasses.dataclass
class Receipt:
    total: Money
    lines: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    number: int = dataclasses.field(init=False, default=7)
    seen: set[str] = dataclasses.field(default_factory=set, compare=False, repr=False)
    KIND: ClassVar[str] = "receipt"
    factor: dataclasses.InitVar[int] = 2

    def __post_init__(self, factor: int) -> None:
        self.number = len(self.lines) * factor

    @cached_property
    def title(self) -> str:
        return f"receipt {self.number}"


@dataclasses.dataclass
class Boxed(Generic[T]):
    content: T


@pydantic_dataclass
class Checked:
    count: int


@dataclasses.dataclass
class Noted:
    text: str

    def note(self) -> Noted:
        self.beside = "lost"
        return self


@dataclasses.dataclass
class Unset:
    text: str = dataclasses.field(init=False)


@dataclasses.dataclass
class Failure(Exception):
    reason: str


@dataclasses.dataclass
class Table(dict[str, int]):
    name: str


class Point(NamedTuple):
    x: float
    y: float = 0.0


Pair = namedtuple("Pair", "left right")


class LabelledPoint(Point):
    pass


class Address(BaseModel):
    city: str
    zip: str | None = None


class Customer(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: uuid.UUID
    born: date
    address: Address
    secret: str = Field(default="s", exclude=True)
    tags: frozenset[str] = frozenset()
    alias_name: str = Field(default="a", alias="aliasName")


class Keeper(BaseModel):
    value: int
    _cache: dict[int, tuple[int, ...]] = PrivateAttr(default_factory=dict)
    _unset: int = PrivateAttr()


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str


class Shape(BaseModel):
    width: int

    @computed_field  # type: ignore[prop-decorator]  # pydantic's own way of writing it
    @cached_property
    def area(self) -> int:
        return self.width**2


class Envelope(BaseModel, Generic[T]):
    content: T


class AddressEnvelope(Envelope[Address]):
    pass


class Numbers(RootModel[list[int]]):
    pass


class Hook(BaseModel):
    class Mode(Enum):
        ON = 1

    mode: Mode = Mode.ON


class Labels(RootModel[dict[str, int]]):
    _seen: int = PrivateAttr(0)


@dataclasses.dataclass
class Lazy:
    text: str = dataclasses.field(init=False)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@dataclasses.dataclass(frozen=True)
class Moody:
    text: str

    def __hash__(self) -> int:
        if self.text == "now":
            raise RuntimeError("not now")
        return 1


class ListOfInts(list[int]):
    pass


class Text(str):
    pass


class Mapped(dict[str, int]):
    pass


class OtherZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, _: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _: datetime | None) -> str:
        return "other"


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same in type and content, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (float, complex)):
        return repr(left) == repr(right)
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, (datetime, time)):
        zones = type(left.tzinfo) is type(right.tzinfo) and repr(left.tzinfo) == repr(right.tzinfo)
        return zones and left.replace(tzinfo=None) == right.replace(tzinfo=None) and left.fold == right.fold
    if isinstance(left, dict):
        pairs = zip(left.items(), right.items(), strict=True)
        return all(same(key, other) and same(item, another) for (key, item), (other, another) in pairs)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (set, frozenset)):
        return len(left) == len(right) and all(any(same(item, other) for other in right) for item in left)
    if isinstance(left, BaseModel):
        parts = ("__dict__", "__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__")
        return all(same(_told(left, part), _told(right, part)) for part in parts)
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, each.name), getattr(right, each.name)) for each in dataclasses.fields(left))
    return bool(left == right)


def _told(model: BaseModel, part: str) -> Any:
    told = getattr(model, part)
    if part == "__dict__":
        return {name: item for name, item in told.items() if name in type(model).model_fields}
    return told


def back(value: Any) -> Any:
    text = encode_value(value)
    assert text.isascii()
    assert "\n" not in text
    return decode_value(text)


def keeper() -> Keeper:
    made = Keeper(value=1)
    made._cache[3] = (1, 2)
    return made


def labels() -> Labels:
    made = Labels({"a": 1})
    made._seen = 3
    return made


def looked_at(value: Any, name: str) -> Any:
    getattr(value, name)
    return value


KEPT: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**53 + 1,
    10**30,
    1.5,
    -0.0,
    1e-320,
    math.nan,
    math.inf,
    -math.inf,
    complex(-0.0, math.nan),
    "",
    "Grüße 東京 😀",
    "a\x00b",
    "\ud800",
    "\udfff\ud800",
    "\ud83d\ude00",
    "😀\ud83d\ude00\ude00",
    b"",
    b"\x00\xff",
    bytearray(b"ab"),
    [],
    [1, [2, [3.0]]],
    (),
    (1, (2,), [3]),
    set(),
    {1, "1", 1.5, (1, 2), None},
    frozenset({b"a", frozenset({1})}),
    {},
    {"a": {"b": [None]}},
    {1: "one", "1": "text", (1, 2): "tuple", None: 0, False: 1, 2.5: 2, b"b": 3},
    {"$": 1},
    {"$": "tuple", "v": [1, 2]},
    {"x": {"$": {"$": None}}},
    {"b": 1, "a": 2},
    {"\ud83d\ude00": 1, "a\x00": 2, "\udfff": 3},
    "$",
    ["$", '"$"'],
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("NaN"),
    Decimal("sNaN12"),
    Decimal("-Infinity"),
    Decimal("1E+999999"),
    Decimal("3." + "1" * 5000),
    uuid.UUID("12345678123456781234567812345678"),
    date(1, 1, 1),
    date(9999, 12, 31),
    datetime(2026, 1, 2, 3, 4, 5, 678901),  # noqa: DTZ001 - a naive one is a value too
    datetime(2026, 1, 2, tzinfo=UTC),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30, seconds=1, microseconds=2))),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1), "CET")),
    datetime(2026, 7, 2, tzinfo=BERLIN),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN),
    datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN),
    datetime(2026, 10, 25, 2, 30, fold=1),  # noqa: DTZ001 - as above
    TypeAdapter(datetime).validate_python("2026-01-01T00:00:00-02:30"),
    TypeAdapter(datetime).validate_python("2026-01-01T00:00:00Z"),
    time(1, 2, 3, 4),
    time(1, 2, tzinfo=UTC),
    time(1, 2, tzinfo=BERLIN, fold=1),
    timedelta(days=-1, microseconds=1),
    timedelta.max,
    Path("/tmp/a b"),
    PurePosixPath("a/../b"),
    PurePosixPath("\udcff\ud83d\udc00"),
    PureWindowsPath("C:\\x"),
    Color.RED,
    Color.CRIMSON,
    Color.PAIR,
    Level.HIGH,
    Word.YES,
    {Level.LOW: Word.YES, Word.YES: Level.LOW},
    Access.READ,
    Access.BOTH,
    Access.READ | Access.RUN,
    Access(0),
    Bits.A | Bits.B,
    Hook.Mode.ON,
    Money(amount=Decimal("9.90")),
    Receipt(total=Money(amount=Decimal(1)), lines=[("a", 1)], seen={"x"}),
    looked_at(Receipt(total=Money(amount=Decimal(1))), "title"),
    Boxed(content=Boxed(content={1})),
    Boxed[int](content=1),
    Checked(count=3),
    Point(1.0, math.nan),
    Pair(left=Point(1), right=[Color.RED]),
    Address(city="Köln"),
    Address(city="Köln", zip=None),
    Customer(id=uuid.UUID(int=1), born=date(2000, 1, 1), address=Address(city="x"), secret="t", tags=frozenset({"a"})),
    Customer.model_construct(id=uuid.UUID(int=1), born=date(2000, 1, 1), address=Address(city="x")),
    keeper(),
    Open.model_validate({"name": "n", "more": {"a": (1,)}, "$": 2}),
    Open(name="n"),
    looked_at(Shape(width=3), "area"),
    Envelope[int](content=1),
    Envelope[Envelope[Address]](content=Envelope[Address](content=Address(city="x"))),
    Envelope(content=(1, 2)),
    AddressEnvelope(content=Address(city="x")),
    Numbers([1, 2]),
    labels(),
    Hook(),
]


@pytest.mark.parametrize("value", KEPT, ids=[f"{n}-{type(value).__name__}" for n, value in enumerate(KEPT)])
def test_a_value_comes_back_in_its_type_and_with_its_content_alone_and_inside_others(value: Any) -> None:
    assert same(back(value), value)
    assert same(back([{"k": (value,)}]), [{"k": (value,)}])
    assert same(back(Boxed(content=Envelope(content=value))), Boxed(content=Envelope(content=value)))


def _local_class() -> Any:
    @dataclasses.dataclass
    class Local:
        x: int

    return Local(1)


def _looped(kind: str) -> Any:
    loop: Any = [1]
    loop.append({"list": loop, "tuple": (loop,), "dict": {"a": loop}, "box": Boxed(content=loop)}[kind])
    return loop


def _deep(levels: int) -> Any:
    value: Any = Boxed(content=None)
    for _ in range(levels):
        value = Boxed(content=value)
    return value


def _shadowed() -> Any:
    """A class that looks like the one at its place in every way, but is another."""
    names = {"__annotations__": {"amount": Decimal}, "__module__": __name__, "__qualname__": "Money", "currency": "EUR"}
    made: Any = type("Money", (), names)
    return dataclasses.dataclass(made)(amount=Decimal(1))


def _spoiled_set() -> Any:
    member = Moody("soon")
    members = {member}
    object.__setattr__(member, "text", "now")
    return members


def _with_attribute(value: Any) -> Any:
    value.beside = "lost"
    return value


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (object, "object"),
    (lambda: object, "type"),
    (lambda: (each for each in [1]), "generator"),
    (lambda: iter([1]), "list_iterator"),
    (lambda: len, "builtin_function_or_method"),
    (lambda: ValueError("x"), "ValueError"),
    (lambda: sys, "module"),
    (lambda: range(3), "range"),
    (lambda: memoryview(b"a"), "memoryview"),
    (lambda: Fraction(1, 3), "Fraction"),
    (lambda: ListOfInts([1]), "ListOfInts"),
    (lambda: Text("x"), "Text"),
    (lambda: Mapped(a=1), "Mapped"),
    (lambda: {Text("k"): 1}, "Text"),
    (lambda: OrderedDict(a=1), "OrderedDict"),
    (lambda: defaultdict(int, a=1), "defaultdict"),
    (lambda: Counter("aa"), "Counter"),
    (lambda: deque([1]), "deque"),
    (lambda: type("Float", (float,), {})(1.0), "Float"),
    (lambda: type("When", (datetime,), {})(2026, 1, 1), "When"),
    (lambda: type("Exact", (Decimal,), {})(1), "Exact"),
    (lambda: datetime(2026, 1, 1, tzinfo=OtherZone()), "OtherZone"),
    (lambda: time(1, tzinfo=OtherZone()), "OtherZone"),
    (_local_class, "Local"),
    (_shadowed, "Money"),
    (lambda: Noted("x").note(), "Noted.*'beside'"),
    (Unset, "Unset.*'text'"),
    (lambda: Failure("x"), "Failure"),
    (lambda: Table("x"), "Table"),
    (lambda: _with_attribute(LabelledPoint(1)), "LabelledPoint.*'beside'"),
    (lambda: SecretStr("s"), "SecretStr"),
    (lambda: Envelope(content=SecretStr("s")), "SecretStr"),
    (lambda: Envelope[list[int]](content=[1]), "Envelope"),
    (lambda: Address.model_construct(zip="1"), "Address.*'city'"),
    (Lazy, "Lazy.*RuntimeError"),
    (_spoiled_set, "RuntimeError"),
    (lambda: Bits(9) | Bits(2), "Bits"),
    (lambda: 10**5000, "4300 digits"),
    (lambda: _looped("list"), "contains itself"),
    (lambda: _looped("tuple"), "contains itself"),
    (lambda: _looped("dict"), "contains itself"),
    (lambda: _looped("box"), "contains itself"),
    (lambda: _deep(200), "nested deeper than 100 levels"),
]


@pytest.mark.parametrize(("make", "named"), REFUSED, ids=[f"{n}-{named[:20]}" for n, (_, named) in enumerate(REFUSED)])
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {1: (value,)}])
def test_a_value_that_would_not_come_back_the_same_is_refused_at_once_and_named(
    make: Callable[[], Any], named: str, wrap: Callable[[Any], Any]
) -> None:
    with pytest.raises(ValueNotStorable, match=named):
        encode_value(wrap(make()))


def test_values_of_a_hundred_levels_are_taken_and_read_again() -> None:
    value = _deep(98)
    assert same(back(value), value)
    model: Any = Address(city="x")
    for _ in range(98):
        model = Envelope(content=model)
    assert same(back(model), model)


def test_a_returned_value_is_a_copy_that_later_changes_do_not_reach() -> None:
    lines: list[Any] = [1]
    copy = back({"lines": lines})
    lines.append(2)
    assert copy == {"lines": [1]}


def test_a_root_model_comes_back_with_nothing_beside_its_root() -> None:
    assert vars(back(Numbers([1]))) == {"root": [1]}
    assert vars(back(labels())) == vars(labels())


def test_a_private_attribute_that_was_never_set_is_still_unset() -> None:
    with pytest.raises(AttributeError):
        _ = back(Keeper(value=1))._unset


# -- nested values, invented

times = st.datetimes(
    timezones=st.none()
    | st.timezones()
    | st.just(UTC)
    | st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)), st.text(max_size=3))
)
odd_letters = st.sampled_from("\x00\ud83d\ude00$")
any_text = st.lists(st.characters() | odd_letters, max_size=6).map("".join)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | any_text
    | st.binary(max_size=6)
    | st.decimals()
    | st.fractions().map(lambda each: Decimal(each.numerator))
    | st.uuids()
    | st.dates()
    | times
    | st.times()
    | st.timedeltas()
    | st.sampled_from([*Color, *Level, *Word, *Access, Access.READ | Access.RUN])
)
hashable = st.recursive(
    leaves.filter(lambda each: not (isinstance(each, Decimal) and each.is_snan())),
    lambda items: st.tuples(items, items) | st.frozensets(items, max_size=3) | st.builds(Point, items, items),
    max_leaves=4,
)
values = st.recursive(
    leaves,
    lambda items: (
        st.lists(items, max_size=4)
        | st.tuples(items, items)
        | st.sets(hashable, max_size=4)
        | st.dictionaries(any_text, items, max_size=4)
        | st.dictionaries(hashable, items, max_size=3)
        | st.builds(Boxed, content=items)
        | st.builds(lambda content: Envelope(content=content), items)
        | st.builds(Pair, items, items)
        | st.dictionaries(st.sampled_from(["a", "b", "$"]), items).map(lambda more: Open(name="n", **more))
    ),
    max_leaves=15,
)


@settings(deadline=None, max_examples=some_of(200), suppress_health_check=[HealthCheck.too_slow])
@given(value=values)
def test_any_nesting_of_storable_values_comes_back_the_same(value: Any) -> None:
    with decimal.localcontext() as context:
        context.traps[decimal.InvalidOperation] = False  # to compare signalling NaNs
        assert same(back(value), value)
        assert encode_value(back(value)) == encode_value(value)


def test_a_time_zone_that_this_machine_does_not_know_is_named() -> None:
    stored = encode_value(datetime(2026, 1, 1, tzinfo=BERLIN))
    with pytest.raises(ValueNotStorable, match="Europe/Atlantis"):
        decode_value(stored.replace("Europe/Berlin", "Europe/Atlantis"))
