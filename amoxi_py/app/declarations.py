"""The app's own package: found beside `application.json`, imported, and searched for declarations."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from amoxi_py.app.models import wrong_model
from amoxi_py.config.settings import Settings
from amoxi_py.declare.scan import Declarations, missing_package, scan_package
from amoxi_py.errors import DeclarationError


def read_declarations(settings: Settings, package: str | None = None) -> Declarations:
    """Import the app's package and return what it declares.

    Raises:
        DeclarationError: with all mistakes, or because one of the modules that are imported called this.
    """
    _make_importable(settings)
    return scan_package(package or settings.app.package, wrong_model=lambda model: wrong_model(model, settings))


def require_package(settings: Settings) -> None:
    """Refuse a folder that has no app, without importing one.

    Raises:
        DeclarationError: the package of the settings is not there.
    """
    _make_importable(settings)
    outermost = settings.app.package.split(".")[0]
    if find_spec(outermost) is None:
        raise DeclarationError(missing_package(settings.app.package))


def _make_importable(settings: Settings) -> None:
    folder = str(settings.folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
