"""The app as an operator opens it beside running servers: its store, and its declarations where they are needed."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from amoxi_py.app.declarations import read_declarations, require_package
from amoxi_py.app.models import AgentModels
from amoxi_py.app.runtime import engine_settings_of
from amoxi_py.app.store import has_store, make_store, place_of_store
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import DEV, Settings
from amoxi_py.declare.definitions import Catalog
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.operator import Operator
from amoxi_py.errors import CommandRefused, ConfigError


def person_at_the_shell() -> Principal:
    """Return who works here, as the system knows them: what they start and what they decide is told as theirs."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under a number that no user has
        name = "operator"
    return Principal(id=f"system:{name}", name=name, channel="code")


@asynccontextmanager
async def open_operator(*, declarations: bool, profile: str | None = None) -> AsyncGenerator[Operator, None]:
    """Open the store of the app in the current folder for an operator; nothing is executed here, and no store made.

    Args:
        profile: Whose store; by default what `AMOXI_PROFILE` says, else production's.
        declarations: Whether the app's package is imported, which retrying and checking edited arguments need. Without
            it an app that cannot start can be looked into, too.

    Raises:
        DeclarationError: the folder has no app, or one that cannot work.
        CommandRefused: there is no store yet.
        StoreDamaged, StoreUnavailable: the store cannot be used.
    """
    settings = load_settings(profile=profile)
    require_package(settings)
    if not await asyncio.to_thread(has_store, settings):
        raise CommandRefused(f"there is no store yet: {_named(settings)}; the first start of a server makes it")
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


def which_store(profile: str | None) -> str:
    """Return the store that `open_operator` opens, and why it is this one, for somebody who misses something in it."""
    return _named(load_settings(profile=profile))


def is_opened_without_profile(settings: Settings) -> bool:
    """Whether an operator who names no profile opens the store of these settings."""
    try:
        other = load_settings()
        return (other.ai.store.type, place_of_store(other)) == (settings.ai.store.type, place_of_store(settings))
    except ConfigError:
        return False


def _named(settings: Settings) -> str:
    place = place_of_store(settings)
    if settings.ai.store.type == "file":
        place = repr(place)
    place += f" is the store of the profile {settings.profile!r}"
    if settings.profile != DEV and (settings.folder / ".env").is_file():
        return f"{place}, in which .env is not read (--profile {DEV}: that of amoxi dev)"
    return place


class _NoInstances:
    """The app's instances of a process that executes nothing."""

    def get(self, kind: type[Any]) -> Any:
        raise LookupError(kind)

    async def inject(self, wanted: Any, ctx: Any, use: Any) -> Any:
        raise LookupError(wanted)
