"""`amoxi migrate`: the store brought up to date, and nothing else."""

from __future__ import annotations

import click


@click.command()
def migrate() -> None:
    """Bring the store of the app in the current folder up to date.

    dev, start and worker do it by themselves; this is for a deployment that wants it as a step of its own.
    """
    from amoxi_py.app.store import migrate_store

    click.echo(migrate_store())
