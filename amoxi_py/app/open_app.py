"""`open_app`: the app in a script's own process, without a web server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from amoxi_py.app.erasing import Erased, erase_by_code
from amoxi_py.app.ingesting import Ingested, KnowledgeBases
from amoxi_py.app.runs import Runs
from amoxi_py.app.runtime import Runtime, open_runtime
from amoxi_py.config.settings import Settings
from amoxi_py.domain.memory import DOCS
from amoxi_py.domain.principal import Principal

T = TypeVar("T")


class OpenApp:
    """An app that has started.

    Attributes:
        runs: Starts runs, and looks at, follows and ends them.
        settings: What the operator has set.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runs: Runs = runtime.runs
        self.settings: Settings = runtime.settings
        self._runtime = runtime

    def get(self, kind: type[T]) -> T:
        """Return the app's one instance of a type; raise `LookupError` when nothing of it is made."""
        return self._runtime.get(kind)

    async def erase(self, principal: Principal) -> Erased:
        """Cancel a principal's open runs, delete all that is kept of it, and return how much that was.

        What it has decided about runs of others stays, without its name. It may be done again at any time. What the
        principal sends afterwards is kept again, so take its sign-in or token away before.

        Args:
            principal: Who: `Principal(id="42")` is the app's user `user:42`; `Principal(id="web:...", channel="web")` a
                visitor. The same id in another tenant is somebody else.

        Raises:
            InvalidRequest: the principal cannot be one.
            StoreUnavailable: some may be there still; do it again.
        """
        return await erase_by_code(self._runtime, principal)

    async def ingest(self, folder: str | Path, *, base: str = DOCS, dry_run: bool = False) -> Ingested:
        """Let a knowledge base have what the documents of a folder say, as `amoxi ingest` does; return what was done.

        Only what has changed is done, and it may be done again at any time. What has left the folder leaves the base.

        Args:
            folder: With Markdown, text and PDF, in folders too; relative to the current one.
            base: The knowledge base; `search_docs` looks into `docs`.
            dry_run: Only tell what would be done.

        Raises:
            InvalidRequest: the base's name is none.
            CommandRefused: the folder cannot be read; or it has no documents, and the base has.
            StoreUnavailable: some may not be there yet; do it again.
        """
        engine = self._runtime.engine
        bases = KnowledgeBases(self._runtime.store, engine.memories.embedder, engine.keeping)
        return await bases.ingest(Path(folder), base, dry_run=dry_run)


@asynccontextmanager
async def open_app(
    *,
    worker: bool = True,
    settings: Settings | None = None,
    package: str | None = None,
    profile: str | None = None,
) -> AsyncIterator[OpenApp]:
    """Start the app of the current folder in this process, for a script, and stop it at the end in an orderly way.

    At the end runs that still go on get `server.stop-grace-s`; what is left then is handed over to whichever process
    of the app comes next.

    Args:
        worker: Whether this process executes runs, and calls handlers of events, like any server of the app; False
            leaves that to the servers that run.
        settings: Of the app; read from the current folder by default.
        package: Instead of the one that the settings name.
        profile: Of the settings, when they are read here; `production` by default.

    Raises:
        ConfigError: settings are unknown or bad.
        DeclarationError: declarations cannot work, or a module of the app's own package called this.
        StoreUnavailable: the store cannot be reached.
        StoreDamaged: the store cannot be used.
    """
    async with open_runtime(settings, package=package, profile=profile, worker=worker) as runtime:
        yield OpenApp(runtime)
