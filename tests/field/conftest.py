"""What the field cases share: an app with a ledger and gates, a client of the HTTP door, a reader that reconnects.

Everything goes through public doors: real server processes, HTTP, and the files that an app's tools write.

    def test_...(field_app, serve, client, until):
        folder = field_app(SOURCE)              # `from .ledger import note, gate` works in SOURCE
        server = serve(folder, env=LEASE_ENV)   # fixture `field_env` holds the token and a short lease
        api = client(server)
        run = api.submit("kiosk", "hello")
        until(lambda: folder.ledger("paid"))    # lines of that kind
        server.kill9()

The store is a file of the app's folder. A test that is also for servers with a database is marked:

    @pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, ToolResult, UserMessage
from amoxi_py.testing import EventRecord, Script, StrictModelServer
from amoxi_py.testing import client as testing
from amoxi_py.testing.client import read_events
from processes import ServerProcess

TOKENS = {"acme": "acme-token-0123456789", "globex": "globex-token-0123456789"}
LEASE_S = 2.0

LEDGER = '''
"""A ledger that is synced at the moment of each line, and gates that the test opens: one file each."""

import asyncio, json, os, time


def note(what, ctx=None, **more):
    line = {"what": what, "pid": os.getpid(), **more}
    if ctx is not None:
        line |= {"call": ctx.call_id, "run": ctx.run_id, "attempt": ctx.attempt}
    file = os.open("ledger.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        os.write(file, (json.dumps(line) + "\\n").encode())
        os.fsync(file)
    finally:
        os.close(file)


async def gate(name):
    while not os.path.exists("gate-" + name):
        await asyncio.sleep(0.01)


def gate_sync(name):
    while not os.path.exists("gate-" + name):
        time.sleep(0.01)
'''


@dataclass(frozen=True)
class Folder:
    """An app's folder; it can stand for its path."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def ledger(self, what: str | None = None, **match: Any) -> list[dict[str, Any]]:
        """The lines of the ledger, of one kind and with these fields when they are given."""
        file = self.path / "ledger.jsonl"
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
        return [
            line
            for line in lines
            if (what is None or line["what"] == what) and all(line.get(key) == value for key, value in match.items())
        ]

    def open_gate(self, name: str) -> None:
        (self.path / f"gate-{name}").touch()

    def close_gate(self, name: str) -> None:
        (self.path / f"gate-{name}").unlink()


class Client(testing.Client):
    """One caller of one server. `decide`, and every method that has `path` in its name, give the bare answer."""

    def get_path(self, path: str, **kwargs: Any) -> httpx2.Response:
        return self.http.get(path, **kwargs)

    def post_path(self, path: str, body: Any = None, **kwargs: Any) -> httpx2.Response:
        return self.http.post(path, json=body, **kwargs)

    def decide(self, run_id: str, call_id: str, decision: str, **more: Any) -> httpx2.Response:  # type: ignore[override]
        return self.post_path(f"/runs/{run_id}/approvals/{call_id}", {"decision": decision, **more})

    def until_status(self, run_id: str, *statuses: str, timeout: float = 60.0, patient: bool = False) -> dict[str, Any]:
        """The run when it has one of these statuses; by default, when it has ended.

        A `patient` caller asks again when its request dies with a process, or comes before the store is back.
        """
        if not patient:
            return super().until_status(run_id, *statuses, timeout=timeout)
        wanted = statuses or ("completed", "failed", "cancelled")

        def look() -> dict[str, Any] | None:
            try:
                answer = self.get_path(f"/runs/{run_id}")
            except httpx2.TransportError:
                return None
            if answer.status_code == 503:
                return None
            run = self._json(answer)
            return run if run["status"] in wanted else None

        found: dict[str, Any] = wait_until(look, timeout, f"{run_id} is {statuses or 'ended'}")
        return found


@dataclass
class Reader:
    """A browser's EventSource: it follows a path in a thread and reconnects with its last id until it is told 204.

    `moved` points it to another server. What it got is in `events`, `connections` counts how often it was let in.
    """

    url: str
    path: str
    token: str
    events: list[EventRecord] = field(default_factory=list)
    connections: int = 0
    problem: str | None = None
    last: str = "nothing yet"

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def moved(self, url: str) -> None:
        self.url = url

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def wait_for(self, type: str, timeout: float = 60.0, **data: Any) -> EventRecord:
        """The first event of this type whose data has these fields."""
        return wait_until(
            lambda: next(
                (
                    event
                    for event in list(self.events)
                    if event.type == type and all(event.data.get(key) == value for key, value in data.items())
                ),
                None,
            ),
            timeout,
            f"the event {type} {data} comes; so far {self.types()}; last: {self.problem or self.last}",
        )

    def wait_end(self, timeout: float = 60.0) -> list[EventRecord]:
        """All events, when the server has said that there are no more."""
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"the stream did not end; so far {self.types()}"
        assert self.problem is None, self.problem
        return self.events

    def leave(self) -> None:
        self._stop.set()

    def _read(self) -> None:
        with httpx2.Client(timeout=30, verify=False, headers={"authorization": f"Bearer {self.token}"}) as http:
            while not self._stop.is_set():
                headers = {"last-event-id": str(self.events[-1].id)} if self.events else {}
                try:
                    with http.stream("GET", self.url + self.path, headers=headers) as response:
                        self.last = f"status {response.status_code}"
                        if response.status_code == 204:
                            return
                        if response.status_code == 200:
                            self.connections += 1
                            for event in read_events(response):
                                self.events.append(event)
                                if self._stop.is_set():
                                    return
                        elif response.status_code != 503:
                            self.problem = f"{response.status_code}: {response.read()!r}"
                            return
                except httpx2.HTTPError as error:
                    self.last = repr(error)
                self._stop.wait(0.02)


class Proxy:
    """A small TCP proxy before a server, as stands before many: it gives silence up, and it can lose an answer.

    Args:
        port: The server's.
        idle_s: Seconds without a byte from the server after which it closes both sides; None for never.

    Attributes:
        url: Its own address.
        lose_answers: While it is set, the first bytes of an answer close the connection in their place.
        lost: Answers that it has lost.
        given_up: Connections that it has closed because of silence.
    """

    def __init__(self, port: int, idle_s: float | None = None) -> None:
        self.lose_answers = False
        self.lost = 0
        self.given_up = 0
        self._port = port
        self._idle_s = idle_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                near.close()
                return
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()
            threading.Thread(target=self._answer, args=(far, near), daemon=True).start()

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        try:
            while data := near.recv(65536):
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _answer(self, far: socket.socket, near: socket.socket) -> None:
        far.settimeout(self._idle_s)
        try:
            while data := far.recv(65536):
                if self.lose_answers:
                    self.lost += 1
                    break
                near.sendall(data)
        except TimeoutError:
            self.given_up += 1
        except OSError:
            pass
        for side in (near, far):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


def wait_until(condition: Callable[[], Any], timeout: float = 60.0, what: str = "it happens") -> Any:
    begun = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - begun
        assert waited < timeout, f"not within {timeout:g} s: {what}"
        time.sleep(min(0.01 + waited / 50, 0.05))  # a server that is asked all the time does little else
    return found


def assert_one_story(events: Sequence[EventRecord], end: str = "run.completed") -> None:
    """Check what one reader of one run got: nothing twice, no gap in a text, one start and one end of each call."""
    ids = [event.id for event in events]
    assert ids == sorted(set(ids)), "ids grow"
    types = [event.type for event in events]
    assert types[0] == "run.queued", types
    assert types[-1] == end, types
    assert sum(kind in ("run.completed", "run.failed", "run.cancelled") for kind in types) == 1, types
    texts: dict[str, str] = {}
    finished: dict[str, str] = {}
    called: list[str] = []
    settled: list[str] = []
    for event in events:
        data = event.data
        assert data["run_id"] == events[0].data["run_id"]
        if event.type == "message.delta":
            assert data["message_id"] not in finished, "no delta of a finished message"
            assert data["offset"] == len(texts.get(data["message_id"], "")), "no gap and no double in a text"
            texts[data["message_id"]] = texts.get(data["message_id"], "") + data["text"]
        elif event.type == "message.discarded":
            texts.pop(data["message_id"], None)
        elif event.type == "message.completed":
            message = data["message"]
            assert message["id"] not in finished, "a message is told once"
            assert message["text"].startswith(texts.pop(message["id"], "")), "deltas are the start of their message"
            finished[message["id"]] = message["text"]
        elif event.type == "tool.called":
            assert data["call_id"] not in called, "a call is told once"
            called.append(data["call_id"])
        elif event.type in ("tool.progress", "approval.requested"):
            assert data["call_id"] in called
            assert data["call_id"] not in settled
        elif event.type == "tool.completed":
            assert data["call_id"] in called
            assert data["call_id"] not in settled, "a result is told once"
            settled.append(data["call_id"])
    assert sorted(called) == sorted(settled), "every call has its result"
    assert not texts, "every delta belongs to a message that was finished or discarded"


@pytest.fixture
def store_kind(request: pytest.FixtureRequest) -> str:
    """Where the servers of a test have their store: a file in its folder, or as a parameter of the test says."""
    return str(getattr(request, "param", "file"))


@pytest.fixture
def store_env(store_kind: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment that gives a server the store of this test."""
    if store_kind == "file":
        return {}
    assert store_kind == "postgres"
    return {"AI_STORE_TYPE": "postgres", "DATABASE_URL": request.getfixturevalue("postgres_url")}


@pytest.fixture
def field_env(store_env: dict[str, str]) -> dict[str, str]:
    """The environment of a server of these tests: two callers, a short lease, and a store."""
    return {
        "AI_API_CALLERS_ACME": TOKENS["acme"],
        "AI_API_CALLERS_GLOBEX": TOKENS["globex"],
        "AI_RUNS_LEASE_MS": str(int(LEASE_S * 1000)),
        **store_env,
    }


@pytest.fixture
def lease_s() -> float:
    return LEASE_S


@pytest.fixture
def trials() -> Callable[[int], int]:
    """How often a test tries what has to do with chance: `trials(30)`, or as often as `AMOXI_TRIALS` says."""
    return lambda count: int(os.environ.get("AMOXI_TRIALS") or count)


@pytest.fixture
def field_app(app_folder: Callable[..., Path]) -> Callable[..., Folder]:
    """Make a folder with an app of one module: `field_app(source, settings)`; its tools can use `.ledger`."""

    def make(source: str, settings: Mapping[str, Any] | None = None, **modules: str) -> Folder:
        files = {"app/__init__.py": "", "app/ledger.py": LEDGER, "app/agents.py": source}
        files |= {f"app/{name}.py": text for name, text in modules.items()}
        return Folder(app_folder(files, settings))

    return make


@pytest.fixture
def start(serve: Callable[..., ServerProcess], field_env: dict[str, str]) -> Callable[..., ServerProcess]:
    """Start a server in a folder with the environment of these tests: `start(folder, env={...}, port=...)`."""

    def begin(folder: Folder | Path, *, env: Mapping[str, str] | None = None, **options: Any) -> ServerProcess:
        path = folder.path if isinstance(folder, Folder) else folder
        return serve(path, env={**field_env, **(env or {})}, **options)

    return begin


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """A caller of a server: `client(server)`, `client(server, "globex")`."""
    opened: list[Client] = []

    def connect(server: ServerProcess, name: str = "acme", **headers: str) -> Client:
        caller = Client(server.url, token=TOKENS[name], timeout=30)
        caller.http.headers.update(headers)
        opened.append(caller)
        return caller

    yield connect
    for one in opened:
        one.close()


@pytest.fixture
def reader() -> Iterator[Callable[..., Reader]]:
    """A reader that reconnects: `reader(server, run)` or `reader(server, path="/...")`."""
    readers: list[Reader] = []

    def follow(
        server: ServerProcess, run: Mapping[str, Any] | None = None, *, path: str | None = None, name: str = "acme"
    ) -> Reader:
        if path is None:
            assert run is not None
            path = f"/runs/{run['id']}/events"
        readers.append(Reader(url=server.url, path=path, token=TOKENS[name]))
        return readers[-1]

    yield follow
    for one in readers:
        one.leave()


@pytest.fixture
def proxy() -> Iterator[Callable[..., Proxy]]:
    """Put a proxy before a server: `proxy(server, idle_s=...)`."""
    opened: list[Proxy] = []

    def begin(server: ServerProcess, **options: Any) -> Proxy:
        opened.append(Proxy(server.port, **options))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


@pytest.fixture
def until() -> Callable[..., Any]:
    """Wait for a condition with a bound: `until(lambda: ..., timeout, "what")` gives what the condition gave."""
    return wait_until


@pytest.fixture
def one_story() -> Callable[..., None]:
    """Check what one reader of one run got: `one_story(events, end="run.completed")`."""
    return assert_one_story


@pytest.fixture
def strict_model() -> Iterator[Callable[..., StrictModelServer]]:
    """Start a strict model server in this process: `strict_model(script)`; at the end it has refused nothing.

    `model_env(server)` is the environment that makes it the model of an app.
    """
    servers: list[StrictModelServer] = []

    def begin(script: Script, **options: Any) -> StrictModelServer:
        servers.append(StrictModelServer(script, **options).start())
        return servers[-1]

    yield begin
    for server in servers:
        server.stop()
    assert [problem for server in servers for problem in server.refused] == []


@pytest.fixture
def model_env() -> Callable[[StrictModelServer], dict[str, str]]:
    def env(server: StrictModelServer) -> dict[str, str]:
        return {"AI_MODEL": "openai:test", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-of-the-test"}

    return env


@pytest.fixture
def last_words() -> Callable[[ModelRequest], tuple[str, int]]:
    """Of a request: the person's last words, and how many replies to them there are."""

    def read(request: ModelRequest) -> tuple[str, int]:
        said = 0
        for message in reversed(request.messages):
            if isinstance(message, UserMessage):
                return message.text, said
            said += isinstance(message, AssistantMessage)
        raise AssertionError("a request without a person's message")

    return read


@pytest.fixture
def database_env(field_env: dict[str, str]) -> Callable[..., dict[str, str]]:
    """The environment of an app whose store is in a database: `database_env(url, connections=5)`."""

    def env(url: str, **store: object) -> dict[str, str]:
        names = {f"AI_STORE_{name.upper()}": str(value) for name, value in store.items()}
        return {**field_env, "AI_STORE_TYPE": "postgres", "DATABASE_URL": url, **names}

    return env


@pytest.fixture
def requests_about(last_words: Callable[[ModelRequest], tuple[str, int]]) -> Callable[..., list[ModelRequest]]:
    """The requests that a strict model server took about some last words of a person: `requests_about(model, text)`."""

    def find(model: StrictModelServer, text: str) -> list[ModelRequest]:
        return [request for request in model.requests if last_words(request)[0] == text]

    return find


@pytest.fixture
def results_in() -> Callable[[ModelRequest], list[ToolResult]]:
    """Of a request: the results of tools in it, in order."""

    def read(request: ModelRequest) -> list[ToolResult]:
        return [one for one in request.messages if isinstance(one, ToolResult)]

    return read


@pytest.fixture
def at_once() -> Callable[..., list[Any]]:
    """Do things at the same moment, each in a thread of its own: `at_once(action, action, ...)`."""

    def do(*actions: Callable[[], Any]) -> list[Any]:
        barrier = threading.Barrier(len(actions))

        def act(action: Callable[[], Any]) -> Any:
            barrier.wait(60)
            return action()

        with ThreadPoolExecutor(len(actions)) as threads:
            return list(threads.map(act, actions))

    return do
