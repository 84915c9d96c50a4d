"""The cases of SQL: in this process, and on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from tests.conformance.quick import quick_options
from tests.conformance.sql_cases import cases, check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("case", cases("embedded"), ids=lambda case: case["name"])
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    check(case, catalog.session().sql)


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    with quick_options(spark):
        yield spark


@pytest.mark.campaign(1 / 16)
@pytest.mark.spark
@pytest.mark.parametrize("case", cases("spark"), ids=lambda case: case["name"])
def test_case_on_spark(case: dict[str, Any], tmp_path: Path, quick: SparkSession) -> None:
    from pyspark.errors import PySparkException

    import merganser.spark as ms

    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    session = ms.session(quick, catalog)

    def run(text: str) -> pa.Table:
        result = session.execute(text)
        try:
            return result.rows.toArrow() if result.has_rows else pa.table({})
        except PySparkException as error:  # of a row, when the DataFrame is used
            raise InvalidInputError(str(error)) from error

    check(case, run)
