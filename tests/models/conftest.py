"""What the tests of models share: both adapters on one strict server and in one event loop, for a whole module."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from amoxi_py.errors import ModelFailed
from amoxi_py.models.anthropic import AnthropicModel
from amoxi_py.models.openai import OpenAIModel
from amoxi_py.ports.chat_model import ModelRequest, Reply, TextDelta, ToolSpec, UserMessage
from amoxi_py.testing import StrictModelServer

KEY = "sk-test-0123456789"
TOOL = ToolSpec(
    name="lookup_order",
    description="Look up an order.",
    parameters={
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "place": {"type": "array", "prefixItems": [{"type": "number"}]}},
    },
)
REQUEST = ModelRequest(instructions="Be kind.", messages=(UserMessage(text="Where is A-1001?"),), tools=(TOOL,))
NAMES = {"openai": "gpt-5-mini", "anthropic": "claude-sonnet-5-5"}

Item = TextDelta | Reply | ModelFailed


class Stage:
    """A strict server that plays one item at a time, and the adapters that ask it."""

    def __init__(self, server: StrictModelServer, runner: asyncio.Runner, playing: list[Any]) -> None:
        self.server = server
        self.run = runner.run
        self.playing = playing
        self._models: dict[str, Any] = {}
        self._made: list[Any] = []

    def model(self, wire: str, name: str | None = None, *, key: str = KEY, url: str | None = None, **more: Any) -> Any:
        """Return a new adapter, which is closed at the end; `more` are its options and its timeout."""
        if wire == "openai":
            made: Any = OpenAIModel(name or NAMES[wire], key, url or self.server.url, **more)
        else:
            made = AnthropicModel(name or NAMES[wire], key, url or self.server.anthropic_url, **more)
        self._made.append(made)
        return made

    def ask(self, wire: str, item: Any, request: ModelRequest = REQUEST, *, model: Any = None) -> list[Item]:
        """Return all that comes of a request that is answered with an item of a script."""
        if model is None:
            model = self._models.setdefault(wire, self.model(wire))
        self.playing[:] = [item]
        return self.run(self.collect(model, request))  # type: ignore[no-any-return] # a runner's own types

    def reply(self, wire: str, item: Any, request: ModelRequest = REQUEST, *, model: Any = None) -> Reply:
        """Return the reply to a request."""
        last = self.ask(wire, item, request, model=model)[-1]
        assert isinstance(last, Reply), last
        return last

    def failure(self, wire: str, item: Any, request: ModelRequest = REQUEST, *, model: Any = None) -> ModelFailed:
        """Return what a request failed with; no reply has come before it."""
        items = self.ask(wire, item, request, model=model)
        assert isinstance(items[-1], ModelFailed), items
        assert not any(isinstance(part, Reply) for part in items)
        return items[-1]

    @property
    def body(self) -> Any:
        """The body of the last request."""
        return json.loads(self.server.bodies[-1])

    @staticmethod
    async def collect(model: Any, request: ModelRequest) -> list[Item]:
        items: list[Item] = []
        try:
            async for item in model.stream(request):
                items.append(item)  # noqa: PERF401 - what came before a failure counts
        except ModelFailed as failed:
            items.append(failed)
        return items

    def close(self) -> None:
        for model in self._made:
            self.run(model.aclose())


@pytest.fixture(scope="module")
def _stage() -> Iterator[Stage]:
    playing: list[Any] = []
    with StrictModelServer(lambda _: playing[0]) as server, asyncio.Runner() as runner:
        stage = Stage(server, runner, playing)
        yield stage
        stage.close()


@pytest.fixture
def stage(_stage: Stage) -> Iterator[Stage]:
    """A stage whose server has refused nothing at the end, unless the test has looked at it and cleared it."""
    server = _stage.server
    server.streams, server.openai.one_index, server.openai.reasoning = True, False, "reasoning_content"
    server.openai.like = None
    yield _stage
    refused, server.refused[:] = list(server.refused), []
    assert refused == []


@pytest.fixture(params=["openai", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """The wire formats, one after the other."""
    name: str = request.param
    return name
