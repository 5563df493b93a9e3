"""`amoxi worker`: runs are executed, the web is not served."""

from __future__ import annotations

import click

from amoxi_py.cli.leaving import end_in_time


@click.command()
def worker() -> None:
    """Execute runs of the app in the current folder without serving the web.

    Several workers can share one store; a signal hands their runs over at once.
    """
    from amoxi_py.app.worker import run_worker

    run_worker(lambda grace: end_in_time(grace, lambda: False))
