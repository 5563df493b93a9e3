"""`@redact`: what hides in every text before it is stored or logged; the function itself stays as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from amoxi_py.declare.marks import LocalNames, known_options, local_names, set_mark

F = TypeVar("F", bound=Callable[..., str])


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactMark:
    """What a function was declared with, as it was written; it is checked when the app is built."""

    longest: int | None = None
    unknown: tuple[str, ...] = ()
    names: LocalNames


@overload
def redact(function: F, /) -> F: ...
@overload
def redact(*, longest: int) -> Callable[[F], F]: ...
def redact(function: Any = None, /, **options: Any) -> Any:
    """Have a function applied to every text before it is stored or logged: `(text: str) -> str`.

    What it hides is hidden for everybody: people, models and tools get the stored text. It is called often and from any
    thread, so it is quick, not async, and applied to its own result it changes nothing. When it raises, the whole text
    is hidden. It may be a method of a `@singleton`. Several are applied in the order of their declaration.

    Args:
        function: The function, when there are no options.
        options: What the second form takes:

            - `longest`: no text that it hides, with what it looks at around it, is longer than this many characters. An
              answer of a model is then shown while it comes, so many characters behind; else when it is whole.
    """
    if function is not None and options:
        raise TypeError("@redact takes either a function or options")
    known, unknown = known_options(RedactMark, options)
    mark = RedactMark(names=local_names(sys._getframe(1)), unknown=unknown, **known)

    def decorate(target: F) -> F:
        set_mark(target, mark, "redact")
        return target

    return decorate if function is None else decorate(function)
