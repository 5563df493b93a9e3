"""The app's own package: found beside `application.json`, imported, and searched for declarations."""

from __future__ import annotations

import sys

from amoxi_py.config.settings import Settings
from amoxi_py.declare.scan import Declarations, scan_package


def read_declarations(settings: Settings, package: str | None = None) -> Declarations:
    """Import the app's package and return what it declares.

    Raises:
        DeclarationError: with all mistakes, or because one of the modules that are imported called this.
    """
    folder = str(settings.folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return scan_package(package or settings.app.package)
