"""The requests themselves: over TLS to the right name, at the address that was checked, and a fair number at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.surfaces import outgoing
from amoxi_py.surfaces.a2a.places import Places
from amoxi_py.surfaces.a2a.posting import Poster, PostFailed
from amoxi_py.surfaces.a2a.push_allowed import parse_allowed
from amoxi_py.surfaces.a2a.push_names import Names
from certificates import certificate
from receivers import receiving

pytestmark = pytest.mark.anyio

Until = Callable[..., Awaitable[Any]]
OURS = "a2a:partner"


async def test_a_receiver_is_known_by_its_name_at_the_address_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    served, trusted = certificate(tmp_path, "agent.example.com")
    asked: list[tuple[str, int]] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.1"]

    async with receiving(tls=served) as receiver:
        port = receiver.port
        poster = Poster(parse_allowed(["127.0.0.0/8"]), Names(resolve), within=30.0, trusted=trusted)
        await poster.post(OURS, f"https://agent.example.com:{port}/x?y=1", b"{}", {"content-type": "application/json"})
        ((headers, _),) = receiver.heard
        assert headers["host"] == f"agent.example.com:{port}"
        assert headers[":first"] == "POST /x?y=1 HTTP/1.1"
        for other in ("other.example.com", "127.0.0.1"):
            with pytest.raises(PostFailed, match="cannot be reached"):
                await poster.post(OURS, f"https://{other}:{port}/x", b"{}", {})
        assert len(receiver.heard) == 1
    assert asked[:2] == [("agent.example.com", port), ("other.example.com", port)]


async def test_the_next_address_is_tried_where_nothing_answers_at_the_first() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with receiving() as receiver:
        poster = Poster(parse_allowed(["agent.example.com"]), Names(resolve))
        await poster.post(OURS, f"http://agent.example.com:{receiver.port}/x", b"{}", {})
        assert len(receiver.heard) == 1


async def test_a_request_ends_in_its_time_and_does_not_say_where_it_went() -> None:
    async with receiving() as receiver:
        receiver.answer = lambda n: None
        poster = Poster(parse_allowed(["127.0.0.1"]), Names(), within=0.05)
        with pytest.raises(PostFailed, match="did not answer within") as failed:
            await poster.post(OURS, receiver.url, b"{}", {"authorization": "Bearer secret"})
        assert not failed.value.lasting
    for url in (receiver.url, f"http://nowhere.invalid:{receiver.port}/?secret"):
        with pytest.raises(PostFailed) as failed:
            await Poster(parse_allowed(["127.0.0.1", "nowhere.invalid"]), Names(nowhere)).post(OURS, url, b"{}", {})
        assert not failed.value.lasting
        assert "secret" not in str(failed.value)


async def nowhere(host: str, port: int) -> list[str]:
    raise OSError("no such name as secret")


async def test_whose_name_servers_do_not_answer_holds_up_nobody_else(
    until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    asked: list[str] = []

    def getaddrinfo(host: str, *_args: Any, **_more: Any) -> Any:
        asked.append(host)
        if host.startswith("slow"):
            assert answered.wait(60)
        return [(2, 1, 6, "", ("93.184.216.34", 443))]

    monkeypatch.setattr(outgoing.socket, "getaddrinfo", getaddrinfo)
    names = Names()
    slow = [asyncio.create_task(names.of("one")(f"slow{n}.example.com", 443)) for n in range(40)]
    try:
        await until(lambda: len(asked) == 2)
        for task in slow[:20]:
            task.cancel()
        async with asyncio.timeout(20):
            assert await names.of("two")("agent.example.com", 443) == ["93.184.216.34"]
            await asyncio.wait(slow[:20])
        assert asked == ["slow0.example.com", "slow1.example.com", "agent.example.com"], (
            "who leaves gives no thread back"
        )
    finally:
        answered.set()
    assert await asyncio.gather(*slow[20:]) == [["93.184.216.34"]] * 20


async def test_who_hangs_leaves_places_for_the_others(until: Until) -> None:
    places = Places()
    inside: list[tuple[str, str]] = []
    let_go = asyncio.Event()

    async def hang(caller: str, receiver: str) -> None:
        async with places.take(caller, receiver):
            inside.append((caller, receiver))
            await let_go.wait()

    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(let_go.set)
        for _ in range(50):
            tasks.create_task(hang("one", "hangs"))
        await until(lambda: len(inside) == 4)
        tasks.create_task(hang("one", "answers"))
        await until(lambda: len(inside) == 5)
        for n in range(50):
            tasks.create_task(hang("one", f"hangs-{n}"))
        await until(lambda: len(inside) == 16)
        for caller in ("two", "three", "four"):
            tasks.create_task(hang(caller, "hangs"))
        await until(lambda: len(inside) == 19)
    assert len(inside) == 104
    assert not places._narrow, "nothing is kept of who has left"
