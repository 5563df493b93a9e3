"""Scripts: what a model of tests says; the scripted model and the strict model server play the same ones.

A script is a list of replies, or such lists by the person's last message, or a function of the request. Which reply of
a list comes next is told by the request alone: the number of assistant messages after the person's last one. So a run
that another process takes over is answered as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, Protocol

from amoxi_py.domain.usage import Usage
from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, UserMessage

Ending = Literal[
    "finished",
    "length",
    "content_filter",
    "no_done",
    "late_cut",
    "unfinished",
    "cut",
    "error",
    "bad_json",
    "wrong_type",
    "html",
    "empty_body",
]
ANYTHING = "*"
NO_REPLY_LEFT = 418
"""The status of a request for which the script has no reply."""
USAGE = Usage(requests=1, input_tokens=10, output_tokens=5)
_WORD = re.compile(r"\s*\S+\s*")


class Waitable(Protocol):
    """Something to wait for in the middle of a reply: a `Gate`, a `pause`, an `asyncio.Event` of the same loop."""

    async def wait(self) -> Any:
        """Return when the reply may go on."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A call in a scripted reply; `arguments` is the raw text, so that it can be bad JSON; `id` None is given one."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedThinking:
    """Reasoning in a scripted reply, which is never shown; `redacted` has the provider hide it from the client too."""

    text: str
    redacted: bool = False


Part = str | ScriptedCall | ScriptedThinking | Waitable


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One reply: its parts in the order they are streamed, and how it ends."""

    parts: tuple[Part, ...]
    ending: Ending = "finished"
    usage: Usage = USAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedFailure:
    """A request that the provider answers with an HTTP status in place of a reply; `reason` is its own code for it."""

    status: int
    text: str = "scripted failure"
    reason: str | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """Replies to the first, second, ... try of one and the same request; the last one answers all later tries."""

    replies: tuple[ScriptItem, ...]


ScriptItem = str | ScriptedCall | ScriptedThinking | ScriptedReply | ScriptedFailure | Tries | Sequence[Any]
Ready = ScriptedReply | ScriptedFailure | Tries
ScriptFunction = Callable[[ModelRequest], ScriptItem | Awaitable[ScriptItem]]
Script = Sequence[ScriptItem] | Mapping[str, Sequence[ScriptItem]] | ScriptFunction


def call(tool: str, /, **arguments: Any) -> ScriptedCall:
    """Return a call of a tool."""
    return ScriptedCall(name=tool, arguments=json.dumps(arguments))


def raw_call(tool: str, arguments: str, id: str | None = None) -> ScriptedCall:
    """Return a call whose arguments are exactly this text, and whose id is exactly this one."""
    return ScriptedCall(name=tool, arguments=arguments, id=id)


def thinking(text: str, *, redacted: bool = False) -> ScriptedThinking:
    """Return reasoning of the model, as a part of a reply."""
    return ScriptedThinking(text=text, redacted=redacted)


def slowly(text: str, seconds: float = 0.05) -> ScriptedReply:
    """Return a reply whose words come one by one, with this pause before each."""
    return ScriptedReply(parts=tuple(part for word in _WORD.findall(text) for part in (Pause(seconds), word)))


def reply(*parts: Part, usage: Usage = USAGE) -> ScriptedReply:
    """Return a reply that is streamed in these parts."""
    return ScriptedReply(parts=parts, usage=usage)


def broken(*parts: Part, ending: Ending = "cut", usage: Usage = USAGE) -> ScriptedReply:
    """Return a reply that ends badly after these parts.

    Endings: `cut` (the connection is lost), `unfinished` (the stream ends and nothing says that it is whole), `error`
    (an error object in the stream), `length` (the token limit), `content_filter`, `no_done` (whole, without the marker
    that comes last), `late_cut` (whole, but the connection is lost before that marker), `bad_json` (a piece that is no
    JSON), `wrong_type` (whole, under the content type of plain text), `html` (a page with status 200 in place of the
    reply), `empty_body` (nothing with status 200). `usage` is told by those that come so far.
    """
    return ScriptedReply(parts=parts, ending=ending, usage=usage)


def fail(
    status: int, *, text: str = "scripted failure", reason: str | None = None, retry_after: float | None = None
) -> ScriptedFailure:
    """Return an answer with this HTTP status."""
    return ScriptedFailure(status=status, text=text, reason=reason, retry_after=retry_after)


def tries(*replies: ScriptItem) -> Tries:
    """Return replies to the first, second, ... try of the same request, as this process has seen them."""
    return Tries(replies=replies)


@dataclass(frozen=True, slots=True)
class Pause:
    """A wait of some seconds."""

    seconds: float

    async def wait(self) -> None:
        """Return after the seconds."""
        await asyncio.sleep(self.seconds)


def pause(seconds: float) -> Pause:
    """Return a wait of some seconds in the middle of a reply."""
    return Pause(seconds)


class Gate:
    """A place where a reply stops until the test opens it; works across threads and event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._reached = threading.Event()

    def open(self) -> None:
        """Let everything pass that waits, and everything that comes."""
        with self._lock:
            self._open = True
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # its loop was closed, so nobody waits there
                pass

    async def wait(self) -> None:
        """Return when the gate is open."""
        event = asyncio.Event()
        with self._lock:
            if not self._open:
                self._waiters.append((asyncio.get_running_loop(), event))
            else:
                event.set()
        self._reached.set()
        await event.wait()

    def wait_reached(self, timeout: float = 10.0) -> bool:
        """Block until a reply has come to the gate; return whether it did in time."""
        return self._reached.wait(timeout)

    async def reached(self, timeout: float = 10.0) -> bool:
        """Do the same as `wait_reached` without blocking the event loop."""
        return await asyncio.to_thread(self._reached.wait, timeout)


class ScriptPlayer:
    """Finds the reply for a request; only `tries` makes it remember anything."""

    def __init__(self, script: Script) -> None:
        self._function = script if callable(script) else None
        self._tries: dict[object, int] = {}
        self._scripts: dict[str, list[Ready]] = {}
        if isinstance(script, Mapping):
            self._scripts = {text: _ready(replies) for text, replies in script.items()}
        elif not callable(script):
            self._scripts = {ANYTHING: _ready(script)}

    async def next(self, request: ModelRequest) -> ScriptedReply | ScriptedFailure:
        """Return what answers this request; a script that has no reply for it answers with status 418."""
        if self._function is not None:
            chosen = self._function(request)
            return as_reply(await chosen if isawaitable(chosen) else chosen)
        said = 0
        text = ""
        for message in reversed(request.messages):
            if isinstance(message, AssistantMessage):
                said += 1
            elif isinstance(message, UserMessage):
                text = message.text
                break
        script = self._scripts.get(text) or self._scripts.get(ANYTHING, [])
        if said >= len(script):
            return ScriptedFailure(
                status=NO_REPLY_LEFT,
                text=f"the script has {len(script)} replies to {text!r} and was asked for number {said + 1}",
            )
        item = script[said]
        if isinstance(item, Tries):
            key = (request.messages, said)
            seen = self._tries[key] = self._tries.get(key, 0) + 1
            return as_reply(item.replies[min(seen, len(item.replies)) - 1])
        return item


def _ready(script: Sequence[ScriptItem]) -> list[Ready]:
    if isinstance(script, str):
        raise TypeError(f"{script!r} is no script; put it into a list: [{script!r}]")
    return [item if isinstance(item, Tries) else as_reply(item) for item in script]


def as_reply(item: Any) -> ScriptedReply | ScriptedFailure:
    """Return what an item of a script stands for: a text, a call, or a sequence of texts, calls and waits."""
    if isinstance(item, (ScriptedReply, ScriptedFailure)):
        return item
    if _is_part(item):
        return ScriptedReply(parts=(item,))
    if isinstance(item, Sequence) and all(map(_is_part, item)):
        return ScriptedReply(parts=tuple(item))
    raise TypeError(f"{item!r} is no reply of a script; use a text, call(...), reply(...), broken(...) or fail(...)")


def _is_part(item: Any) -> bool:
    return isinstance(item, (str, ScriptedCall, ScriptedThinking)) or hasattr(item, "wait")
