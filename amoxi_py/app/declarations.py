"""The app's own package: found beside `application.json`, imported, and searched for declarations."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from amoxi_py.app.models import wrong_model
from amoxi_py.app.runs import Runs
from amoxi_py.config.load import SETTINGS_FILE
from amoxi_py.config.settings import Settings
from amoxi_py.declare.definitions import Catalog
from amoxi_py.declare.scan import Declarations, missing_package, scan_package
from amoxi_py.errors import AmoxiError, DeclarationError

PROVIDED: tuple[type[Any], ...] = (Runs,)
"""What every process of an app gives by type, beside what the app declares."""


class NoApp(DeclarationError):
    """The folder is no app's; a mistake in declarations would be looked for in vain."""

    def __init__(self, problem: str) -> None:
        self.problems = (problem,)
        AmoxiError.__init__(self, problem)


def read_declarations(settings: Settings, package: str | None = None) -> Declarations:
    """Import the app's package and return what it declares.

    Raises:
        DeclarationError: with all mistakes, or because one of the modules that are imported called this.
        NoApp: the folder is no app's.
    """
    _make_importable(settings)
    _refuse_other_folders(settings)
    return scan_package(
        package or settings.app.package,
        provided=PROVIDED,
        wrong_model=lambda model: wrong_model(model, settings),
        wrong_for_doors=lambda catalog: _wrong_for_mcp(catalog) if settings.ai.mcp.enabled else (),
    )


def _wrong_for_mcp(catalog: Catalog) -> Iterable[tuple[str, str]]:
    from amoxi_py.surfaces.mcp.publishing import mistakes_of  # its library is not loaded where nobody needs it

    return mistakes_of(catalog)


def require_package(settings: Settings) -> None:
    """Refuse a folder that has no app, without importing one.

    Raises:
        DeclarationError: the package of the settings is not there.
        NoApp: the folder is no app's.
    """
    _make_importable(settings)
    _refuse_other_folders(settings)
    if not _has_package(settings):
        raise DeclarationError(missing_package(settings.app.package))


def _refuse_other_folders(settings: Settings) -> None:
    folder, package = settings.folder, settings.app.package
    if "app.package" in settings.sources or (folder / SETTINGS_FILE).exists() or _has_package(settings):
        return
    raise NoApp(
        f"{str(folder)!r} is no app's folder: there is no {SETTINGS_FILE} and no package {package!r} in it; "
        "change into the app's folder, or make an app with: amoxi new NAME"
    )


def _has_package(settings: Settings) -> bool:
    return find_spec(settings.app.package.split(".")[0]) is not None


def _make_importable(settings: Settings) -> None:
    folder = str(settings.folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
