"""The app's own sign-in: who it says that somebody is, and that nothing it does makes anybody another."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from staffed_app import SECRET


@pytest.mark.parametrize(
    ("who", "id", "name"),
    [("ann", "user:42", "Ann"), ("colon", "user:mcp:desktop", ""), ("api", "user:api:acme", "")],
)
def test_a_sign_in_gives_a_user_whatever_id_and_channel_it_says(staffed: Any, who: str, id: str, name: str) -> None:
    run = staffed.waiting(staffed.asks(who), "own")
    (mine,) = [one for one in staffed.asks(who).get("/approvals").json()["items"] if one["run_id"] == run["id"]]
    assert mine["requested_by"] == {"id": id, "name": name}
    with closing(sqlite3.connect(staffed.store / "amoxi.db")) as database:
        ((facts,),) = database.execute("SELECT facts FROM run WHERE id = ?", (run["id"],)).fetchall()
    assert json.loads(facts)["channel"] == "web"


def test_nobody_of_the_sign_in_is_a_visitor_with_a_cookie(staffed: Any) -> None:
    for who in (None, "nobody"):
        answer = staffed.asks(who).get("/agents")
        assert answer.status_code == 200
        assert "amoxi_visitor" in answer.cookies


@pytest.mark.parametrize(
    ("who", "told"), [("expired", "the sign-in has expired"), ("bare", "the sign-in does not hold")]
)
def test_a_sign_in_that_does_not_hold_is_401_and_never_a_visitor(staffed: Any, who: str, told: str) -> None:
    answer = staffed.asks(who).get("/runs")
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert told in answer.json()["detail"]
    assert not answer.cookies


def test_a_refusal_of_the_web_framework_is_answered_as_it_is(staffed: Any) -> None:
    answer = staffed.asks("teapot").get("/runs")
    assert (answer.status_code, answer.json()["detail"]) == (403, "not from here")


def test_a_token_that_neither_side_knows_is_401(staffed: Any) -> None:
    assert staffed.asks("nobody", authorization=f"Bearer {SECRET}").get("/runs").status_code == 401


WRONG = (
    "text",
    "empty",
    "blank",
    "number",
    "control",
    "nul",
    "half",
    "long",
    "role",
    "tenant",
    "claims",
    "nan",
    "many",
    "list",
    "letters",
    "raises",
)


@pytest.mark.parametrize("header", ["authorization", "cookie", "x-session", "cf-access-jwt-assertion"])
def test_a_header_that_a_sign_in_fails_with_is_not_logged(
    staffed: Any, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        staffed.asks("raises", **{"authorization": "Basic YTpi", header: SECRET}).get("/runs")
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("amoxi"))
    assert "cannot read" in ours
    assert SECRET not in ours


@pytest.mark.parametrize("who", WRONG)
def test_a_sign_in_that_fails_is_500_without_details_and_without_the_secret_in_the_log(
    staffed: Any, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = staffed.asks(who, authorization=f"Bearer {SECRET}").get(f"/runs?cursor={SECRET}")
    assert (answer.status_code, answer.json()["code"]) == (500, "sign_in_failed")
    assert "@authenticate" not in answer.text
    assert "@authenticate failed" in caplog.text
    ours = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("amoxi"))
    assert SECRET not in answer.text
    assert SECRET not in ours
    assert "the-secret-of-a-person" not in ours


def test_no_token_is_stored_or_told(staffed: Any) -> None:
    http = staffed.asks("ann", authorization=f"Bearer {SECRET}")
    run = http.post("/agents/desk/runs?wait=20", json={"message": "hello"}).json()
    assert SECRET not in http.get(f"/runs/{run['id']}/events").text
    for file in staffed.store.rglob("amoxi.db*"):
        assert SECRET.encode() not in file.read_bytes()
