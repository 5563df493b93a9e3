"""The `amoxi` program: which commands there are, and what a mistake of the operator or developer looks like."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from typing import Any

import click

from amoxi_py.cli.leaving import leave_on_signal

_COMMANDS = {
    "new": "Make the folder of a new app.",
    "dev": "Run the app for development: reload on save, no key needed.",
    "start": "Run the app in production, one process a core.",
    "worker": "Execute runs without serving the web.",
    "chat": "Talk to an agent in the terminal.",
    "ingest": "Put the documents of a folder into a knowledge base.",
    "runs": "See, cancel, retry and purge runs.",
    "approvals": "See and decide what waits for a person.",
    "connections": "See and end what people have allowed programs.",
    "export": "Write all that is kept of a principal.",
    "erase": "Delete all that is kept of a principal.",
    "token": "Make a token for a program that calls.",
    "migrate": "Bring the store up to date.",
    "doctor": "Check everything that an app needs to start.",
    "bench": "Measure an app under load.",
}


class _LazyCommands(click.Group):
    """Commands that are imported when they are called; their help is known without that."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"amoxi_py.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        from amoxi_py.errors import AmoxiError  # help and version get along without it

        try:
            return super().invoke(ctx)
        except AmoxiError as error:
            print(f"amoxi: {error}", file=sys.stderr)
            sys.exit(1)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _print_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"amoxi {version('amoxi-py')}")
        ctx.exit()


@click.group(cls=_LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
)
def program() -> None:
    """Agents whose work survives crashes and whose side effects do not happen twice.

    Run it in an app's folder, the one with application.json.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the program and exit: 0 for success, 1 for a mistake that stops it, 2 for a wrong use."""
    leave_on_signal()
    _open_closed_streams()
    try:
        try:
            program(args=arguments, prog_name="amoxi")
        finally:
            _flush()  # what cannot be written is a failure of the command, not of the interpreter's end
    except OSError as error:
        _tell_system_error(error)
        sys.exit(1)


def _flush() -> None:
    if sys.stdout is not None and not sys.stdout.closed:  # an app's code may have closed it
        sys.stdout.flush()


def _open_closed_streams() -> None:
    """Let what is written to a closed stdout or stderr get lost; the next file to be opened would be taken for it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end


def _tell_system_error(error: OSError) -> None:
    """Say in one line what the system refused; whoever closed the pipe has seen enough and is told nothing."""
    full = error.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO)
    refused = "the output cannot be written" if full else "the system refused something"
    what = repr(error.filename) if error.filename else refused
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter's end would try again
    if not isinstance(error, BrokenPipeError):
        with contextlib.suppress(OSError):
            print(f"amoxi: {what}: {error.strerror or error}", file=sys.stderr, flush=True)
