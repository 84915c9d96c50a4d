"""The running clients, one process of each per test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .peers import PYPAIMON, RUST, Peer


@pytest.fixture(scope="session")
def pypaimon() -> Iterator[Peer]:
    """`pypaimon`, running."""
    with Peer(PYPAIMON) as peer:
        yield peer


@pytest.fixture(scope="session")
def rust() -> Iterator[Peer]:
    """`pypaimon-rust`, running."""
    with Peer(RUST) as peer:
        yield peer


@pytest.fixture(scope="session", params=["pypaimon", "rust"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each client in turn."""
    running: Peer = request.getfixturevalue(request.param)
    return running
