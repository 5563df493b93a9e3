"""The embedder behind OpenAI's `/embeddings`, at OpenAI or any server that speaks the same API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amoxi_py.domain.usage import NO_USAGE, Usage
from amoxi_py.errors import ModelFailed
from amoxi_py.models.offline_embedder import as_vector
from amoxi_py.models.openai_api import OpenAIApi
from amoxi_py.ports.chat_model import Reply

DIMENSIONS: Mapping[str, int] = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
"""What the models of OpenAI give when they are not asked for another number."""
_SHORTENED = "text-embedding-3-"  # these take the wanted number of dimensions
_MOST_TEXTS = 64
_MOST_LETTERS = 100_000  # OpenAI takes 300,000 tokens in one request, and a letter is one at the most
_SILENCE_S = 60.0


class OpenAIEmbedder(OpenAIApi):
    """Vectors of a model at OpenAI's API; its key, its headers and its refusals are those of any model there.

    Args:
        model: Its name at the provider.
        dimensions: How many numbers a vector has.
        api_key: The key.
        base_url: Another server that speaks the same API, such as `http://localhost:11434/v1`.
        organization: The organization that the key acts for, where it could act for several.
        project: The project that it acts for.
    """

    _path = "/embeddings"
    lexical = False

    def __init__(
        self,
        model: str,
        dimensions: int,
        api_key: str,
        base_url: str | None = None,
        *,
        organization: str | None = None,
        project: str | None = None,
    ) -> None:
        self.dimensions = dimensions
        super().__init__(model, api_key, base_url, None, _SILENCE_S, organization=organization, project=project)

    @property
    def name(self) -> str:
        usual = DIMENSIONS.get(self._model) == self.dimensions
        return super().name if usual else f"{super().name}@{self.dimensions}"

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        vectors: list[bytes] = []
        for part in _parts(texts):
            vectors += await self._embed(part)
        return vectors

    async def _embed(self, texts: Sequence[str]) -> list[bytes]:
        body: dict[str, Any] = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        if self._model.startswith(_SHORTENED) and DIMENSIONS.get(self._model) != self.dimensions:
            body["dimensions"] = self.dimensions
        answer = _Answer(self.name, len(texts), self.dimensions)
        async for _ in self._ask(body, answer, _SILENCE_S):
            pass
        return answer.vectors


class _Answer:
    """The answer to one request, which comes in one piece."""

    def __init__(self, name: str, count: int, dimensions: int) -> None:
        self.started = self.ended = self.finished = False
        self.used: Usage | None = None
        self.vectors: list[bytes] = []
        self._name = name
        self._count = count
        self._dimensions = dimensions

    def add(self, event: Any) -> str | None:
        return self.add_whole(event)

    def add_whole(self, answer: Any) -> str | None:
        """Read the vectors; what is no answer of the API raises what the caller makes a failure of."""
        items = sorted(answer["data"], key=lambda item: item["index"])
        if [item["index"] for item in items] != list(range(self._count)):
            raise ValueError(f"{len(items)} vectors for {self._count} texts")
        for item in items:
            numbers = item["embedding"]
            if len(numbers) != self._dimensions:
                raise ModelFailed(
                    f"the embedder {self._name} gives {len(numbers)} dimensions, not {self._dimensions}: say so in "
                    f"'ai.memory.embedder', as {self._name.partition('@')[0]}@{len(numbers)}",
                    code="model_answer_unfit",
                    retryable=False,
                )
            self.vectors.append(as_vector([float(number) for number in numbers]))
        self.finished = self.ended = True
        return None

    def reply(self) -> Reply:
        if not self.finished:
            raise ModelFailed(f"the answer of the embedder {self._name} is not whole", code="model_unavailable")
        return Reply(text="", usage=NO_USAGE)


def _parts(texts: Sequence[str]) -> list[list[str]]:
    """Return the texts in parts that one request takes."""
    parts: list[list[str]] = []
    letters = 0
    for text in texts:
        letters += len(text)
        if not parts or len(parts[-1]) == _MOST_TEXTS or letters > _MOST_LETTERS:
            parts.append([])
            letters = len(text)
        parts[-1].append(text)
    return parts
