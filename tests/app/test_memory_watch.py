"""When a server collects garbage and gives memory back, looked at second by second."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest

from amoxi_py.app import memory_watch

BETWEEN = 10


class Process:
    """What a watch sees and does of a process.

    Attributes:
        now: Seconds; each look is one later.
        takes: Seconds that a collection takes.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gc, "collect", self._collect)
        monkeypatch.setattr(memory_watch, "time", SimpleNamespace(perf_counter=lambda: self.now))
        self.now = self.takes = 0.0
        self.runs = 0
        self.resident = 1000
        self.watch = memory_watch.MemoryWatch(lambda: self.runs, lambda: self.resident, self._give_back)
        self.given_back = self.collected = 0
        self.watch.look()
        self.given_back = self.collected = 0

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += 1.0
            self.watch.look()

    def _give_back(self) -> None:
        self.given_back += 1

    def _collect(self) -> int:
        self.collected += 1
        self.now += self.takes
        return 0


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


def test_an_idle_process_gives_memory_back_every_ten_seconds(process: Process) -> None:
    process.look(3 * BETWEEN)

    assert process.given_back == process.collected == 3


def test_a_busy_process_is_left_alone(process: Process) -> None:
    process.runs = 500
    process.look(BETWEEN)
    process.runs = 400
    process.look(5 * BETWEEN)

    assert process.given_back == process.collected == 0


def test_a_tenth_of_the_runs_is_quiet(process: Process) -> None:
    process.runs = 500
    process.look(BETWEEN)
    process.runs = 50
    process.look()

    assert process.given_back == process.collected == 1


def test_what_is_quiet_after_it_was_given_back_is_the_new_measure(process: Process) -> None:
    process.runs = 500
    process.look(BETWEEN)
    process.runs = 50
    process.look(1 + 3 * BETWEEN)

    assert process.given_back == 1


def test_memory_that_grows_while_busy_is_looked_through_once_for_each_half(process: Process) -> None:
    process.runs = 500
    process.resident = 1499
    process.look(BETWEEN)
    assert process.collected == 0

    process.resident = 1501
    process.look(BETWEEN)
    assert process.collected == 1

    process.resident = 2252
    process.look(BETWEEN)
    assert (process.collected, process.given_back) == (2, 0)


def test_growth_is_counted_from_the_least(process: Process) -> None:
    process.runs = 500
    process.resident = 800
    process.look()
    process.resident = 1201
    process.look()

    assert process.collected == 1


def test_collections_take_a_two_hundredth_of_the_time(process: Process) -> None:
    process.takes = 1.0
    process.look(BETWEEN)
    assert process.collected == 1

    process.look(199)
    assert process.collected == 1
    assert process.given_back == 20, "memory goes back without a collection"

    process.look(BETWEEN)
    assert process.collected == 2


def test_a_collection_that_was_put_off_is_made_up_for(process: Process) -> None:
    process.takes = 1.0
    process.look(BETWEEN)
    process.runs = 500
    process.resident = 1600
    process.look(150)
    assert process.collected == 1

    process.look(60)
    assert process.collected == 2
