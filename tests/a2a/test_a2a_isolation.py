"""A caller that knows the ids of another's things is told of them what it is told of ids that do not exist."""

from __future__ import annotations

import asyncio
from typing import Any

from amoxi_py.domain.ids import call_id, child_run_id

SOURCE = """
from amoxi_py import agent, tool
from amoxi_py.testing import ScriptedModel, call


@tool(needs_approval=True)
async def erase(path: str) -> str:
    "Erase."
    return "erased"


@agent(tools=[erase], model=ScriptedModel({"*": [call("erase", path="/a"), "It is over."], "hello": ["Hello."]}))
class Eraser:
    "You erase."


@agent(agents=[Eraser], model=ScriptedModel([call("ask_eraser", message="hello"), "Done below."]))
class Boss:
    "You ask."
"""
NOBODYS = "run_" + "7" * 26
NO_CONTEXT = "conv_" + "7" * 26
HOOK = {"url": "https://example.com/hook", "id": "h1"}


def operations(task: str, context: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Every operation that takes an id, in both versions."""
    parts = [{"kind": "text", "text": "approve"}]
    old = {"role": "user", "messageId": "o", "parts": parts}
    new = {"role": "ROLE_USER", "messageId": "n", "parts": [{"text": "approve"}]}
    skill = {"metadata": {"skill": "eraser"}}
    return [
        ("1.0", "GetTask", {"id": task}),
        ("1.0", "CancelTask", {"id": task}),
        ("1.0", "SubscribeToTask", {"id": task}),
        ("1.0", "SendMessage", {"message": {**new, "taskId": task}}),
        ("1.0", "SendMessage", {"message": {**new, "taskId": task, "contextId": context}}),
        ("1.0", "SendMessage", {"message": {**new, "contextId": context}}),
        ("1.0", "SendMessage", {"message": {**new, "contextId": context}, **skill}),
        ("1.0", "SendStreamingMessage", {"message": {**new, "taskId": task}}),
        ("1.0", "SendStreamingMessage", {"message": {**new, "contextId": context}}),
        (
            "1.0",
            "SendMessage",
            {"message": {**new, "taskId": task}, "configuration": {"taskPushNotificationConfig": HOOK}},
        ),
        ("1.0", "ListTasks", {"contextId": context}),
        ("1.0", "CreateTaskPushNotificationConfig", {**HOOK, "taskId": task}),
        ("1.0", "GetTaskPushNotificationConfig", {"taskId": task, "id": "h1"}),
        ("1.0", "ListTaskPushNotificationConfigs", {"taskId": task}),
        ("1.0", "DeleteTaskPushNotificationConfig", {"taskId": task, "id": "h1"}),
        ("0.3", "tasks/get", {"id": task}),
        ("0.3", "tasks/cancel", {"id": task}),
        ("0.3", "tasks/resubscribe", {"id": task}),
        ("0.3", "message/send", {"message": {**old, "taskId": task}}),
        ("0.3", "message/send", {"message": {**old, "contextId": context}}),
        ("0.3", "message/stream", {"message": {**old, "taskId": task}}),
        (
            "0.3",
            "message/send",
            {"message": {**old, "taskId": task}, "configuration": {"pushNotificationConfig": HOOK}},
        ),
        ("0.3", "tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": HOOK}),
        ("0.3", "tasks/pushNotificationConfig/get", {"id": task, "pushNotificationConfigId": "h1"}),
        ("0.3", "tasks/pushNotificationConfig/list", {"id": task}),
        ("0.3", "tasks/pushNotificationConfig/delete", {"id": task, "pushNotificationConfigId": "h1"}),
    ]


async def answers(http: Any, task: str, context: str) -> list[str]:
    found = []
    for version, method, params in operations(task, context):
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await http.post("/a2a", json=request, headers={"A2A-Version": version})
        found.append(f"{method} {answer.status_code} {answer.text}")
    said = {"messageId": "r", "role": "ROLE_USER"}
    new = {"message": {**said, "parts": [{"text": "approve"}]}}
    old = {"message": {**said, "content": [{"text": "approve"}]}}
    of_task = {"": None, ":cancel": {}, ":subscribe": {}}
    hooks: list[tuple[str, str]] = [("GET", ""), ("GET", "/h1"), ("DELETE", "/h1")]
    hook_of_old = {"parent": f"tasks/{task}", "configId": "h1", "config": {"pushNotificationConfig": HOOK}}
    for version, root, message, hook in (("1.0", "/a2a", new, HOOK), ("0.3", "/a2a/v1", old, hook_of_old)):
        sent: list[tuple[str, str, Any]] = [
            *(("GET" if body is None else "POST", f"{root}/tasks/{task}{end}", body) for end, body in of_task.items()),
            *((method, f"{root}/tasks/{task}/pushNotificationConfigs{end}", None) for method, end in hooks),
            ("POST", f"{root}/tasks/{task}/pushNotificationConfigs", hook),
        ]
        places = ({"taskId": task}, {"taskId": task, "contextId": context}, {"contextId": context})
        for way in ("send", "stream"):
            bodies = [{"message": {**message["message"], **place}} for place in places]
            sent += [("POST", f"{root}/message:{way}", body) for body in bodies]
        for method, path, body in sent:
            answer = await http.request(method, path, json=body, headers={"A2A-Version": version})
            found.append(f"{method} {path} {answer.status_code} {answer.text}")
    return [text.replace(task, "<task>").replace(context, "<context>") for text in found]


async def list_of(http: Any, token: str = "") -> Any:
    params = {"pageToken": token}
    request = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params}
    return (await http.post("/a2a", json=request, headers={"A2A-Version": "1.0"})).json()


def test_ids_of_another_caller_are_answered_as_ids_that_do_not_exist_by_every_operation(
    a2a_app: Any, other_token: str
) -> None:
    async def scene() -> None:
        told = {"ai.a2a.push-allow": ["example.com"]}
        async with a2a_app(SOURCE, told) as app, app.caller() as partner, app.http(other_token) as other:
            waiting = await partner.send("erase", metadata={"skill": "eraser"})
            over = await partner.send("hello", metadata={"skill": "eraser"})
            kept = await partner.result("CreateTaskPushNotificationConfig", {**HOOK, "taskId": waiting["id"]})
            nothing = await answers(other, NOBODYS, NO_CONTEXT)
            refused = [text for text in nothing if any(told in text for told in ("-32001", "-32602", " 404 ", " 400 "))]
            assert [text for text in nothing if text not in refused and "ListTasks" not in text] == []
            for task in (waiting, over):
                assert await answers(other, task["id"], task["contextId"]) == nothing
            listed = (await list_of(other))["result"]
            assert (listed["tasks"], listed["totalSize"], listed["nextPageToken"]) == ([], 0, "")
            page = await partner.result("ListTasks", {"pageSize": 1})
            of_partner = await list_of(other, page["nextPageToken"])
            assert "run_" not in str(of_partner)
            same = await partner.result("GetTask", {"id": waiting["id"]})
            assert same == waiting
            hooks = await partner.result("ListTaskPushNotificationConfigs", {"taskId": waiting["id"]})
            assert hooks["configs"] == [kept]
            assert await partner.result("GetTask", {"id": over["id"]}) == over

    asyncio.run(scene())


def test_a_run_below_a_task_and_a_run_of_another_door_are_no_tasks(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("Please", metadata={"skill": "boss"})
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            below = child_run_id(call_id(task["id"], 1, 0))
            assert (await partner.error("GetTask", {"id": below}))["code"] == -32001
            assert (await partner.error("CancelTask", {"id": below}))["code"] == -32001
            assert [one["id"] for one in (await partner.result("ListTasks"))["tasks"]] == [task["id"]]
            for bad in ("run_x", "", "\u0000", "x" * 5000):
                error = await partner.error("GetTask", {"id": bad})
                assert error["code"] in (-32001, -32602)

    asyncio.run(scene())
