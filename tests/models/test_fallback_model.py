"""A chain of models: who is asked after whom, and what a run is told when nobody can answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from amoxi_py.errors import ModelFailed
from amoxi_py.models.fallback import FallbackModel
from amoxi_py.ports.chat_model import ModelRequest, Reply, TextDelta, UserMessage


class Named:
    """A model that gives what it was made with, one thing a request, and the last one from then on."""

    def __init__(self, name: str, *answers: str | ModelFailed | tuple[str, ModelFailed]) -> None:
        self.name = name
        self.answers = list(answers)
        self.asked = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, tuple):
            yield TextDelta(text=answer[0])
            raise answer[1]
        if isinstance(answer, ModelFailed):
            raise answer
        yield TextDelta(text=answer)
        yield Reply(text=answer)


def failed(code: str, *, retryable: bool = True, retry_after: float | None = None) -> ModelFailed:
    return ModelFailed("no", code=code, retryable=retryable, retry_after=retry_after)


def ask(chain: FallbackModel, failures: int = 0) -> tuple[str, Reply | ModelFailed]:
    async def read() -> tuple[str, Reply | ModelFailed]:
        said = ""
        request = ModelRequest(instructions="", messages=(UserMessage(text="Hi"),), failures=failures)
        try:
            async for item in chain.stream(request):
                if isinstance(item, Reply):
                    return said, item
                said += item.text if isinstance(item, TextDelta) else ""
        except ModelFailed as error:
            return said, error
        raise AssertionError("neither a reply nor a failure")

    return asyncio.run(read())


@pytest.mark.parametrize(
    "code",
    [
        "model_unavailable",
        "model_rate_limited",
        "model_timeout",
        "model_stream_cut",
        "model_empty_reply",
        "model_key_refused",
        "model_quota_exhausted",
        "model_unknown",
        "model_context_too_long",
    ],
)
def test_the_next_model_is_asked_at_once_when_one_cannot_answer(code: str) -> None:
    first, second = Named("a:1", failed(code, retryable=False, retry_after=60)), Named("b:1", "Hello.")
    said, reply = ask(FallbackModel([first, second]))
    assert (said, reply) == ("Hello.", Reply(text="Hello.", model="b:1"))


@pytest.mark.parametrize("code", ["model_refused", "model_content_filtered", "model_out_of_reach"])
def test_no_other_model_is_asked_what_one_has_refused_or_filtered(code: str) -> None:
    first, second = Named("a:1", failed(code, retryable=False)), Named("b:1", "Hello.")
    _, error = ask(FallbackModel([first, second]))
    assert isinstance(error, ModelFailed)
    assert (error.code, error.retryable, second.asked) == (code, False, 0)


def test_words_that_were_shown_end_the_try_and_the_next_try_begins_with_the_next_model() -> None:
    chain = FallbackModel([Named("a:1", ("Hel", failed("model_stream_cut"))), Named("b:1", "Hello.")])
    said, error = ask(chain)
    assert isinstance(error, ModelFailed)
    assert (said, error.retryable, error.retry_after) == ("Hel", True, None)
    assert ask(chain, failures=1) == ("Hello.", Reply(text="Hello.", model="b:1"))


def test_a_last_failure_after_words_is_tried_again_only_if_a_model_is_left_that_was_not_asked() -> None:
    def quota() -> Named:
        return Named("m", ("Hel", failed("model_quota_exhausted", retryable=False)))

    for failures, retryable in ((0, True), (1, False)):
        _, error = ask(FallbackModel([quota(), quota()]), failures=failures)
        assert isinstance(error, ModelFailed)
        assert (error.code, error.retryable) == ("model_quota_exhausted", retryable)


def test_when_nobody_can_answer_the_failure_is_one_that_may_pass_and_waits_as_short_as_any_asked() -> None:
    busy = [failed("model_rate_limited", retry_after=seconds) for seconds in (30, 9)]
    chain = FallbackModel(
        [Named("a", busy[0]), Named("b", busy[1]), Named("c", failed("model_unknown", retryable=False))]
    )
    _, error = ask(chain)
    assert isinstance(error, ModelFailed)
    assert (error.code, error.retryable, error.retry_after) == ("model_rate_limited", True, 9)
    assert all(f"{name}: no" in str(error) for name in "abc")

    _, error = ask(FallbackModel([Named("a", busy[0]), Named("b", failed("model_unavailable"))]))
    assert isinstance(error, ModelFailed)
    assert error.retry_after is None

    keys = [Named(name, failed("model_key_refused", retryable=False)) for name in "ab"]
    _, error = ask(FallbackModel(keys))
    assert isinstance(error, ModelFailed)
    assert (error.code, error.retryable) == ("model_key_refused", False)


def test_a_model_that_was_away_is_asked_after_the_others_for_as_long_as_it_asked_for() -> None:
    now = [100.0]
    first = Named("a", failed("model_rate_limited", retry_after=30), "From a.")
    second = Named("b", "From b.", failed("model_unavailable"))
    chain = FallbackModel([first, second], now=lambda: now[0])
    assert ask(chain)[0] == "From b."
    now[0] += 29
    assert ask(chain)[0] == "From a."  # b was asked first, and failed
    assert (first.asked, second.asked) == (2, 2)
    now[0] += 2
    assert ask(chain)[0] == "From a."
    assert second.asked == 2


def test_a_stream_without_an_end_is_a_failure_and_closing_the_chain_closes_the_models_stream() -> None:
    closed = []

    class Silent(Named):
        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
            try:
                yield TextDelta(text="...")
                if request.failures:
                    await asyncio.Event().wait()
            finally:
                closed.append(self.name)

    _, error = ask(FallbackModel([Silent("a"), Silent("b")]))
    assert isinstance(error, ModelFailed)
    assert error.code == "model_stream_cut"

    async def leave() -> None:
        request = ModelRequest(instructions="", messages=(UserMessage(text="Hi"),), failures=1)
        stream = FallbackModel([Silent("a"), Silent("b")]).stream(request)
        async for item in stream:
            if isinstance(item, TextDelta):
                break
        await stream.aclose()  # type: ignore[attr-defined] - it is a generator

    closed.clear()
    asyncio.run(leave())
    assert closed == ["b"]


def test_a_chain_knows_the_smallest_window_and_closes_all_of_its_models() -> None:
    closed = []

    class Closing(Named):
        window = 1000

        async def aclose(self) -> None:
            closed.append(self.name)

    chain = FallbackModel([Closing("a", "x"), Named("b", "x"), Closing("c", "x")])
    asyncio.run(chain.aclose())
    assert (chain.name, chain.window, closed) == ("a, b, c", 1000, ["a", "c"])
    assert FallbackModel([Named("b", "x")]).window is None
