"""`@tool`: declares that models may call a function or a method; the function itself stays as it was."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from amoxi_py.declare.marks import LocalNames, known_options, local_names, set_mark
from amoxi_py.domain.principal import Principal

F = TypeVar("F")

Approver = str | Callable[..., bool | Awaitable[bool]]
NeedsApproval = bool | Callable[..., Any]
Reconcile = str | Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMark:
    """The options of a tool as they were written; they are checked when the app is built."""

    name: str | None = None
    read_only: bool = False
    idempotent: bool = False
    needs_approval: NeedsApproval = False
    approver: Approver | None = None
    allow: Callable[[Principal], bool] | None = None
    expose: bool = True
    timeout: float | None = None
    retries: int = 0
    reconcile: Reconcile | None = None
    unknown: tuple[str, ...] = ()
    names: LocalNames


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    approver: Approver | None = None,
    allow: Callable[[Principal], bool] | None = None,
    expose: bool = True,
    timeout: float | None = None,
    retries: int = 0,
    reconcile: Reconcile | None = None,
) -> Callable[[F], F]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Let models call a function or a method, with the texts of its docstring and the types of its parameters.

    Args:
        function: What is decorated, when there are no options.
        options: What the second form takes:

            - `name`: on the wire; default the function's. A letter, then letters, digits and `_`, up to 64.
            - `read_only`: it changes nothing, so it may run again at any time.
            - `idempotent`: repeating or overlapping calls with one `call_id` is safe. A tool that is neither is never
              run twice.
            - `needs_approval`: True, or `(ctx, **arguments) -> bool`, asked once per call.
            - `approver`: who decides; default the run's own principal, or `"role:<name>"`, or a function
              `(principal, approval) -> bool`, which gets singletons by the types of its other parameters. Only
              principals of the same tenant as the run's are asked about; a function that fails says no.
            - `allow`: `(principal) -> bool`; for others the tool does not exist.
            - `expose`: False hides it from MCP and A2A.
            - `timeout`: seconds for one try; default none.
            - `retries`: extra tries, default 0; only for a tool that may run again.
            - `reconcile`: a function, or the name of a method, that takes the tool's arguments and its context and
              returns `Done(value)`, `NotDone()` or `Unknown(reason)` after an interruption. It only looks.

    Raises:
        TypeError: a function and options at once. Mistakes in options are told when the app starts, all together.
    """
    if function is not None and options:
        raise TypeError("@tool takes either a function or options")
    known, unknown = known_options(ToolMark, options)
    mark = ToolMark(names=local_names(sys._getframe(1)), unknown=unknown, **known)

    def decorate(function: F) -> F:
        set_mark(function, mark, "tool")
        return function

    return decorate if function is None else decorate(function)
