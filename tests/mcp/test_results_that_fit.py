"""A result is as the schema that clients were told of, to the ground."""

from __future__ import annotations

from typing import Any

import mcp_types as wire
import pytest
from pydantic import BaseModel, TypeAdapter

from amoxi_py.surfaces.mcp.publishing import Published
from amoxi_py.surfaces.mcp.quick_checks import check_of


class Leaf(BaseModel):
    name: str
    size: int | None = None


class Tree(BaseModel):
    leaf: Leaf
    branches: list[Tree] = []
    notes: dict[str, float] = {}


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"leaf": {"name": "a"}}, True),
        (
            {"leaf": {"name": "a", "size": None}, "branches": [{"leaf": {"name": "b", "size": 2}}], "notes": {"x": 1}},
            True,
        ),
        ({"leaf": {"name": "a", "size": True}}, False),
        ({"leaf": {"name": "a"}, "branches": [{"leaf": {}}]}, False),
        ({"leaf": {"name": "a"}, "notes": {"x": "1"}}, False),
        ({"branches": []}, False),
        ([], False),
    ],
)
def test_schemas_of_models_that_hold_themselves_are_checked_to_the_ground(value: Any, fits: bool) -> None:
    definitions = TypeAdapter(Tree).json_schema()["$defs"]
    whole = {"type": "object", "properties": {"result": {"$ref": "#/$defs/Tree"}}, "$defs": definitions}
    tool = wire.Tool(name="plant", input_schema={"type": "object"}, output_schema=whole)
    published = Published(tool=tool, wraps=True, check=check_of(whole))
    assert published.fits(published.structured(value)) is fits
