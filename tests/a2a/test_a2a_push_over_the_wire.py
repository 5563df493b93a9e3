"""Webhooks as callers set them, in both versions of the protocol: alone, and with a message."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from amoxi_py.surfaces import outgoing
from receivers import Receiver, receiving

pytestmark = pytest.mark.anyio

SHOP = '''
from amoxi_py import agent, tool
from amoxi_py.testing import ScriptedModel, call


@tool(needs_approval=True)
def ship() -> str:
    "Ship it."
    return "shipped"


@agent(tools=[ship], model=ScriptedModel([call("ship"), "It is on its way."]))
class Shop:
    """You are a shop."""
'''
ALLOWED = {"ai.a2a.push-allow": ["127.0.0.1"]}
AUTHENTICATION = {"scheme": "Bearer", "credentials": "partner-secret"}


async def test_a_webhook_comes_with_the_message_or_is_set_later_in_1_0(a2a_app: Any, until: Any) -> None:
    async with a2a_app(SHOP, ALLOWED) as app, app.caller() as partner, receiving() as receiver:
        wanted = {"url": receiver.url, "id": "inline", "authentication": AUTHENTICATION}
        task = await partner.send("Ship it", params={"configuration": {"taskPushNotificationConfig": wanted}})
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        given = {**wanted, "taskId": task["id"]}
        by_id = {"taskId": task["id"], "id": "inline"}
        assert await partner.result("GetTaskPushNotificationConfig", by_id) == given
        own = {"taskId": task["id"], "url": receiver.url, "token": "task-token"}
        made = await partner.result("CreateTaskPushNotificationConfig", own)
        assert made == {**own, "id": task["id"]}
        listed = await partner.result("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
        assert listed["configs"] == [given, made]
        for _ in range(2):
            await partner.result("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": task["id"]})
        await until(lambda: receiver.heard)
        await partner.send("yes", taskId=task["id"])
        await until(lambda: last_state(receiver) == "TASK_STATE_COMPLETED")
        headers, body = receiver.heard[-1]
        assert headers["authorization"] == "Bearer partner-secret"
        assert body["statusUpdate"]["taskId"] == task["id"]


def last_state(receiver: Receiver) -> Any:
    return receiver.told()[-1].get("statusUpdate", {}).get("status", {}).get("state")


async def test_a_webhook_comes_with_the_message_or_is_set_later_in_0_3(a2a_app: Any, until: Any) -> None:
    async with a2a_app(SHOP, ALLOWED) as app, app.caller(version="0.3") as partner, receiving() as receiver:
        config = {
            "url": receiver.url,
            "token": "task-token",
            "authentication": {"schemes": ["Bearer"], "credentials": "c"},
        }
        message = {"role": "user", "messageId": "m1", "parts": [{"kind": "text", "text": "Ship it"}]}
        sent = {"message": message, "configuration": {"pushNotificationConfig": config}}
        task = await partner.result("message/send", sent)
        given = {"taskId": task["id"], "pushNotificationConfig": {**config, "id": task["id"]}}
        assert await partner.result("tasks/pushNotificationConfig/get", {"id": task["id"]}) == given
        own = {"taskId": task["id"], "pushNotificationConfig": {"url": receiver.url, "id": "own"}}
        assert await partner.result("tasks/pushNotificationConfig/set", own) == own
        assert await partner.result("tasks/pushNotificationConfig/list", {"id": task["id"]}) == [given, own]
        gone = {"id": task["id"], "pushNotificationConfigId": "own"}
        for _ in range(2):
            assert await partner.result("tasks/pushNotificationConfig/delete", gone) is None
        answer = {**message, "messageId": "m2", "taskId": task["id"], "parts": [{"kind": "text", "text": "yes"}]}
        await partner.result("message/send", {"message": answer})
        await until(lambda: receiver.told() and receiver.told()[-1]["status"]["state"] == "completed")
        headers, body = receiver.heard[-1]
        assert (headers["content-type"], headers["authorization"]) == ("application/json", "Bearer c")
        assert (body["kind"], body["id"]) == ("task", task["id"])


async def test_what_is_not_ones_own_answers_as_what_is_not_there(a2a_app: Any, other_token: str) -> None:
    async with (
        a2a_app(SHOP, ALLOWED) as app,
        app.caller() as partner,
        app.caller(other_token) as other,
        receiving() as receiver,
    ):
        task = (await partner.send("Ship it"))["id"]
        await partner.result("CreateTaskPushNotificationConfig", {"taskId": task, "id": "one", "url": receiver.url})
        operations = {
            "CreateTaskPushNotificationConfig": {"id": "one", "url": receiver.url},
            "GetTaskPushNotificationConfig": {"id": "one"},
            "ListTaskPushNotificationConfigs": {},
            "DeleteTaskPushNotificationConfig": {"id": "one"},
        }
        for operation, params in operations.items():
            told = [
                await who.error(operation, {"taskId": task_id, **params})
                for who, task_id in ((other, task), (partner, f"run_{'0' * 26}"), (partner, "\x00"))
            ]
            assert told[0]["code"] == -32001
            assert told[1:] == told[:1] * 2, operation
        unknown = await partner.error("GetTaskPushNotificationConfig", {"taskId": task, "id": "two"})
        assert unknown["code"] == -32001


async def test_a_url_that_leads_inside_begins_no_task(a2a_app: Any) -> None:
    async with a2a_app(SHOP) as app, app.caller() as partner:
        for url in ("https://127.0.0.1/x", "https://169.254.169.254/latest", "http://93.184.216.34/x", ""):
            config = {"configuration": {"taskPushNotificationConfig": {"url": url}}}
            assert (await partner.send("Ship it", params=config))["code"] == -32602
        assert (await partner.result("ListTasks"))["totalSize"] == 0


async def test_a_message_is_refused_for_its_webhook_before_it_is_taken_or_not_at_all(a2a_app: Any) -> None:
    async with a2a_app(SHOP, ALLOWED) as app, app.caller() as partner, receiving() as receiver:
        task = (await partner.send("Ship it"))["id"]
        for n in range(10):
            config = {"taskId": task, "url": receiver.url, "id": f"w{n}"}
            await partner.result("CreateTaskPushNotificationConfig", config)
        one_more = {"configuration": {"taskPushNotificationConfig": {"url": receiver.url, "id": "w10"}}}
        refused = await partner.send("yes", taskId=task, params=one_more)
        assert refused["code"] == -32602
        assert "10 webhooks" in refused["message"]
        asks = await partner.result("GetTask", {"id": task})
        assert asks["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        known = {"configuration": {"taskPushNotificationConfig": {"url": receiver.url, "id": "w9"}}}
        done = await partner.send("yes", taskId=task, params=known)
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_message_sent_again_is_the_same_though_its_webhook_could_not_be_set_any_more(
    a2a_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] | int = socket.EAI_AGAIN
    really = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *args: Any, **more: Any) -> Any:
        if host != "agent.example.com":
            return really(host, port, *args, **more)
        if isinstance(found, int):
            raise socket.gaierror(found, "for the test")
        return [(2, 1, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(outgoing.socket, "getaddrinfo", getaddrinfo)
    networks = {"ai.a2a.push-allow": ["127.0.0.0/8"]}
    async with a2a_app(SHOP, networks) as app, app.caller() as partner, receiving() as receiver:
        url = f"http://agent.example.com:{receiver.port}/"
        watched = {"configuration": {"taskPushNotificationConfig": {"url": url}}}
        later = await partner.send("Ship it", id="first", params=watched)
        assert later["code"] == -32603
        assert "in a moment" in later["message"]
        assert (await partner.result("ListTasks"))["totalSize"] == 0
        found = ["127.0.0.1"]
        task = await partner.send("Ship it", id="first", params=watched)
        for now in (socket.EAI_NONAME, socket.EAI_AGAIN, ["10.0.0.1"], ["127.0.0.1"]):
            found = now
            assert (await partner.send("Ship it", id="first", params=watched))["id"] == task["id"]
        done = await partner.send("yes", id="second", taskId=task["id"], params=watched)
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        for now in (socket.EAI_NONAME, ["10.0.0.1"]):
            found = now
            assert await partner.send("yes", id="second", taskId=task["id"], params=watched) == done
            assert (await partner.send("Ship it", params=watched))["code"] == -32602
        assert (await partner.result("ListTasks"))["totalSize"] == 1
