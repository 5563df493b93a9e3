"""Version 0.3 in terms of 1.0: how its streams end, and errors that its clients can read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb

from amoxi_py.surfaces.a2a.compat import OPERATIONS_0_3

pytestmark = pytest.mark.anyio

SOURCE = '''
from amoxi_py import agent, tool

@tool(needs_approval=True)
def cancel_order(order_id: str) -> str:
    """Cancel an order."""
    return "cancelled"

@agent(tools=[cancel_order])
class Clerk:
    """You help."""
'''
COMPLETED, CANCELED = pb.TASK_STATE_COMPLETED, pb.TASK_STATE_CANCELED
FAILED, WORKING, ASKS = pb.TASK_STATE_FAILED, pb.TASK_STATE_WORKING, pb.TASK_STATE_INPUT_REQUIRED


def task(state: Any) -> pb.Task:
    return pb.Task(id="t", context_id="c", status=pb.TaskStatus(state=state))


def status(state: Any) -> pb.TaskStatusUpdateEvent:
    return pb.TaskStatusUpdateEvent(task_id="t", context_id="c", status=pb.TaskStatus(state=state))


async def told(method: str, *events: Any) -> list[Any]:
    async def given() -> AsyncGenerator[Any, None]:
        for event in events:
            yield event

    tell = OPERATIONS_0_3[method].tell_events
    assert tell is not None
    return [(one["kind"], one["status"]["state"], one.get("final")) async for one in tell(given())]


async def test_a_stream_ends_with_a_status_that_says_so_where_the_task_ends_or_asks() -> None:
    begun = ("task", "working", None)
    for state, name in ((COMPLETED, "completed"), (FAILED, "failed"), (CANCELED, "canceled")):
        for method in ("message/stream", "tasks/resubscribe"):
            assert await told(method, task(WORKING), status(state)) == [begun, ("status-update", name, True)]
    asks = [task(WORKING), status(ASKS)]
    assert await told("message/stream", *asks) == [begun, ("status-update", "input-required", True)]
    going_on = [begun, ("status-update", "input-required", False), ("status-update", "completed", True)]
    assert await told("tasks/resubscribe", *asks, status(COMPLETED)) == going_on


async def test_a_stream_of_what_had_ended_already_says_so_too() -> None:
    for method in ("message/stream", "tasks/resubscribe"):
        assert await told(method, task(COMPLETED)) == [
            ("task", "completed", None),
            ("status-update", "completed", True),
        ]
    assert (await told("message/stream", task(ASKS)))[1:] == [("status-update", "input-required", True)]
    assert (await told("tasks/resubscribe", task(ASKS)))[1:] == []


async def test_a_stream_that_the_server_ends_early_does_not_say_that_the_task_has() -> None:
    assert await told("message/stream", task(WORKING)) == [("task", "working", None)]
    assert await told("message/stream", task(WORKING), status(WORKING)) == [
        ("task", "working", None),
        ("status-update", "working", False),
    ]


async def test_a_webhook_of_0_3_in_rest_is_for_the_task_in_its_path(a2a_app: Any) -> None:
    message = {"role": "user", "messageId": "m1", "parts": [{"kind": "text", "text": "Cancel order A-1002"}]}
    given = {"ai.a2a.push-allow": ["127.0.0.1"]}
    async with a2a_app(SOURCE, given) as app, app.caller(version="0.3") as caller:
        sent = await caller.result("message/send", {"message": message})
        config = {"pushNotificationConfig": {"id": "h1", "url": "http://127.0.0.1:9/hook"}}
        for parent in ({}, {"parent": "tasks/run_x"}):
            path = f"/a2a/v1/tasks/{sent['id']}/pushNotificationConfigs"
            kept = await caller.http.post(path, json={**parent, "configId": "h1", "config": config})
            assert (kept.status_code, kept.json()["name"]) == (200, f"tasks/{sent['id']}/pushNotificationConfigs/h1")


async def test_clients_of_0_3_get_a_stream_that_says_its_end_and_errors_in_streams(a2a_app: Any) -> None:
    message = {"role": "user", "messageId": "m1", "parts": [{"kind": "text", "text": "Cancel order A-1002"}]}
    async with a2a_app(SOURCE) as app, app.caller(version="0.3") as caller:
        events = [event async for event in caller.events("message/stream", {"message": message})]
        last = events[-1]
        assert (last["kind"], last["status"]["state"], last["final"]) == ("status-update", "input-required", True)
        async with caller.http.stream(
            "POST", "/a2a", json={"jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": {"id": "run_x"}}
        ) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert '"code":-32001' in "".join([line async for line in answer.aiter_lines()])
        unknown = await caller.error("tasks/get", {"id": "run_x"})
        assert unknown == {"code": -32001, "message": "Task not found"}, "its errors have no list of details"
