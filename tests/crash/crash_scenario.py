"""A scenario for the crash kit that calls every verb of the store's port.

A run with parallel calls of every effect, steps, two approvals, a question, a signal and two child runs; a second run
in the same conversation; a run of one tool; a run that is cancelled; a conversation that is erased; records; webhooks;
passages; and every read. Each part has its idempotency key, so that the next process goes on where the last one died.
"""

import asyncio
import json
import mimetypes
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from crash_app import Ledger, PackingTools, ShopAgent, ShopTools, tell_of_cancelled
from evidence import DATABASE, STEPS, rows_of, schema_of, steps_in, table_of
from msgspec.structs import replace

from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import OpenInstances
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.memory import space_of, space_of_documents
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease, Run
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import ConfigError, Conflict, NotFound
from amoxi_py.models.script import call
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.files import NewFile
from amoxi_py.ports.operator_store import OperatorStore
from amoxi_py.ports.passages import NewPassage, NewVector
from amoxi_py.ports.records import Record
from amoxi_py.ports.store import Store, Submission
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing.scene import SCENE

ANA = Principal(id="user:ana", channel="code")
BEN = Principal(id="user:ben", channel="code")
NOTE = NewFile(id="file_note", principal=ANA, name="note.txt", media_type="text/plain")
DECLARED = build_declarations([ShopTools, ShopAgent, tell_of_cancelled], provided=[Ledger])
"""Built once: the processes that are killed are forks of one that has imported this."""
mimetypes.init()  # once too: each process that saves a file would read the system's types
SCRIPT = {
    "everything": [
        [
            call("lookup", order="A-1"),
            call("refund", order="A-1"),
            call("charge", order="A-1"),
            call("ship", order="A-1"),
        ],
        [
            call("cancel_order", order="A-2"),
            call("cancel_order", order="A-3"),
            call("lookup", order="A-2"),
            call("deliver", order="A-1"),
            call("ask_helper_agent", message="pack A-1"),
            call("ask_helper_agent", message="pack A-2"),
        ],
        "All is done.",
    ],
    "pack A-1": [call("pack", order="A-1"), "A-1 is packed."],
    "pack A-2": [call("pack", order="A-2"), "A-2 is packed."],
    "go on": ["Gladly."],
    "wait": [call("cancel_order", order="A-9"), "never said"],
    "hang": [call("hang", order="A-9"), "never said"],
    "forget me": ["Hello."],
}


class OneModel:
    """The same model for every agent."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    async def model_for(self, agent: object, ctx: object) -> ScriptedModel:
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
    store = RenewalHeard(scene.wrap_store(make_store(folder)))
    port = cast(Store, store)
    model = ScriptedModel(SCRIPT)
    ledger = Ledger(folder)
    made = {Ledger: ledger, ShopTools: ShopTools(ledger), PackingTools: PackingTools(ledger)}
    instances = OpenInstances(made, None, [])
    engine = Engine(
        store=port,
        catalog=DECLARED.catalog,
        instances=instances,
        models=OneModel(model),
        settings=EngineSettings(lease=0.6, poll=0.05),
        handlers=DECLARED.handlers,
    )
    await engine.start()
    await port.secret("cookie", "s" * 32)
    await records(port)
    await port.count_request(ANA)
    run = await everything(engine, port)
    await webhooks(port, run)
    await passages(port)
    await read_all(engine, port, run)
    await kept_data(cast(OperatorStore, store), run)
    await port.expire_worker("worker_of_nobody")
    await engine.ready()
    await both_told(ledger)
    if first_process:  # the next one shows nothing more by it
        await asyncio.wait_for(store.renewed.wait(), 60)
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
    await call_directly(engine)
    await forget(engine)
    return first_run


async def call_directly(engine: Engine) -> None:
    """Call a tool without an agent: one run, whichever process has begun it."""
    called = await engine.submit_call("pack", {"order": "A-7"}, principal=ANA, idempotency_key="k-direct")
    run, view = await engine.wait_call(called.run.id, ANA, timeout=30)
    assert (run.status, run.output, view.call.status) == ("completed", "packed", "done"), (run, view)


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
    assert (await engine.list_tasks(ANA)).total == 0, "none of a caller over A2A"
    assert await engine.asking_before(run, ANA) is None
    await engine.list_approvals(ANA)
    await engine.list_conversations(ANA)
    await engine.read_conversation(run.conversation_id, ANA)
    await store.run_messages(run.id, ANA)
    key: dict[str, Any] = {"agent": run.agent, "principal": ANA, "idempotency_key": "k-first"}
    ids = {"run_id": "new", "message_id": "new", "conversation_id": "new"}
    assert await store.knows_key(Submission(**ids, **key, new_conversation=True, text=""))
    log = await store.find_log(ANA, run_id=run.id)
    assert log.run is not None
    lease = Lease(run_id=run.id, run=log.run, conversation=log.conversation, worker=1, fence=1)
    await store.files_of_run(lease)
    assert (await store.usages(lease))[0].requests > 0
    assert (await store.get_file(NOTE.id, ANA)).file.size == 6
    assert await store.read_file(NOTE.id, ANA, 2, 4) == b"note"
    await store.delete_file(NOTE.id, ANA)


async def follow(engine: Engine, run_id: str, until: Callable[[Event], bool]) -> None:
    """Read a run's events until one fits, or the run has ended."""
    async with asyncio.timeout(30):
        async for events in await engine.follow(ANA, run_id=run_id):
            if any(map(until, events)):
                return


async def records(store: Store) -> None:
    """Keep, find, take and forget small records, whatever a process before this one has done of it."""
    for key in ("one", "two"):
        await store.keep_record(Record(kind="code", key=key, group="codes", content="{}"))
    assert await store.find_record("code", "one") is not None
    assert len(await store.find_records("code", "codes")) == 2
    assert await store.take_record("code", "one") is not None
    assert await store.take_record("code", "one") is None
    assert await store.forget_records("code", "codes") == 1


async def webhooks(store: Store, run: Run) -> None:
    """Keep, hold, put off, deliver and drop a webhook, whatever a process before this one has done of it."""
    await store.keep_webhook(run.id, ANA, "hook", "{}", limit=1)
    (held,) = await store.claim_webhooks("me", 30.0, 10)
    assert await store.renew_webhooks("me", 30.0) == {held.key}
    assert await store.put_off_webhook(held, 0.0)
    (held,) = await store.claim_webhooks("me", 30.0, 10)
    assert await store.note_delivery(held, 7)
    await store.release_webhooks("me")
    hook = await store.find_webhook(run.id, ANA, "hook")
    assert (hook.cursor, hook.failures, held.webhook.failures) == (7, 0, 1)
    assert (await store.list_webhooks(run.id, ANA)).items == (hook,)
    await store.drop_webhook(run.id, ANA, "hook")


async def passages(store: Store) -> None:
    """Keep, find and forget passages, whatever a process before this one has done of it."""
    mine, docs = space_of(ANA), space_of_documents("docs")
    north, east = struct.pack("<2f", 1, 0), struct.pack("<2f", 0, 1)
    with suppress(ConfigError):  # a PostgreSQL without pgvector
        await store.prepare_embedder("e", 2)
    pet = NewPassage(id="mem_1", name="pet", text="a pony", vector=north)
    home = NewPassage(id="mem_2", name="home", text="a house")
    kept = await store.keep_passages(mine, (pet, home), "e", at_most=2)
    assert [one.id for one in kept] == ["mem_1", "mem_2"]
    waiting = await store.unembedded("e", 10)
    vectors = [NewVector(key=one.key, version=one.version, vector=east) for one in waiting]
    await store.keep_vectors("e", vectors)
    assert await store.unembedded("e", 10) == ()
    assert [one.name for one in await store.search_passages(mine, "pony", north, "e", 1)] == ["pet"]
    assert {one.name for one in (await store.list_passages(mine)).items} == {"pet", "home"}
    page = NewPassage(id="doc_1", name="a.md#1", text="a page", vector=east)
    await store.replace_source(docs, "a.md", "v1", (page,), "e")
    assert await store.sources(docs) == {"a.md": "v1"}
    assert not await store.drop_vectors("another", 10)
    assert await store.purge_memories(0.0, 10) == 0
    assert await store.forget_passages(mine, ["pet"]) == 1
    assert await store.forget_passage(mine, "mem_2")
    assert await store.clear_space(docs) == 1


async def kept_data(store: OperatorStore, run: Run) -> None:
    """Read all of a conversation, and forget somebody; nothing is old enough to be purged."""
    kept = (await store.kept_runs(run.conversation_id, ANA)).items
    assert kept[0].run.id == run.id
    assert (await store.made_decisions(ANA)).items
    assert await store.tenants_with(ANA.id) == ()
    await store.save_file(replace(NOTE, id="file_of_ben", principal=BEN), content())
    await store.forget_principal(BEN)
    assert (await store.kept_files(BEN)).items == ()
    assert (await store.purge(0.0)).conversations == 0


async def until_ended(engine: Engine, run: Run, decisions: dict[str, str]) -> Run:
    """Follow a run to its end, deciding by order number, and giving it what it asks and waits for."""
    async with asyncio.timeout(30):
        async for events in await engine.follow(ANA, run_id=run.id):
            for event in events:
                if event.type is EventType.APPROVAL_REQUESTED:
                    await decide(engine, event.data["call_id"], decisions[event.data["arguments"]["order"]])
                elif event.type is EventType.QUESTION_ASKED:
                    await answer(engine, run.id, event.data["call_id"])
    return await engine.get_run(run.id, ANA)


async def answer(engine: Engine, run_id: str, call_id: str) -> None:
    """Answer, then send the signal that is waited for next; who was killed in between finds the question over."""
    with suppress(Conflict, NotFound):
        await engine.answers.answer(call_id, ANA, "1 Elm Street")
    with suppress(Conflict):
        await engine.answers.signal(run_id, ANA, "paid", 7, idempotency_key="k-paid")


async def decide(engine: Engine, call_id: str, decision: Any) -> None:
    await engine.decide(call_id, ANA, decision)
