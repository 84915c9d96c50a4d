"""What merganser does to the Python processes of Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

_ASK = """
import gc, pickle, pyarrow as pa
from merganser.spark.workers import Settling
job = pickle.loads(pickle.dumps(Settling(iter)))
rows = pa.record_batch({"n": [1]})
print([batch.num_rows for batch in job([rows])], gc.get_freeze_count() > 10_000, end=" ")
kept = gc.get_freeze_count()
list(job([rows]))
print(gc.get_freeze_count() - kept)
"""


@pytest.mark.parametrize(("kept", "said"), [("1", "[1] True 0"), ("0", "[1] False 0")])
def test_a_process_that_spark_uses_again_leaves_modules_out_of_its_collections_once(kept: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        env=os.environ | {"SPARK_REUSE_WORKER": kept},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == said


@pytest.mark.spark
def test_processes_of_the_shared_session_begin_with_what_merganser_imports(spark: SparkSession) -> None:
    """Else the tests of Spark take twice as long; see `tests/spark/forking.py`."""

    def imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        for _ in batches:
            known = "merganser.spark.source" in sys.modules and gc.get_freeze_count() > 0
            yield pa.RecordBatch.from_pydict({"known": [known]})

    imported.__module__ = "__main__"  # so that Spark sends it as code, and does not import what this module imports
    assert [row.known for row in spark.range(2).repartition(1).mapInArrow(imported, "known BOOLEAN").collect()] == [
        True
    ]
