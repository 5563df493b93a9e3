"""`allow`: for whom a tool or an agent exists; what cannot answer says no, so that a broken rule lets nobody in."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from amoxi_py.declare.callables import is_async
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.domain.principal import Principal

_LOG = logging.getLogger(__name__)


class Allow:
    """Asks the function of a declaration; its first failure is logged, later ones are not: it is asked very often."""

    def __init__(self, function: Callable[[Principal], Any], where: str) -> None:
        self._function = function
        self._where = where
        self._told = False

    def __call__(self, principal: Principal) -> bool:
        """Whether the thing exists for this principal."""
        try:
            answer = self._function(principal)
        except Exception:  # noqa: BLE001 - a boundary: the function is the app's, and a list must not fail by it
            self._tell("failed", exc_info=True)
            return False
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            self._tell("returned an awaitable instead of True or False")
            return False
        return bool(answer)

    def _tell(self, what: str, *, exc_info: bool = False) -> None:
        if not self._told:
            self._told = True
            _LOG.error("%s: its `allow` %s: nobody is let in by that", self._where, what, exc_info=exc_info)


def read_allow(allow: Any, where: str, mistakes: Mistakes) -> Allow | None:
    """Return how `allow` is asked, or None when everybody is let in; note when it cannot be asked."""
    if allow is None:
        return None
    if not callable(allow):
        mistakes.add(where, f"`allow={allow!r}` must be a function `(principal) -> bool`")
        return None
    if is_async(allow):
        mistakes.add(where, "`allow` must be a plain function, not async: it is asked for every list of tools")
    elif not _takes_one(allow):
        mistakes.add(where, "`allow` must be a function that takes one argument, the principal: `(principal) -> bool`")
    return Allow(allow, where)


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except (ValueError, NameError):  # some built-in functions do not tell
        return True
    return True
