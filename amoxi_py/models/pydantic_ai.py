"""The adapter to every other provider: pydantic-ai's model layer, asked for one reply at a time.

Of pydantic-ai only the models are used: no agent of it, none of its retries. What it gives of a reply besides text and
calls, such as signed reasoning, is kept and given back to the same model.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any, cast

import httpx2
import pydantic_ai.exceptions as errors
from pydantic_ai import messages as pai
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse, infer_model
from pydantic_ai.tools import ToolDefinition

from amoxi_py.domain.encoding import clean_text
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ConfigError, ModelFailed
from amoxi_py.models.failures import failure_of_status, log_text, no_room_for_words
from amoxi_py.models.loopback import check_reach
from amoxi_py.models.options import longest, request_options
from amoxi_py.models.patience import Patience
from amoxi_py.models.prices import window_of
from amoxi_py.models.pydantic_ai_history import keep, write_messages, write_settings
from amoxi_py.ports.chat_model import CallRequest, ModelRequest, Reply, TextDelta

_IN_THIS_PROCESS = frozenset({"function", "test"})  # pydantic-ai's own models for tests
_CATEGORIES: tuple[tuple[type[Exception], str, bool], ...] = (
    (errors.ModelContextWindowExceededError, "model_context_too_long", False),
    (errors.ModelQuotaExceededError, "model_quota_exhausted", False),
    (errors.ModelAuthenticationError, "model_key_refused", False),
    (errors.ModelNotFoundError, "model_unknown", False),
    (errors.ModelRateLimitError, "model_rate_limited", True),
    (errors.ModelTimeoutError, "model_timeout", True),
    (errors.ContentFilterError, "model_content_filtered", False),
    (errors.UserError, "model_refused", False),
)


def model_by_name(spec: str, environ: Mapping[str, str]) -> PydanticAIModel:
    """Return the model of a name such as `groq:<model>`; its key is where its provider's package looks for it.

    Raises:
        ConfigError: there is no such provider, or its key or package is missing.
    """
    try:
        with _in_environment(environ):
            model = infer_model(spec)
    except (errors.UserError, ImportError, ValueError) as error:
        text = log_text(str(error))
        raise ConfigError(f"the model {spec!r} cannot be used through pydantic-ai: {text}") from error
    return PydanticAIModel(model, name=spec)


class PydanticAIModel:
    """A model of pydantic-ai.

    Args:
        model: What pydantic-ai asks with.
        name: What it is called, when not as pydantic-ai calls it.
    """

    def __init__(self, model: Model[Any], *, name: str | None = None) -> None:
        self._model = model
        self._name = name
        self._entered = False
        self._entering: asyncio.Lock | None = None

    @property
    def name(self) -> str:
        return self._name or f"{self._model.system}:{self._model.model_name}"

    @property
    def window(self) -> int | None:
        """Tokens that the model takes, where that is known."""
        return self._model.profile.get("context_window") or window_of(self.name)

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two of these the same: the name, when it was made of one, else the model of pydantic-ai."""
        return ("pydantic-ai", id(self._model)) if self._name is None else ("pydantic-ai", self._name)

    async def aclose(self) -> None:
        """Close the connections that were opened here; the model may be used again after it."""
        if self._entered:
            self._entered, self._entering = False, None
            await self._model.__aexit__(None, None, None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        if self._model.system not in _IN_THIS_PROCESS:
            check_reach(self.name, self._model.base_url)
        options = request_options({}, request.options)
        await self._enter()
        patience = Patience(longest(options), longest(options))
        tools = [
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
                strict=False,
            )
            for tool in request.tools
        ]
        started = False
        try:
            async with AsyncExitStack() as stack:
                asked = model_request_stream(
                    self._model,
                    write_messages(request, self.name),
                    model_settings=cast(Any, write_settings(options)),
                    model_request_parameters=ModelRequestParameters(function_tools=tools),
                )
                stream = await patience.wait(stack.enter_async_context(asked))
                events = aiter(stream)
                while (event := await patience.wait(anext(events, None))) is not None:
                    started = True
                    text = _text_of(event)
                    if text:
                        yield TextDelta(text=text)
                reply = self._reply(stream)
        except (errors.AgentRunError, errors.UserError, httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise _failure(error, started) from error
        yield reply

    async def _enter(self) -> None:
        if self._entered:
            return
        if self._entering is None:
            self._entering = asyncio.Lock()
        async with self._entering:
            if not self._entered:
                await self._model.__aenter__()
                self._entered = True

    def _reply(self, stream: StreamedResponse) -> Reply:
        response = stream.get()
        ended = response.finish_reason or ("stop" if self._model.system in _IN_THIS_PROCESS else None)
        if ended is None or response.state != "complete" or _made_up(stream):
            raise ModelFailed("the stream ended without saying that the reply is whole", code="model_stream_cut")
        used = _usage(response)
        if ended == "content_filter":
            raise ModelFailed(
                "the provider filtered the reply", code="model_content_filtered", retryable=False, usage=used
            )
        if ended == "error":
            raise ModelFailed("the provider ended the reply with an error", code="model_unavailable", usage=used)
        text = "".join(part.content for part in response.parts if isinstance(part, pai.TextPart))
        calls = [part for part in response.parts if isinstance(part, pai.ToolCallPart)]
        if not calls and not text.strip():
            if ended == "length":
                failure = no_room_for_words()
                failure.usage = used
                raise failure
            said = f"the reply has neither text nor calls (it ended with {ended!r})"
            raise ModelFailed(said, code="model_empty_reply", usage=used)
        return Reply(
            text=clean_text(text),
            calls=tuple(
                CallRequest(
                    id=call.tool_call_id,
                    name=clean_text(call.tool_name),
                    arguments=clean_text(call.args_as_json_str() if call.args else ""),
                )
                for call in calls
            ),
            usage=used,
            cut=ended == "length",
            kept=keep(response, self.name),
        )


def _usage(response: pai.ModelResponse) -> Usage:
    used = response.usage
    return Usage(
        requests=1,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        written_tokens=used.cache_write_tokens,
    )


def _made_up(stream: StreamedResponse) -> bool:
    """Whether pydantic-ai says why the reply ended, and its provider did not: it takes a cut stream for a whole one."""
    told = getattr(stream, "_has_finish_reason", True) or getattr(stream, "_has_refusal", False)
    return not told


def _text_of(event: object) -> str:
    if isinstance(event, pai.PartStartEvent) and isinstance(event.part, pai.TextPart):
        return event.part.content
    if isinstance(event, pai.PartDeltaEvent) and isinstance(event.delta, pai.TextPartDelta):
        return event.delta.content_delta
    return ""


def _failure(error: Exception, started: bool) -> ModelFailed:
    asked = getattr(error, "retry_after", None)
    text = log_text(f"{type(error).__name__}: {error}")
    if isinstance(error, TimeoutError):
        return ModelFailed(text, code="model_timeout")
    for kind, code, retryable in _CATEGORIES:
        if isinstance(error, kind):
            return ModelFailed(text, code=code, retryable=retryable, retry_after=asked if retryable else None)
    if isinstance(error, errors.ModelHTTPError):
        reason = error.provider_error_code or error.provider_error_type
        return failure_of_status(error.status_code, text, reason=reason, retry_after=asked)
    if isinstance(error, errors.ModelAPIError) and error.in_stream:
        return ModelFailed(text, code="model_unavailable", retry_after=asked)
    return ModelFailed(text, code="model_stream_cut" if started else "model_unavailable", retry_after=asked)


@contextmanager
def _in_environment(environ: Mapping[str, str]) -> Iterator[None]:
    """Let what a provider's package reads from the environment be there, also what only a `.env` holds.

    A blank address is none, whatever the package makes of it.
    """
    missing = {name: text for name, text in environ.items() if text and name not in os.environ}
    blank = {name: text for name, text in os.environ.items() if name.endswith("_BASE_URL") and not text.strip()}
    for name in blank:
        del os.environ[name]
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
        os.environ.update(blank)
