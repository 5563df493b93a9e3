"""Servers that speak OpenAI's API, and the rules in which they differ; told by the host, or by the option `server`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from amoxi_py.models.sent_files import Form

OPENAI_ADDRESS: Final = "https://api.openai.com/v1"
ALL_FORMS: frozenset[Form] = frozenset({"picture", "pdf", "text"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIServer:
    """The rules of one server.

    Attributes:
        forms: The forms in which it can be shown files; a PDF as a part of a message is refused by most.
        limit: Its name for the longest reply.
        reasoning: Whether it may be given its reasoning back; refused as an unknown field by some.
        short_ids: Whether ids of calls must be nine letters or digits.
        reply_after_results: Whether a person's message may not follow directly on results of calls.
        stream_options: Whether it knows the option that asks for usage in a stream; one that does not tells it anyway.
        signed_calls: Whether a call must have the signature that it came with, or a mark that it has none.
    """

    forms: frozenset[Form] = ALL_FORMS - {"pdf"}
    limit: str = "max_tokens"
    reasoning: bool = True
    short_ids: bool = False
    reply_after_results: bool = False
    stream_options: bool = True
    signed_calls: bool = False


OTHER: Final = OpenAIServer()
SERVERS: Final[dict[str, OpenAIServer]] = {
    "openai": OpenAIServer(forms=ALL_FORMS, limit="max_completion_tokens", reasoning=False),
    "mistral": OpenAIServer(reasoning=False, short_ids=True, reply_after_results=True, stream_options=False),
    "gemini": OpenAIServer(reasoning=False, signed_calls=True),
    "openrouter": OpenAIServer(forms=ALL_FORMS),
    "other": OTHER,
}
_DOMAINS: Final = {
    "openai.com": "openai",
    "openai.azure.com": "openai",
    "cognitiveservices.azure.com": "openai",
    "mistral.ai": "mistral",
    "generativelanguage.googleapis.com": "gemini",
    "openrouter.ai": "openrouter",
}


def server_at(address: str, named: str | None = None) -> OpenAIServer:
    """Return the rules of the server at an address, or those that `named` says it keeps to."""
    if named is not None:
        return SERVERS[named]
    host = urlsplit(address).hostname or ""
    for domain, name in _DOMAINS.items():
        if host == domain or host.endswith(f".{domain}"):
            return SERVERS[name]
    return OTHER
