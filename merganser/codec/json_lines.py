"""Rows -> lines of JSON that `ingest.text` reads back as equal rows.

A value is turned into text column by column, from the leaves up. Dates, times, timestamps and decimals are texts, bytes
are base64, a map is a list of {"key": ..., "value": ...}. In `LINES`, NaN and the infinities stand bare, as Python
writes and Spark reads them: a text could not be told from one in every place. JSON has no such numbers, so `STRICT`
makes texts of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_HEAD: Final = '{"v":'


@dataclass(frozen=True, slots=True)
class JsonForm:
    """How numbers are written that not every reader of JSON takes.

    Attributes:
        non_finite: NaN, Infinity and -Infinity in quotes.
        big: BIGINT in quotes, for readers whose numbers are doubles.
    """

    non_finite: bool = False
    big: bool = False


LINES: Final = JsonForm()
STRICT: Final = JsonForm(non_finite=True)
STRICT_TEXTS: Final = JsonForm(non_finite=True, big=True)


def json_lines(batch: pa.RecordBatch, form: JsonForm = LINES) -> bytes:
    """Return the rows of a batch, an object and a line end for each."""
    if not batch.num_rows:
        return b""
    objects = _objects(batch.schema.names, batch.columns, batch.num_rows, form)
    lines = pc.binary_join_element_wise(objects, _text("\n"), _text(""))
    offsets = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(lines.buffers()[2])[int(offsets[0]) : int(offsets[-1])].tobytes()


def _texts(array: pa.Array, form: JsonForm) -> pa.Array:
    """Return the JSON of each value, as large_string without nulls."""
    kind = array.type
    if not len(array):
        return pa.array([], pa.large_string())
    if pa.types.is_struct(kind):
        found = _objects([field.name for field in kind], array.flatten(), len(array), form)
    elif pa.types.is_map(kind):
        array = array.take(pa.array(np.arange(len(array))))  # from offset 0, and nothing under nulls
        keys, values = _texts(array.keys, form), _texts(array.items, form)
        parts = [_text('{"key":'), keys, _text(',"value":'), values, _text("}"), _text("")]
        found = _joined(np.asarray(array.offsets), pc.binary_join_element_wise(*parts), "[", "]")
    elif pa.types.is_list(kind):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        found = _joined(np.concatenate(([0], np.cumsum(lengths))), _texts(array.flatten(), form), "[", "]")
    elif pa.types.is_binary(kind):
        return _leaf(_polars(base64(array)))
    elif pa.types.is_int64(kind) and form.big:
        return _leaf(_polars(array.cast(pa.string())))
    else:
        found = _leaf(_polars(array))
        if pa.types.is_floating(kind):
            quote = '"' if form.non_finite else ""
            for value, text in ((np.inf, "Infinity"), (-np.inf, "-Infinity")):
                found = pc.if_else(pc.fill_null(pc.equal(array, value), False), _text(quote + text + quote), found)
            return pc.if_else(pc.fill_null(pc.is_nan(array), False), _text(f"{quote}NaN{quote}"), found)
        return found
    return pc.if_else(array.is_valid(), found, _text("null")) if array.null_count else found


def _objects(names: list[str], columns: list[pa.Array], rows: int, form: JsonForm) -> pa.Array:
    if not names:
        return pa.array(["{}"] * rows, pa.large_string())
    parts: list[Any] = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [_text(f"{',' if i else '{'}{json.dumps(name, ensure_ascii=False)}:"), _texts(column, form)]
    return pc.binary_join_element_wise(*parts, _text("}"), _text(""))


def _joined(offsets: np.ndarray, entries: pa.Array, begin: str, end: str) -> pa.Array:
    lists = pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64)), entries)
    return pc.binary_join_element_wise(_text(begin), pc.binary_join(lists, _text(",")), _text(end), _text(""))


def _leaf(values: pl.Series) -> pa.Array:
    """Return the JSON of values that hold no others."""
    inside = pl.struct(values.alias("v")).struct.json_encode().str.strip_prefix(_HEAD).str.head(-1)
    return pl.select(inside).to_series().to_arrow().cast(pa.large_string())


def base64(array: pa.Array) -> pa.Array:
    """Return bytes as texts in base64."""
    return _polars(array).bin.encode("base64").to_arrow().cast(pa.string())


def _polars(array: pa.Array) -> pl.Series:
    found = pl.from_arrow(array)
    assert isinstance(found, pl.Series)
    return found


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())
