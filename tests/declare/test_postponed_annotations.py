"""The same tools with and without postponed annotations give the same schemas, and all of them can be called."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from typing import Any

from amoxi_py.declare.scan import scan_package

TEXT = '''
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

from pydantic import BaseModel, Field

from amoxi_py import SyncToolContext, singleton, tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amoxi_py import ToolContext as Unused


class Address(BaseModel):
    street: str
    next: "Optional[Address]" = None


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@tool(read_only=True)
def plain(
    address: Address,
    ctx: SyncToolContext,
    level: Annotated[int, Field(ge=1)],
    kind: Literal["a", "b"] = "a",
    path: Optional[Path] = None,
) -> Address:
    """Do it."""
    assert isinstance(address, Address)
    return address


@tool
@logged
def wrapped_inside(x: int) -> int:
    return x


@logged
@tool
def wrapped_outside(x: int) -> int:
    return x


def make():
    class Local(BaseModel):
        x: int

    @tool
    def local(it: Local) -> Local:
        return it

    return local


local = make()


def add(x: int, y: int, secret: str) -> int:
    """Add."""
    return x + y + len(secret)


added = tool(name="added")(functools.partial(add, 1, secret="abc"))


class Callable_:
    def __call__(self, x: int) -> int:
        """Call."""
        return x


called = tool(name="called")(Callable_())


@singleton
class Tools:
    class Size(BaseModel):
        width: int

    @tool
    def list(self, x: int) -> int:
        return x

    @tool
    async def resize(self, size: Size, names: "list[str]" = ()) -> Size:
        return size

    @staticmethod
    @tool
    def static_inside(x: int) -> int:
        return x

    @tool
    @staticmethod
    def static_outside(x: int) -> int:
        return x

    @classmethod
    @tool
    def of_the_class(cls, x: int) -> str:
        return cls.__name__
'''

CALLS = {
    "plain": {"address": {"street": "s"}, "level": 1},
    "wrapped_inside": {"x": 1},
    "wrapped_outside": {"x": 1},
    "local": {"it": {"x": 1}},
    "added": {"y": 2},
    "called": {"x": 1},
    "list": {"x": 1},
    "resize": {"size": {"width": 1}},
    "static_inside": {"x": 1},
    "static_outside": {"x": 1},
    "of_the_class": {"x": 1},
}


def test_every_kind_of_function_has_one_schema_and_is_called(
    package: Callable[..., str], context_for: Callable[[Any], Any]
) -> None:
    text = TEXT.replace('names: "list[str]" = ()', "n: int = 0")
    catalogs = []
    for head in ("", "from __future__ import annotations\n"):
        name = package(tools=head + text)
        declarations = scan_package(name)
        tools = importlib.import_module(f"{name}.tools")
        instance = tools.Tools()

        class One:
            def get(self, kind: type[Any], instance: Any = instance) -> Any:
                return instance

        one = One()
        for tool_name, sent in CALLS.items():
            definition = declarations.catalog.tools[tool_name]

            async def call(definition: Any = definition, sent: Any = sent, one: Any = one) -> Any:
                return await definition.call(one, context_for(definition), definition.read_arguments(sent))

            assert asyncio.run(call()) is not None
        catalogs.append({k: (d.parameters, d.output_schema) for k, d in declarations.catalog.tools.items()})
    assert set(catalogs[0]) == set(CALLS)
    assert catalogs[0] == catalogs[1]
    assert list(catalogs[0]["added"][0]["properties"]) == ["y"]
    assert list(catalogs[0]["plain"][0]["properties"]) == ["address", "level", "kind", "path"]


def test_a_method_named_like_a_type_does_not_hide_it_when_annotations_are_postponed(
    package: Callable[..., str],
) -> None:
    name = package(tools="from __future__ import annotations\n" + TEXT)
    resize = scan_package(name).catalog.tools["resize"]
    assert resize.parameters["properties"]["names"]["items"] == {"type": "string"}
