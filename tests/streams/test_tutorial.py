"""The programs of docs/streams.md run as a reader would run them, and the pipeline is killed in between."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import merganser as mg
from tests.conformance.quick import INTERPRETED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "streams.md"
PROGRAM = re.compile(r"^```python (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KILLED_AFTER_SNAPSHOTS = 2
SECONDS_MAX = 300

pytestmark = [pytest.mark.spark(session=False), pytest.mark.slow]


@pytest.mark.campaign(1 / 3)
def test_a_chain_that_is_killed_goes_on_without_loss_or_repeat(tmp_path: Path) -> None:
    for name, text in PROGRAM.findall(PAGE.read_text()):
        (tmp_path / name).write_text(text)
    _run(tmp_path, "tables.py")
    _run(tmp_path, "arrive.py")
    _killed(tmp_path)
    _run(tmp_path, "arrive.py")
    _run(tmp_path, "pipeline.py", "availableNow")
    assert "are right" in _run(tmp_path, "compare.py")


def _killed(directory: Path) -> None:
    """Run the pipeline, and kill all its processes as soon as its second table has some commits."""
    revenue = mg.catalog(str(directory / "warehouse")).table("shop.revenue")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "pipeline.py"],
            cwd=directory, env=_environment(), stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            until = time.monotonic() + SECONDS_MAX
            while len(revenue.snapshots()) < KILLED_AFTER_SNAPSHOTS:
                assert process.poll() is None, (directory / "log").read_text()[-4000:]
                assert time.monotonic() < until, "the pipeline commits nothing"
                time.sleep(0.02)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _run(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory, env=_environment(), capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _environment() -> dict[str, str]:
    options = " ".join(f"--conf {key}={value}" for key, value in INTERPRETED.items())
    return os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{options} {os.environ['PYSPARK_SUBMIT_ARGS']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
    }
