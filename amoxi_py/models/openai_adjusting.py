"""What a server has refused of a request and could be asked without: one more try, and remembered for later requests.

Which options a model takes changes with every generation of models and differs from server to server, so what is
learned from a refusal holds longer than any list of names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from amoxi_py.models.openai_body import REASONING_FIELDS

_SAMPLING = (
    "temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs",
    "seed",
)  # fmt: skip
_SPARED = ("stream_options", "parallel_tool_calls")
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_REFUSES = re.compile(
    r"unsupported|not supported|does not support|doesn't support|unrecogni[sz]ed|not permitted|extra_forbidden"
    r"|not allowed|unknown (?:field|name|parameter|argument)",
    re.IGNORECASE,
)
_A_VALUE = re.compile(r"unsupported value|invalid value|supported values", re.IGNORECASE)
_TOOLS_AND_EFFORT = re.compile(r"\btools?\b.*\breasoning_effort\b|\breasoning_effort\b.*\btools?\b", re.IGNORECASE)
_REASONING = re.compile(rf"\b(?:{'|'.join(REASONING_FIELDS)})\b")
_THINKING = re.compile(r"does not support (?:thinking|reasoning)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustments:
    """What requests to one model are sent without, or otherwise, because its server refuses them as they are.

    Attributes:
        without: Names of options that are left out.
        limit: The name for the longest reply that it takes, where that is not the server's usual one.
        reasoning: Whether reasoning is given back.
        no_effort: Whether tools are only taken by a model that is told not to reason.
    """

    without: frozenset[str] = frozenset()
    limit: str | None = None
    reasoning: bool = True
    no_effort: bool = False

    def __or__(self, other: Adjustments) -> Adjustments:
        return Adjustments(
            without=self.without | other.without,
            limit=other.limit or self.limit,
            reasoning=self.reasoning and other.reasoning,
            no_effort=self.no_effort or other.no_effort,
        )

    def fit(self, body: dict[str, Any]) -> None:
        """Change the parameters of a request, its reasoning excepted."""
        for name in self.without:
            body.pop(name, None)
        if self.limit is not None:
            for name in _LIMITS.keys() - {self.limit}:
                if name in body:
                    body[self.limit] = body.pop(name)
        if self.no_effort and body.get("tools") and "reasoning_effort" not in self.without:
            body["reasoning_effort"] = "none"

    def after(self, refusal: str, body: dict[str, Any]) -> tuple[Adjustments, str] | None:
        """Return what the refused request can be sent with, and what it says of the model; None when nothing can.

        What is returned always leaves out more than this one, so tries of one request come to an end.
        """
        if not _REFUSES.search(refusal):
            return None
        if body.get("tools") and not self.no_effort and _TOOLS_AND_EFFORT.search(refusal):
            told = "takes tools at this API only without reasoning; it is asked with the effort 'none'"
            return replace(self, no_effort=True), told
        if self.reasoning and _gives_reasoning(body) and _REASONING.search(refusal):
            return replace(self, reasoning=False), "does not take its own reasoning back; it is asked without"
        for name, other in _LIMITS.items():
            if name in body and self.limit is None and _names(refusal, name):
                return replace(self, limit=other), f"takes no {name!r}; it is asked with {other!r}"
        for name in (*_SAMPLING, *_SPARED, "reasoning_effort"):
            if name not in body or name in self.without or not _names(refusal, name):
                continue
            if name != "reasoning_effort" or not _A_VALUE.search(refusal):
                return replace(self, without=self.without | {name}), f"takes no {name!r}; it is left out"
        return None


def _names(refusal: str, name: str) -> bool:
    if name == "reasoning_effort" and _THINKING.search(refusal):
        return True
    return re.search(rf"\b{name}\b", refusal) is not None


def _gives_reasoning(body: dict[str, Any]) -> bool:
    return any(name in message for message in body["messages"] for name in REASONING_FIELDS)
