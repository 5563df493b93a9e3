"""Contexts as an engine makes them, and the shortest ways to declare, read and call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.declare.context import RunContext, SyncToolContext, ToolContext
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.definitions import Instances, ToolDefinition
from amoxi_py.declare.injection import OpenInstances
from amoxi_py.declare.scan import scan_package
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import DeclarationError


class _InThread:
    call_id = "call-1"

    def __init__(self) -> None:
        self.run_id, self.conversation_id, self.agent, self.attempt = "run-1", "conversation-1", "agent", 1
        self.principal = Principal(id="user:ana")

    def run_in_thread(self, function: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(None, function)

    def progress(self, text: str) -> None:
        raise AssertionError("no tool of these tests tells of progress")


class PlainRunContext(_InThread, RunContext):
    """The context of instructions."""


class PlainToolContext(_InThread, ToolContext):
    """The context of async tools."""

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("no tool of these tests has steps")

    async def transaction(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("no tool of these tests has steps")

    async def save_file(self, name: str, data: Any, *, media_type: str | None = None) -> Any:
        raise AssertionError("no tool of these tests has files")

    async def open_file(self, id: str) -> Any:
        raise AssertionError("no tool of these tests has files")

    async def ask(self, question: str, schema: Any = None, *, timeout: Any = None) -> Any:
        raise AssertionError("no tool of these tests asks")

    async def sleep(self, duration: Any) -> None:
        raise AssertionError("no tool of these tests sleeps")

    async def wait_for(self, name: str, *, timeout: Any = None) -> Any:
        raise AssertionError("no tool of these tests waits")

    async def remember(self, text: str, key: Any = None, metadata: Any = None) -> Any:
        raise AssertionError("no tool of these tests remembers")

    async def recall(self, query: str, limit: int = 5) -> Any:
        raise AssertionError("no tool of these tests remembers")

    async def forget(self, key: str) -> Any:
        raise AssertionError("no tool of these tests remembers")

    async def search_docs(self, query: str, *, base: str = "docs", limit: int = 5) -> Any:
        raise AssertionError("no tool of these tests remembers")


class PlainSyncToolContext(_InThread, SyncToolContext):
    """The context of sync tools."""

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("no tool of these tests has steps")

    def transaction(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("no tool of these tests has steps")

    def save_file(self, name: str, data: Any, *, media_type: str | None = None) -> Any:
        raise AssertionError("no tool of these tests has files")

    def open_file(self, id: str) -> Any:
        raise AssertionError("no tool of these tests has files")

    def ask(self, question: str, schema: Any = None, *, timeout: Any = None) -> Any:
        raise AssertionError("no tool of these tests asks")

    def sleep(self, duration: Any) -> None:
        raise AssertionError("no tool of these tests sleeps")

    def wait_for(self, name: str, *, timeout: Any = None) -> Any:
        raise AssertionError("no tool of these tests waits")

    def remember(self, text: str, key: Any = None, metadata: Any = None) -> Any:
        raise AssertionError("no tool of these tests remembers")

    def recall(self, query: str, limit: int = 5) -> Any:
        raise AssertionError("no tool of these tests remembers")

    def forget(self, key: str) -> Any:
        raise AssertionError("no tool of these tests remembers")

    def search_docs(self, query: str, *, base: str = "docs", limit: int = 5) -> Any:
        raise AssertionError("no tool of these tests remembers")


@pytest.fixture
def run_context() -> RunContext:
    return PlainRunContext()


@pytest.fixture
def tool_of() -> Callable[[Any], ToolDefinition]:
    """Give the definition of the one tool that a decorated thing declares."""

    def define(thing: Any) -> ToolDefinition:
        [definition] = build_declarations([thing]).catalog.tools.values()
        return definition

    return define


@pytest.fixture
def context_for() -> Callable[[ToolDefinition], Any]:
    return lambda definition: PlainSyncToolContext() if definition.sync else PlainToolContext()


@pytest.fixture
def call(context_for: Callable[[ToolDefinition], Any]) -> Callable[..., Any]:
    """Read a model's arguments and call the tool with them, as the engine does."""

    def call(definition: ToolDefinition, arguments: Mapping[str, Any], instances: Instances | None = None) -> Any:
        async def main() -> Any:
            read = definition.read_arguments(arguments)
            return await definition.call(instances or OpenInstances({}), context_for(definition), read)

        return asyncio.run(main())

    return call


@pytest.fixture
def told_alone(package: Callable[..., str]) -> Callable[[str, list[str]], None]:
    """Check that what a module declares stops the start with one sentence, which names it and has these parts."""

    def check(text: str, parts: list[str]) -> None:
        name = package(mistaken=text)
        with pytest.raises(DeclarationError) as caught:
            scan_package(name)
        [sentence] = caught.value.problems
        assert sentence.startswith(f"{name}.mistaken"), sentence
        for part in parts:
            assert part in sentence, sentence
        assert "Traceback" not in str(caught.value)

    return check


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Make an importable package of module texts and give its name; it is forgotten after the test."""
    made: list[str] = []

    def make(**modules: str) -> str:
        name = f"scanned_{tmp_path.name.replace('-', '_')}_{len(made)}"
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text(modules.pop("init", ""), "utf-8")
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text, "utf-8")
        made.append(name)
        return name

    monkeypatch.syspath_prepend(str(tmp_path))
    yield make
    for module in [module for module in sys.modules if module.split(".")[0] in made]:
        del sys.modules[module]
