"""How a provider's refusal becomes a `ModelFailed`: one table from HTTP statuses to stable codes.

The provider's own words go into the text for the log and nowhere else; keys are taken out of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

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
    425: ("model_unavailable", True),
    429: ("model_rate_limited", True),
}

# what providers call it in the body, where that says more than the status
_REASONS: dict[str, tuple[str, bool]] = {
    "insufficient_quota": ("model_quota_exhausted", False),
    "billing_hard_limit_reached": ("model_quota_exhausted", False),
    "context_length_exceeded": ("model_context_too_long", False),
    "content_filter": ("model_content_filtered", False),
    "content_policy_violation": ("model_content_filtered", False),
    "invalid_api_key": ("model_key_refused", False),
    "model_not_found": ("model_unknown", False),
    "rate_limit_exceeded": ("model_rate_limited", True),
    "invalid_request_error": ("model_refused", False),
}


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
    if reason in _REASONS and (status < 500 or reason != "invalid_request_error"):
        code, retryable = _REASONS[reason]
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


def log_text(text: str, secret: str = "") -> str:
    """Return a provider's words as they may be logged: short, on one line, without a key."""
    if secret:
        text = text.replace(secret, "[key]")
    return _KEY.sub("[key]", " ".join(text.split()))[:_LONGEST]


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a `Retry-After` asks for (RFC 9110: seconds, or a date), or None."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
