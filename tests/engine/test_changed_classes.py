"""Classes of stored values that change between a step and its replay: they go on, or the one value fails by name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from amoxi_py.engine.values import decode_value, encode_value
from amoxi_py.errors import ValueNotStorable

Rewrite = Callable[[str], ModuleType]

CLASSES = """
from dataclasses import dataclass, field
from enum import Enum, Flag
from typing import NamedTuple
from pydantic import BaseModel, ConfigDict, PrivateAttr

class Order(BaseModel):
    id: str

class Opened(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str

class Private(BaseModel):
    id: str
    _old: int = 1

@dataclass(frozen=True)
class Line:
    sku: str

class Spot(NamedTuple):
    x: int
    y: int

class State(Enum):
    OPEN = 1
    SHUT = 2

class Right(Flag):
    READ = 1
    WRITE = 2
"""
MAKERS: dict[str, Callable[[ModuleType], Any]] = {
    "Order": lambda m: m.Order(id="A"),
    "Opened": lambda m: m.Opened(id="A", more=1),
    "Private": lambda m: m.Private(id="A"),
    "Line": lambda m: m.Line("S"),
    "Spot": lambda m: m.Spot(1, 2),
    "State": lambda m: m.State.SHUT,
    "Right": lambda m: m.Right.READ | m.Right.WRITE,
}


@pytest.fixture
def rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rewrite:
    """Write the module `shop_classes` anew and import it, as a new version of an app does."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text: str) -> ModuleType:
        (tmp_path / "shop_classes.py").write_text(text, "utf-8")
        monkeypatch.delitem(sys.modules, "shop_classes", raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("shop_classes")

    return write


def test_an_unchanged_class_in_a_new_process_gives_the_value_back(rewrite: Rewrite) -> None:
    stored = {name: encode_value(make(rewrite(CLASSES))) for name, make in MAKERS.items()}
    new = rewrite(CLASSES)
    for name, make in MAKERS.items():
        assert decode_value(stored[name]) == make(new)
        assert type(decode_value(stored[name])) is type(make(new))


@pytest.mark.parametrize("name", MAKERS)
def test_a_class_that_was_renamed_or_removed_is_named(rewrite: Rewrite, name: str) -> None:
    stored = encode_value([MAKERS[name](rewrite(CLASSES))])
    rewrite(CLASSES.replace(f"class {name}(", "class Renamed(").replace(f"class {name}:", "class Renamed:"))
    with pytest.raises(ValueNotStorable, match=f"shop_classes:{name} is not there any more"):
        decode_value(stored)


def test_a_module_that_is_gone_or_cannot_be_imported_is_a_named_error(rewrite: Rewrite) -> None:
    stored = encode_value(rewrite(CLASSES).Order(id="A"))
    assert "shop_classes:Order" in stored
    with pytest.raises(ValueNotStorable, match="shop_gone:Order is not there any more"):
        decode_value(stored.replace("shop_classes", "shop_gone"))
    with pytest.raises(ZeroDivisionError):
        rewrite("1 / 0")
    with pytest.raises(ValueNotStorable, match="ZeroDivisionError"):
        decode_value(stored)


def test_a_class_that_was_moved_is_found_where_an_alias_of_it_stays(rewrite: Rewrite) -> None:
    stored = encode_value(rewrite(CLASSES).Line("S"))
    moved = rewrite(CLASSES.replace("class Line", "class MovedLine") + "\nLine = MovedLine\n")
    assert decode_value(stored) == moved.MovedLine("S")


@pytest.mark.parametrize(
    ("name", "old", "new", "added"),
    [
        ("Order", "class Order(BaseModel):\n    id: str", "class Order(BaseModel):\n    id: str\n    n: int{}", 5),
        ("Line", "    sku: str", "    sku: str\n    n: int{}", 5),
        ("Spot", "    y: int", "    y: int\n    n: int{}", 5),
    ],
)
def test_a_field_that_was_added_has_its_default_and_without_one_it_is_named(
    rewrite: Rewrite, name: str, old: str, new: str, added: int
) -> None:
    stored = encode_value(MAKERS[name](rewrite(CLASSES)))
    rewrite(CLASSES.replace(old, new.format(f" = {added}")))
    assert decode_value(stored).n == added
    rewrite(CLASSES.replace(old, new.format("")))
    with pytest.raises(ValueNotStorable, match=f"{name} has a new field 'n' without a default"):
        decode_value(stored)


def test_a_field_that_was_added_gets_what_its_factory_makes(rewrite: Rewrite) -> None:
    stored = encode_value(rewrite(CLASSES).Line("S"))
    rewrite(CLASSES.replace("    sku: str", "    sku: str\n    tags: list = field(default_factory=list)"))
    first, second = decode_value(stored), decode_value(stored)
    assert first.tags == []
    assert first.tags is not second.tags


@pytest.mark.parametrize(
    ("name", "old", "new", "missing"),
    [
        ("Order", "class Order(BaseModel):\n    id: str", "class Order(BaseModel):\n    other: str = 'o'", "id"),
        ("Line", "    sku: str", "    other: str = 'o'", "sku"),
        ("Spot", "    y: int", "    z: int = 3", "y"),
        ("Private", "    _old: int = 1", "    _new: int = 1", "_old"),
        ("Opened", '    model_config = ConfigDict(extra="allow")', "", "more"),
    ],
)
def test_a_field_that_was_removed_or_renamed_is_named(
    rewrite: Rewrite, name: str, old: str, new: str, missing: str
) -> None:
    stored = encode_value(MAKERS[name](rewrite(CLASSES)))
    rewrite(CLASSES.replace(old, new))
    with pytest.raises(ValueNotStorable, match=f"{name} has no field '{missing}' any more"):
        decode_value(stored)


def test_fields_in_another_order_keep_their_values(rewrite: Rewrite) -> None:
    stored = encode_value(rewrite(CLASSES).Spot(1, 2))
    swapped = rewrite(CLASSES.replace("    x: int\n    y: int", "    y: int\n    x: int"))
    assert decode_value(stored) == swapped.Spot(y=2, x=1)


def test_an_extra_value_that_became_a_field_is_named(rewrite: Rewrite) -> None:
    stored = encode_value(rewrite(CLASSES).Opened(id="A", more=1))
    allow = '    model_config = ConfigDict(extra="allow")'
    rewrite(CLASSES.replace(allow, f"{allow}\n    more: int = 0"))
    with pytest.raises(ValueNotStorable, match="'more'"):
        decode_value(stored)


def test_private_attributes_and_extra_values_that_a_class_takes_now_are_there_as_for_a_new_object(
    rewrite: Rewrite,
) -> None:
    stored = encode_value(rewrite(CLASSES).Order(id="A"))
    order = "class Order(BaseModel):\n    id: str"
    new = rewrite(CLASSES.replace(order, f'{order}\n    model_config = ConfigDict(extra="allow")\n    _n: int = 3'))
    assert decode_value(stored) == new.Order(id="A")
    assert decode_value(stored)._n == 3


@pytest.mark.parametrize(("name", "member"), [("State", "SHUT = 2"), ("Right", "WRITE = 2")])
def test_a_member_that_was_removed_is_named_and_one_of_another_value_is_found_by_its_name(
    rewrite: Rewrite, name: str, member: str
) -> None:
    stored = encode_value(MAKERS[name](rewrite(CLASSES)))
    word = member.split()[0]
    renumbered = rewrite(CLASSES.replace(member, f"{word} = 8"))
    assert decode_value(stored) == MAKERS[name](renumbered)
    rewrite(CLASSES.replace(f"    {member}", ""))
    with pytest.raises(ValueNotStorable, match=f"{name} has no member '{word}'"):
        decode_value(stored)


def test_a_name_that_stands_for_another_kind_of_thing_now_is_named(rewrite: Rewrite) -> None:
    stored = encode_value(rewrite(CLASSES).State.OPEN)
    rewrite("class State:\n    OPEN = 1\n")
    with pytest.raises(ValueNotStorable, match="State is no enum any more"):
        decode_value(stored)
    rewrite("State = 1\n")
    with pytest.raises(ValueNotStorable, match="shop_classes:State"):
        decode_value(stored)
