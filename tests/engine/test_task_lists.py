"""What the engine tells callers of tasks: lists in the order of statuses, messages, and where a log ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal, agent, redact, tool
from amoxi_py.domain.event import EventType
from amoxi_py.domain.run import RunStatus
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, NotFound
from amoxi_py.models.script import call
from amoxi_py.ports.chat_model import ModelRequest, UserMessage
from amoxi_py.ports.tasks import TaskFilter
from amoxi_py.stores.sqlite.store import SqliteStore

SHOP = Principal(id="a2a:shop", name="shop", channel="a2a")
BANK = Principal(id="a2a:bank", name="bank", channel="a2a")
SCRIPT = {"refund": [call("refund", order_id="A-1"), "It is refunded."], "*": ["Hello."]}


@tool(needs_approval=True)
async def refund(order_id: str) -> str:
    """Refund an order."""
    return f"{order_id} is refunded"


@agent(tools=[refund])
class Desk:
    """You help."""


@agent
class Shop:
    """You sell."""


@redact
def hide_tokens(text: str) -> str:
    return text.replace("s3cret", "***")


async def waiting(engine: Engine, run_id: str) -> None:
    async for events in await engine.follow(SHOP, run_id=run_id):
        if any(event.type is EventType.RUN_WAITING for event in events):
            return


def test_a_callers_tasks_are_listed_by_status_and_its_messages_are_its_own(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        done = (await engine.submit("desk", "hello", principal=SHOP)).run
        await engine.wait(done.id, SHOP, timeout=30)
        asking = (await engine.submit("desk", "refund", principal=SHOP)).run
        await waiting(engine, asking.id)
        page = await engine.list_tasks(SHOP, limit=1)
        assert ([run.id for run in page.items], page.total) == ([asking.id], 2)
        rest = await engine.list_tasks(SHOP, limit=1, cursor=page.next_cursor)
        assert ([run.id for run in rest.items], rest.next_cursor) == ([done.id], None)
        asks = await engine.list_tasks(SHOP, TaskFilter(statuses=(RunStatus.WAITING,), asking=True))
        assert [run.id for run in asks.items] == [asking.id]
        works = await engine.list_tasks(SHOP, TaskFilter(statuses=(RunStatus.RUNNING, RunStatus.WAITING), asking=False))
        assert works.total == 0
        of_one = await engine.list_tasks(SHOP, TaskFilter(conversation_id=done.conversation_id))
        assert [run.id for run in of_one.items] == [done.id]
        newer = await engine.list_tasks(SHOP, TaskFilter(updated_after=asks.items[0].status_at))
        assert [run.id for run in newer.items] == [asking.id]
        assert (await engine.list_tasks(BANK)).items == ()
        assert [one.text for one in await engine.messages_of(done.id, SHOP)] == ["hello", "Hello."]
        with pytest.raises(NotFound):
            await engine.messages_of(done.id, BANK)

    with_engine(SqliteStore(tmp_path), [Desk], SCRIPT, story)


def test_a_message_that_would_begin_a_conversation_goes_on_with_it_when_it_is_there(
    tmp_path: Path, with_engine: Any
) -> None:
    """Another one may have begun it since its sender looked: then the model is shown what was said before."""

    def say(request: ModelRequest) -> str:
        return ", ".join(message.text for message in request.messages if isinstance(message, UserMessage))

    async def story(engine: Engine) -> None:
        named = {"principal": SHOP, "conversation_id": "conv_named", "begins": True}
        for text, began, shown in (
            ("one", True, "one"),
            ("two", False, "one, two"),
            ("three", False, "one, two, three"),
        ):
            submitted = await engine.submit("desk", text, **named)
            assert (submitted.began, submitted.busy) == (began, False)
            assert (await engine.wait(submitted.run.id, SHOP, timeout=30)).output == shown
        fresh = await engine.submit("desk", "four", principal=SHOP, begins=True)
        assert fresh.began
        assert fresh.run.conversation_id != "conv_named"

    with_engine(SqliteStore(tmp_path), [Desk], say, story)


def test_a_run_behind_one_that_asks_is_told_which(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        asking = (await engine.submit("desk", "refund", principal=SHOP)).run
        await waiting(engine, asking.id)
        behind = await engine.submit(
            "desk", "hello", principal=SHOP, conversation_id=asking.conversation_id, on_busy="queue"
        )
        assert behind.busy
        found = await engine.asking_before(behind.run, SHOP)
        assert found == await engine.get_run(asking.id, SHOP)
        assert await engine.asking_before(asking, SHOP) is None
        with pytest.raises(NotFound):
            await engine.asking_before(behind.run, BANK)

    with_engine(SqliteStore(tmp_path), [Desk], SCRIPT, story)


def test_a_key_of_a_scope_is_the_same_key_for_every_agent(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        keyed = {"principal": SHOP, "idempotency_key": "k", "key_scope": "door"}
        first = await engine.submit("desk", "hello", digest="d", **keyed)
        assert (await engine.submit("shop", "hello", digest="d", **keyed)).run.id == first.run.id
        with pytest.raises(Conflict, match="used with another request"):
            await engine.submit("shop", "hello", **keyed)
        assert (await engine.submit("shop", "hello", principal=SHOP, idempotency_key="k")).created

    with_engine(SqliteStore(tmp_path), [Desk, Shop], SCRIPT, story)


def test_a_stream_says_where_the_log_ended_when_it_was_opened(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        run = (await engine.submit("desk", "hello", principal=SHOP)).run
        await engine.wait(run.id, SHOP, timeout=30)
        stream = await engine.follow(SHOP, run_id=run.id)
        last = stream.last_seq
        await engine.submit("desk", "more", principal=SHOP, conversation_id=run.conversation_id)
        seen = [event.seq async for events in stream for event in events]
        assert (seen[-1], stream.last_seq) == (last, last)

    with_engine(SqliteStore(tmp_path), [Desk], SCRIPT, story)


def test_nothing_is_hidden_of_a_webhook(tmp_path: Path, with_engine: Any) -> None:
    """What `@redact` hides would be missing when the address must be shown it."""

    async def story(engine: Engine) -> None:
        run = (await engine.submit("desk", "my s3cret", principal=SHOP)).run
        (message, *_) = await engine.messages_of(run.id, SHOP)
        assert message.text == "my ***"
        await engine._store.keep_webhook(run.id, SHOP, "w", '{"token":"s3cret"}', limit=1)
        (held,) = await engine._store.claim_webhooks("h", 30.0, 1)
        assert held.webhook.content == '{"token":"s3cret"}'

    with_engine(SqliteStore(tmp_path), [Desk, hide_tokens], SCRIPT, story)
