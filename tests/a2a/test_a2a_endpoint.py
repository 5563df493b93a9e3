"""The address `/a2a`: who comes in, what is taken, in which versions, and that no text of an exception goes out."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.surfaces.a2a import handler, performing

pytestmark = pytest.mark.anyio

SOURCE = '''
from amoxi_py import agent, tool

@tool
def break_down(thing: str) -> str:
    """Break."""
    raise RuntimeError("canary-of-the-exception")

@agent(tools=[break_down])
class Keeper:
    """You keep things."""
'''
WAITING = '''
from amoxi_py import ToolContext, agent, tool

@tool(read_only=True)
async def wait_long(ctx: ToolContext) -> str:
    """Wait long."""
    await ctx.signal.wait()
    return "never"

@agent(tools=[wait_long])
class Waiter:
    """You wait."""
'''
PARTNER, API, MCP = "partner-token-0123456789", "api-token-0123456789", "mcp-token-0123456789"
CALLERS = {"AI_API_CALLERS_ACME": API, "AI_MCP_CALLERS_DESK": MCP}
GET = {"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": {"id": "run_" + "0" * 26}}
SEND = {"message": {"role": "user", "messageId": "m1", "parts": [{"kind": "text", "text": "Hello"}]}}
SEND_1 = {"message": {"role": "ROLE_USER", "messageId": "m1", "parts": [{"text": "Hello"}]}}
JSON = {"content-type": "application/json"}
V1 = {"A2A-Version": "1.0"}


def call(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {} if params is None else params, **more}


async def test_only_a_partners_own_token_opens_the_door_however_it_is_sent(a2a_app: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    wrong: list[list[tuple[bytes, bytes]]] = [
        [],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", PARTNER.encode())],
        [(b"authorization", b"Basic " + PARTNER.encode())],
        [(b"authorization", b"Bearer " + PARTNER.encode())] * 2,
        [(b"authorization", b"Bearer " + PARTNER.encode() + b"x")],
        [(b"authorization", b"Bearer t\xc3\xb6ken-0123456789-\xff\xfe")],
        [(b"authorization", b"Bearer " + b"x" * 1_000_000)],
        [(b"authorization", b"Bearer " + API.encode())],
        [(b"authorization", b"Bearer " + MCP.encode())],
        [(b"x-api-key", PARTNER.encode())],
    ]
    addresses = ("", "/", "/message:send", "/tasks", "/v1/tasks/x", "/files/file_x", "/extendedAgentCard", "/nothing")
    async with a2a_app(SOURCE, {"ai.mcp.enabled": True}, environ=CALLERS) as app, app.http(None) as http:
        for headers in wrong:
            for path in addresses if len(headers) == 0 else ("", "/tasks"):
                answer = await http.request("GET" if "tasks" in path else "POST", f"/a2a{path}", headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), (headers, path)
                assert answer.json()["code"] == "not_authenticated"
        own = {"authorization": f"bearer  {PARTNER}"}
        assert (await http.post("/a2a", json=GET, headers=own)).json()["error"]["code"] == -32001
        for method, path in (("POST", "/mcp"), ("GET", "/runs")):
            assert (await http.request(method, path, headers=own)).status_code == 401, "they are other doors"
    assert "token-0123456789" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_what_is_no_request_of_a_partner_has_its_own_status(a2a_app: Any) -> None:
    big = {"content-length": "99999999", **JSON}
    table = [
        ("GET", "/a2a", {}, b"", 405, "POST"),
        ("DELETE", "/a2a/", {}, b"", 405, "POST"),
        ("OPTIONS", "/a2a", {}, b"", 405, "POST"),
        ("PUT", "/a2a/tasks", V1, b"", 405, "POST"),
        ("POST", "/a2a/tasks", V1, b"", 405, "GET"),
        ("GET", "/a2a/tasks/x:cancel", V1, b"", 405, "POST"),
        ("DELETE", "/a2a/tasks/x:subscribe", V1, b"", 405, "GET, POST"),
        ("PUT", "/a2a/files/file_x", {}, b"", 405, "POST"),
        ("POST", "/a2a/files/file_x", {}, b"", 405, "GET, HEAD"),
        ("GET", "/a2a/nothing", {}, b"", 404, None),
        ("GET", "/a2a/tenant/tasks", V1, b"", 404, None),
        ("GET", "/a2a/files/file_x", {}, b"", 404, None),
        ("GET", "/a2a/keys", {}, b"", 404, None),
        ("POST", "/a2a", {"origin": "https://evil.example"}, b"{}", 403, None),
        ("POST", "/a2a", big, b"{}", 413, None),
        ("POST", "/a2a/message:send", {**JSON, **V1}, b" " * 2_500_000, 413, None),
    ]
    async with a2a_app(SOURCE, {"ai.files.max-mb": 1}) as app, app.http() as http:
        for method, path, headers, body, status, allow in table:
            answer = await http.request(method, path, headers=headers, content=body)
            assert (answer.status_code, answer.headers.get("allow")) == (status, allow), (method, path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"

        async def pieces() -> Any:
            for _ in range(25):
                yield b" " * 100_000

        assert (await http.post("/a2a", headers=JSON, content=pieces())).status_code == 413, "no length was told"
        for origin in ("http://127.0.0.1:8080", "http://localhost:8080"):
            own = {"origin": origin, "host": origin.removeprefix("http://")}
            assert (await http.post("/a2a", json=GET, headers=own)).status_code == 200
        fits = json.dumps(GET).encode() + b" " * 1_000_000
        assert (await http.post("/a2a", content=fits, headers=JSON)).json()["error"]["code"] == -32001


async def test_before_the_start_the_door_says_that_it_is_not_open_yet(a2a_app: Any) -> None:
    async with a2a_app(SOURCE) as app:
        wire = app.http()
    async with wire as http:
        answer = await http.post("/a2a", json=GET)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_a_body_that_does_not_say_json_is_refused_before_it_is_read(a2a_app: Any) -> None:
    async with a2a_app(SOURCE) as app, app.http() as http:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonp"):
            headers = {"content-type": kind}
            assert (await http.post("/a2a", content=b"{", headers=headers)).json()["error"]["code"] == -32005
            rest = await http.post("/a2a/message:send", content=b"{", headers={**headers, **V1})
            assert (rest.status_code, rest.json()["error"]["details"][0]["reason"]) == (
                400,
                "CONTENT_TYPE_NOT_SUPPORTED",
            )
        for kind in ("application/json", "APPLICATION/JSON; charset=utf-8", "application/a2a+json"):
            answer = await http.post("/a2a", content=json.dumps(GET), headers={"content-type": kind})
            assert answer.json()["error"]["code"] == -32001


BODIES = [
    (b"", -32700, None),
    (b"{", -32700, None),
    (b"\xff\xfe", -32700, None),
    (b"[" * 10_000, -32700, None),
    (b"[" * 100_000, -32600, None),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": NaN}}', -32700, None),
    (b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b"}", -32700, None),
    (b"[]", -32600, None),
    (b'["x"]', -32600, None),
    (b"5", -32600, None),
    (b"null", -32600, None),
    (b'{"id": 1, "method": "tasks/get"}', -32600, 1),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "tasks/get"}', -32600, 1),
    (b'{"jsonrpc": "2.0", "id": 1}', -32600, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": ""}', -32600, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": "x"}', -32600, 1),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "tasks/get"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": true, "method": "tasks/get"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": {"a": 1}, "method": "tasks/get"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": "a\\ud800", "method": "nothing"}', -32601, "a\ufffd"),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": []}', -32602, 1),
]


async def test_what_is_no_request_is_told_as_json_rpc_does(a2a_app: Any, caplog: Any) -> None:
    async with a2a_app(SOURCE) as app, app.http() as http:
        for body, code, known in BODIES:
            answer = await http.post("/a2a", content=body, headers=JSON)
            told = answer.json()
            assert (answer.status_code, told["error"]["code"], told["id"]) == (200, code, known), body[:100]
    assert "Traceback" not in caplog.text


DEEP: Any = 1
for _ in range(120):
    DEEP = {"a": DEEP}
SECRET = "canary-of-the-body"
MISFITS_1 = [
    ("GetTask", {"id": 5}, "id"),
    ("GetTask", {"id": "x", "historyLength": SECRET}, "historyLength"),
    ("ListTasks", {"pageSize": 1e99}, "pageSize"),
    ("ListTasks", {"statusTimestampAfter": SECRET}, "statusTimestampAfter"),
    ("SendMessage", {"message": {"parts": [{"text": "a", "raw": SECRET}]}}, "message.parts"),
    ("SendStreamingMessage", {"metadata": DEEP}, "metadata"),
    ("SendMessage", {**SEND_1, "tenant": SECRET}, "tenant"),
]
MISFITS_0 = [
    ("tasks/get", {"id": 5}, "id"),
    ("tasks/get", {}, "id"),
    ("message/send", {"message": {"role": SECRET, "messageId": "m", "parts": []}}, "message.role"),
    ("message/stream", {"message": {**SEND["message"], "parts": [{"kind": SECRET}]}}, "message.parts.0"),
    ("message/send", {**SEND, "metadata": DEEP}, "Invalid params"),
    ("tasks/resubscribe", {"id": [SECRET]}, "id"),
]


async def test_params_that_do_not_fit_name_their_field_and_not_what_stood_in_it(a2a_app: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    async with a2a_app(SOURCE) as app, app.caller() as new, app.caller(version="0.3") as old:
        for caller, misfits in ((new, MISFITS_1), (old, MISFITS_0)):
            for method, params, field in misfits:
                error = await caller.error(method, params)
                assert error["code"] == -32602
                assert field in error["message"]
                assert SECRET not in json.dumps(error)
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


VERSIONS = [
    ("1.0", "GetTask", -32001),
    ("1.0.1", "GetTask", -32001),
    ("0.3", "tasks/get", -32001),
    ("0.3.0", "tasks/get", -32001),
    ("", "tasks/get", -32001),
    ("1.0", "tasks/get", -32009),
    ("0.3", "GetTask", -32009),
    ("", "GetTask", -32009),
    ("1.7", "GetTask", -32009),
    ("0.2", "tasks/get", -32009),
    ("2.0", "GetTask", -32009),
    ("1", "GetTask", -32009),
    ("x", "nothing", -32009),
    ("1.0", "nothing", -32601),
    ("", "nothing", -32601),
]


async def test_a_request_is_answered_in_its_version_and_no_other(a2a_app: Any) -> None:
    async with a2a_app(SOURCE) as app, app.http() as http:
        for version, method, code in VERSIONS:
            request = call(method, {"id": "run_x"})
            by_header = await http.post("/a2a", json=request, headers={"A2A-Version": version})
            by_query = await http.post(f"/a2a?A2A-Version={version}", json=request)
            for answer in (by_header, by_query):
                error = answer.json()["error"]
                assert error["code"] == code, (version, method)
                assert code != -32009 or "1.0 and 0.3" in error["message"]


async def test_two_versions_in_one_request_are_none(a2a_app: Any) -> None:
    async with a2a_app(SOURCE) as app, app.http() as http:
        headers = [("A2A-Version", "1.0"), ("A2A-Version", "0.3")]
        assert (await http.post("/a2a", json=GET, headers=headers)).json()["error"]["code"] == -32009
        rest = await http.get("/a2a/tasks", headers={"A2A-Version": "1.7"})
        assert (rest.status_code, rest.json()["error"]["details"][0]["reason"]) == (400, "VERSION_NOT_SUPPORTED")


async def test_the_rest_binding_answers_as_json_rpc_does_in_both_versions(a2a_app: Any) -> None:
    old = {"message": {"role": "ROLE_USER", "messageId": "m2", "content": [{"text": "Hello"}]}}
    async with a2a_app(SOURCE) as app, app.http() as http, app.caller() as caller:
        sent = await http.post("/a2a/message:send", json=SEND_1, headers=V1)
        assert (sent.status_code, sent.headers["content-type"]) == (200, "application/a2a+json")
        task = sent.json()["task"]
        assert await caller.result("GetTask", {"id": task["id"]}) == task
        got = await http.get(f"/a2a/tasks/{task['id']}?historyLength=1", headers=V1)
        assert len(got.json()["history"]) == 1
        listed = await http.get("/a2a/tasks?pageSize=5&status=TASK_STATE_COMPLETED", headers=V1)
        assert (listed.json()["totalSize"], listed.json()["nextPageToken"]) == (1, "")
        assert (await http.get("/a2a/tasks?pageSize=x", headers=V1)).json()["error"]["message"].startswith("pageSize")
        cancel = await http.post(f"/a2a/tasks/{task['id']}:cancel", headers=V1)
        assert (cancel.status_code, cancel.json()["error"]["details"][0]["reason"]) == (400, "TASK_NOT_CANCELABLE")
        unknown = await http.get("/a2a/tasks/run_x", headers=V1)
        assert (unknown.status_code, unknown.json()["error"]["details"][0]["reason"]) == (404, "TASK_NOT_FOUND")
        card = await http.get("/a2a/extendedAgentCard", headers=V1)
        assert [skill["id"] for skill in card.json()["skills"]] == ["keeper"]

        before = await http.post("/a2a/v1/message:send", json=old)
        assert (before.status_code, before.headers["content-type"]) == (200, "application/json")
        task = before.json()["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (await http.get(f"/a2a/v1/tasks/{task['id']}")).json()["id"] == task["id"]
        assert (await http.get("/a2a/v1/tasks/run_x")).status_code == 404
        assert (await http.get(f"/a2a/v1/tasks/{task['id']}?historyLength=x")).status_code == 400
        assert (await http.get("/a2a/v1/card")).json()["url"] == "http://127.0.0.1:8080/a2a"


async def test_a_stream_in_rest_is_one_of_plain_values(a2a_app: Any) -> None:
    old = {"message": {"role": "ROLE_USER", "messageId": "m2", "content": [{"text": "Hello"}]}}
    async with a2a_app(SOURCE) as app, app.http() as http:
        for path, body, headers, ended in (
            ("message:stream", SEND_1, V1, "statusUpdate"),
            ("v1/message:stream", old, {}, "statusUpdate"),
        ):
            async with http.stream("POST", f"/a2a/{path}", json=body, headers=headers) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                lines = [line async for line in answer.aiter_lines() if line.startswith("data:")]
            values = [json.loads(line.removeprefix("data:")) for line in lines]
            assert "task" in values[0]
            assert values[-1][ended]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_no_text_of_an_exception_goes_out(a2a_app: Any, caplog: Any, monkeypatch: Any) -> None:
    canary = "canary-dsn-postgresql://u:secret@db"
    async with a2a_app(SOURCE) as app, app.caller() as new, app.caller(version="0.3") as old, app.http() as http:
        answers = [await new.send("Break down A-1001")]

        def fail(*_: Any) -> asyncio.Future[Any]:
            failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            failed.set_exception(RuntimeError(canary))
            return failed

        monkeypatch.setattr(SqliteStore, "submit", fail)
        answers += [
            await new.error("SendMessage", SEND_1),
            await old.error("message/send", SEND),
            [event async for event in new.events("SendStreamingMessage", SEND_1)],
            [event async for event in old.events("message/stream", SEND)],
            (await http.post("/a2a/message:send", json=SEND_1, headers=V1)).json(),
        ]
        told = json.dumps(answers)
        assert "canary" not in told
        assert told.count("it has been logged") == 5
    assert canary in caplog.text, "the operator reads it in the log"


async def test_streams_and_waiting_sends_end_in_time_when_the_server_stops(a2a_app: Any, until: Any) -> None:
    params = {"metadata": {"skill": "waiter"}}
    async with a2a_app(WAITING) as app, app.caller() as caller, app.caller(version="0.3") as old:

        async def stream() -> list[Any]:
            request = caller.message("Wait long", id="m0", params=params)
            return [event async for event in caller.events("SendStreamingMessage", request)]

        streamed = asyncio.create_task(stream())
        message = {**SEND["message"], "parts": [{"kind": "text", "text": "Wait long"}]}
        sent = asyncio.create_task(old.ask("message/send", {"message": message, **params}))
        await until(lambda: _runs(app, 2))
        app.serving.a2a.close()
        async with asyncio.timeout(30):
            events, answer = await streamed, await sent
        assert "task" in events[0]
        assert answer["result"]["status"]["state"] in ("submitted", "working")


async def _runs(app: Any, count: int) -> bool:
    return len((await app.serving.runs.list(limit=10)).items) == count


async def test_a_reader_that_leaves_ends_its_stream_and_not_the_task(a2a_app: Any, until: Any) -> None:
    async with a2a_app(SOURCE) as app, app.caller() as caller:
        request = caller.message("Hello")
        async for event in caller.events("SendStreamingMessage", request):
            task = event["task"]
            break

        async def ended() -> bool:
            found = await caller.result("GetTask", {"id": task["id"]})
            return bool(found["status"]["state"] == "TASK_STATE_COMPLETED")

        await until(ended)


def waiting_sends() -> int:
    return sum("on_message_send" in repr(task.get_coro()) for task in asyncio.all_tasks())


async def test_who_leaves_in_the_middle_of_a_send_leaves_nothing_waiting_and_the_task_goes_on(
    a2a_app: Any, until: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(performing, "_TIME_TO_ACCEPT_S", 0.2)
    async with a2a_app(WAITING) as app, app.caller() as caller:
        sent = asyncio.create_task(caller.send("Wait long"))
        await until(lambda: _runs(app, 1))
        assert waiting_sends() == 1
        sent.cancel()
        await asyncio.wait({sent})
        await until(lambda: waiting_sends() == 0)
        listed = await caller.result("ListTasks")
        assert listed["tasks"][0]["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")


async def test_a_message_whose_sender_leaves_before_it_is_stored_becomes_a_task(
    a2a_app: Any, until: Any, monkeypatch: Any
) -> None:
    real, begun, go_on = handler.read_message, threading.Event(), threading.Event()  # a thread reads what is long

    def read(message: Any) -> Any:
        begun.set()
        assert go_on.wait(25)
        return real(message)

    monkeypatch.setattr(handler, "read_message", read)
    async with a2a_app(SOURCE) as app, app.caller() as caller:
        sent = asyncio.create_task(caller.send("Hello " * 3000))
        await until(begun.is_set)
        sent.cancel()
        await asyncio.wait({sent})
        for _ in range(20):
            assert (await caller.http.get("/health/live")).status_code == 200
        go_on.set()
        await until(lambda: _runs(app, 1))


async def test_pages_of_known_origins_may_call_and_read_the_card(a2a_app: Any) -> None:
    origin = "https://app.example.com"
    async with a2a_app(SOURCE, {"server.cors-origins": origin}) as app, app.http() as http:
        asks = {"origin": origin, "access-control-request-method": "POST"}
        asked = await http.options("/a2a", headers={**asks, "access-control-request-headers": "authorization"})
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, origin)
        for method, path in (("POST", "/a2a"), ("GET", "/.well-known/agent-card.json")):
            answer = await http.request(method, path, headers={"origin": origin, **JSON}, content=json.dumps(GET))
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)
        stranger = await http.post("/a2a", json=GET, headers={"origin": "https://evil.example"})
        assert stranger.status_code == 403


async def test_only_the_owner_of_a_file_gets_it_at_its_address(a2a_app: Any, other_token: str) -> None:
    async def parts() -> Any:
        yield b"a,b\n"
        yield b"1,2\n"

    async with a2a_app(SOURCE) as app, app.http() as http, app.http(other_token) as stranger:
        owner = Principal(id="a2a:partner", name="partner", channel="a2a")
        stored = await app.engine.files.add(owner, "größe.csv", "text/csv", parts())
        path = f"/a2a/files/{stored.file.id}"
        got = await http.get(path)
        assert (got.status_code, got.content, got.headers["content-length"]) == (200, b"a,b\n1,2\n", "8")
        assert got.headers["content-type"] == "text/csv"
        assert got.headers["content-disposition"].startswith("attachment; filename=")
        assert (await http.get(path, headers={"if-none-match": got.headers["etag"]})).status_code == 304
        head = await http.head(path)
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "8")
        unknown = await stranger.get("/a2a/files/file_" + "0" * 26)
        theirs = await stranger.get(path)
        assert (theirs.status_code, theirs.text) == (unknown.status_code, unknown.text) == (404, unknown.text)
