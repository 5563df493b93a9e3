"""What is published is what clients accept: checked for every version before the start, and for any return type."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp_types import ListToolsResult
from mcp_types.methods import serialize_server_result
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, WithJsonSchema

from amoxi_py import agent, tool
from amoxi_py.app.declarations import read_declarations
from amoxi_py.declare.scan import build_declarations
from amoxi_py.errors import DeclarationError
from amoxi_py.surfaces.mcp.publishing import mistakes_of, publish


class Leaf(BaseModel):
    name: str
    note: str | None = None
    size: Annotated[int, Field(ge=0)] = 0


class Tree(BaseModel):
    leaf: Leaf
    below: list[Tree] = []


@dataclasses.dataclass
class Pair:
    left: Leaf
    right: dict[str, float]


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=10),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    str | None: st.none() | st.text(max_size=5),
    list[int]: st.lists(st.integers(), max_size=3),
    dict[str, int]: st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
    tuple[int, str]: st.tuples(st.integers(), st.text(max_size=3)),
    Leaf: st.builds(Leaf, name=st.text(max_size=3), note=st.none() | st.text(max_size=3), size=st.integers(0, 9)),
    Leaf | None: st.none() | st.builds(Leaf, name=st.text(max_size=3)),
    Tree: st.builds(Tree, leaf=st.builds(Leaf, name=st.text(max_size=3)), below=st.just([])),
    Pair: st.builds(
        Pair, left=st.builds(Leaf, name=st.just("x")), right=st.dictionaries(st.just("a"), st.just(1.5), max_size=1)
    ),
    Leaf | Pair: st.builds(Leaf, name=st.text(max_size=3)),
}
_CATALOGS: dict[Any, Any] = {}


def catalog_of(kind: Any) -> Any:
    if kind not in _CATALOGS:

        @tool(read_only=True)
        def give(wanted: kind) -> kind:
            """Give."""
            return wanted

        @agent(tools=[give])
        class Giver:
            """You give."""

        _CATALOGS[kind] = build_declarations([Giver]).catalog
    return _CATALOGS[kind]


@pytest.mark.parametrize("kind", list(VALUES), ids=str)
def test_every_version_of_mcp_takes_the_list_entry_of_a_tool_of_any_type(kind: Any) -> None:
    catalog = catalog_of(kind)
    assert list(mistakes_of(catalog)) == []
    entries = ListToolsResult(tools=[each.tool for each in publish(catalog).values()])
    listed = entries.model_dump(mode="json", by_alias=True, exclude_none=True)
    for version in KNOWN_PROTOCOL_VERSIONS:
        told = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete", **listed}
        assert serialize_server_result("tools/list", version, told)["tools"]
    give = listed["tools"][0]
    for schema in (give["inputSchema"], give["outputSchema"]):
        assert schema["type"] == "object"
        Draft202012Validator.check_schema(schema)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])))
def test_what_a_tool_returns_fits_the_schema_that_is_advertised(case: tuple[Any, Any]) -> None:
    kind, value = case
    catalog = catalog_of(kind)
    encoded = catalog.tools["give"].encode_result(value)
    published = publish(catalog)["give"]
    assert published.fits(published.structured(encoded))


def mistakes_with(hint: Any, *, parameters: bool = False) -> list[str]:
    if parameters:

        @tool(read_only=True)
        def bad(given: hint) -> str:
            """Take."""
            return ""

    else:

        @tool(read_only=True)  # type: ignore[no-redef]
        def bad() -> hint:
            """Give."""

    @agent(tools=[bad])
    class Giver:
        """You give."""

    return [sentence for _, sentence in mistakes_of(build_declarations([Giver]).catalog)]


@pytest.mark.parametrize("parameters", [False, True])
@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "array", "items": {"$ref": "https://schemas.example/order.json"}}, "leads out of it"),
        ({"type": "strings"}, "no JSON Schema"),
        ({"type": "string", "pattern": 7}, "no JSON Schema"),
        ({"type": "string", "minLength": "one"}, "no JSON Schema"),
    ],
)
def test_a_schema_that_clients_cannot_use_is_a_mistake(schema: dict[str, Any], told: str, parameters: bool) -> None:
    [sentence] = mistakes_with(Annotated[str, WithJsonSchema(schema)], parameters=parameters)
    assert told in sentence
    assert "expose=False" in sentence


def test_a_reference_that_leads_nowhere_in_a_schema_is_a_mistake() -> None:
    schema = {"type": "array", "items": {"$ref": "#/properties/nobody"}}
    [sentence] = mistakes_with(Annotated[list[str], WithJsonSchema(schema)])
    assert "leads nowhere" in sentence


def test_examples_and_constants_that_look_like_references_are_none() -> None:
    schema = {"type": "object", "examples": [{"$ref": "https://elsewhere"}], "default": {"$ref": "#/nowhere"}}
    assert mistakes_with(Annotated[dict[str, Any], WithJsonSchema(schema)]) == []


SOURCE = '''
from typing import Annotated
from pydantic import WithJsonSchema
from amoxi_py import agent, tool


@tool(read_only=True)
def bad() -> Annotated[str, WithJsonSchema({"type": "array", "items": {"$ref": "https://schemas.example/a.json"}})]:
    """Give."""
    return ""


@tool(read_only=True, expose=False)
def hidden() -> Annotated[str, WithJsonSchema({"type": "array", "items": {"$ref": "https://schemas.example/a.json"}})]:
    """Give."""
    return ""


@tool(read_only=True, unheard_of=1)
def other() -> str:
    """Give."""
    return ""


@agent(tools=[bad, other, hidden])
class Giver:
    """You give."""
'''


def test_it_is_listed_with_the_apps_other_mistakes_and_stops_the_start_only_where_mcp_is_on(mcp_settings: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        read_declarations(mcp_settings(SOURCE))
    assert len(caught.value.problems) == 2
    assert any("bad: MCP clients cannot use the schema of its result" in each for each in caught.value.problems)
    working = SOURCE.replace(", unheard_of=1", "")
    assert read_declarations(mcp_settings(working, {"ai.mcp.enabled": False})).catalog.tools.keys() >= {"bad"}


def test_a_tool_that_is_called_like_the_one_that_asks_an_agent_stops_the_start(mcp_settings: Any) -> None:
    source = '''
from amoxi_py import agent, tool

@tool(read_only=True)
def ask_giver() -> str:
    """Ask."""
    return ""

@agent(tools=[ask_giver])
class Giver:
    """You give."""
'''
    with pytest.raises(DeclarationError) as caught:
        read_declarations(mcp_settings(source))
    assert "'ask_giver' belongs to the agent 'giver'" in str(caught.value)
