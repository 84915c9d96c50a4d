"""The Spark session of the whole test run: that of `tests/spark`, so there is one JVM."""

from __future__ import annotations

import pytest

try:
    from tests.spark.conftest import spark
except pytest.skip.Exception:

    @pytest.fixture(scope="session")
    def spark() -> None:
        pytest.skip("pyspark is not installed")
