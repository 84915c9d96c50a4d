"""The cores that a process may use: machine, affinity and the quotas of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from merganser.storage import cores
from merganser.storage.env import Env
from merganser.storage.memory import MemoryStorage

CASES: dict[str, tuple[dict[str, str], str, int]] = {
    "no limit": ({"cpu.max": "max 100000"}, "0::/", 16),
    "version 2, as a container sees it": ({"cpu.max": "250000 100000"}, "0::/", 3),
    "version 2, a group above": ({"a/cpu.max": "400000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 4),
    "version 2, the smallest counts": ({"a/cpu.max": "400000 100000", "a/b/cpu.max": "50000 100000"}, "0::/a/b", 1),
    "version 1": ({"cpu/d/cpu.cfs_quota_us": "200000", "cpu/d/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/d", 2),
    "version 1, no limit": ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu:/", 16),
    "damaged": ({"cpu.max": "many"}, "0::/", 16),
    "none": ({}, "", 16),
}


@pytest.mark.parametrize("case", CASES)
def test_the_smallest_limit_counts(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, own, expected = CASES[case]
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(cores, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(cores, "_OWN", tmp_path / "own")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert cores.available_cores() == expected
    assert Env(MemoryStorage("cores")).threads == max(2, expected)
