"""What is in the wheel and in the sdist, and that the wheel works with the packages it asks for and no other."""

from __future__ import annotations

import re
import subprocess
import tarfile
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import merganser as mg
from tests.docs.test_examples import blocks_of
from tests.packaging.environments import ROOT, closure, outside

pytestmark = pytest.mark.xdist_group("packaging")

WHEEL_BYTES_MAX = 2_300_000
"""All of it is source, 635 modules in November 2026: a file that does not belong there would be seen before."""
_OF_SDIST = {
    ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "docs",
    "merganser", "pyproject.toml",
}  # fmt: skip
"""The first one is there because the build backend reads it."""


def _sources() -> set[str]:
    """The files of the package that git knows or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "merganser"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {name for name in listed.stdout.split() if (ROOT / name).exists()}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    information = f"merganser-{mg.__version__}.dist-info"
    assert {name for name in names if not name.startswith(information)} == _sources()
    assert {"merganser/py.typed", f"{information}/licenses/LICENSE"} <= set(names)
    assert wheel.stat().st_size <= WHEEL_BYTES_MAX


def test_the_sdist_holds_what_building_and_reading_need(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.partition("/")[0] for name in names} == _OF_SDIST
    assert {name for name in names if name.startswith("merganser/")} == _sources()
    assert {Path(name).suffix for name in names if name.startswith("docs/")} <= {".md", ".svg", ".png", ".css"}


def test_the_metadata_are_what_a_package_index_shows(metadata: Message) -> None:
    raw = metadata.as_string().encode()
    checked = Metadata.from_email(raw, validate=True)
    assert (checked.name, str(checked.version)) == ("merganser", mg.__version__)
    assert (checked.license_expression, checked.license_files) == ("Apache-2.0", ["LICENSE"])
    assert str(checked.requires_python) == ">=3.11"
    assert checked.description_content_type == "text/markdown"
    assert (checked.description or "").strip() == (ROOT / "README.md").read_text().strip()
    assert "Typing :: Typed" in (checked.classifiers or [])


def test_the_wheel_works_with_its_own_requirements(core: Path, requirements: list[Requirement], tmp_path: Path) -> None:
    """Without Spark, and without Java: there is none on the PATH."""
    assert "pyspark" not in closure(requirements)
    works(core, tmp_path)


def works(python: Path, folder: Path) -> None:
    """Run the first example of the README and the commands that a user tries first."""
    example = next(block.text for block in blocks_of(ROOT / "README.md") if block.kind == "python")
    claim = re.search(r"to_pylist\(\)  # (\[.*paid.*\])", example)
    assert claim is not None
    code = f"{example}\nassert orders.read().to_pylist() == {claim[1]}\n"
    code += f"assert mg.__file__.startswith({str(python.parents[1])!r})"
    _run([str(python), "-c", code], folder)
    script = "from importlib.metadata import entry_points as all; all(group='console_scripts')['merganser'].load()()"
    assert f"merganser {mg.__version__}" in _run([str(python), "-c", script, "--version"], folder)
    assert "serve-stream" in _run([str(python), "-c", script, "--help"], folder)


def _run(command: list[str], folder: Path) -> str:
    env = outside() | {"PATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
