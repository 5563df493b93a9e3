"""`@provides`: functions that give what their return type says; and `Inject`, by which a tool asks for such a thing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from amoxi_py.declare.marks import LocalNames, known_options, local_names, set_mark

F = TypeVar("F", bound=Callable[..., Any])

PROCESS = "process"
CALL = "call"


class Inject:
    """Says in `db: Annotated[Session, Inject]` that a parameter gets what is provided for its type; no model sees it.

    Tools take it, and so do `needs_approval`, `reconcile` and an agent's `instructions`. What is there once per process
    (a `@singleton`, a `@settings` model, what `@provides` gives) and what there is once per call are asked for alike.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvidesMark:
    """The options of a provider as they were written; they are checked when the app is built."""

    scope: object = PROCESS
    unknown: tuple[str, ...] = ()
    names: LocalNames


@overload
def provides(function: F, /) -> F: ...
@overload
def provides(*, scope: Literal["process", "call"] = "process") -> Callable[[F], F]: ...
def provides(function: Any = None, /, **options: Any) -> Any:
    """Let a function give what its return type says: to constructors by type, to tools by `Annotated[..., Inject]`.

    A generator's `yield` gives the thing, and what stands behind it closes it. Sync or async, it runs on the event
    loop; its own parameters are injected by type, and with `scope="call"` also `RunContext`, the run that calls.

    Args:
        function: What is decorated, when there are no options.
        options: What the second form takes:

            - `scope`: `"process"` (the default): made once when the process starts, closed when it stops; or `"call"`:
              made for one attempt of one tool call that asks for it. It is closed when the attempt ends, before its
              result is recorded, and the tool's error, a timeout and a cancel are raised at the `yield`.

    Raises:
        TypeError: a function and options at once. Mistakes in options are told when the app starts, all together.
    """
    if function is not None and options:
        raise TypeError("@provides takes either a function or options")
    known, unknown = known_options(ProvidesMark, options)
    mark = ProvidesMark(names=local_names(sys._getframe(1)), unknown=unknown, **known)

    def decorate(function: F) -> F:
        set_mark(function, mark, "provides")
        return function

    return decorate if function is None else decorate(function)
