"""A server answers to its own names only, so that a foreign site cannot make one of its own names mean this server."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from amoxi_py.surfaces.http.app import build_http
from amoxi_py.surfaces.http.door import Door
from amoxi_py.surfaces.http.host_check import HostCheck
from amoxi_py.surfaces.http.settings import HttpSettings

LOOPBACK = ["localhost", "localhost:80", "LOCALHOST:8080", "localhost.:1", "127.0.0.1", "127.0.0.1:8080", "[::1]:9"]
FOREIGN = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.7:80",
    "[::2]",
]
BROKEN = ["", "localhost:80@evil.example", "localhost evil.example", "a@localhost", "localhost:x", "[::1", "/localhost"]


def assert_refused(response: Any) -> None:
    assert (response.status_code, response.json()["code"]) == (421, "host_unknown")
    assert response.headers["content-type"] == "application/problem+json"
    assert "server.public-url" in response.json()["detail"]
    assert "set-cookie" not in response.headers


def test_a_server_on_loopback_answers_to_loopback_names_only(open_house: Callable[..., Any]) -> None:
    client = open_house(host="127.0.0.1").visitor()
    for host in LOOPBACK:
        assert client.get("/agents", headers={"host": host}).status_code == 200, host
    for host in (*FOREIGN, *BROKEN):
        assert_refused(client.get("/agents", headers={"host": host}))
        assert_refused(client.post("/agents/support-agent/runs", headers={"host": host}, json={"message": "hello"}))
        assert_refused(client.get("/docs", headers={"host": host}))
    assert client.get("/runs").json()["items"] == []


def test_with_a_public_url_its_host_and_loopback_names_are_known(open_house: Callable[..., Any]) -> None:
    client = open_house(host="0.0.0.0", public_url="https://Shop.example:8443/support").visitor()
    for host in (*LOOPBACK, "shop.example", "SHOP.example:8443", "shop.example:1"):
        assert client.get("/agents", headers={"host": host}).status_code == 200, host
    for host in (*FOREIGN, *BROKEN, "www.shop.example", "shop.example.evil.example"):
        assert_refused(client.get("/agents", headers={"host": host}))


def test_a_server_that_listens_elsewhere_and_was_told_no_name_answers_to_every_name(
    open_house: Callable[..., Any],
) -> None:
    for host in ("0.0.0.0", "10.0.0.7", None):
        client = open_house(host=host).visitor()
        assert client.get("/agents", headers={"host": "shop.example"}).status_code == 200


def test_probes_come_by_any_name(open_house: Callable[..., Any]) -> None:
    client = open_house(host="127.0.0.1", prefix="/ai").visitor()
    for probe in ("live", "ready"):
        assert client.get(f"/ai/health/{probe}", headers={"host": "10.1.2.3:8080"}).status_code == 200
    assert_refused(client.get("/health/live", headers={"host": "10.1.2.3:8080"}))


def test_a_good_name_beside_a_foreign_one_is_refused(open_house: Callable[..., Any]) -> None:
    house = open_house(host="127.0.0.1")
    address = house.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=60) as connection:
        connection.sendall(
            b"GET /agents HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
        with connection.makefile("rb") as answer:
            assert answer.readline().split()[1] in (b"421", b"400")


@pytest.mark.parametrize("server", [("192.0.2.7", 80), None])
def test_what_does_not_come_over_loopback_is_not_measured_by_loopback_names(server: Any) -> None:
    """Another server may have bound the app elsewhere than the settings say."""
    app = build_http(Door(HttpSettings(host="127.0.0.1")))
    answers = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/nothing", "raw_path": b"/nothing", "query_string": b"",
        "headers": [(b"host", b"shop.example")], "server": server, "client": None, "scheme": "http",
    }  # fmt: skip
    anyio.run(app, scope, receive, send)
    assert answers[0]["status"] == 404


def test_of_hosts_that_are_too_long_for_a_name_nothing_is_kept() -> None:
    async def refuse() -> None:
        for letter in b"abcdefgh":
            scope = {
                "type": "http", "path": "/agents", "headers": [(b"host", bytes([letter]) * 1_000_000)],
                "server": ("127.0.0.1", 80),
            }  # fmt: skip
            await check(scope, receive, send)

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        assert message.get("status", 421) == 421

    check = HostCheck(build_http(Door(HttpSettings())), HttpSettings(host="127.0.0.1"))
    tracemalloc.start()
    try:
        anyio.run(refuse)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_websocket_of_an_unknown_host_is_closed_before_it_opens() -> None:
    app = build_http(Door(HttpSettings(host="127.0.0.1")))
    answers = []

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "websocket", "path": "/ws", "headers": [(b"host", b"evil.example")], "server": ("127.0.0.1", 80),
    }  # fmt: skip
    anyio.run(app, scope, None, send)
    assert [answer["type"] for answer in answers] == ["websocket.close"]
