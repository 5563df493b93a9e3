"""What the offline model says: results as a person reads them, questions for what is missing, what it can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amoxi_py.domain.encoding import decode_json
from amoxi_py.models.offline.words import humanise
from amoxi_py.ports.chat_model import ToolResult, ToolSpec

FOUND = "Here's what I found:"
DONE = "Done:"
ASKING = "I need one more thing"
_MOST_ITEMS = 20


def tell_results(results: Sequence[ToolResult], acting: frozenset[str]) -> str:
    """Return the answer to results, in order; `acting` names the tools that do something rather than look."""
    told: list[str] = []
    before = ""
    for result in results:
        head, body = _tell(result, DONE if result.tool in acting else FOUND)
        told.append(body if not head or head == before else f"{head}\n{body}")
        before = head
    return "\n\n".join(told)


def ask_for(tool: ToolSpec, missing: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the question for what a tool needs and the message does not say."""
    head = f'{ASKING} for "{humanise(tool.name)}"' if len(missing) == 1 else f'{ASKING}s for "{humanise(tool.name)}"'
    told = [_describe(name, schema) for name, schema in missing]
    return f"{head}: {told[0]}." if len(told) == 1 else "\n- ".join([f"{head}:", *told])


def tell_abilities(tools: Sequence[ToolSpec]) -> str:
    """Return what the model says when no tool fits: that plainly, and what it can do."""
    if not tools:
        return (
            "I can't answer that: I am the offline model, which only uses tools, and I have none here. "
            "Give the app the key of a model provider for real answers."
        )
    lines = [f"- {humanise(tool.name)}: {_first_sentence(tool.description)}".removesuffix(": ") for tool in tools]
    return "\n".join(["I found nothing that I can do about that (I am the offline model). I can:", *lines])


def _tell(result: ToolResult, head: str) -> tuple[str, str]:
    text = result.content.strip()
    value: Any = text
    if text[:1] in ("{", "[", '"'):  # anything else reads the same as text
        try:
            value = decode_json(text)
        except ValueError:
            pass
    if isinstance(value, str):
        if "outcome is unknown" in value.lower():
            return "", f"I don't know whether that was done. {value}"
        if result.is_error:
            return "", f"That didn't work: {value}"
    elif result.is_error:
        return "That didn't work:", "\n".join(_lines(value))
    if isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]
    if value in ("", "null", None, [], {}):
        return "", "Done." if head == DONE else "I found nothing."
    if not isinstance(value, (dict, list)):
        return "", _scalar(value)
    return head, "\n".join(_lines(value))


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [line for key, item in value.items() for line in _field(humanise(key), item)]
    if isinstance(value, list):
        lines = [line for item in value[:_MOST_ITEMS] for line in _item(item)]
        return [*lines, f"... and {len(value) - _MOST_ITEMS} more"] if len(value) > _MOST_ITEMS else lines
    return [_scalar(value)]


def _field(name: str, value: Any) -> list[str]:
    if value in ([], {}):
        return [f"{name}: nothing found"]
    if isinstance(value, (dict, list)):
        indent = "  " if isinstance(value, dict) else ""
        return [f"{name}:", *(indent + line for line in _lines(value))]
    return [f"{name}: {_scalar(value)}"]


def _item(value: Any) -> list[str]:
    if isinstance(value, dict) and len(value) == 1:
        return _item(next(iter(value.values())))
    if isinstance(value, (dict, list)):
        first, *rest = _lines(value) or ["nothing"]
        return [f"- {first}", *(f"  {line}" for line in rest)]
    return [f"- {_scalar(value)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _describe(name: str, schema: Mapping[str, Any]) -> str:
    label = humanise(name)
    label = label if label[:2].isupper() else label[:1].lower() + label[1:]
    notes = [str(schema["description"]).rstrip(".")] if schema.get("description") else []
    if schema.get("enum"):
        notes.append("one of " + ", ".join(_scalar(value) for value in schema["enum"]))
    elif schema.get("examples") and not notes:
        notes.append(f"e.g. {_scalar(schema['examples'][0])}")
    return f"{label} ({'; '.join(notes)})" if notes else label


def _first_sentence(text: str) -> str:
    first = " ".join(text.strip().split("\n\n")[0].split())
    sentence = first.split(". ")[0]
    return sentence if sentence.endswith(".") or not sentence else f"{sentence}."
