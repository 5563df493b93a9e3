"""What every answer has, whatever it answers: an id of its request, and what keeps browsers from misusing it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

PATHS = ("/agents", "/nothing/here", "/health/live", "/chat/support-agent", "/docs", "/openapi.json", "/runs/none")


def test_every_answer_has_the_id_of_its_request_and_is_not_sniffed(shared_house: Any) -> None:
    seen = set()
    for path in PATHS:
        answer = shared_house.visitor().get(path)
        assert re.fullmatch(r"req_[0-9a-f]{26}", answer.headers["x-request-id"]), path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], path
        assert "strict-transport-security" not in answer.headers, "nobody has said that this server is behind https"
        seen.add(answer.headers["x-request-id"])
    assert len(seen) == len(PATHS)


@pytest.mark.parametrize("given", ["abc-1", "0af7651916cd43dd8448eb211c80319c", "a/b+c=d:e_f.g", "x" * 128])
def test_an_id_that_a_proxy_gave_is_kept(shared_house: Any, given: str) -> None:
    answer = shared_house.visitor().get("/health/live", headers={"X-Request-Id": given})
    assert answer.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "two words", "x" * 129, 'quo"te', "<script>", "a\tb", "%0a%0d"])
def test_an_id_that_is_none_gives_way_to_a_new_one(shared_house: Any, given: str) -> None:
    answer = shared_house.visitor().get("/health/live", headers={"X-Request-Id": given})
    assert answer.headers["x-request-id"].startswith("req_")


def test_browsers_are_told_to_come_by_https_where_the_public_address_is_one(open_house: Callable[..., Any]) -> None:
    house = open_house(public_url="https://shop.example")
    client = house.visitor(host="shop.example")
    for path in ("/agents", "/chat/support-agent", "/nothing"):
        assert client.get(path).headers["strict-transport-security"] == "max-age=31536000"
    assert "Secure" in client.get("/agents").headers["set-cookie"]
    plain = open_house(public_url="http://shop.example").visitor(host="shop.example").get("/agents")
    assert "strict-transport-security" not in plain.headers
    assert "Secure" not in plain.headers["set-cookie"]


@pytest.mark.parametrize("path", ["/chat/support-agent", "/chat/no-such-agent", "/chat/page.css", "/docs"])
def test_no_page_of_ours_may_be_framed_or_load_what_is_elsewhere(shared_house: Any, path: str) -> None:
    headers = shared_house.visitor().get(path).headers
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "script-src" not in policy or "unsafe" not in policy.partition("script-src")[2].partition(";")[0]


def test_each_request_has_one_line_without_its_query_and_probes_have_none(
    shared_house: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = shared_house.visitor()
    with caplog.at_level(logging.INFO, "amoxi_py.access"):
        client.get("/agents?token=SECRET-4711")
        client.get("/runs/a%0ab%22%20c?x=1")
        client.get(f"/runs/{'x' * 1000}")
        client.get("/health/ready")
        client.get("/health/live")
    lines = [record.getMessage() for record in caplog.records if record.name == "amoxi_py.access"]
    assert [line.rpartition(" in ")[0] for line in lines] == [
        "GET /agents 200",
        "GET /runs/a%0ab%22%20c 404",
        f"GET /runs/{'x' * 294}... 404",
    ]


def test_answers_are_counted_by_status(open_house: Callable[..., Any]) -> None:
    house = open_house()
    before = dict(house.door.responses)
    house.visitor().get("/nothing")
    house.visitor().get("/nothing")
    house.visitor().get("/agents")
    house.visitor().get("/agents")  # all before this one are counted when it is answered
    added = {status: count - before.get(status, 0) for status, count in house.door.responses.items()}
    assert added["404"] == 2
    assert 1 <= added["200"] <= 2
