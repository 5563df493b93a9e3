"""`result=Model`: from a pydantic model to the form that an agent's answer has to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError

from amoxi_py.declare.arguments import CANNOT_BE_JSON, first_line, make_adapter
from amoxi_py.declare.definitions import ResultForm, ToolDefinition
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.schema import ARGUMENT_CONFIG, schemas_of
from amoxi_py.domain.encoding import clean_json, clean_text
from amoxi_py.errors import ArgumentsInvalid

RESULT_TOOL = "final_result"
"""The name of the tool by which a model gives a structured result; an agent with one has no tool of this name."""

_ALTERNATIVES = ("anyOf", "oneOf", "allOf", "enum", "not")


def read_result_form(
    model: object, tools: tuple[ToolDefinition, ...], where: str, mistakes: Mistakes
) -> ResultForm | None:
    """Return the form of the results of an agent with these tools, or None when there is none (or note why)."""
    if model is None:
        return None
    if not isinstance(model, type) or not issubclass(model, BaseModel) or issubclass(model, RootModel):
        shown = getattr(model, "__qualname__", repr(model))
        mistakes.add(where, f"`result={shown}` must be a pydantic model, a class with fields")
        return None
    for tool in tools:
        if tool.name == RESULT_TOOL:
            mistakes.add(where, f"with `result=` the name {RESULT_TOOL!r} is taken; rename the tool {tool.where!r}")
    try:
        adapter = make_adapter(model, ARGUMENT_CONFIG)
        schema = _schema(adapter)
    except CANNOT_BE_JSON as error:
        mistakes.add(where, f"`result={model.__qualname__}` has no form in JSON: {first_line(error)}")
        return None
    if schema.get("type") != "object" or any(word in schema for word in _ALTERNATIVES):
        mistakes.add(where, f"`result={model.__qualname__}` must be one JSON object with fields")
        return None
    description = clean_text(str(schema.pop("description", "")))
    schema.setdefault("properties", {})
    named = f"{model.__module__}.{model.__qualname__}"
    return ResultForm(
        description=description, parameters=schema, read=lambda text: _read(adapter, named, text), where=named
    )


def _schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    found, definitions = schemas_of([(RESULT_TOOL, adapter)], "validation")
    schema: Mapping[str, Any] = found[RESULT_TOOL]
    if "$ref" in schema:  # a model that holds itself
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    return {**schema, **({"$defs": definitions} if definitions else {})}


def _read(adapter: TypeAdapter[Any], model: str, text: str) -> Any:
    try:
        return clean_json(adapter.dump_python(adapter.validate_json(text), mode="json", by_alias=True))
    except ValidationError as error:
        raise ArgumentsInvalid(
            tuple(
                (".".join(str(part) for part in found["loc"]), found["msg"])
                for found in error.errors(include_url=False, include_context=False, include_input=False)
            )
        ) from None
