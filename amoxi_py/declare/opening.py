"""Opens what is there once per process, one thing after the other, and closes all of it in reverse, whatever fails."""

from __future__ import annotations

import logging
import os
import sysconfig
from contextlib import AbstractAsyncContextManager
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Any

from amoxi_py.errors import InstanceFailed

log = logging.getLogger("amoxi_py.app")

_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_NOT_THE_APPS = (_OURS, *{os.path.join(path, "") for path in sysconfig.get_paths().values()}, "<")


class Openings:
    """Things that are open. A failure names the thing, and its traceback goes to the log."""

    def __init__(self) -> None:
        self._open: list[tuple[str, AbstractAsyncContextManager[Any]]] = []

    async def open(self, where: str, thing: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a thing, and return what that gives.

        Raises:
            InstanceFailed: it raised an error.
        """
        try:
            entered = await thing.__aenter__()
        except (Exception, SystemExit) as error:
            if not _is_failure(error):
                raise
            raise InstanceFailed(_tell(where, "open", error)) from error
        self._open.append((where, thing))
        return entered

    async def close(self) -> tuple[str, ...]:
        """Leave all things, the last one first, and return what failed, one sentence each."""
        failures = []
        ended: BaseException | None = None
        while self._open:
            where, thing = self._open.pop()
            try:
                await thing.__aexit__(None, None, None)
            except BaseException as error:  # noqa: BLE001 - the others are to be closed all the same
                if _is_failure(error):
                    failures.append(_tell(where, "close", error))
                else:
                    ended = error
        if ended is not None:
            raise ended
        return tuple(failures)


def _is_failure(error: BaseException) -> bool:
    """Whether it is the thing's own; an exit has a class of its own when a signal asks for it."""
    return isinstance(error, Exception) or type(error) is SystemExit


def _tell(where: str, what: str, error: BaseException) -> str:
    """Log how a thing failed, and return it in one sentence."""
    kind = type(error).__qualname__
    text = next(iter(str(error).strip().splitlines()), "")
    failure = f"{where} failed to {what}: {kind}: {text}" if text else f"{where} failed to {what}: {kind}"
    log.error("%s\n%s", failure, _trace(error))
    return failure


def _trace(error: BaseException) -> str:
    """Return a traceback without the frames of whatever stands between the app's code and its failure."""
    whole = TracebackException.from_exception(error)
    seen: list[TracebackException] = []
    parts: list[TracebackException | None] = [whole]
    while parts:
        part = parts.pop()
        if part is not None and part not in seen:
            seen.append(part)
            part.stack = StackSummary.from_list(_app_frames(part.stack))
            parts += [part.__cause__, part.__context__]
    return "".join(whole.format()).rstrip()


def _app_frames(frames: StackSummary) -> list[FrameSummary]:
    """Return the app's frames; where it is installed like a library, all that are not ours."""
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_APPS)]
    return own or [frame for frame in frames if not frame.filename.startswith(_OURS)]
