"""What a case with a real wire format acts through: servers that are killed in its middle, and what the model was told.

A case is a generator function of its `World`. It begins before the kill and yields when it is where it wants to be
killed. Then it acts through a door that executes nothing, yields again, and ends on a server that takes its runs up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from traceback import format_exception
from typing import Any

from amoxi_py.models.script import ScriptedFailure, ScriptedReply, ScriptPlayer
from amoxi_py.ports.chat_model import ModelRequest, ToolResult, UserMessage

Case = Callable[["World"], Iterator[None]]
_TOGETHER = 64


def last_text(request: ModelRequest) -> str:
    return next(one.text for one in reversed(request.messages) if isinstance(one, UserMessage))


def results_in(request: ModelRequest) -> list[ToolResult]:
    return [one for one in request.messages if isinstance(one, ToolResult)]


def assembled(events: Sequence[Any]) -> dict[str, str]:
    """The messages that a client has on its screen: deltas put together, discarded ones taken away."""
    shown: dict[str, str] = {}
    for event in events:
        if event.type == "message.delta":
            so_far = shown.get(event.data["message_id"], "")
            assert event.data["offset"] == len(so_far), "no gap and no double in a text"
            shown[event.data["message_id"]] = so_far + event.data["text"]
        elif event.type == "message.discarded":
            shown.pop(event.data["message_id"], None)
        elif event.type == "message.completed":
            shown[event.data["message"]["id"]] = event.data["message"]["text"]
    return shown


@dataclass
class Stage:
    """What all worlds of one test share.

    Attributes:
        wire: The wire format.
        folder: The app's folder.
        connect: Makes a client of a server.
        follow: Makes a reader of a run at a server.
        until: Waits for a condition.
        model: The strict model server.
        server: The server that is asked now.
        scripts: What the model says to each message.
    """

    wire: str
    folder: Any
    connect: Callable[[Any], Any]
    follow: Callable[..., Any]
    until: Callable[..., Any]
    model: Any = None
    server: Any = None
    scripts: dict[str, ScriptPlayer] = field(default_factory=dict)

    async def play(self, request: ModelRequest) -> ScriptedReply | ScriptedFailure:
        """Answer from the script of the person's last words."""
        text = last_text(request)
        if text not in self.scripts:
            return ScriptedFailure(status=418, text=f"nobody wrote what to say to {text!r}")
        return await self.scripts[text].next(request)


class World:
    """One case's view: its conversations, what was asked about them, what is told of them.

    Attributes:
        name: The case's name, which all its messages begin with.
    """

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.folder = stage.folder
        self.until = stage.until
        self._apis: dict[str, Any] = {}

    @property
    def api(self) -> Any:
        """A client of the server that is there now, for this case alone."""
        url = self.stage.server.url
        if url not in self._apis:
            self._apis[url] = self.stage.connect(self.stage.server)
        return self._apis[url]

    def script(self, text: str, replies: Any) -> str:
        """Write what the model says to a message of this case; return the message."""
        message = f"{self.name}: {text}"
        self.stage.scripts[message] = ScriptPlayer(replies)
        return message

    def ask(self, agent: str, text: str, replies: Any, **body: Any) -> Any:
        """Send a message that is answered so; return its run."""
        return self.api.submit(agent, self.script(text, replies), **body)

    def go_on(self, run: Mapping[str, Any], text: str = "go on") -> ModelRequest:
        """Say more in the conversation of a run, which is answered; return the request that was made for it."""
        again = self.ask(run["agent"], text, ["Yes."], conversation_id=run["conversation_id"], wait=15)
        assert (again["status"], again["output"]) == ("completed", "Yes."), again
        [request] = self.requests(text)
        return request

    def waiting(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What a run waits for, when it does."""
        found: list[dict[str, Any]] = self.api.until_status(run["id"], "waiting", "failed", "completed")["waiting_for"]
        assert found, self.api.run(run["id"])
        return found

    def ended(self, run: Mapping[str, Any], output: str | None = None, status: str = "completed") -> dict[str, Any]:
        """The run when it has ended, as it should."""
        found: dict[str, Any] = self.api.until_status(run["id"], timeout=25)
        assert found["status"] == status, found
        assert output is None or found["output"] == output, found
        return found

    def reader(self, run: Mapping[str, Any]) -> Any:
        return self.stage.follow(self.stage.server, run)

    def requests(self, text: str) -> list[ModelRequest]:
        """What the model was asked about a message of this case."""
        return [one for one in list(self.stage.model.requests) if last_text(one) == f"{self.name}: {text}"]

    def errors(self, results: Sequence[ToolResult]) -> list[bool] | None:
        """Which of these were marked as errors; None where the wire format has no such mark."""
        return [one.is_error for one in results] if self.stage.wire == "anthropic" else None

    def calls(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The calls of a run as its conversation tells them."""
        messages = self.api.messages(run["agent"], run["conversation_id"])
        return [call for one in messages if one["run_id"] == run["id"] for call in one["calls"]]

    def types(self, run: Mapping[str, Any]) -> list[str]:
        return [event.type for event in self.api.events(run["id"])]

    def ledger(self, what: str, run: Mapping[str, Any], **match: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.folder.ledger(what, run=run["id"], **match)
        return found


class Cases:
    """All cases of one test, each played up to the same point at the same time; what fails is told at the end."""

    def __init__(self, stage: Stage, cases: Mapping[str, Case]) -> None:
        self._playing = {name: case(World(stage, name)) for name, case in cases.items()}
        self.failures: dict[str, str] = {}

    def play_on(self, *, to_the_end: bool = False) -> None:
        """Play each case up to its next point."""
        with ThreadPoolExecutor(_TOGETHER) as threads:
            list(threads.map(lambda name: self._play(name, to_the_end), list(self._playing)))

    def _play(self, name: str, to_the_end: bool) -> None:
        ended = object()
        try:
            reached = next(self._playing[name], ended)
            assert (reached is ended) == to_the_end, "a case yields twice"
        except Exception as error:
            self.failures[name] = "".join(format_exception(error, limit=-4))
            del self._playing[name]
