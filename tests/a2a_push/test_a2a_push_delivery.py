"""Webhooks are told of their tasks: in order, at least once, and by one server at a time."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from a2a.types.a2a_pb2 import AuthenticationInfo, Message, SendMessageRequest

from amoxi_py.domain.principal import Principal
from amoxi_py.errors import NotFound, StoreUnavailable
from receivers import Receiver

pytestmark = pytest.mark.anyio

Start = Callable[..., Awaitable[Any]]
Until = Callable[..., Awaitable[Any]]
PARTNER = Principal(id="a2a:partner", name="partner", channel="a2a")
ANSWER = "It is on its way."


def states(told: list[Any]) -> list[str]:
    """What a 1.0 receiver was told, in a word each."""
    found = []
    for body in told:
        (kind,) = body
        if kind == "artifactUpdate":
            found.append("answer")
        else:
            word = body[kind]["status"]["state"].removeprefix("TASK_STATE_").lower()
            found.append(f"task {word}" if kind == "task" else word)
    return found


WHOLE = ["task input_required", "working", "answer", "completed"]


async def test_a_webhook_is_told_the_task_then_each_status_and_the_answer_whole(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start()
    run = await server.send()
    told = {"token": "task-token", "authentication": AuthenticationInfo(scheme="Bearer", credentials="partner-secret")}
    made = await server.watch(run, receiver, **told)
    assert (made.id, made.task_id, made.token) == (run.id, run.id, "task-token")
    await until(lambda: receiver.heard)
    await server.approve(run)
    await until(lambda: server.over(run))
    assert states(receiver.told()) == WHOLE
    task, working, answer, completed = receiver.told()
    assert task["task"]["id"] == run.id
    assert "ship" in json.dumps(task["task"]["status"]["message"])
    assert answer["artifactUpdate"]["artifact"]["parts"] == [{"text": ANSWER}]
    assert answer["artifactUpdate"]["lastChunk"] is True
    assert "append" not in answer["artifactUpdate"]
    for update in (working["statusUpdate"], answer["artifactUpdate"], completed["statusUpdate"]):
        assert (update["taskId"], update["contextId"]) == (run.id, run.conversation_id)
    for headers, _ in receiver.heard:
        assert headers[":first"] == "POST /updates?key=url-secret HTTP/1.1"
        assert headers["host"] == f"127.0.0.1:{receiver.port}"
        assert headers["content-type"] == "application/a2a+json"
        assert headers["x-a2a-notification-token"] == "task-token"
        assert headers["authorization"] == "Bearer partner-secret"
        assert headers["user-agent"] == "amoxi-py"


async def test_a_caller_of_the_older_version_is_told_the_whole_task_each_time(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start()
    run = await server.send()
    await server.watch(run, receiver, version="0.3", token="task-token")
    await until(lambda: receiver.heard)
    await server.approve(run)
    await until(lambda: server.over(run))
    told = receiver.told()
    assert [task["status"]["state"] for task in told] == ["input-required", "working", "completed"]
    assert {(task["kind"], task["id"], task["contextId"]) for task in told} == {("task", run.id, run.conversation_id)}
    assert told[-1]["artifacts"][0]["parts"] == [{"kind": "text", "text": ANSWER}]
    headers = receiver.heard[0][0]
    assert headers["content-type"] == "application/json"
    assert headers["x-a2a-notification-token"] == "task-token"
    assert "authorization" not in headers


async def test_a_webhook_of_a_task_that_has_ended_is_told_once(start: Start, until: Until, receiver: Receiver) -> None:
    server = await start("answers")
    run = await server.send()
    await server.watch(run, receiver)
    await until(lambda: server.over(run))
    assert states(receiver.told()) == ["task completed"]
    assert receiver.told()[0]["task"]["artifacts"][0]["parts"] == [{"text": ANSWER}]


async def test_the_webhook_of_a_message_sent_again_after_its_task_has_ended_is_told_once(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start("answers")
    params = SendMessageRequest(message=Message(message_id="m1"))
    params.configuration.task_push_notification_config.url = receiver.url

    async def expect() -> Any:
        return await server.webhooks.expect(PARTNER, params, version="1.0", base="")

    first = await expect()
    run = await server.send()  # here the server died, with the webhook
    for _ in range(2):
        again = await expect()
        assert (first.again, again.again) == (False, True)
        await server.webhooks.keep_expected(PARTNER, run.id, again)
        await until(lambda: server.over(run))
    assert states(receiver.told()) == ["task completed"]


async def test_a_message_that_was_taken_is_no_error_because_of_its_webhook(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start()
    run = await server.send()
    params = SendMessageRequest(message=Message(message_id="m1", task_id=run.id))
    params.configuration.task_push_notification_config.url = receiver.url
    expected = await server.webhooks.expect(PARTNER, params, version="1.0", base="")
    for n in range(10):  # since it was looked at
        await server.watch(run, receiver, id=f"w{n}")
    await server.webhooks.keep_expected(PARTNER, run.id, expected)
    listed = await server.webhooks.list(PARTNER, run.id)
    assert {one.id for one in listed.configs} == {f"w{n}" for n in range(10)}


async def test_a_failed_delivery_is_made_again_and_nothing_overtakes_it(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start()
    run = await server.send()
    trouble = {1: 503, 2: 429, 3: b"", 4: b"nonsense\r\n\r\n", 6: 404, 8: 408}
    receiver.answer = lambda n: trouble.get(n, 200)
    await server.watch(run, receiver)
    await until(lambda: len(receiver.heard) >= 5)
    await server.approve(run)
    await until(lambda: server.over(run))
    again = ["working", "working", "answer", "answer", "completed"]
    assert states(receiver.told()) == ["task input_required"] * 5 + again
    assert len({json.dumps(body) for body in receiver.told()}) == 4, "what is sent again is the same"


async def test_another_server_goes_on_where_one_stopped(start: Start, until: Until, receiver: Receiver) -> None:
    first, second = await start(), await start(web_only=True)
    run = await first.send()
    await first.watch(run, receiver)
    await until(lambda: receiver.heard)
    await until(lambda: first.told_up_to(run))
    await first.webhooks.close()
    await first.approve(run)
    await until(lambda: second.over(run))
    assert states(receiver.told()) == WHOLE


class CutOff:
    """A store of which a process cannot do some verbs any more, once `cut` is set."""

    cut = False

    def __init__(self, store: Any, *verbs: str) -> None:
        self._store = store
        self._verbs = verbs
        self.claimed = 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not name.endswith(("_webhook", "_webhooks", "_delivery")):
            return verb

        async def reached(*args: Any, **more: Any) -> Any:
            if self.cut and (not self._verbs or name in self._verbs):
                raise StoreUnavailable("there is no way to it")
            answer = await verb(*args, **more)
            self.claimed += len(answer) if name == "claim_webhooks" else 0
            return answer

        return reached


async def test_a_server_that_is_cut_off_tells_nothing_more_and_another_takes_over(
    start: Start, until: Until, receiver: Receiver
) -> None:
    made: list[CutOff] = []

    def wrap(store: Any) -> CutOff:
        made.append(CutOff(store))
        return made[-1]

    first = await start(wrap=wrap, lease=0.5)
    run = await first.send()
    await first.watch(run, receiver)
    await until(lambda: first.told_up_to(run))
    made[0].cut = True
    await first.approve(run)
    await until(lambda: first.ended(run))
    assert states(receiver.told()) == WHOLE[:1]
    second = await start(web_only=True)
    await until(lambda: second.over(run))
    assert states(receiver.told()) == WHOLE
    made[0].cut = False
    await first.watch(await first.send(), receiver)
    await until(lambda: len(receiver.heard) > len(WHOLE))
    assert states(receiver.told()) == [*WHOLE, WHOLE[0]], "it goes on, but tells nothing twice"


async def test_a_server_whose_lease_has_ended_tells_nothing_though_it_does_not_know_who_has_it(
    start: Start, until: Until, receiver: Receiver
) -> None:
    made: list[CutOff] = []

    def wrap(store: Any) -> CutOff:
        made.append(CutOff(store, "renew_webhooks", "claim_webhooks"))
        return made[-1]

    first = await start(wrap=wrap, lease=0.5)
    run = await first.send()
    await first.watch(run, receiver)
    await until(lambda: first.told_up_to(run))
    second = await start(wrap=wrap, web_only=True)
    made[0].cut = True
    await until(lambda: made[1].claimed)
    await first.approve(run)
    await until(lambda: second.over(run))
    assert states(receiver.told()) == WHOLE


async def test_nothing_is_told_after_a_webhook_is_removed_on_any_server(
    start: Start, until: Until, receiver: Receiver
) -> None:
    first, second = await start(claim_every=600.0), await start(web_only=True, claim_every=600.0)
    run = await first.send()
    for name in ("one", "two", "three", "four"):
        await first.watch(run, receiver, id=name, token=name)
    await until(lambda: len(receiver.heard) == 4)
    await second.webhooks.delete(PARTNER, run.id, "one")
    for _ in range(2):
        await first.webhooks.delete(PARTNER, run.id, "two")
    await second.watch(run, receiver, id="three", token="changed")
    await until(lambda: len(receiver.heard) == 5)
    await first.approve(run)
    for name in ("three", "four"):
        await until(partial(first.over, run, name))
    for name, told in {"one": 1, "two": 1, "three": 1, "changed": 4, "four": 4}.items():
        heard = [body for headers, body in receiver.heard if headers["x-a2a-notification-token"] == name]
        assert states(heard) == WHOLE[:told]


async def test_nothing_is_kept_of_a_webhook_that_was_removed_on_another_server(
    start: Start, until: Until, receiver: Receiver
) -> None:
    first, second = await start(lease=0.5), await start(web_only=True, claim_every=600.0)
    run = await first.send()
    await first.watch(run, receiver)
    await until(lambda: first.told_up_to(run))
    await second.webhooks.delete(PARTNER, run.id, "")
    await until(lambda: not first.webhooks._deliveries._lines)


async def test_nothing_is_told_of_an_erased_conversation(
    start: Start, until: Until, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start()
    run = await server.send()
    await server.watch(run, receiver)
    await until(lambda: server.told_up_to(run))
    await server.engine.erase(run.conversation_id, PARTNER)
    with pytest.raises(NotFound):
        await server.webhooks.get(PARTNER, run.id, run.id)
    await server.send()
    assert len(receiver.heard) == 1
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


async def test_more_webhooks_than_a_server_holds_at_once_take_turns(
    start: Start, until: Until, receiver: Receiver
) -> None:
    server = await start(most=2, lease=0.1)
    runs = [await server.send() for _ in range(5)]
    for run in runs:
        await server.watch(run, receiver)
    await until(lambda: len({body["task"]["id"] for body in receiver.told()}) == 5)
    for run in runs:
        await server.approve(run)
    for run in runs:
        await until(partial(server.over, run))
