"""Environments that hold merganser as a user installs it: the wheel, and the packages that its metadata asks for.

They are made without a download: a package is linked from the environment that runs the tests. A package that the
metadata does not ask for is absent, so an import of it fails as it would for a user.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def built(into: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it. Return their paths: wheel, sdist."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=outside())
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = into.glob("*.whl"), into.glob("*.tar.gz")
    return wheel, sdist


def outside() -> dict[str, str]:
    """Return the variables of a process that does not see the source tree."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def closure(requirements: list[Requirement], extra: str = "") -> set[str]:
    """Return the packages that some requirements bring, with all that these need, by normalised name.

    Raises:
        PackageNotFoundError: one of them is not in the environment that runs the tests.
    """
    found: set[tuple[str, str]] = set()
    waiting = [(requirement, extra) for requirement in requirements]
    while waiting:
        requirement, of = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": of}):
            continue
        for inner in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), inner)
            if key not in found:
                found.add(key)
                waiting += [(Requirement(text), inner) for text in distribution(requirement.name).requires or ()]
    return {name for name, _ in found}


def environment(path: Path, wheel: Path, packages: set[str]) -> Path:
    """Make an environment with the wheel and some packages. Return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path)], check=True, env=outside())
    python = path / "bin" / "python"
    place = next(path.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    for name in packages:
        _link(name, place)
    return python


def _link(name: str, place: Path) -> None:
    """Link the modules of a package, and its metadata."""
    files = distribution(name).files
    if files is None:
        raise PackageNotFoundError(name)
    tops = {file.parts[0] for file in files} - {"..", "__pycache__"}
    for top in tops:
        target = place / top
        if not target.exists():
            target.symlink_to(Path(str(distribution(name).locate_file(top))))
