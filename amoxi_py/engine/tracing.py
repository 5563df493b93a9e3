"""Spans of runs, model requests, tools and steps, in the words of OpenTelemetry's conventions for generative AI.

Only the API is used: without an SDK that somebody has set up, nothing is made. All spans of a run are children of the
one that was current, or was made, when the run was submitted, on whichever servers it is executed: its context is
stored with the run. What was done before a crash has its span already and gets no other; the run's own is made when it
ends, once. No text of people, models or tools is in a span.

Source: https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from amoxi_py.declare.context import RunContext
from amoxi_py.domain.run import Run, RunStatus
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ModelFailed
from amoxi_py.ports.chat_model import Asked, Reply

_tracer = trace.get_tracer("amoxi_py")
_NO_SPAN = nullcontext(None)  # most processes trace nothing, and a generator for each span would cost them


def active() -> bool:
    """Whether anybody has set up tracing in this process."""
    return not isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider))


@contextmanager
def submitting(agent: str, run_id: str, conversation_id: str) -> Iterator[str | None]:
    """Make the span of a submission, and give its context as it is stored with the run; None without tracing."""
    if not active():
        yield None
        return
    facts = _facts(agent, run_id, conversation_id)
    with _tracer.start_as_current_span(f"submit {agent}", kind=SpanKind.PRODUCER, attributes=facts) as span:
        yield _write(span.get_span_context())


class RunSpans:
    """The spans of one run, while it is executed here. `parent` is the context that is stored with it."""

    def __init__(self, run: RunContext, *, parent: str | None) -> None:
        self._active = active()
        if self._active:
            self._agent = run.agent
            self._facts = {**_facts(run.agent, run.run_id, run.conversation_id), "amoxi.run.attempt": run.attempt}
            self._parent = _read(parent)

    def model(self, name: str) -> AbstractContextManager[ModelSpan | None]:
        """Make the span of a request to a model, such as `openai:gpt-5`."""
        return self._model(name) if self._active else _NO_SPAN

    def tool(self, call: ToolCall) -> AbstractContextManager[ToolSpan | None]:
        """Make the span of one execution of a call, with all its tries; the tool's own code runs inside of it."""
        return self._tool(call) if self._active else _NO_SPAN

    @contextmanager
    def _model(self, name: str) -> Iterator[ModelSpan]:
        facts = {**self._facts, "gen_ai.operation.name": "chat", "gen_ai.request.stream": True}
        with ModelSpan(name, lambda name, more: self._span(name, SpanKind.CLIENT, {**facts, **more})) as span:
            yield span

    @contextmanager
    def _tool(self, call: ToolCall) -> Iterator[ToolSpan]:
        with self._span(f"execute_tool {call.tool}", SpanKind.INTERNAL, {**self._facts, **_of_call(call)}) as span:
            yield ToolSpan(span)

    def ended(self, run: Run) -> None:
        """Make the span of a whole run, from its submission to its end."""
        if not self._active:
            return
        facts = {
            **self._facts,
            "gen_ai.operation.name": "invoke_agent",
            "amoxi.run.status": run.status.value,
            **_usage(run.usage),
        }
        span = _tracer.start_span(
            f"invoke_agent {self._agent}",
            context=self._parent,
            kind=SpanKind.INTERNAL,
            attributes=facts,
            start_time=int(run.created_at * 1e9),
        )
        if run.status is RunStatus.FAILED and run.error is not None:
            _failed(span, run.error.code)
        span.end(int(run.updated_at * 1e9))

    @contextmanager
    def _span(self, name: str, kind: SpanKind, facts: Mapping[str, Any]) -> Iterator[Span]:
        with _tracer.start_as_current_span(
            name,
            context=self._parent,
            kind=kind,
            attributes=facts,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except ModelFailed as error:
                _failed(span, error.code)
                raise
            except BaseException as error:
                _failed(span, type(error).__qualname__)
                raise


class ModelSpan:
    """The span of a request to a model; a chain has one for each of its models that is really asked.

    Args:
        name: Of the model, as far as it is known.
        make: Makes a span of this name with these attributes.
    """

    def __init__(self, name: str, make: Callable[[str, dict[str, Any]], AbstractContextManager[Span]]) -> None:
        self._name = name
        self._make = make
        self._open = ExitStack()

    def __enter__(self) -> ModelSpan:
        self._begin(self._name)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._open.__exit__(*raised)

    def asking(self, asked: Asked) -> None:
        """Note which model is asked from now on."""
        if asked.failed is None:
            name, facts = _request(asked.model)
            self._span.update_name(name)
            self._span.set_attributes(facts)
            return
        _failed(self._span, asked.failed.code)
        self._open.close()
        self._begin(asked.model)

    def _begin(self, model: str) -> None:
        self._span = self._open.enter_context(self._make(*_request(model)))

    def answered(self, reply: Reply) -> None:
        """Note what the reply was, but for its words."""
        reason = "length" if reply.cut else "tool_calls" if reply.calls else "stop"
        facts = {**_usage(reply.usage), "gen_ai.response.finish_reasons": [reason]}
        if reply.model is not None:
            provider, _, model = reply.model.partition(":")
            facts["gen_ai.response.model"] = model or provider
        self._span.set_attributes(facts)


class ToolSpan:
    """The span of an execution of a call."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def waits(self, kind: str) -> None:
        """Note that this was not the whole execution: the tool runs again when what it waits for is over."""
        self._span.update_name(f"wait_for {kind}")
        self._span.set_attributes({"gen_ai.operation.name": "wait_for", "amoxi.wait.kind": kind})

    def settled(self, call: ToolCall) -> None:
        """Note what the call came to."""
        self._span.set_attributes({"amoxi.call.status": call.status.value, "amoxi.call.tries": call.tries})
        if call.status is not CallStatus.DONE:
            _failed(self._span, f"call_{call.status.value}")


def call_at_once(call: ToolCall) -> AbstractContextManager[ToolSpan | None]:
    """Make the span of a call that is made without a run: below the current one, such as that of the request."""
    return _call_at_once(call) if active() else _NO_SPAN


@contextmanager
def _call_at_once(call: ToolCall) -> Iterator[ToolSpan]:
    with _tracer.start_as_current_span(
        f"execute_tool {call.tool}",
        attributes=_of_call(call),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield ToolSpan(span)
        except BaseException as error:
            _failed(span, type(error).__qualname__)
            raise


def step(name: str) -> AbstractContextManager[None]:
    """Make the span of a step that is taken; one that is replayed from its record has none."""
    return _step(name) if trace.get_current_span().is_recording() else _NO_SPAN


@contextmanager
def _step(name: str) -> Iterator[None]:
    with _tracer.start_as_current_span(
        f"step {name}",
        attributes={"amoxi.step.name": name},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            _failed(span, type(error).__qualname__)
            raise


def _failed(span: Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR))


def _facts(agent: str, run_id: str, conversation_id: str) -> dict[str, Any]:
    return {"gen_ai.agent.name": agent, "gen_ai.conversation.id": conversation_id, "amoxi.run.id": run_id}


def _of_call(call: ToolCall) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.id,
    }


def _request(name: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the facts of the span of a request to a model, such as `openai:gpt-5`."""
    provider, _, model = name.partition(":")
    return f"chat {model or provider}", {"gen_ai.provider.name": provider, "gen_ai.request.model": model or provider}


def _usage(usage: Usage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if usage.cached_tokens:
        told["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.written_tokens:
        told["gen_ai.usage.cache_creation.input_tokens"] = usage.written_tokens
    return told


def _write(context: SpanContext) -> str | None:
    """Return a span's context as W3C Trace Context writes it (`traceparent`)."""
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _read(parent: str | None) -> Context | None:
    if parent is None:
        return None
    _, trace_id, span_id, flags = parent.split("-")
    context = SpanContext(
        trace_id=int(trace_id, 16), span_id=int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return trace.set_span_in_context(NonRecordingSpan(context), Context())
