"""The options of a model that have a meaning of our own: what they may be, told when the process starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from amoxi_py.errors import ConfigError, ModelFailed
from amoxi_py.models.openai_servers import SERVERS
from amoxi_py.models.sent_files import FORM_NAMES

LONGEST_REQUEST_S: Final = 3600.0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_forms(value: object) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(isinstance(name, str) and name in FORM_NAMES for name in value)
    return isinstance(value, bool)


def _are_headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(part, str) for item in value.items() for part in item)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "show_files": (_are_forms, f"True, False or a list of {list(FORM_NAMES)}"),
    "timeout": (lambda value: _is_number(value) and 0 < value < float("inf"), "a number of seconds above 0"),
    "server": (lambda value: isinstance(value, str) and value in SERVERS, f"one of {list(SERVERS)}"),
    "max_tokens": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value > 0,
        "a whole number",
    ),
    "effort": (lambda value: isinstance(value, str), "a text such as 'low'"),
    "temperature": (_is_number, "a number"),
    "top_p": (_is_number, "a number"),
    "extra_headers": (_are_headers, "texts by the names of headers"),
    "cache_control": (lambda value: isinstance(value, Mapping), "a mark such as {'type': 'ephemeral'}, or None"),
}


def options_problems(options: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the options of a model, one sentence each; those of providers are not known here."""
    return [
        f"the option {name!r} is {options[name]!r}; it may be {what}"
        for name, (fits, what) in _CHECKS.items()
        if options.get(name) is not None and not fits(options[name])
    ]


def checked_options(options: Mapping[str, Any] | None, *, model: str) -> dict[str, Any]:
    """Return the options that a model is made with; raise `ConfigError` for those that cannot be."""
    found = dict(options or {})
    problems = options_problems(found)
    if problems:
        raise ConfigError(*(f"the model {model!r}: {problem}" for problem in problems))
    return found


def request_options(own: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a request: those of the model, and on top those of the request itself.

    Raises:
        ModelFailed: one of the request's cannot be; a hook may have changed it.
    """
    problems = options_problems(request) if request else []
    if problems:
        raise ModelFailed("; ".join(problems), code="model_refused", retryable=False)
    return {**own, **request}


def longest(options: dict[str, Any]) -> float:
    """Return the seconds that a request may take in all."""
    value = options.get("timeout")
    return LONGEST_REQUEST_S if value is None else float(value)
