"""Databases that all tests of this package share; each test has a database of its own in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.catalogs.databases import KINDS, SqlServer, UnavailableError, started

_numbers = itertools.count()


@pytest.fixture(scope="package")
def servers() -> Iterator[dict[str, SqlServer]]:
    with ExitStack() as stack:
        found: dict[str, SqlServer] = {}

        def of(kind: str) -> SqlServer:
            if kind not in found:
                found[kind] = stack.enter_context(started(kind))
            return found[kind]

        yield _Lazy(of)  # type: ignore[misc]


class _Lazy(dict):  # type: ignore[type-arg]
    def __init__(self, of: object) -> None:
        self._of = of

    def __getitem__(self, kind: str) -> SqlServer:
        return self._of(kind)  # type: ignore[operator, no-any-return]


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, servers: dict[str, SqlServer], tmp_path: Path) -> SqlServer:
    pytest.importorskip("sqlalchemy")
    try:
        server = servers[request.param]
    except UnavailableError as error:
        pytest.skip(f"there is no {request.param} to test with: {error}")
    return server.emptied(f"catalog_{next(_numbers)}", tmp_path)
