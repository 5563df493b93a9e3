"""`@authenticate`: the app's own sign-in, asked for each request that brings no token of a caller."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from amoxi_py.declare.asked_function import AskedFunction, RunInThread, read_asked_function
from amoxi_py.declare.callee import Callee
from amoxi_py.declare.definitions import Instances
from amoxi_py.declare.marks import LocalNames, local_names, set_mark
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.domain.encoding import clean_json, clean_text
from amoxi_py.domain.principal import Principal

F = TypeVar("F", bound=Callable[..., Any])
SignIn = Callable[[Any], Awaitable[Principal | None]]

_FORM = "(request) -> Principal | None"
_LONGEST_TEXT = 255  # of an id, a name, a tenant, a role; OpenID Connect Core, section 2, has it for a subject's id
_MOST_ROLES = 200
_MOST_CLAIMS = 4096


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


def sign_in_of(function: AskedFunction, instances: Instances, run_in_thread: RunInThread) -> SignIn:
    """Return the sign-in as a surface asks it; what it returns fits, or it raises `TypeError` or `ValueError`."""

    async def sign_in(request: Any) -> Principal | None:
        found = await function.ask(instances, run_in_thread, request)
        return None if found is None else _checked(found)

    return sign_in


def _checked(found: object) -> Principal:
    """Return the principal that can be stored; messages hold no value, because one may be a secret."""
    if not isinstance(found, Principal):
        raise TypeError(f"@authenticate returned {type(found).__qualname__!r}; return a Principal, or None")
    _check_text("id", found.id)
    if not found.id.strip():
        raise ValueError("@authenticate returned a Principal with an empty id")
    if found.name != "":
        _check_text("name", found.name)
    if found.tenant is not None:
        _check_text("tenant", found.tenant)
    for role in found.roles:
        _check_text("roles", role)
    if len(found.roles) > _MOST_ROLES:
        raise ValueError(f"@authenticate returned a Principal with more than {_MOST_ROLES} roles")
    return Principal(
        id=found.id,
        name=found.name,
        channel="web",
        tenant=found.tenant,
        roles=frozenset(found.roles),
        claims=_claims(found.claims),
    )


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(
            f"@authenticate returned a Principal whose {name!r} holds a {type(value).__qualname__}, not text"
        )
    if len(value) > _LONGEST_TEXT or clean_text(value) != value or any(ord(letter) < 32 for letter in value):
        raise ValueError(
            f"@authenticate returned a Principal whose {name!r} has more than {_LONGEST_TEXT} characters, or one that "
            "is no letter, digit or sign"
        )


def _claims(claims: object) -> dict[str, Any]:
    if not isinstance(claims, Mapping) or not all(isinstance(key, str) for key in claims):
        raise TypeError("@authenticate returned a Principal whose 'claims' are no JSON object")
    try:
        text = json.dumps(dict(claims), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise TypeError("@authenticate returned a Principal whose 'claims' are no JSON object") from None
    if len(text) > _MOST_CLAIMS:
        raise ValueError(
            f"@authenticate returned a Principal whose 'claims' have {len(text)} bytes of JSON; {_MOST_CLAIMS} fit: "
            "keep what is larger in the app, and look it up by the id"
        )
    found: dict[str, Any] = clean_json(json.loads(text))
    return found
