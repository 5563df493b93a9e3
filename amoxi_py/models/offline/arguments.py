"""Filling a tool's arguments from a message, by what its schema says of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from amoxi_py.models.offline.choice import resolve
from amoxi_py.models.offline.words import STOP_WORDS, name_words, stem, tokens
from amoxi_py.ports.chat_model import ToolSpec

Span = tuple[int, int]
MISSING = object()

_LONGEST = 10_000
_DEEPEST = 4
_NUMBER = re.compile(r"(?<![\w.,-])[-+]?\d+(?:\.\d+)?(?![\d-])(?!\.\d)(?![A-Za-z]*[\d_-])")
_SMALL_NUMBERS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
_SMALL = {word: float(number) for number, word in enumerate(_SMALL_NUMBERS)}
_FORMATS = {
    "email": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "uri": re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)]"),
    "uuid": re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    "time": re.compile(r"\b\d{1,2}:\d{2}(?::\d{2})?\b"),
    "date-time": re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?"),
}
_ISO_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_WRITTEN_DATE = re.compile(
    r"\b(?:(?P<d1>\d{1,2})(?:st|nd|rd|th)?\.? (?:of )?(?P<m1>[A-Za-z]{3,9})"
    r"|(?P<m2>[A-Za-z]{3,9}) (?P<d2>\d{1,2})(?:st|nd|rd|th)?),? (?P<year>\d{4})\b"
)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|(?<!\w)'([^']+)'(?!\w)")
_NAMED = r"\b(?:to|from|for|in|at|by|with|of|on|called|named)\s+((?:[A-Z][\w'-]*)(?:\s+[A-Z][\w'-]*)*)"
_FILE = re.compile(r"\bfile_[0-9A-Za-z_]+")
_COLON = re.compile(r":\s+")
_YES = {"yes", "true", "on", "enabled", "enable"}
_NO = {"no", "false", "off", "disabled", "disable"}
_INDIRECT = {"how", "what", "when", "where", "whether", "which", "who", "why"}  # "ask them where it is"
_NOT = {"no", "not", "without", "don't", "dont", "never"}
_PROSE = ("please", "order", "the")  # a pattern that fits these fits anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What a message gives for a tool: the arguments, and what is required and not in it, with its schema."""

    arguments: dict[str, Any]
    missing: tuple[tuple[str, Mapping[str, Any]], ...]
    sure: bool  # a value was found by its pattern, which says more than a word
    content: bool = False  # an argument took what stands after a colon


@dataclass(slots=True, kw_only=True)
class _Source:
    """A message from which values are taken; what one argument took, no other takes."""

    text: str
    root: Mapping[str, Any]
    command: frozenset[str]
    today: Callable[[], date]
    files: list[str]
    taken: list[Span] = field(default_factory=list)
    sure: bool = False
    content: bool = False
    depth: int = 0

    def free(self, span: Span) -> bool:
        first, last = span
        return all(last <= start or end <= first for start, end in self.taken)

    def find(self, pattern: re.Pattern[str]) -> list[re.Match[str]]:
        return [match for match in pattern.finditer(self.text) if self.free(match.span())]

    def take(self, span: Span) -> None:
        self.taken.append(span)


def fill(tool: ToolSpec, text: str, today: Callable[[], date], files: Sequence[str] = ()) -> Filled:
    """Return the arguments of a tool that a message gives; optional ones only when it names them clearly.

    `files` are the ids of the files that were sent, the last message's first: each is for one argument.
    """
    words = [*name_words(tool.name), *tokens(tool.description)]
    source = _Source(
        text=text[:_LONGEST],
        root=tool.parameters,
        command=frozenset(map(stem, words)),
        today=today,
        files=list(files),
    )
    arguments, missing = _fill_object(source, tool.parameters)
    if _asks_an_agent(tool) and text.strip() and not source.content and not _QUOTED.search(text):
        arguments, missing = {"message": text}, []
    return Filled(arguments=arguments, missing=tuple(missing), sure=source.sure, content=source.content)


def _asks_an_agent(tool: ToolSpec) -> bool:
    """Whether what it takes is a message to an agent, which is handed on as it is."""
    return tool.name.startswith("ask_") and list(tool.parameters.get("properties") or ()) == ["message"]


def count_values(tool: ToolSpec, text: str) -> list[str]:
    """Return all values that a message has for a tool's only required argument, when that has a pattern."""
    required: list[str] = list(tool.parameters.get("required") or ())
    if len(required) != 1:
        return []
    schema = _plain(tool.parameters["properties"].get(required[0], {}), tool.parameters)
    pattern = _searchable(schema.get("pattern"))
    if pattern is None or schema.get("type") == "array":
        return []
    return list(dict.fromkeys(as_written(schema, match.group()) for match in pattern.finditer(text[:_LONGEST])))


def _fill_object(
    source: _Source, schema: Mapping[str, Any]
) -> tuple[dict[str, Any], list[tuple[str, Mapping[str, Any]]]]:
    properties = {name: _plain(part, source.root) for name, part in (schema.get("properties") or {}).items()}
    required = set(schema.get("required") or ())
    found: dict[str, Any] = {}
    # required before optional, and what is told by its form before free text, which takes what is left
    for name in sorted(properties, key=lambda name: (_order(properties[name]), name not in required)):
        value = _find(source, name, properties[name], needed=name in required)
        if value is not MISSING:
            found[name] = value
    ordered = {name: found[name] for name in properties if name in found}
    return ordered, [(name, properties[name]) for name in properties if name in required and name not in found]


def _plain(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    found = resolve(schema, root)
    for word in ("anyOf", "oneOf", "allOf"):
        parts = [part for part in found.get(word, ()) if isinstance(part, Mapping) and part.get("type") != "null"]
        if parts:
            own = {key: value for key, value in found.items() if key != word}
            return {**_plain(parts[0], root), **own}
    return found


def _order(schema: Mapping[str, Any]) -> int:
    kind = schema.get("type")
    if "enum" in schema or "const" in schema:
        return 0
    if kind == "string" and (_searchable(schema.get("pattern")) or schema.get("format") in (*_FORMATS, "date")):
        return 1
    if kind in ("integer", "number"):
        return 2
    return 3 if kind == "boolean" else 5 if kind == "string" else 4


def _find(source: _Source, name: str, schema: Mapping[str, Any], *, needed: bool) -> Any:
    if "const" in schema:
        return schema["const"] if needed else MISSING
    if "enum" in schema:
        return _find_choice(source, schema["enum"])
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return _find_number(source, name, schema, needed=needed)
    if kind == "boolean":
        return _find_boolean(source, name, needed=needed)
    if kind == "array":
        return _find_list(source, schema) if needed else MISSING
    if kind == "object":
        return _find_object(source, schema) if needed else MISSING
    return _find_text(source, name, schema, needed=needed)


def _find_object(source: _Source, schema: Mapping[str, Any]) -> Any:
    if source.depth == _DEEPEST:  # a schema may hold itself
        return MISSING
    source.depth += 1
    value, missing = _fill_object(source, schema)
    source.depth -= 1
    return MISSING if missing else value


def _find_choice(source: _Source, values: list[Any]) -> Any:
    spoken = [(match.group().lower(), match.span()) for match in re.finditer(r"[^\W_]+", source.text)]
    for exact in (True, False):
        for value in values:
            wanted = [word if exact else stem(word) for word in tokens(str(value).replace("_", " ").replace("-", " "))]
            for start in range(len(spoken) - len(wanted) + 1):
                part = spoken[start : start + len(wanted)]
                span = (part[0][1][0], part[-1][1][1]) if part else (0, 0)
                if wanted and [w if exact else stem(w) for w, _ in part] == wanted and source.free(span):
                    source.take(span)
                    return value
    return MISSING


def _find_number(source: _Source, name: str, schema: Mapping[str, Any], *, needed: bool) -> Any:
    whole = schema.get("type") == "integer"
    found: list[tuple[Span, float]] = [(m.span(), float(m.group())) for m in source.find(_NUMBER)]
    words = [(m.span(), m.group().lower()) for m in source.find(re.compile(r"[A-Za-z]+"))]
    found += [(span, _SMALL[word]) for span, word in words if word in _SMALL]
    fitting = [
        (span, number) for span, number in found if _in_range(number, schema) and (number.is_integer() or not whole)
    ]
    called = {stem(word) for word in name_words(name) if word not in STOP_WORDS}
    near = [item for item in fitting if called & _neighbours(source.text, item[0])]
    for span, number in sorted(near) or (sorted(fitting) if needed else []):
        source.take(_with_its_name(source.text, span, called))
        return int(number) if number.is_integer() else number
    return MISSING


def _in_range(number: float, schema: Mapping[str, Any]) -> bool:
    low, high = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    above, below = schema.get("exclusiveMinimum", float("-inf")), schema.get("exclusiveMaximum", float("inf"))
    return bool(low <= number <= high and above < number < below)


def _neighbours(text: str, span: Span) -> set[str]:
    before, after = tokens(text[: span[0]])[-2:], tokens(text[span[1] :])[:1]
    return {stem(word) for word in (*before, *after)}


def _with_its_name(text: str, span: Span, called: set[str]) -> Span:
    before = re.search(r"([^\W\d_]+)\W{0,3}$", text[: span[0]])
    after = re.match(r"\W?([^\W\d_]+)", text[span[1] :])
    start = before.start() if before is not None and stem(before[1].lower()) in called else span[0]
    return (start, span[1] + after.end() if after is not None and stem(after[1].lower()) in called else span[1])


def _find_boolean(source: _Source, name: str, *, needed: bool) -> Any:
    words = tokens(source.text)
    for word in name_words(name):
        places = [place for place, spoken in enumerate(words) if stem(spoken) == stem(word) and word not in STOP_WORDS]
        if places and (not needed or stem(word) not in source.command):
            return not set(words[max(0, places[0] - 3) : places[0]]) & _NOT
    if not needed:
        return MISSING
    return True if set(words) & _YES else False if set(words) & _NO else MISSING


def _find_list(source: _Source, schema: Mapping[str, Any]) -> Any:
    items = _plain(schema.get("items", {}), source.root)
    values: list[Any] = []
    while len(values) < 50 and (_order(items) < 3 or not values):
        value = _find(source, "", items, needed=True)
        if value is MISSING:
            break
        values.append(value)
    if _order(items) == 5 and values:
        values = [part.strip() for part in re.split(r",\s*(?:and\s+)?|\s+and\s+", values[0]) if part.strip()]
    return values or MISSING


def _find_text(source: _Source, name: str, schema: Mapping[str, Any], *, needed: bool) -> Any:
    if needed and {"file", "id"} <= set(name_words(name)):
        return _find_file(source)
    pattern = _searchable(schema.get("pattern"))
    if schema.get("format") == "date":
        return _find_date(source)
    for searched in (pattern, _FORMATS.get(schema.get("format", ""))):
        if searched is not None:
            for match in source.find(searched):
                source.take(match.span())
                source.sure = source.sure or searched is pattern
                return as_written(schema, match.group())
            return MISSING
    for value, span in _free_texts(source, name, needed=needed):
        fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", _LONGEST)
        if fits and (schema.get("pattern") is None or _matches(schema["pattern"], value)):
            source.take(span)
            source.content = source.content or source.text[: span[0]].rstrip().endswith(":")
            return value
    return MISSING


def _find_file(source: _Source) -> Any:
    for match in source.find(_FILE):
        source.take(match.span())
        return match.group()
    return source.files.pop(0) if source.files else MISSING


def _free_texts(source: _Source, name: str, *, needed: bool) -> Iterator[tuple[str, Span]]:
    called = r"[\s_-]*".join(map(re.escape, name_words(name))) or r"(?!)"
    for match in source.find(re.compile(rf"\b{called}\s*(?:is|=|:)\s*(?:\"([^\"]+)\"|([^,;\n]+))", re.IGNORECASE)):
        group = 1 if match.group(1) else 2
        yield match.group(group).strip(), match.span()
    if not needed:
        return
    for match in source.find(_QUOTED):
        yield next(part for part in match.groups() if part), match.span()
    addressed = {"to", "recipient", "name", "person", "city", "place", "location", "author", "who", "customer", "room"}
    if addressed & set(name_words(name)):
        for match in source.find(re.compile(_NAMED)):
            yield match.group(1), match.span(1)
    colon = _COLON.search(source.text)
    if colon is not None and source.text[colon.end() :].strip() and source.free((colon.end(), len(source.text))):
        yield source.text[colon.end() :].strip(), (colon.end(), len(source.text))
    yield from _rest(source)


def _rest(source: _Source) -> Iterator[tuple[str, Span]]:
    """Yield what is left of the sentence when the words of the command at its front are taken off."""
    start, end = 0, len(source.text)
    for taken_start, taken_end in sorted(source.taken):
        if taken_start <= start + 1 or not source.text[start:taken_start].strip():
            start = max(start, taken_end)
        else:
            end = min(end, taken_start)
    for match in re.finditer(r"[^\W_]+(?:['’][^\W_]+)?|\S", source.text[start:end]):
        word = match.group().lower().replace("’", "'")
        asked = match.start() > 0 and word in _INDIRECT
        if asked or (word[0].isalnum() and word not in STOP_WORDS and stem(word) not in source.command):
            value = re.sub(
                r"[\s,]*\b(?:please|thanks|thank you)\b[\s.!]*$", "", source.text[start + match.start() : end]
            )
            value = value.strip().rstrip("?!.,; ")
            if value:
                yield value, (start + match.start(), end)
            return


def _find_date(source: _Source) -> Any:
    for match in source.find(_ISO_DATE):
        if _is_date(match.group()):
            source.take(match.span())
            return match.group()
    for match in source.find(_WRITTEN_DATE):
        month, day = match["m1"] or match["m2"], match["d1"] or match["d2"]
        try:
            value = datetime.strptime(f"{day} {month[:3]} {match['year']}", "%d %b %Y").date()  # noqa: DTZ007 - a day has no zone
        except ValueError:
            continue
        source.take(match.span())
        return value.isoformat()
    for match in source.find(re.compile(r"\b(?:yesterday|today|tomorrow)\b", re.IGNORECASE)):
        source.take(match.span())
        return (source.today() + timedelta(days=_DAYS[match.group().lower()])).isoformat()
    return MISSING


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _searchable(pattern: object) -> re.Pattern[str] | None:
    """Return a pattern as one to search a sentence with, or None when it would fit any word of it."""
    if not isinstance(pattern, str):
        return None
    inner = pattern.removeprefix("^")
    inner = inner[:-1] if inner.endswith("$") and not inner.endswith("\\$") else inner
    try:
        searched = re.compile(rf"(?<![\w-])(?:{inner})(?![\w-])")
        any_case = re.compile(searched.pattern, re.IGNORECASE)
    except re.error:  # schemas speak the JavaScript dialect
        return None
    if any(searched.fullmatch(word) for word in _PROSE):
        return None
    return searched if any(any_case.fullmatch(word) for word in _PROSE) else any_case


def as_written(schema: Mapping[str, Any], value: str) -> str:
    """Return a value in the letters that its pattern wants: people write `a-1001` for `A-1001`."""
    pattern = schema.get("pattern")
    if pattern is None:
        return value
    return next((form for form in (value, value.upper(), value.lower()) if _matches(pattern, form)), value)


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return True
