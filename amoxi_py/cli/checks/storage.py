"""Where runs are kept: the embedded store with the disk under it, or the one in a database."""

from __future__ import annotations

from collections.abc import Iterator

from amoxi_py.cli.checks.finding import Finding
from amoxi_py.config.settings import Settings


def look_at_store(settings: Settings) -> Iterator[Finding]:
    """Look at the store that the settings name; nothing in it is changed."""
    if settings.ai.store.type == "postgres":
        from amoxi_py.cli.checks.postgres_store import look_at_postgres_store

        yield from look_at_postgres_store(settings)
        return
    from amoxi_py.cli.checks.disk import look_at_disk
    from amoxi_py.cli.checks.file_store import look_at_file_store

    yield from look_at_file_store(settings)
    yield from look_at_disk(settings.store_folder)
