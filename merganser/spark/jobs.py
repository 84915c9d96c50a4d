"""What Spark's Python tasks run: frozen callables that pickle, and outcomes as the rows that they yield.

What differs between tasks comes as rows, or is looked up by the id of the task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from merganser.write.job import Outcome, WriteJob

OUTCOME_SCHEMA: Final = "message binary"
"""What `mapInArrow` is told that jobs yield."""


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
