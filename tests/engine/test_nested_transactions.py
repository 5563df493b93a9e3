"""A transaction inside another one would wait for a second of the few connections while it keeps the first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.engine.steps import Steps
from amoxi_py.errors import StepError


class Host:
    def raise_if_closed(self) -> None:
        pass

    def run_in_thread(self, function: Callable[[], Any], /) -> Awaitable[Any]:
        return asyncio.to_thread(function)


def steps() -> Steps:
    async def nothing(_record: object = None) -> None:
        pass

    async def commit(name: str, work: Callable[[object], Awaitable[StepRecord]], threaded: bool) -> StepRecord:
        return await work(object())

    return Steps(records=(), record=nothing, prove=nothing, commit=commit)


def test_one_inside_another_is_refused_and_one_after_another_is_not() -> None:
    async def main() -> None:
        mine, host = steps(), Host()

        async def inner(connection: object) -> str:
            return "inner"

        async def outer(connection: object) -> Any:
            return await mine.transact("inner", inner, inner, host, threaded=False)

        with pytest.raises(StepError, match="'inner' is asked for inside another one"):
            await mine.transact("outer", outer, outer, host, threaded=False)
        assert await mine.transact("after", inner, inner, host, threaded=False) == "inner"

    asyncio.run(main())
