"""What a caller sets of a webhook: given back to it alone, within bounds, and nothing that no request could carry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from a2a.types.a2a_pb2 import AuthenticationInfo, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError

from amoxi_py.domain.principal import Principal
from amoxi_py.errors import NotFound
from receivers import Receiver

pytestmark = pytest.mark.anyio

Start = Callable[..., Awaitable[Any]]
Until = Callable[..., Awaitable[Any]]
PARTNER = Principal(id="a2a:partner", name="partner", channel="a2a")
OTHER = Principal(id="a2a:other", name="other", channel="a2a")
BASE = "http://localhost:8080"


async def test_a_webhook_is_given_back_to_its_caller_and_to_nobody_else(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start()
    run = await server.send()
    await server.watch(run, receiver)
    made = await server.watch(
        run, receiver, id="two", token="t", authentication=AuthenticationInfo(scheme="Basic", credentials="YTpi")
    )
    assert await server.webhooks.get(PARTNER, run.id, "two") == made
    assert (await server.webhooks.get(PARTNER, run.id, "")).id == run.id
    listed = await server.webhooks.list(PARTNER, run.id)
    assert [one.id for one in listed.configs] == [run.id, "two"]
    assert listed.next_page_token == ""
    page = await server.webhooks.list(PARTNER, run.id, 1)
    rest = await server.webhooks.list(PARTNER, run.id, 1, page.next_page_token)
    assert [one.id for one in (*page.configs, *rest.configs)] == [run.id, "two"]
    with pytest.raises(InvalidParamsError):
        await server.webhooks.list(PARTNER, run.id, 1, "nonsense")
    with pytest.raises(NotFound):
        await server.webhooks.get(PARTNER, run.id, "three")
    tries: list[Callable[[Principal, str], Awaitable[Any]]] = [
        lambda who, task: server.webhooks.get(who, task, "two"),
        lambda who, task: server.webhooks.list(who, task),
        lambda who, task: server.webhooks.delete(who, task, "two"),
        lambda who, task: server.webhooks.create(who, with_task(made, task), version="1.0", base=BASE),
    ]
    for attempt in tries:
        for who, task in ((OTHER, run.id), (PARTNER, "run_" + "0" * 26)):
            with pytest.raises(NotFound):
                await attempt(who, task)
    assert (await server.webhooks.get(PARTNER, run.id, "two")).token == "t"
    with pytest.raises(NotFound):
        await server.webhooks.get(PARTNER, run.id, "\x00")
    await server.webhooks.delete(PARTNER, run.id, "\x00")


def with_task(config: TaskPushNotificationConfig, task_id: str) -> TaskPushNotificationConfig:
    made = TaskPushNotificationConfig()
    made.CopyFrom(config)
    made.task_id = task_id
    return made


async def test_a_task_has_ten_webhooks_at_most_and_one_that_is_set_again_is_the_same(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start()
    run = await server.send()
    for n in range(10):
        await server.watch(run, receiver, id=f"hook {n}")
    with pytest.raises(InvalidParamsError, match="10 webhooks"):
        await server.watch(run, receiver, id="one more")
    await until(lambda: len(receiver.heard) == 10)
    await server.watch(run, receiver, id="hook 0")
    await server.watch(run, receiver, id="hook 1", token="new")
    await until(lambda: len(receiver.heard) == 11)
    assert receiver.heard[-1][0]["x-a2a-notification-token"] == "new"
    await server.approve(run)
    for n in range(10):
        await until(partial(server.over, run, f"hook {n}"))
    assert len(receiver.heard) == 11 + 3 * 10


UNFIT: list[dict[str, Any]] = [
    {"token": "a\r\nx: y"},
    {"token": "a b"},
    {"token": "ä"},
    {"token": "x" * 4097},
    {"id": "a\nb"},
    {"id": "x" * 257},
    {"authentication": AuthenticationInfo(scheme="Bearer x", credentials="y")},
    {"authentication": AuthenticationInfo(scheme="Bearer\r\n", credentials="y")},
    {"authentication": AuthenticationInfo(scheme="Bearer", credentials="y\r\nz: 1")},
    {"authentication": AuthenticationInfo(scheme="Bearer", credentials="y\x00")},
    {"authentication": AuthenticationInfo(credentials="y")},
    {"url": ""},
    {"url": "http://10.0.0.1/x"},
    {"url": "https://inside.example.com/x"},
    {"url": "https://nowhere.invalid/x"},
]


async def test_what_no_request_could_carry_is_refused_when_it_is_set(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start(resolve=inside)
    run = await server.send()
    texts = []
    for told in UNFIT:
        with pytest.raises(InvalidParamsError) as refused:
            await server.watch(run, receiver, **told)
        texts.append(refused.value.message)
    assert not any("\r" in text or "\x00" in text for text in texts)
    assert texts[-1] == texts[-2], "nobody is told which names there are inside"
    assert not (await server.webhooks.list(PARTNER, run.id)).configs


async def inside(host: str, port: int) -> list[str]:
    if host.endswith(".invalid"):
        raise OSError("no such name")
    return ["10.1.2.3"]
