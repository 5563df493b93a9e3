"""Embedders: the offline one that sees words, the one behind `/embeddings`, and what a setting may name."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator

import pytest

from amoxi_py.errors import ConfigError, ModelFailed
from amoxi_py.models.embedder_lookup import resolve_embedder
from amoxi_py.models.loopback import SWITCH
from amoxi_py.models.offline_embedder import OfflineEmbedder, as_vector, vector_of
from amoxi_py.models.openai_embedder import OpenAIEmbedder
from amoxi_py.ports.embedder import Embedder
from amoxi_py.testing import StrictModelServer, fail
from amoxi_py.testing.embedding_answers import read_embedding_body

KEY = "sk-secret-0123456789"


def embed(embedder: Embedder, *texts: str) -> list[bytes]:
    async def main() -> list[bytes]:
        try:
            return await embedder.embed(texts)
        finally:
            await embedder.aclose()

    return asyncio.run(main())


def cosine(one: bytes, other: bytes) -> float:
    return sum(a * b for a, b in zip(array("f", one), array("f", other), strict=True))


@pytest.fixture
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer([]) as running:
        yield running


def at(server: StrictModelServer, model: str = "text-embedding-3-small", dimensions: int = 1536) -> OpenAIEmbedder:
    return OpenAIEmbedder(model, dimensions, KEY, server.url)


def test_the_offline_embedder_finds_words_that_are_alike_and_not_what_they_mean() -> None:
    refund, refunded, money, weather = embed(
        OfflineEmbedder(),
        "How do I get a refund for my order?",
        "Orders are refunded within a week.",
        "You will have the money back.",
        "It rains in Lima.",
    )
    assert cosine(refund, refunded) > 0.3
    assert abs(cosine(refund, money)) < 0.15
    assert abs(cosine(refund, weather)) < 0.15


@pytest.mark.parametrize("text", ["a", "!!!", "  \n", "é 日本語 😀", "x" * 8000, "the the the"])
def test_every_text_has_a_vector_of_length_1_the_same_in_every_process(text: str) -> None:
    [vector] = embed(OfflineEmbedder(), text)
    assert len(vector) == 4 * 384
    assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)
    assert vector == vector_of(text)


def test_stored_vectors_of_the_offline_embedder_stay_comparable_with_what_it_makes_now() -> None:
    numbers = array("f", vector_of("tea time"))
    places = {place: round(number, 3) for place, number in enumerate(numbers) if abs(number) > 0.5}
    assert places == {174: -0.632, 317: 0.632}


def test_the_provider_gets_texts_in_batches_and_gives_vectors_in_their_order(server: StrictModelServer) -> None:
    texts = [f"text number {n}" for n in range(150)]
    vectors = embed(at(server), *texts)
    assert server.embedded == texts
    assert len(server.bodies) == 3
    near = [cosine(vector, vector_of(text, 1536)) for text, vector in zip(texts, vectors, strict=True)]
    assert near == pytest.approx([1.0] * 150, abs=1e-4)
    assert set(server.keys) == {KEY}


def test_long_texts_are_parted_by_their_letters(server: StrictModelServer) -> None:
    embed(at(server), *(["x" * 8000] * 30))
    assert [len(body) < 110_000 for body in server.bodies] == [True, True, True]


def test_a_model_of_openai_is_asked_for_fewer_dimensions_where_the_setting_says_so(server: StrictModelServer) -> None:
    embedder = at(server, dimensions=256)
    [vector] = embed(embedder, "tea")
    assert (len(vector), embedder.name) == (4 * 256, "openai:text-embedding-3-small@256")


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [(401, "model_key_refused", False), (429, "model_rate_limited", True), (503, "model_unavailable", True)],
)
def test_a_refusal_says_what_is_wrong_without_the_key(
    server: StrictModelServer, status: int, code: str, retryable: bool
) -> None:
    server.embedding_failure = fail(status, text=f"not with {KEY}", retry_after=7)
    with pytest.raises(ModelFailed) as caught:
        embed(at(server), "tea")
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    assert caught.value.retry_after == (7 if retryable else None)
    assert KEY not in str(caught.value)


def test_another_number_of_dimensions_than_set_is_told_with_the_way_out(server: StrictModelServer) -> None:
    with pytest.raises(ModelFailed, match=r"gives 768 dimensions, not 512: .* as openai:nomic-embed-text@768"):
        embed(at(server, "nomic-embed-text", 512), "tea")


def test_a_provider_that_is_away_is_a_failure_that_may_pass(server: StrictModelServer) -> None:
    embedder = at(server)
    server.stop()
    with pytest.raises(ModelFailed) as caught:
        embed(embedder, "tea")
    assert (caught.value.code, caught.value.retryable) == ("model_unavailable", True)


def test_tests_ask_no_embedder_outside_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(ModelFailed, match="openai:text-embedding-3-small") as caught:
        embed(OpenAIEmbedder("text-embedding-3-small", 1536, KEY, "https://models.example"), "tea")
    assert caught.value.code == "model_out_of_reach"


@pytest.mark.parametrize(
    ("spec", "name", "dimensions", "lexical"),
    [
        ("offline", "offline", 384, True),
        ("openai:text-embedding-3-small", "openai:text-embedding-3-small", 1536, False),
        ("openai:text-embedding-3-small@1536", "openai:text-embedding-3-small", 1536, False),
        ("openai:text-embedding-3-large@1024", "openai:text-embedding-3-large@1024", 1024, False),
        ("openai:mxbai:latest@768", "openai:mxbai:latest@768", 768, False),
    ],
)
def test_a_setting_names_an_embedder(spec: str, name: str, dimensions: int, lexical: bool) -> None:
    embedder = resolve_embedder(spec, {"OPENAI_API_KEY": KEY})
    assert (embedder.name, embedder.dimensions, embedder.lexical) == (name, dimensions, lexical)


@pytest.mark.parametrize(
    ("spec", "environ", "told"),
    [
        ("ofline", {}, "the embedder 'ofline' is unknown; use 'offline', 'openai:<model>'"),
        ("openai:", {"OPENAI_API_KEY": KEY}, "the embedder 'openai:' is unknown"),
        ("anthropic:x", {"OPENAI_API_KEY": KEY}, "the embedder 'anthropic:x' is unknown"),
        ("openai:text-embedding-3-small", {}, "needs OPENAI_API_KEY, which is not set"),
        ("openai:nomic", {"OPENAI_BASE_URL": "http://localhost:1/v1"}, "say so, such as 'openai:nomic@768'"),
        ("openai:nomic@0", {"OPENAI_API_KEY": KEY}, "has '0' after its '@'"),
        ("openai:nomic@9999", {"OPENAI_API_KEY": KEY}, "from 1 to 4000"),
        ("openai:nomic@many", {"OPENAI_API_KEY": KEY}, "has 'many' after its '@'"),
    ],
)
def test_a_setting_that_names_none_is_refused_with_the_way_out(spec: str, environ: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_embedder(spec, environ)
    assert told in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("numbers", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_numbers_without_a_direction_are_no_vector(numbers: list[float]) -> None:
    with pytest.raises(ValueError, match="no length"):
        as_vector(numbers)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"model": "m", "input": []}', "'input' must be a list of 1 to 2048 texts"),
        (b'{"model": "m", "input": [""]}', "an empty one"),
        (b'{"model": "", "input": ["a"]}', "'model' must be a text"),
        (b'{"model": "m", "input": ["a"], "dimensions": 3}', "takes no 'dimensions'"),
        (b'{"model": "m", "input": ["a"], "top_p": 3}', "unknown field 'top_p'"),
        (b'{"model": "m", "input": ["a"], "encoding_format": "int8"}', "'encoding_format'"),
    ],
)
def test_the_strict_server_refuses_what_the_real_api_does(body: bytes, problem: str) -> None:
    _, problems = read_embedding_body(body)
    assert problem in "; ".join(problems)
