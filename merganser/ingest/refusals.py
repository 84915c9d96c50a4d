"""Which row and value of a text file its reader refused: Arrow's readers tell neither the row nor, mostly, the value.

Only a file that was refused is looked at, once more from its beginning: block by block until one is refused again,
then by halves to the line. Lines are rows: a line break inside a value is nothing these readers take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv

from merganser.errors import FormatError, InvalidInputError, MerganserError
from merganser.schema import types as t

_BLOCK_BYTES: Final = 1 << 20
_SHOWN_MAX: Final = 60
_ROW_OF_BLOCK: Final = re.compile(r" in row \d+$")


class Parse(Protocol):
    """Parses rows as the file was parsed, or one column of them, and raises `pa.ArrowInvalid`."""

    def __call__(self, data: bytes, only: str | None = None) -> Any: ...


def refusal(
    path: str, file: BinaryIO, error: Exception, fields: Sequence[t.Field], parse: Parse, *, heading: bool
) -> MerganserError:
    """Return the error to raise for a text file that was refused.

    Args:
        path: the file, for messages.
        file: its bytes, from the first on.
        error: what the reader said.
        fields: columns of the table.
        parse: parses bytes as the file was parsed.
        heading: the first line names the columns (CSV); else every line is an object (JSON).
    """
    found = _first_refused(file, parse, heading)
    if found is None:
        return FormatError(f"cannot read the rows of '{path}': {error}", path=path)
    row, names, line, why = found
    where = f"row {row + 1} (counting from 1{', without the heading' if heading else ''})"
    kinds = {field.name: field.type for field in fields}
    for name, value in _values(names, line):
        if name in kinds and _refused(parse, names + line, name):
            text = f"{value}"
            return InvalidInputError(
                f"cannot read the rows of '{path}': column '{name}' has "
                f"'{text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + '...'}' in {where}, which does not fit "
                f"{kinds[name].with_nullable(True)}. Nothing was written.",
                path=path,
                column=name,
                row=row,
                value=text,
            )
    return FormatError(f"cannot read the rows of '{path}': {where}: {_ROW_OF_BLOCK.sub('', why)}", path=path, row=row)


def _first_refused(file: BinaryIO, parse: Parse, heading: bool) -> tuple[int, bytes, bytes, str] | None:
    """Return the first refused row: its number from 0, the heading, its line, and why; None: all are fine alone."""
    names = file.readline() if heading else b""
    before = 0
    for lines in _blocks(file):
        if _refused(parse, names + b"".join(lines)):
            start, end = 0, len(lines)
            while end - start > 1:
                middle = (start + end) // 2
                if _refused(parse, names + b"".join(lines[start:middle])):
                    end = middle
                else:
                    start = middle
            why = _refused(parse, names + lines[start])
            return (before + start, names, lines[start], why) if why else None
        before += len(lines)
    return None


def _blocks(file: BinaryIO) -> Iterator[list[bytes]]:
    while lines := file.readlines(_BLOCK_BYTES):
        if rows := [line for line in lines if line.strip()]:
            yield rows


def _refused(parse: Callable[..., Any], data: bytes, only: str | None = None) -> str | None:
    try:
        parse(data, only)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _values(names: bytes, line: bytes) -> list[tuple[str, Any]]:
    """Return the names and values of one row; none where it is no row at all."""
    if not names:
        try:
            row = json.loads(line, parse_int=str, parse_float=str)
        except ValueError:
            return []
        return list(row.items()) if isinstance(row, dict) else []
    options = pa_csv.ReadOptions(autogenerate_column_names=True)
    every = [f"f{i}" for i in range(len(names))]  # as many columns as the heading can have, and more
    try:
        texts = pa_csv.read_csv(
            pa.BufferReader(names.rstrip(b"\r\n") + b"\n" + line),
            read_options=options,
            convert_options=pa_csv.ConvertOptions(column_types=dict.fromkeys(every, pa.string())),
        )
    except pa.ArrowInvalid:
        return []
    return [(column[0].as_py(), column[1].as_py()) for column in texts.columns]
