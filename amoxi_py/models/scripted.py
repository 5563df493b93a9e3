"""The scripted model: answers from a script, at once, and refuses every request that a real provider would refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256

from amoxi_py.errors import ModelFailed
from amoxi_py.models.failures import failure_of_status, no_room_for_words
from amoxi_py.models.history import check_messages, check_request
from amoxi_py.models.kept import keep, read_kept
from amoxi_py.models.script import (
    NO_REPLY_LEFT,
    Script,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
    ScriptedThinking,
    ScriptPlayer,
)
from amoxi_py.ports.chat_model import AssistantMessage, CallRequest, ModelRequest, Reply, TextDelta

_ENDINGS: dict[str, tuple[str, bool, str]] = {
    "cut": ("model_stream_cut", True, "the scripted connection was cut"),
    "unfinished": ("model_stream_cut", True, "the scripted stream ended without saying that the reply is whole"),
    "error": ("model_unavailable", True, "the scripted stream held an error"),
    "bad_json": ("model_stream_cut", True, "a piece of the scripted stream is no JSON"),
    "html": ("model_unavailable", True, "the scripted answer is a page in place of a reply"),
    "empty_body": ("model_stream_cut", True, "the scripted answer is empty"),
    "content_filter": ("model_content_filtered", False, "the scripted reply was filtered"),
}


class ScriptedModel:
    """A model that plays a script; it is itself the strict validator of everything that it is asked.

    Args:
        script: What it says.
        record: Whether to keep the requests.
        strict: Whether to look at every request; only a benchmark has a reason not to.

    Attributes:
        requests: What it was asked, in order.
        refused: What was wrong with the requests that it refused, also when the script has no reply left; a test ends
            with this empty.
    """

    def __init__(self, script: Script, *, record: bool = True, strict: bool = True) -> None:
        self.requests: list[ModelRequest] = []
        self.refused: list[str] = []
        self._player = ScriptPlayer(script)
        self._record = record
        self._strict = strict
        self._good: ModelRequest | None = None

    @property
    def name(self) -> str:
        return "scripted"

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        if self._record:
            self.requests.append(request)
        if self._strict:
            self._refuse_bad(request)
        answer = await self._player.next(request)
        if isinstance(answer, ScriptedFailure):
            if answer.status == NO_REPLY_LEFT:
                self.refused.append(answer.text)
            raise failure_of_status(answer.status, answer.text, reason=answer.reason, retry_after=answer.retry_after)
        texts: list[str] = []
        calls: list[CallRequest] = []
        thoughts: list[str] = []
        for part in answer.parts:
            if isinstance(part, str):
                if part:
                    texts.append(part)
                    yield TextDelta(text=part)
            elif isinstance(part, ScriptedCall):
                calls.append(
                    CallRequest(
                        id=f"call_{len(calls) + 1}" if part.id is None else part.id,
                        name=part.name,
                        arguments=part.arguments,
                    )
                )
            elif isinstance(part, ScriptedThinking):
                thoughts.append(part.text)
            else:
                await part.wait()
        kept = keep(self.name, self.name, {"thinking": thoughts, "signature": _sign(thoughts)}) if thoughts else None
        yield _finish(answer, "".join(texts), tuple(calls), kept)

    def _refuse_bad(self, request: ModelRequest) -> None:
        # an agent's tools and instructions are the same each time: looked at once
        if (
            self._good is not None
            and request.tools == self._good.tools
            and request.instructions == self._good.instructions
        ):
            problems = check_messages(request.messages)
        else:
            problems = check_request(request)
            if not problems:
                self._good = request
        problems += self._check_kept(request)
        if problems:
            self.refused.extend(problems)
            raise ModelFailed(
                "a real provider refuses this request: " + "; ".join(problems), code="model_refused", retryable=False
            )

    def _check_kept(self, request: ModelRequest) -> list[str]:
        return [
            f"messages[{index}]: the reasoning is not as it was given out"
            for index, message in enumerate(request.messages)
            if isinstance(message, AssistantMessage)
            and (own := read_kept(message.kept, self.name, self.name)) is not None
            and own.get("signature") != _sign(own.get("thinking"))
        ]


def _sign(thoughts: object) -> str:
    """Return a signature that any process can check: a run may be resumed in another one."""
    return sha256(repr(thoughts).encode()).hexdigest()[:16]


def _finish(answer: ScriptedReply, text: str, calls: tuple[CallRequest, ...], kept: str | None) -> Reply:
    if answer.ending in _ENDINGS:
        code, retryable, why = _ENDINGS[answer.ending]
        told = answer.usage if answer.ending == "content_filter" else None
        raise ModelFailed(why, code=code, retryable=retryable, usage=told)
    if not text.strip() and not calls:
        failed = no_room_for_words() if answer.ending == "length" else None
        failed = failed or ModelFailed("the scripted reply has neither text nor calls", code="model_empty_reply")
        failed.usage = answer.usage
        raise failed
    return Reply(text=text, calls=calls, usage=answer.usage, cut=answer.ending == "length", kept=kept)
