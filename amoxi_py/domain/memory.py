"""What is remembered of a principal, and what an app's documents say: passages of text in a space of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from amoxi_py.domain.principal import Principal

LONGEST_TEXT: Final = 8000
LONGEST_NAME: Final = 200
LONGEST_METADATA: Final = 4000
MOST_FOUND: Final = 50
DOCS: Final = "docs"
"""The knowledge base where no other is named."""
_OF_PRINCIPAL: Final = "principal:"
_OF_DOCUMENTS: Final = "documents:"


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Something that is remembered of a principal.

    Attributes:
        id: Such as `mem_01a2...`.
        key: The name that it was remembered under, such as `address`; None when it has none. Of one principal there is
            one memory for each key: the newer text takes the older one's place.
        text: At most 8,000 characters.
        metadata: What the app keeps with it: plain JSON, at most 4,000 characters of it.
        created_at: Seconds since 1970.
        updated_at: Seconds since 1970; when the text was written last.
        score: Of a search, how well it fits: above 0, and 1 at the most. None where nothing was searched.
    """

    id: str
    key: str | None = None
    text: str
    metadata: dict[str, Any]
    created_at: float
    updated_at: float
    score: float | None = None


@dataclass(frozen=True, kw_only=True)
class Citation:
    """A passage of an app's documents, with where it stands.

    Attributes:
        source: The path of its file in the folder that was ingested, with `/`.
        place: Where in the file: the headings above it (`Guides > Limits`), or the page (`page 3`); empty if neither.
        text: The passage.
        score: How well it fits: above 0, and 1 at the most.
    """

    source: str
    place: str
    text: str
    score: float


def space_of(principal: Principal) -> str:
    """Return the space of what is remembered of a principal: nobody else's, also not of another tenant's same id."""
    return _OF_PRINCIPAL + principal.owner_key


def space_of_documents(base: str) -> str:
    """Return the space of a knowledge base, by its name."""
    return _OF_DOCUMENTS + base
