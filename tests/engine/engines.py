"""An engine of some agents around a test's story."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import open_instances
from amoxi_py.engine.engine import Engine

Story = Callable[[Engine], Awaitable[Any]]


def play(story: Story, things: Sequence[Any], **parts: Any) -> Any:
    """Run a story on an engine of these agents and handlers, opened and closed around it; return what it returns."""

    async def main() -> Any:
        declared = build_declarations(things)
        async with open_instances(declared.singletons, {}, declared.providers) as instances:
            engine = Engine(catalog=declared.catalog, instances=instances, handlers=declared.handlers, **parts)
            await engine.start()
            try:
                return await story(engine)
            finally:
                await engine.stop()

    return asyncio.run(main())
