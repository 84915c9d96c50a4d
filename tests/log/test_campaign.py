"""A slice of the campaign."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.log.broker import Broker

pytest.importorskip("pyspark")


@pytest.mark.campaign(1 / 4, first=2)
@pytest.mark.broker
@pytest.mark.slow
def test_what_is_killed_loses_doubles_and_disorders_nothing(broker: Broker) -> None:
    found: Any = subprocess.run(
        [sys.executable, "-m", "tests.log.campaign", "--kills", "12", "--seed", "4", "--minutes", "0.15"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
