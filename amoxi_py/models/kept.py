"""What a model wants to have back with a message, as the text of a JSON object that says whose it is.

A provider refuses, or does not understand, the reasoning of another one; so does a model that of another family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from amoxi_py.domain.encoding import decode_json, encode_json

_RELEASE = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)\Z")


def model_family(model: str) -> str:
    """Return a model's name without the date of its release: an alias and what it stands for are one family."""
    return _RELEASE.sub("", model)


def keep(provider: str, model: str, what: Mapping[str, Any]) -> str:
    """Return the text to be stored with a reply."""
    return encode_json({"provider": provider, "model": model_family(model), **what})


def read_kept(kept: str | None, provider: str, model: str) -> dict[str, Any] | None:
    """Return what was kept by this provider's adapter for a model of this family, or None."""
    value = read_any_kept(kept)
    if value is None or value.get("provider") != provider or value.get("model") != model_family(model):
        return None
    return value


def read_any_kept(kept: str | None) -> dict[str, Any] | None:
    """Return what was kept, whoever kept it, or None when there is nothing that can be read."""
    if kept is None:
        return None
    try:
        value = decode_json(kept)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("provider"), str) else None
