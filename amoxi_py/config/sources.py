"""Where settings come from: files and the environment, each flattened to texts and values by key or variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amoxi_py.config.found import Found
from amoxi_py.config.sections import Section, Sections
from amoxi_py.config.settings import DEV

FILE = "_FILE"
_OURS = frozenset(str(one.alias) for one in Sections.model_fields.values())


def read_settings_file(path: Path) -> tuple[dict[str, Found], dict[str, Any], list[str]]:
    """Return what a JSON file sets by key, what may be an app's own sections, and what is wrong with it.

    A file that does not exist sets nothing. Objects may be nested or written with dots:
    `{"ai": {"runs": {"lease-ms": 1000}}}`, `{"ai.runs.lease-ms": 1000}`.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return {}, {}, []
    except (OSError, UnicodeDecodeError) as error:
        return {}, {}, [f"{path.name} cannot be read: {error}"]
    repeated: list[str] = []

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            repeated.extend(sorted({name for name in names if names.count(name) > 1}))
        return found

    try:
        content = json.loads(text, object_pairs_hook=as_object)
    except ValueError as error:
        return {}, {}, [f"{path.name} is not JSON: {error}"]
    if not isinstance(content, dict):
        return {}, {}, [f"{path.name} must hold one JSON object"]
    problems = [f"{path.name} sets {name!r} twice in one object: keep one" for name in repeated]
    values: dict[str, Found] = {}
    others = {name: content.pop(name) for name in list(content) if is_of_others(name, content[name])}
    for key, value in flatten(content, ""):
        if key in values:
            problems.append(f"{path.name} sets {key!r} twice: keep one")
        values[key] = Found(value=value, source=path.name)
    return values, others, problems


def is_of_others(name: str, value: Any) -> bool:
    """Whether a name at the top of a file, or a key, may belong to a section of the app's own."""
    section, dot, _ = name.partition(".")
    return section not in _OURS and (bool(dot) or isinstance(value, dict))


def flatten(content: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    """Return the values of nested objects by their keys with dots."""
    flat: list[tuple[str, Any]] = []
    for name, value in content.items():
        key = prefix + name
        if isinstance(value, dict) and (value or _is_section(key)):
            flat += flatten(value, key + ".")
        elif value is not None:
            flat.append((key, value))
    return flat


def _is_section(key: str) -> bool:
    section: type[Section] = Sections
    for name in key.split("."):
        kinds = [one.annotation for one in section.model_fields.values() if one.alias == name]
        if not kinds or not (isinstance(kinds[0], type) and issubclass(kinds[0], Section)):
            return False
        section = kinds[0]
    return True


def read_variables(folder: Path, profile: str, environ: Mapping[str, str]) -> dict[str, Found]:
    """Return all variables that have a value: of `.env` (in dev only), then of the environment, which wins."""
    found: dict[str, Found] = {}
    dotenv = folder / ".env"
    if profile == DEV and dotenv.is_file():
        from dotenv import dotenv_values  # only a developer's machine reads such a file

        for name, text in dotenv_values(dotenv, interpolate=False).items():
            if text:
                found[name] = Found(value=text, source=f"{name} in .env")
    for name, text in environ.items():
        if text:
            found[name] = Found(value=text, source=name)
            other = name.removesuffix(FILE) if name.endswith(FILE) else name + FILE
            if found.get(other) is not None and found[other].source.endswith(" in .env"):
                del found[other]  # the environment's form of the same setting wins over the file's
    return found


def resolve_secret_file(variable: str, variables: Mapping[str, Found], problems: list[str]) -> Found | None:
    """Return a variable's value, or the content of the file that `<VARIABLE>_FILE` names."""
    given, by_file = variables.get(variable), variables.get(variable + FILE)
    if by_file is None:
        return given
    if given is not None:
        problems.append(f"{variable} and {variable}{FILE} are both set: keep one")
        return given
    try:
        text = Path(by_file.value).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(f"{variable}{FILE} names {by_file.value!r}, which cannot be read: {reason or error}")
        return None
    if not text:
        problems.append(f"{variable}{FILE} names {by_file.value!r}, which is empty")
        return None
    return Found(value=text, source=by_file.source)


def process_environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ
