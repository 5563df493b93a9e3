"""How many processes this machine can really run at once: a container is often given less than the cores it sees."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def usable_cores(groups: Path = _GROUPS, own_groups: Path = _OWN_GROUPS) -> int:
    """Return how many cores this process may use: those that it may run on, or less where its CPU time is limited.

    Args:
        groups: Where the system shows control groups (cgroups of Linux, version 1 or 2).
        own_groups: Where it says which of them this process is in.
    """
    if sys.platform != "linux":
        return os.cpu_count() or 1
    limits = [math.ceil(limit) for limit in _limits(groups, own_groups)]
    return max(1, min([len(os.sched_getaffinity(0)), *limits]))


def _limits(groups: Path, own_groups: Path) -> Iterator[float]:
    """Yield each limit of CPU time on the way from this process's groups to the root, in cores."""
    try:
        lines = own_groups.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = groups / controllers if controllers else groups
        own = PurePosixPath(path)
        for place in (own, *own.parents):
            limit = _limit_of(root / str(place).lstrip("/"))
            if limit is not None:
                yield limit


def _limit_of(group: Path) -> float | None:
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text("utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text("utf-8").strip()
            period = (group / "cpu.cfs_period_us").read_text("utf-8").strip()
    except (OSError, ValueError):  # the group is not shown here, or sets no limit
        return None
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None
