"""Handlers of events: each is called for each event, in order, again when it fails, and by one worker."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal, RunEvent, agent, on, singleton
from amoxi_py.domain.retry import RetryPolicy
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.stores.sqlite.store import SqliteStore

ANA = Principal(id="user:ana", name="Ana")
QUICK = RetryPolicy(tries=3, first=0.02, longest=0.05)


@agent
class Echo:
    """You answer."""


async def ask(engine: Engine, text: str = "hello", conversation: str | None = None) -> Run:
    submitted = await engine.submit("echo", text, principal=ANA, conversation_id=conversation, on_busy="queue")
    return await engine.wait(submitted.run.id, ANA, timeout=60)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def count_behind(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "ai" / "amoxi.db")) as database:
        (count,) = database.execute("SELECT count(*) FROM behind").fetchone()
    assert isinstance(count, int)
    return count


@pytest.fixture
def play(with_engine: Any, tmp_path: Path) -> Any:
    """Run a story on an engine with these handlers, on the same store each time."""

    def run(story: Any, *handlers: Any, **settings: Any) -> Any:
        store = SqliteStore(tmp_path / "ai", synchronous="OFF")
        settings = {"handler_retry": QUICK, "poll": 0.05} | settings
        return with_engine(store, [Echo, *handlers], {"hello": ["Hi."]}, story, **settings)

    return run


def test_a_handler_gets_each_event_of_its_types_with_whose_run_it_is(play: Any) -> None:
    told: list[RunEvent] = []

    @on("run.queued", "run.completed")
    async def note(event: RunEvent) -> None:
        told.append(event)

    async def story(engine: Engine) -> Run:
        run = await ask(engine)
        await until(lambda: len(told) == 2)
        return run

    run = play(story, note)
    assert [event.type for event in told] == ["run.queued", "run.completed"]
    assert {(event.run_id, event.conversation_id, event.agent) for event in told} == {
        (run.id, run.conversation_id, "echo")
    }
    assert [event.principal for event in told] == [ANA, ANA]
    assert told[0].data == {"run_id": run.id, "agent": "echo", "conversation_id": run.conversation_id}
    assert told[0].id < told[1].id


def test_a_sync_handler_runs_in_a_thread_and_gets_singletons_by_type(play: Any) -> None:
    @singleton
    class Mail:
        def __init__(self) -> None:
            self.sent: list[str] = []

    made: list[Mail] = []

    @on("run.completed")
    def send(event, mail: Mail, note: str = "kept") -> None:  # type: ignore[no-untyped-def]  # a form that is promised
        time.sleep(0.01)
        asyncio.run(asyncio.sleep(0))  # it raises where a loop runs
        mail.sent.append(f"{event.run_id} {note}")
        made.append(mail)

    @singleton
    class Notes:
        def __init__(self, mail: Mail) -> None:
            self.mail = mail

        @on("run.completed", name="notes")
        async def note(self, event: RunEvent) -> None:
            made.append(self.mail)

    async def story(engine: Engine) -> Run:
        run = await ask(engine)
        await until(lambda: len(made) == 2)
        return run

    run = play(story, send, Notes, Mail)
    assert made[0] is made[1]
    assert made[0].sent == [f"{run.id} kept"]


def test_a_handler_that_fails_is_called_again_and_then_the_event_is_passed_over(
    play: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[tuple[str, int]] = []

    @on("run.completed")
    async def fail(event: RunEvent) -> None:
        tried.append((event.run_id, event.attempt))
        if len(tried) != 5:  # the second event goes well at its second try
            raise ValueError("no connection")

    async def story(engine: Engine) -> list[str]:
        first = await ask(engine)
        second = await ask(engine, conversation=first.conversation_id)
        await until(lambda: len(tried) == 5)
        return [first.id, second.id]

    caplog.set_level(logging.WARNING, "amoxi_py.handlers")
    first, second = play(story, fail)
    assert tried == [(first, 1), (first, 2), (first, 3), (second, 1), (second, 2)]
    levels = [(record.levelname, first in record.getMessage()) for record in caplog.records]
    assert levels == [("WARNING", True), ("WARNING", True), ("ERROR", True), ("WARNING", False)]
    assert "no connection" in caplog.text


@pytest.mark.parametrize("leave", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), None])
def test_a_handler_cannot_end_the_server_nor_its_own_calls(play: Any, leave: BaseException | None) -> None:
    tried: list[int] = []

    @on("run.completed")
    async def leave_now(event: RunEvent) -> None:
        tried.append(event.attempt)
        task = asyncio.current_task()
        assert task is not None
        if event.attempt == 1 and leave is not None:
            raise leave
        if event.attempt == 1:
            task.cancel()
            await asyncio.sleep(0)

    async def story(engine: Engine) -> None:
        await ask(engine)
        await until(lambda: tried == [1, 2])

    play(story, leave_now)


def test_a_handler_that_takes_too_long_is_called_again(play: Any) -> None:
    tried: list[int] = []

    @on("run.completed", timeout=0.05)
    async def hang(event: RunEvent) -> None:
        tried.append(event.attempt)
        if event.attempt == 1:
            await asyncio.sleep(60)

    async def story(engine: Engine) -> None:
        await ask(engine)
        await until(lambda: tried == [1, 2])

    play(story, hang)


def test_a_conversation_whose_event_waits_holds_up_no_other_one_and_keeps_its_own_order(play: Any) -> None:
    told: list[str] = []
    opened = asyncio.Event()

    @on("run.completed")
    async def note(event: RunEvent) -> None:
        if event.run_id == first[0]:
            await opened.wait()
        told.append(event.run_id)

    first: list[str] = []

    async def story(engine: Engine) -> list[str]:
        submitted = await engine.submit("echo", "hello", principal=ANA)
        first.append(submitted.run.id)
        held = await engine.wait(submitted.run.id, ANA, timeout=60)
        after = await ask(engine, conversation=held.conversation_id)
        other = await ask(engine)
        await until(lambda: told)
        assert told == [other.id]
        opened.set()
        await until(lambda: len(told) == 3)
        return [other.id, held.id, after.id]

    assert play(story, note) == told


@pytest.mark.parametrize("hang", [True, False])
def test_a_conversation_that_hangs_or_fails_stops_no_other_one_however_much_it_has(
    play: Any, tmp_path: Path, hang: bool
) -> None:
    told: list[str] = []
    tried: list[str] = []
    bad: set[str] = set()
    most_bad = 1 if hang else 10

    @on("run.queued", timeout=None)
    async def note(event: RunEvent) -> None:
        if len(bad) < most_bad or event.conversation_id in bad:
            bad.add(event.conversation_id)
            tried.append(event.run_id)
            if hang:
                await asyncio.Event().wait()
            raise ValueError("no connection")
        told.append(event.run_id)

    async def queue(conversation: str | None = None) -> Run:
        return (
            await engines[0].submit("echo", "hello", principal=ANA, conversation_id=conversation, on_busy="queue")
        ).run

    async def story(engine: Engine) -> None:
        engines.append(engine)
        first, *_ = [await queue() for _ in range(most_bad)]
        await until(lambda: len(tried) == most_bad)  # those that wait for their next try take no place of the others
        await asyncio.gather(*(queue(first.conversation_id) for _ in range(450)))
        others = [(await queue()).id for _ in range(30)]
        await until(lambda: len(told) == 30)
        assert sorted(told) == sorted(others)
        assert len(tried) == most_bad
        await until(lambda: count_behind(tmp_path) == most_bad)  # what is done leaves no rows

    engines: list[Engine] = []
    play(story, note, handler_retry=RetryPolicy(tries=9, first=60.0, longest=60.0))


def test_a_restart_tells_what_a_conversation_was_behind_with_in_order_and_nothing_else_again(
    play: Any, tmp_path: Path
) -> None:
    told: list[str] = []
    held: list[str] = []
    opened = False

    @on("run.completed")
    async def note(event: RunEvent) -> None:
        if not opened and (not held or event.conversation_id == held[0]):
            held.append(event.conversation_id)
            await asyncio.Event().wait()
        told.append(event.run_id)

    async def hold(engine: Engine) -> list[str]:
        first = await ask(engine)
        await until(lambda: held)
        for _ in range(3):
            await ask(engine)
        later = [(await ask(engine, conversation=first.conversation_id)).id for _ in range(2)]
        await until(lambda: len(told) == 3 and count_behind(tmp_path) == 1)  # that they are done is stored
        return [first.id, *later]

    async def go_on(engine: Engine) -> str:
        await until(lambda: len(told) >= 6)
        last = await ask(engine)
        await until(lambda: last.id in told)
        return last.id

    behind = play(hold, note)
    opened = True
    last = play(go_on, note)
    assert told[3:] == [*behind, last]


@pytest.mark.parametrize("complain", [False, True])
def test_a_try_that_an_orderly_stop_cuts_off_does_not_count(play: Any, complain: bool) -> None:
    tried: list[int] = []

    @on("run.completed")
    async def note(event: RunEvent) -> None:
        tried.append(event.attempt)
        if len(tried) > 4:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if complain:
                raise ValueError("it was cut off") from None
            raise

    async def cut_off(engine: Engine) -> None:
        if not tried:
            await ask(engine)
        begun = len(tried)
        await until(lambda: len(tried) > begun or (begun == 0 and tried))

    for _ in range(5):  # of three tries
        play(cut_off, note)
    assert tried == [1, 1, 1, 1, 1]


def test_what_is_done_is_not_told_again_after_a_restart_and_what_happened_meanwhile_is(play: Any) -> None:
    told: list[str] = []

    @on("run.completed")
    async def note(event: RunEvent) -> None:
        told.append(event.run_id)

    async def told_of(engine: Engine) -> str:
        run = await ask(engine)
        await until(lambda: run.id in told)
        return run.id

    async def only_ask(engine: Engine) -> str:
        return (await ask(engine)).id

    async def wait_for_two(engine: Engine) -> None:
        await until(lambda: len(told) == 2)
        await told_of(engine)

    before = play(only_ask)
    first = play(told_of, note)
    meanwhile = play(only_ask)
    play(wait_for_two, note)
    assert before not in told
    assert told[:2] == [first, meanwhile]
    assert len(told) == 3


def test_an_orderly_stop_lets_a_call_end_and_begins_no_other(play: Any) -> None:
    told: list[str] = []
    begun = asyncio.Event()

    @on("run.completed")
    async def note(event: RunEvent) -> None:
        begun.set()
        await asyncio.sleep(0.1)
        told.append(event.run_id)

    async def story(engine: Engine) -> str:
        first = await ask(engine)
        await ask(engine, conversation=first.conversation_id)
        await begun.wait()
        await engine.stop_working(5.0)
        return first.id

    async def rest(engine: Engine) -> None:
        await until(lambda: len(told) == 2)

    first = play(story, note)
    assert told == [first]
    play(rest, note)


def test_a_process_that_executes_nothing_calls_no_handler_and_loses_no_event(play: Any) -> None:
    told: list[str] = []

    @on("run.queued")
    async def note(event: RunEvent) -> None:
        told.append(event.run_id)

    async def serve_only(engine: Engine) -> str:
        submitted = await engine.submit("echo", "hello", principal=ANA)
        return submitted.run.id

    async def work(engine: Engine) -> None:
        await until(lambda: told)

    run = play(serve_only, note, worker=False)
    assert told == []
    play(work, note)
    assert told == [run]
