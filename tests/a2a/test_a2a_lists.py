"""Lists of tasks: the caller's own, the newest status first, in pages and by filters."""

from __future__ import annotations

import asyncio
from typing import Any

SOURCE = """
from amoxi_py import agent, tool
from amoxi_py.testing import ScriptedModel, call


@tool(needs_approval=True)
async def erase(path: str) -> str:
    "Erase."
    return "erased"


@agent(tools=[erase], model=ScriptedModel({"*": ["Hello."], "erase": [call("erase", path="/a"), "It is over."]}))
class Eraser:
    "You erase."
"""


def test_tasks_are_listed_by_their_newest_status_in_pages_that_hold_each_once(a2a_app: Any, other_token: str) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(other_token) as other:
            empty = await partner.result("ListTasks")
            assert empty == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
            tasks = [await partner.send(f"Hello {n}") for n in range(4)]
            waiting = await partner.send("erase")
            await other.send("Hello")
            await partner.send("decline", taskId=waiting["id"])
            newest = [waiting["id"], *(task["id"] for task in reversed(tasks))]
            found: list[str] = []
            token = ""
            while True:
                page = await partner.result("ListTasks", {"pageSize": 2, "pageToken": token})
                assert (page["totalSize"], page["pageSize"]) == (5, 2)
                found += [task["id"] for task in page["tasks"]]
                stamps = [task["status"]["timestamp"] for task in page["tasks"]]
                assert stamps == sorted(stamps, reverse=True)
                token = page["nextPageToken"]
                if not token:
                    break
            assert found == newest
            rest = await partner.http.get("/a2a/tasks?pageSize=3", headers={"A2A-Version": "1.0"})
            assert [task["id"] for task in rest.json()["tasks"]] == newest[:3]
            for params in ({"pageSize": 0}, {"pageSize": 101}, {"pageToken": "none"}, {"historyLength": -1}):
                assert (await partner.error("ListTasks", params))["code"] == -32602

    asyncio.run(scene())


def test_a_list_is_of_one_context_state_or_time_where_that_is_asked(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            over = await partner.send("Hello")
            second = await partner.send("Hello", contextId=over["contextId"])
            waiting = await partner.send("erase")
            cancelled = await partner.send("erase")
            await partner.result("CancelTask", {"id": cancelled["id"]})

            async def ids(**params: Any) -> list[str]:
                page = await partner.result("ListTasks", params)
                assert page["totalSize"] == len(page["tasks"])
                return [task["id"] for task in page["tasks"]]

            assert await ids(contextId=over["contextId"]) == [second["id"], over["id"]]
            assert await ids(contextId="conv_" + "0" * 26) == []
            assert await ids(contextId="\u0000") == []
            assert await ids(status="TASK_STATE_INPUT_REQUIRED") == [waiting["id"]]
            assert await ids(status="TASK_STATE_COMPLETED") == [second["id"], over["id"]]
            assert await ids(status="TASK_STATE_CANCELED") == [cancelled["id"]]
            for none in ("WORKING", "SUBMITTED", "FAILED", "REJECTED", "AUTH_REQUIRED"):
                assert await ids(status=f"TASK_STATE_{none}") == []
            after = waiting["status"]["timestamp"]
            assert await ids(statusTimestampAfter=after) == [cancelled["id"], waiting["id"]]
            assert await ids(statusTimestampAfter="2100-01-01T00:00:00Z") == []

    asyncio.run(scene())


def test_a_task_whose_worker_is_gone_is_listed_in_the_state_that_it_is_told_in(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE, {"ai.runs.worker": False}) as app, app.caller() as partner:
            at_once = {"configuration": {"returnImmediately": True}}
            begun, new = [(await partner.send("Hello", params=at_once))["id"] for _ in range(2)]
            store = app.engine._store
            worker = await store.enroll("worker_gone", 30.0)
            (rows,) = await store.claim(worker, 1, 1, runs=[begun])
            await store.release(rows.lease)
            for state, task_id in (("TASK_STATE_WORKING", begun), ("TASK_STATE_SUBMITTED", new)):
                assert (await partner.result("GetTask", {"id": task_id}))["status"]["state"] == state
                listed = (await partner.result("ListTasks", {"status": state}))["tasks"]
                assert [(task["id"], task["status"]["state"]) for task in listed] == [(task_id, state)]

    asyncio.run(scene())


def test_a_list_holds_artifacts_and_messages_only_where_they_are_asked_for(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("Hello")
            [plain] = (await partner.result("ListTasks"))["tasks"]
            assert "artifacts" not in plain
            assert not plain.get("history")
            params = {"includeArtifacts": True, "historyLength": 1}
            [whole] = (await partner.result("ListTasks", params))["tasks"]
            assert [part["text"] for part in whole["artifacts"][0]["parts"]] == ["Hello."]
            assert [message["messageId"] for message in whole["history"]] == [task["history"][-1]["messageId"]]

    asyncio.run(scene())


def test_a_message_in_a_busy_context_waits_behind_or_is_refused_and_cancels_nothing(a2a_app: Any, until: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            waiting = await partner.send("erase")
            at_once = {"configuration": {"returnImmediately": True}}
            behind = await partner.send("Hello", contextId=waiting["contextId"], params=at_once)
            assert behind["status"]["state"] == "TASK_STATE_SUBMITTED"
            assert (await partner.send("yes", taskId=behind["id"]))["code"] == -32004
            assert (await partner.result("GetTask", {"id": waiting["id"]}))["status"] == waiting["status"]
            await partner.send("yes", taskId=waiting["id"])

            async def over() -> bool:
                found = await partner.result("GetTask", {"id": behind["id"]})
                return bool(found["status"]["state"] == "TASK_STATE_COMPLETED")

            await until(over)
        refusing = {"ai.runs.on-busy": "reject"}
        async with a2a_app(SOURCE, refusing, store="second") as app, app.caller() as partner:
            waiting = await partner.send("erase")
            assert (await partner.send("Hello", contextId=waiting["contextId"]))["code"] == -32004

    asyncio.run(scene())


def test_what_the_server_cannot_do_now_is_told_without_the_words_of_an_exception(a2a_app: Any) -> None:
    from amoxi_py.errors import StoreUnavailable

    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(version="0.3") as old:
            task = await partner.send("erase")
            engine = app.engine
            for error, text in (
                (StoreUnavailable("postgres://secret"), "send it again in a moment (with the same messageId)"),
                (RuntimeError("postgres://secret"), "the server failed; it has been logged"),
            ):

                async def fails(*_: Any, error: Exception = error, **__: Any) -> None:
                    raise error

                for name, method, params in (
                    ("get_run", "GetTask", {"id": task["id"]}),
                    ("get_run", "SubscribeToTask", {"id": task["id"]}),
                    ("submit", "SendMessage", partner.message("Hello")),
                    ("submit", "SendStreamingMessage", partner.message("Hello")),
                    ("list_tasks", "ListTasks", {}),
                    ("cancel", "CancelTask", {"id": task["id"]}),
                    ("follow", "SendMessage", partner.message("Hello")),
                ):
                    setattr(engine, name, fails)
                    told = await partner.ask(method, params)
                    delattr(engine, name)
                    assert told["error"]["code"] == -32603, (method, told)
                    assert text in told["error"]["message"]
                    assert "secret" not in str(told)
                engine.get_run = fails
                events = [event async for event in old.events("tasks/resubscribe", {"id": task["id"]})]
                del engine.get_run
                assert (events[-1]["error"]["code"], "secret" in str(events)) == (-32603, False)
            again = await partner.send("yes", taskId=task["id"])
            assert again["status"]["state"] == "TASK_STATE_COMPLETED"

    asyncio.run(scene())
