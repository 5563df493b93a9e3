"""How a declaration names a role."""

from __future__ import annotations

import re

_ROLE = re.compile(r"role:\S(.*\S)?")


def is_role(text: str) -> bool:
    """Whether a text is `role:<name>`."""
    return _ROLE.fullmatch(text) is not None
