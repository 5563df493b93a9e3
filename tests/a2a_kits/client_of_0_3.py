"""The SDK before 1.0 as a client, which many frameworks still bring; prints what it was told as JSON.

Usage: client_of_0_3.py URL, with A2A_TOKEN set and this SDK first on the path.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    ListTaskPushNotificationConfigSuccessResponse,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
    TransportProtocol,
)

HOOK = "https://hooks.example.com/0.3"


def message(text: str, **more: Any) -> Message:
    """Return a message of the user; the skill goes where these clients can put it."""
    part = Part(root=TextPart(text=text))
    return Message(message_id=str(uuid4()), role=Role.user, parts=[part], metadata={"skill": "support-agent"}, **more)


def text_of(task: Task) -> str:
    """Return the text of a task's first artifact."""
    artifact = (task.artifacts or [None])[0]
    return "".join(part.root.text for part in artifact.parts) if artifact else ""


async def told(events: Any) -> Task:
    """Return the task as it was told last."""
    return [task async for task, _ in events][-1]


async def ask(client: Any) -> dict[str, Any]:
    """Ask, answer, look and cancel, and return what came of it."""
    found = await told(client.send_message(message("Where is order A-1001?")))
    waiting = await told(client.send_message(message("Cancel order A-1002")))
    answer = message("no", task_id=waiting.id)
    answer.metadata = None
    declined = await told(client.send_message(answer))
    again = await client.get_task(TaskQueryParams(id=waiting.id))
    try:
        await client.get_task(TaskQueryParams(id=str(uuid4())))
        code = None
    except A2AClientJSONRPCError as error:
        code = error.error.code
    except A2AClientHTTPError as error:
        code = error.status_code
    return {
        "found": [found.status.state.value, text_of(found)],
        "waiting": waiting.status.state.value,
        "declined": [declined.status.state.value, text_of(declined), declined.id == waiting.id],
        "again": [again.status.state.value, text_of(again)],
        "unknown": code,
    }


async def stop(client: Any) -> list[str]:
    """Follow a task that takes long, from two streams, and cancel it; return what each said last."""
    first = client.send_message(message("Refund order A-1001"))
    task, _ = await anext(first)
    second = client.resubscribe(TaskIdParams(id=task.id))
    await anext(second)
    ends = [asyncio.create_task(told(stream)) for stream in (first, second)]
    cancelled = await client.cancel_task(TaskIdParams(id=task.id))
    return [cancelled.status.state.value, *[(await end).status.state.value for end in ends]]


async def hook(client: Any, http: httpx.AsyncClient, url: str) -> list[Any]:
    """Set, look up, list and delete a webhook; the last two are in the types of this SDK, and not in its client."""
    task = await told(client.send_message(message("Cancel order A-1002")))
    own = PushNotificationConfig(id="mine", url=HOOK, token="t1")
    kept = await client.set_task_callback(TaskPushNotificationConfig(task_id=task.id, push_notification_config=own))
    which = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="mine")
    found = await client.get_task_callback(which)

    async def ask_for(name: str, params: dict[str, Any]) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": f"tasks/pushNotificationConfig/{name}", "params": params}
        return (await http.post(url, json=request)).json()

    async def listed() -> list[str | None]:
        answer = ListTaskPushNotificationConfigSuccessResponse.model_validate(await ask_for("list", {"id": task.id}))
        return [each.push_notification_config.id for each in answer.result]

    before = await listed()
    await ask_for("delete", {"id": task.id, "pushNotificationConfigId": "mine"})
    after = await listed()
    await client.cancel_task(TaskIdParams(id=task.id))
    hooks = [each.push_notification_config for each in (kept, found)]
    return [*([each.id, each.url, each.token] for each in hooks), before, after]


async def main(url: str) -> None:
    """Do all of it in both bindings, with streams and without."""
    headers = {"Authorization": f"Bearer {os.environ['A2A_TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        report: dict[str, Any] = {"sdk": version("a2a-sdk"), "protocol": card.protocol_version, "url": card.url}
        for binding in (TransportProtocol.jsonrpc, TransportProtocol.http_json):
            for streaming in (False, True):
                config = ClientConfig(streaming=streaming, httpx_client=http, supported_transports=[binding])
                config.use_client_preference = True
                client = ClientFactory(config).create(card)
                told_of = report[f"{binding.value} {'stream' if streaming else 'call'}"] = await ask(client)
                told_of["webhook"] = await hook(client, http, card.url)
                if streaming:
                    told_of["stopped"] = await stop(client)
    print(json.dumps(report))


asyncio.run(main(sys.argv[1]))
