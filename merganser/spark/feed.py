"""`ms.cdc.write_stream` and `ms.cdc.write`: change records of many tables -> a commit of each table.

Spark    [value, key, position, table] -> `Route` -> carriers -> shuffle -> `Deliver` -> files of each table
sink     per table, the files of a micro-batch become one commit of the user "query id", identifier "batch id"
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from merganser.catalogs.catalog import Catalog
from merganser.cdc.options import COLUMNWISE, cdc_options, check_names, name_patterns, without_columns
from merganser.cdc.records import letters_user, parse_records
from merganser.errors import InvalidInputError, a_type, check_flags
from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.options.registry import arguments_of
from merganser.spark.access import check_frame, large_batches, opened, our_errors
from merganser.spark.bucketing import TASK, quoted, shuffle_tasks, to_tasks
from merganser.spark.change_records import NUMBERS as POSITIONS
from merganser.spark.change_records import TEXTS, column_of
from merganser.spark.dead_letters import check_letters_table
from merganser.spark.feed_tables import CatalogTables, GivenTables, catalog_tables, given_tables
from merganser.spark.feed_tasks import CARRIERS, DELIVERED, UNKNOWN, Deliver, Feed, Route, column_meant, options_of
from merganser.spark.jobs import NUMBERS, in_tasks
from merganser.spark.names import CASE, Spelling, is_exact
from merganser.spark.pythons import warn_of_other_python
from merganser.spark.stream_sink import check_checkpoint, letters_request, sink_writer, total, triggered
from merganser.spark.watch import OBSERVED, show
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.job import Outcome
from merganser.write.transaction import check_user, checked_identifier

_ACTION: Final = "cannot write change records"


def write_stream(
    df: DataFrame,
    format: str,
    tables: Mapping[str, Table | str] | Catalog,
    /,
    checkpoint: str | None = None,
    *,
    value: str = "value",
    key: str | None = None,
    position: str | None = None,
    table_column: str | None = None,
    target: str | None = None,
    create: bool = False,
    table_options: Mapping[str, Any] | None = None,
    unknown: str = "fail",
    dead_letters: Table | str | None = None,
    trigger: str | Mapping[str, Any] | None = None,
    name: str | None = None,
    commit_user: str | None = None,
    compaction: str | None = None,
    **options: Any,
) -> StreamingQuery:
    """Write a stream of change records of many tables, each micro-batch as one commit of each table, exactly once.

    What can be refused is refused before the query starts. Each table is exactly once by itself: after a crash some
    tables may be a batch ahead of others, until the query runs again.

    Args:
        df: the records, one per row. Rows of one key must lie in one partition, in their order.
        format, options: as for `merganser.cdc.parse`. Each table takes what dictionaries (`metadata`, `computed`,
            `time_unit`, `decimal`, `binary`) say of its columns, as `column` or as `table.column`. `database` and
            `table` choose among the names of the source.
        tables: where changes go: tables, or their paths, by `table`, `database.table` or `database.schema.table` of
            the source. `*` stands for any characters but dots; the first name that fits counts. Or a catalog: changes
            go to its table of the same name.
        checkpoint, trigger, name, commit_user, compaction: as for `ms.write_stream`.
        value, key, position: columns of `df`, as for `ms.cdc.parse`.
        table_column: the column of `df` with the name of the table of each record, such as Kafka's topic. None: the
            record itself names it.
        target: the name of a table in the catalog, with {database}, {schema} and {table} of the source, such as
            "raw.{database}_{table}". None: "{database}.{table}".
        create: create a table of the catalog that is not there from the first record that tells its columns and its
            primary key: Debezium with schemas and message keys, and Canal. A query that has written to a table
            fails when that was dropped and made anew.
        table_options: options of new tables.
        unknown: what becomes of changes of a table that is not there, or that `tables` does not name. "fail": the query
            stops with an error. "ignore": they are left out, and counted. "keep": they become dead letters.
        dead_letters: a table with the columns of `merganser.cdc.DEAD_LETTERS` for bad records. Its commit comes before
            those of the tables. None: a bad record stops the query.

    Returns:
        The query, which runs. `lastProgress.observedMetrics["merganser"]` counts what a batch wrote to all tables:
        `rows`, `retractions` among them, `files`, `bytes`, `dead_letters`; and records that were left out: `ignored`.

    Raises:
        InvalidInputError: `df` does not stream, a column is missing, or an argument or option has no meaning; nothing
            was started.
        NotFoundError: there is no table at a path.
        UnsupportedError: a table needs a feature that this version does not have.
    """
    check_names(options, arguments_of(write_stream))
    check_frame(df, _ACTION)
    if not df.isStreaming:
        raise InvalidInputError(f"{_ACTION}: the DataFrame does not stream. Nothing was started. Use ms.cdc.write.")
    check_checkpoint(df.sparkSession, checkpoint, _ACTION)
    check_user(commit_user, _ACTION)
    found = _tables(tables, target, create, table_options)
    feed, delivered = _delivered(
        df, format, found, value, key, position, table_column, unknown, dead_letters, commit_user, compaction, options
    )
    counted = delivered.observe(OBSERVED, *map(total, (*NUMBERS, "ignored")))
    messages = counted.where(f.col("message").isNotNull()).select("message")
    storage = _env_of(found).storage
    writer = sink_writer(messages, feed, storage, f"merganser-{feed.id}", "append", checkpoint, name)
    query = triggered(writer, trigger, _ACTION).start()
    show(query, name or "many tables")
    return query


@dataclass(frozen=True, slots=True)
class FeedWritten:
    """What `write` did.

    Attributes:
        snapshots: the commit of each table that was written, by the name of the table.
        rows: that were written to all tables.
        rejected: records that went to the dead letters.
        ignored: records of unknown tables that were left out.
    """

    snapshots: Mapping[str, Snapshot | None]
    rows: int
    rejected: int
    ignored: int


def write(
    df: DataFrame,
    format: str,
    tables: Mapping[str, Table | str] | Catalog,
    /,
    *,
    value: str = "value",
    key: str | None = None,
    position: str | None = None,
    table_column: str | None = None,
    target: str | None = None,
    create: bool = False,
    table_options: Mapping[str, Any] | None = None,
    unknown: str = "fail",
    dead_letters: Table | str | None = None,
    commit_user: str | None = None,
    identifier: int | None = None,
    compaction: str | None = None,
    **options: Any,
) -> FeedWritten:
    """Write a DataFrame of change records of many tables as one commit of each table.

    Args:
        commit_user, identifier: they name the commits of all tables, so a repeated call writes nothing twice. None: a
            new random name.
        others: as for `write_stream`.

    Raises:
        InvalidInputError: as for `write_stream`; or `df` streams; or a record is bad, or a table is unknown. Nothing
            was written.
        ConflictError, CommitUnknownError: as for `ms.write`. Commits of other tables may stand: repeat with the same
            user and identifier.
    """
    check_names(options, arguments_of(write))
    check_frame(df, _ACTION)
    if df.isStreaming:
        raise InvalidInputError(f"{_ACTION}: the DataFrame streams. Nothing was written. Use ms.cdc.write_stream.")
    check_user(commit_user, _ACTION)
    number = checked_identifier(identifier, commit_user)
    found = _tables(tables, target, create, table_options)
    feed, delivered = _delivered(
        df, format, found, value, key, position, table_column, unknown, dead_letters, None, compaction, options
    )
    with our_errors(df.sparkSession), large_batches(df.sparkSession):
        rows = delivered.collect()
    outcomes: list[Outcome] = [pickle.loads(bytes(row["message"])) for row in rows if row["message"] is not None]
    user = commit_user or feed.id
    snapshots = {}
    looked_up = 0
    letters = None if feed.letters is None else replace(feed.letters, user=user)
    for request, files, kept in feed.written(outcomes):
        if request is feed.letters:
            replace(request, user=str(letters_user(user, "many tables"))).apply("", number, files)
        else:
            found_bad = request.dead_letters(letters, "", number)
            own = replace(request, user=user)
            snapshots[request.table.name] = own.apply("", number, files, kept, found_bad)
            looked_up += found_bad.count
    counts = {name: sum(row[name] for row in rows) for name in ("rows", "dead_letters", "ignored")}
    return FeedWritten(snapshots, counts["rows"], counts["dead_letters"] + looked_up, counts["ignored"])


def _tables(
    tables: Mapping[str, Table | str] | Catalog,
    target: str | None,
    create: bool,
    table_options: Mapping[str, Any] | None,
) -> GivenTables | CatalogTables:
    if isinstance(tables, Catalog):
        check_flags(_ACTION, create=create)
        if table_options and not create:
            raise InvalidInputError(
                f"{_ACTION}: table_options= are those of new tables, and no table is created. Nothing was started. "
                "Give create=True, or leave them out."
            )
        return catalog_tables(tables, target or "{database}.{table}", _ACTION, create=create, options=table_options)
    if not isinstance(tables, Mapping):
        raise InvalidInputError(
            f"{_ACTION}: tables is {a_type(tables)}. Give a dict of tables by the names of the source, or a "
            "Catalog. Nothing was started."
        )
    if target is not None or create or table_options:
        raise InvalidInputError(
            f"{_ACTION}: target=, create= and table_options= go with a Catalog, and tables is a dict. Nothing was "
            "started. Give the Catalog in place of the dict."
        )
    return given_tables(tables, _ACTION)


def _env_of(tables: GivenTables | CatalogTables) -> Env:
    return tables.tables[0].env if isinstance(tables, GivenTables) else tables.catalog.env


def _delivered(
    df: DataFrame,
    format_: str,
    tables: GivenTables | CatalogTables,
    value: str,
    key: str | None,
    position: str | None,
    table_column: str | None,
    unknown: str,
    dead_letters: Table | str | None,
    user: str | None,
    compaction: str | None,
    options: Mapping[str, Any],
) -> tuple[Feed, DataFrame]:
    """Return what is written where, checked, and the DataFrame whose tasks write files."""
    if unknown not in UNKNOWN:
        raise InvalidInputError(
            f"{_ACTION}: unknown is {unknown!r:.50}. It is one of {', '.join(map(repr, UNKNOWN))}. Nothing was started."
        )
    letters = None if dead_letters is None else opened(dead_letters)
    if letters is None and unknown == "keep":
        raise InvalidInputError(
            f"{_ACTION}: unknown='keep' keeps records of unknown tables as dead letters, and there is no table for "
            "them. Nothing was started. Give dead_letters=."
        )
    if letters is not None:
        check_letters_table(letters, _ACTION)
    known = tables.tables if isinstance(tables, GivenTables) else ()
    _check_options(format_, known, options, named=table_column is not None)
    own = None if letters is None else letters_request(letters, "" if user is None else f"{user}-")
    feed = Feed(_env_of(tables).new_id(), tables, user, compaction, own)
    for place in range(len(known)):
        feed.sink(str(place))
    spark = df.sparkSession
    spelling = Spelling((), is_exact(spark.conf.get(CASE, "false")))
    columns = {
        "value": column_of(df, spelling, value, "value", TEXTS, _ACTION),
        "key": column_of(df, spelling, key or "key", "key", TEXTS, _ACTION, must=key is not None),
        "position": column_of(
            df, spelling, position or "offset", "position", POSITIONS, _ACTION, must=position is not None
        ),
    }
    if table_column is not None:
        columns["table"] = column_of(df, spelling, table_column, "table_column", TEXTS[:1], _ACTION)
    warn_of_other_python(spark)
    records = df.select(*[quoted(name).alias(role) for role, name in columns.items() if name is not None])
    tasks = shuffle_tasks(spark)
    carriers = in_tasks(records, Route(feed, format_, options, unknown, tasks), CARRIERS)
    arranged = carriers.repartition(1) if tasks == 1 else to_tasks(carriers, tasks)
    return feed, in_tasks(arranged.drop(TASK), Deliver(feed, tasks, options.get("unavailable") == "keep"), DELIVERED)


def _check_options(format_: str, tables: Sequence[Table], options: Mapping[str, Any], *, named: bool) -> None:
    """Refuse options without a meaning, and columns that no table has.

    Args:
        tables: those that are known.
        named: a column names the table of each record.
    """
    plain = without_columns(options)
    if cdc_options(format_, {}, (), ()).format == "json":
        name_patterns(plain)
        plain = {key: value for key, value in plain.items() if key not in ("database", "table")}
        if not named:
            raise InvalidInputError(
                f"{_ACTION}: records of the format 'json' do not name their table. Nothing was started. Name the "
                "column that does with table_column=."
            )
    cdc_options(format_, plain, (), ())
    for option in COLUMNWISE:
        given = options.get(option)
        extra = [
            name
            for name in (given if isinstance(given, Mapping) else ())
            if not any(
                column_meant(name, table.name, [field.name for field in table.schema.fields]) for table in tables
            )
        ]
        if extra and tables:
            raise InvalidInputError(
                f"{_ACTION}: option '{option}' names the column {extra[0]!r:.60}, which none of the tables has. "
                "Nothing was started.",
                option=option,
            )
    for table in tables:
        fields = table.schema.fields
        taken = options_of(options, [field.name for field in fields], table.name)
        parse_records(pa.array([], pa.binary()), format_, fields, table.primary_key, taken)
