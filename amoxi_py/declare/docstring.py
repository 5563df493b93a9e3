"""From a docstring in any of the three usual styles to the text of a tool and the texts of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass

from docstring_parser import Docstring, ParseError, google, numpydoc, rest

from amoxi_py.domain.encoding import clean_text

_SECTIONS = "Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters"
_OTHER_SECTIONS = (
    "Returns|Return|Yields|Yield|Raises|Raise|Exceptions|Except|Attributes|Example|Examples|Receives|Warns"
)
_PARAM = "param|parameter|arg|argument|key|keyword|kwarg"
_FIELD = re.compile(rf"^:(?:{_PARAM}|type|returns?|rtype|raises?)\b[^\n]*:", re.MULTILINE)
_PARAM_FIELD = re.compile(rf"^:(?:{_PARAM})\s+(?:[^:\n]*\s)?\\?(\*{{0,2}}\w+)\s*:", re.MULTILINE)
_UNDERLINED = re.compile(
    rf"^({_SECTIONS}|{_OTHER_SECTIONS}|Notes|See Also|References|Warnings)[ ]*\n-{{3,}}[ ]*$", re.MULTILINE
)
_GOOGLE_TITLE = re.compile(rf"^(?:{_SECTIONS}|{_OTHER_SECTIONS}):[ ]*$")
_LOOKS_LIKE_A_SECTION = re.compile(
    r"^[ \t]*(?:keyword |other )?(?:args|arguments|params|parameters)[ \t]*:?[ \t]*$|^[ \t]*[:@]param\b.*$",
    re.MULTILINE | re.IGNORECASE,
)

_GOOGLE = google.GoogleParser(
    [
        *(google.Section(title, "param", google.SectionType.MULTIPLE) for title in _SECTIONS.split("|")),
        *(google.Section(title, "examples", google.SectionType.SINGULAR) for title in _OTHER_SECTIONS.split("|")),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What a docstring says: the tool's text, the parameters' texts by name, and what could not be read of it."""

    description: str = ""
    parameters: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def read_docstring(docstring: str | None) -> Texts:
    """Read Google, NumPy or reST style; sections about anything but parameters are left out of the texts."""
    text = _title_first("\n".join(line.rstrip() for line in inspect.cleandoc(clean_text(docstring or "")).splitlines()))
    if not text:
        return Texts(parameters={})
    try:
        parsed = _parse(text)
    except ParseError as error:
        reason = str(error).splitlines()[0]
        return Texts(
            description=text, parameters={}, warnings=(f"the parameters in the docstring cannot be read: {reason}",)
        )
    description = (parsed.description or "").strip()
    warnings = tuple(
        f"the docstring's {found.group().strip()!r} is not read as a section of parameters"
        for found in _LOOKS_LIKE_A_SECTION.finditer(description)
    )
    return Texts(description=description, parameters=_parameter_texts(parsed), warnings=warnings)


def first_paragraph(text: str) -> str:
    """Return the first paragraph as one line."""
    return " ".join(text.strip().split("\n\n")[0].split())


def _parse(text: str) -> Docstring:
    if _UNDERLINED.search(text):
        return numpydoc.parse(_UNDERLINED.sub(lambda m: f"{m.group(1)}\n{'-' * len(m.group(1))}", text))
    if _FIELD.search(text):
        return rest.parse(_PARAM_FIELD.sub(r":param \1:", _text_first(text, rest_fields=True)))
    return _GOOGLE.parse("\n" + _text_first(text, rest_fields=False))


def _title_first(text: str) -> str:
    """Indent what follows a title in the first line: Python's own rule for docstrings takes that away."""
    first, _, others = text.partition("\n")
    if not _GOOGLE_TITLE.match(first) or others.lstrip("\n")[:1].isspace():
        return text
    return "\n".join([first, *(f"    {line}" if line else "" for line in others.splitlines())])


def _text_first(text: str, *, rest_fields: bool) -> str:
    """Move paragraphs that follow the sections to the front, where the parsers read the description."""
    front: list[str] = []
    sections: list[str] = []
    target, after_blank = front, True
    for line in text.splitlines():
        if line and not line[0].isspace():
            if _FIELD.match(line) if rest_fields else _GOOGLE_TITLE.match(line):
                target = sections
            elif after_blank or not rest_fields:
                target = front
                if front and front[-1] and after_blank:
                    front.append("")
        target.append(line)
        after_blank = not line
    return "\n".join([*front, "", *sections]).strip("\n")


def _parameter_texts(parsed: Docstring) -> dict[str, str]:
    texts: dict[str, str] = {}
    for entry in parsed.params:
        if entry.args and entry.args[0] == "attribute":
            continue
        text = "\n".join(line.rstrip() for line in (entry.description or "").strip().splitlines())
        for name in entry.arg_name.split(","):
            texts[name.strip().strip("`").lstrip("*")] = text
    return texts
