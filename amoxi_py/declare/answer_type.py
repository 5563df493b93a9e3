"""What a person's answer has to be: a type of Python's, its JSON Schema for the doors, and how an answer is read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from amoxi_py.declare.arguments import CANNOT_BE_JSON, first_line, make_adapter, shown_type
from amoxi_py.declare.schema import ARGUMENT_CONFIG, REFS, schemas_of
from amoxi_py.domain.encoding import decode_json, encode_json


class AnswerRefused(Exception):
    """An answer does not fit its type, though it may fit the JSON Schema; the text is fit for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerType:
    """The type of an answer; without a `schema` (JSON text) it is a text."""

    schema: str | None = None
    adapter: TypeAdapter[Any] | None = None

    def read(self, value: str) -> Any:
        """Return the Python value of an answer, JSON text; raise `AnswerRefused`."""
        if self.adapter is None:
            return decode_json(value)
        try:
            return self.adapter.validate_json(value)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else one["msg"] for one in found]
            raise AnswerRefused("; ".join(told)[:500]) from None


_TEXT = AnswerType()


def answer_type(schema: Any) -> AnswerType:
    """Return the type of an answer from what a tool gives as the schema: a type, or None for a text.

    Raises:
        TypeError: it is no type that JSON can fill.
    """
    if schema is None:
        return _TEXT
    try:
        return _known(schema)
    except TypeError:  # it has no hash
        return _read(schema)


def _read(schema: Any) -> AnswerType:
    try:
        adapter = make_adapter(schema, ARGUMENT_CONFIG)
        schemas, definitions = schemas_of([("answer", adapter)], "validation")
    except CANNOT_BE_JSON as error:
        raise TypeError(
            f"an answer cannot be of the type {shown_type(schema)} ({first_line(error)}); "
            "use a pydantic model, a Literal or a plain type such as int"
        ) from None
    whole = _whole(schemas["answer"], definitions)
    mistake = _mistake_in(whole)
    if mistake is not None:
        raise TypeError(
            f"an answer cannot be of the type {shown_type(schema)}: what was put into its JSON Schema by hand is none "
            f"({mistake})"
        )
    return AnswerType(schema=encode_json(whole), adapter=adapter)


def _mistake_in(schema: dict[str, Any]) -> str | None:
    """Return what keeps the doors from checking an answer by a schema, or None."""
    from jsonschema import Draft202012Validator, SchemaError  # not before it is needed: commands start without it

    try:
        Draft202012Validator.check_schema(schema, format_checker=None)  # patterns are in pydantic's language
    except SchemaError as error:
        return first_line(error)
    return None


def _whole(schema: dict[str, Any], definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return one schema with its definitions; a model stands in it itself, so that forms are made of it easily."""
    name = schema.get("$ref", "").removeprefix(REFS.format(model=""))
    if name in definitions:
        schema = {**definitions[name], **{key: value for key, value in schema.items() if key != "$ref"}}
        rest = {key: value for key, value in definitions.items() if key != name}
        reference = encode_json(REFS.format(model=name))
        definitions = definitions if reference in encode_json([schema, rest]) else rest
    return {**schema, "$defs": definitions} if definitions else schema


_known = lru_cache(maxsize=256)(_read)
