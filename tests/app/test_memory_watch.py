"""When a server collects garbage and gives memory back, looked at second by second."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amoxi_py.app import memory_watch

BETWEEN = 10


class Process:
    """What a watch sees and does of a process.

    Attributes:
        now: Seconds; each look is one later.
        takes: Seconds that a collection takes.
        giving_takes: Seconds that it takes to give memory back.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gc, "collect", self._collect)
        monkeypatch.setattr(memory_watch, "time", SimpleNamespace(perf_counter=lambda: self.now))
        self.now = self.takes = self.giving_takes = 0.0
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
        self.now += self.giving_takes

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


def test_what_goes_on_for_long_after_a_load_is_the_new_measure(process: Process) -> None:
    process.runs = 500
    process.look(BETWEEN)
    process.runs = 50
    process.look(600)
    assert process.given_back == 60

    process.look(600)
    process.given_back = 0
    process.look(600)
    assert process.given_back == 0


def test_a_process_with_few_runs_is_quiet(process: Process) -> None:
    process.runs = 10
    process.look(3 * BETWEEN)
    assert process.given_back == 3

    process.runs = 11
    process.look(3 * BETWEEN)
    assert process.given_back == 3


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


def test_a_small_process_may_grow_by_more_than_half(process: Process) -> None:
    process.runs = 500
    process.resident = 80
    process.look()
    process.resident = 208
    process.look(BETWEEN)
    assert process.collected == 0

    process.resident = 209
    process.look()
    assert process.collected == 1


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


def test_memory_that_has_doubled_is_looked_through_whatever_that_takes(process: Process) -> None:
    process.takes = 1.0
    process.look(BETWEEN)
    process.runs = 500
    process.resident = 2001
    process.look(5)
    assert process.collected == 2

    process.resident = 4001
    process.look(5)
    assert process.collected == 2, "not yet twice what it was after the last collection"
    process.resident = 4003
    process.look(5)
    assert process.collected == 3


def test_a_load_that_is_over_is_looked_through_whatever_the_collections_in_it_took(process: Process) -> None:
    process.takes = 1.0
    process.runs = 500
    process.resident = 2001
    process.look(5)
    assert process.collected == 1

    process.resident = 2300
    process.runs = 0
    process.look(BETWEEN)
    assert process.collected == 2

    process.look(10 * BETWEEN)
    assert process.collected == 2, "what stays is the new measure"


def test_giving_back_takes_a_hundredth_of_the_time(process: Process) -> None:
    process.giving_takes = 0.25
    process.look(BETWEEN)
    assert process.given_back == 1

    process.look(24)
    assert process.given_back == 1

    process.look()
    assert process.given_back == 2


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
def test_a_look_that_fails_is_told_and_the_next_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "_LOOK_EVERY_S", 0.001)
    told: list[Any] = []
    looks = 0

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
        third = asyncio.Event()

        def executing() -> int:
            nonlocal looks
            looks += 1
            if looks == 2:
                raise OSError(24, "Too many open files")
            if looks == 3:
                third.set()
            return 0

        memory_watch.MemoryWatch(executing, lambda: 1000, lambda: None).start()
        await asyncio.wait_for(third.wait(), 60)

    asyncio.run(story())
    assert [type(error) for error in told] == [OSError]


@pytest.mark.usefixtures("thresholds")
def test_without_proc_the_interpreters_rules_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory_watch, "_STATM", tmp_path / "statm")
    before = gc.get_threshold()

    memory_watch.watch_memory(lambda: 0)

    assert gc.get_threshold() == before


def test_names_are_forgotten_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory_watch._forget_names()
