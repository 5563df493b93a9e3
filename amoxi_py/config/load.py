"""Joining the sources of settings, later ones win, and checking the whole before anything starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from amoxi_py.config.a2a import a2a_problems
from amoxi_py.config.callers import Caller, is_caller_variable, read_callers
from amoxi_py.config.database import database_problems
from amoxi_py.config.found import Found, Others
from amoxi_py.config.oauth import oauth_problems
from amoxi_py.config.sections import Sections, known_keys, variable_of
from amoxi_py.config.settings import DATABASE_URL, DEV, PRODUCTION, Settings
from amoxi_py.config.sources import (
    FILE,
    is_of_others,
    process_environment,
    read_settings_file,
    read_variables,
    resolve_secret_file,
)
from amoxi_py.errors import ConfigError

SETTINGS_FILE = "application.json"
PROFILE_VARIABLE = "AMOXI_PROFILE"
PROVIDER_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    DATABASE_URL,
)

GIVEN = "the command"

_PROFILE = re.compile(r"[a-z0-9][a-z0-9-]*")
FROM_VARIABLE = "such a file is copied and shared: set the variable {0}, or {0}_FILE to a file that holds it"
SECRET_KEYS = {"server.secret", "ai.store.listen-url", "ai.a2a.card-key"}


def load_settings(
    folder: Path | None = None,
    *,
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Settings:
    """Read all settings of the app in `folder`.

    Args:
        folder: Where `application.json` is; the current directory by default.
        profile: `dev`, `production` or another; by default what `AMOXI_PROFILE` says, else `production`.
        environ: The environment; this process's own by default.
        given: What a command says by key, such as `{"server.port": 8081}`; it wins over all.

    Raises:
        ConfigError: a key is unknown or a value bad; all mistakes at once, and no secret in any of them.
    """
    settings, problems = examine_settings(folder, profile=profile, environ=environ, given=given)
    if problems:
        raise ConfigError(*problems, warnings=settings.warnings)
    return settings


def examine_settings(
    folder: Path | None = None,
    *,
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
    given: Mapping[str, Any] | None = None,
) -> tuple[Settings, tuple[str, ...]]:
    """Do the same as `load_settings`, and return what is wrong beside the settings: these have defaults in its place.

    Raises:
        ConfigError: the profile has no name that can be used.
    """
    folder = (folder or Path.cwd()).resolve()
    environ = process_environment() if environ is None else environ
    profile = profile or environ.get(PROFILE_VARIABLE) or PRODUCTION
    if not _PROFILE.fullmatch(profile):
        raise ConfigError(f"{PROFILE_VARIABLE} is {profile!r}: use lower-case letters, digits and `-`, such as 'dev'")
    keys = known_keys()
    found, files, problems = _read_files(folder, profile, keys)
    variables = read_variables(folder, profile, environ)
    found |= _from_variables(keys, variables, problems)
    given = given or {}
    of_others = {key: value for key, value in given.items() if is_of_others(key, value)}
    found |= {key: Found(value=value, source=GIVEN) for key, value in given.items() if key not in of_others}
    sections = _validate(found, problems)
    provider = {name: text for name in PROVIDER_VARIABLES if (text := _text(name, variables, problems))}
    problems += database_problems(
        sections.ai.store,
        provider.get(DATABASE_URL, ""),
        found,
        variables,
        dotenv_unread=profile != DEV and (folder / ".env").is_file(),
    )
    problems += oauth_problems(sections, found, dev=profile == DEV)
    problems += a2a_problems(sections, found, dev=profile == DEV)
    callers, caller_problems = read_callers(_caller_tokens(variables, problems))
    problems += caller_problems
    settings = Settings(
        profile=profile,
        folder=folder,
        app=sections.app,
        server=sections.server,
        ai=sections.ai,
        log=sections.log,
        callers=callers,
        provider=provider,
        sources={key: found[key].source for key in keys if key in found},
        warnings=(
            *_unknown_variables(keys, variables),
            *_caller_warnings(sections, callers),
        ),
        others=Others(files=files, given=of_others, variables=variables),
    )
    return settings, tuple(problems)


def _read_files(
    folder: Path, profile: str, keys: tuple[str, ...]
) -> tuple[dict[str, Found], tuple[tuple[str, Mapping[str, Any]], ...], list[str]]:
    found: dict[str, Found] = {}
    files = []
    problems: list[str] = []
    for name in (SETTINGS_FILE, SETTINGS_FILE.replace(".json", f"-{profile}.json")):
        values, others, wrong = read_settings_file(folder / name)
        files.append((name, others))
        problems += wrong
        for key, value in values.items():
            if key in SECRET_KEYS:
                problems.append(f"{key!r} from {name} is a secret, and {FROM_VARIABLE.format(variable_of(key))}")
            elif key in keys:
                found[key] = value
            elif is_caller_variable(variable_of(key)) or key.upper() in PROVIDER_VARIABLES:
                problems.append(f"{key!r} in {name} is no setting: {FROM_VARIABLE.format(variable_of(key))}")
            else:
                problems.append(f"{key!r} in {name} is no setting{nearest(key, keys)}")
    return found, tuple(files), problems


def _from_variables(keys: tuple[str, ...], variables: Mapping[str, Found], problems: list[str]) -> dict[str, Found]:
    found: dict[str, Found] = {}
    if "PORT" in variables:
        found["server.port"] = variables["PORT"]
    for key in keys:
        value = resolve_secret_file(variable_of(key), variables, problems)
        if value is not None:
            found[key] = value
    return found


def _text(variable: str, variables: Mapping[str, Found], problems: list[str]) -> str:
    found = resolve_secret_file(variable, variables, problems)
    return "" if found is None else str(found.value).strip()


def _caller_tokens(variables: Mapping[str, Found], problems: list[str]) -> dict[str, str]:
    names = {name.removesuffix(FILE) for name in variables if is_caller_variable(name.removesuffix(FILE))}
    return {name: text for name in sorted(names) if (text := _text(name, variables, problems))}


def _validate(found: Mapping[str, Found], problems: list[str]) -> Sections:
    """Return the sections; a bad value is noted and left out, so that the others can be looked at further."""
    good = dict(found)
    while True:
        try:
            return Sections.model_validate(_nested(good))
        except ValidationError as error:
            for mistake in error.errors(include_url=False, include_context=False):
                key = _key_of(mistake["loc"], found)
                if good.pop(key, None) is not None:
                    problems.append(bad_value(key, found[key], mistake["msg"], secret=key in SECRET_KEYS))


def _nested(found: Mapping[str, Found]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in found.items():
        *path, last = key.split(".")
        section = nested
        for name in path:
            section = section.setdefault(name, {})
        section[last] = value.value
    return nested


def _key_of(location: tuple[int | str, ...], found: Mapping[str, Found]) -> str:
    path = [str(part) for part in location]
    return next(key for end in range(len(path), 0, -1) if (key := ".".join(path[:end])) in found)


def bad_value(key: str, found: Found, message: str, *, secret: bool) -> str:
    """Return what is told of a value that does not fit."""
    shown = "its value (not shown)" if secret else repr(found.value)
    reason = (
        message.removeprefix("Value error, ").replace("Input should", "it should").replace("String should", "it should")
    )
    return f"{key!r} from {found.source} is {shown}: {reason[:1].lower()}{reason[1:]}"


def _caller_warnings(sections: Sections, callers: Iterable[Caller]) -> list[str]:
    """Return where tokens open nothing, and where nobody has one."""
    warnings = []
    ai = sections.ai
    for door, enabled, by_others in (("mcp", ai.mcp.enabled, ai.mcp.oauth.enabled), ("a2a", ai.a2a.enabled, False)):
        names = [caller.name for caller in callers if caller.door == door]
        if not enabled:
            variables = [variable_of(f"ai.{door}.callers.{name}") for name in names]
            warnings += [f"{name} opens nothing, because 'ai.{door}.enabled' is false" for name in variables]
        elif not names and not by_others:
            warnings.append(f"nobody can use {door.upper()} yet: make a token with `amoxi token NAME --kind {door}`")
    return warnings


def _unknown_variables(keys: Iterable[str], variables: Mapping[str, Found]) -> list[str]:
    known = [variable_of(key) for key in keys]
    warnings = []
    for name in sorted(variables):
        plain = name.removesuffix(FILE)
        if name.startswith("AI_") and plain not in known and not is_caller_variable(plain):
            warnings.append(f"the variable {name!r} is no setting{nearest(name, known)}")
    return warnings


def nearest(name: str, known: Iterable[str], otherwise: str = "; docs/settings.md lists them all") -> str:
    """Name the key that was meant; what all of them begin with makes none of them near."""
    by_rest = {_without_start(key): key for key in known}
    close = difflib.get_close_matches(_without_start(name), list(by_rest), n=1, cutoff=0.7)
    return f"; did you mean {by_rest[close[0]]!r}?" if close else otherwise


def _without_start(name: str) -> str:
    return name.removeprefix("AI_").removeprefix("ai.")
