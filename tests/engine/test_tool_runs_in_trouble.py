"""Direct calls of tools when something comes in between: a stop, a deploy, a repeated request, a long result."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from amoxi_py import PlannedCall, RunContext, agent, before_tool, redact, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import OpenInstances
from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.engine.worker import Worker
from amoxi_py.errors import ArgumentsInvalid, Conflict, InvalidRequest, NotFound
from amoxi_py.ports.store import Submission, Submitted
from amoxi_py.stores.sqlite.store import SqliteStore

DESKTOP = Principal(id="mcp:desktop", channel="mcp")
MADE: list[str] = []
CHECKED: list[str] = []


def checked(order: str) -> str:
    CHECKED.append(order)
    return order


@tool
async def charge(order: Annotated[str, AfterValidator(checked)], n: int = 1) -> str:
    """Charge an order."""
    MADE.append(order)
    await asyncio.sleep(0)
    return f"charged {order}"


@tool(name="charge")
async def charge_in(order: str, currency: str) -> str:
    """Charge an order in a currency."""
    MADE.append(f"{order} {currency}")
    return f"charged {order} in {currency}"


@tool
async def export(lines: int) -> dict[str, list[str]]:
    """Export orders."""
    MADE.append("export")
    return {"lines": [f"line {n}" for n in range(lines)]}


@tool(read_only=True)
async def look(order: str) -> str:
    """Look an order up."""
    return order


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()
    CHECKED.clear()


class NoModels:
    """Nobody is asked."""

    async def model_for(self, agent: object, ctx: object) -> Any:
        raise AssertionError("a model was asked")


@asynccontextmanager
async def engine_of(folder: Path, *things: Any, **settings: Any) -> AsyncIterator[Engine]:
    engine = Engine(
        store=SqliteStore(folder, synchronous="OFF"),
        catalog=build_declarations(list(things)).catalog,
        instances=OpenInstances({}),
        models=NoModels(),
        settings=EngineSettings(poll=0.02, **settings),
    )
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def charged(engine: Engine, order: str = "A-1", **more: Any) -> Any:
    submitted = await engine.submit_call("charge", {"order": order}, principal=DESKTOP, **more)
    return (await engine.wait_call(submitted.run.id, DESKTOP, timeout=30))[0]


@pytest.mark.parametrize("hurry", [False, True], ids=["orderly", "in a hurry"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5], ids=str)
def test_an_orderly_stop_lets_an_unsafe_call_that_was_just_submitted_do_its_work(
    tmp_path: Path, hurry: bool, steps: int
) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge) as engine:
            submitting = asyncio.create_task(engine.submit_call("charge", {"order": "A-1"}, principal=DESKTOP))
            for _ in range(steps + 1):
                await asyncio.sleep(0)
            await engine.stop_working(30, hurry=hurry)
            run_id = (await submitting).run.id
        async with engine_of(tmp_path, charge) as engine:
            run, view = await engine.wait_call(run_id, DESKTOP, timeout=30)
            assert (run.status, view.call.status, run.output) == ("completed", "done", "charged A-1")
        assert MADE == ["A-1"]

    asyncio.run(story())


@pytest.mark.parametrize("hurry", [False, True], ids=["orderly", "in a hurry"])
def test_an_orderly_stop_waits_for_what_is_on_its_way_to_the_store(
    tmp_path: Path, hurry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = asyncio.Event()
    submit = SqliteStore.submit

    async def later(stored: asyncio.Future[Submitted]) -> Submitted:
        await answered.wait()
        return await stored

    def slowly(self: SqliteStore, submission: Submission) -> asyncio.Future[Submitted]:
        return asyncio.ensure_future(later(submit(self, submission)))

    monkeypatch.setattr(SqliteStore, "submit", slowly)

    async def story() -> None:
        async with engine_of(tmp_path, charge) as engine:
            submitting = asyncio.create_task(engine.submit_call("charge", {"order": "A-1"}, principal=DESKTOP))
            await asyncio.sleep(0)
            worker = engine._worker
            assert worker is not None
            assert worker._claiming is not None
            stopping = asyncio.create_task(engine.stop_working(30, hurry=hurry))
            await asyncio.wait((worker._claiming,))
            for _ in range(20):
                await asyncio.sleep(0)
            answered.set()
            run = (await submitting).run
            await stopping
            view = await engine.call_of(run.id, DESKTOP)
            assert (view.call.status, MADE) == ("done", ["A-1"])

    asyncio.run(story())


def test_a_call_that_started_and_has_not_begun_cannot_be_cut_off_without_a_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    begin = Worker.begin

    def watched(self: Worker, *args: Any, **more: Any) -> None:
        begin(self, *args, **more)
        seen.extend(execution.repeats_at_no_cost for execution in self._active.values())

    monkeypatch.setattr(Worker, "begin", watched)

    async def story() -> None:
        async with engine_of(tmp_path, charge) as engine:
            await charged(engine)

    asyncio.run(story())
    assert seen == [False]


def test_a_retry_of_arguments_that_do_not_fit_any_more_starts_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge) as engine:
            run = await charged(engine)
        async with engine_of(tmp_path, charge_in) as engine:
            with pytest.raises(ArgumentsInvalid, match="currency"):
                await engine.retry(run.id, DESKTOP)
            assert (await engine.list_runs(DESKTOP)).items == (run,)
        assert MADE == ["A-1"]

    asyncio.run(story())


def test_stored_arguments_that_a_tool_does_not_take_any_more_do_nothing_and_the_result_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge, worker=False) as engine:
            run_id = (await engine.submit_call("charge", {"order": "A-1"}, principal=DESKTOP)).run.id
        async with engine_of(tmp_path, charge_in) as engine:
            run, view = await engine.wait_call(run_id, DESKTOP, timeout=30)
            assert (run.status, view.call.status) == ("completed", "failed")
            assert "currency" in (run.output or "")
            assert "Nothing was done" in (run.output or "")
        assert MADE == []

    asyncio.run(story())


def test_arguments_are_validated_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge) as engine:
            run = await charged(engine)
            assert CHECKED == ["A-1"]
            await engine.wait((await engine.retry(run.id, DESKTOP)).id, DESKTOP, timeout=30)
            assert (CHECKED, MADE) == (["A-1", "A-1"], ["A-1", "A-1"])

    asyncio.run(story())


def test_the_same_call_is_the_same_run_in_whatever_order_its_arguments_come(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge) as engine:
            found = [
                await engine.submit_call("charge", arguments, principal=DESKTOP, idempotency_key="k")
                for arguments in ({"order": "A-1", "n": 2}, {"n": 2, "order": "A-1"})
            ]
            assert found[0].run.id == found[1].run.id
            assert [one.created for one in found] == [True, False]

    asyncio.run(story())


@redact
def hide_numbers(text: str) -> str:
    return re.sub(r"\d{4}|[0-9a-f]{32,}", "####", text)


@agent
class Clerk:
    """You help."""


def test_another_call_with_the_same_key_is_refused_although_both_look_the_same_when_they_are_hidden(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge, Clerk, hide_numbers) as engine:
            first = await charged(engine, "1111", idempotency_key="k")
            with pytest.raises(Conflict):
                await engine.submit_call("charge", {"order": "2222"}, principal=DESKTOP, idempotency_key="k")
            again = await engine.submit_call("charge", {"order": "1111"}, principal=DESKTOP, idempotency_key="k")
            assert again.run.id == first.id
            await engine.submit("clerk", "1111", principal=DESKTOP, idempotency_key="k")
            with pytest.raises(Conflict):
                await engine.submit("clerk", "2222", principal=DESKTOP, idempotency_key="k")
        assert MADE == ["####"]

    asyncio.run(story())


def test_nothing_of_an_erased_request_is_kept_with_its_key(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge, Clerk, worker=False) as engine:
            calls = await engine.submit_call("charge", {"order": "SECRET"}, principal=DESKTOP, idempotency_key="k")
            asks = await engine.submit("clerk", "SECRET", principal=DESKTOP, idempotency_key="k")
            for submitted in (calls, asks):
                await engine.erase(submitted.run.conversation_id, DESKTOP)

    asyncio.run(story())
    with sqlite3.connect(tmp_path / "amoxi.db") as database:
        digests = [digest for (digest,) in database.execute("SELECT digest FROM idempotency_key")]
    database.close()
    assert len(digests) == 2
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


@pytest.mark.parametrize("bad", ["a\0b", "a\ud800"], ids=["nul", "surrogate"])
def test_keys_and_ids_that_cannot_be_stored_are_refused_and_not_found(tmp_path: Path, bad: str) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge, worker=False) as engine:
            with pytest.raises(InvalidRequest, match="idempotency_key"):
                await engine.submit_call("charge", {"order": "A-1"}, principal=DESKTOP, idempotency_key=bad)
            with pytest.raises(NotFound):
                await engine.call_of(bad, DESKTOP)

    asyncio.run(story())


def test_arguments_that_are_too_long_are_told_as_such(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge, worker=False, max_message=100) as engine:
            with pytest.raises(
                InvalidRequest, match="the arguments are 212 bytes of JSON; the limit is 100"
            ) as refused:
                await engine.submit_call("charge", {"order": "A" * 200}, principal=DESKTOP)
            assert refused.value.code == "arguments_too_long"

    asyncio.run(story())


def test_a_call_that_is_done_while_it_is_looked_for_is_told_as_done(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, charge, worker=False) as web:
            run_id = (await web.submit_call("charge", {"order": "A-1"}, principal=DESKTOP)).run.id
            get_run = web._store.get_run

            async def slowly(*args: Any, **more: Any) -> Any:
                async with engine_of(tmp_path, charge) as other:
                    await other.wait(run_id, DESKTOP, timeout=30)
                return await get_run(*args, **more)

            web._store.get_run = slowly  # type: ignore[method-assign]
            view = await web.call_of(run_id, DESKTOP)
            assert (view.call.status, view.call.result) == ("done", '"charged A-1"')

    asyncio.run(story())


def test_a_long_result_of_a_call_is_whole_in_a_file_and_its_text_says_that_it_was_done(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine_of(tmp_path, export, max_result=2000) as engine:
            submitted = await engine.submit_call("export", {"lines": 500}, principal=DESKTOP)
            run, view = await engine.wait_call(submitted.run.id, DESKTOP, timeout=30)
            assert (run.status, view.call.status, run.result) == ("completed", "done", None)
            assert run.output is not None
            assert len(view.call.result or "") <= 2000
            note = re.search(
                r"\n\[cut: \d+ of (\d+) bytes; the whole is in (file_[0-9a-f]{32}), a file of the caller; "
                r"the action was done, do not repeat it\]\Z",
                run.output,
            )
            assert note is not None
            stored = await engine.files.get(note[2], DESKTOP)
            whole = b"".join([piece async for piece in engine.files.read(stored, DESKTOP)])
            assert len(whole) == int(note[1])
            assert decode_json(whole.decode()) == {"lines": [f"line {n}" for n in range(500)]}
            with pytest.raises(NotFound):
                await engine.files.get(note[2], Principal(id="mcp:other", channel="mcp"))
            assert await engine.get_run(run.id, DESKTOP) == run
            await engine.erase(run.conversation_id, DESKTOP)
            with pytest.raises(NotFound):
                await engine.files.get(note[2], DESKTOP)
        assert MADE == ["export"]

    asyncio.run(story())


def test_a_hook_for_certain_agents_does_not_see_direct_calls(tmp_path: Path) -> None:
    @before_tool(agents=[Clerk])
    async def for_clerk(ctx: RunContext, planned: PlannedCall) -> Mapping[str, Any] | None:
        raise AssertionError("it was asked")

    async def story() -> None:
        async with engine_of(tmp_path, charge, look, Clerk, for_clerk) as engine:
            assert (await charged(engine)).output == "charged A-1"
            assert not engine.needs_run("look")

    asyncio.run(story())


@contextmanager
def blocking() -> Iterator[tuple[threading.Event, threading.Event, Any]]:
    """A tool in a thread, with what tells that it has begun and what lets it end."""
    begun, go_on = threading.Event(), threading.Event()

    @tool(read_only=True)
    def slow() -> str:
        """Look slowly."""
        begun.set()
        go_on.wait(30)
        MADE.append("slow")
        return "seen"

    try:
        yield begun, go_on, slow
    finally:
        go_on.set()


@pytest.mark.parametrize("worker", [True, False], ids=["with a worker", "without"])
def test_a_stop_waits_for_code_of_calls_at_once_that_were_given_up(tmp_path: Path, worker: bool) -> None:
    async def story(begun: threading.Event, go_on: threading.Event, slow: Any) -> None:
        async with engine_of(tmp_path, slow, worker=worker) as engine:
            asking = asyncio.create_task(engine.call_now("slow", {}, principal=DESKTOP))
            await asyncio.to_thread(begun.wait, 30)
            asking.cancel()
            await asyncio.wait((asking,))
            stopping = asyncio.create_task(engine.stop_working(30))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not stopping.done()
            go_on.set()
            await stopping
            assert MADE == ["slow"]

    with blocking() as parts:
        asyncio.run(story(*parts))


def test_a_stop_waits_for_such_code_no_longer_than_its_grace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(begun: threading.Event, go_on: threading.Event, slow: Any) -> None:
        async with engine_of(tmp_path, slow, worker=False) as engine:
            asking = asyncio.create_task(engine.call_now("slow", {}, principal=DESKTOP))
            await asyncio.to_thread(begun.wait, 30)
            asking.cancel()
            await asyncio.wait((asking,))
            await engine.stop_working(0.05)
            assert MADE == []

    with caplog.at_level(logging.WARNING), blocking() as parts:
        asyncio.run(story(*parts))
    assert any("have not ended in time" in one.message for one in caplog.records)
