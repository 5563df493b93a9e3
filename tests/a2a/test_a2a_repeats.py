"""A message that is sent again: one task, one set of files and one context, whatever was lost in between."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.files import Files
from amoxi_py.errors import StoreUnavailable
from amoxi_py.surfaces.a2a.contexts import Contexts

PARTNER = Principal(id="a2a:partner", name="partner", channel="a2a")
SOURCE = """
import asyncio

from amoxi_py import agent, tool
from amoxi_py.testing import ScriptedModel, call, reply


@tool(read_only=True)
def look() -> str:
    "Look."
    return "x" * 1000


class Never:
    async def wait(self):
        await asyncio.Event().wait()


@agent(tools=[], model=ScriptedModel({"*": ["Hello."], "wait": [reply(Never(), "Never.")]}))
class Clerk:
    "You help."


@agent(tools=[look], model=ScriptedModel([["I look.", call("look")], "Seen."]))
class Looker:
    "You look."
"""
CLERK, LOOKER = {"metadata": {"skill": "clerk"}}, {"metadata": {"skill": "looker"}}
PARTS = [{"text": "Hello"}, {"raw": base64.b64encode(b"abc").decode(), "filename": "a.txt"}]
DONE = "TASK_STATE_COMPLETED"


class LosesAnAnswer:
    """A store that takes a submission, and fails before it has said so."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._loses = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def submit(self, submission: Any) -> Any:
        stored = self._store.submit(submission)
        if not self._loses:
            return stored
        self._loses = False
        answer = asyncio.get_running_loop().create_future()
        stored.add_done_callback(lambda _: answer.done() or answer.set_exception(StoreUnavailable("lost")))
        return answer


def files_in(tmp_path: Path) -> int:
    with sqlite3.connect(next(tmp_path.glob("store/*.db"))) as database:
        (count,) = database.execute("SELECT count(*) FROM file").fetchone()
    return int(count)


def test_files_of_a_message_whose_answer_was_lost_are_there_and_are_stored_once(
    a2a_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[str] = []
    add = Files.add

    async def counted(self: Files, principal: Any, name: str, *more: Any) -> Any:
        stored.append(name)
        return await add(self, principal, name, *more)

    monkeypatch.setattr(Files, "add", counted)

    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            landing = app.engine._landing
            landing._store = LosesAnAnswer(landing._store)
            assert (await partner.send(parts=PARTS, id="same", params=CLERK))["code"] == -32603
            for _ in range(2):
                task = await partner.send(parts=PARTS, id="same", params=CLERK)
                assert task["status"]["state"] == DONE
                url = task["history"][0]["parts"][1]["url"].removeprefix("http://127.0.0.1:8080")
                assert (await partner.http.get(url)).content == b"abc"
            assert (await partner.result("ListTasks"))["totalSize"] == 1
            assert stored == ["a.txt"]
            assert files_in(tmp_path) == 1

    asyncio.run(scene())


def test_files_of_a_refused_message_are_gone_and_it_can_be_sent_again(a2a_app: Any, tmp_path: Path) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE, {"ai.runs.on-busy": "reject"}) as app, app.caller() as partner:
            first = await partner.send("wait", params={**CLERK, "configuration": {"returnImmediately": True}})
            for _ in range(2):
                refused = await partner.send(parts=PARTS, id="same", contextId=first["contextId"])
                assert refused["code"] == -32004
                assert files_in(tmp_path) == 0
            await partner.result("CancelTask", {"id": first["id"]})
            again = await partner.send(parts=PARTS, id="same", contextId=first["contextId"])
            assert again["status"]["state"] == DONE
            assert files_in(tmp_path) == 1

    asyncio.run(scene())


def test_files_of_a_message_that_is_known_to_be_too_much_are_not_stored(
    a2a_app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[str] = []
    add = Files.add

    async def counted(self: Files, principal: Any, name: str, *more: Any) -> Any:
        stored.append(name)
        return await add(self, principal, name, *more)

    monkeypatch.setattr(Files, "add", counted)

    async def scene() -> None:
        async with a2a_app(SOURCE, {"ai.limits.runs-per-day": 1}) as app, app.caller() as partner:
            first = await partner.send(parts=PARTS, id="known", params=CLERK)
            for _ in range(100):  # it is known for a second; then the store is asked again
                before = len(stored)
                assert (await partner.send(parts=PARTS, params=CLERK))["code"] == -32603
                if len(stored) == before:
                    break
            else:
                raise AssertionError("they were stored each time")
            assert (await partner.send(parts=PARTS, id="known", params=CLERK))["id"] == first["id"]
            assert files_in(tmp_path) == 1

    asyncio.run(scene())


def test_the_same_message_many_times_at_once_is_one_task_with_one_set_of_files(a2a_app: Any, tmp_path: Path) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            sends = [partner.send(parts=PARTS, id="same", params=CLERK) for _ in range(6)]
            [task_id] = {task["id"] for task in await asyncio.gather(*sends)}
            again = await partner.send(parts=PARTS, id="same", params=CLERK)
            assert again["id"] == task_id
            url = again["history"][0]["parts"][1]["url"].removeprefix("http://127.0.0.1:8080")
            assert (await partner.http.get(url)).content == b"abc"
            assert files_in(tmp_path) == 1

    asyncio.run(scene())


def test_the_id_of_a_message_is_for_no_other_skill(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            for first, second in ((CLERK, LOOKER), (LOOKER, CLERK)):
                name = f"for {first['metadata']['skill']}"
                task = await partner.send("Hello", id=name, params=first)
                error = await partner.send("Hello", id=name, params=second)
                assert (error["code"], "messageId" in error["message"]) == (-32602, True)
                assert (await partner.send("Hello", id=name, params=first))["id"] == task["id"]
            assert (await partner.result("ListTasks"))["totalSize"] == 2

    asyncio.run(scene())


def test_a_message_is_the_same_when_another_skill_is_the_default_meanwhile(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE, {"ai.a2a.default-agent": "clerk"}) as app, app.caller() as partner:
            task = await partner.send("Hello", id="same")
        async with a2a_app(SOURCE, {"ai.a2a.default-agent": "looker"}) as app, app.caller() as partner:
            assert (await partner.send("Hello", id="same"))["id"] == task["id"]

    asyncio.run(scene())


def test_a_context_whose_name_was_not_kept_can_be_used_by_the_id_that_was_told(
    a2a_app: Any, other_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(self: Contexts, *_: Any, **__: Any) -> None:
        raise RuntimeError("the server ends here")

    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(other_token) as other:
            with monkeypatch.context() as patched:
                patched.setattr(Contexts, "keep", dies)
                assert (await partner.send("Hello", contextId="mine", params=CLERK))["code"] == -32603
            [task] = (await partner.result("ListTasks"))["tasks"]
            told = task["contextId"]
            assert told.startswith("conv_f")
            second = await partner.send("And now?", contextId=told)
            assert (second["status"]["state"], second["contextId"]) == (DONE, told)
            assert (await other.send("Hello", contextId=told))["code"] == -32602
            third = await partner.send("And by name?", contextId="mine")
            assert (third["status"]["state"], third["contextId"]) == (DONE, "mine")
            assert (await partner.result("ListTasks", {"contextId": "mine"}))["totalSize"] == 3

    asyncio.run(scene())


def test_a_context_that_was_erased_and_begun_anew_has_its_name_on_every_server(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            first = await partner.send("Hello", contextId="again", params=CLERK)
            run = await app.engine.get_run(first["id"], PARTNER)
            await app.engine.erase(run.conversation_id, PARTNER, run.agent)
            second = await partner.send("Hello", contextId="again", params=CLERK)
            assert second["contextId"] == "again"
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            assert (await partner.result("GetTask", {"id": second["id"]}))["contextId"] == "again"

    asyncio.run(scene())


def test_an_id_with_a_control_character_is_refused(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner, app.caller(version="0.3") as old:
            task = await partner.send("Hello", params=CLERK)
            for bad in ("a\x00b", "a\nb", "a\x7fb", "a\x9fb", "a\ufffdb", "x" * 513):
                for field in ("contextId", "id"):
                    error = await partner.send("Hello", **{field: bad}, params=CLERK)
                    name = "contextId" if field == "contextId" else "messageId"
                    assert (error["code"], name in error["message"]) == (-32602, True)
                    error = await partner.send("Hello", **{field: bad}, taskId=task["id"])
                    assert (error["code"], name in error["message"]) == (-32602, True)
            part = {"kind": "text", "text": "Hello"}
            message = {"role": "user", "messageId": "a\x00b", "parts": [part]}
            assert (await old.error("message/send", {"message": message, **CLERK}))["code"] == -32602
            assert (await partner.result("ListTasks"))["totalSize"] == 1

    asyncio.run(scene())


def test_a_task_is_told_without_what_its_calls_gave(a2a_app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with a2a_app(SOURCE) as app, app.caller() as partner:
            task = await partner.send("Look", params=LOOKER)
            (_, asks, _) = await app.engine.messages_of(task["id"], PARTNER)
            assert [call.tool for call in asks.calls] == ["look"]
            bare = await app.engine.messages_of(task["id"], PARTNER, calls=False)
            assert [(message.text, message.calls) for message in bare] == [("Look", ()), ("I look.", ()), ("Seen.", ())]
            asked: list[bool] = []
            load = type(app.engine).messages_of

            async def watched(self: Any, run_id: str, principal: Any, *, calls: bool = True) -> Any:
                asked.append(calls)
                return await load(self, run_id, principal, calls=calls)

            monkeypatch.setattr(type(app.engine), "messages_of", watched)
            got = await partner.result("GetTask", {"id": task["id"]})
            short = await partner.result("GetTask", {"id": task["id"], "historyLength": 0})
            assert (
                got["artifacts"]
                == short["artifacts"]
                == [{"artifactId": "answer", "name": "answer", "parts": [{"text": "Seen."}]}]
            )
            assert asked == [False, False]
            await partner.result("ListTasks")
            assert asked == [False, False], "neither history nor artifacts were asked for"

    asyncio.run(scene())
