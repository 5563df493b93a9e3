"""A person connects a program: each request that the public documentation of clients shows, and what they are told.

What is replayed here is shown on these pages: "Authentication" of the documentation of Claude's connectors
(claude.com/docs/connectors/building/authentication), "Building custom connectors via remote MCP servers" of its help
center, the MCP page of Claude Code's documentation, "Authentication" of OpenAI's plugins and apps
(developers.openai.com/plugins/build/auth, developers.openai.com/apps-sdk/build/auth) with its list of changes, and the
documents that the clients publish at their ids. What the APIs of both send comes with a token in the header, like any
call of `tests/mcp`.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytestmark = pytest.mark.anyio

URL = "https://shop.example.com"
CLAUDE = "https://claude.ai/api/mcp/auth_callback"
CLAUDE_CODE = "https://claude.ai/oauth/claude-code-client-metadata"
CHATGPT = "https://chatgpt.com/oauth/client.json"
TOKEN = "desktop-token-0123456789"
ANN = {
    "id": "user:42",
    "channel": "mcp",
    "name": "Ann",
    "tenant": "t1",
    "roles": ["finance"],
    "claims": {"plan": "gold"},
}


async def test_claude_ai_finds_its_way_from_the_401_to_a_call_by_registration(shop: Any) -> None:
    server = shop.client()
    server.headers |= {"user-agent": "python-httpx/0.28.1", "accept": "*/*", "mcp-protocol-version": "2025-11-25"}
    challenge = (await server.post("/mcp")).headers["www-authenticate"]
    metadata = f"{URL}/.well-known/oauth-protected-resource/mcp"
    assert challenge == f'Bearer resource_metadata="{metadata}", scope="mcp"'
    resource = (await server.get(metadata)).json()
    assert resource["resource"] == f"{URL}/mcp"
    assert resource["authorization_servers"] == [f"{URL}/oauth"]
    found = (await server.get("/.well-known/oauth-authorization-server/oauth")).json()
    assert found["issuer"] == f"{URL}/oauth"
    assert "none" in found["token_endpoint_auth_methods_supported"]
    assert found["code_challenge_methods_supported"] == ["S256"]
    registered = await server.post(
        found["registration_endpoint"],
        json={
            "client_name": "Claude",
            "client_uri": "https://claude.ai",
            "redirect_uris": [CLAUDE],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": "mcp",
        },
    )
    assert registered.status_code == 201
    client = registered.json()
    assert "client_secret" not in client
    assert client["redirect_uris"] == [CLAUDE]
    browser = shop.browser("ann")
    page = await browser.open(found["authorization_endpoint"], **shop.asked(client["client_id"]))
    assert page.status_code == 200
    told = await browser.allow()
    assert told["state"] == "the-state"
    assert told["iss"] == f"{URL}/oauth"
    tokens = await shop.exchange(client["client_id"], told["code"])
    assert tokens.headers["cache-control"] == "no-store"
    body = tokens.json()
    assert (body["token_type"], body["expires_in"], body["scope"]) == ("Bearer", 3600, "mcp")
    assert (await shop.call(body["access_token"])).json() == ANN
    refreshed = (await shop.refresh(client["client_id"], body["refresh_token"], scope="mcp")).json()
    assert refreshed["refresh_token"] != body["refresh_token"]
    assert (await shop.call(refreshed["access_token"])).json() == ANN


async def test_chatgpt_connects_by_the_document_at_its_client_id(shop: Any) -> None:
    callback = "https://chatgpt.com/connector/oauth/abc123"
    shop.documents[CHATGPT] = {
        "client_id": CHATGPT,
        "client_name": "ChatGPT",
        "client_uri": "https://chatgpt.com",
        "redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect", callback],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    metadata = (await shop.client().get("/.well-known/oauth-authorization-server")).json()
    assert metadata["client_id_metadata_document_supported"] is True
    browser = shop.browser("ann")
    await browser.open("/oauth/authorize", **shop.asked(CHATGPT, redirect_uri=callback))
    assert "Let ChatGPT use Shop & Co?" in browser.text
    assert "It is the one of chatgpt.com." in browser.text
    told = await browser.allow()
    tokens = (await shop.exchange(CHATGPT, told["code"], redirect_uri=callback)).json()
    assert (await shop.call(tokens["access_token"])).json() == ANN
    assert (await shop.refresh(CHATGPT, tokens["refresh_token"], resource=f"{URL}/mcp")).status_code == 200
    assert shop.fetched == [CHATGPT], "a document is read once, and kept for all servers"


HOSTED = ["https://claude.ai/api/mcp/auth_callback", "https://claude.com/api/mcp/auth_callback"]
STABLE = "https://chatgpt.com/connector_platform_oauth_redirect"
OF_ONE_CONNECTION = "https://chatgpt.com/connector/oauth/kDmjx77UnKOM"
SIGNING: dict[str, Any] = {
    "client_uri": "https://chatgpt.com/",
    "token_endpoint_auth_method": "private_key_jwt",
    "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
    "token_endpoint_auth_signing_alg": "RS256",
    "jwks_uri": "https://chatgpt.com/oauth/jwks.json",
}
PUBLISHED: dict[str, tuple[str, list[str], dict[str, Any], list[str]]] = {
    "https://claude.ai/oauth/mcp-oauth-client-metadata": ("Claude", HOSTED, {}, HOSTED),
    "https://chatgpt.com/oauth/client.json": ("ChatGPT", [STABLE], SIGNING, [STABLE]),
    "https://chatgpt.com/oauth/kDmjx77UnKOM/client.json": (
        "ChatGPT",
        [OF_ONE_CONNECTION],
        SIGNING,
        [OF_ONE_CONNECTION],
    ),
    "https://chatgpt.com/oauth/codex/client.json": (
        "Codex",
        ["http://127.0.0.1/callback", "http://localhost/callback"],
        {},
        ["http://127.0.0.1:49152/callback"],
    ),
    "https://vscode.dev/oauth/client-metadata.json": (
        "Visual Studio Code",
        ["http://127.0.0.1:33418/", "https://vscode.dev/redirect"],
        {},
        ["http://127.0.0.1:33418/", "https://vscode.dev/redirect"],
    ),
}
"""By their ids: what clients call themselves and where they are sent back to, what else their documents say, and where
they are really sent back to."""


@pytest.mark.parametrize("client_id", PUBLISHED)
async def test_programs_connect_by_the_documents_that_they_publish(shop: Any, client_id: str) -> None:
    name, redirects, more, callbacks = PUBLISHED[client_id]
    shop.documents[client_id] = {
        "client_id": client_id,
        "client_name": name,
        "redirect_uris": redirects,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        **more,
    }
    for callback in callbacks:
        browser = shop.browser("ann")
        await browser.open("/oauth/authorize", **shop.asked(client_id, redirect_uri=callback))
        assert f"Let {name} use Shop & Co?" in browser.text
        answer = await browser.send("/oauth/consent", decision="allow")
        assert answer.headers["location"].startswith(f"{callback}?")
        told = parse_qs(urlsplit(answer.headers["location"]).query)
        assert told["iss"] == [f"{URL}/oauth"], "the address that all connections share asks for it"
        tokens = (await shop.exchange(client_id, told["code"][0], redirect_uri=callback)).json()
        assert (await shop.call(tokens["access_token"])).json() == ANN
        again = (await shop.refresh(client_id, tokens["refresh_token"], resource=f"{URL}/mcp")).json()
        assert (await shop.call(again["access_token"])).json() == ANN


async def test_a_program_that_signs_is_let_in_by_its_code_challenge_like_any_other(shop: Any) -> None:
    shop.documents[CHATGPT] = {
        "client_id": CHATGPT,
        "client_name": "ChatGPT",
        "redirect_uris": [STABLE],
        **SIGNING,
    }
    claims = {"iss": CHATGPT, "sub": CHATGPT, "aud": f"{URL}/oauth/token", "jti": "1", "exp": 1}
    parts = [json.dumps(part).encode() for part in ({"alg": "RS256", "kid": "cimd"}, claims)]
    signed = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b"a signature"))
    assertion = {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": signed,
    }
    verifier = "a-verifier-of-a-program-that-is-long-enough-0123456789"
    for names_itself in ({"client_id": CHATGPT}, {}):
        code = await shop.code(CHATGPT, redirect_uri=STABLE)
        fields = {"code": code, "redirect_uri": STABLE, **names_itself, **assertion}
        wrong = await shop.token(grant_type="authorization_code", code_verifier=verifier[::-1], **fields)
        assert wrong.json()["error"] == "invalid_grant", "what it signs is no proof here"
        code = await shop.code(CHATGPT, redirect_uri=STABLE)
        answer = await shop.token(grant_type="authorization_code", code_verifier=verifier, **{**fields, "code": code})
        assert answer.status_code == 200, answer.text
        token = answer.json()["refresh_token"]
        again = await shop.token(grant_type="refresh_token", refresh_token=token, **names_itself, **assertion)
        assert again.status_code == 200, again.text
    for broken in ("", "a.b", "a.e30.c", f"a.{base64.urlsafe_b64encode(b'[]').decode()}.c"):
        refused = await shop.token(
            grant_type="refresh_token", refresh_token=token, **{**assertion, "client_assertion": broken}
        )
        assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")


async def test_claude_code_may_listen_on_any_port_of_the_persons_own_machine(shop: Any) -> None:
    shop.documents[CLAUDE_CODE] = {
        "client_id": CLAUDE_CODE,
        "client_name": "Claude Code",
        "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
        "token_endpoint_auth_method": "none",
    }
    for port, host in ((58135, "localhost"), (52163, "127.0.0.1")):
        callback = f"http://{host}:{port}/callback"
        browser = shop.browser("ann")
        await browser.open("/oauth/authorize", **shop.asked(CLAUDE_CODE, redirect_uri=callback))
        assert "a program on this computer" in browser.text
        answer = await browser.send("/oauth/consent", decision="allow")
        assert answer.headers["location"].startswith(f"{callback}?code=")
        code = parse_qs(urlsplit(answer.headers["location"]).query)["code"][0]
        assert (await shop.exchange(CLAUDE_CODE, code, redirect_uri=callback)).status_code == 200


async def test_cursor_is_sent_back_to_by_the_scheme_of_its_app(shop: Any) -> None:
    callback = "cursor://anysphere.cursor-mcp/oauth/callback"
    client = await shop.register(client_name="Cursor", redirect_uris=[callback])
    browser = shop.browser("ann")
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"], redirect_uri=callback))
    answer = await browser.send("/oauth/consent", decision="allow")
    assert answer.headers["location"].startswith(f"{callback}?code=")


@pytest.mark.parametrize("method", [None, "client_secret_basic", "client_secret_post"])
async def test_a_client_with_a_secret_proves_itself_by_either_way(shop: Any, method: str | None) -> None:
    client = await shop.register(token_endpoint_auth_method=method)
    assert client["token_endpoint_auth_method"] == (method or "client_secret_basic")
    assert client["client_secret_expires_at"] == 0
    fields = {
        "grant_type": "authorization_code",
        "code": await shop.code(client["client_id"]),
        "redirect_uri": CLAUDE,
        "code_verifier": "a-verifier-of-a-program-that-is-long-enough-0123456789",
    }
    if method == "client_secret_post":
        fields |= {"client_id": client["client_id"], "client_secret": client["client_secret"]}
        answer = await shop.client().post("/oauth/token", data=fields)
    else:
        auth = (client["client_id"], client["client_secret"])
        answer = await shop.client().post("/oauth/token", data=fields, auth=auth)
    assert answer.status_code == 200, answer.text


async def test_a_client_that_leaves_out_resource_and_scope_is_let_in(shop: Any) -> None:
    client = await shop.register()
    code = await shop.code(client["client_id"], resource=None, scope=None)
    answer = await shop.token(
        grant_type="authorization_code",
        client_id=client["client_id"],
        code=code,
        code_verifier="a-verifier-of-a-program-that-is-long-enough-0123456789",
    )
    assert answer.status_code == 200


async def test_the_person_sees_who_asks_for_what_and_can_deny(shop: Any) -> None:
    client = await shop.register(client_name="<b>Evil</b> {app}")
    browser = shop.browser("ann")
    page = await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    assert "<b>Evil</b>" not in browser.page
    assert "Let <b>Evil</b> {app} use Shop & Co?" in browser.text
    for shown in ("Ann (42)", "claude.ai", "lookup order: find <it>", "It calls itself so"):
        assert shown in browser.text, shown
    assert "<script" not in browser.page
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["cache-control"] == "no-store"
    told = await browser.send("/oauth/consent", decision="deny")
    found = parse_qs(urlsplit(told.headers["location"]).query)
    assert found["error"] == ["access_denied"]
    assert found["state"] == ["the-state"]
    assert found["iss"] == [f"{URL}/oauth"]
    assert "code" not in found
    style = await shop.client().get("/oauth/page.css")
    assert style.headers["content-type"].startswith("text/css")


async def test_who_is_not_signed_in_is_led_to_the_sign_in_and_back(shop: Any) -> None:
    client = await shop.register()
    for session in (None, "expired"):
        browser = shop.browser(session)
        await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
        assert "Please sign in" in browser.text
        link = browser.page.partition('class="button primary" href="')[2].partition('"')[0]
        back = parse_qs(urlsplit(link).query)["next"][0]
        assert link.startswith("/login?next=")
        assert back.startswith("/oauth/authorize?"), "on this server, so that it is no way to another one"
        browser.client.cookies.delete("session") if session else None
        browser.client.cookies.set("session", "ann", domain="shop.example.com")
        await browser.open(back)
        assert "Let Claude use" in browser.text
        assert "code" in await browser.allow()


async def test_a_callers_token_may_stand_for_a_sign_in(shop: Any) -> None:
    client = await shop.register()
    browser = shop.browser()
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    wrong = await browser.send("/oauth/sign-in", token="desktop-token-0123456780")
    assert wrong.status_code == 403
    assert "does not know the token" in browser.text
    await browser.send("/oauth/sign-in", token=f" {TOKEN} ")
    assert "the caller desktop" in browser.text
    tokens = (await shop.exchange(client["client_id"], (await browser.allow())["code"])).json()
    assert (await shop.call(tokens["access_token"])).json() == {
        "id": "mcp:desktop",
        "name": "desktop",
        "channel": "mcp",
    }
    await shop.start(callers={"desktop": (b"another digest",)})
    assert (await shop.call(tokens["access_token"], server=1)).status_code == 401, "it ends with the token"


async def test_wrong_tokens_are_counted(shop: Any) -> None:
    client = await shop.register()
    browser = shop.browser()
    await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
    for _ in range(5):
        await browser.send("/oauth/sign-in", token="no-such-token-0123456789")
    assert "Too many wrong tokens" in browser.text
    assert (await browser.send("/oauth/sign-in", token=TOKEN)).status_code == 403
    statuses = []
    for _ in range(6):
        await browser.open("/oauth/authorize", **shop.asked(client["client_id"]))
        last = await browser.send("/oauth/sign-in", token="no-such-token-0123456789")
        statuses.append(last.status_code)
    assert statuses == [403] * 5 + [429]
    assert int(last.headers["retry-after"]) > 0


async def test_a_client_that_reads_no_document_finds_the_endpoints_at_the_root(shop: Any) -> None:
    server = shop.client()
    client = (
        await server.post("/register", json={"redirect_uris": [CLAUDE], "token_endpoint_auth_method": "none"})
    ).json()
    browser = shop.browser("ann")
    await browser.open("/authorize", **shop.asked(client["client_id"]))
    told = await browser.allow()
    form = {"grant_type": "authorization_code", "client_id": client["client_id"], "code": told["code"]}
    verifier = "a-verifier-of-a-program-that-is-long-enough-0123456789"
    answer = await server.post("/token", data={**form, "code_verifier": verifier})
    assert answer.status_code == 200
    for path in ("/authorize", "/token", "/register"):
        assert (await server.get(path)).status_code == 404, "a page of the app may be there"


async def test_any_server_takes_any_step(shop: Any) -> None:
    for _ in range(4):
        await shop.start()
    client = (await shop.register())["client_id"]
    browser = shop.browser("ann", server=1)
    await browser.open("/oauth/authorize", **shop.asked(client))
    other = shop.browser("ann", server=2)
    other.page, other.client.cookies = browser.page, browser.client.cookies
    code = (await other.allow())["code"]
    tokens = (await shop.exchange(client, code, server=3)).json()
    assert (await shop.call(tokens["access_token"], server=4)).status_code == 200
    again = (await shop.refresh(client, tokens["refresh_token"], server=0)).json()
    assert (await shop.call(again["access_token"], server=1)).status_code == 200


async def test_what_is_kept_holds_no_secret(shop: Any) -> None:
    _, tokens = await shop.connect()
    secret = (await shop.register(token_endpoint_auth_method="client_secret_post"))["client_secret"]
    kept = b"".join(path.read_bytes() for path in shop.folder.glob("amoxi.db*"))
    for one in (secret, tokens["access_token"], tokens["refresh_token"]):
        assert one.rpartition(".")[2].encode() not in kept
    assert b"user:42" in kept


async def test_a_person_sees_and_ends_connections(shop: Any) -> None:
    _, mine = await shop.connect()
    _, others = await shop.connect("bob")
    browser = shop.browser("ann")
    await browser.open("/oauth/connections")
    assert browser.text.count("since") == 1
    assert "Claude" in browser.text
    grant = browser.page.partition('name="grant" value="')[2].partition('"')[0]
    other = shop.browser("bob")
    await other.open("/oauth/connections")
    await other.send("/oauth/connections", grant=grant)
    assert (await shop.call(mine["access_token"])).status_code == 200, "of another person"
    assert (await browser.send("/oauth/connections", grant=grant)).status_code == 303
    assert (await shop.call(mine["access_token"])).status_code == 401
    assert (await shop.call(others["access_token"])).status_code == 200
    await browser.open("/oauth/connections")
    assert "There are none." in browser.text
    stranger = await shop.browser().open("/oauth/connections")
    assert stranger.headers["location"] == "/login?next=%2Foauth%2Fconnections"


async def test_tokens_end_with_time(shop: Any) -> None:
    client_id, tokens = await shop.connect()
    shop.clock.move(3599)
    assert (await shop.call(tokens["access_token"])).status_code == 200
    shop.clock.move(1)
    refused = await shop.call(tokens["access_token"])
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    day = 24 * 3600
    for _ in range(3):
        shop.clock.move(29 * day)
        tokens = (await shop.refresh(client_id, tokens["refresh_token"])).json()
        assert (await shop.call(tokens["access_token"])).status_code == 200
    shop.clock.move(3 * day)
    late = await shop.refresh(client_id, tokens["refresh_token"])
    assert late.json()["error"] == "invalid_grant", "after 90 days the person is asked anew"


async def test_a_client_that_is_not_used_is_forgotten_and_is_told_to_register_anew(shop: Any) -> None:
    unused = (await shop.register())["client_id"]
    seen = (await shop.register())["client_id"]
    day = 24 * 3600
    shop.clock.move(3 * day)
    await shop.browser("ann").open("/oauth/authorize", **shop.asked(seen))
    await shop.browser().open("/oauth/authorize", **shop.asked(unused))
    shop.clock.move(4 * day)
    browser = shop.browser("ann")
    assert (await browser.open("/oauth/authorize", **shop.asked(seen))).status_code == 200, (
        "somebody was asked about it"
    )
    page = await browser.open("/oauth/authorize", **shop.asked(unused))
    assert page.status_code == 400
    assert "not known" in browser.text
    answer = await shop.refresh(unused, "a.b")
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
