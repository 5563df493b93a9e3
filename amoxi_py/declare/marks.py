"""Marks that decorators leave on what they decorate, and how the scan finds them again; nothing else is changed."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import FrameType, MethodType
from typing import Any, TypeVar

M = TypeVar("M")

_MARKS = "__amoxi_marks__"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNames:
    """Names that annotations may use and that no module has: of the function around, and of the class bodies around."""

    function: Mapping[str, Any] = field(default_factory=dict)
    classes: Mapping[str, Any] = field(default_factory=dict)


def local_names(frame: FrameType | None) -> LocalNames:
    """Return the names seen from a frame in which something is being declared; none in a module's own frame."""
    classes: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name != "<module>":
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return LocalNames(function=dict(frame.f_locals), classes=classes)
        for name, value in frame.f_locals.items():
            if not hasattr(builtins, name):  # a method named `list` must not hide the type in its neighbours
                classes.setdefault(name, value)
        frame = frame.f_back
    return LocalNames(classes=classes)


def known_options(mark: type[Any], options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Part the options of a decorator into those that its mark has, and the names of the others.

    The others are mistakes like any other: they are told with all of them, and hide none.
    """
    names = option_names(mark)
    known = {name: value for name, value in options.items() if name in names}
    return known, tuple(name for name in options if name not in names)


def option_names(mark: type[Any]) -> tuple[str, ...]:
    """Return the options that a decorator takes, by its mark."""
    return tuple(field.name for field in fields(mark) if field.name not in ("names", "unknown"))


def set_mark(target: Any, mark: object, decorator: str) -> None:
    """Leave a mark on a function, a class or a callable object.

    Raises:
        TypeError: the target cannot carry one.
    """
    carrier = target.__func__ if isinstance(target, (classmethod, staticmethod)) else target
    if not callable(carrier) or isinstance(carrier, MethodType):
        raise TypeError(f"@{decorator} cannot mark {target!r}; decorate the function or the class where it is defined")
    marks = (*_marks(carrier), mark)
    try:
        setattr(carrier, _MARKS, marks)
    except (AttributeError, TypeError):
        raise TypeError(f"@{decorator} cannot mark {target!r}; wrap it in a function of yours") from None


def get_mark(target: Any, kind: type[M]) -> M | None:
    """Return the newest mark of a kind that was left on exactly this thing (a subclass does not inherit marks)."""
    found = [mark for mark in _marks(target) if isinstance(mark, kind)]
    return found[-1] if found else None


def _marks(target: Any) -> tuple[Any, ...]:
    if isinstance(target, (MethodType, classmethod, staticmethod)):
        target = target.__func__
    try:
        own = object.__getattribute__(target, "__dict__") if not isinstance(target, type) else vars(target)
    except AttributeError:
        return ()
    marks = own.get(_MARKS, ()) if isinstance(own, Mapping) else ()
    return marks if isinstance(marks, tuple) else ()
