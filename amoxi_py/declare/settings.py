"""`@settings`: pydantic models that claim a section of the settings, and are injected by their type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from amoxi_py.declare.marks import get_mark, set_mark
from amoxi_py.declare.mistakes import Mistakes

C = TypeVar("C", bound=type[Any])

RESERVED = ("app", "server", "ai", "log")
_SECTION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsMark:
    """Says which section a model claims."""

    section: object


def settings(section: str, /) -> Callable[[C], C]:
    """Let a pydantic model claim a section of the settings: `@settings("shop")`.

    Its field `api_url` is the key `shop.api-url`, in `application.json` and the variable `SHOP_API_URL`; a field that
    is a model has keys of its own. Values are checked at the start, and the one instance is injected by its type.

    Args:
        section: Lower-case letters, digits and `-`; `app`, `server`, `ai` and `log` are the framework's own.
    """

    def decorate(cls: C) -> C:
        set_mark(cls, SettingsMark(section=section), "settings")
        return cls

    if isinstance(section, type):  # written without a section; that is told with all other mistakes
        set_mark(section, SettingsMark(section=None), "settings")
        return section
    return decorate


def section_of(cls: type[Any]) -> str:
    """Return the section that a model claims, which was checked."""
    mark = get_mark(cls, SettingsMark)
    assert mark is not None
    return str(mark.section)


def check_settings(classes: Iterable[type[Any]], mistakes: Mistakes) -> None:
    """Note what is wrong with the classes that claim sections."""
    from pydantic import BaseModel
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

    taken: dict[str, type[Any]] = {}
    for cls in classes:
        where = settings_where(cls)
        if not issubclass(cls, BaseModel):
            mistakes.add(where, "@settings is for pydantic models; let the class inherit from `pydantic.BaseModel`")
        else:
            try:
                cls.model_rebuild()
            except (PydanticUndefinedAnnotation, PydanticUserError, NameError) as error:
                mistakes.add(where, f"its fields cannot be read: {str(error).splitlines()[0]}")
        mark = get_mark(cls, SettingsMark)
        section = None if mark is None else mark.section
        if section is None:
            mistakes.add(where, 'it names no section; write @settings("shop")')
        elif not isinstance(section, str) or not _SECTION.fullmatch(section):
            mistakes.add(where, f"the section {section!r} must be lower-case letters, digits and `-`, such as 'shop'")
        elif section.split("-")[0] in RESERVED:
            mistakes.add(
                where,
                f"the section {section!r} is the framework's own, as all that begin with {', '.join(RESERVED)}; "
                "name it after your app",
            )
        elif section in taken:
            mistakes.add(where, f"the section {section!r} is claimed by {taken[section].__qualname__!r} too; join them")
        else:
            taken[section] = cls


def is_settings(kind: Any) -> bool:
    """Whether a type is a model that claims a section."""
    return isinstance(kind, type) and get_mark(kind, SettingsMark) is not None


def settings_where(cls: type[Any]) -> str:
    """Return how messages name a settings class."""
    return f"{cls.__module__}: settings {cls.__qualname__!r}"
