"""What the operator's commands share: how they are run, what they read of the command line, and how they fail."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from amoxi_py.cli.progress import Progress
from amoxi_py.cli.visible_text import one_line

if TYPE_CHECKING:
    from amoxi_py.engine.operator import Operator

T = TypeVar("T")
_AT_ONCE = 64

limit_option = click.option(
    "--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="The most to list."
)
cursor_option = click.option("--cursor", metavar="CURSOR", help="Go on where an earlier list ended.")
profile_option = click.option(
    "--profile",
    metavar="NAME",
    help="Of this profile's store: dev is what amoxi dev uses. Default: AMOXI_PROFILE, else production.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document, with the names of the HTTP API.")


def operate(act: Callable[[Operator], Awaitable[T]], *, profile: str | None = None, declarations: bool = False) -> T:
    """Do something as the operator of the app in the current folder; an interruption ends the program with failure.

    Args:
        act: What to do, on an event loop.
        profile: Whose store; None for what the environment says.
        declarations: Whether the app's package is needed.

    Raises:
        AmoxiError: it cannot be done.
    """
    from amoxi_py.app.operating import open_operator, which_store
    from amoxi_py.errors import CommandRefused, NotFound

    fail_on_signal()
    print_any_letter()

    async def run() -> T:
        async with open_operator(declarations=declarations, profile=profile) as operator:
            return await act(operator)

    try:
        return asyncio.run(run())
    except NotFound as error:
        raise CommandRefused(f"{error}: {which_store(profile)}") from error


def fail_on_signal() -> None:
    """Let a signal end the program with the code that shells give for it: what was asked for is not done."""
    signal.signal(signal.SIGINT, _interrupted)
    signal.signal(signal.SIGTERM, _interrupted)


def print_any_letter() -> None:
    """Let letters that the terminal's encoding does not have be shown as their numbers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Leave at once, whatever a thread waits for: each verb is one transaction, so nothing is left half done."""
    if sys.stderr.isatty():
        os.write(2, b"\x1b[?25h\n")  # a progress bar hides the cursor
    os._exit(128 + number)


def each(
    ids: Sequence[str],
    what: str,
    act: Callable[[Operator, str], Awaitable[T]],
    *,
    profile: str | None,
    declarations: bool = False,
) -> tuple[list[T], list[dict[str, str]]]:
    """Do the same with many ids, some at once; return what came of them, and the errors of those that failed."""
    from amoxi_py.errors import RequestError

    wanted = list(dict.fromkeys(ids))

    async def act_on_all(operator: Operator) -> list[T | RequestError]:
        places = asyncio.Semaphore(_AT_ONCE)

        async def act_on(id: str) -> T | RequestError:
            async with places:
                try:
                    return await act(operator, id)
                except RequestError as error:
                    return error
                finally:
                    progress.advance()

        with Progress(what, len(wanted)) as progress:
            return await asyncio.gather(*map(act_on, wanted))

    answers = operate(act_on_all, profile=profile, declarations=declarations)
    done: list[T] = []
    errors: list[dict[str, str]] = []
    for each_id, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, RequestError):
            errors.append({"id": each_id, "code": answer.code, "message": str(answer)})
        else:
            done.append(answer)
    return done, errors


def tell_end(errors: Sequence[dict[str, str]], profile: str | None) -> None:
    """Tell what failed on stderr, and end the program with 1 when anything did."""
    for error in errors:
        complain(error["message"])
    if any(error["code"] == "not_found" for error in errors):
        from amoxi_py.app.operating import which_store

        complain(which_store(profile))
    if errors:
        sys.exit(1)


def tell_more(next_cursor: str | None) -> None:
    """Say on stderr how a list goes on."""
    if next_cursor is not None:
        print(f"there are more: --cursor {next_cursor}", file=sys.stderr)


def tell_nothing(what: str, profile: str | None) -> None:
    """Say on stderr that a list is empty, and which store it is of: another one may hold what is missed."""
    from amoxi_py.app.operating import which_store

    print(f"{what}: {which_store(profile)}", file=sys.stderr)


def complain(message: str) -> None:
    """Say on stderr what is wrong."""
    print(f"amoxi: {message}", file=sys.stderr)


def read_arguments(text: str) -> dict[str, Any]:
    """Return a JSON object that somebody typed; raise `ValueError` that says what is wrong."""
    import json

    try:
        value = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("this JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError('this must be a JSON object, such as {"order_id": "A-1002"}')
    return value


def arguments_line(arguments: str, longest: int | None = None) -> str:
    """Return stored arguments, JSON text, as one readable line."""
    return one_line(readable_json(arguments), longest)


def short_time(seconds: float) -> str:
    """Return a time in UTC to the second, as in `2026-11-29T13:31:38Z`."""
    from amoxi_py.domain.event import time_text

    return time_text(seconds)[:19] + "Z"


def readable_json(stored: str) -> str:
    """Return stored JSON text with its letters as they are."""
    from amoxi_py.domain.encoding import decode_json, encode_json_unicode

    return encode_json_unicode(decode_json(stored))


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")
