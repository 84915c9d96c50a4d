"""The Dockerfile: a linter accepts it, and the image starts the console as a user without rights."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT

pytestmark = pytest.mark.xdist_group("packaging")

FILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions with their arguments."""
    text = re.sub(r"\\\n\s*", "", FILE.read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def test_a_linter_accepts_it() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint has a package for Linux alone")
    done = subprocess.run([str(linter), str(FILE)], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_it_runs_as_a_user_without_rights() -> None:
    found = instructions()
    last = max(i for i, (name, _) in enumerate(found) if name == "FROM")
    final = dict(found[last:])
    assert final["USER"] == "10001"
    assert json.loads(final["ENTRYPOINT"]) == ["merganser"]
    assert json.loads(final["CMD"])[0] == "ui"
