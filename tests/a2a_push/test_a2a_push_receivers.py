"""Receivers that refuse, hang, are away, or lead inside: they are given up, and hold up nobody else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from a2a.types.a2a_pb2 import AuthenticationInfo

from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.surfaces.a2a.delivery import Pace
from receivers import Receiver, receiving

pytestmark = pytest.mark.anyio

Start = Callable[..., Awaitable[Any]]
Until = Callable[..., Awaitable[Any]]


@pytest.mark.parametrize("status", [404, 302])
async def test_a_receiver_that_wants_nothing_is_given_up_with_one_warning_that_tells_no_secret(
    start: Start, until: Until, receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    server = await start()
    run = await server.send()
    moved = (
        f"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{receiver.port}/two\r\ncontent-length: 0\r\n\r\n".encode()
    )
    receiver.answer = lambda n: moved if status == 302 else status
    told = {"token": "token-secret", "authentication": AuthenticationInfo(scheme="Bearer", credentials="auth-secret")}
    await server.watch(run, receiver, **told)
    await until(lambda: server.over(run))
    assert len(receiver.heard) == 3
    (warning,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert run.id in warning
    assert "127.0.0.1" in warning
    assert str(status) in warning
    assert "secret" not in caplog.text
    await server.approve(run)
    await until(lambda: server.ended(run))
    assert len(receiver.heard) == 3


async def test_a_receiver_that_is_away_for_good_is_given_up_after_a_day(
    start: Start, until: Until, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Pace().retry
    pauses = [retry_delay(policy, failures, chance=0.0) for failures in range(1, policy.tries + 1)]
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert pauses[-1] is None
    assert 24 * 3600 <= sum(pause or 0.0 for pause in pauses) < 24.1 * 3600
    assert retry_delay(policy, 1, chance=0.0, asked=7200.0) == 300.0
    server = await start(retry=RetryPolicy(tries=4, first=0.001, longest=0.001))
    run = await server.send()
    receiver.answer = lambda n: 500
    await server.watch(run, receiver)
    await until(lambda: server.over(run))
    assert len(receiver.heard) == 4
    assert "given up after 4 failures" in caplog.text


async def test_retry_after_is_waited_for(
    start: Start, until: Until, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = await start(retry=RetryPolicy(tries=9, first=0.001, longest=0.001, jitter=0.0, longest_asked=300.0))
    run = await server.send()
    receiver.answer = lambda n: b"HTTP/1.1 429 Slow\r\nretry-after: 7200\r\ncontent-length: 0\r\n\r\n"
    await server.watch(run, receiver)
    await until(lambda: server.failures(run))
    await until(lambda: "tried again in 300 s" in caplog.text)
    assert len(receiver.heard) == 1


async def test_a_receiver_that_hangs_or_never_ends_its_answer_holds_up_nobody(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start()
    async with receiving() as hanging:
        hanging.answer = lambda n: None
        runs = [await server.send() for n in range(6)]
        for run in runs:
            await server.watch(run, hanging)
        await until(lambda: hanging.waiting == 4)
        receiver.answer = lambda n: b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000
        await server.watch(runs[0], receiver, id="good")
        await server.approve(runs[0])
        await until(lambda: server.over(runs[0], "good"))
        assert hanging.waiting == 4, "so many of one receiver at once"


async def test_a_name_that_leads_inside_by_the_time_of_the_delivery_gets_nothing(
    start: Start, until: Until, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    led_to = ["93.184.216.34", "127.0.0.1"]

    async def resolve(host: str, port: int) -> list[str]:
        return [led_to[0] if len(led_to) == 1 else led_to.pop(0)]

    server = await start(allow=(), resolve=resolve)
    run = await server.send()
    await server.watch(run, receiver, url=f"https://agent.example.com:{receiver.port}/x")
    await until(lambda: server.over(run))
    assert receiver.heard == []
    assert "its host is not on the public internet" in caplog.text
