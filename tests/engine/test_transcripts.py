"""What was said, kept in memory: never another history than the store's, never too much, and not for long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from amoxi_py import agent, tool
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.ids import call_id, new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease, RunRows
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.transcripts import Transcripts
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.changes import Change, History, HistoryMark, Summary
from amoxi_py.ports.store import Submission, WorkerKey
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing import call
from whole import some_of

ANN = Principal(id="user:ann", channel="code")
TWO = (0, 1)
TALKS = ("talk", "talk to its end", "talk with a call")
OPS = st.one_of(
    st.tuples(st.sampled_from(TALKS), st.sampled_from(TWO), st.sampled_from(TWO)),
    st.tuples(st.sampled_from(TALKS), st.sampled_from(TWO), st.sampled_from(TWO)),
    st.tuples(st.sampled_from(["erase", "forget"]), st.sampled_from(TWO), st.sampled_from(TWO)),
    st.tuples(st.just("sum up"), st.sampled_from(TWO), st.integers(0, 20)),
)


class Talks:
    """Two conversations, whose ids stay when they are erased, and two processes that read them."""

    def __init__(self, stores: list[SqliteStore], worker: WorkerKey, most_bytes: int) -> None:
        self._name = new_id("conv")
        self._stores = stores
        self._worker = worker
        self._kept = [Transcripts(store, 300.0, most_bytes) for store in stores]
        self._open: dict[int, RunRows] = {}
        self._changes: Counter[str] = Counter()

    def _id(self, which: int) -> str:
        return f"{self._name}_{which}"

    async def do(self, what: str, which: int, more: int) -> None:
        if what == "erase":
            if await self._there(which):
                await self._stores[more].erase(self._id(which), ANN)
            self._open.pop(which, None)
        elif what == "forget":
            self._kept[more].close()
        elif what == "sum up":
            await self._sum_up(which, more)
        else:
            await self._talk(what, which, more)

    async def _talk(self, what: str, which: int, process: int) -> None:
        before = self._open.pop(which, None)
        store = self._stores[process]
        if before is not None:
            await store.cancel(before.lease.run_id, ANN)
            await store.release(before.lease)
        submission = Submission(
            run_id=new_id("run"),
            message_id=new_id("msg"),
            conversation_id=self._id(which),
            new_conversation=False,
            begins=True,
            agent="a",
            principal=ANN,
            text=new_id("text"),
            claim_by=self._worker,
        )
        rows = (await store.submit(submission)).rows
        assert rows is not None
        await self.look(rows, process)
        self._open[which] = rows
        if what == "talk":
            return
        end = what == "talk to its end"
        call = ToolCall(
            id=call_id(rows.lease.run_id, 1, 0),
            turn=1,
            n=0,
            tool="t",
            arguments="{}",
            effect=Effect.IDEMPOTENT,
            status=CallStatus.STARTED,
        )
        message = Message(
            id=new_id("msg"),
            run_id=rows.lease.run_id,
            turn=1,
            role="assistant",
            text="yes",
            calls=() if end else (call,),
            created_at=1.0,
        )
        ended = (NewEvent(type=EventType.RUN_COMPLETED),) if end else ()
        await self._write(rows, message=message, end="completed" if end else None, events=ended)
        if end:
            del self._open[which]
            stored = await store.run_messages(rows.lease.run_id, ANN)
            log = await store.find_log(ANN, run_id=rows.lease.run_id)
            assert log.ended_seq is not None
            self._kept[process].ended(rows.lease, stored, log.ended_seq)

    async def _sum_up(self, which: int, turn: int) -> None:
        """Sum all up to some message of the history or of the open run."""
        rows = self._open.get(which)
        if rows is None:
            return
        whole = await self._stores[0].history(rows.lease)
        said = [*whole.messages, *rows.messages]
        last = said[turn % len(said)]
        summary = Summary(run_id=last.run_id, turn=last.turn, text=new_id("sum"))
        told = NewEvent(type=EventType.HISTORY_COMPACTED, data="{}")
        await self._write(rows, summary=summary, events=(told,))
        taken_over = replace(rows, lease=replace(rows.lease, fence=2))
        await self.look(taken_over, turn % 2)

    async def _write(self, rows: RunRows, **more: Any) -> None:
        self._changes[rows.lease.run_id] += 1
        number = self._changes[rows.lease.run_id]
        await self._stores[0].write(Change(lease=rows.lease, number=number, **more))

    async def look(self, rows: RunRows, process: int) -> None:
        found = await self._kept[process].history(rows)
        right = await self._stores[process].history(rows.lease)
        assert (found.messages, found.summary) == (right.messages, right.summary)
        again = await self._kept[process].history(rows)
        assert (again.messages, again.summary) == (right.messages, right.summary)

    async def _there(self, which: int) -> bool:
        page = await self._stores[0].list_conversations(ANN)
        return self._id(which) in {one.id for one in page.items}

    def close(self) -> None:
        for kept in self._kept:
            kept.close()


def test_what_is_kept_is_what_the_store_has_whatever_happens(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path, synchronous="OFF") for _ in range(2)]

    async def begin() -> WorkerKey:
        for store in stores:
            await store.open(lambda events: None)
        return await stores[0].enroll(new_id("worker"), 3600.0)

    async def end() -> None:
        for store in stores:
            await store.close()

    with asyncio.Runner() as runner:
        worker = runner.run(begin())

        @settings(max_examples=some_of(180), deadline=None)
        @given(st.lists(OPS, min_size=12, max_size=40), st.sampled_from([3000, 10**6]))
        def whatever_happens(ops: list[tuple[str, int, int]], most_bytes: int) -> None:
            async def play() -> None:
                talks = Talks(stores, worker, most_bytes)
                for op in ops:
                    await talks.do(*op)
                talks.close()

            runner.run(play())

        whatever_happens()
        runner.run(end())


class Answers:
    """A store that says only what a conversation was given, and counts how often it is asked for all of it."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def history(self, lease: Any, known: Any = None) -> History:
        self.asked.append(known is not None)
        text = "x" * 10_000
        said = Message(id="m", run_id="r", turn=1, role="assistant", text=text, created_at=1.0)
        return History(messages=(said,), follows=known is not None, mark=HistoryMark(lease.run, None))


def rows_of(conversation: int, agent: str = "a") -> Any:
    lease = Lease(run_id="r", run=1, conversation=conversation, worker=1, fence=1)
    return RunRows(lease=lease, agent=agent, conversation_id="c", principal=ANN, attempt=1, messages=(), steps={})


def with_transcripts(story: Callable[[Transcripts, Answers], Awaitable[None]], ttl: float, most_bytes: int) -> None:
    async def main() -> None:
        answers = Answers()
        transcripts = Transcripts(answers, ttl, most_bytes)  # type: ignore[arg-type]  # one verb of it is used
        await story(transcripts, answers)
        transcripts.close()

    asyncio.run(main())


def test_what_was_used_longest_ago_gives_way_and_too_long_a_conversation_is_not_kept() -> None:
    async def story(transcripts: Transcripts, answers: Answers) -> None:
        for conversation in (1, 2, 1, 3, 4):  # with two messages the first one takes as much as two others
            await transcripts.history(rows_of(conversation))
            assert transcripts.size <= 45_000
        assert len(transcripts) == 3
        answers.asked.clear()
        for conversation in (3, 4, 2):
            await transcripts.history(rows_of(conversation))
        assert answers.asked == [True, True, False]
        for _ in range(10):
            await transcripts.history(rows_of(4))
        assert transcripts.size <= 45_000
        transcripts.forget(3)
        transcripts.forget(99)
        transcripts.close()
        assert (len(transcripts), transcripts.size) == (0, 0)

    with_transcripts(story, 300.0, 45_000)


def test_conversations_that_have_just_begun_take_memory_too_and_direct_calls_of_tools_none() -> None:
    async def story(transcripts: Transcripts, answers: Answers) -> None:
        for conversation in range(2000):
            transcripts.begun(rows_of(conversation, "tool:look"))
        assert len(transcripts) == 0
        for conversation in range(2000):
            transcripts.begun(rows_of(conversation))
        assert 10 < len(transcripts) < 200
        assert 10_000 < transcripts.size <= 45_000

    with_transcripts(story, 300.0, 45_000)


def test_a_run_that_is_read_again_after_what_somebody_else_did_is_counted_once() -> None:
    async def story(transcripts: Transcripts, answers: Answers) -> None:
        said = (await transcripts.history(rows_of(1))).messages
        size = transcripts.size
        transcripts.ended(rows_of(1).lease, said, 7)
        assert transcripts.size > size + 10_000
        await transcripts.history(rows_of(1))  # its first event is not the eighth
        assert transcripts.size < size + 11_000

    with_transcripts(story, 300.0, 10**6)


def test_memory_is_given_back_when_nobody_talks_any_more() -> None:
    async def story(transcripts: Transcripts, answers: Answers) -> None:
        for conversation in range(5):
            await transcripts.history(rows_of(conversation))
        assert (len(transcripts), transcripts.size > 50_000) == (5, True)
        async with asyncio.timeout(30):
            while len(transcripts):
                await asyncio.sleep(0.01)
        assert transcripts.size == 0

    with_transcripts(story, 0.05, 10**6)


def test_nothing_is_kept_with_a_time_of_0() -> None:
    async def story(transcripts: Transcripts, answers: Answers) -> None:
        for _ in range(2):
            await transcripts.history(rows_of(1))
        assert (answers.asked, len(transcripts)) == ([False, False], 0)

    with_transcripts(story, 0.0, 10**6)


@agent()
class Echo:
    """You answer."""


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "nothing"


@agent(tools=[look])
class Looking:
    """You look."""


@pytest.mark.parametrize("ttl", [300.0, 0.0])
def test_a_conversation_goes_on_from_memory_and_an_erased_one_is_forgotten(
    with_engine: Any, tmp_path: Path, ttl: float
) -> None:
    async def story(engine: Engine) -> tuple[list[str | None], list[int]]:
        outputs, sizes, conversation = [], [], None
        for text in ("one", "two", "three"):
            run = (await engine.submit("echo", text, principal=ANN, conversation_id=conversation)).run
            conversation = run.conversation_id
            outputs.append((await engine.wait(run.id, ANN, timeout=60)).output)
            sizes.append(len(engine.transcripts))
        await engine.erase(conversation or "", ANN)
        return outputs, [*sizes, len(engine.transcripts)]

    script = {"one": ["1"], "two": ["2"], "three": ["3"]}
    outputs, sizes = with_engine(SqliteStore(tmp_path), [Echo], script, story, transcripts_ttl=ttl)
    assert outputs == ["1", "2", "3"]
    assert sizes == ([1, 1, 1, 0] if ttl else [0, 0, 0, 0])


def test_a_conversation_that_goes_on_where_it_was_is_not_read_and_one_that_went_elsewhere_is(
    with_engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    history = SqliteStore.history

    async def counted(self: SqliteStore, lease: Lease, known: HistoryMark | None = None) -> History:
        found = await history(self, lease, known)
        asked.append(len(found.messages))
        return found

    monkeypatch.setattr(SqliteStore, "history", counted)
    other = SqliteStore(tmp_path)

    async def say(engine: Engine, text: str, conversation: str | None) -> tuple[str, list[int]]:
        asked.clear()
        run = (await engine.submit("looking", text, principal=ANN, conversation_id=conversation)).run
        await engine.wait(run.id, ANN, timeout=60)
        return run.conversation_id, list(asked)

    async def elsewhere(engine: Engine, conversation: str) -> None:
        submission = Submission(
            run_id=new_id("run"),
            message_id=new_id("msg"),
            conversation_id=conversation,
            new_conversation=False,
            agent="looking",
            principal=ANN,
            text="two",
        )
        await other.open(lambda events: None)
        await other.submit(submission)
        await other.cancel(submission.run_id, ANN)
        await other.close()

    async def story(engine: Engine) -> list[list[int]]:
        conversation, found = await say(engine, "one", None)
        reads = [found]
        for text in ("again", "look", "again"):
            _, found = await say(engine, text, conversation)
            reads.append(found)
        await elsewhere(engine, conversation)
        for text in ("again", "again"):
            _, found = await say(engine, text, conversation)
            reads.append(found)
        return reads

    script = {"one": ["1"], "again": ["2"], "look": [call("look"), "3"]}
    reads = with_engine(SqliteStore(tmp_path), [Looking], script, story)
    assert reads == [[], [], [], [3], [3], []], "after a call, and after what somebody else did"


def test_a_run_that_was_erased_is_told_no_history(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(tmp_path)
        await store.open(lambda events: None)
        talks = Talks([store], await store.enroll(new_id("worker"), 300.0), 10**6)
        await talks.do("talk to its end", 0, 0)
        await talks.do("talk", 0, 0)
        rows = talks._open[0]
        await store.erase(rows.conversation_id, ANN)
        with pytest.raises(LeaseLost):
            await talks._kept[0].history(rows)
        talks.close()
        await store.close()

    asyncio.run(main())
