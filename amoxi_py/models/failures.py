"""How a provider's refusal becomes a `ModelFailed`: tables from HTTP statuses and reasons to stable codes.

The provider's own words go into the text for the log and nowhere else; keys are taken out of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from amoxi_py.errors import ModelFailed

_LONGEST = 500
_KEY = re.compile(r"\b(?:sk|pk|key|Bearer)[-_ ][\w*.-]{6,}")

# status -> (code, whether the same request may work later)
_STATUSES: dict[int, tuple[str, bool]] = {
    400: ("model_refused", False),
    401: ("model_key_refused", False),
    402: ("model_quota_exhausted", False),
    403: ("model_key_refused", False),
    404: ("model_unknown", False),
    408: ("model_timeout", True),
    409: ("model_unavailable", True),
    413: ("model_context_too_long", False),
    425: ("model_unavailable", True),
    429: ("model_rate_limited", True),
}

# what providers call it in the body, where that says more than the status
_REASONS: dict[str, tuple[str, bool]] = {
    # OpenAI, and servers that speak its API
    "insufficient_quota": ("model_quota_exhausted", False),
    "billing_hard_limit_reached": ("model_quota_exhausted", False),
    "context_length_exceeded": ("model_context_too_long", False),
    "exceed_context_size_error": ("model_context_too_long", False),
    "content_filter": ("model_content_filtered", False),
    "content_policy_violation": ("model_content_filtered", False),
    "invalid_api_key": ("model_key_refused", False),
    "model_not_found": ("model_unknown", False),
    "rate_limit_exceeded": ("model_rate_limited", True),
    "invalid_request_error": ("model_refused", False),
    # Anthropic
    "authentication_error": ("model_key_refused", False),
    "permission_error": ("model_key_refused", False),
    "billing_error": ("model_quota_exhausted", False),
    "contract_spend_limit_reached": ("model_quota_exhausted", False),
    "enforced_spend_limit_reached": ("model_quota_exhausted", False),
    "linked_organization_spend_limit_reached": ("model_quota_exhausted", False),
    "not_found_error": ("model_unknown", False),
    "request_too_large": ("model_context_too_long", False),
    "request_body_too_large_after_decoding": ("model_context_too_long", False),
    "rate_limit_error": ("model_rate_limited", True),
    "overloaded_error": ("model_unavailable", True),
    "api_error": ("model_unavailable", True),
    "timeout_error": ("model_timeout", True),
}

# those that say less than a status does
_GENERAL = frozenset({"invalid_request_error", "api_error"})

# where neither status nor reason tells it: a request that is too long has one code, whoever says it
_TOO_LONG = re.compile(
    r"prompt is too long|exceed(?:s|ed)? (?:the )?(?:context|available context|maximum context|model's context)"
    r"|maximum (?:context|prompt) length|exceeds the context window|input length and `max_tokens` exceed"
    r"|exceeds the maximum number of tokens|reduce the length of the messages|request too large for (?:model )?"
    r"|tokens \+ `?max_new_tokens`? must be",
    re.IGNORECASE,
)
_NOT_PAID = re.compile(r"credit balance is too low|api usage limits", re.IGNORECASE)


def failure_of_status(
    status: int, text: str, *, reason: str | None = None, retry_after: float | None = None, secret: str = ""
) -> ModelFailed:
    """Return the failure for an HTTP status.

    Args:
        status: What the provider answered with.
        text: Its words, for the log.
        reason: Its own code for it, such as `insufficient_quota`.
        retry_after: Seconds that it asked to wait.
        secret: The key, which must not be in the log.
    """
    code, retryable = _STATUSES.get(status, ("model_unavailable", True) if status >= 500 else ("model_refused", False))
    if reason in _REASONS and not (reason in _GENERAL and status != 400 and (status in _STATUSES or status >= 500)):
        code, retryable = _REASONS[reason]
    if code in ("model_refused", "model_rate_limited", "model_unavailable") and _TOO_LONG.search(text):
        code, retryable = "model_context_too_long", False
    elif code == "model_refused" and _NOT_PAID.search(text):
        code = "model_quota_exhausted"
    return ModelFailed(
        log_text(f"the provider answered {status}: {text}", secret),
        code=code,
        retryable=retryable,
        retry_after=retry_after if retryable else None,
    )


def failure_in_stream(error: object, *, secret: str = "") -> ModelFailed:
    """Return the failure for an error object that came inside of an answer with status 200."""
    told: Mapping[str, object] = error if isinstance(error, Mapping) else {"message": error}
    reasons = [str(told[key]) for key in ("code", "type") if told.get(key) is not None]
    status = next((int(reason) for reason in reasons if reason.isdigit() and len(reason) == 3), 500)
    reason = next((reason for reason in reasons if reason in _REASONS), None)
    return failure_of_status(
        400 if reason is not None and status == 500 else status,
        f"in the stream: {told.get('message')}",
        reason=reason,
        secret=secret,
    )


def no_room_for_words() -> ModelFailed:
    """Return the failure of a reply whose limit was used up, by reasoning, before its first word.

    The same request would end the same way, and cost as much.
    """
    return ModelFailed(
        "the reply came to its limit before its first word; give it more with 'max_tokens', or a smaller 'effort'",
        code="model_reply_cut",
        retryable=False,
    )


def log_text(text: str, secret: str = "") -> str:
    """Return a provider's words as they may be logged: short, on one line, without a key."""
    if secret:
        text = text.replace(secret, "[key]")
    return _KEY.sub("[key]", " ".join(text.split()))[:_LONGEST]
