"""A retry is a new run of the same message; the operator's door does it, and all else, in the owner's name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunStatus
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.operator import Operator
from amoxi_py.errors import Conflict, NotFound
from amoxi_py.models.script import call, fail
from amoxi_py.ports.operator_store import RunFilter
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann", name="Ann", tenant="t1", roles=frozenset({"a"}), claims={"plan": "pro"})
BOB = Principal(id="user:bob")
ROOT = Principal(id="system:root")


@tool(needs_approval=True)
async def act() -> str:
    """Do something that a person has to approve."""
    return "done"


@agent(tools=[act])
class Actor:
    """You act."""


@agent(tools=[act], on_busy="reject")
class Strict:
    """You do one thing at a time."""


Use = Callable[[Engine, Operator], Awaitable[None]]


@pytest.fixture
def with_operator(with_engine: Any) -> Callable[[Path, list[Any], Use], None]:
    def run(folder: Path, script: list[Any], use: Use) -> None:
        store = SqliteStore(folder)
        with_engine(store, [Actor, Strict], script, lambda engine: use(engine, Operator(engine, store, ROOT)))

    return run


def test_a_retry_says_the_same_again_with_new_calls_and_the_old_run_stays(tmp_path: Path, with_operator: Any) -> None:
    async def use(engine: Engine, operator: Operator) -> None:
        submitted = await engine.submit("actor", "Do it", principal=ANN)
        old = await engine.wait(submitted.run.id, ANN, timeout=60)
        assert (old.status, old.error and old.error.code) == ("failed", "model_refused")
        with pytest.raises(NotFound):
            await engine.retry(old.id, BOB)
        with pytest.raises(NotFound):
            await engine.retry(old.id, ANN, "strict")
        new = await operator.retry(old.id)
        assert new.id != old.id
        assert (new.conversation_id, new.principal) == (old.conversation_id, ANN)
        assert (await operator.messages(new.id))[0].text == "Do it"
        failed = await operator.list_runs(RunFilter(status=RunStatus.FAILED))
        assert old in failed.items
        assert await operator.get_run(old.id) == old
        events = [event.type.label async for event in operator.events(old.id)]
        assert (events[0], events[-1]) == ("run.queued", "run.failed")

    with_operator(tmp_path, [fail(400), call("act")], use)


def test_a_run_that_has_not_ended_is_not_retried_and_a_busy_conversation_is_left_in_peace(
    tmp_path: Path, with_operator: Any
) -> None:
    async def use(engine: Engine, operator: Operator) -> None:
        for name in ("actor", "strict"):
            first = (await engine.submit(name, "Do it", principal=ANN)).run
            with pytest.raises(Conflict, match="wait until it has ended, or cancel it, to retry it") as refused:
                await engine.retry(first.id, ANN)
            assert refused.value.code == "run_not_ended"
            await operator.cancel(first.id)
            second = await engine.retry(first.id, ANN)
            if name == "actor":
                assert (await engine.retry(first.id, ANN)).status == "queued"
            else:
                with pytest.raises(Conflict, match="busy"):
                    await engine.retry(first.id, ANN)
            assert not (await engine.get_run(second.id, ANN)).status.final

    with_operator(tmp_path, [call("act") for _ in range(4)], use)


def test_what_the_operator_decides_is_told_as_the_operators_and_wakes_the_run(
    tmp_path: Path, with_operator: Any
) -> None:
    async def use(engine: Engine, operator: Operator) -> None:
        run = (await engine.submit("actor", "Do it", principal=ANN)).run
        async for batch in await operator.follow(run.id):
            for event in batch:
                if event.type.label == "approval.requested":
                    [view] = (await operator.list_approvals()).items
                    assert view.call.id == event.data["call_id"]
                    await operator.decide(view.call.id, "decline", reason="no")
                if event.type.label == "approval.decided":
                    assert (event.data["by"], event.data["reason"]) == ("system:root", "no")
        assert (await operator.get_run(run.id)).status == "completed"
        assert (await operator.list_approvals()).items == ()
        with pytest.raises(Conflict):
            await operator.decide(view.call.id, "approve")

    with_operator(tmp_path, [call("act"), "So not."], use)
