"""The models of a test, by agent: what each was asked is kept, and how it failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing

from amoxi_py.errors import ModelFailed
from amoxi_py.models.scripted import ScriptedModel
from amoxi_py.ports.chat_model import Asked, ChatModel, ModelRequest, Reply, TextDelta
from amoxi_py.testing.app_under_test import AnyModel, models_of_test


class RecordingModel:
    """Stands before a model and keeps what it was asked and how it failed."""

    def __init__(self, model: ChatModel) -> None:
        self.requests: list[ModelRequest] = []
        self.failures: list[str] = []
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def window(self) -> int | None:
        """Tokens that the model takes, where that is known."""
        return getattr(self._model, "window", None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply | Asked]:
        self.requests.append(request)
        try:
            async with aclosing(self._model.stream(request)) as pieces:  # type: ignore[type-var]  # all are generators
                async for piece in pieces:
                    yield piece
        except ModelFailed as error:
            self.failures.append(str(error))
            raise

    async def aclose(self) -> None:
        """Close the model's connections, which belong to the event loop of this run."""
        close = getattr(self._model, "aclose", None)
        if close is not None:
            await close()


class RecordingModels:
    """The models of all agents of a test, each with a record of its own.

    Args:
        model: One for all agents, or some by the agent's name.
        agents: The names of all agents.
        asked: The names of those that the test may ask, which all need one.
    """

    def __init__(self, model: AnyModel | Mapping[str, AnyModel], agents: Iterable[str], asked: Iterable[str]) -> None:
        found = models_of_test(model, agents, asked)
        self.by_agent = {agent: RecordingModel(one) for agent, one in found.items()}
        scripted = {id(one): one for one in found.values() if isinstance(one, ScriptedModel)}
        self._scripted = [(one, len(one.refused)) for one in scripted.values()]

    def check(self) -> None:
        """Raise `AssertionError` when a scripted model was asked what its script or a real provider does not take."""
        refused = [problem for model, before in self._scripted for problem in model.refused[before:]]
        if refused:
            raise AssertionError("the scripted model refused: " + "; ".join(refused))
