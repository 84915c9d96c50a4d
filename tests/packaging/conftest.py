"""The wheel and the sdist, built once for all tests of a process."""

from __future__ import annotations

from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.packaging.environments import built, closure, environment


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The paths of the wheel and of the sdist."""
    return built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def wheel(distributions: tuple[Path, Path]) -> Path:
    return distributions[0]


@pytest.fixture(scope="session")
def metadata(wheel: Path) -> Message:
    """The headers of the wheel's metadata; its payload is the README."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="session")
def requirements(metadata: Message) -> list[Requirement]:
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


@pytest.fixture(scope="session")
def core(wheel: Path, requirements: list[Requirement], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with merganser and what it needs, and no extra."""
    return environment(tmp_path_factory.mktemp("core") / "env", wheel, closure(requirements))
