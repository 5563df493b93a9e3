"""What a command does when nobody can take what it prints."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from processes import clean_environment


def help_into(stdout: int, unbuffered: str, largest_file: int) -> tuple[int, str]:
    answer = subprocess.run(
        [sys.executable, "-m", "amoxi_py", "--help"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment({"PYTHONUNBUFFERED": unbuffered}),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file)),
        timeout=60,
    )
    return answer.returncode, answer.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written_is_one_line_and_no_success(tmp_path: Path, unbuffered: str) -> None:
    with (tmp_path / "out").open("wb") as out:
        code, said = help_into(out.fileno(), unbuffered, 0)
    assert (code, said) == (1, "amoxi: the output cannot be written: File too large\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_has_seen_enough_is_told_nothing(unbuffered: str) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        assert help_into(theirs, unbuffered, resource.RLIM_INFINITY) == (1, "")
    finally:
        os.close(theirs)


def test_a_closed_output_is_nothing_to_fail_of(tmp_path: Path) -> None:
    command = f"{sys.executable} -m amoxi_py --help >&-"
    answer = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, env=clean_environment(), timeout=60)
    assert (answer.returncode, answer.stderr) == (0, b"")
