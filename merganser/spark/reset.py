"""`ms.reset_stream`: make a query go on from another position of its tables; `checkpoint_reset` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

from pyspark.sql import SparkSession

from merganser.errors import ConflictError, InvalidInputError
from merganser.handle.table import Table
from merganser.spark.access import opened
from merganser.spark.checkpoint_reset import Start, StreamReset, check_choice, checkpoint_logs, reset_checkpoint


def reset_stream(
    spark: SparkSession,
    checkpoint: str | PathLike[str],
    source: Table | str | Sequence[Table | str | None] | None,
    table: Table | str | None = None,
    start: Start | Sequence[Start | None] | None = None,
) -> StreamReset:
    """Make a stopped query go on from another position under its checkpoint, such as after a rollback.

    With `table`, the query goes on after the newest batch that this table has, so each row counts once. If that batch
    has rows that are gone from a source, the error says to which snapshot the table has to be rolled back.

    The numbers of the next batches are higher than all earlier ones, so that no sink takes them for repeated ones. A
    call that was interrupted may be repeated. Stop the query first: one of another session is found only if it writes
    to the checkpoint in the same moment.

    Args:
        spark: the session, which knows the queries that it runs.
        checkpoint: the directory of the query, on the disk of this machine or in a store that merganser reads.
        source: the table that the query reads. A list if the query has several sources, in its order; None: the source
            is no table of merganser.
        table: the table that the query writes.
        start: where to go on, instead of `table`: the snapshot that was read last, "latest" for what comes from now
            on, or "latest-full" for the newest rows first. Streams of records have "trim_horizon" in its place. A list
            if the query has several sources; None in it: where the query is now.

    Raises:
        InvalidInputError: an argument does not fit the query, or the query has state. Nothing was changed.
        NotFoundError, ExpiredError: there is no such checkpoint, table or snapshot, or it is no longer kept.
        ConflictError: the query runs, or the table has to be rolled back first. Nothing was changed.
    """
    action = f"cannot reset the stream of '{checkpoint!s:.200}'"
    check_choice(table, start, action)
    several = [source] if source is None or isinstance(source, Table | str) else list(source)
    sources = [None if one is None else opened(one) for one in several]
    written = None if table is None else opened(table)
    beside = next((one for one in (written, *sources) if one is not None), None)
    if beside is None:
        raise InvalidInputError(f"{action}: no table of merganser is named. Nothing was changed.")
    logs = checkpoint_logs(checkpoint, beside, action)
    query = logs.query()
    for running in spark.streams.active:
        if running.id == query:
            raise ConflictError(
                f"{action}: the query {query} runs in this session. Nothing was changed. Stop it, then repeat the call."
            )
    return reset_checkpoint(logs, sources, table=written, start=start)
