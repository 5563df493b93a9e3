"""What comes with a request to the door: texts that must be storable as they are, and what stands for its content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from amoxi_py.domain.encoding import clean_text, encode_json, ordered_json
from amoxi_py.errors import InvalidRequest


def check_storable(name: str, value: str | None) -> None:
    """Raise `InvalidRequest` for a text that would not be found again, because it cannot be stored as it is."""
    if value is not None and clean_text(value) != value:
        raise InvalidRequest(f"{name} {value!r} holds characters that cannot be stored", code="text_not_storable")


def check_message(
    text: str, most: int, *, files: Sequence[str], conversation_id: str | None, idempotency_key: str | None
) -> None:
    """Raise `InvalidRequest` for a message that is empty or over `most` characters, and for ids that nothing has."""
    if not text.strip() and not files:
        raise InvalidRequest("the message is empty", code="message_empty")
    if len(text) > most:
        raise InvalidRequest(f"the message has {len(text)} characters; the limit is {most}", code="message_too_long")
    check_storable("conversation_id", conversation_id)
    check_storable("idempotency_key", idempotency_key)
    for file in files:
        if not isinstance(file, str):
            raise InvalidRequest(f"files has {file!r:.80} in it; give the ids of files", code="text_not_storable")
        check_storable("files", file)


def digest_of(*parts: Any) -> str:
    """Return the same for requests of the same content, whatever the order of their keys.

    It outlives what it is of, which may be erased or hidden by then, so nothing can be read from it.

    Args:
        parts: Plain JSON values, as they came: what is hidden when it is stored still tells two requests apart.
    """
    return hashlib.sha256(ordered_json(encode_json(parts)).encode()).hexdigest()
