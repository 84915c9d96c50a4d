"""Commands about the rows of a table, and the snapshots and files that hold them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any

import typer

from merganser.cli.arguments import Columns, Snapshot, Store, TableName, Tag, Timestamp, Warehouse, Where, pairs

SHOWN_ROWS_MAX = 50
SHOWN_SNAPSHOTS_MAX = 20


class Format(str, Enum):  # noqa: UP042 - typer wants the texts of a plain str enum
    """Forms in which rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


RowsFormat = Annotated[
    Format | None,
    typer.Option(
        "--format",
        "-f",
        help="Format of the rows.  [default: the extension of --output, else table]",
        show_default=False,
    ),
]
RowsFile = Annotated[
    str | None,
    typer.Option("--output", metavar="FILE", help="Write to this file instead of the terminal.", show_default=False),
]


def read(
    table: TableName,
    columns: Columns = None,
    where: Where = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            help=f"At most this many rows.  [default: {SHOWN_ROWS_MAX} as a table, else all]",
            show_default=False,
        ),
    ] = None,
    snapshot: Snapshot = None,
    tag: Tag = None,
    timestamp: Timestamp = None,
    format: RowsFormat = None,
    output: RowsFile = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Print the merged rows of a table.

    csv has a heading, json has one object per line. System tables such as 'shop.orders$files' work in the same way.
    """
    from merganser.cli import rows
    from merganser.cli.target import names, target_of

    rows.show(
        target_of(table, warehouse, store),
        columns=names(columns) or None,
        where=where,
        limit=limit,
        snapshot=snapshot,
        tag=tag,
        timestamp=timestamp,
        form=None if format is None else format.value,
        output=output,
        shown_max=SHOWN_ROWS_MAX,
    )


def lookup(
    table: TableName,
    key: Annotated[
        list[str],
        typer.Argument(
            metavar="COLUMN=VALUE...",
            help="Columns of the primary key, and the partition columns that it lacks.",
            show_default=False,
        ),
    ],
    prefix: Annotated[
        bool,
        typer.Option("--prefix", help="All rows whose key begins with these values: those of the bucket key."),
    ] = False,
    columns: Columns = None,
    snapshot: Snapshot = None,
    tag: Tag = None,
    timestamp: Timestamp = None,
    format: RowsFormat = None,
    output: RowsFile = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Print the row of a key, without a scan.

    Only files that may hold the key are opened.
    """
    from merganser.cli import rows
    from merganser.cli.target import names, table_of

    rows.look_up(
        table_of(table, warehouse, store),
        pairs(key, "COLUMN=VALUE"),
        prefix=prefix,
        columns=names(columns) or None,
        snapshot=snapshot,
        tag=tag,
        timestamp=timestamp,
        form=None if format is None else format.value,
        output=output,
    )


def write(
    table: TableName,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="parquet, csv, json or arrow files, or patterns of them.", show_default=False
        ),
    ],
    kinds: Annotated[
        str | None,
        typer.Option("--kinds", metavar="COLUMN", help="Column of the files with +I, -U, +U or -D. It is not stored."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="A,B",
            help="Columns that the files have; the others get their default or null.  [default: all]",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the rows of the table.")] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(
            "--partition", metavar="COLUMN=VALUE", help="With --overwrite: replace this partition only. Repeatable."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="KEY=VALUE",
            help="Option of the files, such as csv.delimiter=; or csv.null=,NA. Repeatable.",
        ),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option("--time-zone", metavar="ZONE", help="Zone of clock times in text files.  [default: UTC]"),
    ] = None,
    time_unit: Annotated[
        list[str] | None,
        typer.Option(
            "--time-unit",
            metavar="UNIT",
            help="Unit of integers for times in text files: s, ms, us or ns; COLUMN=UNIT for one column. Repeatable.",
        ),
    ] = None,
    partitions: Annotated[
        bool,
        typer.Option("--partitions/--no-partitions", help="Whether directories such as day=1 say columns."),
    ] = True,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Write the rows of files into a table, as one commit.

    Columns are matched by name. A row replaces an older row with the same key. Options of files are
    format, csv.delimiter, csv.quote, csv.escape, csv.header, csv.encoding, csv.null, csv.binary, zero_dates and
    out_of_range.
    """
    from merganser.cli import rows
    from merganser.cli.target import names, table_of

    if partition and not overwrite:
        raise typer.BadParameter(
            "it says what --overwrite replaces, and --overwrite is not given.", param_hint="--partition"
        )
    rows.load(
        table_of(table, warehouse, store),
        files,
        kinds=kinds,
        columns=names(columns) or None,
        overwrite=dict(pairs(partition, "--partition")) if overwrite else None,
        options=pairs(option, "--option"),
        time_zone=time_zone,
        time_unit=time_unit[0] if time_unit and "=" not in time_unit[0] else pairs(time_unit, "--time-unit") or None,
        partitions=partitions,
    )


def delete(
    table: TableName,
    where: Annotated[
        str, typer.Option("--where", metavar="SQL", help='Which rows, such as "amount < 0". TRUE: all of them.')
    ],
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Remove the rows that match a filter, as one commit."""
    from merganser.cli import rows
    from merganser.cli.target import table_of

    rows.say_changed(table_of(table, warehouse, store).delete(where))


def erase(
    table: TableName,
    where: Annotated[
        str,
        typer.Option("--where", metavar="SQL", help='Which rows, such as "id = 7"; of a key, all versions.'),
    ],
    everywhere: Annotated[
        bool,
        typer.Option(
            "--everywhere", help="Also in branches, and end the snapshots, tags and consumers that hold the rows."
        ),
    ] = False,
    report: Annotated[
        str | None,
        typer.Option("--report", metavar="FILE", help="Write the report as JSON, to be kept.", show_default=False),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Remove rows from every file of a table, and verify it.

    With --everywhere, the command fails if something still holds the rows. It can be repeated.
    """
    from merganser.cli.advice import at_the_shell
    from merganser.cli.output import sink_of
    from merganser.cli.render import stderr
    from merganser.cli.target import table_of

    opened = table_of(table, warehouse, store)
    with contextlib.nullcontext() if report is None else sink_of(report) as sink:
        done = opened.erase(where, everywhere)
        if sink is not None:
            sink.write(done.to_json().encode() + b"\n")
    print(at_the_shell(str(done)))
    if not done.is_complete and everywhere:
        raise typer.Exit(1)
    if not done.is_complete:
        stderr().print("--everywhere ends what still holds the rows", soft_wrap=True)


def update(
    table: TableName,
    where: Annotated[
        str, typer.Option("--where", metavar="SQL", help='Which rows, such as "amount < 0". TRUE: all of them.')
    ],
    sets: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="COLUMN=SQL",
            help='New value, such as "amount=amount + 1" or "city=\'Oslo\'". Repeatable.',
            show_default=False,
        ),
    ],
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Give new values to the rows that match a filter.

    A value is computed from the row as it was. Key, partition and bucket-key columns cannot be set.
    """
    from merganser.cli import rows
    from merganser.cli.target import assignments, table_of

    rows.say_changed(table_of(table, warehouse, store).update(where, assignments(sets, "--set")))


def snapshots(
    table: TableName,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help="The newest N; 0: all.")
    ] = SHOWN_SNAPSHOTS_MAX,
    long: Annotated[bool, typer.Option("--long", "-l", help="Also show commit user, identifier and schema.")] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Show the snapshots of a table and what each changed."""
    from merganser.cli import history
    from merganser.cli.render import stdout
    from merganser.cli.target import table_of

    history.show_snapshots(table_of(table, warehouse, store), stdout(), limit=limit, long=long)


def files(
    table: TableName,
    snapshot: Snapshot = None,
    tag: Tag = None,
    timestamp: Timestamp = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Show the live data files of a table, bucket by bucket."""
    from merganser.cli import history
    from merganser.cli.render import stdout
    from merganser.cli.target import table_of

    history.show_files(table_of(table, warehouse, store), stdout(), snapshot=snapshot, tag=tag, timestamp=timestamp)


def explain(
    table: TableName,
    where: Where = None,
    columns: Columns = None,
    snapshot: Snapshot = None,
    tag: Tag = None,
    timestamp: Timestamp = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Show which files a read opens and which files it skips."""
    from merganser.cli.target import names, table_of

    scan = table_of(table, warehouse, store).read(
        columns=names(columns) or None, where=where, snapshot=snapshot, tag=tag, timestamp=timestamp
    )
    print(scan.explain())


def compact(
    table: TableName,
    full: Annotated[
        bool, typer.Option("--full", help="Merge everything, and rewrite files as the options now ask.")
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="COLUMN=VALUE", help="Only this partition. Repeatable for its columns."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Only partitions that match this filter.")
    ] = None,
    order_by: Annotated[
        list[str] | None,
        typer.Option("--order-by", metavar="A,B", help="Sort rows by these columns; tables without a key only."),
    ] = None,
    curve: Annotated[
        str, typer.Option("--curve", metavar="NAME", help="order, or zorder or hilbert for filters on any of them.")
    ] = "order",
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Compact a table, so that reads merge less.

    Reads return the same rows as before.
    """
    from merganser.cli import rows
    from merganser.cli.target import names, table_of

    spec = dict(pairs(partition, "--partition"))
    rows.compact(
        table_of(table, warehouse, store),
        full=full,
        partitions=[spec] if spec else None,
        where=where,
        order_by=names(order_by) or None,
        curve=curve,
    )


def rescale(
    table: TableName,
    buckets: Annotated[int, typer.Argument(metavar="BUCKETS", help="The number of buckets after.")],
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="COLUMN=VALUE", help="Only this partition. Repeatable for its columns."),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Move rows to another number of buckets.

    Reads return the same rows as before, and streams go on. Writers that are running may have to be started again.
    """
    from merganser.cli import rows
    from merganser.cli.target import table_of

    spec = dict(pairs(partition, "--partition"))
    rows.rescale(table_of(table, warehouse, store), buckets, partitions=[spec] if spec else None)


def analyze(
    table: TableName,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "-c", metavar="A,B", help="Columns to count values of.  [default: all]"),
    ] = None,
    rows_only: Annotated[
        bool, typer.Option("--rows-only", help="Count rows and bytes, and no values of columns.")
    ] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Count rows and values of a table.

    The counts are committed, and engines plan by them.
    """
    from merganser.cli import rows
    from merganser.cli.target import names, table_of

    if rows_only and columns:
        raise typer.BadParameter("--rows-only counts no columns; leave one of the two out.", param_hint="--columns")
    rows.analyze(table_of(table, warehouse, store), () if rows_only else names(columns) or None)


COMMANDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("read", read),
    ("lookup", lookup),
    ("write", write),
    ("delete", delete),
    ("erase", erase),
    ("update", update),
    ("snapshots", snapshots),
    ("files", files),
    ("explain", explain),
    ("compact", compact),
    ("rescale", rescale),
    ("analyze", analyze),
)
