"""The code of Spark's Python tasks: frozen callables that can be pickled, and their outcomes as rows.

Values that differ between tasks come as rows, or the task looks them up by its id.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from merganser.write.job import Outcome, WriteJob

OUTCOME_SCHEMA: Final = "message binary"
"""The schema of the rows that jobs yield, for `mapInArrow`."""


def batch_of(outcome: Outcome) -> pa.RecordBatch:
    """Return an outcome as the one row that a task yields."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)], pa.binary())], names=["message"])


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes all rows that a task is given."""

    job: WriteJob

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows and yield the outcome, as `mapInArrow` wants it."""
        yield batch_of(self.job.run(pa.Table.from_batches([batch]) for batch in batches))
