"""Pages of other origins: named ones may call and read, all others get nothing that a browser shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PATH = "/agents/support-agent/runs"
FRONT = "https://front.example"


def test_a_named_page_may_call_and_read_every_kind_of_answer(open_house: Callable[..., Any]) -> None:
    house = open_house(cors_origins=(FRONT,))
    wanted = {
        "origin": FRONT,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, idempotency-key, last-event-id, x-session",
    }
    asked = house.visitor().options(PATH, headers=wanted)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-credentials"] == "true"
    assert "x-session" in asked.headers["access-control-allow-headers"]
    for method in ("GET", "HEAD", "POST", "DELETE"):
        assert method in asked.headers["access-control-allow-methods"]

    page = house.visitor(origin=FRONT)
    run = house.submit(page, "hello", wait=10)
    answers = [
        page.get(f"/runs/{run['id']}"),
        page.get(f"/runs/{run['id']}/events"),
        page.get("/runs/run_unknown"),
        page.post(PATH, json={"message": 5}),
        house.visitor(origin=FRONT, authorization="Bearer nobody-knows-this-token").get("/runs"),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 404, 422, 401]
    assert {answer.headers.get("access-control-allow-origin") for answer in answers} == {FRONT}
    assert all("Origin" in answer.headers["vary"] for answer in answers)
    assert "Location" in answers[0].headers["access-control-expose-headers"]


def test_any_other_page_may_not(open_house: Callable[..., Any]) -> None:
    house = open_house(cors_origins=(FRONT,))
    for origin in ("https://evil.example", f"{FRONT}.evil.example", "http://front.example", "null"):
        stranger = house.visitor(origin=origin)
        assert "access-control-allow-origin" not in stranger.get("/agents").headers, origin
        asked = stranger.options(PATH, headers={"access-control-request-method": "POST"})
        assert asked.status_code == 400
        assert "access-control-allow-origin" not in asked.headers
        assert stranger.post(PATH, json={"message": "hello"}).json()["code"] == "foreign_origin"
