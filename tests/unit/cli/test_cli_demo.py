"""The demo, as a person runs it, and what it says when something is missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from merganser.cli.demo_session import check_machine, data_directory
from merganser.errors import NotFoundError

COMMAND = [sys.executable, "-c", "from merganser.cli.main import main; main()", "demo", "--cores", "2"]


@pytest.mark.campaign(1 / 2, first=1)
@pytest.mark.spark(session=False)
@pytest.mark.slow
def test_the_demo_runs_and_agrees_with_pandas(tmp_path: Path) -> None:
    ran = subprocess.run(COMMAND, cwd=tmp_path, env=_environment(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("every value is equal") == 2
    assert "328,063 arrivals (+U), 8,255 cancelled flights (-D)" in ran.stdout
    assert "Frontier Airlines Inc.       21.9 min  ████" in ran.stdout
    assert "WARN" not in ran.stdout
    assert (tmp_path / ".demo/warehouse/travel.db/flights/snapshot/snapshot-2").exists()


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match=f"JAVA_HOME is '{tmp_path}', where there is none"):
        check_machine()


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFoundError, match=r"Java 17 or newer: there is none on the PATH.*apt-get install"):
        check_machine()


@pytest.mark.parametrize("shown", ['java version "1.8.0_292"', 'openjdk version "11.0.2"', "nothing"])
def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{shown}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match=r"is version (8|11)|does not tell its version"):
        check_machine()


@pytest.mark.parametrize("check", [check_machine, data_directory])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, check: object) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(NotFoundError, match=r"merganser\[demo\]"):
        check()  # type: ignore[operator]


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MERGANSER_", "PYSPARK_PYTHON", "PYSPARK_DRIVER"))
    }
