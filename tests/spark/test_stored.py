"""Views and functions in statements of `ms.session`, over a catalog in a file of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import NotFoundError
from tests.catalogs import stored_cases as c

pytest.importorskip("pyspark")
pytest.importorskip("sqlalchemy")

from pyspark.sql import SparkSession

import merganser.spark as ms
from merganser.spark import sql as spark_sql

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    catalog = mg.catalog(
        f"jdbc:sqlite:{tmp_path / 'catalog.sqlite'}",
        options={"warehouse": str(tmp_path / "warehouse"), "local.sync": "false"},
    )
    for name in c.DATABASES:
        catalog.create_database(name)
    for row in spark.sql("SHOW VIEWS").collect():
        spark.catalog.dropTempView(row.viewName)  # of other tests: Spark's own names count, too
    found = ms.session(spark, catalog)
    for statement in c.SETUP:
        found.sql(statement)
    yield found
    found.sql("RESET")


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("name", c.CASES)
def test_a_case(session: Any, name: str) -> None:
    def ask(sql: str) -> list[tuple[Any, ...]]:
        found = session.sql(sql).toArrow()
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    c.run(c.CASES[name], ask)


def test_a_view_reads_nothing_of_spark_alone(spark: SparkSession, session: Any) -> None:
    spark.range(3).createOrReplaceTempView("of_spark")
    with pytest.raises(NotFoundError, match=r"no table 'shop\.of_spark'"):
        session.sql("CREATE VIEW v AS SELECT * FROM of_spark")
    session.sql("CREATE VIEW v AS SELECT id FROM orders")
    assert sorted(row.id for row in session.sql("SELECT id FROM v JOIN of_spark USING (id)").collect()) == [1, 2]


def test_a_view_over_a_large_table_is_read_by_tasks(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)
    session.sql("CREATE VIEW v (k, what) AS SELECT id, state FROM orders WHERE amount > 2")
    assert sorted(map(tuple, session.sql("SELECT k, what FROM v WHERE k > 1").collect())) == [(2, "paid")]
    assert "read shop.orders" in session.sql("EXPLAIN SELECT what FROM v").collect()[0].plan
    session.sql("SET 'execution.runtime-mode' = 'streaming'")
    assert session.sql("SELECT k FROM v").isStreaming
