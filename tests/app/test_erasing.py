"""All that is kept of a principal is deleted by code: from `open_app()`, and from a route of the app."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal, open_app
from amoxi_py.app.erasing import Erased
from amoxi_py.app.exporting import export_principal
from amoxi_py.app.oauth import grants_of
from amoxi_py.app.open_app import OpenApp
from amoxi_py.app.web import create_app
from amoxi_py.config.settings import Settings
from amoxi_py.domain.memory import space_of
from amoxi_py.engine.operator import Operator
from amoxi_py.errors import InvalidRequest, NotFound
from amoxi_py.ports.passages import NewPassage
from amoxi_py.ports.records import Record, group_of
from amoxi_py.surfaces.mcp.oauth.clients import Client

pytestmark = pytest.mark.anyio

SOURCE = '''
from amoxi_py import agent, tool
from amoxi_py.testing import ScriptedModel, call

MODEL = ScriptedModel({
    "hello": ["Hello, the private sentence."],
    "drop": [call("drop", name="the private sentence"), "Dropped."],
    "staff": [call("staff_drop", name="A"), "Dropped."],
}, record=False)


@tool(needs_approval=True)
async def drop(name: str) -> str:
    """Drop."""
    return "dropped"


@tool(needs_approval=True, approver="role:staff")
async def staff_drop(name: str) -> str:
    """Drop."""
    return "dropped"


@agent(tools=[drop, staff_drop], model=MODEL)
class Night:
    """You work at night."""
'''
ANA, BOB = Principal(id="ana", name="Ana the private"), Principal(id="bob")
STAFF = Principal(id="sam", roles=frozenset({"staff"}))
OF_FTS = {"passage_words", "passage_words_config"}  # the one is a view of the others
KEPT_AS_NUMBERS = {"event", "erased_run", "migration", "sqlite_sequence", "handler", *OF_FTS}
NOTHING = Erased(conversations=0, files=0, connections=0, idempotency_keys=0, records=0, decisions=0, memories=0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def app_settings(make_app: Callable[..., Settings]) -> Settings:
    return make_app(SOURCE)


async def waiting(app: OpenApp, message: str, principal: Principal) -> Any:
    """A run that waits for a decision."""
    run = await app.runs.submit("night", message, principal=principal)
    async with asyncio.timeout(60):
        async for event in app.runs.events(run.id):
            if event.type == "approval.requested":
                break
    return run


async def read(app: OpenApp, run_id: str, seen: list[str]) -> None:
    async for event in app.runs.events(run_id):
        seen.append(event.type)  # noqa: PERF401 - each is looked at when it comes


def stored(settings: Settings) -> dict[str, str]:
    """All rows that could hold something of somebody, by table."""
    with closing(sqlite3.connect(settings.store_folder / "amoxi.db")) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        rows = {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in names - KEPT_AS_NUMBERS}
    return {name: repr(found) for name, found in rows.items() if found}


async def test_nothing_of_a_principal_is_left_and_others_keep_theirs(app_settings: Settings) -> None:
    async with open_app(settings=app_settings) as app:
        runtime = app._runtime
        own = Principal(id="user:ana", channel="code")
        run = await app.runs.submit("night", "hello", principal=ANA, idempotency_key="private-key")
        await app.runs.wait(run.id, timeout=60)
        open_run = await waiting(app, "drop", ANA)
        theirs = await waiting(app, "staff", BOB)
        record = Record(kind="a2a.message", key="k", group=group_of(own), content='"private"')
        await runtime.store.keep_record(record)
        secret = NewPassage(id="mem_1", name="pet", text="private pony", vector=struct.pack("<f", 1.0))
        await runtime.store.keep_passages(space_of(own), [secret], "e")
        grants = grants_of(lambda: runtime.store)
        told = {"redirect_uri": "http://localhost/cb", "challenge": "c", "target": "t", "resource": "r"}
        await grants.allow(Client(id="c", name="Kit", redirect_uris=()), own, **told)
        seen: list[str] = []
        reader = asyncio.create_task(read(app, open_run.id, seen))
        async with asyncio.timeout(60):
            while "approval.requested" not in seen:
                await asyncio.sleep(0.005)
        erased = await app.erase(ANA)
        assert erased == Erased(
            conversations=2, files=0, connections=1, idempotency_keys=1, records=1, decisions=0, memories=1
        )
        await asyncio.wait_for(reader, 60)  # the open stream has ended
        for gone in (run, open_run):
            with pytest.raises(NotFound):
                await app.runs.get(gone.id)
        assert await app.erase(ANA) == NOTHING
        left = stored(app_settings)
        assert [name for name, rows in left.items() if "ana" in rows or "private" in rows] == []
        assert (await app.runs.get(theirs.id)).status == "waiting"
        call_id = (await app.runs.get(theirs.id)).waiting_for[0].call_id
        await app.runs.decide(call_id or "", "decline", by=STAFF)
        await app.runs.wait(theirs.id, timeout=60)
        assert "user:sam" in stored(app_settings)["approval"]
        assert (await app.erase(STAFF)).decisions == 1
        assert "sam" not in "".join(stored(app_settings).values())
        assert (await app.runs.get(theirs.id)).status == "completed", "what was decided stays decided"


async def test_what_comes_meanwhile_is_deleted_or_new_and_a_second_time_finds_all_of_it(
    app_settings: Settings,
) -> None:
    async with open_app(settings=app_settings) as app:
        for _ in range(5):
            await app.runs.submit("night", "hello", principal=ANA)

        async def go_on() -> None:
            for _ in range(30):
                await app.runs.submit("night", "hello", principal=ANA)

        erased, _ = await asyncio.gather(app.erase(ANA), go_on())
        left = len((await app.runs.list(principal=ANA, limit=100)).items)
        assert erased.conversations >= 5
        assert erased.conversations + left == 35
        assert (await app.erase(ANA)).conversations == left
        assert (await app.runs.list(principal=ANA)).items == ()


async def test_who_goes_on_talking_does_not_keep_it_from_ending(app_settings: Settings) -> None:
    async with open_app(settings=app_settings, worker=False) as app:

        async def talk() -> None:
            while True:
                await app.runs.submit("night", "hello", principal=ANA)

        talking = [asyncio.create_task(talk()) for _ in range(40)]
        try:
            async with asyncio.timeout(30):
                while len((await app.runs.list(principal=ANA, limit=100)).items) < 60:
                    await asyncio.sleep(0)
                assert (await app.erase(ANA)).conversations >= 60
        finally:
            for one in talking:
                one.cancel()
            await asyncio.wait(talking)


async def test_what_is_remembered_is_exported_with_its_key(app_settings: Settings) -> None:
    async with open_app(settings=app_settings) as app:
        runtime = app._runtime
        own = Principal(id="user:ana", channel="code")
        pet = NewPassage(id="mem_1", name="pet", text="a pony", metadata='{"seen":1}')
        other = NewPassage(id="mem_2", name="mem_2", text="a house")
        await runtime.store.keep_passages(space_of(own), [pet, other], "e")
        await runtime.store.keep_passages(space_of(BOB), [pet], "e")
        operator = Operator(runtime.engine, runtime.store, own)
        lines = [line async for line in export_principal(operator, own) if line["type"] == "memory"]
        told = {line["id"]: (line["key"], line["text"], line["metadata"]) for line in lines}
        assert told == {"mem_1": ("pet", "a pony", {"seen": 1}), "mem_2": (None, "a house", {})}
        assert all(line["created_at"] == line["updated_at"] for line in lines)


async def test_what_is_deleted_while_it_is_exported_is_left_out(app_settings: Settings) -> None:
    async with open_app(settings=app_settings, worker=False) as app:
        runs = [await app.runs.submit("night", "hello", principal=ANA) for _ in range(3)]
        own = Principal(id="user:ana", channel="code")
        runtime = app._runtime
        found: list[str] = []
        async with aclosing(export_principal(Operator(runtime.engine, runtime.store, own), own)) as lines:
            async for line in lines:
                if line["type"] == "conversation" and line["id"] == runs[1].conversation_id:
                    await runtime.engine.erase(line["id"], own)
                found += [line["id"]] if line["type"] == "run" else []
        assert found == [runs[2].id, runs[0].id]


async def test_a_route_of_the_app_erases_and_a_principal_that_cannot_be_is_refused(app_settings: Settings) -> None:
    app = create_app(app_settings)
    async with app.router.lifespan_context(app):
        serving = app.state.amoxi
        visitor = Principal(id="web:v1", channel="web")
        for principal in (ANA, visitor):
            run = await serving.runs.submit("night", "hello", principal=principal)
            await serving.runs.wait(run.id, timeout=60)
        assert (await serving.erase(visitor)).conversations == 1
        assert (await serving.erase(ANA)).conversations == 1
        with pytest.raises(InvalidRequest):
            await serving.erase(Principal(id="mcp:x", channel="web"))


async def test_old_conversations_are_deleted_where_the_settings_say_so(make_app: Callable[..., Settings]) -> None:
    settings = make_app(SOURCE, {"ai.retention.days": 30})
    async with open_app(settings=settings) as app:
        run = await app.runs.submit("night", "hello", principal=ANA)
        await app.runs.wait(run.id, timeout=60)
    database: Path = settings.store_folder / "amoxi.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        ago = 31 * 86_400_000
        connection.execute(
            "UPDATE conversation SET created_at = created_at - ?, updated_at = updated_at - ?", (ago, ago)
        )
        connection.execute("DELETE FROM record")  # that the first sweep was just now
    async with open_app(settings=settings) as app, asyncio.timeout(60):
        while (await app.runs.list(principal=ANA)).items:
            await asyncio.sleep(0.01)
