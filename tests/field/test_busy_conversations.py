"""A message in a busy conversation: replaced, queued or refused as its agent says, on every path the same."""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, ToolResult, UserMessage
from amoxi_py.testing import call, fail, reply

# O16 is what every test of this file is about

SHOP = '''
from amoxi_py import SyncToolContext, ToolContext, agent, tool
from .ledger import gate, gate_sync, note


@tool(idempotent=True)
async def work(ctx: ToolContext) -> str:
    """Wait for a gate."""
    note("work", ctx)
    await gate(ctx.conversation_id)
    return "worked"


@tool(idempotent=True)
def stubborn(ctx: SyncToolContext) -> str:
    """Wait for a gate in a thread, whatever happens."""
    note("stubborn", ctx)
    gate_sync(ctx.conversation_id)
    note("stubborn ends", ctx)
    return "worked"


@tool(read_only=True)
def quick() -> str:
    """Give a result at once."""
    return "quick result"


TOOLS = [work, stubborn, quick]


@agent(tools=TOOLS)
class Usual:
    """You run a shop."""


@agent(tools=TOOLS, on_busy="replace")
class Replacing:
    """You run a shop."""


@agent(tools=TOOLS, on_busy="queue")
class Queueing:
    """You run a shop."""


@agent(tools=TOOLS, on_busy="reject")
class Rejecting:
    """You run a shop."""
'''

PATHS = [
    "the first request",
    "the middle of a text",
    "a tool",
    "the request after a tool",
    "a pause after a failed request",
]
FAILED = object()


@dataclass
class _Slow:
    """A part of a reply that takes until its conversation's gate opens, and is counted while it does."""

    models: Models
    conversation: str
    gated: bool

    async def wait(self) -> None:
        models = self.models
        for _ in range(20):  # the end of the one before may be in the same turn of this event loop
            if models.open.get(self.conversation, 0) == 0:
                break
            await asyncio.sleep(0)
        models.open[self.conversation] = models.open.get(self.conversation, 0) + 1
        models.most = max(models.most, models.open[self.conversation])
        models.reached.add(self.conversation)
        try:
            if self.gated:
                while self.conversation not in models.opened:
                    await asyncio.sleep(0.01)
            else:
                await asyncio.sleep(0.02)
        finally:
            models.open[self.conversation] -= 1


@dataclass
class Models:
    """Answers first messages slowly, at the place that they name, and others at once; counts open requests."""

    last_words: Any
    open: dict[str, int] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    most: int = 0

    def script(self, request: ModelRequest) -> Any:
        text, said = self.last_words(request)
        conversation = next(one.text for one in request.messages if isinstance(one, UserMessage))
        slow = _Slow(self, conversation, gated=True)
        quick = _Slow(self, conversation, gated=False)
        if text != conversation:
            return reply(quick, f"You said: {text}")
        path = text.partition(":")[0]
        if path == "a pause after a failed request" and text not in self.failed:
            self.failed.add(text)
            return fail(429, retry_after=3)
        if path in ("a tool", "a stubborn tool", "the request after a tool") and said == 0:
            names = {"a tool": "work", "a stubborn tool": "stubborn"}
            return reply(quick, call(names.get(path, "quick")))
        if path in ("a tool", "a stubborn tool", "a pause after a failed request"):
            return reply(quick, "The first answer.")
        if path == "the middle of a text":
            return reply("The first ", slow, "answer.")
        return reply(slow, "The first answer.")


@pytest.fixture
def models(last_words: Any) -> Models:
    return Models(last_words)


@dataclass
class Busy:
    """A run that is at a place of its way."""

    api: Any
    folder: Any
    models: Models
    agent: str
    path: str

    def __post_init__(self) -> None:
        self.text = f"{self.path}: {self.agent}"
        self.run = self.api.submit(self.agent, self.text)
        self.where = self.run["conversation_id"]

    def arrived(self, until: Any, reader: Any, server: Any) -> None:
        if self.path == "a pause after a failed request":
            assert self.api.until_status(self.run["id"], "waiting")["waiting_for"][0]["kind"] == "model"
        elif self.path == "a tool":
            until(lambda: self.folder.ledger("work", run=self.run["id"]))
        elif self.path == "the middle of a text":
            reader(server, self.run).wait_for("message.delta", text="The first ")
        elif self.path == "the request after a tool":
            reader(server, self.run).wait_for("tool.completed")
            until(lambda: self.models.open.get(self.text) == 1)
        else:
            until(lambda: self.text in self.models.reached)

    def go_on(self) -> None:
        self.models.opened.add(self.text)
        self.folder.open_gate(self.where)

    def texts(self) -> list[tuple[str, str, str]]:
        messages = self.api.messages(self.agent, self.where)
        return [(one["role"], one["text"], one["status"]) for one in messages]


def history_of(request: ModelRequest) -> list[str]:
    """What a request holds: of each message who, and its text, its tool, or how its result begins."""
    told = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            told.append("person")
        elif isinstance(message, ToolResult):
            told.append(f"result: {message.content.partition(',')[0]}")
        elif isinstance(message, AssistantMessage) and message.calls:
            told.append(f"calls {message.calls[0].name}")
        else:
            told.append(f"says {message.text}")
    return told


STOPPED = {
    "the first request": [],
    "the middle of a text": ["says The first "],
    "a tool": ["calls work", "result: This action was stopped while it was being done"],
    "the request after a tool": ["calls quick", "result: quick result"],
    "a pause after a failed request": [],
}
WHOLE = {
    "the first request": [],
    "the middle of a text": [],
    "a tool": ["calls work", "result: worked"],
    "the request after a tool": ["calls quick", "result: quick result"],
    "a pause after a failed request": [],
}


def test_a_replacing_agent_stops_the_first_turn_wherever_it_is_and_answers_the_second(
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    until: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
    requests_about: Any,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    turns = []
    for path, agent in itertools.product(PATHS, ("usual", "replacing")):
        turn = Busy(api, folder, models, agent, path)
        turn.arrived(until, reader, server)
        turns.append(turn)
        second = api.submit(turn.agent, f"second, {turn.text}", conversation_id=turn.where, wait=20)
        assert (second["status"], second["output"]) == ("completed", f"You said: second, {turn.text}")
        assert api.run(turn.run["id"])["status"] == "cancelled"
        turn.go_on()
        [request] = requests_about(model, f"second, {turn.text}")
        assert history_of(request) == ["person", *STOPPED[turn.path], "person"]
    server.stop()
    again = start(folder, env=model_env(model))
    for turn in turns:
        turn.api = client(again)
        last = turn.api.submit(turn.agent, f"third, {turn.text}", conversation_id=turn.where, wait=20)
        assert last["status"] == "completed"
        [request] = requests_about(model, f"third, {turn.text}")
        says = f"says You said: second, {turn.text}"
        assert history_of(request) == ["person", *STOPPED[turn.path], "person", says, "person"]
        stopped = [text for _, text, status in turn.texts() if status == "stopped"]
        assert stopped == (["The first "] if turn.path == "the middle of a text" else [])
    assert len(folder.ledger("work")) == 2
    assert models.most == 1, "two requests of one conversation were open at once"


def test_a_queueing_agent_lets_the_first_turn_end_and_then_answers_all_others_in_order(
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    until: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
    requests_about: Any,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    turns, behind = [], {}
    for path in PATHS:
        turn = Busy(api, folder, models, "queueing", path)
        turn.arrived(until, reader, server)
        turns.append(turn)
        behind[turn.path] = [
            api.submit("queueing", f"{word}, {turn.text}", conversation_id=turn.where) for word in ("second", "third")
        ]
        assert [run["status"] for run in behind[turn.path]] == ["queued", "queued"]
    for turn in turns:
        assert api.run(behind[turn.path][0]["id"])["status"] == "queued" or turn.path == PATHS[-1]
        turn.go_on()
        assert api.until_status(turn.run["id"])["output"] == "The first answer."
        for run, word in zip(behind[turn.path], ("second", "third"), strict=True):
            assert api.until_status(run["id"])["output"] == f"You said: {word}, {turn.text}"
        first = ["person", *WHOLE[turn.path], "says The first answer."]
        [request] = requests_about(model, f"second, {turn.text}")
        assert history_of(request) == [*first, "person"]
        [request] = requests_about(model, f"third, {turn.text}")
        assert history_of(request) == [*first, "person", f"says You said: second, {turn.text}", "person"]
        persons = [text for role, text, _ in turn.texts() if role == "user"]
        assert persons == [turn.text, f"second, {turn.text}", f"third, {turn.text}"]
    assert len(folder.ledger("work")) == 1
    assert models.most == 1, "two requests of one conversation were open at once"


def test_a_rejecting_agent_refuses_the_second_message_and_the_first_turn_is_not_disturbed(
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    until: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
    requests_about: Any,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    turns = []
    for path in PATHS:
        turn = Busy(api, folder, models, "rejecting", path)
        turn.arrived(until, reader, server)
        turns.append(turn)
        body = {"message": f"second, {turn.text}", "conversation_id": turn.where}
        refused = api.post_path("/agents/rejecting/runs", body)
        assert (refused.status_code, refused.json()["code"]) == (409, "conversation_busy")
    for turn in turns:
        turn.go_on()
        assert api.until_status(turn.run["id"])["output"] == "The first answer."
        second = api.submit("rejecting", f"second, {turn.text}", conversation_id=turn.where, wait=20)
        assert second["status"] == "completed"
        [request] = requests_about(model, f"second, {turn.text}")
        assert history_of(request) == ["person", *WHOLE[turn.path], "says The first answer.", "person"]
        assert [text for role, text, _ in turn.texts() if role == "user"] == [turn.text, f"second, {turn.text}"]
    assert models.most == 1, "two requests of one conversation were open at once"


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
@pytest.mark.parametrize("policy", ["replace", "queue", "reject"])
def test_the_policy_of_the_settings_holds_through_every_server_and_every_form_of_submitting(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    reader: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
    policy: str,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    env = {**model_env(model), "AI_RUNS_ON_BUSY": policy}
    servers = [start(folder, env=env), start(folder, env=env)]
    api = client(servers[0])
    forms: list[dict[str, Any]] = [
        {},
        {"params": {"wait": "0"}},
        {"headers": {"idempotency-key": "key"}},
        {"headers": {"accept": "text/event-stream"}},
    ]
    for n, form in enumerate(forms):
        for which, server in enumerate(servers):
            turn = Busy(api, folder, models, "usual", "a tool")
            turn.arrived(until, reader, servers[0])
            body = {"message": f"second {n} {which}", "conversation_id": turn.where}
            if "idempotency-key" in form.get("headers", {}):
                form = {"headers": {"idempotency-key": f"key-{which}"}}
            door = client(server)
            if policy == "queue" and "accept" in form.get("headers", {}):
                threading.Timer(0.2, turn.go_on).start()  # the answer is the stream itself, to its end
            answer = door.post_path("/agents/usual/runs", body, **form)
            if policy == "reject":
                assert (answer.status_code, answer.json()["code"]) == (409, "conversation_busy")
            else:
                assert answer.status_code in (200, 202)
            first = api.run(turn.run["id"])
            if policy == "replace":
                assert first["status"] == "cancelled"
            turn.go_on()
            if policy != "replace":
                assert api.until_status(turn.run["id"])["output"] == "The first answer."
            if policy != "reject":
                until(lambda turn=turn, body=body: ("assistant", f"You said: {body['message']}") in {
                    text[:2] for text in turn.texts()
                })  # fmt: skip
            persons = [text for role, text, _ in turn.texts() if role == "user"]
            assert persons == [turn.text, body["message"]][: 1 if policy == "reject" else 2]
    assert models.most == 1, "two requests of one conversation were open at once"


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_a_message_beside_a_cancel_of_the_first_turn_is_answered_after_it_or_refused(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    reader: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
    requests_about: Any,
    at_once: Any,
    store_kind: str,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    server, other = (start(folder, env=model_env(model)) for _ in range(2))
    api, remote, third = client(server), client(other), client(server)
    for n in range(36 if store_kind == "file" else 12):
        agent = ("replacing", "queueing", "rejecting")[n % 3]
        turn = Busy(api, folder, models, agent, "a tool")
        turn.text, text = f"{turn.text} {n}", f"second {n}"
        turn.arrived(until, reader, server)
        body = {"message": text, "conversation_id": turn.where}
        cancelled, answer = at_once(
            lambda turn=turn, n=n: (third if n // 3 % 2 else remote).cancel(turn.run["id"]),
            lambda body=body, n=n, agent=agent: (remote if n // 6 % 2 else api).post_path(
                f"/agents/{agent}/runs", body
            ),
        )
        assert cancelled["status"] == "cancelled"
        if answer.status_code == 409:
            assert agent == "rejecting"
            answer = api.post_path(f"/agents/{agent}/runs", body)
        assert answer.status_code == 202
        assert api.until_status(answer.json()["id"])["output"] == f"You said: {text}"
        assert history_of(requests_about(model, text)[0]) == ["person", *STOPPED["a tool"], "person"]
    assert models.most == 1, "two requests of one conversation were open at once"


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_of_many_messages_at_the_same_moment_each_agent_makes_what_it_says(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
    at_once: Any,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    servers = [start(folder, env=model_env(model)) for _ in range(2)]
    doors = [client(servers[n % 2]) for n in range(8)]
    for agent in ("replacing", "queueing", "rejecting"):
        idle = doors[0].submit(agent, f"hello: {agent}")
        models.opened.add(f"hello: {agent}")
        doors[0].until_status(idle["id"])
        where = idle["conversation_id"]
        answers = at_once(
            *(
                lambda door=door, n=n, agent=agent, where=where: door.post_path(
                    f"/agents/{agent}/runs", {"message": f"message {n}", "conversation_id": where}
                )
                for n, door in enumerate(doors)
            )
        )
        runs = [answer.json()["id"] for answer in answers if answer.status_code == 202]
        refused = [answer.json()["code"] for answer in answers if answer.status_code != 202]
        ended = [doors[0].until_status(run_id)["status"] for run_id in runs]
        said = [(one["role"], one["text"]) for one in doors[0].messages(agent, where) if one["run_id"] in runs]
        if agent == "queueing":
            assert ended == ["completed"] * 8
        elif agent == "replacing":
            assert set(ended) <= {"completed", "cancelled"}
            assert "completed" in ended
        else:
            assert ended == ["completed"] * len(runs)
            assert refused == ["conversation_busy"] * (8 - len(runs))
            assert refused
        if agent != "replacing":
            for place in range(0, len(said), 2):
                (_, asked), (_, answered) = said[place : place + 2]
                assert answered == f"You said: {asked}"
        else:
            last_person = [text for role, text in said if role == "user"][-1]
            assert said[-1] == ("assistant", f"You said: {last_person}"), "the last wins"
    assert models.most == 1, "two requests of one conversation were open at once"


def test_a_request_that_is_refused_never_disturbs_the_running_turn(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    reader: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api, stranger = client(server), client(server, "globex")
    first = api.submit("replacing", "hello", key="a-used-key")
    models.opened.add("hello")
    api.until_status(first["id"])
    turn = Busy(api, folder, models, "replacing", "a tool")
    turn.arrived(until, reader, server)
    path = "/agents/replacing/runs"
    body = {"message": "second", "conversation_id": turn.where}
    used = {"idempotency-key": "a-used-key"}
    assert api.post_path(path, {**body, "message": " "}).status_code == 422
    assert api.post_path(path, {**body, "mesage": "x"}).status_code == 422
    assert api.post_path(path, {**body, "files": ["file_none"]}).status_code in (404, 422)
    assert api.post_path(path, body, headers=used).status_code == 409
    assert api.post_path(path, body, params={"wait": "-1"}).status_code == 422
    assert api.post_path("/agents/queueing/runs", body).status_code == 404
    assert stranger.post_path(path, body).status_code == 404
    repeated = api.post_path(path, {"message": "hello"}, headers=used)
    assert (repeated.status_code, repeated.json()["id"]) == (202, first["id"])
    assert api.run(turn.run["id"])["status"] == "running"
    turn.go_on()
    assert api.until_status(turn.run["id"])["output"] == "The first answer."


def test_a_message_sent_again_with_its_key_is_the_same_run_whatever_the_policy(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    reader: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    for agent in ("replacing", "queueing", "rejecting"):
        idle = api.submit(agent, f"hello: {agent}")
        models.opened.add(f"hello: {agent}")
        api.until_status(idle["id"])
        turn = Busy(api, folder, models, agent, "a tool")
        turn.arrived(until, reader, server)
        key = f"key-of-{agent}"
        if agent == "rejecting":
            body = {"message": "second", "conversation_id": turn.where}
            refused = api.post_path(f"/agents/{agent}/runs", body, headers={"idempotency-key": key})
            assert refused.status_code == 409
            turn.go_on()
            api.until_status(turn.run["id"])
        second = api.submit(agent, "second", key=key, conversation_id=turn.where)
        for _ in range(3):
            again = api.submit(agent, "second", key=key, conversation_id=turn.where)
            assert again["id"] == second["id"]
        turn.go_on()
        assert api.until_status(second["id"])["output"] == "You said: second"
        assert api.submit(agent, "second", key=key, conversation_id=turn.where)["id"] == second["id"]
        assert [text for role, text, _ in turn.texts() if role == "user"] == [turn.text, "second"]


def test_the_next_turn_begins_though_a_tool_of_the_replaced_one_does_not_listen(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    strict_model: Any,
    model_env: Any,
    models: Models,
    requests_about: Any,
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    turn = Busy(api, folder, models, "replacing", "a stubborn tool")
    until(lambda: folder.ledger("stubborn"))
    second = api.submit("replacing", "second", conversation_id=turn.where, wait=20)
    assert second["output"] == "You said: second"
    before = turn.texts()
    assert not folder.ledger("stubborn ends")
    turn.go_on()
    until(lambda: folder.ledger("stubborn ends"))
    assert api.submit("replacing", "third", conversation_id=turn.where, wait=20)["output"] == "You said: third"
    assert turn.texts()[: len(before)] == before
    stopped = "result: This action was stopped while it was being done"
    assert history_of(requests_about(model, "third")[0])[:3] == ["person", "calls stubborn", stopped]


def test_the_policy_holds_while_the_first_message_waits_for_a_worker(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, models: Models
) -> None:
    model = strict_model(models.script)
    folder = field_app(SHOP)
    door = start(folder, env={**model_env(model), "AI_RUNS_WORKER": "false"})
    api = client(door)
    models.opened.add("hello")
    first, second = {}, {}
    for agent in ("replacing", "queueing", "rejecting"):
        first[agent] = api.submit(agent, "hello")
        assert first[agent]["status"] == "queued"
        body = {"message": "second", "conversation_id": first[agent]["conversation_id"]}
        second[agent] = api.post_path(f"/agents/{agent}/runs", body)
    assert [answer.status_code for answer in second.values()] == [202, 202, 409]
    start(folder, env=model_env(model))
    assert api.until_status(first["replacing"]["id"])["status"] == "cancelled"
    for agent in ("queueing", "rejecting"):
        assert api.until_status(first[agent]["id"])["output"] == "The first answer."
    for agent in ("replacing", "queueing"):
        assert api.until_status(second[agent].json()["id"])["output"] == "You said: second"
