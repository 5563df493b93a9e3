"""Choosing a tool by the words that a message shares with its name, description and parameters."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amoxi_py.models.offline.words import (
    ACTING_WORDS,
    QUESTION_WORDS,
    READING_NOUNS,
    READING_WORDS,
    STOP_WORDS,
    joined,
    name_words,
    stem,
    stems,
    tokens,
)
from amoxi_py.ports.chat_model import ToolSpec

_NAME, _ENUM, _DESCRIPTION, _PARAMETER, _PARAMETER_TEXT = 3.0, 2.0, 1.0, 0.7, 0.4
_CONTENT = 0.15  # what a word counts that is quoted or stands after a colon: it is for an argument, not for the choice
_LEAST = 0.8
PATTERN_FITS = 1.2  # how well a message fits a tool: a value of a pattern that it requires is in it
CONTENT_FITS = 1.5  # what stands after a colon is what the tool takes
_QUOTED = re.compile(r"\"[^\"]+\"|“[^”]+”|«[^»]+»|(?<!\w)'[^']+'(?!\w)")
_COLON = re.compile(r":\s+")
_ACTING_STEMS = frozenset(stem(word) for word in ACTING_WORDS)
_READING_STEMS = frozenset(stem(word) for word in READING_WORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolWords:
    """A tool as its words: how much each counts, its verbs, and whether it only looks."""

    tool: ToolSpec
    weights: Mapping[str, float]
    verbs: frozenset[str]
    reading: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A message as its words: how much each counts, and whether it asks rather than orders."""

    weights: Mapping[str, float]
    first: str
    asks: bool


def read_tool(tool: ToolSpec) -> ToolWords:
    """Return the words of a tool."""
    named = name_words(tool.name)
    described = tool.description.strip()
    weights: dict[str, float] = {}
    for name, schema in (tool.parameters.get("properties") or {}).items():
        _weigh(weights, stems(_texts_of(schema)), _PARAMETER_TEXT)
        _weigh(weights, _stems_of(name_words(name)), _PARAMETER)
        _weigh(
            weights, [stem(word) for value in enum_of(schema, tool.parameters) for word in tokens(str(value))], _ENUM
        )
    _weigh(weights, stems(described), _DESCRIPTION)
    _weigh(weights, [*_stems_of(named), *joined(named)], _NAME)
    opening = tokens(described)[:1]
    verbs = {stem(word) for word in [*named[:1], *opening]} | set(joined(named)[:1])
    return ToolWords(tool=tool, weights=weights, verbs=frozenset(verbs), reading=_reads(named, verbs))


def read_message(text: str) -> Wording:
    """Return the words of a message that choose a tool."""
    command, *content = _COLON.split(_QUOTED.sub(" ", text), maxsplit=1)
    words = tokens(command)
    weights: dict[str, float] = {}
    _weigh(
        weights,
        stems(" ".join(content)) + [part for quoted in _QUOTED.findall(text) for part in stems(quoted)],
        _CONTENT,
    )
    _weigh(weights, [*_stems_of(words), *joined(words)], 1.0)
    first = words[0] if words else ""
    asks = first in QUESTION_WORDS or (first in READING_WORDS and first != "get")  # "get me a refund" is an order
    return Wording(weights=weights, first=stem(next((word for word in words if word not in STOP_WORDS), "")), asks=asks)


def rank(message: Wording, tools: Sequence[ToolWords], fits: Mapping[str, float]) -> list[ToolWords]:
    """Return the tools that fit a message, best first.

    Args:
        message: Its words.
        tools: All tools.
        fits: By tool name, how well the message fills what the tool requires: 0 to 1, or one of the two above.
    """
    if message.first in _ACTING_STEMS and not any(message.first in tool.weights for tool in tools):
        return []  # asked for something that no tool does, so the nearest thing will not do
    spread = Counter(word for tool in tools for word in tool.weights)
    scored = []
    for place, tool in enumerate(tools):
        score = sum(
            weight * message.weights[word] / math.sqrt(spread[word])
            for word, weight in tool.weights.items()
            if word in message.weights
        )
        fit = fits[tool.tool.name]
        if score == 0 and not (fit == PATTERN_FITS and tool.reading):
            continue
        score += fit
        called = any(message.weights.get(verb, 0) >= 1 for verb in tool.verbs)
        if tool.reading:
            score += 1.5 if message.asks else 0.5
        elif message.asks:
            score *= 0.3  # "was it refunded?" must refund nothing
        elif not called and fit != CONTENT_FITS:
            score *= 0.5  # what changes something has to be asked for by its verb
        scored.append((-score, place, tool))
    return [tool for score, _, tool in sorted(scored, key=lambda item: item[:2]) if -score >= _LEAST]


def enum_of(schema: Any, root: Mapping[str, Any]) -> list[Any]:
    """Return the values that a schema allows by name, following references and alternatives."""
    if not isinstance(schema, Mapping):
        return []
    if "$ref" in schema:
        return enum_of(resolve(schema, root), root)
    found = list(schema.get("enum", ()))
    for word in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(word, ()):
            found += enum_of(part, root)
    return [value for value in found if isinstance(value, (str, int, float)) and not isinstance(value, bool)]


def resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a schema's local reference points to (with its own keys on top), or the schema itself."""
    if "$ref" not in schema:
        return schema
    place: Any = root
    for name in str(schema["$ref"]).removeprefix("#").split("/")[1:]:
        place = place.get(name, {}) if isinstance(place, Mapping) else {}
    own = {key: value for key, value in schema.items() if key != "$ref"}
    return {**place, **own} if isinstance(place, Mapping) else own


def _reads(named: Sequence[str], verbs: set[str]) -> bool:
    if not named or named[0] in ACTING_WORDS:
        return False
    return bool(verbs & _READING_STEMS) or named[-1] in READING_NOUNS


def _weigh(weights: dict[str, float], words: Sequence[str], weight: float) -> None:
    for word in words:
        weights[word] = max(weight, weights.get(word, 0.0))


def _stems_of(words: Sequence[str]) -> list[str]:
    return [stem(word) for word in words if word not in STOP_WORDS or word in READING_WORDS]


def _texts_of(schema: Any) -> str:
    return f"{schema.get('title', '')} {schema.get('description', '')}" if isinstance(schema, Mapping) else ""
