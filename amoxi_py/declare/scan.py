"""Imports all modules of an app's package and finds what they declare."""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from amoxi_py.declare.agent_definition import WhatIsWrong
from amoxi_py.declare.declarations import Declarations, WrongForDoors, build_declarations, declared
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.errors import DeclarationError

__all__ = ["Declarations", "build_declarations", "missing_package", "scan_package"]

_SCANNING: ContextVar[str | None] = ContextVar("amoxi_scanning", default=None)


def scan_package(
    package: str,
    *,
    provided: Collection[type[Any]] = (),
    wrong_model: WhatIsWrong = lambda model: None,
    wrong_for_doors: WrongForDoors = lambda catalog: (),
) -> Declarations:
    """Import a package with all of its modules (but `__main__`) and build what they declare.

    Args:
        package: Its import name; a single module is fine too.
        provided: Types that are injected from elsewhere, such as the engine's own.
        wrong_model: Says why what an agent names as its model cannot be used, or None.
        wrong_for_doors: Says what the app's doors cannot show to their clients: where it is, and what is wrong.

    Raises:
        DeclarationError: with every mistake, a module that cannot be imported included; or when a module of the package
            asks for a scan itself, as `create_app()` does.
    """
    already = _SCANNING.get()
    if already is not None:
        raise DeclarationError(
            f"create_app() or install() was called while the modules of {already!r} were being imported; "
            "move the call to a module outside of the package, or behind `if __name__ == '__main__':`"
        )
    mistakes = Mistakes()
    token = _SCANNING.set(package)
    try:
        modules = list(_import_all(package, mistakes))
    finally:
        _SCANNING.reset(token)
    things = [thing for module in modules for thing in list(vars(module).values()) if declared(thing)]
    return build_declarations(
        things, provided=provided, mistakes=mistakes, wrong_model=wrong_model, wrong_for_doors=wrong_for_doors
    )


def missing_package(name: str) -> str:
    """Return what is said when there is no such package."""
    return f"there is no package {name!r} here; make it, or name yours in the setting app.package"


def _import_all(name: str, mistakes: Mistakes) -> Iterator[ModuleType]:
    try:
        module = importlib.import_module(name)
    except DeclarationError as error:
        for problem in error.problems:
            mistakes.add(name, problem)
        return
    except Exception as error:  # noqa: BLE001 - a boundary: the modules are the app's, and may raise anything
        mistakes.add(name, _import_failure(name, error))
        return
    except SystemExit as error:
        if type(error) is not SystemExit:  # a signal to this process, which has a class of its own
            raise
        way_out = "move that behind `if __name__ == '__main__':`"
        mistakes.add(name, f"it ends the program when it is imported: exit {error.code!r}{_place(error)}; {way_out}")
        return
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        if not found.name.endswith(".__main__"):
            yield from _import_all(found.name, mistakes)


def _import_failure(name: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == name:
        return missing_package(name)
    at = _place(error)
    if isinstance(error, SyntaxError) and error.filename:
        at = f" ({error.filename}, line {error.lineno})"
    text = " ".join(str(error).split())
    return f"it cannot be imported: {type(error).__name__}: {text}{at}"


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _runs_a_module(frame)]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _runs_a_module(frame: traceback.FrameSummary) -> bool:
    return frame.name == "<module>" and not frame.filename.startswith("<")
