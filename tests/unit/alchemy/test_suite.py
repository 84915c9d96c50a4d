"""SQLAlchemy's suite for dialects, in a process of its own: its plugin changes how pytest works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

SUITE = Path(__file__).parent / "suite"
ROOT = Path(__file__).parents[3]


@pytest.mark.campaign(1 / 3)
@pytest.mark.slow
def test_the_suite_for_dialects_passes() -> None:
    run = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider",
            "-p", "tests.unit.alchemy.suite.plugin", "-p", "sqlalchemy.testing.plugin.pytestplugin",
            "-c", "/dev/null", "--rootdir", SUITE, "--tb=short", "-q", SUITE / "cases.py",
        ],
        capture_output=True, cwd=ROOT, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) > 800
