"""The program that shows before a release that two versions can share a store; here both are this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from processes import clean_environment

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tools" / "side_by_side.py"


@pytest.mark.crash
@pytest.mark.timeout(300)  # five seconds on a quiet machine
def test_two_versions_do_each_others_work() -> None:
    command = [sys.executable, str(PROGRAM), str(ROOT)]
    ran = subprocess.run(command, env=clean_environment(), text=True, capture_output=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("both have done each other's work") == 2


def test_a_folder_without_the_package_is_told_so(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path)]
    ran = subprocess.run(command, env=clean_environment(), text=True, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "has no package amoxi_py: name the folder of a checkout" in ran.stderr
