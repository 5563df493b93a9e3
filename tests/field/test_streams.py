"""O14, O15, X05: every reader of a run has the same story, whenever it comes, leaves, or stops to read."""

from __future__ import annotations

import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, UserMessage
from amoxi_py.testing import Gate, call, pause, reply

TALKING = '''
import asyncio
from fastapi import FastAPI, Request
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from amoxi_py import ToolContext, agent, configure, tool
from .ledger import gate, note


@tool(read_only=True)
async def look(thing: str, ctx: ToolContext) -> str:
    """Look at a thing."""
    for number in range(5):
        ctx.progress(f"{thing} {number}")
        await asyncio.sleep(0.02)
    return f"saw {thing}"


@tool(read_only=True)
async def silent(seconds: float, ctx: ToolContext) -> str:
    """Say nothing for some seconds."""
    note("silent", ctx)
    await asyncio.sleep(seconds)
    return "said nothing"


@tool(read_only=True)
async def fetch(page: int) -> str:
    """Fetch a long page."""
    return f"{page} " + "x" * 60_000


@agent(tools=[look, silent, fetch], on_busy="queue")
class Talker:
    """You talk."""


async def pass_on(request: Request, call_next):
    return await call_next(request)


@configure
def compress(app: FastAPI) -> None:
    app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    app.add_middleware(GZipMiddleware, minimum_size=1)
'''


def words(first: int, count: int, seconds: float = 0.01) -> list[Any]:
    return [part for number in range(first, first + count) for part in (f"word{number} ", pause(seconds))]


STORY = [
    reply(*words(0, 70), call("look", thing="a")),
    reply(*words(70, 70), call("look", thing="b"), call("look", thing="c")),
    reply(*words(140, 60)),
]


def without_deltas(events: list[Any]) -> list[Any]:
    """What a late reader gets: a finished message in place of its deltas."""
    return [event for event in events if event.type != "message.delta"]


@pytest.mark.crash
def test_readers_that_stay_drop_come_back_and_come_late_have_the_same_story_once(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, one_story: Any
) -> None:
    folder = field_app(TALKING)
    env = model_env(strict_model(STORY))
    server = start(folder, env=env)
    api = client(server)
    run = api.submit("talker", "tell")
    path = f"/runs/{run['id']}/events"
    staying = [reader(server, run), reader(server, run)]
    with api.follow(path) as events:
        first_part = [next(events) for _ in range(20)]
    whole, other = (one.wait_end() for one in staying)
    assert whole == other, "two readers do not share events between them"
    one_story(whole)
    assert whole[:20] == first_part
    assert sum(event.type == "message.delta" for event in whole) > 20
    assert sum(event.type == "tool.progress" for event in whole) == 15
    server.kill9()
    api = client(start(folder, env=env))
    second_part = api.events(run["id"], after=first_part[-1].id)
    late = api.events(run["id"])
    one_story(late)
    assert late == without_deltas(whole)
    assert without_deltas(first_part + second_part) == late
    last = whole[-1].id
    assert api.get_path(path, headers={"last-event-id": str(last)}).status_code == 204
    assert api.events(run["id"], after=last - 1) == [late[-1]]


def test_a_run_completes_when_all_its_readers_leave_at_once_and_only_a_cancel_stops_one(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, one_story: Any
) -> None:
    server = start(field_app(TALKING), env=model_env(strict_model(STORY)))
    api = client(server)
    left, stopped = api.submit("talker", "tell"), api.submit("talker", "tell")
    for run in (left, stopped):
        followers = [client(server) for _ in range(5)]
        streams = [one.http.stream("GET", f"/runs/{run['id']}/events") for one in followers]
        answers = [stream.__enter__() for stream in streams]
        for answer in answers:
            assert next(answer.iter_lines()) == ":"
        for one, stream in zip(followers, streams, strict=True):
            one.http.close()
            stream.__exit__(None, None, None)
    assert api.cancel(stopped["id"])["status"] == "cancelled"
    assert api.until_status(left["id"])["status"] == "completed"
    one_story(api.events(left["id"]))
    one_story(api.events(stopped["id"]), "run.cancelled")


class Marks:
    """Notes when the model says each word."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def wait(self) -> None:
        self.times.append(time.monotonic())


def test_silence_and_compression_hold_no_stream_back_and_end_none(
    field_app: Any, start: Any, client: Any, proxy: Any, strict_model: Any, model_env: Any, until: Any, one_story: Any
) -> None:
    gate, marks = Gate(), Marks()
    spoken = [part for number in range(40) for part in (marks, f"word{number} ", pause(0.03))]
    model = strict_model([reply(gate, *spoken, call("silent", seconds=33)), "Done."])
    folder = field_app(TALKING)
    server = start(folder, env=model_env(model))
    # a heartbeat comes every 15 s: this proxy gives up after 16 s, and the tool is silent for more than two of that
    between = proxy(server, idle_s=16)
    api = client(server)
    run = api.submit("talker", "tell")
    assert gate.wait_reached()

    def listen(encoding: str) -> tuple[list[Any], list[float], int]:
        got: list[Any] = []
        seen: list[float] = []
        comments = 0
        headers = {**api.http.headers, "accept-encoding": encoding}
        with (
            httpx2.Client(headers=headers, timeout=60, verify=False) as http,
            http.stream("GET", f"{between.url}/runs/{run['id']}/events") as answer,
        ):
            assert answer.http_version == "HTTP/1.1"
            assert "content-encoding" not in answer.headers
            lines = answer.iter_lines()
            fields: dict[str, str] = {}
            for line in lines:
                if line.startswith(":"):
                    comments += 1
                elif line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif fields:
                    got.append(fields)
                    seen.append(time.monotonic())
                    fields = {}
                    if len(got) == 3:  # headers and what there is, before the model has said its first word
                        ready.wait(60)
        return got, seen, comments

    ready = threading.Barrier(3)
    with ThreadPoolExecutor(2) as pool:
        listeners = [pool.submit(listen, encoding) for encoding in ("identity", "gzip")]
        ready.wait(60)
        assert marks.times == []
        gate.open()
        heard = [listener.result(60) for listener in listeners]
    assert api.run(run["id"])["status"] == "completed"
    assert between.given_up == 0
    for got, seen, comments in heard:
        assert 3 <= comments <= 4, "the one at the start, and one every 15 s of silence"
        text = ""
        for fields, at in zip(got, seen, strict=True):
            assert list(fields) == ["id", "event", "data"]
            if fields["event"] == "message.delta":
                text += fields["data"]
                # every word in this piece was readable within a second of being said
                for number, said in enumerate(marks.times):
                    if f"word{number} " in fields["data"]:
                        assert at - said < 1.0
        assert "word0 " in text
        assert "word39 " in "".join(fields["data"] for fields in got)
    assert [fields["id"] for fields in heard[0][0]] == [fields["id"] for fields in heard[1][0]]


def test_a_proxy_that_gives_silence_up_before_a_heartbeat_costs_a_reconnect_and_nothing_else(
    field_app: Any, start: Any, client: Any, proxy: Any, reader: Any, strict_model: Any, model_env: Any, one_story: Any
) -> None:
    server = start(field_app(TALKING), env=model_env(strict_model([call("silent", seconds=2.5), *STORY])))
    between = proxy(server, idle_s=0.5)
    api = client(server)
    run = api.submit("talker", "tell")
    follower = reader(server, run)
    follower.moved(between.url)
    impatient = reader(between, run)
    told = impatient.wait_end()
    one_story(told)
    assert between.given_up >= 3
    assert told == follower.wait_end()


def memory(pid: int) -> int:
    """Bytes of a process in memory."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


STUCK = 10
PAGES = 120  # of 60 KB
RUN_BYTES = (
    5 * 2 * PAGES * 60_000
)  # measured: 3.3 times the results of its two replies, with no reader; the rest is slack
READER_BYTES = 4_000_000  # a batch of 512 KiB as text and as values, and some pieces as bytes: 2 MB; the rest is slack
FETCHED = [reply(*(call("fetch", page=page) for page in range(PAGES)))] * 2


def test_readers_that_stop_to_read_hold_up_nobody_take_bounded_memory_and_can_go_on(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, until: Any, one_story: Any
) -> None:
    server = start(field_app(TALKING), env=model_env(strict_model([*FETCHED, reply(*words(0, 20))])))
    api = client(server)
    assert api.submit("talker", "tell", wait=60)["status"] == "completed", "what the run itself takes"
    before = memory(server.pid)
    run = api.submit("talker", "tell")
    with ExitStack() as sockets:
        path = f"/runs/{run['id']}/events"
        stuck = [sockets.enter_context(open_stream(api, server.port, path)) for _ in range(STUCK)]
        lively = reader(server, run)
        told = lively.wait_end(60)
        one_story(told)
        assert sum(event.type == "tool.completed" for event in told) == 2 * PAGES
        assert api.run(run["id"])["status"] == "completed"
        assert memory(server.pid) - before < RUN_BYTES + STUCK * READER_BYTES
        before = memory(server.pid)  # of what the run itself left, some is given back in between at most
        late = [sockets.enter_context(open_stream(api, server.port, path)) for _ in range(2 * STUCK)]
        for connection in late:
            until(lambda connection=connection: len(connection.recv(65536, socket.MSG_PEEK)) > 30_000, 20)
        assert without_deltas(told) == api.events(run["id"])
        assert memory(server.pid) - before < 2 * STUCK * READER_BYTES
        for connection in (*stuck, late[0]):
            rest = read_all(connection)
            assert rest.count(b"event: tool.completed\n") == 2 * PAGES
            assert rest.endswith(b"0\r\n\r\n"), "the stream was ended whole"


def open_stream(api: Any, port: int, path: str) -> socket.socket:
    """Ask for a stream and read none of it."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    token = api.http.headers["authorization"]
    connection.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: {token}\r\n\r\n".encode())
    connection.settimeout(30)
    return connection


def read_all(connection: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"0\r\n\r\n"):
        piece = connection.recv(1 << 20)
        if not piece:
            break
        data += piece
    return bytes(data)


# -- X05

JOINED = [
    reply(*words(0, 40, 0.015), call("look", thing="a"), call("look", thing="b")),
    reply(*words(40, 40, 0.015), call("look", thing="c")),
    reply(*words(80, 40, 0.015)),
]


def answer_then_story(request: ModelRequest) -> Any:
    place = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
    said = sum(isinstance(message, AssistantMessage) for message in request.messages[place:])
    return JOINED[said] if request.messages[place].text == "tell" else "An earlier answer."  # type: ignore[union-attr]


class Screen:
    """What a chat page shows: the page of a conversation, and what its stream then brings."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self.messages = {message["id"]: message for message in messages}
        self.growing: dict[str, str] = {}
        assert len(self.messages) == len(messages), "the page has a message once"

    def take(self, event: Any) -> None:
        data = event.data
        if event.type == "message.delta":
            assert data["message_id"] not in self.messages, "no piece of a message that is there already"
            assert data["offset"] == len(self.growing.get(data["message_id"], "")), "no gap and no double"
            self.growing[data["message_id"]] = self.growing.get(data["message_id"], "") + data["text"]
        elif event.type == "message.completed":
            message = data["message"]
            assert message["id"] not in self.messages, "a message comes once"
            assert message["text"].startswith(self.growing.pop(message["id"], ""))
            self.messages[message["id"]] = message
        elif event.type == "tool.completed":
            [call] = [one for message in self.messages.values() for one in message["calls"] if is_call(one, data)]
            assert call["result"] is None, "a result comes once"
            call |= {"result": data["result"], "status": "failed" if data["is_error"] else "done"}


def is_call(call: dict[str, Any], data: dict[str, Any]) -> bool:
    return bool(call["call_id"] == data["call_id"])


def test_a_page_and_its_stream_join_without_gap_or_double_at_fifty_random_moments(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    server = start(field_app(TALKING), env=model_env(strict_model(answer_then_story)))
    api = client(server)
    conversation = api.submit("talker", "hello", wait=10)["conversation_id"]
    path = f"/agents/talker/conversations/{conversation}"
    run = api.submit("talker", "tell", conversation_id=conversation)

    def join() -> Screen:
        one = client(server)
        page = one.get_path(path).json()
        screen = Screen(page["items"])
        with one.follow(f"{path}/events", after=page["last_event_id"]) as events:
            for event in events:
                screen.take(event)
                if event.type == "run.completed" and event.data["run_id"] == run["id"]:
                    break
        return screen

    chance = random.Random(50)
    joined = []
    with ThreadPoolExecutor(50) as pool:
        with api.follow(f"/runs/{run['id']}/events") as events:
            for number, event in enumerate(events):
                if event.type == "run.completed":
                    break
                if number > 3:
                    joined.extend(pool.submit(join) for _ in range(min(chance.choice((0, 1, 2, 3)), 50 - len(joined))))
        screens = [one.result(30) for one in joined]
    assert len(screens) == 50
    final = {message["id"]: message for message in api.messages("talker", conversation)}
    assert len(final) == 6
    for screen in screens:
        assert screen.growing == {}
        assert screen.messages == final
        assert list(screen.messages) == list(final), "in the same order"
