"""The number of processors that programs may keep busy. As a program it prints that number, for builds and tests."""

import math
import os
from pathlib import Path


def quota(root="/"):
    """The least CPU quota, in processors, of the process's control group and of all groups above it, of version 1 and
    2; infinite without one. `root` is another folder in tests."""
    try:
        lines = (Path(root) / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return math.inf
    least = math.inf
    for line in lines:  # "ID:CONTROLLERS:/PATH"; version 2 names no controller
        _, controllers, path = line.split(":", 2)
        group = Path(root) / "sys/fs/cgroup" / controllers / path.lstrip("/")
        # In a container the path may be that of the host: groups that do not exist here set no limit.
        for folder in (group, *group.parents[:path.count("/")]):
            least = min(least, _quota_of(folder))
    return least


def _quota_of(group):
    """The CPU quota of one group."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            limit, period = (word for file in files for word in (group / file).read_text(encoding="ascii").split())
            if limit not in ("max", "-1"):
                return int(limit) / int(period)
        except (OSError, ValueError):  # another version's file, or none
            continue
    return math.inf


def usable():
    """The processors that this process may use, at most its quota, rounded up."""
    return max(1, math.ceil(min(len(os.sched_getaffinity(0)), quota())))


if __name__ == "__main__":
    print(usable())
