"""What cannot be done is said in one form, with a stable code, and never with a traceback."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

from amoxi_py.errors import StoreUnavailable

PROBLEM = {"type", "title", "status", "detail", "code"}
PATH = "/agents/support-agent/runs"
JSON = {"content-type": "application/json"}


def check(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert response.status_code == problem["status"] == status
    assert problem["code"] == code
    assert PROBLEM <= set(problem) <= PROBLEM | {"errors"}
    assert "Traceback" not in response.text
    assert "pydantic" not in response.text
    return problem


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b'"text"', b"1", b"{", b'{"message": "a",}', b"{'message': 'a'}", b'{"message": NaN}',
        b'{"message": "a", "message": "b"}', b'{"message": 1e999}', b'{"message": "a\x00b"}', b'{"message": "\xff"}',
        b"[" * 100_000, b'{"message":' * 50_000, b'{"a":' + b"[" * 900 + b"]" * 900 + b"}", b"1" * 100_000,
        "{\"message\": \"a\"}".encode("utf-16"), b'\xef\xbb\xbf{"message": "a"}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_refused(shared_house: Any, body: bytes) -> None:
    check(shared_house.api().post(PATH, content=body, headers=JSON), 422, "invalid_json")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": None}, "message"),
        ({"message": 1}, "message"),
        ({"message": True}, "message"),
        ({"message": ["a"]}, "message"),
        ({"message": "a", "colour": "secret-value-1"}, "colour"),
        ({"message": "a", "conversation_id": 7}, "conversation_id"),
        ({"message": "a", "files": "f"}, "files"),
        ({"message": "a", "files": [1]}, "files.0"),
    ],
)
def test_a_field_that_does_not_fit_is_named_and_its_value_is_not_told(shared_house: Any, body: Any, field: str) -> None:
    response = shared_house.api().post(PATH, json=body)
    problem = check(response, 422, "invalid_request")
    assert [error["field"] for error in problem["errors"]] == [field]
    assert "secret-value-1" not in response.text


def test_a_thousand_unknown_fields_give_a_short_answer(shared_house: Any) -> None:
    response = shared_house.api().post(PATH, json={"k" * 1000 + str(n): 1 for n in range(900)})
    check(response, 422, "invalid_request")
    assert len(response.content) < 10_000


@pytest.mark.parametrize("text", ["", " \n\t", "\u3000"])
def test_an_empty_message_is_refused(shared_house: Any, text: str) -> None:
    check(shared_house.api().post(PATH, json={"message": text}), 422, "message_empty")


def test_a_message_over_the_limit_is_refused(shared_house: Any) -> None:
    check(shared_house.api().post(PATH, json={"message": "a" * 200_001}), 422, "message_too_long")


def test_a_text_with_nul_or_half_a_character_is_cleaned_and_the_conversation_stays_usable(house: Any) -> None:
    client = house.api()
    response = client.post(PATH, content=b'{"message": "a\\u0000b\\ud800c"}', headers=JSON, params={"wait": "10"})
    run = response.json()
    assert (response.status_code, run["status"]) == (200, "completed")
    page = client.get(f"/agents/support-agent/conversations/{run['conversation_id']}").json()
    assert page["items"][0]["text"] == "a\ufffdb\ufffdc"
    assert house.submit(client, "again", wait=10, conversation_id=run["conversation_id"])["status"] == "completed"


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_a_body_that_does_not_say_json_is_refused(shared_house: Any, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    check(shared_house.api().post(PATH, content=b'{"message": "a"}', headers=headers), 415, "unsupported_media_type")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/ld+json"])
def test_json_by_other_names_is_taken(shared_house: Any, content_type: str) -> None:
    response = shared_house.api().post(PATH, content=b'{"message": "a"}', headers={"content-type": content_type})
    assert response.status_code == 202


def test_a_body_over_the_limit_is_refused_also_when_it_does_not_tell_its_length(open_house: Callable[..., Any]) -> None:
    house = open_house(max_body=1000)
    client = house.api()
    fits = json.dumps({"message": "a" * 900}).encode()
    too_long = json.dumps({"message": "a" * 1000}).encode()

    def chunks(body: bytes) -> Any:
        yield from (body[at : at + 100] for at in range(0, len(body), 100))

    assert client.post(PATH, content=fits, headers=JSON).status_code == 202
    assert client.post(PATH, content=chunks(fits), headers=JSON).status_code == 202
    check(client.post(PATH, content=too_long, headers=JSON), 413, "body_too_large")
    check(client.post(PATH, content=chunks(too_long), headers=JSON), 413, "body_too_large")
    assert len(client.get("/runs").json()["items"]) == 2


def test_the_limit_of_a_body_is_one_mebibyte(shared_house: Any) -> None:
    check(shared_house.api().post(PATH, content=b" " * ((1 << 20) + 1), headers=JSON), 413, "body_too_large")
    check(shared_house.api().post(PATH, content=b" " * (1 << 20), headers=JSON), 422, "invalid_json")


def test_a_client_that_leaves_in_the_middle_of_its_body_harms_nobody(house: Any, caplog: Any) -> None:
    port = int(house.url.rpartition(":")[2])
    with caplog.at_level(logging.ERROR), socket.create_connection(("127.0.0.1", port)) as half:
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
        half.sendall(head.encode() + b'{"mess')
    assert house.api().get("/runs").json()["items"] == []
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/runs/", "/agents/", "/agents/support-agent", "/agents/support-agent/runs/", "/Runs"]
)
def test_an_address_without_anything_is_a_problem_too(shared_house: Any, path: str) -> None:
    check(shared_house.api().get(path), 404, "not_found")


@pytest.mark.parametrize(
    "id", ["x", "run_", "RUN_01A227997AF", "run_%00", "run_%F0%9F%98%80", "run_" + "0" * 5000, ".."]
)
def test_an_id_that_can_be_none_is_not_found(shared_house: Any, id: str) -> None:
    client = shared_house.api()
    for path in (f"/runs/{id}", f"/runs/{id}/events", f"/agents/support-agent/conversations/{id}"):
        response = client.get(path)
        assert response.status_code == 404, path


def test_upper_case_is_another_id(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "hello", wait=10)
    check(client.get(f"/runs/{run['id'].upper()}"), 404, "not_found")


def test_a_method_that_an_address_does_not_take_is_named(shared_house: Any) -> None:
    problem = shared_house.api().put("/runs", json={})
    check(problem, 405, "method_not_allowed")
    assert problem.headers["allow"] == "GET"
    assert shared_house.api().head("/runs").status_code == 405


def test_an_unexpected_error_is_logged_and_its_text_is_not_told(
    open_house: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __init__(self, store: Any) -> None:
            self.store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

        async def list_runs(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("the password is hunter2")

    house = open_house(store=Broken)
    response = house.api().get("/runs")
    check(response, 500, "internal_error")
    assert "hunter2" not in response.text
    assert "hunter2" in caplog.text


def test_a_store_that_is_away_is_503_and_says_when_to_come_again(open_house: Callable[..., Any]) -> None:
    class Away:
        def __init__(self, store: Any) -> None:
            self.store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

        def submit(self, *args: Any, **kwargs: Any) -> Any:
            raise StoreUnavailable("disk full at /secret/path")

        async def busy_runs(self) -> int:
            raise StoreUnavailable("disk full at /secret/path")

    house = open_house(store=Away)
    response = house.api().post(PATH, json={"message": "a"})
    check(response, 503, "store_unavailable")
    assert int(response.headers["retry-after"]) > 0
    assert "/secret" not in response.text
    check(house.api().get("/health/ready"), 503, "store_unavailable")
    assert house.api().get("/health/live").status_code == 200
