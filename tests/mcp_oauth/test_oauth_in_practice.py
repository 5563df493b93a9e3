"""What programs, browsers, proxies and apps really do, and what must go on working then."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.mcp.oauth.clients import Client
from amoxi_py.surfaces.mcp.oauth.limits import network_of
from amoxi_py.surfaces.mcp.oauth.redirects import redirect_problem

pytestmark = pytest.mark.anyio

URL = "https://shop.example.com"
CLAUDE = "https://claude.ai/api/mcp/auth_callback"
TOKEN = "desktop-token-0123456789"
ANN = Principal(id="42", name="Ann")
DAY = 24 * 3600


async def test_programs_that_refresh_one_token_at_once_all_go_on(shop: Any) -> None:
    await shop.start()
    client, tokens = await shop.connect()
    answers: list[Any] = []

    async def refresh(server: int) -> None:
        answers.append(await shop.refresh(client, tokens["refresh_token"], server=server))

    async with anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon(refresh, n % 2)
    shop.clock.move(119)
    answers.append(await shop.refresh(client, tokens["refresh_token"]))  # whose answer was lost
    assert [answer.status_code for answer in answers] == [200] * 7
    shop.clock.move(3000)
    for answer in answers:
        assert (await shop.call(answer.json()["access_token"])).status_code == 200
        assert (await shop.refresh(client, answer.json()["refresh_token"])).status_code == 200
    other = (await shop.register())["client_id"]
    assert (await shop.refresh(other, tokens["refresh_token"])).status_code == 400
    assert (await shop.call(answers[-1].json()["access_token"])).status_code == 200, "another client ends nothing"
    assert (await shop.refresh(client, tokens["refresh_token"])).status_code == 400
    assert (await shop.call(answers[-1].json()["access_token"])).status_code == 401, "later it is somebody else's"


async def test_a_connection_has_few_refresh_tokens_at_once_and_refreshes_seldom(shop: Any) -> None:
    client, tokens = await shop.connect()
    answers = []
    while len(answers) < 1000 and (not answers or answers[-1].status_code == 200):
        answers.append(await shop.refresh(client, tokens["refresh_token"]))
    assert answers[-1].status_code == 429
    assert len(answers) > 50
    assert await shop.records("oauth.refresh") <= 20
    assert (await shop.call(answers[-2].json()["access_token"])).status_code == 200


async def test_the_consent_page_lets_the_programs_address_lead_on_to_wherever_it_does(shop: Any) -> None:
    client = await shop.register()
    page = await shop.browser("ann").open("/oauth/authorize", **shop.asked(client["client_id"]))
    assert "form-action" not in page.headers["content-security-policy"], "claude.ai leads on to claude://"
    other = await shop.browser().open("/oauth/authorize", **shop.asked(client["client_id"]))
    assert "form-action 'self'" in other.headers["content-security-policy"]


async def test_behind_a_proxy_that_takes_a_path_off_a_browser_sends_its_cookie_with_the_form(shop: Any) -> None:
    await shop.start(public_url=f"{URL}/shop")
    inner = shop.apps[1]

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        assert path.startswith("/shop/")
        await inner({**scope, "path": path[5:], "raw_path": path[5:].encode()}, receive, send)

    browser = shop.browser("ann")
    browser.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(proxy), base_url=URL)
    browser.client.cookies.set("session", "ann", domain="shop.example.com")
    client = (await shop.register())["client_id"]
    await browser.open("/shop/oauth/authorize", **shop.asked(client, resource=f"{URL}/shop/mcp"))
    action = re.findall(r'action="([^"]+)"', browser.page)[0]
    answer = await browser.send(action, decision="allow")
    assert answer.status_code == 302, browser.text
    assert "code" in parse_qs(urlsplit(answer.headers["location"]).query)


@pytest.mark.parametrize("status", [401, 403, 303])
async def test_a_sign_in_that_raises_what_fastapi_does_knows_nobody(shop: Any, status: int) -> None:
    async def nobody(request: Request) -> Principal | None:
        raise HTTPException(status, headers={"location": "/elsewhere"})

    await shop.start(sign_in=nobody)
    client = (await shop.register())["client_id"]
    browser = shop.browser(server=1)
    page = await browser.open("/oauth/authorize", **shop.asked(client))
    assert (page.status_code, "Sign in to Shop & Co" in browser.text) == (200, True)
    assert (await browser.open("/oauth/connections")).headers["location"] == "/login?next=%2Foauth%2Fconnections"


async def test_a_sign_in_on_another_host_is_given_a_whole_address_back(shop: Any) -> None:
    await shop.start(sign_in_url="https://login.example.com/in?app=shop")
    answer = await shop.browser(server=1).open("/oauth/connections")
    asked = parse_qs(urlsplit(answer.headers["location"]).query)
    assert asked == {"app": ["shop"], "next": [f"{URL}/oauth/connections"]}


async def test_one_wrong_token_is_one_try_however_many_are_sent_at_once(shop: Any) -> None:
    client = await shop.register()
    browser = shop.browser()
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    answers: list[Any] = []
    form = {"ticket": browser.ticket, "token": "no-such-token-0123456789"}

    async def send() -> None:
        answers.append(await browser.client.post("/oauth/sign-in", data=form, headers={"origin": URL}))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(send)
    assert sum("does not know the token" in answer.text for answer in answers) == 1
    for _ in range(9):
        await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
        await browser.send("/oauth/sign-in", token="no-such-token-0123456789")
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    assert (await browser.send("/oauth/sign-in", token=TOKEN)).status_code == 429, "the right one says nothing either"


async def test_the_form_of_one_page_is_none_of_another(shop: Any) -> None:
    client = await shop.register()
    browser = shop.browser("ann")
    await browser.open("/oauth/connections")
    await shop.connect()
    await browser.open("/oauth/connections")
    for path in ("/oauth/sign-in", "/oauth/consent"):
        assert (await browser.send(path, token=TOKEN, decision="allow")).status_code == 403, path
        await browser.open("/oauth/connections")
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    for path in ("/oauth/sign-in", "/oauth/connections"):
        assert (await browser.send(path, token=TOKEN)).status_code == 403, path


async def test_what_is_left_of_a_used_code_ends_nothing(shop: Any) -> None:
    client = (await shop.register())["client_id"]
    code = await shop.code(client)
    tokens = (await shop.exchange(client, code)).json()
    other = (await shop.register())["client_id"]
    shop.clock.move(600)
    for guess in (f"{code}.x", code):
        await shop.refresh(client, guess)
        await shop.exchange(other, guess)
    await shop.exchange(client, f"{code}.x")
    assert (await shop.call(tokens["access_token"])).status_code == 200
    shop.clock.move(2999)
    tokens = (await shop.refresh(client, tokens["refresh_token"], scope="openid mcp profile")).json()
    await shop.exchange(client, code)
    assert (await shop.call(tokens["access_token"])).status_code == 401, "within an hour, by its own client"


async def test_after_a_change_of_the_public_address_a_program_is_told_to_connect_anew(shop: Any) -> None:
    client, tokens = await shop.connect()
    await shop.start(public_url="https://new.example.com")
    answer = await shop.refresh(client, tokens["refresh_token"], server=1)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert (await shop.refresh(client, tokens["refresh_token"])).status_code == 200


async def test_all_connections_of_a_person_are_shown_and_ended_however_many(shop: Any) -> None:
    client, tokens = await shop.connect()
    grants = shop.oauth[0]._grants
    program, who = Client(id=client, name="Claude", redirect_uris=(CLAUDE,)), Principal(id="user:42", tenant="t1")
    challenge = shop.asked(client)["code_challenge"]
    told = {"redirect_uri": CLAUDE, "challenge": challenge, "resource": f"{URL}/mcp", "target": "claude.ai"}
    verifier = "a-verifier-of-a-program-that-is-long-enough-0123456789"

    async def connect() -> None:
        code = await grants.allow(program, who, **told)
        await grants.exchange(program, {"code": code, "code_verifier": verifier}, None)

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(connect)
    assert len(await grants.connections(who)) == 101
    assert await grants.end_all_of(Principal(id="user:42", tenant="t2")) == 0
    assert await grants.end_all_of(who) == 101
    assert (await shop.call(tokens["access_token"])).status_code == 401


async def test_a_registration_is_small_and_what_a_page_keeps_too(shop: Any) -> None:
    uris = [f"https://a.example/{n}/{'x' * 1000}" for n in range(10)]
    answer = await shop.client().post("/oauth/register", json={"redirect_uris": uris})
    assert (answer.status_code, answer.json()["error"]) == (413, "invalid_request")
    client = await shop.register()
    browser = shop.browser()
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]), more="y" * 5000)
    assert "yyy" not in browser.page


def test_a_persons_ipv6_addresses_are_one() -> None:
    assert network_of("2001:db8:1:2::7") == network_of("2001:db8:1:2:ffff::1") != network_of("2001:db8:1:3::7")
    for one in ("203.0.113.7", "::ffff:203.0.113.7", "", "testclient"):
        assert network_of(one) == one


@pytest.mark.parametrize("scheme", ["ms-msdt", "search-ms", "ssh", "smb", "sms", "jar", "ldap", "javascript"])
def test_no_program_is_started_that_is_none_of_an_app(scheme: str) -> None:
    assert redirect_problem(f"{scheme}://x/callback") is not None
    assert redirect_problem("cursor://anysphere.cursor-mcp/oauth/callback") is None
