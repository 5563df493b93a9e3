"""What the sources of settings hold: values with where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A value, and the name of the file or variable it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What sources say beside the framework's own settings; a section of it may be claimed by the app.

    Attributes:
        files: Of each file its name, and what stands in it beside the framework's sections.
        given: The same of what a command or a test says, by key.
        variables: All variables.
    """

    files: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Found] = field(default_factory=dict)
