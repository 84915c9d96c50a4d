"""Rows out of a table to a person or a file, and rows of files into a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from merganser.cli import render
from merganser.cli.arguments import format_of_path
from merganser.cli.output import cells, sink_of
from merganser.codec.display import is_number
from merganser.errors import InvalidInputError
from merganser.handle.system_table import CatalogTable, SystemTable, TableView
from merganser.handle.table import Table
from merganser.ingest.files import rows_of_files
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import MetaReader
from merganser.options.registry import did_you_mean
from merganser.progress.sizes import size_text
from merganser.scan.export import write_rows
from merganser.scan.rows import Rows
from merganser.schema.literals import value_of_text
from merganser.schema.types import Field
from merganser.upkeep.plan_compaction import deletes_left


def show(
    table: Table | SystemTable | CatalogTable | TableView,
    *,
    columns: Sequence[str] | None,
    where: str | None,
    limit: int | None,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
    form: str | None,
    output: str | None,
    shown_max: int,
) -> None:
    """Print rows, or write them to a file.

    Args:
        table: what to read.
        columns: columns to read; None: all.
        where: filter.
        limit: most rows.
        snapshot, tag, timestamp: as of this snapshot, tag or time; at most one of them.
        form: "table", "csv", "json" or "parquet"; None: as the name of `output` ends, else "table".
        output: the file; None: stdout.
        shown_max: rows of a table when `limit` is None.
    """
    form = _form(form, output)
    cut = form == "table" and limit is None
    wanted = shown_max + 1 if cut else limit
    if isinstance(table, SystemTable | CatalogTable):
        if snapshot is not None or tag is not None or timestamp is not None:
            raise InvalidInputError(
                f"'{table.name}' is a system table, which is read as it is now: leave out --snapshot, --tag and "
                "--timestamp."
            )
        found: Rows = table.read(columns=columns, where=where, limit=wanted)
    else:
        found = table.read(columns=columns, where=where, limit=wanted, snapshot=snapshot, tag=tag, timestamp=timestamp)
    if form == "table":
        _print(found.to_arrow(), shown_max if cut else None)
    else:
        _write(found, form, output)


def look_up(
    table: Table,
    key: Mapping[str, str],
    *,
    prefix: bool,
    columns: Sequence[str] | None,
    snapshot: int | None,
    tag: str | None,
    timestamp: str | None,
    form: str | None,
    output: str | None,
) -> None:
    """Print the row of a key, or the rows of a prefix of it, or write them to a file.

    Args:
        key: columns and the texts of their values, which are read as defaults of the columns are.
        prefix: whether the columns are only the first ones of the key.
        columns, snapshot, tag, timestamp, form, output: as for `show`.
    """
    form = _form(form, output)
    fields = {field.name: field for field in table.schema.fields}
    values = {name: _value(table, fields, name, text) for name, text in key.items()}
    look = table.lookup_prefix if prefix else table.lookup
    found = look(values, columns, snapshot, tag, timestamp)
    if form == "table":
        _print(found, None)
    else:
        _write(found, form, output)


def _value(table: Table, fields: Mapping[str, Field], name: str, text: str) -> Any:
    if name not in fields:
        raise InvalidInputError(f"'{table.name}' has no column '{name}'. {did_you_mean(name, list(fields))}")
    try:
        return value_of_text(text, fields[name].type).as_py()
    except ValueError as error:
        raise InvalidInputError(
            f"cannot look up in '{table.name}': '{text}' is not a value of column '{name}', which is "
            f"{fields[name].type}.",
            column=name,
        ) from error


def _form(form: str | None, output: str | None) -> str:
    """Return the format of rows: as given, or as the name of the file ends, or "table"."""
    form = form or (format_of_path(output) if output else None) or "table"
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise InvalidInputError("parquet is not for a terminal. Name a file with --output FILE, or pipe it somewhere.")
    if form == "table" and output is not None:
        raise InvalidInputError(
            f"cannot write '{output}': its name does not say in which form. Add --format csv, json or parquet."
        )
    return form


def _write(found: Rows | pa.Table, form: str, output: str | None) -> None:
    notes = render.stderr()
    with render.progress(notes, "reading") as status, sink_of(output) as sink:
        done = write_rows(found, form, sink, seen=lambda n: status.update(f"{render.counted(n, 'row')} read"))
    if output is not None:
        notes.print(f"{render.counted(done, 'row')}, {size_text(os.path.getsize(output))} in {output}", soft_wrap=True)


def load(
    table: Table,
    files: Sequence[str],
    *,
    kinds: str | None,
    columns: Sequence[str] | None,
    overwrite: Mapping[str, Any] | None,
    options: Mapping[str, str],
    time_zone: str | None = None,
    time_unit: str | Mapping[str, str] | None = None,
    partitions: bool = True,
) -> None:
    """Write the rows of files as one commit and say what became of them.

    Args:
        table: the table.
        files: paths or patterns; files of one pattern in the order of their paths.
        kinds: column with row kinds.
        columns: columns that are supplied; None: all.
        overwrite: a partition, {} for the table, None to add.
        options: how the files are laid out; see `ingest.file_options`.
        time_zone, time_unit, partitions: see `Table.load`.
    """
    # All patterns are looked up first, so that a misspelt one is found before a file is read.
    given = [
        rows_of_files(
            pattern,
            table.definition,
            table.env.storage,
            kinds,
            columns,
            options,
            time_zone,
            time_unit,
            partitions=partitions,
        )
        for pattern in files
    ]
    for found, rows in given:
        rows.check_directories(found.paths)
    taken = 0

    def counted(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        nonlocal taken
        for rows in tables:
            taken += rows.num_rows
            yield rows

    with table.writer(columns=columns, overwrite=overwrite) as writer:
        for found, rows in given:
            for path in found.paths:
                # An iterator, not its tables: tables that come as a stream are buffered and flushed together.
                writer.write(counted(rows.tables(rows.whole(path))), kinds)
        snapshot = writer.commit()
    if snapshot is None:
        print("nothing was committed: the files hold no rows")
        return
    assert snapshot.metrics is not None
    added, size = snapshot.metrics.files_added, size_text(snapshot.metrics.bytes_added)
    print(f"snapshot {snapshot.id}: {render.counted(taken, 'row')} written, {render.counted(added, 'file')}, {size}")


def analyze(table: Table, columns: Sequence[str] | None) -> None:
    """Count rows and values of a table, and say where the result is.

    Args:
        columns: None: all; empty: rows and bytes alone.
    """
    snapshot = table.analyze(columns)
    if snapshot is None:
        print("nothing to count: the table has no snapshot")
        return
    found = table.system("statistics").to_pylist()[0]
    print(
        f"snapshot {snapshot.id}: statistics of {render.counted(found['mergedRecordCount'], 'row')}; "
        f"`merganser read '{table.name}$statistics'` shows them"
    )


def say_changed(snapshot: Snapshot | None) -> None:
    """Say how many rows a commit changed.

    Args:
        snapshot: None: no row matched, or all of them were as they should be.
    """
    if snapshot is None:
        print("no row changes; nothing was committed")
        return
    named = {"updated": snapshot.rows_updated, "deleted": snapshot.rows_deleted}
    said = [f"{render.counted(rows, 'row')} {verb}" for verb, rows in named.items() if rows]
    print(f"{', '.join(said) or 'whole files deleted, without a look at their rows'}; snapshot {snapshot.id}")


def compact(
    table: Table,
    *,
    full: bool,
    partitions: list[dict[str, str]] | None,
    where: str | None,
    order_by: list[str] | None,
    curve: str,
) -> None:
    """Compact a table and say what changed."""
    snapshot = table.compact(full=full, partitions=partitions, where=where, order_by=order_by, curve=curve)
    left = None
    if full:
        live = MetaReader(table.definition.paths, table.env, table.name).latest().live
        left = deletes_left(table.definition, table.env, live, table.compaction_request(full, partitions, where))
    if snapshot is None:
        chosen = partitions is not None or where is not None
        print(
            "nothing to compact"
            + (" in the partitions that were chosen" if chosen else "")
            + ("" if full or order_by else "; --full puts everything into one level")
            + (f"; `merganser files {table.name}` shows which partitions there are" if chosen else "")
            + (f"; {left}" if left else "")
        )
        return
    _print_change(snapshot)
    if left:
        print(left)


def rescale(table: Table, buckets: int, *, partitions: list[dict[str, str]] | None) -> None:
    """Move rows to another number of buckets and say what changed."""
    snapshot = table.rescale(buckets, partitions)
    if snapshot is None:
        print(f"nothing to move: all rows lie in {render.counted(buckets, 'bucket')}")
        return
    _print_change(snapshot)


def _print_change(snapshot: Snapshot) -> None:
    cost = snapshot.metrics
    assert cost is not None
    print(
        f"snapshot {snapshot.id}: {render.counted(cost.files_removed, 'file')} ({size_text(cost.bytes_removed)}) "
        f"became {cost.files_added} ({size_text(cost.bytes_added)})"
    )


def _print(found: pa.Table, shown_max: int | None) -> None:
    console = render.stdout()
    shown = found if shown_max is None else found.slice(0, shown_max)
    numbers = [field.name for field in shown.schema if is_number(field.type)]
    columns = [cells(column) for column in shown.columns]
    rows = list(zip(*columns, strict=True)) if columns else []
    render.table(console, shown.column_names, rows, right=numbers, records=True)
    if not found.num_rows:
        render.stderr().print("no rows")
    elif shown.num_rows < found.num_rows:
        render.stderr().print(
            f"\nthe first {shown.num_rows} rows; there are more. --limit N prints N of them, --format csv or json all.",
            soft_wrap=True,
        )
