"""Rows: what every read returns, in the forms that callers want. Lazy: nothing is read before one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.filters import to_predicate
from merganser.expr.setting import Setting
from merganser.html.tables import caption_html, note_html, rows_html, shown
from merganser.options.registry import did_you_mean
from merganser.schema.arrow import fields_from_arrow
from merganser.schema.table_schema import CHANGE_KIND
from merganser.values import dataclass

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

BATCH_ROWS = 65_536
"""Most rows of a batch that is handed out."""
SHOWN_ROWS = 20
"""Maximum number of rows that a notebook shows."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 file", "2,000 files"."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def waiting(files: int, *, postponed: bool) -> str:
    """Return what is to be said of files whose rows do not show yet.

    Args:
        postponed: they wait for their buckets.
    """
    what = " whose rows wait for their buckets" if postponed else " of level 0"
    return f"{counted(files, 'file')}{what} will show once the table is compacted"


def without_columns(rows: int) -> pa.Table:
    """Return a table of rows that have no columns."""
    return pa.table({"": pa.nulls(rows)}).select([])


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table under the declared schema: the same columns, nullability as declared where it holds."""
    if not len(schema):
        return table
    fields = [
        f if f.nullable or not column.null_count else f.with_nullable(True)
        for f, column in zip(schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables of `with_schema` as one. Rows that are null in a NOT NULL column make its field nullable."""
    return pa.concat_tables(tables, promote_options="default")


@dataclass(frozen=True, slots=True)
class First:
    """The first rows of a read.

    Attributes:
        caption: what is read.
        rows: more than `SHOWN_ROWS` if there are more.
        whole: whether the rows are all if they are fewer: otherwise files were not read.
        columns: number of columns of the read, of which the rows may have fewer.
    """

    caption: str
    rows: pa.Table
    whole: bool
    columns: int

    def parts(self) -> tuple[str, str, str]:
        """Return their HTML."""
        count = counted(self.rows.num_rows, "row")
        if self.rows.num_rows > SHOWN_ROWS:
            note = f"the first {SHOWN_ROWS} rows; there are more"
        elif self.whole:
            note = count
        else:
            note = f"{count} in the files that were read for this; the others were not read. to_arrow() reads all."
        shown_rows = rows_html(self.rows.slice(0, SHOWN_ROWS), kinds=CHANGE_KIND.name, columns=self.columns)
        return caption_html(self.caption), shown_rows, note_html(note)


class Rows:
    """Conversions over `to_arrow` and `to_batches`, which the heirs define."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        raise TypeError("an heir says what its schema is")

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most 65,536 rows, as they are ready; memory stays bounded."""
        yield from self.to_arrow().to_batches(max_chunksize=BATCH_ROWS)

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table. The order of rows is not defined."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream for other libraries."""
        schema = self.schema
        batches = self.to_batches()
        if not len(schema):
            return pa.RecordBatchReader.from_batches(schema, batches)
        as_declared = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)
        return pa.RecordBatchReader.from_batches(schema, as_declared)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas frame.

        Raises:
            UnsupportedError: pandas is not installed.
        """
        if find_spec("pandas") is None:
            raise UnsupportedError(
                "cannot give the rows as a pandas frame: pandas is not installed. Run pip install 'merganser[pandas]', "
                "or use to_arrow() or to_polars()."
            )
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars frame."""
        import polars  # noqa: PLC0415 - a conversion at the handle

        return polars.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return all rows as dictionaries.

        Raises:
            UnsupportedError: another program wrote a date or time that Python does not have.
        """
        rows = self.to_arrow()
        try:
            return rows.to_pylist()  # type: ignore[no-any-return]
        except (OverflowError, ValueError) as error:
            raise UnsupportedError(
                f"cannot give the rows as Python objects: {error}. A date or time lies outside of the years 1 to 9999, "
                "and Python has no object for it. Use to_arrow() or to_polars(), or leave such rows out with where=."
            ) from error

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.to_arrow().num_rows)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows to any library that speaks Arrow's stream interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _first(self) -> First:
        found = self.to_arrow()
        return First(repr(self), found, True, found.num_columns)

    def _repr_html_(self) -> str:
        """Return the first rows, for notebooks."""
        return shown(repr(self), lambda: self._first().parts())


def check_asked_rows(name: str, columns: Any, limit: int | None) -> None:
    """Raise InvalidInputError if `columns` is no list of names, or `limit` no number of rows."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise InvalidInputError(f"cannot read '{name}': limit must be a number of rows, 0 or more, not {limit!r}.")
    if isinstance(columns, str):
        raise InvalidInputError(
            f"columns must be a list of names, not the text '{columns}'. Write columns=['{columns}']."
        )
    if columns is not None and not isinstance(columns, Iterable):
        raise InvalidInputError(f"columns must be a list of names, not {columns!r:.100}. Write columns=['id'].")


def asked_rows(
    found: pa.Table, name: str, columns: Sequence[str] | None, where: Any, limit: int | None, setting: Setting
) -> pa.Table:
    """Return the rows of a system table that a read asks for.

    Args:
        name: of the system table, for messages.

    Raises:
        InvalidInputError: there is no such column, or the filter is invalid.
    """
    if where is not None:
        fields = tuple(replace(f, id=i) for i, f in enumerate(fields_from_arrow(found.schema)))
        predicate = to_predicate(where, fields, setting=setting)
        found = found if predicate is None else predicate.apply(found)
    for column in columns or ():
        if column not in found.column_names:
            hint = did_you_mean(str(column), found.column_names)
            raise InvalidInputError(f"'{name}' has no column '{column}'. {hint}", column=column)
    if columns is not None:
        found = found.select(list(columns))
    return found if limit is None else found.slice(0, limit)


@dataclass(frozen=True)
class StoredRows(Rows):
    """Rows of a small table that is made when it is asked for, such as a system table."""

    make: Callable[[], pa.Table]
    title: str

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return self.to_arrow().schema

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table."""
        return self.make()

    def _first(self) -> First:
        return replace(super()._first(), caption=self.title)

    def __repr__(self) -> str:
        return f"StoredRows({self.title!r})"

    def explain(self) -> str:
        """Return what is read."""
        return f"table      {self.title}\nread       metadata only"
