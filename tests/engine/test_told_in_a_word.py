"""Two servers on a store that tells as little of others as it may: nobody waits for a poll, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal, RunEvent, agent, on, tool
from amoxi_py.app.models import AgentModels
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.domain.event import Event, EventType
from amoxi_py.engine import handlers
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.models.script import call
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.listening import EventListener, GapListener, Interest
from amoxi_py.ports.store import Submission, Submitted
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
NEVER = 3600.0
ALWAYS = {EventType.RUN_CANCELLED, EventType.APPROVAL_DECIDED}


@tool(needs_approval=True)
async def act() -> str:
    """Do something that a person has to approve."""
    return "done"


@agent(tools=[act])
class Actor:
    """You act."""


class TersePort:
    """A store behind its port that tells one by one only what it has to.

    Attributes:
        passed_over: Events of these types are not told even where somebody is interested in them; `missed` is.
        told: What was told one by one.
    """

    def __init__(self, store: SqliteStore, passed_over: set[EventType]) -> None:
        self.passed_over = passed_over
        self.told: list[Event] = []
        self._store = store
        self._submitted: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open(self, listener: EventListener, on_gap: GapListener | None, interest: Interest) -> None:
        def tell(events: Sequence[Event]) -> None:
            for event in events:
                wanted = event.conversation in interest.conversations()
                own = event.type is EventType.RUN_QUEUED and event.run_id in self._submitted
                if event.type in self.passed_over and (wanted or event.type in ALWAYS):
                    interest.missed(event.conversation)
                elif wanted or own or event.type in ALWAYS:
                    self.told.append(event)
                    listener([event])
                else:
                    interest.news({event.type}, event.type is EventType.RUN_QUEUED or event.type.ends_run)

        await self._store.open(tell, on_gap)

    def submit(self, submission: Submission) -> asyncio.Future[Submitted]:
        self._submitted.add(submission.run_id)
        return self._store.submit(submission)


@dataclass
class Servers:
    """A server for the web that executes nothing, and a worker, on one store."""

    web: Engine
    worker: Engine
    web_port: TersePort
    worker_port: TersePort

    async def waiting_call(self, run_id: str) -> str:
        async with asyncio.timeout(60):
            while (run := await self.web.get_run(run_id, ANN)).status != "waiting":
                await asyncio.sleep(0.005)
        call_id = run.waiting_for[0].call_id
        assert call_id is not None
        return call_id


@asynccontextmanager
async def servers(
    folder: Path,
    script: Any,
    *declared: Any,
    passed_over_by_web: set[EventType] | None = None,
    passed_over_by_worker: set[EventType] | None = None,
) -> AsyncIterator[Servers]:
    declarations = build_declarations([Actor, *declared])
    model = AgentModels(dict.fromkeys(declarations.catalog.agents, ScriptedModel(script, record=False)))
    ports = [
        TersePort(SqliteStore(folder, synchronous="OFF"), passed_over or set())
        for passed_over in (passed_over_by_web, passed_over_by_worker)
    ]
    async with AsyncExitStack() as stack:
        engines = []
        for port, works in zip(ports, (False, True), strict=True):
            engine = Engine(
                store=port,  # type: ignore[arg-type]  # it is one by `__getattr__`
                catalog=declarations.catalog,
                instances=await stack.enter_async_context(open_instances(declarations.singletons, {})),
                models=model,
                settings=EngineSettings(worker=works, poll=NEVER),
                handlers=declarations.handlers,
            )
            await engine.start()
            stack.push_async_callback(engine.stop)
            engines.append(engine)
        yield Servers(web=engines[0], worker=engines[1], web_port=ports[0], worker_port=ports[1])


def play(story: Callable[[], Any]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


def test_a_run_that_another_server_queued_is_executed_when_its_news_comes(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, ["Hello."]) as both:
            for _ in range(2):  # the worker may look for the first time after the first one
                submitted = await both.web.submit("actor", "Hello", principal=ANN)
                run = await both.web.wait(submitted.run.id, ANN, timeout=60)
                assert (run.status, run.output) == ("completed", "Hello.")
            queued = [event for event in both.worker_port.told if event.type is EventType.RUN_QUEUED]
            assert queued == [], "the worker heard of it in a word"

    play(story)


@pytest.mark.parametrize("passed_over", [set(), set(EventType)], ids=["told", "passed over"])
def test_who_waits_and_who_follows_elsewhere_hears_the_end(tmp_path: Path, passed_over: set[EventType]) -> None:
    async def story() -> None:
        script = [call("act"), "Done."]
        async with servers(tmp_path, script, passed_over_by_web=passed_over) as both:
            submitted = await both.web.submit("actor", "Do it", principal=ANN)
            run_id = submitted.run.id
            waiting = asyncio.ensure_future(both.web.wait(run_id, ANN, timeout=20))
            labels: list[str] = []

            async def read() -> None:
                async for batch in await both.web.follow(ANN, run_id=run_id):
                    labels.extend(event.type.label for event in batch)

            reading = asyncio.ensure_future(read())
            await both.web.decide(await both.waiting_call(run_id), ANN, "approve")
            assert (await waiting).output == "Done."
            await reading
            assert [one for one in labels if one != "message.delta"] == [
                "run.queued",
                "message.completed",
                "run.started",
                "message.completed",
                "tool.called",
                "approval.requested",
                "run.waiting",
                "approval.decided",
                "run.resumed",
                "tool.completed",
                "message.completed",
                "run.completed",
            ]

    play(story)


def test_nothing_is_told_one_by_one_of_what_nobody_is_interested_in_any_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with servers(tmp_path, ["Hello."]) as both:
            first = await both.web.submit("actor", "Hello", principal=ANN)
            await both.web.wait(first.run.id, ANN, timeout=20)
            stream = await both.web.follow(ANN, run_id=first.run.id)
            assert [event.type.label async for batch in stream for event in batch][-1] == "run.completed"
            told = len(both.web_port.told)
            again = await both.web.submit(
                "actor", "Hello", principal=ANN, conversation_id=first.run.conversation_id, on_busy="queue"
            )
            ended = await both.worker.wait(again.run.id, ANN, timeout=20)
            assert ended.status == "completed"
            await both.web.get_run(again.run.id, ANN)
            assert {event.type for event in both.web_port.told[told:]} == {EventType.RUN_QUEUED}

    play(story)


@pytest.mark.parametrize("passed_over", [set(), {EventType.RUN_CANCELLED}], ids=["told", "passed over"])
def test_a_run_that_another_server_cancels_is_stopped_here(tmp_path: Path, passed_over: set[EventType]) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def talks_for_ever(request: object) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    async def story() -> None:
        async with servers(tmp_path, talks_for_ever, passed_over_by_worker=passed_over) as both:
            submitted = await both.web.submit("actor", "Talk", principal=ANN)
            await begun.wait()
            assert (await both.web.cancel(submitted.run.id, ANN)).status == "cancelled"
            await stopped.wait()

    play(story)


def test_a_handler_is_called_when_the_news_of_its_event_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_READ_EVERY", NEVER)
    told: list[str] = []
    heard = asyncio.Event()

    @on("run.queued")
    async def note(event: RunEvent) -> None:
        told.append(event.run_id)
        heard.set()

    async def story() -> None:
        async with servers(tmp_path, ["Hello."], note) as both:
            for _ in range(2):  # the line may read for the first time after the first one
                heard.clear()
                submitted = await both.web.submit("actor", "Hello", principal=ANN)
                await heard.wait()
                assert told[-1] == submitted.run.id

    play(story)
