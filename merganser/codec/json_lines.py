"""Rows -> lines of JSON that `ingest.text` reads back as equal rows, and the texts of values for other writers of JSON.

A value is turned into text column by column, from the leaves up. Dates, times, timestamps and decimals are texts, bytes
are base64, a map is a list of {"key": ..., "value": ...}. In `LINES`, NaN and the infinities stand bare, as Python
writes and Spark reads them: a text could not be told from one in every place. JSON has no such numbers, so `STRICT`
makes texts of them. `FLINK` writes what Flink's JSON format writes, where that is exact.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema.lazy_polars import pl
from merganser.schema.spans import spans
from merganser.values import dataclass

_HEAD: Final = '{"v":'


@dataclass(frozen=True, slots=True)
class JsonForm:
    """How values are written that not every reader of JSON takes.

    Attributes:
        non_finite: NaN, Infinity and -Infinity in quotes.
        big: BIGINT in quotes, for readers whose numbers are doubles.
        flink: as Flink's JSON format has it with the timestamps of SQL. A decimal is a number with all its digits.
            Timestamps have a blank between date and clock, no zeros at the end of the fraction, and a Z for an instant.
            A map is an object if its keys are text; of other keys, which Flink refuses, it is a list of pairs
            [key, value]. Flink drops the fraction of a TIME, which is written here.
        hexadecimal: bytes as x'00ff' instead of base64, for people.
    """

    non_finite: bool = False
    big: bool = False
    flink: bool = False
    hexadecimal: bool = False


LINES: Final = JsonForm()
STRICT: Final = JsonForm(non_finite=True)
STRICT_TEXTS: Final = JsonForm(non_finite=True, big=True)
FLINK: Final = JsonForm(non_finite=True, flink=True)

Parts = list[pa.Array | pa.Scalar]
"""What `joined` puts together row by row: texts of each row, or one for all."""


def json_lines(batch: pa.RecordBatch, form: JsonForm = LINES) -> bytes:
    """Return the rows of a batch, an object and a line end for each."""
    if not batch.num_rows:
        return b""
    columns = [json_texts(column, form) for column in batch.columns]
    lines = joined([*members(batch.schema.names, columns), literal("\n")])
    offsets, held = spans(lines)
    return held[offsets[0] : offsets[-1]].tobytes()


def json_texts(array: pa.Array, form: JsonForm) -> pa.Array:
    """Return the JSON of each value, as large_string; null or `null` for nulls."""
    kind = array.type
    if not len(array):
        return pa.array([], pa.large_string())
    if pa.types.is_struct(kind):
        columns = [json_texts(column, form) for column in array.flatten()]
        found = joined(members([field.name for field in kind], columns), len(array))
    elif pa.types.is_map(kind):
        array = array.take(pa.array(np.arange(len(array))))  # from offset 0, and nothing under nulls
        begin, between, end = _entry(kind, form)
        parts: Parts = [literal(begin), json_texts(array.keys, form), literal(between), json_texts(array.items, form)]
        brackets = "{}" if form.flink and not begin else "[]"
        found = _enclosed(np.asarray(array.offsets), joined([*parts, literal(end)]), *brackets)
    elif pa.types.is_list(kind):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        elements = json_texts(array.flatten(), form)
        found = _enclosed(np.concatenate(([0], np.cumsum(lengths))), elements, "[", "]")
    else:
        return _leaf(array, form)
    return pc.if_else(array.is_valid(), found, pa.scalar(None, found.type)) if array.null_count else found


def members(names: Sequence[str], columns: Sequence[pa.Array]) -> Parts:
    """Return the parts of objects that have these names and the JSON of these columns as members."""
    parts: Parts = []
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [literal(f"{',' if i else '{'}{json.dumps(name, ensure_ascii=False)}:"), column]
    return [*parts, literal("}" if parts else "{}")]


def joined(parts: Parts, rows: int = 0) -> pa.Array:
    """Return the parts of each row as one text, large_string[n]; a part that is null is `null`.

    Args:
        parts: of `members`, and what stands around and between.
        rows: n, which counts if no part is an array.
    """
    found = pc.binary_join_element_wise(*parts, literal(""), null_handling="replace", null_replacement="null")
    return found if isinstance(found, pa.Array) else pa.repeat(found, rows)


def literal(text: str) -> pa.Scalar:
    """Return a part that all rows share."""
    return pa.scalar(text, pa.large_string())


def _entry(kind: pa.MapType, form: JsonForm) -> tuple[str, str, str]:
    """Return what stands in front of the key of an entry of a map, between key and value, and behind them."""
    if not form.flink:
        return '{"key":', ',"value":', "}"
    return ("", ":", "") if pa.types.is_string(kind.key_type) else ("[", ",", "]")


def _enclosed(offsets: np.ndarray, entries: pa.Array, begin: str, end: str) -> pa.Array:
    lists = pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64)), pc.fill_null(entries, "null"))
    return joined([literal(begin), pc.binary_join(lists, literal(",")), literal(end)])


def _leaf(array: pa.Array, form: JsonForm) -> pa.Array:
    """Return the JSON of values that hold no others."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        texts = array.cast(pa.large_string())
        return _quoted(texts) if form.big and pa.types.is_int64(kind) else texts
    if pa.types.is_floating(kind):
        return _floats(array, '"' if form.non_finite else "")
    if pa.types.is_binary(kind):
        return _quoted(hexadecimal(array) if form.hexadecimal else base64(array))
    if (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and _is_plain(array):
        return _quoted(array)
    if form.flink and pa.types.is_decimal(kind):
        return _texts(_polars(array).cast(pl.String))
    if form.flink and pa.types.is_temporal(kind):
        return _times(array)
    inside = pl.struct(_polars(array).alias("v")).struct.json_encode().str.strip_prefix(_HEAD).str.head(-1)
    return _texts(pl.select(inside).to_series())


def _floats(array: pa.Array, quote: str) -> pa.Array:
    found = _texts(_polars(array).cast(pl.String))
    if pc.all(pc.is_finite(array)).as_py() is not False:
        return found
    for value, text in ((np.inf, "Infinity"), (-np.inf, "-Infinity")):
        found = pc.if_else(pc.fill_null(pc.equal(array, value), False), literal(quote + text + quote), found)
    return pc.if_else(pc.fill_null(pc.is_nan(array), False), literal(f"{quote}NaN{quote}"), found)


def _times(array: pa.Array) -> pa.Array:
    """Return dates, times and timestamps without zeros at the end of their fractions."""
    kind, end = array.type, ""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        array, end = array.view(pa.timestamp(kind.unit)), "Z"
    texts = array.cast(pa.large_string())
    if not pa.types.is_date(kind) and kind.unit != "s":  # Arrow writes all digits of the unit
        texts = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    return _quoted(texts, end)


def _is_plain(texts: pa.Array) -> bool:
    """Return whether no text has a character that JSON escapes."""
    offsets, held = spans(texts)
    data = held[offsets[0] : offsets[-1]]
    return not len(data) or not (data.min() < 0x20 or (data == ord('"')).any() or (data == ord("\\")).any())


def _quoted(texts: pa.Array, end: str = "") -> pa.Array:
    """Return texts in quotes, each with an end, null for nulls."""
    return pc.binary_join_element_wise(literal('"'), texts.cast(pa.large_string()), literal(end + '"'), literal(""))


def base64(array: pa.Array) -> pa.Array:
    """Return bytes as texts in base64."""
    return _polars(array).bin.encode("base64").to_arrow().cast(pa.string())


def hexadecimal(array: pa.Array) -> pa.Array:
    """Return bytes as texts such as x'00ff'."""
    digits = _texts(_polars(array).bin.encode("hex"))
    return pc.binary_join_element_wise(literal("x'"), digits, literal("'"), literal(""))


def _texts(values: pl.Series) -> pa.Array:
    return values.to_arrow().cast(pa.large_string())


def _polars(array: pa.Array) -> pl.Series:
    found = pl.from_arrow(array)
    assert isinstance(found, pl.Series)
    return found
