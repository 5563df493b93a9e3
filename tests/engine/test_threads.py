"""The pool of threads for sync tools: bounded, its own, and nothing a function raises gets lost or gets out."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from amoxi_py.engine.threads import ThreadPool

BOUND = 10.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that functions wait for; it is set at the end, so that no thread is left waiting."""
    event = threading.Event()
    yield event
    event.set()


async def settled(future: Awaitable[Any]) -> Any:
    """Return what a future came to, its error as a value."""
    async with asyncio.timeout(BOUND):
        try:
            return await future
        except BaseException as error:
            return error


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_function_runs_in_a_daemon_thread_of_the_pool_and_its_value_comes_back() -> None:
    async def story() -> threading.Thread:
        return await ThreadPool(1).submit(threading.current_thread)

    thread = asyncio.run(story())
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert thread.name.startswith("amoxi-tool-")


def test_no_more_functions_than_the_limit_run_at_once_and_all_of_them_run() -> None:
    async def story() -> tuple[int, list[int], set[str]]:
        pool, lock = ThreadPool(3), threading.Lock()
        running = most = 0
        together = threading.Barrier(3)
        names: set[str] = set()

        def work(n: int) -> int:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                names.add(threading.current_thread().name)
            together.wait(BOUND)
            with lock:
                running -= 1
            return n

        async with asyncio.timeout(BOUND):
            done = await asyncio.gather(*(pool.submit(lambda n=n: work(n)) for n in range(30)))  # type: ignore[misc]  # n is bound
        return most, done, names

    most, done, names = asyncio.run(story())
    assert most == 3, "the barrier of three was passed, and never with more than three"
    assert done == list(range(30))
    assert len(names) == 3


def test_a_thread_that_is_free_is_used_again() -> None:
    async def story() -> set[str]:
        pool = ThreadPool(8)
        names = set()
        for _ in range(20):
            names.add(await pool.submit(lambda: threading.current_thread().name))
            await until(lambda: pool._idle == pool._threads)  # the thread reports back after it has answered
        return names

    assert len(asyncio.run(story())) == 1


def test_functions_that_wait_for_a_thread_start_in_the_order_they_came(gate: threading.Event) -> None:
    async def story() -> list[int]:
        pool = ThreadPool(1)
        order: list[int] = []
        first = pool.submit(lambda: gate.wait(BOUND))
        rest = [pool.submit(lambda n=n: order.append(n)) for n in range(10)]  # type: ignore[misc]  # n is bound
        gate.set()
        async with asyncio.timeout(BOUND):
            await asyncio.gather(first, *rest)
        return order

    assert asyncio.run(story()) == list(range(10))


def test_a_blocked_pool_does_not_block_the_loop(gate: threading.Event) -> None:
    async def story() -> bool:
        pool = ThreadPool(2)
        futures = [pool.submit(lambda: gate.wait(BOUND)) for _ in range(5)]
        await asyncio.sleep(0)
        blocked = not any(future.done() for future in futures)
        gate.set()
        async with asyncio.timeout(BOUND):
            await asyncio.gather(*futures)
        return blocked

    assert asyncio.run(story())


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("it cannot be said")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        BaseExceptionGroup("both", [ValueError("x"), SystemExit(1)]),
        UnspeakableError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_function_raises_reaches_who_awaits_it_and_the_pool_goes_on(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def story() -> tuple[Any, str]:
        pool = ThreadPool(1)
        return await settled(pool.submit(fail)), await settled(pool.submit(lambda: "still there"))

    assert asyncio.run(story()) == (error, "still there")


@pytest.mark.parametrize("error", [StopIteration(), GeneratorExit()], ids=lambda error: type(error).__name__)
def test_a_raise_that_means_something_else_to_a_coroutine_fails_by_its_name(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def story() -> tuple[Any, str]:
        pool = ThreadPool(1)
        return await settled(pool.submit(fail)), await settled(pool.submit(lambda: "still there"))

    failure, after = asyncio.run(story())
    assert isinstance(failure, RuntimeError)
    assert type(error).__name__ in str(failure)
    assert after == "still there"


def test_a_function_that_was_cancelled_before_its_start_never_runs(gate: threading.Event) -> None:
    async def story() -> list[str]:
        pool = ThreadPool(1)
        ran: list[str] = []
        first = pool.submit(lambda: gate.wait(BOUND))
        cancelled = pool.submit(lambda: ran.append("cancelled"))
        last = pool.submit(lambda: ran.append("last"))
        cancelled.cancel()
        gate.set()
        async with asyncio.timeout(BOUND):
            await asyncio.gather(first, last)
        return ran

    assert asyncio.run(story()) == ["last"]


def test_a_function_that_was_cancelled_in_its_middle_ends_by_itself_and_frees_its_thread(gate: threading.Event) -> None:
    async def story() -> tuple[list[str], bool, list[dict[str, Any]]]:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        pool = ThreadPool(1)
        told: list[str] = []
        started = threading.Event()

        def work() -> None:
            started.set()
            gate.wait(BOUND)
            told.append("ended")
            raise ValueError("nobody waits for this")

        future = pool.submit(work)
        await until(started.is_set)
        future.cancel()
        gate.set()
        await settled(pool.submit(lambda: told.append("next")))
        gc.collect()
        return told, future.cancelled(), complaints

    told, cancelled, complaints = asyncio.run(story())
    assert told == ["ended", "next"]
    assert cancelled
    assert complaints == []


def test_a_function_lingers_after_its_caller_was_cancelled_until_it_has_ended(gate: threading.Event) -> None:
    async def story() -> None:
        pool = ThreadPool(1)
        lingering: set[asyncio.Future[Any]] = set()
        started = threading.Event()

        def work() -> None:
            started.set()
            gate.wait(BOUND)

        running = asyncio.create_task(pool.run(work, lingering))
        await until(started.is_set)
        running.cancel()
        assert isinstance(await settled(running), asyncio.CancelledError)
        assert len(lingering) == 1
        gate.set()
        await until(lambda: not lingering)

    asyncio.run(story())


def test_a_function_that_had_not_started_when_its_caller_was_cancelled_never_does_and_does_not_linger(
    gate: threading.Event,
) -> None:
    async def story() -> list[str]:
        pool = ThreadPool(1)
        lingering: set[asyncio.Future[Any]] = set()
        ran: list[str] = []
        first = pool.submit(lambda: gate.wait(BOUND))
        waiting = asyncio.create_task(pool.run(lambda: ran.append("cancelled"), lingering))
        await asyncio.sleep(0)
        waiting.cancel()
        assert isinstance(await settled(waiting), asyncio.CancelledError)
        assert not lingering
        gate.set()
        await settled(first)
        assert await settled(pool.run(lambda: "next", lingering)) == "next"
        return ran

    assert asyncio.run(story()) == []


def test_a_function_that_ends_after_its_loop_was_closed_harms_nothing(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", escaped.append)
    pool = ThreadPool(1)

    async def leave() -> None:
        pool.submit(lambda: gate.wait(BOUND))

    async def come_back() -> str:
        return str(await settled(pool.submit(lambda: "still there")))

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(come_back()) == "still there"
    assert escaped == []


def test_a_function_that_was_refused_because_no_thread_can_start_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> list[str]:
        pool = ThreadPool(1)
        ran: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with contextlib.suppress(RuntimeError):
                pool.submit(lambda: ran.append("refused"))
        await settled(pool.submit(lambda: ran.append("accepted")))
        await settled(pool.submit(lambda: ran.append("next")))
        return ran

    assert asyncio.run(story()) == ["accepted", "next"]


def test_a_tool_that_never_returns_does_not_hold_up_the_exit_of_the_process() -> None:
    program = """
import asyncio, threading
from amoxi_py.engine.threads import ThreadPool

async def main():
    started = threading.Event()
    ThreadPool(1).submit(lambda: (started.set(), threading.Event().wait()))
    while not started.is_set():
        await asyncio.sleep(0.001)
    print("leaving")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "leaving\n", "")


def test_threads_take_turns_quickly_while_a_tool_is_in_one_and_as_before_after_it() -> None:
    async def main() -> None:
        usual = sys.getswitchinterval()
        pool, gate = ThreadPool(2), threading.Event()

        def wait() -> float:
            gate.wait(30)
            return sys.getswitchinterval()

        first, second = pool.submit(wait), pool.submit(sys.getswitchinterval)
        assert await second < usual
        gate.set()
        assert await first < usual
        async with asyncio.timeout(30):
            while sys.getswitchinterval() != usual:
                await asyncio.sleep(0.001)

    asyncio.run(main())
