"""The SDK's own client through all operations: in both versions of the protocol, with streams and without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from processes import ServerProcess

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("a2a-clients")]

Connect = Any
RPC, REST = "JSONRPC", "HTTP+JSON"
MODES = [(version, binding, streaming) for version in ("1.0", "0.3") for binding in (RPC, REST) for streaming in (0, 1)]
HOOK = "https://hooks.example.com/tasks"


@pytest.fixture
def connect(server: ServerProcess, tokens: dict[str, str]) -> Connect:
    """A client of one version: `connect("1.0", streaming=True, caller="kits")`."""

    @asynccontextmanager
    async def open_client(
        version: str, *, streaming: bool, caller: str = "kits", binding: str = RPC
    ) -> AsyncIterator[Any]:
        headers = {"Authorization": f"Bearer {tokens[caller]}"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            card = await A2ACardResolver(http, server.url).get_agent_card()
            places = [(place.protocol_version, place.protocol_binding) for place in card.supported_interfaces]
            kept = card.supported_interfaces[places.index((version, binding))]
            del card.supported_interfaces[:]
            card.supported_interfaces.append(kept)
            config = ClientConfig(streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding])
            yield ClientFactory(config).create(card)

    return open_client


def request(text: str, task_id: str = "", context_id: str = "", *, at_once: bool = False) -> pb.SendMessageRequest:
    said = pb.Message(message_id=str(uuid4()), role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    said.task_id, said.context_id = task_id, context_id
    made = pb.SendMessageRequest(message=said)
    if not task_id:
        made.metadata.update({"skill": "support-agent"})
    made.configuration.return_immediately = at_once
    return made


class Told:
    """What a stream or an answer told of a task, put together as a client would."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.states: list[str] = []
        self.text = ""
        self.id = self.context_id = ""
        self.asked = ""

    def add(self, event: pb.StreamResponse) -> None:
        kind = event.WhichOneof("payload")
        assert kind is not None
        self.kinds.append(kind)
        if kind == "artifact_update":
            update = event.artifact_update
            piece = "".join(part.text for part in update.artifact.parts)
            self.text = self.text + piece if update.append else piece
            return
        told = event.task if kind == "task" else event.status_update
        self.states.append(pb.TaskState.Name(told.status.state).removeprefix("TASK_STATE_"))
        self.asked = "".join(part.text for part in told.status.message.parts)
        if kind == "task":
            self.id, self.context_id = event.task.id, event.task.context_id
            self.text = "".join(part.text for artifact in event.task.artifacts for part in artifact.parts)


async def told(events: Any) -> Told:
    found = Told()
    async for event in events:
        found.add(event)
    return found


@pytest.mark.parametrize(("version", "binding", "streaming"), MODES)
async def test_it_asks_is_asked_answers_and_looks(
    connect: Connect, found_order: str, declined: str, version: str, binding: str, streaming: bool
) -> None:
    async with connect(version, binding=binding, streaming=streaming) as client:
        found = await told(client.send_message(request("Where is order A-1001?")))
        assert (found.states[-1], found.text) == ("COMPLETED", found_order)
        assert found.kinds[0] == "task"
        assert (len(found.kinds) > 2) == streaming

        waiting = await told(client.send_message(request("Cancel order A-1002", context_id=found.context_id)))
        assert (waiting.states[-1], waiting.context_id) == ("INPUT_REQUIRED", found.context_id)
        assert "approve" in waiting.asked
        unmoved = await told(client.send_message(request("What would that mean?", waiting.id)))
        assert (unmoved.states[-1], unmoved.id) == ("INPUT_REQUIRED", waiting.id)
        answered = await told(client.send_message(request("no", waiting.id)))
        assert (answered.states[-1], answered.text, answered.id) == ("COMPLETED", declined, waiting.id)

        task = await client.get_task(pb.GetTaskRequest(id=waiting.id, history_length=1))
        assert task.artifacts[0].parts[0].text == declined
        assert len(task.history) == 1
        if version == "1.0":
            listed = await client.list_tasks(pb.ListTasksRequest(context_id=found.context_id, page_size=1))
            assert ([one.id for one in listed.tasks], listed.total_size) == ([waiting.id], 2)
            rest = pb.ListTasksRequest(context_id=found.context_id, page_token=listed.next_page_token)
            assert [one.id for one in (await client.list_tasks(rest)).tasks] == [found.id]
        with pytest.raises(UnsupportedOperationError):
            await told(client.send_message(request("And now?", waiting.id)))
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(pb.CancelTaskRequest(id=waiting.id))


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_it_follows_a_long_task_twice_and_cancels_it(connect: Connect, version: str) -> None:
    async with connect(version, streaming=True) as client:
        first = client.send_message(request("Refund order A-1001"))
        task = (await anext(first)).task
        second = client.subscribe(pb.SubscribeToTaskRequest(id=task.id))
        assert (await anext(second)).task.id == task.id
        ends = [asyncio.create_task(told(stream)) for stream in (first, second)]
        cancelled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
        assert cancelled.status.state == pb.TASK_STATE_CANCELED
        assert [(await asyncio.wait_for(end, 30)).states[-1] for end in ends] == ["CANCELED", "CANCELED"]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_it_keeps_webhooks_for_a_task_that_it_does_not_wait_for(connect: Connect, version: str) -> None:
    async with connect(version, streaming=False) as client:
        begun = await told(client.send_message(request("Refund order A-1001", at_once=True)))
        assert begun.states[-1] in ("SUBMITTED", "WORKING")
        made = await client.create_task_push_notification_config(
            pb.TaskPushNotificationConfig(task_id=begun.id, id="mine", url=HOOK, token="t1")
        )
        assert (made.id, made.url) == ("mine", HOOK)
        one = pb.GetTaskPushNotificationConfigRequest(task_id=begun.id, id="mine")
        assert (await client.get_task_push_notification_config(one)).url == HOOK
        every = pb.ListTaskPushNotificationConfigsRequest(task_id=begun.id)
        assert [each.id for each in (await client.list_task_push_notification_configs(every)).configs] == ["mine"]
        gone = pb.DeleteTaskPushNotificationConfigRequest(task_id=begun.id, id="mine")
        await client.delete_task_push_notification_config(gone)
        assert not (await client.list_task_push_notification_configs(every)).configs
        await client.cancel_task(pb.CancelTaskRequest(id=begun.id))


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_to_another_caller_a_task_is_one_that_does_not_exist(connect: Connect, version: str) -> None:
    async with (
        connect(version, streaming=True) as client,
        connect(version, streaming=True, caller="others") as other,
    ):
        waiting = await told(client.send_message(request("Cancel order A-1002")))
        for task_id in (waiting.id, str(uuid4())):
            for attempt in (
                other.get_task(pb.GetTaskRequest(id=task_id)),
                other.cancel_task(pb.CancelTaskRequest(id=task_id)),
                told(other.subscribe(pb.SubscribeToTaskRequest(id=task_id))),
                told(other.send_message(request("yes", task_id))),
            ):
                with pytest.raises(TaskNotFoundError):
                    await attempt
        task = await client.get_task(pb.GetTaskRequest(id=waiting.id))
        assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED
        await client.cancel_task(pb.CancelTaskRequest(id=waiting.id))


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_the_extended_card_has_the_skills_of_the_caller(connect: Connect, version: str) -> None:
    async with connect(version, streaming=True) as client:
        card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
        assert [skill["id"] for skill in MessageToDict(card)["skills"]] == ["assistant", "support-agent"]
