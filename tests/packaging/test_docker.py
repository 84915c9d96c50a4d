"""The Dockerfile: a linter accepts it, and its commands make an environment in which its health check passes.

There is no Docker here: the test runs the RUN lines of the first stage in directories of its own, with this Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, outside
from tests.packaging.test_distributions import works

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


@pytest.mark.slow
@pytest.mark.campaign(1 / 7)
@pytest.mark.parametrize("_case", [0])
def test_its_commands_make_an_environment_that_works(_case: int, tmp_path: Path) -> None:
    """It installs all packages from the index, as a user's `pip install` does."""
    source = tmp_path / "src"
    source.mkdir()
    env = outside() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name, argument in instructions():
        if name == "FROM" and not argument.endswith(" AS build"):
            break
        if name == "ARG":
            env[argument.partition("=")[0]] = argument.partition("=")[2]
        elif name == "COPY":
            what, target = argument.split()[0:-1], source / argument.split()[-1]
            for one in what:
                if (ROOT / one).is_dir():
                    shutil.copytree(ROOT / one, target, ignore=shutil.ignore_patterns("__pycache__", "testing"))
                else:
                    shutil.copy(ROOT / one, target)
        elif name == "RUN":
            command = re.sub(r"(?<![\w.])/(dist|opt)/", rf"{tmp_path}/\1/", argument)
            command = command.replace("--wheel-dir /dist", f"--wheel-dir {tmp_path}/dist")
            done = subprocess.run(command, shell=True, cwd=source, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    python = tmp_path / "opt" / "merganser" / "bin" / "python"
    works(python, tmp_path)
    _is_healthy(python, tmp_path)


def _is_healthy(python: Path, folder: Path) -> None:
    """Run the command of the image, and its health check until that passes."""
    found = dict(instructions())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    env = outside() | {"MERGANSER_PORT": port, "MERGANSER_TOKEN": "for-a-test-only", "MERGANSER_WAREHOUSE": str(folder)}
    command = [str(python.with_name(json.loads(found["ENTRYPOINT"])[0])), *json.loads(found["CMD"]), "--port", port]
    command[command.index("0.0.0.0")] = "127.0.0.1"
    check = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            for _ in range(100):
                done = subprocess.run([str(python), *check[1:]], env=env, capture_output=True, text=True, check=False)
                if done.returncode == 0:
                    break
                assert server.poll() is None, server.stdout.read() if server.stdout else ""
                time.sleep(0.3)
            assert done.returncode == 0, done.stderr
        finally:
            server.terminate()
