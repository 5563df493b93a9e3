"""Tokens, visitors and foreign pages: who asks, and what each may see."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.http.settings import HttpSettings, token_digest

PATH = "/agents/support-agent/runs"
GOOD = "acme-token-0123456789"


# X14
@pytest.mark.parametrize(
    "header",
    [
        b"", b"Bearer", b"Bearer wrong", b"acme-token-0123456789", b"Basic YTpi", b"Bearer \xc3\xa4\xff",
        b"\xff\xfe", b"Bearer " + b"x" * 5000, b"Bearer acme-token-0123456789 more",
        b"Bearer bearer acme-token-0123456789",
    ],
)  # fmt: skip
def test_a_token_that_nobody_knows_is_401_also_where_visitors_are_welcome(
    shared_house: Any, header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client = shared_house.visitor()
    with caplog.at_level(logging.DEBUG):
        for request in (("GET", "/agents"), ("GET", "/runs"), ("POST", PATH)):
            response = client.request(*request, headers=[("authorization", header)])
            assert (response.status_code, response.json()["code"]) == (401, "not_authenticated")
            assert response.headers["www-authenticate"] == "Bearer"
            assert "set-cookie" not in response.headers
    assert "Traceback" not in caplog.text
    assert client.get("/agents").status_code == 200


# X14
def test_a_token_of_a_megabyte_is_401_and_harms_nobody(shared_house: Any) -> None:
    client = shared_house.visitor()
    assert client.get("/agents", headers={"authorization": "Bearer " + "x" * (1 << 20)}).status_code == 401
    assert client.get("/agents").status_code == 200


def test_a_doubled_authorization_is_401(shared_house: Any) -> None:
    headers = [("authorization", f"Bearer {GOOD}"), ("authorization", f"Bearer {GOOD}")]
    assert shared_house.visitor().get("/agents", headers=headers).status_code == 401


def test_the_scheme_is_read_in_any_case(shared_house: Any) -> None:
    assert shared_house.visitor().get("/agents", headers={"authorization": f"bEARER {GOOD}"}).status_code == 200


def test_a_caller_has_two_tokens_while_one_is_rotated_and_is_one_principal(open_house: Callable[..., Any]) -> None:
    house = open_house(callers={"acme": (token_digest("old-token-old-token"), token_digest("new-token-new-token"))})
    old = house.visitor(authorization="Bearer old-token-old-token")
    new = house.visitor(authorization="Bearer new-token-new-token")
    run = house.submit(old, "hello")
    assert new.get(f"/runs/{run['id']}").status_code == 200


def test_settings_show_no_token(house: Any) -> None:
    settings = HttpSettings(callers={"acme": (token_digest(GOOD),)})
    assert GOOD not in repr(settings)
    assert repr(token_digest(GOOD)) not in repr(settings)


def test_without_visitors_a_request_needs_a_token(open_house: Callable[..., Any]) -> None:
    house = open_house(anonymous=False)
    stranger = house.visitor()
    for method, path in (("GET", "/agents"), ("GET", "/runs?limit=x"), ("POST", PATH), ("GET", "/agents/nobody/runs")):
        assert stranger.request(method, path).status_code == 401, path
    assert house.api().get("/agents").status_code == 200
    assert stranger.get("/health/live").status_code == 200
    assert stranger.get("/health/ready").status_code == 200


def test_a_visitor_is_known_by_a_signed_cookie_that_scripts_cannot_read(house: Any) -> None:
    client = house.visitor()
    response = client.post(PATH, json={"message": "hello"})
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie
    assert "path=/" in cookie
    again = client.get("/agents")
    assert "set-cookie" not in again.headers
    assert client.get(f"/runs/{response.json()['id']}").status_code == 200


def test_a_visit_begins_with_the_agents_or_a_message_and_nowhere_else(shared_house: Any) -> None:
    assert "set-cookie" in shared_house.visitor().get("/agents").headers
    assert "set-cookie" in shared_house.visitor().post(PATH, json={"message": "hello"}).headers
    assert "set-cookie" not in shared_house.visitor().get("/runs").headers
    assert "set-cookie" not in shared_house.visitor().get("/health/live").headers
    assert "set-cookie" not in shared_house.api().get("/agents").headers


def test_the_cookie_is_for_https_alone_where_the_server_is_public_by_https(open_house: Callable[..., Any]) -> None:
    house = open_house(public_url="https://shop.example")
    assert "secure" in house.visitor().get("/agents").headers["set-cookie"].lower()


def test_a_cookie_that_was_not_signed_here_is_another_visitor(house: Any) -> None:
    owner = house.visitor()
    run = owner.post(PATH, json={"message": "hello"}).json()
    value = owner.cookies["amoxi_visitor"]
    visitor, _, signature = value.partition(".")
    flipped = ("0" if signature[0] != "0" else "1") + signature[1:]
    for forged in (
        visitor,
        f"{visitor}.",
        f"{visitor}.{flipped}",
        f"{'0' * 32}.{signature}",
        f"{value}0",
        "\u00e4",
        "",
    ):
        thief = house.visitor()
        cookie = [("cookie", b"amoxi_visitor=" + forged.encode())]
        assert thief.get(f"/runs/{run['id']}", headers=cookie).status_code == 404
    both = f"amoxi_visitor=x; other=1; amoxi_visitor={value}"
    assert house.visitor().get(f"/runs/{run['id']}", headers={"cookie": both}).status_code == 200


def test_somebody_elses_thing_is_answered_like_an_unknown_one_at_every_route(house: Any) -> None:
    owner = house.visitor()
    run = house.submit(owner, "cancel")
    waiting = wait_for_approval(house, owner, run["id"])
    call_id = waiting["waiting_for"][0]["call_id"]
    unknown = "run_" + "0" * 26
    routes = [
        ("GET", "/runs/{run}"),
        ("GET", "/runs/{run}/events"),
        ("POST", "/runs/{run}/cancel"),
        ("POST", "/runs/{run}/approvals/{call}"),
        ("GET", PATH + "/{run}"),
        ("GET", PATH + "/{run}/events"),
        ("POST", PATH + "/{run}/cancel"),
        ("POST", PATH + "/{run}/approvals/{call}"),
        ("GET", "/agents/support-agent/conversations/{conversation}"),
        ("GET", "/agents/support-agent/conversations/{conversation}/events"),
        ("DELETE", "/agents/support-agent/conversations/{conversation}"),
    ]
    real = {"run": run["id"], "call": call_id, "conversation": run["conversation_id"]}
    none = {"run": unknown, "call": f"call_{'0' * 26}_1_0", "conversation": "conv_" + "0" * 26}
    for stranger in (house.visitor(), house.api("acme")):
        for method, route in routes:
            body = {"json": {"decision": "approve"}} if "approvals" in route else {}
            theirs = stranger.request(method, route.format(**real), **body)
            nothing = stranger.request(method, route.format(**none), **body)
            assert theirs.status_code == nothing.status_code == 404, route
            same = theirs.text
            for kind, known in real.items():
                same = same.replace(known, none[kind])
            assert same == nothing.text, route
            assert {*theirs.headers} == {*nothing.headers}
        taken = stranger.post(PATH, json={"message": "hello", "conversation_id": run["conversation_id"]})
        assert taken.status_code == 404
        assert stranger.get("/runs").json()["items"] == []
        assert stranger.get(PATH).json()["items"] == []
        assert stranger.get("/agents/support-agent/conversations").json()["items"] == []
    assert owner.get(f"/runs/{run['id']}").json() == waiting
    assert house.ledger == []


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost", "http://127.0.0.1", "x", "http://["]
)
def test_a_foreign_page_cannot_change_anything_in_a_visitors_name(shared_house: Any, origin: str) -> None:
    visitor = shared_house.visitor()
    run = shared_house.submit(visitor, "wait")
    foreign = {"origin": origin}
    conversation = f"/agents/support-agent/conversations/{run['conversation_id']}"
    answers = [
        visitor.post(PATH, json={"message": "hello"}, headers=foreign),
        visitor.post(f"/runs/{run['id']}/cancel", headers=foreign),
        visitor.post(f"/runs/{run['id']}/approvals/call_1", json={"decision": "approve"}, headers=foreign),
        visitor.delete(conversation, headers=foreign),
    ]
    assert [(each.status_code, each.json()["code"]) for each in answers] == [(403, "foreign_origin")] * 4
    assert visitor.get(f"/runs/{run['id']}", headers=foreign).status_code == 200
    assert len(visitor.get("/runs").json()["items"]) == 1


def test_the_servers_own_page_and_a_token_may(shared_house: Any) -> None:
    body = {"json": {"message": "hello"}}
    assert shared_house.visitor().post(PATH, headers={"origin": shared_house.url}, **body).status_code == 202
    assert shared_house.api().post(PATH, headers={"origin": "https://evil.example"}, **body).status_code == 202


def test_a_page_behind_a_proxy_is_known_by_the_public_address(open_house: Callable[..., Any]) -> None:
    house = open_house(public_url="https://shop.example", cors_origins=("https://front.example",))
    body = {"json": {"message": "hello"}}
    for origin, status in (("https://shop.example", 202), ("https://front.example", 202), ("https://x.example", 403)):
        assert house.visitor().post(PATH, headers={"origin": origin}, **body).status_code == status
    asked = {"origin": "https://front.example", "access-control-request-method": "POST"}
    allowed = house.visitor().options(PATH, headers=asked)
    assert allowed.headers["access-control-allow-origin"] == "https://front.example"


def test_a_page_is_at_home_under_the_name_that_it_was_asked_by(house: Any) -> None:
    as_proxied = {"origin": "https://other.example", "host": "other.example"}
    assert house.visitor().post(PATH, headers=as_proxied, json={"message": "hello"}).status_code == 202


def test_the_apps_own_sign_in_comes_after_tokens_and_before_visitors(open_house: Callable[..., Any]) -> None:
    async def sign_in(request: Any) -> Principal | None:
        basic = request.headers.get("authorization", "").removeprefix("Basic ")
        user = request.headers.get("x-user") or {"Ym9i": "bob"}.get(basic)
        return None if user is None else Principal(id=user, name="Ann", roles=frozenset({"finance"}))

    house = open_house(authenticate=sign_in)
    ann = house.visitor(**{"x-user": "42"})
    run = house.submit(ann, "hello", wait=10)
    assert house.visitor(**{"x-user": "42"}).get(f"/runs/{run['id']}").status_code == 200
    assert house.visitor(**{"x-user": "43"}).get(f"/runs/{run['id']}").status_code == 404
    posing = house.visitor(**{"x-user": "api:acme"})
    assert [agent["name"] for agent in posing.get("/agents").json()["items"]] == ["strict-agent", "support-agent"]
    token_first = house.visitor(**{"x-user": "42", "authorization": f"Bearer {GOOD}"})
    assert token_first.get("/runs").json()["items"] == []
    foreign = {"json": {"message": "hello"}, "headers": {"origin": "https://evil.example"}}
    assert ann.post(PATH, **foreign).status_code == 403
    for basic in ("Basic Ym9i", "Basic x"):  # a browser adds it by itself, for a foreign page too
        assert house.visitor(authorization=basic).post(PATH, **foreign).json()["code"] == "foreign_origin"
    assert house.visitor(authorization="Basic Ym9i").post(PATH, json={"message": "hello"}).status_code == 202
    assert house.visitor(authorization="Basic x").post(PATH, json={"message": "hello"}).status_code == 401
    assert "set-cookie" not in ann.get("/agents").headers
    assert "set-cookie" in house.visitor().get("/agents").headers


def wait_for_approval(house: Any, client: Any, run_id: str) -> dict[str, Any]:
    with house.follow(client, f"/runs/{run_id}/events") as events:
        for event in events:
            if event.type == "run.waiting":
                break
    run: dict[str, Any] = client.get(f"/runs/{run_id}").json()
    assert run["status"] == "waiting"
    return run
