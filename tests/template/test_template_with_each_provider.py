"""The template app with each way to a real model: whole refunds, decisions, a question, and a kill in the middle.

One process per provider does all of it in conversations of their own. The provider's server keeps a log of what it was
asked, which tells whether a reply that was stored was ever asked for again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, ToolResult, UserMessage
from amoxi_py.testing import Gate, StrictModelServer, call, reply
from amoxi_py.testing.client import Client

KEY = "sk-of-the-test-0123456789"
ENVIRONMENTS: Mapping[str, Callable[[StrictModelServer], dict[str, str]]] = {
    "openai": lambda server: {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url},
    "anthropic": lambda server: {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.anthropic_url},
    "pydantic-ai": lambda server: {
        "AI_MODEL": "ollama:qwen3",
        "OLLAMA_API_KEY": KEY,
        "OLLAMA_BASE_URL": server.url,
    },
}
REFUND, CANCEL, KEEP, QUESTION = "Refund order A-1001", "Cancel order A-1002", "Cancel it?", "Where is order A-1001?"
CUT_ANSWER, CUT_TOOL = "Refund A-1001 and tell me all", "Refund A-1002"
FIRST_WORDS, REST = "Here is the story", " of your refund."
DECLINED = "The person declined this action."
REFUND_EVENTS = [
    *("run.queued", "message.completed", "run.started"),
    *("message.completed", "tool.called", "tool.completed"),
    *("message.completed", "tool.called", "tool.progress", "tool.completed"),
    *("message.completed", "run.completed"),
]


def play(held: Gate) -> dict[str, list[Any]]:
    """What the provider says to each message; the second half of one answer waits until `held` is opened."""
    refund = call("refund_order", order_id="A-1001")
    return {
        REFUND: [["I look. ", call("lookup_order", order_id="A-1001")], refund, reply("It is ", "refunded.")],
        CANCEL: [call("cancel_order", order_id="A-1002"), "It is cancelled."],
        KEEP: [call("cancel_order", order_id="A-1002"), "Then it stays."],
        QUESTION: [call("lookup_order", order_id="A-1001"), "The Trail backpack is shipped."],
        CUT_ANSWER: [refund, reply(FIRST_WORDS, held, REST)],
        CUT_TOOL: [call("refund_order", order_id="A-1002"), "That one too."],
    }


@dataclass
class Screen:
    """What a person sees of a run: a client that puts events together, and comes back with the last id it has seen.

    Attributes:
        events: All that came, in order.
        shown: The texts of the answers after each event.
    """

    client: Client
    run_id: str
    events: list[Any] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    problem: BaseException | None = None

    def __post_init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        return self.shown[-1] if self.shown else ""

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def whole(self) -> str:
        """What is shown when the stream has ended."""
        self._thread.join(30)
        assert not self._thread.is_alive(), f"the stream did not end; so far {self.types()}"
        assert self.problem is None, self.problem
        return self.text

    def _follow(self) -> None:
        try:
            while self._read():
                time.sleep(0.02)  # the server is away
        except BaseException as problem:
            self.problem = problem

    def _read(self) -> bool:
        after = self.events[-1].id if self.events else None
        try:
            with self.client.follow(f"/runs/{self.run_id}/events", after=after) as events:
                for event in events:
                    self.events.append(event)
                    self._take(event.type, event.data)
        except httpx2.TransportError:
            return True
        return not (self.events and self.events[-1].type.startswith("run.completed"))

    def _take(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "message.delta":
            so_far = self._texts.setdefault(data["message_id"], "")
            assert data["offset"] == len(so_far), "no gap and no double in a text"
            self._texts[data["message_id"]] = so_far + data["text"]
        elif kind == "message.discarded":
            self._texts.pop(data["message_id"], None)
        elif kind == "message.completed" and data["message"]["role"] == "assistant":
            self._texts[data["message"]["id"]] = data["message"]["text"]
        self.shown.append("".join(self._texts.values()))


@dataclass(frozen=True)
class Desk:
    """The support agent of one template app, with a person and the provider's log."""

    folder: Path
    client: Client
    model: StrictModelServer

    def say(self, message: str) -> tuple[dict[str, Any], Screen]:
        run = self.client.submit("support-agent", message)
        return run, Screen(self.client, run["id"])

    def say_and_decide(self, message: str, decision: str) -> tuple[dict[str, Any], Screen]:
        run, screen = self.say(message)
        [waiting] = self.client.until_status(run["id"], "waiting")["waiting_for"]
        assert (waiting["kind"], waiting["tool"]) == ("approval", "cancel_order")
        assert waiting["arguments"] == {"order_id": "A-1002"}
        self.client.decide(run["id"], waiting["call_id"], decision)
        return run, screen

    def messages(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        return self.client.messages("support-agent", run["conversation_id"])

    def calls(self, run: Mapping[str, Any], tool: str) -> list[tuple[str, str]]:
        """The ids and statuses of a tool's calls."""
        calls = [call for message in self.messages(run) for call in message["calls"]]
        return [(call["call_id"], call["status"]) for call in calls if call["tool"] == tool]

    def lines(self, name: str) -> list[str]:
        return (self.folder / "data" / name).read_text("utf-8").splitlines()

    def asked(self, message: str) -> list[int]:
        """The provider's log of one conversation: how many replies of its own each request had behind it."""
        return [
            sum(isinstance(one, AssistantMessage) for one in request.messages) for request in self._requests(message)
        ]

    def told(self, message: str) -> list[str]:
        """What the last request of a conversation told the provider of the calls."""
        return [one.content for one in self._requests(message)[-1].messages if isinstance(one, ToolResult)]

    def _requests(self, message: str) -> list[ModelRequest]:
        return [request for request in list(self.model.requests) if _first_message(request) == message]


def _first_message(request: ModelRequest) -> str:
    return next(message.text for message in request.messages if isinstance(message, UserMessage))


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not within 20 s: {what}"
        time.sleep(0.01)


@contextmanager
def ledger_busy(folder: Path) -> Iterator[None]:
    """Hold the lock of the ledger, as another program does that writes to it."""
    with closing(sqlite3.connect(folder / "data" / "refunds.lock", isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield


def refund_ask_cancel_and_decline(desk: Desk) -> str:
    """Do what needs no crash, and return the line of the refund."""
    (refund, told), (_, seen) = desk.say(REFUND), desk.say(QUESTION)
    kept, kept_screen = desk.say_and_decide(KEEP, "decline")
    gone, gone_screen = desk.say_and_decide(CANCEL, "approve")

    assert told.whole() == "I look. It is refunded."
    assert [kind for kind in told.types() if kind != "message.delta"] == REFUND_EVENTS
    [line] = desk.lines("refunds.log")
    [(call_id, status)] = desk.calls(refund, "refund_order")
    assert (line.partition(" ")[2], status) == (f"A-1001 key={call_id}", "done")
    assert line.split()[0] in desk.told(REFUND)[-1]
    assert desk.asked(REFUND) == [0, 1, 2]

    assert seen.whole() == "The Trail backpack is shipped."
    assert "Trail backpack, 28 L" in desk.told(QUESTION)[0]

    assert kept_screen.whole() == "Then it stays."
    [text] = desk.told(KEEP)
    assert DECLINED in text
    assert [status for _, status in desk.calls(kept, "cancel_order")] == ["declined"]
    assert gone_screen.whole() == "It is cancelled."
    [(call_id, status)] = desk.calls(gone, "cancel_order")
    assert (desk.lines("cancelled.log"), status) == ([f"A-1002 key={call_id}"], "done")
    return line


def assert_taken_up_in_mid_answer(desk: Desk, run: Mapping[str, Any], screen: Screen) -> None:
    assert screen.whole() == FIRST_WORDS + REST
    assert max(text.count(FIRST_WORDS) for text in screen.shown) == 1, "the first words are never there twice"
    assert screen.types().count("message.discarded") == screen.types().count("run.resumed") == 1
    ended = desk.client.run(run["id"])
    assert (ended["status"], ended["output"], ended["attempt"]) == ("completed", FIRST_WORDS + REST, 2)
    assert [one["text"] for one in desk.messages(run)] == [CUT_ANSWER, "", FIRST_WORDS + REST]
    assert desk.asked(CUT_ANSWER) == [0, 1, 1], "the stored reply once, the interrupted one once more"


@pytest.mark.crash
@pytest.mark.parametrize("provider", ENVIRONMENTS)
def test_with_each_provider_the_template_does_all_of_it_and_a_kill_neither_shows_nor_asks_nor_pays_twice(
    serve: Any, folder: Path, provider: str
) -> None:
    held = Gate()
    with StrictModelServer(play(held)) as model:
        env = {**ENVIRONMENTS[provider](model), "AI_RUNS_LEASE_MS": "2000", "RECEIPT_SECONDS": "0.05"}
        server = serve(folder, env=env)
        desk = Desk(folder, Client(server.url), model)
        first_line = refund_ask_cancel_and_decline(desk)

        answer, screen = desk.say(CUT_ANSWER)
        until(lambda: screen.text == FIRST_WORDS, "the first words are shown")
        with ledger_busy(folder):
            tool, _ = desk.say(CUT_TOOL)
            until(lambda: "started" in str(desk.calls(tool, "refund_order")), "the tool has begun")
            server.kill9()
        held.open()
        server = serve(folder, env=env, port=server.port)

        assert_taken_up_in_mid_answer(desk, answer, screen)
        assert desk.client.until_status(tool["id"])["output"] == "That one too."
        assert desk.asked(CUT_TOOL) == [0, 1], "no reply was asked for again"
        ids = [call_id for run in (answer, tool) for call_id, _ in desk.calls(run, "refund_order")]
        keys = [line.rpartition("key=")[2] for line in desk.lines("refunds.log")]
        assert (desk.lines("refunds.log")[0], keys[1:]) == (first_line, ids)
        assert (model.refused, set(model.keys)) == ([], {KEY})
        desk.client.close()
    assert KEY not in server.log()
