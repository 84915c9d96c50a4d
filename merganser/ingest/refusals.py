"""What is said of a row or value of a text file that was refused. Nothing of the file is written then."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from merganser.errors import FormatError, InvalidInputError, MerganserError
from merganser.schema import types as t
from merganser.schema.table_schema import repeated_of

_SHOWN_MAX: Final = 60
_ROW_OF_BLOCK: Final = re.compile(r" in row \d+$")
_WIDTH: Final = re.compile(r"Expected \d+ columns, got \d+")

Texts = Callable[[Callable[[pa_csv.InvalidRow], str]], Iterator[pa.RecordBatch]]
"""Yields the fields of a CSV file as binary, and leaves out rows of which the callback says "skip"."""


def csv_refusal(path: str, texts: Texts, error: Exception, note: str) -> MerganserError:
    """Return the error to raise for a CSV file that Arrow's reader refused.

    Only such a file is read once more: the reader does not tell the number of a row that has other fields.

    Args:
        path: the file, for messages.
        texts: reads its fields.
        error: what the reader said.
        note: on the counting of rows.
    """
    refused: list[pa_csv.InvalidRow] = []

    def skipped(row: pa_csv.InvalidRow) -> str:
        if row.number is not None:
            refused.append(row)
        return "skip"

    if _WIDTH.search(str(error)) is not None:
        for _ in texts(skipped):
            if refused:
                break
    if not refused:
        return FormatError(f"cannot read the rows of '{path}': {error}", path=path)
    wrong = refused[0]
    row = wrong.number - 1 - (1 if note else 0)
    return FormatError(
        f"cannot read the rows of '{path}': {_where(row, note)} has {_fields(wrong.actual_columns)} instead of "
        f"{wrong.expected_columns}: {_short(wrong.text.rstrip(chr(13) + chr(10)))!r}. Nothing was written.",
        path=path,
        row=row,
    )


def no_text(path: str, name: str, value: bytes, row: int, note: str) -> FormatError:
    """Return the error to raise for a field that is not UTF-8."""
    return FormatError(
        f"cannot read the rows of '{path}': column '{name}' has {value[:_SHOWN_MAX]!r} in {_where(row, note)}, which "
        "is not UTF-8. Nothing was written. Name the encoding of the file with 'csv.encoding'.",
        path=path,
        column=name,
        row=row,
    )


def no_value(path: str, name: str, text: str, kind: t.DataType, row: int, note: str, why: str) -> InvalidInputError:
    """Return the error to raise for a text that is no value of its column.

    Args:
        path, name, kind: the file, the column and its type.
        text: the value as the file has it.
        row: its row, counted from 0.
        note: on the counting of rows.
        why: what is wrong with it; said if it tells more than that it does not fit.
    """
    base64 = isinstance(kind, t.Binary | t.VarBinary)
    return InvalidInputError(
        f"cannot read the rows of '{path}': column '{name}' has '{_short(text)}' in {_where(row, note)}, which "
        f"does not fit {kind.with_nullable(True)}{', written as base64' if base64 else ''}{reason(why)}. "
        "Nothing was written.",
        path=path,
        column=name,
        row=row,
        value=text,
    )


def reason(why: str) -> str:
    """Return what goes on after "does not fit" its type: what is wrong with a value, if it tells more than that."""
    return "" if not why or why.startswith(("is no ", "does not fit")) else f": it {why}"


def no_object(path: str, line: bytes, row: int) -> FormatError:
    """Return the error to raise for a line of JSON that is no object."""
    return FormatError(
        f"cannot read the rows of '{path}': {_where(row, '')} is no object: "
        f"'{_short(line.decode(errors='replace').strip())}'. Write one object per line. Nothing was written.",
        path=path,
        row=row,
    )


def no_json(path: str, line: bytes, row: int) -> FormatError:
    """Return the error to raise for a line that is not JSON, or that has a name twice in one object."""
    twice = names_twice(line)
    if twice:
        fact = f"{_where(row, '')} names '{_short(twice[0])}' twice in one object. Nothing was written."
    else:
        fact = f"{_where(row, '')}: {_said_of(line)}"
    return FormatError(f"cannot read the rows of '{path}': {fact}", path=path, row=row)


def names_twice(line: bytes) -> list[str]:
    """Return the names that one object of a line has twice; none if it is not JSON."""
    twice: list[str] = []

    def held(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(repeated_of(name for name, _ in pairs))
        return dict(pairs)

    try:
        json.loads(line, object_pairs_hook=held)
    except ValueError:
        return []
    return twice


def _said_of(line: bytes) -> str:
    """Return what Arrow's reader, which tells most, says of a line."""
    try:
        pa_json.read_json(pa.BufferReader(line), pa_json.ReadOptions(use_threads=False, block_size=len(line) + 1))
    except pa.ArrowInvalid as error:
        return _ROW_OF_BLOCK.sub("", str(error))
    return f"it is not JSON: '{_short(line.decode(errors='replace').strip())}'"


def _where(row: int, note: str) -> str:
    return f"row {row + 1} (counting from 1{note})"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def _fields(count: int) -> str:
    return f"{count} field" if count == 1 else f"{count} fields"
