"""What clients read at well-known addresses, and what the server reads at those of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from amoxi_py.surfaces.mcp.oauth.fetching import Fetched, FetchFailed, fetch_public
from amoxi_py.surfaces.outgoing import is_public
from certificates import certificate

pytestmark = pytest.mark.anyio

URL = "https://shop.example.com"
CLIENT = "https://app.example.com/client.json"
CALLBACK = "https://app.example.com/callback"
RIGHT = {"client_id": CLIENT, "client_name": "App", "redirect_uris": [CALLBACK]}


async def test_the_protected_resource_is_described(shop: Any) -> None:
    for tail in ("", "/mcp"):
        answer = await shop.client().get(f"/.well-known/oauth-protected-resource{tail}")
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.json() == {
            "resource": f"{URL}/mcp",
            "authorization_servers": [f"{URL}/oauth"],
            "scopes_supported": ["mcp"],
            "bearer_methods_supported": ["header"],
        }


async def test_the_authorization_server_is_described(shop: Any) -> None:
    for tail in ("", "/oauth", "/mcp"):
        found = (await shop.client().get(f"/.well-known/oauth-authorization-server{tail}")).json()
        for name, path in (
            ("issuer", ""),
            ("authorization_endpoint", "/authorize"),
            ("token_endpoint", "/token"),
            ("registration_endpoint", "/register"),
            ("revocation_endpoint", "/revoke"),
        ):
            assert found[name] == f"{URL}/oauth{path}"
        assert found["authorization_response_iss_parameter_supported"] is True
        assert found["response_types_supported"] == ["code"]
        assert found["grant_types_supported"] == ["authorization_code", "refresh_token"]


async def test_what_is_no_openid_provider_says_so_in_json(shop: Any) -> None:
    document = "/.well-known/openid-configuration"
    for path in (document, f"{document}/oauth", f"{document}/mcp", f"/oauth{document}", f"/mcp{document}"):
        answer = await shop.client().get(path)
        assert answer.status_code == 404, path
        assert answer.json()["error"] == "not_found"


async def test_a_page_of_a_browser_may_ask_the_endpoints_of_programs(shop: Any) -> None:
    for path in ("/oauth/token", "/oauth/register", "/.well-known/oauth-protected-resource/mcp"):
        answer = await shop.client().options(path, headers={"origin": "https://inspector.example"})
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in answer.headers


async def test_under_a_prefix_and_without_a_public_address_all_addresses_follow(shop: Any) -> None:
    await shop.start(public_url=None, prefix="/ai")
    server = shop.client(1, url="http://localhost:8080")
    found = (await server.get("/.well-known/oauth-protected-resource/ai/mcp")).json()
    assert found["resource"] == "http://localhost:8080/ai/mcp"
    issuer = found["authorization_servers"][0]
    assert issuer == "http://localhost:8080/ai/oauth"
    metadata = (await server.get("/.well-known/oauth-authorization-server/ai/oauth")).json()
    assert metadata["issuer"] == issuer
    registered = await server.post(metadata["registration_endpoint"], json={"redirect_uris": [CALLBACK]})
    assert registered.status_code == 201
    page = await server.get("/ai/oauth/authorize", params={"client_id": "none"})
    assert 'href="/ai/oauth/page.css"' in page.text
    await shop.start(public_url="https://example.com/shop")
    behind = (await shop.client(2).get("/.well-known/oauth-protected-resource/shop/mcp")).json()
    assert behind["resource"] == "https://example.com/shop/mcp"


async def test_a_document_that_is_not_right_connects_nobody(shop: Any) -> None:
    wrong: list[tuple[Any, str]] = [
        (None, "cannot be used: it cannot be read."),
        (Fetched(b"<html>"), "no JSON object"),
        ({**RIGHT, "client_id": "https://app.example.com/other.json"}, "not the address"),
        ({**RIGHT, "redirect_uris": []}, "redirect_uris"),
        ({**RIGHT, "redirect_uris": ["http://evil.example/cb"]}, "redirect_uris"),
        ({**RIGHT, "client_secret": "x"}, "secret"),
        ({**RIGHT, "token_endpoint_auth_method": "client_secret_post"}, "secret"),
    ]
    browser = shop.browser("ann")
    for n, (document, why) in enumerate(wrong):
        client = f"https://app{n}.example.com/client.json"
        shop.documents[client] = {**document, "client_id": client} if why in ("redirect_uris", "secret") else document
        for _ in range(2):
            answer = await browser.open("/oauth/authorize", **shop.asked(client, redirect_uri=CALLBACK))
            assert answer.status_code == 400
            assert why in browser.text
        assert shop.fetched.count(client) == 1, "it is not asked for again at once"


async def test_a_client_id_that_may_not_be_asked_for_is_not_asked_for(shop: Any) -> None:
    for client_id in (
        "http://app.example.com/client.json",
        "https://app.example.com",
        "https://app.example.com/",
        "https://app.example.com/a/../client.json",
        "https://u@app.example.com/client.json",
        "https://app.example.com/client.json#x",
        "https://app.example.com:x/client.json",
        "file:///etc/passwd",
    ):
        answer = await shop.browser("ann").open("/oauth/authorize", **shop.asked(client_id))
        assert answer.status_code == 400, client_id
    assert shop.fetched == []


async def test_a_document_is_kept_as_long_as_it_says_within_bounds(shop: Any) -> None:
    shop.documents[CLIENT] = Fetched(
        b'{"client_id":"https://app.example.com/client.json","redirect_uris":["https://app.example.com/callback"]}',
        "public, max-age=7200",
    )
    asked = shop.asked(CLIENT, redirect_uri=CALLBACK)
    for move, count in ((0, 1), (7199, 1), (1, 2)):
        shop.clock.move(move)
        assert (await shop.browser("ann").open("/oauth/authorize", **asked)).status_code == 200
        assert len(shop.fetched) == count


async def test_no_document_is_read_from_an_address_that_is_not_public() -> None:
    private = ["127.0.0.1", "10.0.0.7", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"]
    private += ["::1", "::", "fe80::1", "fd00::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1"]
    private += ["2002:7f00:1::", "2001:0:1::1", "255.255.255.255", "240.0.0.1", "224.0.0.1", "fe80::1%eth0", "ff02::1"]
    for address in private:
        assert not is_public(address), address

        async def resolve(host: str, port: int, address: str = address) -> list[str]:
            return ["93.184.216.34", address]

        with pytest.raises(FetchFailed, match="not on the public internet"):
            await fetch_public(CLIENT, largest=1000, resolve=resolve)


async def test_public_addresses_are_known() -> None:
    for address in ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"):
        assert is_public(address)


@pytest.fixture
async def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server of `app.example.com` on this machine, which is taken for a public one."""
    context, trusted = certificate(tmp_path, "app.example.com")
    heard: list[str] = []
    answers = {
        "/client.json": b"HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ncontent-length: 2\r\n\r\n{}",
        "/large": b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + b"x" * 5000,
        "/elsewhere": b"HTTP/1.1 302 Found\r\nlocation: /client.json\r\ncontent-length: 0\r\n\r\n",
    }

    async def answer(stream: Any) -> None:
        async with stream:
            heard.append((await stream.receive()).decode())
            await stream.send(answers[heard[-1].split(" ")[1]])

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    from anyio.streams.tls import TLSListener

    monkeypatch.setattr("amoxi_py.surfaces.mcp.oauth.fetching.is_public", lambda address: True)
    monkeypatch.setattr("amoxi_py.surfaces.mcp.oauth.fetching._WITHIN_S", 60.0)  # of a busy machine
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(TLSListener(listener, context, standard_compatible=False).serve, answer)
        yield port, trusted, heard
        tasks.cancel_scope.cancel()


async def test_a_document_is_read_from_the_address_that_its_name_led_to(tls: Any) -> None:
    port, trusted, heard = tls
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async def read(path: str, host: str = "app.example.com") -> Fetched:
        return await fetch_public(f"https://{host}:{port}{path}", largest=1000, resolve=resolve, trusted=trusted)

    assert await read("/client.json") == Fetched(b"{}", "max-age=60")
    assert f"host: app.example.com:{port}" in heard[0].lower()
    assert asked == ["app.example.com"], "once, so that no second answer leads elsewhere"
    with pytest.raises(FetchFailed, match="too large"):
        await read("/large")
    with pytest.raises(FetchFailed, match="status 302"):
        await read("/elsewhere")
    with pytest.raises(FetchFailed, match="cannot be reached"):
        await read("/client.json", "other.example.com")
