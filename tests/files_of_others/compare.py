"""Rows of a folder in tables, against the rows that its writer's own reader gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import merganser as mg
from merganser.errors import MerganserError

WAYS: Final = ("load", "link", "keep", "copy")
"""How a folder becomes a table: `load` into a table of the expected columns, and the ways of `migrate`."""

_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def expected_rows(folder: Path) -> pa.Table:
    """The rows that the writer's own reader gave."""
    with pa.ipc.open_file(folder.parent / f"{folder.name}.arrow") as file:
        return file.read_all()


def table_of(catalog: mg.Catalog, name: str, folder: Path, way: str, form: str | None = None) -> mg.Table:
    """Make a table of a folder."""
    if way != "load":
        return catalog.migrate(folder, name, how=way, format=form)
    expected = expected_rows(folder)
    kinds = pa.schema([_wanted(column).with_nullable(True) for column in expected.schema])
    table = catalog.create_table(name, kinds.remove_metadata())
    table.load(folder, options={"format": form} if form else None)
    return table


def outcome(catalog: mg.Catalog, name: str, folder: Path, way: str, form: str | None = None) -> str:
    """`equal`, `refused: ...` with what the error says, or `WRONG: ...` with the first difference."""
    expected = expected_rows(folder)
    try:
        table = table_of(catalog, name, folder, way, form)
    except MerganserError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {error}"
    try:
        return difference(table.read().to_arrow(), expected) or "equal"
    except Exception as error:
        return f"WRONG: it cannot be read: {type(error).__name__}: {error}"


def difference(found: pa.Table, expected: pa.Table) -> str:
    """What rows of a table differ in from those that were expected; empty: in nothing. Both have a column `id`."""
    if set(found.column_names) != set(expected.column_names):
        return f"WRONG: columns {found.column_names}, expected {expected.column_names}"
    found, expected = found.sort_by("id"), expected.sort_by("id")
    for name in expected.column_names:
        theirs = expected.column(name)
        if pa.types.is_time(theirs.type) and pa.types.is_string(found.column(name).type):
            theirs = theirs.cast(pa.string())
        ours, theirs = plain(found.column(name)), plain(theirs)
        if ours != theirs:
            return f"WRONG: {name} is {ours}, expected {theirs}"
    return ""


def plain(values: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Values as Python has them whatever their Arrow type: dates as days, times as nanoseconds, maps as pairs."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    is_, kind = pa.types, array.type
    if is_.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if is_.is_timestamp(kind) or is_.is_time(kind):
        factor = 10**9 // _PER_SECOND[kind.unit]
        counts = array.cast(pa.int32() if is_.is_time32(kind) else pa.int64()).to_pylist()
        return [None if count is None else count * factor for count in counts]
    if is_.is_date(kind):
        return array.cast(pa.date32()).cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if is_.is_struct(kind):
        parts = [plain(part) for part in array.flatten()]
        names = [kind.field(i).name for i in range(kind.num_fields)]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if is_.is_map(kind):
        return [None if not one.is_valid else plain(one.values) for one in array]
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return [None if not one.is_valid else plain(one.values) for one in array]
    return ["nan" if value != value else value for value in array.to_pylist()]


def _wanted(column: pa.Field) -> pa.Field:
    """The column of a table that takes the values: Arrow's types that no table has are stored as the nearest."""
    kind = column.type
    if pa.types.is_time64(kind):
        return column.with_type(pa.string())
    return column.with_type(kind.value_type) if pa.types.is_dictionary(kind) else column
