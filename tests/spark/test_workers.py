"""What merganser does to the Python processes of Spark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
