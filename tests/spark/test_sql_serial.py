"""Statements on Spark whose query reads the table that they change; see `tests/unit/sql/test_serial.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import merganser as mg

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

import merganser.spark as ms
from merganser.spark import sql as spark_sql
from tests.unit.sql.between import OTHERS, STATEMENTS, committed_between, made

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: SparkSession, catalog: mg.Catalog) -> Iterator[Any]:
    found = ms.session(spark, catalog)
    found.sql("USE shop")
    yield found
    found.sql("RESET")


def _rows(session: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in session.sql("SELECT k, n FROM t").collect())


@pytest.mark.campaign(1 / 16)
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("layout", ["key", "no-key-vectors"])
@pytest.mark.parametrize("tasks", [False, True], ids=["driver", "tasks"])
def test_a_statement_is_computed_again_if_the_rows_that_its_query_read_have_changed(
    session: Any, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch, layout: str, tasks: bool, statement: str
) -> None:
    other = catalog.session()
    other.sql("USE shop")
    text = list(OTHERS.values())[list(STATEMENTS).index(statement) % len(OTHERS)]
    made(other.sql, layout)
    other.sql(f"{text}; {STATEMENTS[statement]}")
    expected = _rows(session)
    made(other.sql, layout)
    with monkeypatch.context() as patch:
        if tasks:
            patch.setattr(spark_sql, "_LOCAL_BYTES", -1)
            patch.setattr("merganser.spark.merging.FILES_FROM_BYTES", 1)
        with committed_between(lambda: other.sql(text)) as runs:
            session.sql(STATEMENTS[statement])
    assert _rows(session) == expected
    assert len(runs) == 2
