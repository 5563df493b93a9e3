"""What a process made of a model's name is closed when it stops; what the app made is the app's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal
from amoxi_py.app.runtime import open_runtime
from amoxi_py.config.load import load_settings
from amoxi_py.testing import StrictModelServer

AGENTS = '''
from amoxi_py import agent
from amoxi_py.ports.chat_model import Reply


class Own:
    name = "own"
    closed = 0

    async def stream(self, request):
        yield Reply(text="By the app's own model.")

    async def aclose(self):
        Own.closed += 1


@agent
class BySetting:
    """You help."""


@agent(model="openai:another")
class ByName:
    """You help."""


@agent(model=Own())
class WithOwn:
    """You help."""
'''
ANN = Principal(id="user:ann")


class Relay:
    """Passes connections on to a port, and counts those that are open."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.open = self.made = self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1")
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.made += 1
        try:
            from_target, to_target = await asyncio.open_connection("127.0.0.1", self.target)
            back = asyncio.create_task(self._pass(from_target, writer))
            await self._pass(reader, to_target)
            await back
        finally:
            self.open -= 1

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except ConnectionError:  # one way to close a connection
            pass
        finally:
            writer.close()


@pytest.fixture
def package() -> Iterator[str]:
    """The name of an app's package that is forgotten after the test."""
    path = list(sys.path)
    yield "app_that_closes"
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith("app_that_closes")]:
        del sys.modules[name]


def test_models_made_of_a_name_are_closed_at_the_stop_and_the_apps_own_are_left_to_it(
    app_folder: Any, package: str
) -> None:
    folder: Path = app_folder({f"{package}/__init__.py": "", f"{package}/agents.py": AGENTS})

    async def run(relay: Relay) -> None:
        async with relay.listening():
            environ = {
                "APP_PACKAGE": package,
                "OPENAI_API_KEY": "sk-test",
                "OPENAI_BASE_URL": f"http://127.0.0.1:{relay.port}/v1",
            }
            async with open_runtime(load_settings(folder, environ=environ)) as runtime:
                for agent in ("by-setting", "by-name", "with-own"):
                    submitted = await runtime.engine.submit(agent, "Hello", principal=ANN)
                    run = await runtime.engine.wait(submitted.run.id, ANN, timeout=20)
                    assert run.status == "completed"
                assert (relay.open, relay.made) == (2, 2)
            async with asyncio.timeout(60):
                while relay.open:
                    await asyncio.sleep(0.01)

    with StrictModelServer({"*": ["Hello."] * 2}) as server:
        asyncio.run(run(Relay(int(server.url.split(":")[2].split("/")[0]))))
    assert sys.modules[f"{package}.agents"].Own.closed == 0
