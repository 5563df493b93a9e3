"""From what a provider says to a stable code: statuses, reasons, wordings, waits, and what may be logged of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from amoxi_py.domain.retry import read_retry_after
from amoxi_py.models.failures import failure_in_stream, failure_of_status, log_text


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (400, "invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
        (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000"),
        (413, "request_too_large", "Request exceeds the maximum size"),
        (400, "context_length_exceeded", "Your input exceeds the context window of this model."),
        (400, "BadRequestError", "This model's maximum context length is 4097 tokens. However, you requested 4120"),
        (400, "invalid_request_error", "Please reduce the length of the messages or completion."),
        (400, "exceed_context_size_error", "the request exceeds the available context size, try increasing it"),
        (413, "rate_limit_exceeded", "Request too large for model `x` on tokens per minute (TPM): Limit 6000"),
        (429, "rate_limit_exceeded", "Request too large for gpt-4 on tokens per min (TPM): Limit 30000"),
        (400, "INVALID_ARGUMENT", "The input token count (2000000) exceeds the maximum number of tokens allowed"),
        (400, None, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
        (422, "validation", "`inputs` tokens + `max_new_tokens` must be <= 4096"),
    ],
)
def test_a_request_that_is_too_long_has_one_code_whoever_says_it(status: int, reason: str | None, text: str) -> None:
    failed = failure_of_status(status, text, reason=reason, retry_after=5)
    assert (failed.code, failed.retryable, failed.retry_after) == ("model_context_too_long", False, None)


@pytest.mark.parametrize(
    ("status", "reason", "text", "code", "retryable"),
    [
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the API",
            "model_quota_exhausted",
            False,
        ),
        (400, "invalid_request_error", "You have reached your API usage limits", "model_quota_exhausted", False),
        (400, "invalid_request_error", "max_tokens: must be positive", "model_refused", False),
        (408, "invalid_request_error", "timed out", "model_timeout", True),
        (503, "invalid_request_error", "overloaded", "model_unavailable", True),
        (429, "api_error", "slow down", "model_rate_limited", True),
        (429, "rate_limit_exceeded", "Rate limit reached: Limit 30000, Used 29000", "model_rate_limited", True),
        (418, None, "no", "model_refused", False),
        (599, None, "no", "model_unavailable", True),
    ],
)
def test_a_reason_counts_where_it_says_more_than_the_status(
    status: int, reason: str | None, text: str, code: str, retryable: bool
) -> None:
    failed = failure_of_status(status, text, reason=reason)
    assert (failed.code, failed.retryable) == (code, retryable)


def test_an_error_in_the_stream_is_classed_by_what_it_says() -> None:
    assert failure_in_stream({"message": "slow down", "code": "rate_limit_exceeded"}).code == "model_rate_limited"
    assert failure_in_stream({"message": "too long", "code": "context_length_exceeded"}).retryable is False
    assert failure_in_stream({"message": "bad gateway", "code": 502}).code == "model_unavailable"
    assert failure_in_stream({"message": "Overloaded", "type": "overloaded_error"}).retryable is True
    assert failure_in_stream({"message": "Oops", "type": "api_error"}).code == "model_unavailable"
    assert failure_in_stream("what?").code == "model_unavailable"


def test_a_wait_may_be_a_date_or_in_milliseconds_and_nonsense_is_none() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < (read_retry_after({"retry-after": later}) or 0) <= 100
    assert read_retry_after({"retry-after-ms": "1500", "retry-after": "2"}) == 1.5
    assert read_retry_after({"retry-after": "soon"}) is None
    assert read_retry_after({"retry-after-ms": "nan"}) is None
    assert read_retry_after({}) is None


def test_a_date_is_taken_against_the_answers_own_date() -> None:
    sent, then = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 0, 0, 30, tzinfo=UTC)
    dates = {"date": format_datetime(sent, usegmt=True), "retry-after": format_datetime(then, usegmt=True)}
    assert read_retry_after(dates) == 30
    assert read_retry_after({**dates, "date": "today"}) is None
    assert read_retry_after({"retry-after": dates["retry-after"]}) == 0


def test_a_key_that_looks_like_none_is_not_in_the_text_for_the_log() -> None:
    assert "0a1b2c3d" not in log_text("the token 0a1b2c3d is wrong", "0a1b2c3d")
    assert "ant-api03" not in log_text("invalid x-api-key: sk-ant-api03-abcdef")
