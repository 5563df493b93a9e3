"""What a body may hold: a small request that would cost much is refused, and a long one holds up nobody beside it."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from typing import Any

import pytest

from amoxi_py.errors import StoreUnavailable
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.surfaces.a2a import bodies, errors, handler, operations
from amoxi_py.surfaces.a2a.bodies import MOST_PARTS, MOST_VALUES

pytestmark = pytest.mark.anyio

SOURCE = '''
from amoxi_py import agent
from amoxi_py.testing import ScriptedModel

@agent(model=ScriptedModel({"*": ["Kept."]}))
class Keeper:
    """You keep things."""
'''
JSON, V1 = {"content-type": "application/json"}, {"A2A-Version": "1.0"}
WAIT_S = 25


def in_1_0(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "ROLE_USER", "messageId": "m1", "parts": list(parts)}, **more}


def in_0_3(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "user", "messageId": "m0", "parts": list(parts)}, **more}


def in_rest_of_0_3(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"role": "ROLE_USER", "messageId": "m3", "content": list(parts)}, **more}


TOO_MUCH = [
    (in_1_0({"data": [1] * MOST_VALUES}), -32600, f"more than {MOST_VALUES} JSON values"),
    (in_1_0({"text": "a"}, metadata={"a": [[]] * MOST_VALUES}), -32600, f"more than {MOST_VALUES} JSON values"),
    (in_1_0({"text": "a"}, metadata={f'{n}\\"': n for n in range(MOST_VALUES)}), -32600, "JSON values"),
    (in_1_0(*[{"text": ""}] * (MOST_PARTS + 1)), -32602, f"more than {MOST_PARTS}"),
    (in_1_0({"text": "a" * (1 << 20)}), -32602, "more than 1048576 bytes beside files"),
    (in_1_0({"text": "a"}, metadata={"raw": "a" * (1 << 20)}), -32602, "more than 1048576 bytes beside files"),
]


async def test_what_would_cost_much_to_read_is_refused_and_the_limit_is_told(a2a_app: Any) -> None:
    async with a2a_app(SOURCE) as app, app.caller() as new, app.caller(version="0.3") as old, app.http() as http:
        for params, code, limit in TOO_MUCH:
            error = await new.error("SendMessage", params)
            assert (error["code"], limit in error["message"]) == (code, True), error
            rest = await http.post("/a2a/message:send", json=params, headers=V1)
            assert (rest.status_code, limit in rest.json()["error"]["message"]) == (400, True)
        error = await old.error("message/send", in_0_3(*[{"kind": "text", "text": ""}] * (MOST_PARTS + 1)))
        assert error == {"code": -32602, "message": f"message.parts: there are more than {MOST_PARTS}"}
        rest = await http.post("/a2a/v1/message:send", json=in_rest_of_0_3(*[{"text": ""}] * (MOST_PARTS + 1)))
        assert rest.status_code == 400
        for body in (b'"' * 3_000_000 + b"," * MOST_VALUES, b'"\\' * 1_000_000 + b"," * MOST_VALUES):
            told = await http.post("/a2a", content=body, headers=JSON)
            assert told.json()["error"]["code"] in (-32600, -32700), "however it is no JSON"


async def test_what_is_long_and_costs_little_is_taken(a2a_app: Any) -> None:
    text = '[{,"\\' * 30_000
    raw = base64.b64encode(b"file" * 400_000).decode()
    async with a2a_app(SOURCE) as app, app.caller() as new, app.caller(version="0.3") as old, app.http() as http:
        for parts in (
            [{"text": text}],
            [{"data": [1] * 1000}] * 15,
            [{"text": ""}] * (MOST_PARTS - 1) + [{"text": "a"}],
        ):
            params = in_1_0(*parts)
            params["message"]["messageId"] = str(len(parts))
            task = (await new.result("SendMessage", params))["task"]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        file = {"raw": raw, "filename": "a.txt", "mediaType": "text/plain"}
        assert "task" in await new.result("SendMessage", in_1_0({"text": "Hello"}, file))
        file = {"kind": "file", "file": {"bytes": raw, "name": "a.txt", "mimeType": "text/plain"}}
        assert (await old.result("message/send", in_0_3(file)))["kind"] == "task"
        file = {"file": {"fileWithBytes": raw, "name": "a.txt", "mimeType": "text/plain"}}
        sent = await http.post("/a2a/v1/message:send", json=in_rest_of_0_3({"text": "Hello"}, file))
        assert sent.status_code == 200, sent.text


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (bodies, "decode_json"),
        (operations, "ParseDict"),
        (errors, "validate_proto_required_fields"),
        (handler, "read_message"),
    ],
)
async def test_others_are_answered_while_a_long_body_is_read(
    a2a_app: Any, until: Any, monkeypatch: Any, module: Any, name: str
) -> None:
    real, reading, go_on = getattr(module, name), threading.Event(), threading.Event()

    def read(*args: Any, **more: Any) -> Any:
        reading.set()
        assert go_on.wait(WAIT_S), "nobody was answered meanwhile"
        return real(*args, **more)

    monkeypatch.setattr(module, name, read)
    async with a2a_app(SOURCE) as app, app.caller() as caller:
        sent = asyncio.create_task(caller.result("SendMessage", in_1_0({"data": [1] * (MOST_VALUES - 50)})))
        await until(reading.is_set)
        assert (await caller.http.get("/health/live")).status_code == 200
        go_on.set()
        assert (await sent)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_long_bodies_are_read_one_after_the_other(a2a_app: Any, until: Any, monkeypatch: Any) -> None:
    real, begun, go_on = bodies.decode_json, [], threading.Event()

    def read(text: str) -> Any:
        begun.append(text)
        assert go_on.wait(WAIT_S)
        return real(text)

    monkeypatch.setattr(bodies, "decode_json", read)
    async with a2a_app(SOURCE) as app, app.caller() as caller:
        long = caller.message("Hello " * 5000)
        sent = [asyncio.create_task(caller.ask("SendMessage", {**long, "metadata": {"n": n}})) for n in range(3)]
        await until(lambda: begun)
        for _ in range(20):
            assert (await caller.http.get("/health/live")).status_code == 200
        assert len(begun) == 1
        go_on.set()
        await asyncio.gather(*sent)
    assert len(begun) == 3


async def test_who_sends_no_json_is_told_so_in_the_version_that_it_speaks(a2a_app: Any) -> None:
    async with a2a_app(SOURCE) as app, app.http() as http:
        for version, has_details in ((None, False), ("0.3", False), ("1.0", True), ("7.0", True)):
            headers = JSON if version is None else {**JSON, "A2A-Version": version}
            for body, code in ((b"{", -32700), (b"[]", -32600), (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600)):
                error = (await http.post("/a2a", content=body, headers=headers)).json()["error"]
                assert (error["code"], "data" in error) == (code, has_details), (version, body)


async def test_while_the_store_is_away_rest_says_when_to_come_again(a2a_app: Any, monkeypatch: Any) -> None:
    def fail(*_: Any, **__: Any) -> asyncio.Future[Any]:
        failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failed.set_exception(StoreUnavailable("canary-of-the-store"))
        return failed

    async with a2a_app(SOURCE) as app, app.http() as http, app.caller() as caller:
        monkeypatch.setattr(SqliteStore, "submit", fail)
        for path, body, headers in (
            ("message:send", in_1_0({"text": "Hello"}), V1),
            ("message:stream", in_1_0({"text": "Hello"}), V1),
            ("v1/message:send", in_rest_of_0_3({"text": "Hello"}), {}),
        ):
            answer = await http.post(f"/a2a/{path}", json=body, headers=headers)
            error = answer.json()["error"]
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert (error["code"], error["status"], "in a moment" in error["message"]) == (503, "UNAVAILABLE", True)
            assert "canary" not in json.dumps(error)
        assert (await caller.error("SendMessage", in_1_0({"text": "Hello"})))["code"] == -32603
