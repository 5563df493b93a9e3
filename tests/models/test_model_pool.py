"""Models that an app makes while it runs: equal ones share their connections, and there are never too many."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic_ai.models.function import FunctionModel

from amoxi_py import agent
from amoxi_py.app.models import find_models
from amoxi_py.config.load import load_settings
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import OpenInstances
from amoxi_py.models import AnthropicModel, OpenAIModel
from amoxi_py.models.fallback import FallbackModel
from amoxi_py.models.pool import ModelPool
from amoxi_py.ports.chat_model import ModelRequest, Reply, UserMessage
from amoxi_py.testing import ScriptedModel


class Keyed:
    name = "keyed"

    def __init__(self, key: str, closed: list[str] | None = None) -> None:
        self.identity = ("keyed", key)
        self.closed = closed if closed is not None else []

    async def stream(self, request: object) -> None: ...

    async def aclose(self) -> None:
        self.closed.append(str(self.identity[1]))


def test_equal_models_are_one_and_others_are_their_makers() -> None:
    async def check() -> None:
        pool = ModelPool()
        first, second, other = OpenAIModel("m", "key-1"), OpenAIModel("m", "key-1"), OpenAIModel("m", "key-2")
        async with pool.lend(first) as one, pool.lend(second) as same, pool.lend(other) as different:
            assert one is same is first
            assert different is other
        own = ScriptedModel(["Hi."])
        async with pool.lend(own) as given:
            assert given is own
        chains = [FallbackModel([OpenAIModel("m", "k"), AnthropicModel("n", "k")]) for _ in range(2)]
        async with pool.lend(chains[0]) as one_chain, pool.lend(chains[1]) as same_chain:
            assert one_chain is same_chain
        await pool.aclose()

    asyncio.run(check())


def test_everything_that_makes_a_difference_is_in_the_identity_and_no_text_shows_the_key() -> None:
    for make in (OpenAIModel, AnthropicModel):
        models = [
            make("m", "key-1"),
            make("n", "key-1"),
            make("m", "key-2"),
            make("m", "key-1", "http://127.0.0.1:1"),
            make("m", "key-1", options={"temperature": 0}),
            make("m", "key-1", timeout=1.0),
        ]
        assert len({model.identity for model in models}) == len(models)
        assert not any(re.search("key-[12]", f"{model!r} {model} {model.name}") for model in models)


def test_the_ones_used_longest_ago_are_closed_when_there_are_too_many_but_none_that_is_in_use() -> None:
    async def check() -> list[str]:
        pool, closed = ModelPool(most=2), list[str]()
        async with pool.lend(Keyed("a", closed)):
            for key in "bcdb":
                async with pool.lend(Keyed(key, closed)):
                    pass
            assert closed == ["b", "c", "d"]
            async with pool.lend(Keyed("b", closed)), pool.lend(Keyed("e", closed)):
                assert "a" not in closed
        await pool.aclose()
        return closed

    closed = asyncio.run(check())
    assert sorted(closed) == sorted("bcdabe")


def test_models_of_pydantic_ai_that_a_function_makes_for_each_run_are_closed_and_forgotten(tmp_path: Path) -> None:
    made: list[weakref.ref[FunctionModel]] = []
    closed: list[int] = []

    async def answer(messages: list[Any], info: Any) -> AsyncIterator[str]:
        yield "Done."

    class Counted(FunctionModel):
        number = -1

        async def __aexit__(self, *raised: Any) -> None:
            closed.append(self.number)

    async def make(ctx: Any) -> Any:
        model = Counted(stream_function=answer)
        model.number = len(made)
        made.append(weakref.ref(model))
        return model if len(made) % 2 else [model, "offline"]

    @agent(model=make)
    class Helper:
        """You help."""

    catalog = build_declarations([Helper]).catalog
    settings = load_settings(tmp_path, profile="test", environ={})

    async def check() -> None:
        models = find_models(catalog, settings, OpenInstances({}), ModelPool(most=2))
        request = ModelRequest(instructions="", messages=(UserMessage(text="Hi"),))
        for _ in range(8):
            model = await models.model_for(catalog.agents["helper"], None)  # type: ignore[arg-type]  # the function looks at none
            items = [item async for item in model.stream(request)]
            assert isinstance(items[-1], Reply)
            assert items[-1].text == "Done."
        del model
        gc.collect()
        assert sum(one() is not None for one in made) <= 3
        assert len(closed) >= 5
        await models.aclose()
        assert sorted(closed) == list(range(8))

    asyncio.run(check())
