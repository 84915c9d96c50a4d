"""What a process and its living descendants cost, by /proc (Linux); needs the standard library alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def tree(root: int) -> Iterator[Path]:
    """Yield the places in /proc of a process and all its living descendants."""
    waiting = [root]
    while waiting:
        place = Path(f"/proc/{waiting.pop()}")
        try:
            for task in (place / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
        yield place


def python_bytes(root: int) -> int:
    """Memory of a process and all its living descendants but Java, pages they share counted once."""
    total = 0
    for place in tree(root):
        try:
            if (place / "comm").read_text().strip() != "java":
                rollup = (place / "smaps_rollup").read_text()
                total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
        except OSError:
            continue
    return total


def tree_peak_bytes(root: int) -> int:
    """Largest resident memory of each living process of a tree, summed; the peaks may be of different times."""
    total = 0
    for place in tree(root):
        try:
            total += 1024 * int((place / "status").read_text().partition("\nVmHWM:")[2].split()[0])
        except (OSError, IndexError):
            continue
    return total


def tree_cpu_seconds(root: int) -> float:
    """CPU seconds of a process and all its living descendants, with those of their ended children."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                numbers = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(numbers[1])
            ticks[int(entry.name)] = sum(int(number) for number in numbers[11:15])
    total = 0
    for process in ticks:
        ancestor = process
        while ancestor not in (0, root):
            ancestor = parents.get(ancestor, 0)
        total += ticks[process] if ancestor == root else 0
    return total / os.sysconf("SC_CLK_TCK")
