"""Messages become tasks: the answer, its forms, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
from pathlib import Path
from typing import Any

from amoxi_py.domain.principal import Principal

A2A_PARTNER = Principal(id="a2a:partner", name="partner", channel="a2a")
SHOP = '''
from typing import Annotated

from pydantic import BaseModel, Field

from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call


@tool(read_only=True)
def lookup_order(order_id: Annotated[str, Field(pattern=r"^A-\\d{4}$")]) -> dict:
    """Look up an order.

    Args:
        order_id: The order number, e.g. A-1001
    """
    return {"id": order_id, "status": "shipped"}


@tool(idempotent=True)
async def draw(ctx: ToolContext) -> str:
    "Draw something."
    await ctx.save_file("small.txt", b"tiny")
    await ctx.save_file("large.bin", b"x" * (2 << 20))
    return "drawn"


class Count(BaseModel):
    number: int
    big: int
    names: list[str]


@agent(tools=[lookup_order])
class SupportAgent:
    """You are the support assistant of a small outdoor shop."""


@agent(tools=[], model=ScriptedModel({"*": ["Said."]}))
class Assistant:
    """You help."""


@agent(tools=[draw], model=ScriptedModel([call("draw"), "Here they are."]))
class Painter:
    """You draw."""


@agent(
    tools=[],
    result=Count,
    model=ScriptedModel([call("final_result", number=3, big=2**60, names=["a", "b"])]),
)
class Counter:
    """You count."""


def private(principal):
    return principal.id == "a2a:other"


@agent(tools=[], allow=private, model=ScriptedModel(["Secret."]))
class Secret:
    """You are for one caller."""


@agent(tools=[], expose=False)
class Hidden:
    """You are inside."""
'''
TEXT = "Here's what I found:\nID: A-1001\nStatus: shipped"
SKILLS = "assistant, counter, painter, support-agent"
SUPPORT = {"metadata": {"skill": "support-agent"}}
ASSISTANT = {"metadata": {"skill": "assistant"}}


def test_a_message_is_answered_with_a_completed_task_whose_artifact_is_the_text_in_both_versions(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller(version="0.3") as old, app.caller() as new:
            part = {"kind": "text", "text": "Where is order A-1001?"}
            message = {"role": "user", "messageId": "m1", "parts": [part]}
            task = await old.result("message/send", {"message": message, **SUPPORT})
            assert (task["kind"], task["status"]["state"]) == ("task", "completed")
            [artifact] = task["artifacts"]
            assert artifact["artifactId"] == "answer"
            assert artifact["parts"] == [{"kind": "text", "text": TEXT}]
            assert await old.result("tasks/get", {"id": task["id"]}) == task
            told = await new.send("Where is order A-1001?", id="m2", params=SUPPORT)
            assert told["status"]["state"] == "TASK_STATE_COMPLETED"
            assert told["artifacts"][0]["parts"] == [{"text": TEXT}]
            assert [one["role"] for one in told["history"]] == ["ROLE_USER", "ROLE_AGENT"]
            assert await new.result("GetTask", {"id": told["id"]}) == told

    asyncio.run(scene())


def test_the_skill_is_named_beside_the_message_or_in_it_and_an_unknown_one_is_told_which_there_are(
    a2a_app: Any, other_token: str
) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller() as partner, app.caller(other_token) as other:
            for more in ({"params": ASSISTANT}, ASSISTANT):
                task = await partner.send("Hello", **more)
                assert task["artifacts"][0]["parts"] == [{"text": "Said."}]
            for skill in ("nobody", "hidden", "secret"):
                error = await partner.send("Hello", metadata={"skill": skill})
                assert error["code"] == -32602
                assert error["message"] == f"there is no skill {skill!r}: the skills are {SKILLS}"
            error = await partner.send("Hello")
            assert error["message"] == f"name a skill in metadata.skill: the skills are {SKILLS}"
            assert (await other.send("Hello", metadata={"skill": "secret"}))["status"][
                "state"
            ] == "TASK_STATE_COMPLETED"
        told = {"ai.a2a.default-agent": "assistant"}
        async with a2a_app(SHOP, told, store="second") as app, app.caller() as partner:
            assert (await partner.send("Hello"))["artifacts"][0]["parts"] == [{"text": "Said."}]

    asyncio.run(scene())


def test_a_context_goes_on_with_its_agent_and_with_no_other(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller() as partner:
            first = await partner.send("Hello", params=ASSISTANT)
            second = await partner.send("And now?", contextId=first["contextId"])
            assert second["contextId"] == first["contextId"]
            assert second["id"] != first["id"]
            error = await partner.send("Where?", contextId=first["contextId"], params=SUPPORT)
            assert (error["code"], "'assistant'" in error["message"]) == (-32602, True)
            for unknown in ("conv_" + "0" * 26, "conv_" + "f" * 26):
                error = await partner.send("Hello", contextId=unknown)
                assert error["code"] == -32602
                assert error["message"] == "there is no such contextId: leave contextId out; the answer has one"

    asyncio.run(scene())


def test_a_context_may_have_a_name_of_its_callers_making_which_is_nobody_elses(a2a_app: Any, other_token: str) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller() as partner, app.caller(other_token) as other:
            for name in ("4f1c", "my thread: \u00fc\u4e16", "x" * 512):
                first = await partner.send("Hello", contextId=name, params=ASSISTANT)
                second = await partner.send("And now?", contextId=name)
                assert first["contextId"] == second["contextId"] == name
                assert second["history"][0]["contextId"] == name
                assert (await partner.send("Where?", contextId=name, params=SUPPORT))["code"] == -32602
                listed = (await partner.result("ListTasks", {"contextId": name}))["tasks"]
                assert [task["id"] for task in listed] == [second["id"], first["id"]]
                assert {task["contextId"] for task in listed} == {name}
                assert (await other.result("ListTasks", {"contextId": name}))["tasks"] == []
                foreign = await other.send("Hello", contextId=name, params=SUPPORT)
                assert foreign["contextId"] == name
                hidden = (await app.engine.get_run(first["id"], A2A_PARTNER)).conversation_id
                assert (await other.send("Hello", contextId=hidden))["code"] == -32602
            assert (await partner.send("Hello", contextId="x" * 513))["code"] == -32602
        async with a2a_app(SHOP) as app, app.caller() as partner:  # after a restart
            again = await partner.send("Still there?", id="later", contextId="4f1c")
            assert again["contextId"] == "4f1c"

    asyncio.run(scene())


def test_two_first_messages_at_once_begin_one_context(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller() as partner:
            sends = [partner.send("Hello", contextId="both", params=ASSISTANT) for _ in range(8)]
            assert {task["contextId"] for task in await asyncio.gather(*sends)} == {"both"}
            assert (await partner.result("ListTasks", {"contextId": "both"}))["totalSize"] == 8

    asyncio.run(scene())


def test_a_message_sent_again_is_the_same_task_and_its_id_is_for_no_other_message(
    a2a_app: Any, other_token: str, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller() as partner, app.caller(other_token) as other:
            file = {"raw": base64.b64encode(b"abc").decode(), "filename": "a.txt"}
            parts = [{"text": "Hello"}, file]
            sent = [await partner.send(id="same", parts=parts, params=ASSISTANT) for _ in range(3)]
            assert len({task["id"] for task in sent}) == 1
            for changed in ([{"text": "Hello!"}, file], [{"text": "Hello"}, {**file, "filename": "b.txt"}]):
                error = await partner.send(id="same", parts=changed, params=ASSISTANT)
                assert error["code"] == -32602
                assert "messageId" in error["message"]
            with sqlite3.connect(next(tmp_path.glob("store/*.db"))) as database:
                assert database.execute("SELECT count(*) FROM file").fetchone() == (1,)
            theirs = await other.send(id="same", parts=parts, params=ASSISTANT)
            assert theirs["id"] != sent[0]["id"]
            assert (await partner.result("ListTasks"))["totalSize"] == 1
        async with a2a_app(SHOP, {"ai.a2a.deduplicate": False}, store="second") as app, app.caller() as partner:
            twice = [await partner.send("Hello", id="same", params=ASSISTANT) for _ in range(2)]
            assert twice[0]["id"] != twice[1]["id"]

    asyncio.run(scene())


def test_data_and_files_reach_the_agent_and_urls_are_not_fetched(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP, {"ai.files.max-mb": 1}) as app, app.caller() as partner:
            parts: list[dict[str, Any]] = [
                {"text": "One"},
                {"data": {"part": 0.5, "count": 5, "names": ["a"]}},
                {"text": "Two"},
                {"raw": base64.b64encode(b"bytes").decode(), "filename": "../notes.txt", "mediaType": "text/plain"},
            ]
            task = await partner.send(parts=parts, params=ASSISTANT)
            said = task["history"][0]["parts"]
            assert said[0] == {"text": 'One\n\nTwo\n\n{"count":5,"names":["a"],"part":0.5}'}
            download = await partner.http.get(said[1]["url"].removeprefix("http://127.0.0.1:8080"))
            assert (download.content, download.headers["content-type"].split(";")[0]) == (b"bytes", "text/plain")
            only_a_file = await partner.send(parts=parts[3:], params=ASSISTANT)
            assert only_a_file["status"]["state"] == "TASK_STATE_COMPLETED"
            for bad, code in (
                ({"url": "https://example.com/a.txt"}, -32005),
                ({}, -32602),
                ({"text": "  "}, -32602),
            ):
                assert (await partner.send(parts=[bad], params=ASSISTANT))["code"] == code
            large = {"raw": base64.b64encode(b"x" * 1_100_000).decode()}
            error = await partner.send(parts=[parts[3], large], params=ASSISTANT)
            assert (error["code"], "larger" in error["message"]) == (-32602, True)

    asyncio.run(scene())


def test_an_answer_holds_the_typed_result_and_files_small_ones_whole(a2a_app: Any, other_token: str) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller() as partner, app.caller(version="0.3") as old:
            counted = await partner.send("Count", metadata={"skill": "counter"})
            [text, data] = counted["artifacts"][0]["parts"]
            assert "number" in text["text"]
            assert data == {"data": {"number": 3, "big": str(2**60), "names": ["a", "b"]}}
            drawn = await partner.send("Draw", metadata={"skill": "painter"})
            text, small, large = drawn["artifacts"][0]["parts"]
            assert text == {"text": "Here they are."}
            assert (base64.b64decode(small["raw"]), small["filename"], small["mediaType"]) == (
                b"tiny",
                "small.txt",
                "text/plain",
            )
            assert large["filename"] == "large.bin"
            path = large["url"].removeprefix("http://127.0.0.1:8080")
            assert len((await partner.http.get(path)).content) == 2 << 20
            async with app.http(other_token) as other:
                assert (await other.get(path)).status_code == 404
            kinds = [
                part["kind"] for part in (await old.result("tasks/get", {"id": drawn["id"]}))["artifacts"][0]["parts"]
            ]
            assert kinds == ["text", "file", "file"]

    asyncio.run(scene())


def test_what_a_request_asks_for_that_is_not_here_is_refused(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller() as partner:

            async def code_of(**params: Any) -> int:
                answer = await partner.send("Hello", params={**ASSISTANT, **params})
                return int(answer.get("code", 0))

            for modes in (["smell/rose"], ["", "text/"], ["x-anything"]):
                assert await code_of(configuration={"acceptedOutputModes": modes}) == -32005
            for modes in (
                ["text/plain"],
                ["*/*"],
                ["text/*"],
                [],
                ["text/markdown"],
                ["TEXT/HTML; q=1"],
                ["image/png"],
            ):
                assert await code_of(configuration={"acceptedOutputModes": modes}) == 0
            assert await code_of(tenant="somebody") == -32602
            assert await code_of(configuration={"historyLength": -1}) == -32602
            assert (await partner.send("Hello", role="ROLE_AGENT", params=ASSISTANT))["code"] == -32602

    asyncio.run(scene())


def test_the_length_of_the_history_is_as_it_is_asked_for(a2a_app: Any) -> None:
    async def scene() -> None:
        async with a2a_app(SHOP) as app, app.caller() as partner, app.caller(version="0.3") as old:
            task = await partner.send("Hello", params={**ASSISTANT, "configuration": {"historyLength": 1}})
            assert [one["role"] for one in task["history"]] == ["ROLE_AGENT"]
            for length, roles in ((0, None), (1, 1), (2, 2), (50, 2)):
                found = await partner.result("GetTask", {"id": task["id"], "historyLength": length})
                assert len(found.get("history", [])) == (roles or 0)
            everything = await old.result("tasks/get", {"id": task["id"], "historyLength": 0})
            assert len(everything["history"]) == 2
            assert (await partner.error("GetTask", {"id": task["id"], "historyLength": -1}))["code"] == -32602

    asyncio.run(scene())
