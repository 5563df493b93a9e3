"""A newcomer comes from the wheel to an own tool, with nothing to read but what the commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "tools" / "newcomer.py"


@pytest.mark.timeout(900)  # half a minute on a quiet machine
def test_the_way_from_the_wheel_to_an_own_tool_can_be_gone_by_what_is_printed() -> None:
    answer = subprocess.run([sys.executable, str(PROGRAM), "--linked"], text=True, capture_output=True, timeout=880)
    print(answer.stdout)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    for step in ("amoxi new shop", "the first answer", "an own tool is saved", "its tests and the own one pass"):
        assert step in answer.stdout
