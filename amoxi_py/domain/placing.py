"""Principals that a sign-in or code names: what they may hold, and which id is theirs; only the framework gives it.

Messages hold no value of a principal, because one may be a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amoxi_py.domain.encoding import clean_json, clean_text
from amoxi_py.domain.principal import Channel, Principal
from amoxi_py.errors import InvalidRequest

_PREFIXES: Mapping[Channel, tuple[str, ...]] = {
    "web": ("web:", "user:"),
    "api": ("api:",),
    "mcp": ("mcp:", "user:"),
    "a2a": ("a2a:",),
    "code": ("system:", "user:"),
}
_LONGEST_TEXT = 255  # of an id, a name, a tenant, a role; OpenID Connect Core, section 2, has it for a subject's id
_MOST_ROLES = 200
_MOST_CLAIMS = 4096


def signed_in(found: object) -> Principal:
    """Return what an app's sign-in answered, without a channel; the door that asked it places it.

    Raises:
        InvalidRequest: it is no principal that can be stored.
    """
    return replace(_checked(found), channel=None)


def placed_by_code(found: object) -> Principal:
    """Return the principal that code means: a user of the app by a plain id, or one that has its place already.

    Raises:
        InvalidRequest: it is no principal that can be stored, or its id does not fit its channel.
    """
    if not isinstance(found, Principal) or found.channel is None:
        principal = signed_in(found)
        return replace(principal, id=f"user:{principal.id}", channel="code")
    prefixes = _PREFIXES.get(found.channel, ()) if isinstance(found.channel, str) else ()
    if not prefixes:
        known = ", ".join(map(repr, _PREFIXES))
        raise _invalid(f"the principal has a channel that is none; the channels are: {known}")
    prefix = next((one for one in prefixes if isinstance(found.id, str) and found.id.startswith(one)), None)
    if prefix is None:
        raise _invalid(
            f"the principal's id must begin with {' or '.join(map(repr, prefixes))}, as its channel is "
            f"{found.channel!r}; for a user of the app leave the channel out"
        )
    own = _checked(replace(found, id=found.id.removeprefix(prefix)))
    return replace(own, id=found.id)


def _checked(found: object) -> Principal:
    if not isinstance(found, Principal):
        raise _invalid(f"a {type(found).__qualname__!r} is no principal; give a Principal")
    _check_text("id", found.id)
    if not found.id.strip():
        raise _invalid("the principal's 'id' is empty")
    if found.name != "":
        _check_text("name", found.name)
    if found.tenant is not None:
        _check_text("tenant", found.tenant)
    for role in found.roles:
        _check_text("roles", role)
    if len(found.roles) > _MOST_ROLES:
        raise _invalid(f"the principal has more than {_MOST_ROLES} roles")
    return replace(found, claims=_claims(found.claims))


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise _invalid(f"the principal's {name!r} holds a {type(value).__qualname__}, not text")
    if len(value) > _LONGEST_TEXT or clean_text(value) != value or any(ord(letter) < 32 for letter in value):
        raise _invalid(
            f"the principal's {name!r} has more than {_LONGEST_TEXT} characters, or one that is no letter, digit or "
            "sign"
        )


def _claims(claims: object) -> dict[str, Any]:
    if not isinstance(claims, Mapping) or not all(isinstance(key, str) for key in claims):
        raise _invalid("the principal's 'claims' are no JSON object")
    try:
        text = json.dumps(dict(claims), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise _invalid("the principal's 'claims' are no JSON object") from None
    if len(text) > _MOST_CLAIMS:
        raise _invalid(
            f"the principal's 'claims' have {len(text)} bytes of JSON; {_MOST_CLAIMS} fit: keep what is larger in the "
            "app, and look it up by the id"
        )
    found: dict[str, Any] = clean_json(json.loads(text))
    return found


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="principal_invalid")
