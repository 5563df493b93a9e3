"""Processes whose clock is wrong: libfaketime answers them in the place of the system."""

from __future__ import annotations

import os
from pathlib import Path

_SLEEP = Path(__file__).parent / "sleep"


def faketime_env(seconds: float) -> dict[str, str]:
    """Return the environment of a Python whose wall clock is ahead by `seconds`, or behind when they are negative.

    Only the wall clock is wrong: what counts how long something takes is the system's, as on a machine whose date
    somebody has set.
    """
    libraries = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    if not libraries:
        raise RuntimeError("libfaketime is not here: install the package 'libfaketime', or run: python3 dev.py test")
    return {
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME": f"{seconds:+f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_SLEEP), os.environ.get("PYTHONPATH")))),
    }
