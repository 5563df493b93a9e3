"""`@authenticate`: the app's own sign-in, asked for each request that brings no token of a caller."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from amoxi_py.declare.asked_function import AskedFunction, RunInThread, read_asked_function
from amoxi_py.declare.callee import Callee
from amoxi_py.declare.definitions import Instances
from amoxi_py.declare.marks import LocalNames, local_names, set_mark
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.domain.placing import signed_in
from amoxi_py.domain.principal import Principal

F = TypeVar("F", bound=Callable[..., Any])

_FORM = "(request) -> Principal | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticateMark:
    """Says that a function is the app's sign-in; `names` are those that its annotations may use."""

    names: LocalNames


def authenticate(function: F) -> F:
    """Have a function asked who sends a request: `(request) -> Principal | None`; one in an app.

    It gets a Starlette `Request`, and singletons by the types of its other parameters. It may be sync (it is asked in a
    thread) or async. It returns `Principal(id="42", ...)`, which is stored as `user:42`, or None for somebody that it
    does not know: then the request is a visitor's where visitors are welcome. It raises `NotAuthenticated` for a
    sign-in that does not hold, such as an expired one: the answer is 401.
    """
    set_mark(function, AuthenticateMark(names=local_names(sys._getframe(1))), "authenticate")
    return function


def read_authenticate(callee: Callee, mark: AuthenticateMark, where: str, mistakes: Mistakes) -> AskedFunction | None:
    """Return how the sign-in is asked, or None when it cannot be (and note why)."""
    return read_asked_function(callee, _FORM, 1, "@authenticate", mark.names, where, mistakes)


async def ask_sign_in(
    function: AskedFunction, instances: Instances, run_in_thread: RunInThread, request: Any
) -> Principal | None:
    """Return who the app's sign-in says that asks; what it answers can be stored, or `InvalidRequest` is raised."""
    found = await function.ask(instances, run_in_thread, request)
    return None if found is None else signed_in(found)
