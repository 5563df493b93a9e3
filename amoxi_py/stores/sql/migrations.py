"""The numbered scripts that bring a store of a dialect up to date."""

from __future__ import annotations

import re
from importlib import resources

Migration = tuple[int, str, str]
"""Its number, its name and its SQL."""

_NAME = re.compile(r"(\d{4})_\w+\.sql")


def load_migrations(package: str) -> list[Migration]:
    """Read the scripts in the folder `migrations` of a package, in order."""
    found = []
    for entry in resources.files(package).joinpath("migrations").iterdir():
        match = _NAME.fullmatch(entry.name)
        if match is not None:
            found.append((int(match[1]), entry.name, entry.read_text(encoding="utf-8")))
    return sorted(found)
