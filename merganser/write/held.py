"""Held rows: rows that tasks put aside, so that the process that commits gives them their buckets.

Where buckets are added as keys arrive, all rows of a key must come to one assigner. An engine that hands rows to its
tasks as it likes cannot promise that. Its tasks check the rows and write them into a file each; the process that
commits writes the rows of these files into their buckets, in the order of the tasks::

    task 0    rows ──►  <table>/.staging-<id>/rows.arrow  ─┐
    task 1    rows ──►  <table>/.staging-<id>/rows.arrow  ─┴►  WriteJob ──► files of buckets

The files go when the rows are written. Those of a process that was killed stay; orphan cleaning removes them by age.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from merganser.commit.message import CommitMessage
from merganser.errors import MerganserError, StorageError
from merganser.meta.table_def import TableDef
from merganser.schema import row_kind
from merganser.schema.table_schema import VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.paths import STAGING, join
from merganser.storage.protocol import Sink
from merganser.write.incoming import Prepared
from merganser.write.job import Outcome, WriteJob, messages_of, retractions_among

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_FILE: Final = "rows.arrow"


def hold(job: WriteJob, tables: Iterable[pa.Table]) -> Outcome:
    """Put rows aside and return the outcome, which says where; nothing is left of a refused or failed attempt.

    Args:
        tables: rows as `WriteJob.run` takes them.
    """
    folder = join(job.target.table.path, f"{STAGING}{job.env.new_id()}")
    try:
        rows = retractions = 0
        with _Rows(job.env, join(folder, _FILE)) as file:
            for table, kinds, _ in job.prepared(tables):
                rows += table.num_rows
                retractions += retractions_among(table, kinds)
                file.write(table if job.target.table.counting else _with_kinds(table, kinds))
        return Outcome(held=folder if rows else None, rows=rows, retractions=retractions)
    except StorageError:
        drop_held(job.env, [folder])
        raise
    except MerganserError as refusal:
        drop_held(job.env, [folder])
        return Outcome(refusal=refusal)
    except BaseException:
        drop_held(job.env, [folder])
        raise


def placed(job: WriteJob, outcomes: Sequence[Outcome]) -> list[CommitMessage]:
    """Return the messages of outcomes; held rows are written into their buckets first.

    Args:
        job: writes rows of the table in this process.
        outcomes: of all tasks, in the order of their rows.

    Raises:
        MerganserError: a task refused a row, or the rows could not be written; nothing of them is left.
    """
    held = [outcome.held for outcome in outcomes if outcome.held is not None]
    try:
        messages = messages_of(job.target.table, job.env, outcomes)
        if held:
            written = job.run_prepared(row for folder in held for row in _rows_of(job.env, join(folder, _FILE)))
            messages += messages_of(job.target.table, job.env, [written])
        return messages
    finally:
        drop_held(job.env, held)


def put_aside(table: TableDef, env: Env, rows: pa.Table) -> str:
    """Write rows into a folder of their own beside the files of a table, and return it."""
    folder = join(table.path, f"{STAGING}{env.new_id()}")
    try:
        with _Rows(env, join(folder, _FILE)) as file:
            file.write(rows)
    except BaseException:
        drop_held(env, [folder])
        raise
    return folder


def rows_aside(env: Env, folder: str) -> pa.Table:
    """Return the rows that `put_aside` wrote."""
    with env.storage.open(join(folder, _FILE)) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()


def drop_held(env: Env, folders: Iterable[str]) -> None:
    """Remove rows that were put aside. Best effort: else they are orphans."""
    for folder in folders:
        with contextlib.suppress(MerganserError):
            env.storage.delete_tree(folder)


class _Rows:
    """A file of rows, in tables of one schema; without rows there is no file."""

    def __init__(self, env: Env, path: str) -> None:
        self._env = env
        self._path = path
        self._open: tuple[Sink, pa.RecordBatchFileWriter] | None = None

    def __enter__(self) -> _Rows:
        return self

    def write(self, rows: pa.Table) -> None:
        if self._open is None:
            sink = self._env.storage.writer(self._path)
            self._open = sink, pa.ipc.new_file(sink.stream, rows.schema, options=_OPTIONS)
        self._open[1].write_table(rows)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._open is None:
            return
        sink, writer = self._open
        if error is not None:
            sink.abort()
            return
        writer.close()
        sink.close()


def _with_kinds(rows: pa.Table, kinds: pa.Array | None) -> pa.Table:
    return rows.append_column(VALUE_KIND.name, row_kind.inserts(rows.num_rows) if kinds is None else kinds)


def _rows_of(env: Env, path: str) -> Iterator[Prepared]:
    with env.storage.open(path) as file, pa.ipc.open_file(file) as reader:
        for number in range(reader.num_record_batches):
            rows = pa.Table.from_batches([reader.get_batch(number)])
            if VALUE_KIND.name not in rows.column_names:
                yield rows, None, None
                continue
            kinds = rows.column(VALUE_KIND.name).combine_chunks()
            yield rows.drop_columns([VALUE_KIND.name]), kinds, None
