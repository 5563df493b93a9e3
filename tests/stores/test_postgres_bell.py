"""What others commit is heard although their bell does not ring, rings for nothing, or cannot be listened to."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.postgres.store import PostgresStore

ANN = Principal(id="user:ann")
SILENT = "postgresql://nobody@127.0.0.1:1/nowhere"


class Everything:
    """Wants the conversations that a test names, and notes what was missed."""

    def __init__(self) -> None:
        self.wanted: set[int] = set()
        self.missed_ones: list[int] = []
        self.heard = asyncio.Event()

    def conversations(self) -> Collection[int]:
        return self.wanted

    def news(self, types: Collection[EventType], due: bool) -> None:
        pass

    def missed(self, conversation: int) -> None:
        self.missed_ones.append(conversation)
        self.heard.set()


@asynccontextmanager
async def opened(url: str, told: list[Event], interest: Everything | None = None, **more: Any) -> Any:
    store = PostgresStore(url, **more)
    await store.open(told.extend, interest.heard.set if interest is not None else None, interest)
    try:
        yield store
    finally:
        await store.close()


def submission(conversation: str | None = None) -> Submission:
    return Submission(
        run_id=new_id("run"),
        message_id=new_id("msg"),
        conversation_id=conversation or new_id("conv"),
        new_conversation=conversation is None,
        agent="helper",
        principal=ANN,
        text="hello",
        on_busy="queue",
    )


async def follow(here: Everything, store: PostgresStore, conversation: str) -> None:
    position = await store.find_log(ANN, conversation_id=conversation)
    here.wanted.add(position.conversation)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bell of each process in this test never rings, as when it dies between a commit and the bell."""
    monkeypatch.setattr("amoxi_py.stores.postgres.bell.Bell.ring", lambda self, news, due: None)


def test_a_process_that_died_before_it_rang_is_heard_by_a_look_at_the_log(postgres_url: str, quiet: None) -> None:
    async def main() -> None:
        here = Everything()
        async with opened(postgres_url, [], here) as store, opened(postgres_url, []) as other:
            first = await other.submit(submission())
            await follow(here, store, first.run.conversation_id)
            await other.submit(submission(first.run.conversation_id))
            await asyncio.wait_for(here.heard.wait(), 60)

    asyncio.run(main())


def test_a_bell_that_cannot_listen_looks_at_the_log(postgres_url: str) -> None:
    async def main() -> None:
        here = Everything()
        async with opened(postgres_url, [], here, listen_url=SILENT) as store, opened(postgres_url, []) as other:
            first = await other.submit(submission())
            await follow(here, store, first.run.conversation_id)
            here.heard.clear()
            await other.submit(submission(first.run.conversation_id))
            await asyncio.wait_for(here.heard.wait(), 60)

    asyncio.run(main())


@pytest.mark.parametrize("payload", ["", "x", "bell_1 1 zz", "bell_1 1 1.2", "bell_1 0 1.1.1.1.9", "??"])
def test_what_is_not_understood_on_the_channel_is_passed_over(
    postgres_url: str, payload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amoxi_py.stores.postgres.bell._POLL_HEARD_EVERY_S", 1000.0)  # it is heard by the bell alone

    async def main() -> None:
        here = Everything()
        async with opened(postgres_url, [], here) as store, opened(postgres_url, []) as other:
            first = await other.submit(submission())
            await follow(here, store, first.run.conversation_id)
            with psycopg.connect(postgres_url, autocommit=True) as anybody:
                anybody.execute("SELECT pg_notify('amoxi amoxi', %s)", (payload,))
            here.heard.clear()
            await other.submit(submission(first.run.conversation_id))
            await asyncio.wait_for(here.heard.wait(), 60)

    asyncio.run(main())


def test_news_after_the_end_start_nothing(postgres_url: str) -> None:
    async def main() -> None:
        here = Everything()
        async with opened(postgres_url, [], here) as store:
            telling = store._telling
        here.wanted.add(1)
        telling.news([], True)
        telling.poll()
        telling.own([])
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
