"""Frames of pandas and Polars -> Arrow tables, where Arrow's own way would lose or misread values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.ingest.python_values import array_of, has_maps
from merganser.schema import types as t
from merganser.schema.lazy_polars import pl

_NUMBERS: Final = (t.Float, t.Double, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Decimal)


def of_frame(data: Any, fields: Sequence[t.Field]) -> pa.Table | None:
    """Return the rows of a frame; None: it is none of these, or Arrow takes it as it is.

    Args:
        fields: columns of the table that the rows are for.

    Raises:
        InvalidInputError: a column has values that nothing in a table holds.
    """
    library = type(data).__module__.partition(".")[0]
    if library == "pandas" and hasattr(data, "columns"):
        return _of_pandas(data, fields)
    return _of_polars(data) if library == "polars" and isinstance(data, pl.DataFrame) else None


def _of_polars(data: pl.DataFrame) -> pa.Table | None:
    """Return the rows of a frame with integers of 128 bits as decimals; None: it has none.

    Polars hands out the addresses of Python objects as their bytes.
    """
    wide = []
    for name, kind in data.schema.items():
        parts = list(_parts(kind))
        if pl.Object in parts:
            raise InvalidInputError(
                f"cannot take column '{name}' of the Polars frame: it holds Python objects (dtype Object), which have "
                "no form outside of this process. Nothing was written. Give it a dtype: pl.Binary, pl.String.",
                column=name,
            )
        if {pl.Int128, pl.UInt128} & set(parts):
            if kind not in (pl.Int128, pl.UInt128):
                raise InvalidInputError(
                    f"cannot take column '{name}' of the Polars frame: its type {kind} has integers of 128 bits "
                    "inside. Nothing was written. Cast them to pl.Int64 or to pl.Decimal(38, 0).",
                    column=name,
                )
            wide.append(name)
    if not wide:
        return None
    try:
        return data.with_columns(pl.col(wide).cast(pl.Decimal(38, 0))).to_arrow()
    except pl.exceptions.PolarsError as error:
        why = str(error).partition("\n")[0]
        raise InvalidInputError(
            f"cannot take the rows of the Polars frame: {why}. Nothing was written. Integers have at most 38 digits."
        ) from error


def _parts(kind: Any) -> Sequence[Any]:
    """Return a type and the types inside of it."""
    if isinstance(kind, pl.Struct):
        return [kind.base_type(), *(part for field in kind.fields for part in _parts(field.dtype))]
    if isinstance(kind, pl.List | pl.Array):
        return [kind.base_type(), *_parts(kind.inner)]
    return [kind.base_type()]


def _of_pandas(data: Any, fields: Sequence[t.Field]) -> pa.Table:
    kinds = {field.name: field.type for field in fields}
    try:
        once = {name for name, count in Counter(data.columns).items() if count == 1}
        maps = {
            name: array_of(data[name].where(data[name].notna(), None).tolist(), kinds[name])
            for name in data.columns
            if name in kinds and name in once and has_maps(kinds[name]) and data[name].dtype == object
        }
        plain = data.drop(columns=list(maps)) if maps else data
        rows = pa.Table.from_pandas(plain, preserve_index=False).replace_schema_metadata(None)
        for name, column in maps.items():
            rows = rows.append_column(name, column)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        why = ": ".join(str(part) for part in reversed(error.args)).rstrip(".")
        raise InvalidInputError(
            f"cannot take the rows of the pandas frame: {why}. Give a column values of one type, and each name once."
        ) from error
    return _without_pandas_types(rows, kinds)


def _without_pandas_types(rows: pa.Table, kinds: dict[str, t.DataType]) -> pa.Table:
    """Refuse types that pandas alone knows. A column of NaN alone becomes one of nulls.

    So pandas stores a column without values, of whatever type.
    """
    columns, names = rows.columns, rows.column_names
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        if isinstance(column.type, pa.BaseExtensionType) and column.type.extension_name.startswith("pandas."):
            raise InvalidInputError(
                f"cannot take column '{name}' of the pandas frame: it has the type {column.type}, and no column of a "
                f"table holds such values. Nothing was written. Give text, such as frame['{name}'].astype(str).",
                column=name,
            )
        missing = pa.types.is_floating(column.type) and column.null_count == len(column)
        if missing and name in kinds and not isinstance(kinds[name], _NUMBERS):
            columns[i] = pa.chunked_array([pa.nulls(len(column))])
    return pa.Table.from_arrays(columns, names)
