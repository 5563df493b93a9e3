"""Addresses of documents that strangers name: no one of them takes a place for long, or is told what is there."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import pytest

from amoxi_py.surfaces import outgoing
from amoxi_py.surfaces.mcp.oauth import fetching
from amoxi_py.surfaces.mcp.oauth.fetching import Fetched, FetchFailed, fetch_public
from amoxi_py.surfaces.outgoing import is_public

pytestmark = pytest.mark.anyio

URL = "https://shop.example.com"
CLIENT = "https://app.example.com/client.json"
CALLBACK = "https://app.example.com/callback"
RIGHT = {"client_id": CLIENT, "client_name": "App", "redirect_uris": [CALLBACK]}
LOCAL = "http://localhost/callback"


class Tarpit:
    """Documents that are answered only when they may be."""

    def __init__(self, shop: Any) -> None:
        self.shop = shop
        self.asked: list[str] = []
        self.open = asyncio.Event()
        shop.fetch = self.fetch

    async def fetch(self, url: str) -> Fetched:
        self.asked.append(url)
        if "tarpit" in url:
            await self.open.wait()
            raise FetchFailed("it was answered with the status 503")
        return await type(self.shop).fetch(self.shop, url)


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def open_page(shop: Any, client: str, address: str, server: int = 1) -> Any:
    asked = shop.asked(client, redirect_uri=CALLBACK)
    return await shop.client(server, address).get("/oauth/authorize", params=asked)


async def test_tokens_are_renewed_and_taken_back_while_a_document_cannot_be_read(shop: Any) -> None:
    shop.documents[CLIENT] = RIGHT
    code = await shop.code(CLIENT, redirect_uri=CALLBACK)
    del shop.documents[CLIENT]
    shop.clock.move(59)
    tokens = (await shop.exchange(CLIENT, code, redirect_uri=CALLBACK)).json()
    shop.clock.move(25 * 3600)
    tokens = (await shop.refresh(CLIENT, tokens["refresh_token"])).json()
    assert (await shop.call(tokens["access_token"])).status_code == 200
    form = {"client_id": CLIENT, "token": tokens["refresh_token"]}
    assert (await shop.client().post("/oauth/revoke", data=form)).status_code == 200
    assert (await shop.call(tokens["access_token"])).status_code == 401
    strange = "https://stranger.example/client.json"
    assert (await shop.refresh(strange, "a.b")).status_code == 400
    assert (await shop.client().post("/oauth/revoke", data={"client_id": strange, "token": "x"})).status_code == 200
    assert shop.fetched == [CLIENT], "nothing is fetched for a token"


async def test_a_document_that_is_too_old_holds_while_there_is_no_newer_one(shop: Any) -> None:
    shop.documents[CLIENT] = RIGHT
    await shop.code(CLIENT, redirect_uri=CALLBACK)
    del shop.documents[CLIENT]
    shop.clock.move(20 * 3600)
    for _ in range(2):
        assert await shop.code(CLIENT, redirect_uri=CALLBACK)
    assert shop.fetched == [CLIENT, CLIENT]
    shop.clock.move(5 * 3600)
    assert (await open_page(shop, CLIENT, "203.0.113.7", 0)).status_code == 400


async def test_a_document_is_read_once_for_all_who_ask_for_it_now(shop: Any) -> None:
    tarpit = Tarpit(shop)
    await shop.start()
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await open_page(shop, "https://tarpit.example/client.json", "203.0.113.7"))

    async with anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(ask)
        await until(lambda: tarpit.asked)
        tarpit.open.set()
    assert tarpit.asked == ["https://tarpit.example/client.json"]
    assert {answer.status_code for answer in answers} == {400}


async def test_strangers_whose_documents_never_come_stop_nobody_for_long(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amoxi_py.surfaces.mcp.oauth.client_documents._TURN_WITHIN_S", 0.02)
    tarpit = Tarpit(shop)
    shop.documents[CLIENT] = RIGHT
    await shop.start()
    statuses: list[int] = []

    async def ask(url: str, address: str) -> None:
        statuses.append((await open_page(shop, url, address)).status_code)

    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(ask, "https://tarpit.example/{n}.json".replace("{n}", str(n)), "203.0.113.7")
        await until(lambda: len(statuses) == 39 and bool(tarpit.asked))
        assert len(tarpit.asked) == 1, "of one host one at once"
        assert (await open_page(shop, CLIENT, "203.0.113.8")).status_code == 200
        tarpit.open.set()
    assert set(statuses) == {400, 429, 503}
    monkeypatch.setattr("amoxi_py.surfaces.mcp.oauth.client_documents._TURN_WITHIN_S", 60.0)
    tarpit.open.clear()
    tarpit.asked.clear()
    statuses.clear()
    async with anyio.create_task_group() as tasks:
        for n in range(40):
            tasks.start_soon(ask, f"https://tarpit{n}.example/client.json", f"198.51.100.{n}")
        await until(lambda: len(statuses) == 16 and len(tarpit.asked) >= 8)
        assert len(tarpit.asked) == 8, "the others wait, and no more than that may"
        busy = await open_page(shop, "https://new.example/client.json", "203.0.113.9")
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "5")
        tarpit.open.set()
    assert statuses.count(503) == 16


async def test_a_stranger_is_not_told_what_answers_at_an_address(shop: Any) -> None:
    told = set()
    failures = ("it was answered with the status 403", "it is too large", "its host cannot be reached")
    for n, why in enumerate(failures):

        async def fetch(url: str, why: str = why) -> Fetched:
            raise FetchFailed(why)

        shop.fetch = fetch
        await shop.start()
        told.add((await open_page(shop, CLIENT, "203.0.113.7", n + 1)).text)
    assert len(told) == 1
    asked = len(shop.fetched)
    other = await open_page(shop, "https://app.example.com:8443/client.json", "203.0.113.7")
    assert (other.status_code, len(shop.fetched)) == (400, asked)


async def test_a_name_server_that_does_not_answer_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    looked_up: list[str] = []

    def getaddrinfo(host: str, *_args: Any, **_more: Any) -> Any:
        looked_up.append(host)
        assert answered.wait(60)
        raise OSError

    monkeypatch.setattr(outgoing.socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(fetching, "_WITHIN_S", 0.1)

    async def fetch(n: int) -> None:
        with pytest.raises(FetchFailed):
            await fetch_public(f"https://h{n}.example/client.json", largest=100)

    try:
        await asyncio.gather(*map(fetch, range(64)))
        assert len(looked_up) <= 4
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        answered.set()


async def test_the_next_address_of_a_name_is_tried_where_nothing_answers_at_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def get(url: str, *_args: Any, **_more: Any) -> Fetched:
        asked.append(url)
        if "[" in url:
            raise fetching._NoWay("it cannot be reached")
        return Fetched(b"{}")

    async def resolve(host: str, port: int) -> list[str]:
        return ["2606:4700::1", "1.1.1.1"]

    monkeypatch.setattr(fetching, "_get", get)
    assert await fetch_public(CLIENT, largest=100, resolve=resolve) == Fetched(b"{}")
    assert asked == ["https://[2606:4700::1]:443/client.json", "https://1.1.1.1:443/client.json"]


@pytest.mark.parametrize(
    "address", ["fec0::1", "192.0.0.192", "192.88.99.1", "3fff::1", "168.63.129.16", "64:ff9b::7f00:1"]
)
async def test_addresses_that_only_look_public_are_not(address: str) -> None:
    assert not is_public(address)
    assert is_public("1.1.1.1")


async def test_what_any_program_of_a_machine_can_say_is_not_told_as_a_fact(shop: Any) -> None:
    shop.documents[CLIENT] = {**RIGHT, "redirect_uris": [CALLBACK, LOCAL]}
    browser = shop.browser("ann")
    for redirect, proven in ((CALLBACK, True), ("http://localhost:7777/callback", False)):
        await browser.open("/oauth/authorize", **shop.asked(CLIENT, redirect_uri=redirect))
        assert ("It is the one of app.example.com." in browser.text) is proven
        assert ("any program on this device can say so" in browser.text) is not proven
        assert "Go on only if you have just asked it to connect." in browser.text
