"""The scripted model: answers from a script, at once, and refuses every request that a real provider would refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator

from amoxi_py.errors import ModelFailed
from amoxi_py.models.failures import failure_of_status
from amoxi_py.models.history import check_messages, check_request
from amoxi_py.models.script import NO_REPLY_LEFT, Script, ScriptedCall, ScriptedFailure, ScriptedReply, ScriptPlayer
from amoxi_py.ports.chat_model import CallRequest, ModelRequest, Reply, TextDelta

_ENDINGS: dict[str, tuple[str, bool, str]] = {
    "cut": ("model_stream_cut", True, "the scripted connection was cut"),
    "unfinished": ("model_stream_cut", True, "the scripted stream ended without saying that the reply is whole"),
    "error": ("model_unavailable", True, "the scripted stream held an error"),
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
            else:
                await part.wait()
        yield _finish(answer, "".join(texts), tuple(calls))

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
        if problems:
            self.refused.extend(problems)
            raise ModelFailed(
                "a real provider refuses this request: " + "; ".join(problems), code="model_refused", retryable=False
            )


def _finish(answer: ScriptedReply, text: str, calls: tuple[CallRequest, ...]) -> Reply:
    if answer.ending in _ENDINGS:
        code, retryable, why = _ENDINGS[answer.ending]
        raise ModelFailed(why, code=code, retryable=retryable)
    if not text.strip() and not calls:
        raise ModelFailed("the scripted reply has neither text nor calls", code="model_empty_reply")
    return Reply(text=text, calls=calls, usage=answer.usage, cut=answer.ending == "length")
