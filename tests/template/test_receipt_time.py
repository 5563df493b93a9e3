"""How long the template's receipt takes: 4 seconds, or as long as somebody needs who pulls the plug by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from processes import clean_environment


@pytest.mark.parametrize(("given", "seconds"), [({}, 4.0), ({"RECEIPT_SECONDS": "0.5"}, 0.5)])
def test_the_receipt_takes_4_seconds_or_what_its_variable_says(given: dict[str, str], seconds: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from app_template.app import refunds; print(refunds.RECEIPT_SECONDS)"],
        cwd=Path(__file__).parents[2],
        env=clean_environment(given),
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == seconds
