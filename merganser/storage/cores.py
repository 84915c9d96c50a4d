"""How many cores this process may use: what the machine has, less what limits leave out.

`os.cpu_count` is the number of the machine. A process may be bound to some of its cores (affinity), and a container has
a quota of processor time in its control group. A process with more threads than that is stopped in the middle of its
work, whenever the quota of a period is used up.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import Final

_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


def available_cores() -> int:
    """Return the number of cores, at least 1: the smallest of machine, affinity and quota."""
    found = float(os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        with contextlib.suppress(OSError):
            found = min(found, len(os.sched_getaffinity(0)))
    return max(1, math.ceil(min(found, _quota())))


def _quota() -> float:
    """Return the cores that control groups allow; infinite if none of them has a limit."""
    quotas = [math.inf]
    for directory in _groups():
        with contextlib.suppress(OSError, ValueError):  # version 2
            limit, period = (directory / "cpu.max").read_text().split()
            quotas.append(math.inf if limit == "max" else int(limit) / int(period))
        with contextlib.suppress(OSError, ValueError):  # version 1, where -1 is no limit
            limit, period = ((directory / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            quotas.append(math.inf if int(limit) <= 0 else int(limit) / int(period))
    return min(quotas)


def _groups() -> list[Path]:
    """Return the directories of the control groups of this process, and of the groups above them."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = _OWN.read_text().splitlines()
    found = [_GROUPS, _GROUPS / "cpu"]  # a container sees its own group as the root
    for line in lines:
        _, controllers, path = line.split(":", 2)
        root = _GROUPS if not controllers else _GROUPS / "cpu" if "cpu" in controllers.split(",") else None
        if root is not None:
            own = root / path.lstrip("/")
            found += [own, *(above for above in own.parents if above.is_relative_to(root))]
    return found
