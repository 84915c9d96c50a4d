"""The Python processes of Spark, which do one task after the other."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa

from merganser.errors import ConflictError
from merganser.storage.tuning import tune_process
from merganser.values import dataclass

_IS_KEPT: Final = os.environ.get("SPARK_REUSE_WORKER") == "1"
"""Whether Spark has started this process for its tasks, and gives it more than one."""

_modules = 0
"""So many modules were there when this process settled."""


def tune() -> None:
    """Tune this process for merganser if it is one that Spark has started for its tasks; call it first in a task."""
    if _IS_KEPT:
        tune_process()


@contextlib.contextmanager
def in_query() -> Iterator[None]:
    """Say how a streaming query goes on whose columns are older than a value that was read.

    Raises:
        ConflictError: the value does not fit the column as it was when the query started; names both types.
    """
    try:
        yield
    except ConflictError as error:
        fact, column, path = (error.context.get(name) for name in ("fact", "column", "path"))
        if fact is None:
            raise
        raise ConflictError(
            f"cannot read column '{column}' of '{path}' in this query: {fact}. The schema of the table has changed "
            "since the query was made, and Spark fixes the columns of a query when it starts. The batch was not "
            "finished. Open the table again, make the DataFrame again, and start the query from the same checkpoint: "
            "it repeats this batch with the new columns, and no row is lost or doubled. If the query writes the column "
            "to a table, change it there first.",
            **error.context,
        ) from error


def settle() -> None:
    """Leave what this process has imported out of its garbage collections; call it at the end of a task.

    Spark collects garbage after each task. That looks at every object of every module: 50 ms of a core where merganser
    and the libraries below it are imported, as much as the work of a small task. Objects that are left out are still
    freed with their last reference, and only cycles among them stay. Processes that are not Spark's are left alone.
    """
    global _modules
    tune()  # where no job of ours began the task
    if _IS_KEPT and _modules != len(sys.modules):
        _modules = len(sys.modules)
        gc.collect()
        gc.freeze()


@dataclass(frozen=True, slots=True)
class Settling:
    """A job after which its process settles; see `settle`."""

    job: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the job."""
        tune()
        yield from self.job(batches)
        settle()
