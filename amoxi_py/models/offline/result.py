"""The offline model's structured results: what tools and the message gave, by name, and else the least that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from amoxi_py.declare.structured_result import RESULT_TOOL
from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.models.offline.choice import resolve
from amoxi_py.ports.chat_model import ToolResult, ToolSpec

_DEEPEST = 6
_LEAST: Mapping[str, Any] = {"integer": 0, "number": 0, "boolean": False, "array": [], "null": None}


def without_result_tool(tools: Sequence[ToolSpec]) -> tuple[list[ToolSpec], ToolSpec | None]:
    """Return the tools that do something, and the one by which a result is given, if there is one."""
    return (
        [tool for tool in tools if tool.name != RESULT_TOOL],
        next((tool for tool in tools if tool.name == RESULT_TOOL), None),
    )


def result_arguments(tool: ToolSpec, said: str, results: Sequence[ToolResult], from_message: Mapping[str, Any]) -> str:
    """Return the arguments with which the tool is called: JSON text of an object."""
    known = dict(from_message)
    for result in results:
        if not result.is_error:
            known.update(_named_values(result.content))
    root = tool.parameters
    return encode_json(_object(root, root, said, known, 0))


def _named_values(content: str) -> Iterator[tuple[str, Any]]:
    try:
        value = decode_json(content)
    except ValueError:
        return
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), None)
    if isinstance(value, dict):
        yield from value.items()


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], said: str, known: Mapping[str, Any], depth: int) -> Any:
    required = schema.get("required", ())
    return {
        name: known[name] if name in known else _least(resolve(part, root), root, said, depth + 1)
        for name, part in schema.get("properties", {}).items()
        if name in known or name in required
    }


def _least(schema: Mapping[str, Any], root: Mapping[str, Any], said: str, depth: int) -> Any:
    """Return a value that is likely to fit; where any text does, it is what the model says."""
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("anyOf") and depth < _DEEPEST:
        return _least(resolve(schema["anyOf"][0], root), root, said, depth + 1)
    kind = schema.get("type")
    if kind == "object" and depth < _DEEPEST:
        return _object(schema, root, said, {}, depth)
    if kind in ("integer", "number") and "minimum" in schema:
        return schema["minimum"]
    return _LEAST.get(str(kind), said)
