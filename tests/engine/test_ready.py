"""Whether a process is ready is asked of the parts that do the work, and the answer names the one that does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import agent
from amoxi_py.engine import health
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import LeaseLost, NotReady, StoreUnavailable
from amoxi_py.stores.sqlite.store import SqliteStore


@agent
class Echo:
    """You echo."""


class Faulty:
    """A store that fails where a test says so."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.renewing: Exception | None = None
        self.enrolling: Exception | None = None
        self.hangs = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def renew(self, *args: Any) -> None:
        if self.renewing is not None:
            raise self.renewing
        self._store.renew(*args)

    async def enroll(self, *args: Any) -> Any:
        if self.enrolling is not None:
            raise self.enrolling
        return await self._store.enroll(*args)

    async def busy_runs(self) -> int:
        if self.hangs:
            await asyncio.Event().wait()
        return await self._store.busy_runs()


async def refusal(engine: Engine, words: str) -> None:
    """Wait until the process says with these words that it is not ready."""
    async with asyncio.timeout(60):
        while True:
            try:
                await engine.ready()
            except NotReady as error:
                if words in str(error):
                    return
            await asyncio.sleep(0.01)


async def readiness(engine: Engine) -> None:
    """Wait until the process is ready."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await engine.ready()
            except NotReady:
                await asyncio.sleep(0.01)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return Faulty(SqliteStore(tmp_path))


def test_a_worker_whose_lease_cannot_be_renewed_is_not_ready_until_it_can(with_engine: Any, store: Any) -> None:
    async def story(engine: Engine) -> None:
        await readiness(engine)  # at once, but on a machine that is too busy to renew so short a lease
        store.renewing = StoreUnavailable("the disk is full")
        await refusal(engine, "its lease could not be renewed")
        store.renewing = None
        await readiness(engine)

    with_engine(store, [Echo], ["Hello."], story, lease=1.0)


def test_a_worker_that_lost_its_lease_is_not_ready_until_it_has_another(with_engine: Any, store: Any) -> None:
    async def story(engine: Engine) -> None:
        store.enrolling = StoreUnavailable("the disk is full")
        store.renewing = LeaseLost("worker")
        await refusal(engine, "has not got another")
        assert engine.measures.leases_lost >= 1
        store.renewing = store.enrolling = None
        await readiness(engine)

    with_engine(store, [Echo], ["Hello."], story, lease=1.0)


def test_a_process_that_stops_is_not_ready(with_engine: Any, store: Any) -> None:
    async def stopping(engine: Engine) -> None:
        await engine.ready()
        await engine.stop_working(0.0)
        await refusal(engine, "it stops")

    with_engine(store, [Echo], ["Hello."], stopping)


def test_a_process_that_only_serves_needs_no_worker_to_be_ready(with_engine: Any, store: Any) -> None:
    async def serving(engine: Engine) -> None:
        await engine.ready()

    with_engine(store, [Echo], ["Hello."], serving, worker=False)


def test_a_store_that_does_not_answer_makes_it_not_ready(
    with_engine: Any, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PATIENCE_S", 0.05)

    async def story(engine: Engine) -> None:
        store.hangs = True
        await refusal(engine, "the store has not answered")

    with_engine(store, [Echo], ["Hello."], story)
