"""WriteJob: rows -> files of their buckets, as a value that pickles and runs wherever there is a core.

A job holds what is true for all its runs (table, storage, what its rows come after). Nothing it does is visible
before its transaction finishes with the messages of the runs that count: a failed or second attempt leaves files that
no snapshot names.

A refusal is *returned*, so that the transaction's process raises it as it is: an engine would try a raised one again,
wrap it and lose its class. Raised is only what another attempt may cure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

import merganser
from merganser.codec.deletion_vector import Positions
from merganser.commit.message import CommitMessage
from merganser.errors import MerganserError, StorageError
from merganser.ingest.rows import split_kinds
from merganser.lsm.abandoned import remove_uncommitted
from merganser.meta.data_file import DataFile
from merganser.meta.row_counts import RowCounts
from merganser.meta.table_def import TableDef
from merganser.schema import row_kind
from merganser.schema.table_schema import VALUE_COUNT
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.incoming import Prepared
from merganser.write.showing import shown_rows
from merganser.write.start import Start
from merganser.write.target import WriteTarget
from merganser.write.writer import table_writer


class FilesJob:
    """Base of jobs that read `files`: their weight, by which jobs are spread over threads and Spark tasks."""

    files: tuple[DataFile, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the files in bytes."""
        return sum(file.size for file in self.files)

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self.files)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run of a job.

    Attributes:
        messages: the files it wrote, by bucket; durable.
        refusal: why it wrote none.
        version: of merganser where it ran, which must be that of the transaction's process.
        rows: that it was given and wrote; fewer are stored where rows of one key become one.
        retractions: how many of these rows take something back: -U and -D.
        marked: rising positions of rows that go, by data file that stays; where rows are changed in place.
        counts: how many rows of the table it changed; None: it looked at none.
        held: the folder in which the rows wait for their buckets, instead of messages (`write.held`); None: none wait.
        kept: the folder of rows that keep values of stored rows (`edit.keeping`); None: there are none.
    """

    messages: tuple[CommitMessage, ...] = ()
    refusal: MerganserError | None = None
    version: str = field(default_factory=lambda: merganser.__version__)
    rows: int = 0
    retractions: int = 0
    held: str | None = None
    kept: str | None = None
    marked: Mapping[str, Positions] = field(default_factory=dict)
    counts: RowCounts | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files and changelog files that it wrote."""
        return tuple(file for message in self.messages for file in (*message.added, *message.changelog))


@dataclass(frozen=True, slots=True)
class WriteJob:
    """Writes the rows that it is given into files of their buckets.

    Attributes:
        target: the table and how it is written.
        env: pickled, it is the storage, and the time if the clock is not the machine's.
        start: the state that the rows come after.
        kinds: column with the row kinds, not stored; None: all rows are inserts.
        arrival: column of BIGINT that orders the rows, not stored; None: they come in order.
        shows: the name of the write and the snapshot that it comes after, to send rows to readers that see them before
            the commit; None: they are not sent.
    """

    target: WriteTarget
    env: Env
    start: Start
    kinds: str | None = None
    arrival: str | None = None
    shows: tuple[str, int] | None = None

    def run(self, tables: Iterable[pa.Table], *, skipped: int = 0) -> Outcome:
        """Write rows and return the outcome; what a refused or failed attempt wrote is removed.

        Args:
            tables: rows as they were given, with kinds and arrival among the columns.
            skipped: sequence numbers that other runs take in every bucket before this one.
        """
        return self.run_prepared(self.prepared(tables), skipped=skipped)

    def run_prepared(self, rows: Iterable[Prepared], *, skipped: int = 0) -> Outcome:
        """Write rows that have been checked; otherwise as `run`.

        Args:
            rows: tables, each with row kinds and arrival, or None.
            skipped: as for `run`.
        """
        start, target = self.start, self.target
        if skipped:
            start = replace(start, sequences=lambda bucket: self.start.sequences(bucket) + skipped)
        writer = table_writer(
            target.table, self.env, start, parallel=False, publishes=target.publishes, marks=target.mark
        )
        count = retractions = 0
        shown = None if self.shows is None else shown_rows(target, self.env)
        try:
            for table, kinds, arrival in rows:
                if shown is not None and self.shows is not None:
                    shown.send(*self.shows, (table, kinds, arrival))
                writer.write(table, kinds, arrival=arrival)
                count += table.num_rows
                retractions += retractions_among(table, kinds)
            messages = tuple(writer.finish())
            if shown is not None:
                shown.finish()
            return Outcome(messages, rows=count, retractions=retractions)
        except StorageError:
            writer.abort()
            raise
        except MerganserError as refusal:
            writer.abort()
            return Outcome(refusal=refusal)
        except BaseException:
            writer.abort()
            raise

    def prepared(self, tables: Iterable[pa.Table]) -> Iterator[Prepared]:
        """Yield rows, as `run` takes them, as `run_prepared` takes them.

        Raises:
            InvalidInputError: rows do not fit the table.
        """
        return (self._prepared(table) for table in tables if table.num_rows)

    def _prepared(self, table: pa.Table) -> Prepared:
        arrival = None
        if self.arrival is not None:
            arrival = table.column(self.arrival).to_numpy().astype(np.int64, copy=False)
            table = table.drop_columns([self.arrival])
        rows, kinds = split_kinds(table, self.kinds, table=self.target.table.name)
        return self.target.accepted(rows, kinds, arrival, in_task=True)


def retractions_among(rows: pa.Table, kinds: pa.Array | None) -> int:
    """Return how many rows take something back; a table that counts equal rows has counts in place of kinds."""
    if kinds is not None:
        return row_kind.retractions(kinds)
    if VALUE_COUNT.name not in rows.column_names:
        return 0
    return int(np.count_nonzero(rows.column(VALUE_COUNT.name).to_numpy() < 0))


def messages_of(table: TableDef, env: Env, outcomes: Sequence[Outcome]) -> list[CommitMessage]:
    """Return all messages of outcomes.

    Raises:
        MerganserError: the first refusal among them; the files of all are removed.
    """
    messages = [message for outcome in outcomes for message in outcome.messages]
    refusal = next((outcome.refusal for outcome in outcomes if outcome.refusal is not None), None)
    if refusal is not None:
        remove_uncommitted(table, env, messages)
        raise refusal
    return messages
