"""The app's package, its agents' models, and the port: what a start would need, without starting anything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.embedder import embedder_of
from amoxi_py.app.models import AgentModels, find_models, model_of_setting
from amoxi_py.cli.address import bind
from amoxi_py.cli.checks.finding import Finding
from amoxi_py.config.settings import Settings
from amoxi_py.declare.definitions import Catalog
from amoxi_py.declare.scan import Declarations
from amoxi_py.errors import AddressUnusable, ConfigError, DeclarationError

_ANSWERS_WITHIN_S = 2.0


class Application:
    """The app of the settings; `declarations` is None when it cannot be imported or has mistakes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.declarations: Declarations | None = None

    def look_at_package(self) -> Iterator[Finding]:
        """Import the package and check what it declares."""
        name = self._settings.app.package
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what a module prints is none of our findings
                self.declarations = read_declarations(self._settings)
        except DeclarationError as error:
            for problem in error.problems:
                yield Finding(check="app", level="error", text=problem, fix="correct it; nothing starts before")
            return
        catalog = self.declarations.catalog
        agents = sorted(catalog.agents.values(), key=lambda agent: agent.name)
        if not agents:
            text = f"the package {name!r} can be imported, but declares no agent"
            yield Finding(check="app", level="warning", text=text, fix="put @agent on a class in one of its modules")
            return
        told = ", ".join(f"{agent.name} ({len(agent.tools)} tools)" for agent in agents)
        yield Finding(check="app", level="ok", text=f"the package {name!r} declares {told}")

    def look_at_models(self) -> Iterator[Finding]:
        """Look whether each agent's model has its package and key; no provider is asked."""
        try:
            names = self._model_names()
        except ConfigError as error:
            for problem in error.problems:
                fix = "install what is missing, set the key, or set 'ai.model' to offline"
                yield Finding(check="model", level="error", text=problem, fix=fix)
            return
        agents = () if self.declarations is None else self.declarations.catalog.agents.values()
        for agent in agents:
            if agent.choose_model is not None:
                text = f"a function of the app chooses the model of {agent.name!r}; it was not asked"
                yield Finding(check="model", level="ok", text=text)
        for name in names:
            if name != "offline":
                yield Finding(
                    check="model", level="ok", text=f"{name}: its package and key are there; it was not asked"
                )
            elif self._settings.dev:
                yield Finding(check="model", level="ok", text="the offline model answers: it needs no key")
            else:
                yield Finding(
                    check="model",
                    level="warning",
                    text="the offline model answers, which is there to try things out",
                    fix="set 'ai.model', or the key of a provider such as ANTHROPIC_API_KEY",
                )

    def look_at_embedder(self) -> Iterator[Finding]:
        """Look whether the embedder of memories and documents has what it needs; no provider is asked."""
        try:
            embedder = embedder_of(self._settings)
        except ConfigError as error:
            for problem in error.problems:
                fix = "install what is missing, set the key, or set 'ai.memory.embedder' to offline"
                yield Finding(check="memory", level="error", text=problem, fix=fix)
            return
        if embedder.lexical:
            text = f"the {embedder.name} embedder finds memories and documents by words that are alike: it needs no key"
        else:
            text = f"{embedder.name}: its package and key are there; it was not asked"
        yield Finding(check="memory", level="ok", text=text)

    def _model_names(self) -> tuple[str, ...]:
        if self.declarations is None:
            return (model_of_setting(self._settings).name,)
        return asyncio.run(_names(self.declarations.catalog, self._settings))


def look_at_port(settings: Settings) -> Iterator[Finding]:
    """Look whether a server could listen where the settings say."""
    host, port = settings.server.host, settings.server.port
    try:
        bind(host, port).close()
    except AddressUnusable as error:
        if _is_ours(host, port):
            text = f"port {port} of {host!r} is in use by a server of amoxi_py that answers"
            fix = "nothing if it is this app's; a second server needs another port: SERVER_PORT"
            yield Finding(check="port", level="note", text=text, fix=fix)
        else:
            reason, _, way_out = str(error).partition(": ")
            yield Finding(check="port", level="error", text=reason, fix=way_out or "set 'server.host', 'server.port'")
    else:
        yield Finding(check="port", level="ok", text=f"port {port} of {host!r} is free")


async def _names(catalog: Catalog, settings: Settings) -> tuple[str, ...]:
    models: AgentModels = find_models(catalog, settings)
    try:
        return models.names
    finally:
        await models.aclose()


def _is_ours(host: str, port: int) -> bool:
    reached = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    address = f"[{reached}]" if ":" in reached else reached
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{address}:{port}/health/live", timeout=_ANSWERS_WITHIN_S) as answer:
            said: Any = json.loads(answer.read(1000))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("status") in ("live", "ok", "alive")
