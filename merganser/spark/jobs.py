"""The code of Spark's Python tasks: frozen callables that can be pickled, and their outcomes as rows.

Values that differ between tasks come as rows, or the task looks them up by its id.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from merganser.spark.workers import Settling
from merganser.values import dataclass
from merganser.write.job import Outcome, WriteJob

NUMBERS: Final = ("rows", "retractions", "files", "bytes", "dead_letters")
"""What is counted of an outcome: rows that were written, those of kind -U or -D among them, data and changelog files
with their bytes, and rows of a table of dead letters, which count as nothing else."""

OUTCOME_SCHEMA: Final = ", ".join(["message binary", *(f"{name} long" for name in NUMBERS)])
"""The schema of the rows that jobs yield, for `mapInArrow`."""


SHIP: Final = "Install the same version on every node, or ship it with spark.addArtifacts(..., pyfile=True)."
"""What to do if tasks have another version of merganser, or none, and run the right Python."""

SET_PYTHON: Final = (
    "Set the environment variable PYSPARK_PYTHON to the driver's Python before the Spark session starts."
)
"""What to do if tasks run the wrong Python."""

Job = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` runs."""


def in_tasks(frame: DataFrame, job: Job, schema: StructType | str) -> DataFrame:
    """Return what a job yields in the tasks of a frame; see `on_any_python`.

    Spark warns at each such call that it does not know pandas 3 yet. No row goes through pandas here, and a user could
    do nothing about it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        return frame.mapInArrow(on_any_python(job), schema)


def on_any_python(job: Job) -> Job:
    """Return a job that says so itself if the Python of its task lacks merganser, or has another version of it.

    Spark sends a function by its name if a module has it, and by its code otherwise. This one must arrive where there
    is no merganser, so it seems to come from the user's script, and uses nothing but its arguments.
    """
    payload, driver, advice, ship = pickle.dumps(Settling(job)), sys.executable, SET_PYTHON, SHIP

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import sys

        try:
            loaded = pickle.loads(payload)
        except (ImportError, AttributeError) as error:
            other = sys.executable != driver
            refusal: Any = type("UnsupportedError", (Exception,), {"__module__": "merganser.errors"})
            raise refusal(
                f"tasks cannot import merganser ({error}). The driver runs {driver}, and the tasks run "
                f"{sys.executable}. {advice + ' On a cluster: ' + ship if other else ship}"
            ) from None
        yield from loaded(batches)

    run.__module__ = "__main__"
    return run


def batch_of(outcome: Outcome, *, letters: bool = False) -> pa.RecordBatch:
    """Return an outcome as the one row that a task yields.

    Args:
        letters: it was written to a table of dead letters.
    """
    if letters:
        counted = [0, 0, 0, 0, outcome.rows]
    else:
        files = outcome.files
        counted = [outcome.rows, outcome.retractions, len(files), sum(file.size for file in files), 0]
    message = pa.array([pickle.dumps(outcome)], pa.binary())
    return pa.RecordBatch.from_arrays(
        [message, *(pa.array([number], pa.int64()) for number in counted)], names=["message", *NUMBERS]
    )


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes all rows that a task is given.

    Attributes:
        names: of the columns. `mapInArrow` reads dots and backticks in names as SQL does, so rows come without them.
    """

    job: WriteJob
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows and yield the outcome, as `mapInArrow` wants it."""
        names = list(self.names)
        yield batch_of(self.job.run(pa.Table.from_batches([batch]).rename_columns(names) for batch in batches))
