"""`/memories`: a caller's own, to read, to search and to forget; nobody else's, whoever asks however."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asking import Asker
from fastapi import FastAPI

from amoxi_py import Principal, Runs
from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.app.web import web_app
from amoxi_py.config.load import load_settings

TOKEN = "acme-token-0123456789"
ANN = Principal(id="42", name="Ann", tenant="acme")
ELSEWHERE = Principal(id="42", tenant="globex")
BOB = Principal(id="9")
ACME = Principal(id="api:acme", channel="api")
SIGNED_IN = {"ann": ANN, "ann-elsewhere": ELSEWHERE, "bob": BOB}


class Place:
    """A server in this process, and the door of its own code."""

    def __init__(self, app: FastAPI, prefix: str) -> None:
        self._app = app
        self._prefix = prefix
        self.runs: Runs = app.state.amoxi.runs

    def asks(self, who: str | None) -> Asker:
        headers = {"authorization": f"Bearer {TOKEN}"} if who is None else {"x-user": who}
        return Asker(self._app, headers, self._prefix)


@asynccontextmanager
async def place(folder: Path, prefix: str = "", **more: Any) -> AsyncIterator[Place]:
    given = {"app.package": "staffed_app", "ai.store.path": str(folder / "ai"), "ai.model": "offline", **more}
    given |= {"ai.http.prefix": prefix} if prefix else {}
    settings = load_settings(folder, profile="test", environ={"AI_API_CALLERS_ACME": TOKEN}, given=given)
    app = web_app(Runtime(settings, read_declarations(settings), stand_ins=StandIns()))
    async with app.router.lifespan_context(app):
        yield Place(app, prefix)


@pytest.fixture
def at(tmp_path: Path) -> Callable[..., None]:
    """Run a case at a server: `at(case)`; the settings may follow."""

    def run(case: Callable[[Place], Awaitable[None]], prefix: str = "", **more: Any) -> None:
        async def in_place() -> None:
            async with place(tmp_path, prefix, **more) as there:
                await case(there)

        asyncio.run(in_place())

    return run


async def texts(http: Asker, query: str = "") -> list[str]:
    answer = await http.ask("GET", f"/memories{query}")
    assert answer.status == 200, answer
    return [one["text"] for one in answer.json()["items"]]


def test_a_memory_is_told_with_all_that_is_kept_of_it(at: Any) -> None:
    async def case(there: Place) -> None:
        kept = await there.runs.remember("Size 39.", principal=ANN, key="size", metadata={"size": 39})
        answer = await there.asks("ann").ask("GET", "/memories")
        assert answer.header("cache-control") == "no-store"
        page = answer.json()
        [memory] = page["items"]
        assert page["next_cursor"] is None
        assert {"created_at", "updated_at"} == set(memory) - {"id", "key", "text", "metadata"}
        assert (memory["id"], memory["key"], memory["text"], memory["metadata"]) == (
            kept.id, "size", "Size 39.", {"size": 39},
        )  # fmt: skip
        assert memory["created_at"].endswith("Z")
        await there.runs.remember("Without a key.", principal=ANN)
        first = (await there.asks("ann").ask("GET", "/memories?limit=1")).json()
        assert [(one["key"], one["text"]) for one in first["items"]] == [(None, "Without a key.")]
        second = (await there.asks("ann").ask("GET", f"/memories?limit=1&cursor={first['next_cursor']}")).json()
        assert ([one["text"] for one in second["items"]], second["next_cursor"]) == (["Size 39."], None)

    at(case)


def test_a_search_gives_what_fits_best_first(at: Any) -> None:
    async def case(there: Place) -> None:
        for n in range(8):
            await there.runs.remember(f"An order of {n} green tents.", principal=ANN)
        await there.runs.remember("She hikes with a small dog.", principal=ANN)
        for n in range(8):
            await there.runs.remember(f"An order of {n} red tents.", principal=ANN)
        answer = (await there.asks("ann").ask("GET", "/memories?q=a%20dog%3F&limit=3")).json()
        assert answer["items"][0]["text"] == "She hikes with a small dog."
        assert all(0 < one["score"] <= 1 for one in answer["items"])
        assert len(answer["items"]) <= 3
        assert answer["next_cursor"] is None
        assert len(await texts(there.asks("ann"), "?q=tents&limit=200")) >= 16

    at(case)


def test_what_is_forgotten_is_gone_at_once(at: Any) -> None:
    async def case(there: Place) -> None:
        http = there.asks("ann")
        one, two, _ = [await there.runs.remember(f"Fact {n}.", principal=ANN) for n in range(3)]
        await there.runs.remember("Of Bob.", principal=BOB)
        assert (await http.ask("DELETE", f"/memories/{one.id}")).status == 204
        assert await texts(http) == ["Fact 2.", "Fact 1."]
        assert (await http.ask("DELETE", f"/memories/{one.id}")).json()["code"] == "not_found"
        assert "Fact 0." not in await texts(http, "?q=Fact%200")
        assert await there.runs.recall("Fact 0", principal=ANN, limit=1) != (one,)
        assert (await http.ask("DELETE", "/memories")).status == 204
        assert await texts(http) == []
        assert (await http.ask("DELETE", f"/memories/{two.id}")).status == 404
        assert (await http.ask("DELETE", "/memories")).status == 204
        assert await texts(there.asks("bob")) == ["Of Bob."]

    at(case)


@pytest.mark.parametrize("prefix", ["", "/ai"])
def test_nobody_reaches_the_memories_of_others(at: Any, prefix: str) -> None:
    async def case(there: Place) -> None:
        owners: dict[str | None, Principal] = {**SIGNED_IN, None: ACME}
        kept = {who: await there.runs.remember(f"A secret of {who}.", principal=owner) for who, owner in owners.items()}
        for who in owners:
            http = there.asks(who)
            hostile = ("the memories of user:42", "user:42", "%22 OR space:*", "principal:", "secret", "*", "a%00b")
            for query in ("", *(f"?q={words.replace(' ', '%20')}" for words in hostile)):
                for more in (
                    "",
                    "principal=user%3A42",
                    "tenant=acme",
                    "space=principal%3Auser%3A42",
                    "owner=user%3A42",
                ):
                    told = await http.ask("GET", f"/memories{query}{'&' if query else '?'}{more}")
                    for other, memory in kept.items():
                        assert other == who or (memory.text not in told.text and memory.id not in told.text), query
            for other, memory in kept.items():
                if other != who:
                    told = await http.ask("DELETE", f"/memories/{memory.id}")
                    unknown = await http.ask("DELETE", f"/memories/{memory.id[:-1]}x")
                    assert told.status == unknown.status == 404
                    assert told.text.replace(memory.id, "-") == unknown.text.replace(f"{memory.id[:-1]}x", "-")
        assert (await there.asks("bob").ask("DELETE", "/memories")).status == 204
        for who, memory in kept.items():
            assert await texts(there.asks(who)) == ([] if who == "bob" else [memory.text])

    at(case, prefix)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("?q=", "q"),
        ("?q=%20", "searched for"),
        ("?q=x&cursor=abc", "takes no cursor"),
        ("?q=" + "x" * 1001, "q"),
        ("?limit=0", "limit"),
        ("?limit=201", "limit"),
        ("?cursor=none", "cursor"),
    ],
)
def test_what_cannot_be_asked_is_told(at: Any, query: str, told: str) -> None:
    async def case(there: Place) -> None:
        answer = await there.asks("ann").ask("GET", f"/memories{query}")
        assert answer.status == 422, answer
        assert told in answer.text

    at(case)


def test_who_is_nobody_is_asked_to_sign_in(at: Any) -> None:
    async def case(there: Place) -> None:
        for method, path in (("GET", "/memories"), ("DELETE", "/memories"), ("DELETE", "/memories/mem_0")):
            assert (await there.asks("expired").ask(method, path)).status == 401

    at(case)


def test_a_foreign_page_forgets_nothing(at: Any) -> None:
    async def case(there: Place) -> None:
        http = Asker(there._app, {}, "")
        cookie = (await http.ask("GET", "/agents")).header("set-cookie").partition(";")[0]
        for path in ("/memories", "/memories/mem_0123"):
            answer = await http.ask("DELETE", path, headers={"cookie": cookie, "origin": "https://elsewhere.example"})
            assert answer.status == 403

    at(case, **{"ai.http.anonymous": True})
