"""The same calls on a cluster of two executors, which share nothing with the driver but the files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import ROOT, environment

pytestmark = [pytest.mark.spark(session=False), pytest.mark.slow]


@pytest.mark.campaign(1 / 4, first=0)
def test_round_trip_and_refusals_on_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.drive_session", "cluster", str(tmp_path)]
    settings = os.environ | environment() | {"SPARK_WORKER_DIR": str(tmp_path / "work")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=settings, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    assert done.stdout.splitlines()[-1] == "ok"
