"""Values as people see them: the text of each value of a column, the same in a terminal, a notebook and the console.

A text is whole, and cut where it is shown. It has all digits of the value, also of times that Python does not have. It
is made from the column; only intervals, of which results of SQL have a few, are turned one by one.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.json_lines import JsonForm, hexadecimal, json_texts

_FORM: Final = JsonForm(non_finite=True, flink=True, hexadecimal=True)


def display_texts(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """Return the text of each value, large_string[n]; null for nulls.

    Text stays as it is. Bytes are x'00ff'. A time has a blank before its clock, no zeros at the end of its seconds, and
    a Z if it is an instant. A float is NaN, Infinity or its shortest text. Lists, maps and rows are JSON.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([_texts(chunk) for chunk in chunks], pa.large_string())


def short_texts(column: pa.ChunkedArray | pa.Array, characters: int) -> tuple[list[str | None], list[str]]:
    """Return the text of each value, cut, and what it is cut from: "12,000 characters", "64 bytes", "" if it is whole.

    Args:
        column: any values.
        characters: maximum number of characters of a text. Of bytes a third as many are shown.
    """
    if is_binary(column.type):
        most, unit, held = characters // 3, "bytes", column.cast(pa.large_binary())
        sizes, heads = pc.binary_length(held), display_texts(pc.binary_slice(held, 0, most))
    else:
        most, unit, held = characters, "characters", display_texts(column)
        sizes, heads = pc.utf8_length(held), pc.utf8_slice_codeunits(held, 0, most)
    notes = ["" if size is None or size <= most else f"{size:,} {unit}" for size in sizes.to_pylist()]
    return heads.to_pylist(), notes


def is_binary(kind: pa.DataType) -> bool:
    """Return whether values of a type are bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are numbers, which are aligned to the right."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def on_one_line(text: str, kept: str = "") -> str:
    """Return a text with escapes for characters that cannot be seen, that break the line or turn others around.

    Args:
        text: any text.
        kept: characters that stay although they cannot be seen.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def _texts(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _texts(array.cast(kind.value_type))
    if pa.types.is_null(kind):
        return array.cast(pa.large_string())
    if is_binary(kind):
        return hexadecimal(array.cast(pa.large_binary()))
    if pa.types.is_interval(kind) or pa.types.is_duration(kind):  # of engines of SQL; JSON has none
        return pa.array([None if value is None else str(value) for value in array.to_pylist()], pa.large_string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    texts = json_texts(array, _FORM)
    return texts if pa.types.is_nested(kind) else pc.utf8_trim(texts, '"')
