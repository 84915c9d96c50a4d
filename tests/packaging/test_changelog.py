"""`make changelog` moves the fragments of changelog.d into a section of CHANGELOG.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, outside

GROUPS = ("breaking", "correctness", "features", "speed")


def _made(folder: Path, *more: str) -> str:
    command = [sys.executable, "-m", "towncrier", "build", "--version", "9.8.7", "--date", "2031-02-03", *more]
    done = subprocess.run(command, cwd=folder, env=outside(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the command reads and changes, in a repository of its own."""
    for name in ("CHANGELOG.md", "pyproject.toml", "changelog.d/README.md", "scripts/changelog.md.jinja"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in {
        "one.breaking.md": "Write `a`\nand not `b`.\n",
        "two.speed.md": "- Reads are faster.\n- Writes are\n  faster.\n",
        "another.speed.md": "Faster.\n",
    }.items():
        (tmp_path / "changelog.d" / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


SECTION = """
## 9.8.7, 2031-02-03

### Breaking

- Write `a`
  and not `b`.

### Speed

- Reads are faster.
- Writes are
  faster.
- Faster.
"""


def test_the_section_is_written_and_the_fragments_are_removed(copy: Path) -> None:
    before = (copy / "CHANGELOG.md").read_text()
    shown = _made(copy, "--draft")
    assert SECTION.strip() in shown
    assert (copy / "CHANGELOG.md").read_text() == before
    _made(copy, "--yes")
    first, _, rest = before.partition("<!-- releases -->\n")
    assert (copy / "CHANGELOG.md").read_text().rstrip() == f"{first}<!-- releases -->\n{SECTION}{rest}".rstrip()
    assert [path.name for path in (copy / "changelog.d").iterdir()] == ["README.md"]


def test_the_name_of_every_fragment_has_a_group() -> None:
    names = [path.name for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"]
    assert [name for name in names if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(GROUPS)})\.md", name)] == []
