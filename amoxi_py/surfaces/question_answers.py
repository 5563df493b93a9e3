"""From what somebody writes in answer to a question to the value that the question's schema asks for."""

from __future__ import annotations

from typing import Any

from amoxi_py.domain.encoding import clean_json, decode_json
from amoxi_py.errors import ValueNotStorable


def answer_from_text(schema: str | None, text: str) -> Any:
    """Return the answer to a question: a text, or where the question's schema asks for something else, that value."""
    if schema is None or decode_json(schema).get("type") == "string":
        return text
    try:
        return clean_json(decode_json(text))
    except (ValueError, ValueNotStorable):
        return text
