"""A scenario for the crash kit that calls every verb of the store's port.

A run with parallel calls of every effect, steps and two approvals; a second run in the same conversation; a run that is
cancelled; a conversation that is erased; and every read. Each part has its idempotency key, so that the next process
goes on where the last one died.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

from crash_app import Ledger, ShopAgent, ShopTools, tell_of_cancelled
from evidence import DATABASE, STEPS, rows_of, schema_of, steps_in, table_of

from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease, Run
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import Conflict, NotFound
from amoxi_py.models.script import call
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.files import NewFile
from amoxi_py.ports.store import Store
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing.scene import SCENE

ANA = Principal(id="user:ana", channel="code")
NOTE = NewFile(id="file_note", principal=ANA, name="note.txt", media_type="text/plain")
SCRIPT = {
    "everything": [
        [
            call("lookup", order="A-1"),
            call("refund", order="A-1"),
            call("charge", order="A-1"),
            call("ship", order="A-1"),
        ],
        [call("cancel_order", order="A-2"), call("cancel_order", order="A-3"), call("lookup", order="A-2")],
        "All is done.",
    ],
    "go on": ["Gladly."],
    "wait": [call("cancel_order", order="A-9"), "never said"],
    "hang": [call("hang", order="A-9"), "never said"],
    "forget me": ["Hello."],
}


class OneModel:
    """The same model for every agent."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    def model_for(self, agent: object, ctx: object) -> ScriptedModel:
        return self.model


class RenewalHeard:
    """Forwards to a store, and knows whether the lease was renewed."""

    def __init__(self, store: Store) -> None:
        self.renewed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._store = store

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    def renew(self, *args: Any) -> None:
        self._store.renew(*args)
        self._loop.call_soon_threadsafe(self.renewed.set)


async def play_everything() -> None:
    """Do all of it in the current folder, on the file store there, or in a schema of its own of the test's database."""
    folder = Path.cwd()
    first_process = not (folder / STEPS).exists()
    (folder / STEPS).write_text(json.dumps(sorted(steps_in(rows_of(folder)))), "utf-8")
    scene = SCENE.get()
    assert scene is not None
    declarations = build_declarations([ShopTools, ShopAgent, tell_of_cancelled], provided=[Ledger])
    store = RenewalHeard(scene.wrap_store(make_store(folder)))
    port = cast(Store, store)
    model = ScriptedModel(SCRIPT)
    async with open_instances(declarations.singletons, {Ledger: Ledger(folder)}) as instances:
        engine = Engine(
            store=port,
            catalog=declarations.catalog,
            instances=instances,
            models=OneModel(model),
            settings=EngineSettings(lease=0.6, poll=0.05),
            handlers=declarations.handlers,
        )
        await engine.start()
        await port.secret("cookie", "s" * 32)
        await read_all(engine, port, await everything(engine, port))
        await engine.ready()
        await both_told(Ledger(folder))
        if first_process:  # the next one shows nothing more by it
            await asyncio.wait_for(store.renewed.wait(), 10)
        await engine.stop(grace=5.0)
    (folder / "refused.json").write_text(json.dumps(model.refused), encoding="utf-8")


def make_store(folder: Path) -> Store:
    if DATABASE not in os.environ:
        return SqliteStore(folder)
    import psycopg  # this and the store take half a second that the other store does not need

    from amoxi_py.stores.postgres.store import PostgresStore

    with psycopg.connect(os.environ[DATABASE]) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table_of(folder)} (call text)")
    return PostgresStore(os.environ[DATABASE], schema=schema_of(folder))


async def everything(engine: Engine, store: Store) -> Run:
    first = await engine.submit("shop-agent", "everything", principal=ANA, idempotency_key="k-first")
    first_run = await until_ended(engine, first.run, {"A-2": "approve", "A-3": "decline"})
    assert first_run.status == "completed", first_run
    conversation = first.run.conversation_id
    await store.save_file(NOTE, content())
    second = await engine.submit(
        "shop-agent",
        "go on",
        principal=ANA,
        conversation_id=conversation,
        idempotency_key="k-second",
        files=(NOTE.id,),
    )
    second_run = await until_ended(engine, second.run, {})
    assert second_run.status == "completed", second_run
    third = await engine.submit("shop-agent", "wait", principal=ANA, idempotency_key="k-third")
    await follow(engine, third.run.id, lambda event: event.type is EventType.APPROVAL_REQUESTED)
    await cancel(engine, third.run)
    fourth = await engine.submit("shop-agent", "hang", principal=ANA, idempotency_key="k-fourth")
    await follow(engine, fourth.run.id, lambda event: event.type is EventType.TOOL_CALLED)
    await cancel(engine, fourth.run)
    await forget(engine)
    return first_run


async def content() -> AsyncIterator[bytes]:
    yield b"a note"


async def cancel(engine: Engine, run: Run) -> None:
    cancelled = await engine.cancel(run.id, ANA)
    assert cancelled.status == "cancelled", cancelled


async def both_told(ledger: Ledger) -> None:
    """Wait until the handler of events was called for both runs that were cancelled."""
    async with asyncio.timeout(30):
        while len({line["call"] for line in ledger.lines() if line["what"] == "told"}) < 2:
            await asyncio.sleep(0.01)


async def forget(engine: Engine) -> None:
    try:
        last = await engine.submit("shop-agent", "forget me", principal=ANA, idempotency_key="k-last")
        await until_ended(engine, last.run, {})
        await engine.erase(last.run.conversation_id, ANA)
    except (NotFound, Conflict):  # erased before the crash: the key outlives the conversation
        pass


async def read_all(engine: Engine, store: Store, run: Run) -> None:
    await engine.list_runs(ANA)
    await engine.list_approvals(ANA)
    await engine.list_conversations(ANA)
    await engine.read_conversation(run.conversation_id, ANA)
    await store.run_messages(run.id, ANA)
    await store.files_of_run(Lease(run_id=run.id, run=1, conversation=1, worker=1, fence=1))
    assert (await store.get_file(NOTE.id, ANA)).file.size == 6
    assert await store.read_file(NOTE.id, ANA, 2, 4) == b"note"
    await store.delete_file(NOTE.id, ANA)


async def follow(engine: Engine, run_id: str, until: Callable[[Event], bool]) -> None:
    """Read a run's events until one fits, or the run has ended."""
    async with asyncio.timeout(30):
        async for events in await engine.follow(ANA, run_id=run_id):
            if any(map(until, events)):
                return


async def until_ended(engine: Engine, run: Run, decisions: dict[str, str]) -> Run:
    """Follow a run to its end, deciding by order number what it asks."""
    async with asyncio.timeout(30):
        async for events in await engine.follow(ANA, run_id=run.id):
            for event in events:
                if event.type is EventType.APPROVAL_REQUESTED:
                    await decide(engine, event.data["call_id"], decisions[event.data["arguments"]["order"]])
    return await engine.get_run(run.id, ANA)


async def decide(engine: Engine, call_id: str, decision: Any) -> None:
    await engine.decide(call_id, ANA, decision)
