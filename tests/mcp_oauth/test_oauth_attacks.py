"""What somebody may try who is not let in, or not any more."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest

pytestmark = pytest.mark.anyio

URL = "https://shop.example.com"
CLAUDE = "https://claude.ai/api/mcp/auth_callback"
TOKEN = "desktop-token-0123456789"


def error_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]


async def test_a_code_that_is_used_twice_ends_what_it_gave(shop: Any) -> None:
    client = (await shop.register())["client_id"]
    code = await shop.code(client)
    tokens = (await shop.exchange(client, code)).json()
    assert error_of(await shop.exchange(client, code)) == (400, "invalid_grant")
    assert (await shop.call(tokens["access_token"])).status_code == 401
    assert error_of(await shop.refresh(client, tokens["refresh_token"])) == (400, "invalid_grant")


async def test_a_refresh_token_that_is_used_twice_ends_the_connection(shop: Any) -> None:
    client, tokens = await shop.connect()
    newer = (await shop.refresh(client, tokens["refresh_token"])).json()
    assert (await shop.call(tokens["access_token"])).status_code == 200, "until its hour is over"
    shop.clock.move(120)
    assert error_of(await shop.refresh(client, tokens["refresh_token"])) == (400, "invalid_grant")
    for access in (tokens["access_token"], newer["access_token"]):
        assert (await shop.call(access)).status_code == 401
    assert error_of(await shop.refresh(client, newer["refresh_token"])) == (400, "invalid_grant")


async def test_of_many_who_use_one_code_at_once_at_most_one_gets_tokens_that_hold(shop: Any) -> None:
    await shop.start()
    client = (await shop.register())["client_id"]
    code = await shop.code(client)
    answers: list[Any] = []

    async def try_it(server: int) -> None:
        answers.append(await shop.exchange(client, code, server=server))

    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon(try_it, n % 2)
    assert sum(answer.status_code == 200 for answer in answers) <= 1
    for answer in answers:
        if answer.status_code == 200:
            assert (await shop.call(answer.json()["access_token"])).status_code == 401


async def test_a_code_ends_after_a_minute(shop: Any) -> None:
    client = (await shop.register())["client_id"]
    code = await shop.code(client)
    shop.clock.move(60)
    assert error_of(await shop.exchange(client, code)) == (400, "invalid_grant")


async def test_a_code_is_for_who_asked_for_it(shop: Any) -> None:
    client = (await shop.register())["client_id"]
    changes: list[tuple[dict[str, str], str]] = [
        ({"code_verifier": "another-verifier-that-is-long-enough-0123456789-0123"}, "invalid_grant"),
        ({"code_verifier": ""}, "invalid_grant"),
        ({"redirect_uri": "https://claude.com/api/mcp/auth_callback"}, "invalid_grant"),
        ({"resource": "https://other.example.com/mcp"}, "invalid_target"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": ""}, "invalid_request"),
        ({"code": ""}, "invalid_request"),
        ({"code": "none.such"}, "invalid_grant"),
    ]
    for change, error in changes:
        code = await shop.code(client)
        answer = await shop.exchange(client, change.pop("code", code), **change)
        assert error_of(answer) == (400, error), change


async def test_another_client_cannot_use_a_code_or_a_refresh_token_or_revoke_one(shop: Any) -> None:
    client, tokens = await shop.connect()
    other = (await shop.register(client_name="Other"))["client_id"]
    assert error_of(await shop.exchange(other, await shop.code(client))) == (400, "invalid_grant")
    assert error_of(await shop.refresh(other, tokens["refresh_token"])) == (400, "invalid_grant")
    form = {"client_id": other, "token": tokens["refresh_token"]}
    assert (await shop.client().post("/oauth/revoke", data=form)).status_code == 200
    assert (await shop.refresh(client, tokens["refresh_token"])).status_code == 200


async def test_a_client_takes_its_tokens_back(shop: Any) -> None:
    client, tokens = await shop.connect()
    newer = (await shop.refresh(client, tokens["refresh_token"])).json()
    form = {"client_id": client, "token": tokens["access_token"], "token_type_hint": "access_token"}
    assert (await shop.client().post("/oauth/revoke", data=form)).status_code == 200
    assert (await shop.call(tokens["access_token"])).status_code == 401
    assert (await shop.call(newer["access_token"])).status_code == 200
    await shop.client().post("/oauth/revoke", data={**form, "token": newer["refresh_token"]})
    assert (await shop.call(newer["access_token"])).status_code == 401
    assert error_of(await shop.refresh(client, newer["refresh_token"])) == (400, "invalid_grant")
    assert (await shop.client().post("/oauth/revoke", data={**form, "token": "nothing"})).status_code == 200


async def test_a_client_with_a_secret_needs_it(shop: Any) -> None:
    client = await shop.register(token_endpoint_auth_method="client_secret_post")
    code = await shop.code(client["client_id"])
    assert error_of(await shop.exchange(client["client_id"], code)) == (401, "invalid_client")
    wrong = await shop.exchange(client["client_id"], code, client_secret="wrong")
    assert error_of(wrong) == (401, "invalid_client")
    basic = await shop.client().post("/oauth/token", data={"grant_type": "refresh_token"}, auth=("none", "such"))
    assert error_of(basic) == (401, "invalid_client")
    assert basic.headers["www-authenticate"].startswith("Basic")
    assert (await shop.exchange(client["client_id"], code, client_secret=client["client_secret"])).status_code == 200


async def test_nobody_is_sent_to_an_address_that_the_client_has_not_named(shop: Any) -> None:
    client = await shop.register(redirect_uris=[CLAUDE, "http://localhost/callback"])
    for redirect in (
        "https://claude.ai/api/mcp/auth_callback/",
        "https://claude.ai/api/mcp/auth_callback?x=1",
        "https://claude.ai.evil.example/api/mcp/auth_callback",
        "https://claude.ai@evil.example/api/mcp/auth_callback",
        "http://claude.ai/api/mcp/auth_callback",
        "https://CLAUDE.ai/api/mcp/auth_callback",
        "http://localhost:1234/other",
        "http://127.0.0.1:1234/callback",
        "http://localhost.evil.example:1234/callback",
        "https://localhost:1234/callback",
        "javascript:alert(1)",
        "//evil.example/callback",
        None,  # it has named two
    ):
        for session in ("ann", None):
            asked = shop.asked(client["client_id"], redirect_uri=redirect)
            answer = await shop.browser(session).open("/oauth/authorize", **asked)
            assert answer.status_code == 400, redirect
            assert "location" not in answer.headers
            assert redirect is None or redirect not in answer.text


async def test_a_request_that_is_not_right_sends_nobody_anywhere_by_itself(shop: Any) -> None:
    local = "http://localhost:7777/callback"
    client = await shop.register(redirect_uris=[CLAUDE, "http://localhost/callback"])
    changes: list[tuple[dict[str, str | None], str]] = [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"resource": "https://other.example.com/mcp"}, "invalid_target"),
        ({"resource": f"{URL}/other"}, "invalid_target"),
        ({"resource": f"https://x@{URL[8:]}/mcp"}, "invalid_target"),
        ({"state": "x" * 2049}, "invalid_request"),
    ]
    for change, error in changes:
        page = await shop.browser("ann").open("/oauth/authorize", **shop.asked(client["client_id"], **change))
        assert page.status_code == 400
        assert "location" not in page.headers
        link = unescape(re.findall(r'<p><a href="([^"]*)">Back to claude.ai</a></p>', page.text)[0])
        assert link.startswith(f"{CLAUDE}?")
        asked = shop.asked(client["client_id"], redirect_uri=local, **change)
        answer = await shop.browser("ann").open("/oauth/authorize", **asked)
        assert answer.headers["location"].startswith(f"{local}?"), "a program on this machine waits for it"
        told = parse_qs(urlsplit(answer.headers["location"]).query)
        assert parse_qs(urlsplit(link).query) == told
        state = change.get("state", "the-state")
        assert (told["error"], told["state"], told["iss"]) == ([error], [state], [f"{URL}/oauth"]), change


async def test_another_way_to_write_the_same_resource_is_the_same(shop: Any) -> None:
    client = await shop.register()
    for resource in (f"{URL}/mcp/", "https://SHOP.example.com:443/mcp"):
        assert await shop.code(client["client_id"], resource=resource)


async def test_a_form_is_answered_once_and_by_its_own_browser(shop: Any) -> None:
    client = await shop.register()
    attacker, victim = shop.browser("ann"), shop.browser("ann")
    await attacker.open("/oauth/authorize", **shop.asked(client["client_id"]))
    victim.page = attacker.page
    assert (await victim.send("/oauth/consent", decision="allow")).status_code == 403, "no cookie of this server"
    await victim.open("/oauth/authorize", **shop.asked(client["client_id"]))
    mine, victim.page = victim.page, attacker.page
    assert (await victim.send("/oauth/consent", decision="allow")).status_code == 403, "a form of another browser"
    victim.page = mine
    foreign = await victim.send("/oauth/consent", {"origin": "https://evil.example"}, decision="allow")
    assert foreign.status_code == 403
    victim.page = mine
    assert (await victim.send("/oauth/consent", {"origin": "null"}, decision="allow")).status_code == 403
    victim.page = mine
    assert "code" in await victim.allow()
    victim.page = mine
    assert (await victim.send("/oauth/consent", decision="allow")).status_code == 403, "answered already"
    assert "code" in await attacker.allow(), "what others tried has used up nothing"


async def test_the_cookie_of_the_form_is_for_this_server_alone(shop: Any) -> None:
    client = await shop.register()
    page = await shop.browser("ann").open("/oauth/authorize", **shop.asked(client["client_id"]))
    cookie = page.headers["set-cookie"]
    for part in ("HttpOnly", "Secure", "SameSite=lax", "Path=/oauth"):
        assert part in cookie


async def test_who_is_not_signed_in_cannot_allow(shop: Any) -> None:
    client = await shop.register()
    browser = shop.browser()
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    assert (await browser.send("/oauth/consent", decision="allow")).status_code == 403


async def test_somebody_else_cannot_answer_the_page_of_the_one_before(shop: Any) -> None:
    client = await shop.register()
    browser = shop.browser("ann")
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    browser.client.cookies.set("session", "bob", domain="shop.example.com")
    answer = await browser.send("/oauth/consent", decision="allow")
    assert answer.status_code == 403
    assert "Somebody else is signed in now" in browser.text


async def test_a_form_ends_after_ten_minutes(shop: Any) -> None:
    client = await shop.register()
    browser = shop.browser("ann")
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    shop.clock.move(600)
    assert (await browser.send("/oauth/consent", decision="allow")).status_code == 403


async def test_a_token_for_another_server_of_the_same_store_does_not_hold(shop: Any) -> None:
    _, tokens = await shop.connect()
    await shop.start(public_url="https://other.example.com")
    assert (await shop.call(tokens["access_token"], server=1)).status_code == 401


async def test_what_is_no_token_is_none(shop: Any) -> None:
    code = await shop.code((await shop.register())["client_id"])
    long, unsigned = "x" * 20_000, "eyJhbGciOiJub25lIn0.e30."
    for token in ("x", "a.b", "." * 100, "0" * 32 + ".x", long, unsigned, "a\tb", code):
        assert (await shop.call(token)).status_code == 401, token[:40]


async def test_a_refresh_token_opens_nothing(shop: Any) -> None:
    _, tokens = await shop.connect()
    assert (await shop.call(tokens["refresh_token"])).status_code == 401


async def test_a_registration_that_is_not_right_is_refused(shop: Any) -> None:
    server = shop.client()
    bodies: list[tuple[Any, str]] = [
        ([], "invalid_client_metadata"),
        ({}, "invalid_redirect_uri"),
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": "https://a.example/cb"}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://a.example/cb"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://a.example/cb#x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://u:p@a.example/cb"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["javascript:alert(1)//"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["data:text/html,x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://a.example/\r\nx"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [7]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://a.example/cb"] * 21}, "invalid_redirect_uri"),
        ({"redirect_uris": [CLAUDE], "grant_types": ["client_credentials"]}, "invalid_client_metadata"),
        ({"redirect_uris": [CLAUDE], "response_types": ["token"]}, "invalid_client_metadata"),
        ({"redirect_uris": [CLAUDE], "token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"),
    ]
    for body, error in bodies:
        assert error_of(await server.post("/oauth/register", json=body)) == (400, error), body


async def test_bodies_and_registrations_have_bounds(shop: Any) -> None:
    server = shop.client()
    large = await server.post("/oauth/register", content=b"x" * 70_000)
    assert large.status_code == 413
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await server.post("/oauth/token", content=b"x" * 70_000, headers=form)).status_code == 413
    for content in (b"a=1&" * 60, b"client_id=a&client_id=b", b"\xff=1", b"a=%ff"):
        assert error_of(await server.post("/oauth/token", content=content, headers=form)) == (400, "invalid_request")
    assert error_of(await server.post("/oauth/token", json={})) == (400, "invalid_request")
    for _ in range(300):
        answer = await server.post("/oauth/register", json={"redirect_uris": [CLAUDE]})
        if answer.status_code == 429:
            break
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    elsewhere = shop.client(address="203.0.113.8")
    assert (await elsewhere.post("/oauth/register", json={"redirect_uris": [CLAUDE]})).status_code == 201


async def test_a_store_that_is_away_is_told_as_that(shop: Any) -> None:
    client, tokens = await shop.connect()
    await shop.exits.aclose()
    assert (await shop.call(tokens["access_token"])).status_code == 503
    answer = await shop.refresh(client, tokens["refresh_token"])
    assert error_of(answer) == (503, "temporarily_unavailable")
    page = await shop.browser("ann").open("/oauth/authorize", **shop.asked(client))
    assert page.status_code == 503
