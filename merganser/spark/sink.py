"""`ms.write`: a DataFrame -> one commit.

    driver   the call, the schema, options and "applied already" are checked; live files are read once
    Spark    few rows:   [rows + arrival + task] -> shuffle: every bucket has one writer -> `WriteJob` per task
             many rows:  Parquet files in a staging folder (`staging`) -> tasks load them (`files`)
    driver   the messages of all tasks are published as one commit

Rows cross to Python once, or not at all. Of several rows of one key the last in the DataFrame wins, as it does in a
table that is written without Spark: files are read in the order of the DataFrame, and before a shuffle
`monotonically_increasing_id` says it. Append tables without a bucket have no order and are not shuffled.

Crash or failure at any point before the commit: files are there that no snapshot names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from merganser.commit.conflict import Reads
from merganser.commit.message import CommitMessage
from merganser.errors import InvalidInputError, InvariantError, UnsupportedError
from merganser.handle.table import Table
from merganser.handle.writing import Overwrite
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_def import TableDef
from merganser.schema.internal_names import internal_name
from merganser.spark.access import check_frame, opened, our_errors, run_jobs
from merganser.spark.bucketing import assigners_on, bucket_column, one_writer_each, quoted
from merganser.spark.jobs import WriteTask
from merganser.spark.names import spelling_of
from merganser.spark.types import arrow_schema_of
from merganser.write.begin import begin
from merganser.write.job import messages_of
from merganser.write.transaction import Transaction
from merganser.write.writer import takes_any_order

ARRIVAL = internal_name("arrival")
_WAYS: Final = ("auto", "files", "arrow")


def write(
    df: DataFrame,
    table: Table | str,
    kinds: str | None = None,
    columns: Sequence[str] | None = None,
    overwrite: Overwrite = None,
    commit_user: str | None = None,
    identifier: int | None = None,
    collect: bool = False,
    through: str = "auto",
    watermark: int | datetime | None = None,
    changes: bool = True,
    dead_letters: Table | str | None = None,
) -> Snapshot | None:
    """Write the rows of a DataFrame as one commit.

    Args:
        df: rows with the columns of the table, in any order, whose types convert without loss.
        table: a table, or its path.
        kinds: the column of `df` with the row kinds ("+I", "-U", "+U", "-D"); it is not stored. None: all rows are
            inserts.
        columns: the columns that `df` has; the others get their default or null. None: all columns.
        overwrite: {"dt": "2026-01-01"} replaces this partition, {} the whole table, and "dynamic" the partitions that
            occur in `df`. None: replace nothing.
        commit_user: the name of the committer; None: a new random name.
        identifier: the number of this commit. Use a larger one for each new commit; a commit that was already applied
            writes nothing.
        collect: for few rows: send them to the driver as Arrow and write them there, without Python tasks.
        through: the way of the rows from Spark to Python tasks. "files": Spark writes Parquet files into a staging
            folder of the table, and tasks load them. "arrow": Spark sends rows to tasks, shuffled by bucket. "auto":
            "files" if Spark estimates `df` at 16 MiB or more, its types fit, and Spark can reach the path of the table;
            otherwise "arrow".
        watermark: the time up to which all rows by event time are there; see `Table.write`.
        changes: False: the commit publishes no changes; see `Table.write`.
        dead_letters: a table with the columns of `merganser.cdc.DEAD_LETTERS`. The rows of `df` whose `_rejected` is
            not null are written there first, in a commit of the same user and identifier. See `ms.cdc.parse`.

    Returns:
        The snapshot, or None if there was nothing to commit.

    Raises:
        InvalidInputError: the rows do not fit the table; nothing was written. Names, types and options are
            checked before Spark runs anything.
        UnsupportedError: the table needs a feature that this version does not have, or `through` is "files" and the
            rows cannot take this way; nothing was written.
        ConflictError: another commit changed the same files; nothing of this write is visible.
        CommitUnknownError: the store lost the reply; repeat with the same user and identifier.
    """
    from merganser.cdc.records import letters_user
    from merganser.edit.keeping import stores_keys
    from merganser.spark.change_records import REJECTED
    from merganser.spark.compaction import on_tasks
    from merganser.spark.dead_letters import check_letters, letters_frame
    from merganser.spark.keeping import UNAVAILABLE, check_call, keeps_values

    found = opened(table)
    check_frame(df, f"cannot write to '{found.name}'", "Table.write takes rows that lie in this process.")
    if through not in _WAYS or (collect and through == "files"):
        said = "that goes without collect" if through in _WAYS else "it is 'auto', 'files' or 'arrow'"
        raise InvalidInputError(
            f"cannot write to '{found.name}': through is {through!r:.60}, and {said}. Nothing was written."
        )
    names = spelling_of(df.sparkSession, found, writes=True)
    df = names.frame(df, f"cannot write to '{found.name}'")
    kinds = names.column(kinds, df.columns)
    columns, overwrite = names.given(columns, df.columns), names.overwrite(overwrite)
    letters = None if dead_letters is None else opened(dead_letters)
    if letters is not None:
        check_letters(df, letters, f"cannot write to '{found.name}'")
    good = df if letters is None else df.drop(REJECTED)
    keeps = keeps_values(good, found.definition)
    plain = good.drop(UNAVAILABLE) if keeps else good
    transaction = begin(
        found.definition,
        found.env,
        columns=columns,
        overwrite=overwrite,
        changes=changes,
        commit_user=commit_user,
        identifier=identifier,
        watermark=watermark,
        run=on_tasks(df.sparkSession, found.env),
        rows=arrow_schema_of(plain.schema),
        kinds=kinds,
    )
    if keeps:
        check_call(transaction.target)
    done, snapshot = transaction.applied()
    if done:
        return snapshot
    if letters is not None:
        with _kept(df):
            bad = letters_frame(df, found.name, found.env.clock())
            user = letters_user(commit_user, found.name)
            write(bad, letters, commit_user=user, identifier=identifier, through="arrow")
            good = df.where(quoted(REJECTED).isNull()).drop(REJECTED)
            if keeps and stores_keys(found.definition):
                return _written_with_stored(transaction, good, kinds, letters)
            return write(
                good, found, kinds, columns, overwrite, commit_user, identifier, collect, through, watermark, changes
            )
    if keeps and stores_keys(found.definition):
        return _written_with_stored(transaction, df, kinds, None)
    df = plain
    if collect:
        with our_errors(df.sparkSession):
            rows = df.toArrow()
        return found.write(rows, kinds, columns, overwrite, commit_user, identifier, watermark, changes)
    return transaction.finish(_written(transaction, df, found, kinds, through))


def write_rows_of_query(
    df: DataFrame,
    table: Table,
    computed_from: Reads | None,
    columns: Sequence[str] | None = None,
    overwrite: Overwrite = None,
) -> Snapshot | None:
    """Write rows that a query gives, in the columns of the table, if what it read of the table is as it was.

    Args:
        computed_from: what the query has read of the table; None: nothing.

    Raises:
        ConflictError: it has changed; `overtaken` is QUERY, and the query has to run again.
    """
    from merganser.spark.compaction import on_tasks

    transaction = begin(
        table.definition,
        table.env,
        columns=columns,
        overwrite=overwrite,
        run=on_tasks(df.sparkSession, table.env),
        rows=arrow_schema_of(df.schema),
    )
    transaction.computed_from = computed_from
    return transaction.finish(_written(transaction, df, table, None, "auto"))


def _written(
    transaction: Transaction, df: DataFrame, table: Table, kinds: str | None, through: str
) -> list[CommitMessage]:
    """Return what tasks wrote of the rows; `through` as for `write`."""
    path = None if through == "arrow" else _staging_path(df, table, must=through == "files")
    written = _arrow_written if path is None else partial(_files_written, path=path)
    return written(transaction, df, kinds)


@contextmanager
def _kept(df: DataFrame) -> Iterator[None]:
    """Let Spark keep the rows inside, unless it does already: two commits are made of them."""
    level = df.storageLevel
    if level.useMemory or level.useDisk:
        yield
        return
    df.persist()
    try:
        yield
    finally:
        df.unpersist()


def _staging_path(df: DataFrame, table: Table, *, must: bool) -> str | None:
    """Return where Spark writes the rows of a DataFrame for tasks to load; None: they are handed over.

    Args:
        must: raise rather than return None.

    Raises:
        UnsupportedError: rows must go through files, and cannot.
    """
    from merganser.spark.staging import FILES_FROM_BYTES, estimated_bytes, spark_path, why_not_staged

    why = why_not_staged(df)
    if why is not None and must:
        raise UnsupportedError(
            f"cannot write to '{table.name}' through files: {why}. Nothing was written. Leave through='files' out.",
            table=table.name,
        )
    if why is not None or not (must or (estimated_bytes(df) or 0) >= FILES_FROM_BYTES):
        return None
    try:
        return spark_path(df.sparkSession, table.definition, table.env)
    except UnsupportedError:
        if must:
            raise
        return None


def _files_written(transaction: Transaction, df: DataFrame, kinds: str | None, *, path: str) -> list[CommitMessage]:
    """Return what tasks wrote that loaded the rows from files of Spark."""
    from merganser.spark.files import run_portions
    from merganser.spark.staging import staged

    table, env = transaction.table, transaction.env
    begun = env.seconds()
    with staged(df, table, env, path) as (rows, portions):
        written = env.seconds()
        transaction.spent("staging", written - begun)
        outcomes = run_portions(
            df.sparkSession,
            transaction.job(kinds=kinds, assigners=assigners_on(df.sparkSession, table), shows=transaction.uuid),
            rows,
            portions,
        )
        transaction.spent("tasks", env.seconds() - written)
    return messages_of(table, env, outcomes)


def _written_with_stored(
    transaction: Transaction, df: DataFrame, kinds: str | None, letters: Table | None
) -> Snapshot | None:
    """Write rows that keep values of stored rows; see `keeping`."""
    from merganser.handle.dead_letters import DeadLetters
    from merganser.spark.keeping import MARKS, UNAVAILABLE, KeepTask, commit

    table, env = transaction.table, transaction.env
    frame, arrival = _arranged(df, table)
    job = transaction.job(kinds=kinds, arrival=arrival, assigners=assigners_on(df.sparkSession, table))
    numbered = frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
    names = tuple(MARKS if name == UNAVAILABLE else name for name in frame.columns)
    outcomes = run_jobs(numbered, KeepTask(job, names))
    messages = messages_of(table, env, outcomes)
    folders = [outcome.kept for outcome in outcomes if outcome.kept is not None]
    if not folders:
        return transaction.finish(messages)
    number = None if transaction.identifier == BATCH_IDENTIFIER else transaction.identifier
    user = None if number is None else transaction.user
    return commit(transaction, env, messages, folders, DeadLetters(letters, table.name, env.clock(), user, number))


def _arrow_written(transaction: Transaction, df: DataFrame, kinds: str | None) -> list[CommitMessage]:
    """Return what tasks wrote that were handed the rows, those of a bucket to one task."""
    table, env = transaction.table, transaction.env
    frame, arrival = _arranged(df, table)
    assigners = assigners_on(df.sparkSession, table)
    job = transaction.job(kinds=kinds, arrival=arrival, assigners=assigners, shows=transaction.uuid)
    begun = env.seconds()
    numbered = frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
    outcomes = run_jobs(numbered, WriteTask(job, tuple(frame.columns)))
    transaction.spent("tasks", env.seconds() - begun)
    messages = messages_of(table, env, outcomes)
    if table.keyed and table.bucket > 0 and bucket_column(table, df.schema) is not None:
        _check_writers(transaction, messages)
    return messages


def _check_writers(transaction: Transaction, messages: list[CommitMessage]) -> None:
    """Refuse to commit if a bucket of a key table had two writers: rows of one key would have no order."""
    buckets = {(message.partition, message.bucket) for message in messages}
    if len(buckets) < len(messages):
        transaction.abort(messages)
        raise InvariantError(
            f"{transaction.target.action}: {len(messages) - len(buckets)} of {len(buckets)} buckets had several "
            "writers. Nothing was committed. Set the table option 'sink.parallelism' for this write, and report the "
            "version of Spark.",
            table=transaction.table.name,
        )


def _arranged(df: DataFrame, table: TableDef) -> tuple[DataFrame, str | None]:
    """Return the rows where they are to be written, and the column of their order where they may come out of it."""
    if not table.schema.bucket_key and not table.keyed:
        return df, None
    frame = one_writer_each(df.withColumn(ARRIVAL, f.monotonically_increasing_id()), table)
    if takes_any_order(table):
        return frame, ARRIVAL
    return frame.sortWithinPartitions(quoted(ARRIVAL)).drop(ARRIVAL), None
