"""A Spark session as the benchmarks use it, and the CPU time of all its processes; needs PySpark 3.5 or newer alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from .harness import ROOT

SHUFFLE_PARTITIONS = 4
"""One for each bucket of `data.py`."""


def session(driver_memory: str, directory: Path, extra: Mapping[str, str] | None = None) -> SparkSession:
    """A local session with two cores, warm paths and nothing shown; `extra` are further settings."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("merganser benchmarks")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.driver.memory": driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(directory / "spark-warehouse"),
        "spark.local.dir": str(directory / "spark-local"),
        "spark.log.level": "ERROR",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        **(extra or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def python_bytes(root: int) -> int:
    """Memory of a process and all its living descendants but Java, pages they share counted once (Linux)."""
    total = 0
    waiting = [root]
    while waiting:
        place = Path(f"/proc/{waiting.pop()}")
        try:
            for task in (place / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
            if (place / "comm").read_text().strip() != "java":
                rollup = (place / "smaps_rollup").read_text()
                total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
        except OSError:
            continue
    return total


def tree_cpu_seconds(root: int) -> float:
    """CPU seconds of a process and all its living descendants, with those of their ended children (Linux)."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                numbers = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(numbers[1])
            ticks[int(entry.name)] = sum(int(number) for number in numbers[11:15])
    total = 0
    for process in ticks:
        ancestor = process
        while ancestor not in (0, root):
            ancestor = parents.get(ancestor, 0)
        total += ticks[process] if ancestor == root else 0
    return total / os.sysconf("SC_CLK_TCK")
