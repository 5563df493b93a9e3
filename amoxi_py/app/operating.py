"""The app as an operator opens it beside running servers: its store, and its declarations where they are needed."""

from __future__ import annotations

import getpass
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from amoxi_py.app.declarations import read_declarations, require_package
from amoxi_py.app.models import AgentModels
from amoxi_py.app.runtime import engine_settings_of
from amoxi_py.app.store import make_store
from amoxi_py.config.load import load_settings
from amoxi_py.declare.definitions import Catalog
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.operator import Operator


def person_at_the_shell() -> Principal:
    """Return who works here, as the system knows them: what they start and what they decide is told as theirs."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under a number that no user has
        name = "operator"
    return Principal(id=f"system:{name}", name=name, channel="code")


@asynccontextmanager
async def open_operator(*, declarations: bool) -> AsyncGenerator[Operator, None]:
    """Open the store of the app in the current folder for an operator; nothing is executed here.

    Args:
        declarations: Whether the app's package is imported, which retrying and checking edited arguments need. Without
            it an app that cannot start can be looked into, too.

    Raises:
        DeclarationError: the folder has no app, or one that cannot work.
        StoreDamaged: the store cannot be used.
    """
    settings = load_settings()
    require_package(settings)
    catalog = read_declarations(settings).catalog if declarations else Catalog(agents={}, tools={})
    store = make_store(settings)
    engine = Engine(
        store=store,
        catalog=catalog,
        instances=_NoInstances(),
        models=AgentModels({}),
        settings=replace(engine_settings_of(settings), worker=False),
    )
    try:
        await engine.start()
        yield Operator(engine, store, person_at_the_shell())
    finally:
        await engine.stop()


class _NoInstances:
    """The app's instances of a process that executes nothing."""

    def get(self, kind: type[Any]) -> Any:
        raise LookupError(kind)
