"""Every route of REST that has an id in it, and every operation there is, keeps callers apart; a token is no owner."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.surfaces.a2a.compat import OPERATIONS_0_3
from amoxi_py.surfaces.a2a.operations import OPERATIONS
from amoxi_py.surfaces.a2a.rest import ROUTES, RestRoute
from amoxi_py.surfaces.a2a.rest_compat import ROUTES_0_3

pytestmark = pytest.mark.anyio

SOURCE = '''
from amoxi_py import agent, tool
from amoxi_py.testing import ScriptedModel, call


@tool(needs_approval=True)
async def erase(path: str) -> str:
    """Erase."""
    return "erased"


@agent(tools=[erase], model=ScriptedModel({"*": [call("erase", path="/a"), "It is over."], "hello": ["Hello."]}))
class Eraser:
    """You erase."""
'''
NOBODYS = "run_" + "7" * 26
HOOK = {"url": "http://127.0.0.1:9/hook", "id": "h1"}
BODIES: dict[str, Any] = {
    "CreateTaskPushNotificationConfig": HOOK,
    "tasks/pushNotificationConfig/set": {"configId": "h1", "config": {"pushNotificationConfig": HOOK}},
}
OF_THEIR_CALLER = {"GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"}
WITHOUT_ID = {"SendMessage", "SendStreamingMessage", "ListTasks", "message/send", "message/stream", *OF_THEIR_CALLER}


def address(route: RestRoute, task: str) -> str:
    """The address of a route for one task and its webhook."""
    ids = {"id": task, "config": "h1"}
    path = re.sub(r"\(\?P<(\w+)>[^)]*\)", lambda group: ids[group[1]], route.path.pattern)
    return "/a2a/" + re.sub(r"\\(.)", r"\1", path)


async def ask(http: Any, route: RestRoute, task: str) -> tuple[int, str]:
    body = BODIES.get(route.operation.name, {}) if route.method == "POST" else None
    headers = {"A2A-Version": route.version}
    answer = await http.request(route.method, address(route, task), json=body, headers=headers)
    return answer.status_code, answer.text.replace(task, "<task>")


async def test_an_id_of_another_caller_is_at_every_route_as_one_that_does_not_exist(
    a2a_app: Any, other_token: str
) -> None:
    routes = [route for route in (*ROUTES, *ROUTES_0_3) if route.path.groups]
    assert {route.operation.name for route in (*ROUTES, *ROUTES_0_3) if not route.path.groups} == WITHOUT_ID
    given = {"ai.a2a.push-allow": ["127.0.0.1"]}
    async with a2a_app(SOURCE, given) as app, app.caller() as partner, app.http(other_token) as other:
        waiting, over = await partner.send("erase"), await partner.send("hello")
        states = [task["status"]["state"] for task in (waiting, over)]
        assert states == ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"]
        kept = await partner.result("CreateTaskPushNotificationConfig", {**HOOK, "taskId": waiting["id"]})
        for route in routes:
            nothing = await ask(other, route, NOBODYS)
            assert nothing[0] == 404, (address(route, NOBODYS), nothing)
            for task in (waiting, over):
                assert await ask(other, route, task["id"]) == nothing, address(route, "<task>")
        for task in (waiting, over):
            assert await partner.result("GetTask", {"id": task["id"]}) == task
        assert await partner.result("ListTaskPushNotificationConfigs", {"taskId": waiting["id"]}) == {"configs": [kept]}
        for route in routes:  # the owner finds all of it; what cancels comes last
            if (
                route.method == "GET"
                and "Subscribe" not in route.operation.name
                and "subscribe" not in address(route, "")
            ):
                assert (await ask(partner.http, route, waiting["id"]))[0] == 200, address(route, "<task>")


def test_no_operation_is_without_a_test_of_isolation() -> None:
    tested = Path(__file__).with_name("test_a2a_isolation.py").read_text("utf-8")
    for name in (*OPERATIONS, *OPERATIONS_0_3):
        assert name in OF_THEIR_CALLER or f'"{name}"' in tested, f"{name} is asked by nobody with another's id"


async def test_a_caller_whose_token_has_been_changed_still_owns_its_tasks(a2a_app: Any) -> None:
    new = "another-token-of-partner-0123456789"
    async with a2a_app(SOURCE) as app, app.caller() as partner:
        task = await partner.send("erase")
    async with a2a_app(SOURCE, environ={"AI_A2A_CALLERS_PARTNER": new}) as app:
        async with app.caller(new) as partner:
            assert await partner.result("GetTask", {"id": task["id"]}) == task
            listed = (await partner.result("ListTasks"))["tasks"]
            assert [one["id"] for one in listed] == [task["id"]]
            answered = await partner.send("approve", taskId=task["id"])
            assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
        async with app.http() as http:
            assert (await http.get(f"/a2a/tasks/{task['id']}", headers={"A2A-Version": "1.0"})).status_code == 401
