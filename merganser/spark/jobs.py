"""What Spark's Python tasks run: frozen callables that pickle, and the outcomes they send to the driver.

A job holds what is true for all its tasks (table, storage, where sequence numbers begin); what differs comes as
rows, or is looked up by the id of the task. Nothing a task does is visible before the driver publishes the messages
of the attempts that count: a failed or second attempt leaves files that no snapshot names.

A refusal is *returned*, so that the driver raises it as it is: Spark would try a raised one again, wrap it and lose
its class. Raised is only what another attempt may cure.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

import merganser
from merganser.commit.message import CommitMessage
from merganser.errors import MerganserError, StorageError
from merganser.ingest.rows import split_kinds
from merganser.lsm.writer import TableWriter
from merganser.storage.env import Env
from merganser.storage.protocol import Storage
from merganser.write.incoming import Prepared
from merganser.write.sequences import StartingSequences
from merganser.write.target import WriteTarget

OUTCOME_SCHEMA: Final = "message binary"
"""What `mapInArrow` is told that jobs yield."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one task did.

    Attributes:
        messages: the files it wrote, by bucket; durable.
        refusal: why it wrote none.
        version: of merganser in the task, which must be the driver's.
    """

    messages: tuple[CommitMessage, ...] = ()
    refusal: MerganserError | None = None
    version: str = field(default_factory=lambda: merganser.__version__)

    def to_batch(self) -> pa.RecordBatch:
        """Return the outcome as the one row that a task yields."""
        return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(self)], pa.binary())], names=["message"])


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Writes the rows that a task is given into files of their buckets.

    Attributes:
        target: the table and how it is written.
        starts: where the sequence numbers of buckets begin.
        kinds: column with the row kinds, not stored; None: all rows are inserts.
        arrival: column of BIGINT that orders the rows, not stored; None: they come in order.
    """

    target: WriteTarget
    storage: Storage
    starts: StartingSequences
    kinds: str | None = None
    arrival: str | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows and yield the outcome, as `mapInArrow` wants it."""
        yield self.run(pa.Table.from_batches([batch]) for batch in batches).to_batch()

    def run(self, tables: Iterable[pa.Table], *, skipped: int = 0) -> Outcome:
        """Write rows and return the outcome; what a refused or failed attempt wrote is removed.

        Args:
            tables: rows as they were given, with kinds and arrival among the columns.
            skipped: sequence numbers that other tasks take in every bucket before this one.
        """
        return self.run_prepared((self._prepared(table) for table in tables if table.num_rows), skipped=skipped)

    def run_prepared(self, rows: Iterable[Prepared], *, skipped: int = 0) -> Outcome:
        """Write rows that have been checked; otherwise as `run`.

        Args:
            rows: tables, each with row kinds and arrival, or None.
            skipped: as for `run`.
        """
        first = self.starts if not skipped else lambda bucket: self.starts(bucket) + skipped
        writer = TableWriter(self.target.table, Env(self.storage), first, parallel=False)
        try:
            for table, kinds, arrival in rows:
                writer.write(table, kinds, arrival=arrival)
            return Outcome(tuple(writer.finish()))
        except StorageError:
            writer.abort()
            raise
        except MerganserError as refusal:
            writer.abort()
            return Outcome(refusal=refusal)
        except BaseException:
            writer.abort()
            raise

    def _prepared(self, table: pa.Table) -> Prepared:
        arrival = None
        if self.arrival is not None:
            arrival = table.column(self.arrival).to_numpy().astype(np.int64, copy=False)
            table = table.drop_columns([self.arrival])
        rows, kinds = split_kinds(table, self.kinds, table=self.target.table.name)
        return self.target.accepted(rows, kinds, arrival)
