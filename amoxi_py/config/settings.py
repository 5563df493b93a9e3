"""The settings of one process, after all sources were joined and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from amoxi_py.config.callers import Caller, CallerDoor
from amoxi_py.config.found import Others
from amoxi_py.config.sections import AiSection, AppSection, LogSection, ServerSection

DEV = "dev"
PRODUCTION = "production"
DATABASE_URL = "DATABASE_URL"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an operator has set.

    Attributes:
        profile: `dev`, `production`, or a name of the operator's own.
        folder: The app's folder: where `application.json` is; paths in settings are relative to it.
        app, server, ai, log: The sections, one field a key.
        callers: Programs that may call, by door.
        provider: Addresses and keys of providers and databases by variable, such as `OPENAI_API_KEY`.
        sources: Where each key that was set got its value: a file's name or a variable.
        warnings: What looks like a mistake but stops nothing.
        others: What may be set in sections of the app's own, which is known when its package was searched.
    """

    profile: str
    folder: Path
    app: AppSection
    server: ServerSection
    ai: AiSection
    log: LogSection
    callers: tuple[Caller, ...] = ()
    provider: Mapping[str, str] = field(default_factory=dict, repr=False)
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    others: Others = field(default_factory=Others, repr=False)

    @property
    def dev(self) -> bool:
        """Whether this is a developer's own machine."""
        return self.profile == DEV

    @property
    def app_name(self) -> str:
        """The app's name: as set, else its folder's."""
        return self.app.name or self.folder.name or "app"

    def callers_of(self, door: CallerDoor) -> dict[str, tuple[bytes, ...]]:
        """Return those who may come in through a door: by name, the digests of their tokens."""
        return {caller.name: caller.digests for caller in self.callers if caller.door == door}

    @property
    def anonymous(self) -> bool:
        """Whether visitors without a token are let in."""
        return self.dev if self.ai.http.anonymous is None else self.ai.http.anonymous

    @property
    def log_format(self) -> Literal["text", "json"]:
        """How log lines are written."""
        return self.log.format or ("text" if self.dev else "json")

    @property
    def store_folder(self) -> Path:
        """Where the embedded store's files are."""
        return self.folder / self.ai.store.path

    @property
    def model_variables(self) -> Mapping[str, str]:
        """All variables, those of `.env` in dev too, in which providers' packages look for their keys."""
        return {**{name: str(found.value) for name, found in self.others.variables.items()}, **self.provider}

    @property
    def database_url(self) -> str:
        """The address of the PostgreSQL store's database; it holds a password."""
        return self.provider[DATABASE_URL]

    @property
    def listen_url(self) -> str | None:
        """An address past a pooler, where news are listened for; None for `database_url`."""
        given = self.ai.store.listen_url
        return None if given is None else given.get_secret_value().strip()
