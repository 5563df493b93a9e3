"""From errors to answers."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from amoxi_py import errors
from amoxi_py.surfaces.http.problems import problem_of

REQUEST = Request({"type": "http", "method": "GET", "path": "/", "headers": []})


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.RequestError("no"), 400, "bad_request"),
        (errors.NotAuthenticated("no"), 401, "not_authenticated"),
        (errors.Forbidden("no"), 403, "forbidden"),
        (errors.NotFound("run", "run_1"), 404, "not_found"),
        (errors.Conflict("no", code="conversation_busy"), 409, "conversation_busy"),
        (errors.InvalidRequest("no"), 422, "invalid_request"),
        (errors.ArgumentsInvalid((("a", "no"),)), 422, "arguments_invalid"),
        (errors.TooMany("no", retry_after=2.1), 429, "too_many"),
        (errors.StoreUnavailable("no"), 503, "store_unavailable"),
        (HTTPException(418, "short and stout"), 418, "error"),
    ],
)
def test_every_error_of_a_request_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    response = problem_of(error, REQUEST)
    body: dict[str, Any] = json.loads(bytes(response.body))
    assert (response.status_code, body["status"], body["code"]) == (status, status, code)
    assert response.media_type == "application/problem+json"
    assert response.headers["cache-control"] == "no-store"


def test_too_many_says_in_whole_seconds_when_to_come_again() -> None:
    assert problem_of(errors.TooMany("no", retry_after=2.1), REQUEST).headers["retry-after"] == "3"
    assert problem_of(errors.TooMany("no", retry_after=0), REQUEST).headers["retry-after"] == "1"


@pytest.mark.parametrize("error", [errors.LeaseLost("run_1"), errors.ModelFailed("key x"), KeyError("x"), OSError("x")])
def test_every_other_error_is_the_servers_own(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        response = problem_of(error, REQUEST)
    assert response.status_code == 500
    assert str(error).encode() not in response.body
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_detail_of_any_text_is_still_ascii_json() -> None:
    body = bytes(problem_of(errors.NotFound("run", "\ud800\x00\u20ac"), REQUEST).body)
    assert body.isascii()
    assert json.loads(body)["code"] == "not_found"
