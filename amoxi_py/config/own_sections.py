"""Sections of an app's own: the keys of its `@settings` models, their values from all sources, and what is wrong.

What of the files belongs to no section of the framework is kept until the app's package was searched, because only then
it is known who claims it.
"""

from __future__ import annotations

import collections.abc
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, Secret, SecretBytes, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from amoxi_py.config.found import Found
from amoxi_py.config.load import FROM_VARIABLE, GIVEN, PROFILE_VARIABLE, PROVIDER_VARIABLES, bad_value, nearest
from amoxi_py.config.sections import known_keys, variable_of
from amoxi_py.config.settings import Settings
from amoxi_py.config.sources import FILE, flatten, resolve_secret_file
from amoxi_py.declare.annotations import members
from amoxi_py.declare.settings import section_of
from amoxi_py.errors import ConfigError

_SECRETS = (SecretStr, SecretBytes, Secret)
_PLACES = "put it into application.json, or set the variable {}"
_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Set)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKey:
    """A key that a field of a model makes.

    Attributes:
        key: Such as `shop.api-url`.
        attributes: The fields on the way to it, as the model has them.
        inputs: The same as the model reads them, where it has aliases.
        kind: The type of its value.
        secret: Whether its value is never shown.
        required: Whether it has no default.
    """

    key: str
    attributes: tuple[str, ...]
    inputs: tuple[str, ...]
    kind: Any
    secret: bool
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnValue:
    """What one key is set to: None for the value when it is not set, `source` None when nobody has set it."""

    key: str
    value: Any
    secret: bool
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSections:
    """The sections that an app claims.

    Attributes:
        models: The checked instances, by class.
        values: What each of their keys is set to.
        problems: What stops the start.
        warnings: What looks like a mistake but stops nothing.
        secrets: Texts that must not be shown.
    """

    models: Mapping[type[Any], Any]
    values: tuple[OwnValue, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def load_own_sections(
    settings: Settings, claimed: Iterable[type[BaseModel]], replaced: Collection[Any] = ()
) -> OwnSections:
    """Make the models of an app's own sections; those that are replaced are not made.

    Raises:
        ConfigError: a key is unknown or a value bad; all mistakes at once, and no secret in any of them.
    """
    own = examine_own_sections(settings, claimed, replaced)
    if own.problems:
        raise ConfigError(*own.problems, warnings=own.warnings)
    return own


def examine_own_sections(
    settings: Settings, claimed: Iterable[type[BaseModel]], replaced: Collection[Any] = ()
) -> OwnSections:
    """Do the same as `load_own_sections`, and return what is wrong beside the models that could be made."""
    keys = {cls: tuple(keys_of(cls, section_of(cls))) for cls in claimed}
    problems = _shared_variables([key for of_class in keys.values() for key in of_class])
    found = _find(settings, keys, problems)
    models: dict[type[Any], Any] = {}
    secrets: list[str] = []
    for cls, own in keys.items():
        of_class = _secrets_in(own, found)
        secrets += of_class
        if cls not in replaced:
            model = _Reading(cls, own, found, of_class).read(problems)
            if model is not None:
                models[cls] = model
    values = [value for cls, own in keys.items() if cls in models for value in _values(models[cls], own, found)]
    return OwnSections(
        models=models,
        values=tuple(values),
        problems=tuple(problems),
        warnings=(*_near_variables(settings, keys), *_secrets_in_files(settings, keys)),
        secrets=tuple(secrets),
    )


def keys_of(
    model: type[BaseModel],
    prefix: str,
    attributes: tuple[str, ...] = (),
    inputs: tuple[str, ...] = (),
    around: tuple[type[BaseModel], ...] = (),
) -> Iterator[OwnKey]:
    """Yield the keys of a model; a field that is a model has keys of its own."""
    for name, field in model.model_fields.items():
        key = f"{prefix}.{name.replace('_', '-')}"
        path, read = (*attributes, name), (*inputs, _input_name(name, field))
        nested = _nested(field.annotation)
        if nested is not None and nested not in (model, *around):
            yield from keys_of(nested, key, path, read, (model, *around))
            continue
        secret, required = _is_secret(field.annotation), field.is_required()
        yield OwnKey(key=key, attributes=path, inputs=read, kind=field.annotation, secret=secret, required=required)


def _input_name(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    return alias if isinstance(alias, str) else name


def _nested(annotation: Any) -> type[BaseModel] | None:
    kinds = members(annotation)
    only = kinds[0] if len(kinds) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _is_secret(annotation: Any) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, _SECRETS):
        return True
    return get_origin(annotation) is Secret or any(_is_secret(part) for part in get_args(annotation))


def _shared_variables(keys: Iterable[OwnKey]) -> list[str]:
    problems = []
    taken = {variable_of(key): f"the setting {key!r}" for key in known_keys()}
    taken |= dict.fromkeys((PROFILE_VARIABLE, *PROVIDER_VARIABLES), "the framework")
    for key in keys:
        variable = variable_of(key.key)
        if variable in taken:
            problems.append(f"{key.key!r} would be the variable {variable}, as {taken[variable]} is: rename the field")
        taken[variable] = f"the setting {key.key!r}"
    return problems


def _find(settings: Settings, keys: Mapping[type[Any], Iterable[OwnKey]], problems: list[str]) -> dict[str, Found]:
    """Return what the sources say by key, later ones before earlier ones; note what no model has a field for."""
    by_key = {key.key: key for of_class in keys.values() for key in of_class}
    found: dict[str, Found] = {}
    for source, content in (*settings.others.files, (GIVEN, settings.others.given)):
        once: dict[str, Found] = {}
        for name, value in content.items():
            _walk(name, value, source, by_key, once, problems)
        if source == GIVEN:
            found |= _from_variables(by_key, settings.others.variables, problems)
        found |= once
    return found


def _walk(
    key: str, value: Any, source: str, keys: Mapping[str, OwnKey], found: dict[str, Found], problems: list[str]
) -> None:
    if value is None:
        return
    if key in keys:
        if key in found:
            problems.append(f"{source} sets {key!r} twice: keep one")
        found[key] = Found(value=value, source=source)
    elif isinstance(value, dict) and any(known.startswith(f"{key}.") for known in keys):
        for name, inner in value.items():
            _walk(f"{key}.{name}", inner, source, keys, found, problems)
    else:
        unknown = flatten(value, f"{key}.") if isinstance(value, dict) else [(key, value)]
        problems += [_unknown(name, source, keys) for name, _ in unknown]


def _unknown(key: str, source: str, keys: Mapping[str, OwnKey]) -> str:
    section = key.split(".")[0]
    own = [known for known in keys if known.startswith(f"{section}.")]
    hint = nearest(key, own or (*known_keys(), *keys), "")
    if not hint and own:
        hint = f"; the section {section!r} has: {', '.join(own)}"
    elif not hint:
        hint = f"; no @settings model claims the section {section!r}"
    return f"{key!r} in {source} is no setting{hint}"


def _from_variables(
    keys: Mapping[str, OwnKey], variables: Mapping[str, Found], problems: list[str]
) -> dict[str, Found]:
    known = {variable_of(key) for key in keys}
    found = {}
    for key in keys.values():
        variable = variable_of(key.key)
        given = variables.get(variable)
        if key.secret and variable + FILE not in known:
            given = resolve_secret_file(variable, variables, problems)
        if given is not None:
            found[key.key] = Found(value=_from_text(key.kind, str(given.value)), source=given.source)
    return found


def _from_text(kind: Any, text: str) -> Any:
    """Return what a text of the environment means: lists with commas, and lists and objects as JSON."""
    kinds = [get_origin(one) or one for one in members(kind)]
    if any(isinstance(one, type) and issubclass(one, (str, bytes, *_SECRETS)) for one in kinds):
        return text
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    if any(one in _LISTS for one in kinds):
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


class _Reading:
    """One model, made of what was found; what does not fit is noted by key."""

    def __init__(
        self, cls: type[BaseModel], keys: Iterable[OwnKey], found: Mapping[str, Found], secrets: Iterable[str]
    ) -> None:
        self._cls = cls
        self._keys = {key.inputs: key for key in keys}
        self._found = found
        self._secrets = secrets

    def read(self, problems: list[str]) -> BaseModel | None:
        try:
            return self._cls.model_validate(self._input())
        except ValidationError as error:
            problems += [self._problem(one) for one in error.errors(include_url=False, include_context=False)]
        except Exception as error:  # noqa: BLE001 - a boundary: a model's own code may raise anything
            section = section_of(self._cls)
            problems.append(f"{section!r}: its model {self._cls.__qualname__!r} raised {type(error).__qualname__}")
        return None

    def _input(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for path, key in self._keys.items():
            inner = values
            if key.key in self._found or key.required:
                for name in path[:-1]:
                    inner = inner.setdefault(name, {})
            if key.key in self._found:
                inner[path[-1]] = self._found[key.key].value
        return values

    def _problem(self, mistake: Any) -> str:
        location = tuple(str(part) for part in mistake["loc"])
        ends = range(len(location), 0, -1)
        key = next((self._keys[location[:end]] for end in ends if location[:end] in self._keys), None)
        message = self._without_secrets(mistake["msg"])
        if key is None:
            section = ".".join((section_of(self._cls), *location))
            return f"{section!r}: {message.removeprefix('Value error, ')}"
        if key.key not in self._found:
            variable = variable_of(key.key)
            where = f"set the variable {variable}, or {variable}{FILE}" if key.secret else _PLACES.format(variable)
            return f"{key.key!r} is not set, and has no default: {where}"
        return bad_value(key.key, self._found[key.key], message, secret=key.secret)

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _secrets_in(keys: Iterable[OwnKey], found: Mapping[str, Found]) -> list[str]:
    """Return the texts that were found for keys whose values are never shown."""
    return [text for key in keys if key.secret and key.key in found for text in _texts(found[key.key].value)]


def _texts(value: Any) -> list[str]:
    """Return the texts in a value, longer ones first."""
    if isinstance(value, dict):
        found = [text for inner in value.values() for text in _texts(inner)]
    elif isinstance(value, list):
        found = [text for inner in value for text in _texts(inner)]
    else:
        found = [str(value)]
    return sorted((text for text in found if text), key=len, reverse=True)


def _values(model: BaseModel, keys: Iterable[OwnKey], found: Mapping[str, Found]) -> Iterator[OwnValue]:
    for key in keys:
        value: Any = model
        for name in key.attributes:
            value = getattr(value, name, None)
        source = found[key.key].source if key.key in found else None
        yield OwnValue(key=key.key, value=value, secret=key.secret, source=source)


def _secrets_in_files(settings: Settings, keys: Mapping[type[Any], Iterable[OwnKey]]) -> Iterator[str]:
    """Yield which secrets stand in files of settings, also where a variable wins: only the app knows if they may."""
    by_key = {key.key: key for own in keys.values() for key in own}
    for source, content in settings.others.files:
        found: dict[str, Found] = {}
        for name, value in content.items():
            _walk(name, value, source, by_key, found, [])
        for key in found:
            if by_key[key].secret:
                yield f"{key!r} from {source} is a secret, and {FROM_VARIABLE.format(variable_of(key))}"


def _near_variables(settings: Settings, keys: Mapping[type[Any], Iterable[OwnKey]]) -> Iterator[str]:
    """Yield what looks like a misspelt variable; others may begin with the section's name by chance."""
    for cls, own in keys.items():
        start = variable_of(section_of(cls)) + "_"
        known = [variable_of(key.key) for key in own]
        for name in sorted(settings.others.variables):
            if name.startswith(start) and name not in known and name.removesuffix(FILE) not in known:
                hint = nearest(name, known, "")
                if hint:
                    yield f"the variable {name!r} is no setting{hint}"
