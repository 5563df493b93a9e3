"""Verbs of many who wait share transactions; verbs of one who waits for each answer never wait for others."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from amoxi_py.stores.sql import writer as writers
from amoxi_py.stores.sql.verb import Act, Answer, Verb
from amoxi_py.stores.sql.writer import VerbWriter, Waiting


class Paused(VerbWriter):
    """A writer that is driven by the test; `pauses` are how long it wanted to wait for more, in seconds."""

    def __init__(self) -> None:
        super().__init__(lambda events, settled: None)
        self.batches: list[int] = []
        self.pauses: list[float] = []

    def _transact(self, verbs: list[Verb]) -> list[Answer]:
        self.batches.append(len(verbs))
        return [Answer()] * len(verbs)

    def _failure(self, error: Exception) -> Exception:
        return error

    def _idle(self) -> None: ...

    def _close(self) -> None: ...

    def turn(self) -> None:
        waiting, _ = self._take()
        self._perform(waiting)


def waiting(count: int) -> Waiting:
    return [(Act(lambda batch: None), Future()) for _ in range(count)]


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Paused:
    made = Paused()
    clock = 100.0

    class Time:
        def perf_counter(self) -> float:
            return clock

        def sleep(self, seconds: float) -> None:
            nonlocal clock
            clock += seconds
            made.pauses.append(seconds)
            made.put(waiting(3))  # what comes meanwhile

    monkeypatch.setattr(writers, "time", Time())
    return made


def test_one_who_waits_for_each_answer_waits_for_nobody_else(writer: Paused) -> None:
    for _ in range(100):
        writer.put(waiting(1))
        writer.turn()
    assert writer.pauses == []
    assert writer.batches == [1] * 100


def test_while_many_wait_a_transaction_takes_all_that_comes_within_the_gap(writer: Paused) -> None:
    for _ in range(20):
        writer.put(waiting(4))
        writer.turn()
    assert writer.pauses
    assert max(writer.pauses) == pytest.approx(writers._GAP_S)
    assert writer.batches[-1] == 4 + 3


def test_it_ends_when_they_come_one_at_a_time_again(writer: Paused, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        writer.put(waiting(4))
        writer.turn()

    def quiet(seconds: float) -> Any:
        writer.pauses.append(seconds)

    monkeypatch.setattr(writers.time, "sleep", quiet)
    for _ in range(60):
        writer.pauses.clear()
        writer.put(waiting(1))
        writer.turn()
    assert writer.pauses == []
