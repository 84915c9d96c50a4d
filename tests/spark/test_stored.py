"""Views and functions in statements of `ms.session`, over a catalog in a file of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from tests.catalogs import stored_cases as c

pytest.importorskip("pyspark")
pytest.importorskip("sqlalchemy")

from pyspark.sql import SparkSession

import merganser.spark as ms

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    catalog = mg.catalog(
        f"jdbc:sqlite:{tmp_path / 'catalog.sqlite'}",
        options={"warehouse": str(tmp_path / "warehouse"), "local.sync": "false"},
    )
    for name in c.DATABASES:
        catalog.create_database(name)
    found = ms.session(spark, catalog)
    for statement in c.SETUP:
        found.sql(statement)
    yield found
    found.sql("RESET")


@pytest.mark.parametrize("name", c.CASES)
def test_a_case(session: Any, name: str) -> None:
    def ask(sql: str) -> list[tuple[Any, ...]]:
        found = session.sql(sql).toArrow()
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    c.run(c.CASES[name], ask)
