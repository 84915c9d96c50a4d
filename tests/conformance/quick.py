"""Options of Spark under which a query of a few rows is planned and run soonest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark interprets expressions. To compile them costs tests with few rows more than it gains. The demo and the test
on a cluster compile, as users do."""

_QUICK = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false", **INTERPRETED}


@contextmanager
def quick_options(spark: Any, zone: str = "UTC") -> Iterator[None]:
    """Set the options, and the time zone, while inside."""
    options = {**_QUICK, "spark.sql.session.timeZone": zone}
    before = {key: spark.conf.get(key, None) for key in options}
    for key, value in options.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
