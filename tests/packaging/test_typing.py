"""Type checkers see the types of the installed package. `sample/` is a program of a user, checked strictly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.environments import ROOT, closure, environment, outside

pytestmark = pytest.mark.xdist_group("packaging")

SAMPLE = ROOT / "tests" / "packaging" / "sample"
STUBS = ("pyarrow-stubs", "pandas-stubs")
"""Arrow and pandas say no types themselves. They are not in the environment of the tests: `make types` runs without."""
CHECKERS = {
    "pyright": ["basedpyright", "--project", ".", "--pythonpath"],
    "mypy": ["mypy", "--no-error-summary", "--cache-dir", os.devnull, "--python-executable"],
}


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("checker", CHECKERS)
def test_the_program_of_a_user_is_well_typed(
    checker: str, wheel: Path, requirements: list[Requirement], tmp_path: Path
) -> None:
    packages = closure(requirements) | closure(requirements, "spark")
    python = environment(tmp_path / "env", wheel, packages)
    place = next((tmp_path / "env").glob("lib/python*/site-packages"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), *STUBS]
    subprocess.run(install, check=True, env=outside())
    command = [str(Path(sys.executable).with_name(CHECKERS[checker][0])), *CHECKERS[checker][1:], str(python)]
    done = subprocess.run(command, cwd=SAMPLE, env=outside(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
