"""How many processes `amoxi start` runs: one a core, but no more than a container's CPU time allows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amoxi_py.cli.cores import usable_cores

HERE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


GROUP_V1 = {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}


@pytest.mark.parametrize(
    ("own_groups", "files", "most"),
    [
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, min(2, HERE)),
        ("0::/\n", {"cpu.max": "max 100000\n"}, HERE),
        ("0::/shop.service\n", {"shop.service/cpu.max": "max 100000", "cpu.max": "50000 100000"}, 1),
        ("0::/shop.service\n", {"shop.service/cpu.max": "6400000 100000"}, HERE),
        ("4:memory:/\n3:cpu,cpuacct:/docker/0a\n", GROUP_V1, 1),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, HERE),
        ("3:cpuset:/\n", {"cpuset/cpu.max": "50000 100000"}, HERE),
        ("", {}, HERE),
    ],
)
def test_a_limit_of_cpu_time_counts_wherever_it_is_set(
    tmp_path: Path, own_groups: str, files: dict[str, str], most: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(own_groups)
    assert usable_cores(tmp_path, tmp_path / "own") == most


def test_a_system_without_control_groups_has_the_cores_that_it_shows(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path / "none") == (HERE if hasattr(os, "sched_getaffinity") else os.cpu_count())
