"""One local Spark session for all tests of a process; its tasks may fail twice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType

import pytest

import merganser as mg

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

import merganser.spark as ms
from tests.conformance.quick import INTERPRETED
from tests.spark.forking import forking

ROOT = Path(__file__).parents[2]


def environment() -> dict[str, str]:
    """What Spark's processes need to find this Python, this checkout and each other."""
    return {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}


@contextmanager
def local_session(warehouse: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Start the session of the tests with more settings, and stop it."""
    os.environ.update(environment())
    builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
    for key, value in {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(warehouse),
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "America/New_York",
        # A client of a server that has ended may meet one of its many ports by chance, which breaks a read.
        "spark.python.unix.domain.socket.enabled": "true",
        **INTERPRETED,
        **more,
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    ms.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    running = SparkSession.getActiveSession()  # of another folder of tests, which shares it
    with (
        nullcontext({}) if running else forking(str(folder / "forks")) as more,
        local_session(folder / "warehouse", more) as session,
    ):
        yield session


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path / "warehouse"))
    found.create_database("shop")
    return found
