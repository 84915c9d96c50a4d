"""Which row and value of a text file its reader refused: Arrow's readers tell neither the row nor, mostly, the value.

Only a file that was refused is looked at, once more from its beginning. In JSON files lines are rows, and are parsed
block by block until one is refused again, then by halves to the line. In CSV files a value may hold line breaks: the
fields are read as they stand, and each column of a block is converted, by halves down to the field that is no value.
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
from merganser.schema.table_schema import repeated_of

_BLOCK_BYTES: Final = 1 << 20
_SHOWN_MAX: Final = 60
_ROW_OF_BLOCK: Final = re.compile(r" in row \d+$")
_WIDTH: Final = re.compile(r"Expected \d+ columns, got \d+")


class Parse(Protocol):
    """Parses rows as the file was parsed, or one column of them, and raises `pa.ArrowInvalid`."""

    def __call__(self, data: bytes, only: str | None = None) -> Any: ...


Texts = Callable[[Callable[[pa_csv.InvalidRow], str]], Iterator[pa.RecordBatch]]
"""Yields the fields of a CSV file as binary, and leaves out rows of which the callback says "skip"."""

Convert = Callable[[pa.Array, t.DataType], Any]
"""Turns fields of a column into values, and raises `pa.ArrowInvalid` when one is none."""


def csv_refusal(
    path: str, texts: Texts, error: Exception, fields: Sequence[t.Field], convert: Convert, *, heading: bool
) -> MerganserError:
    """Return the error to raise for a CSV file that was refused.

    Args:
        path: the file, for messages.
        texts: reads its fields.
        error: what the reader said.
        fields: columns of the table.
        convert: what the reader does to fields.
        heading: the first row names the columns.
    """
    note = ", without the heading" if heading else ""
    refused_rows: list[pa_csv.InvalidRow] = []

    def skipped(row: pa_csv.InvalidRow) -> str:
        if row.number is not None:
            refused_rows.append(row)
        return "skip"

    kinds = {field.name: field.type for field in fields}
    width = _WIDTH.search(str(error)) is not None
    before = 0
    for batch in texts(skipped):
        if width and refused_rows:
            break
        found = None if width else _first_field(batch, kinds, convert)
        if found is not None:
            index, name, value = found
            return _no_value(path, name, value, kinds[name], before + index, note)
        before += batch.num_rows
    if width and refused_rows:
        wrong = refused_rows[0]
        row = wrong.number - 1 - (1 if heading else 0)
        shown = _short(wrong.text.rstrip("\r\n"))
        return FormatError(
            f"cannot read the rows of '{path}': row {row + 1} (counting from 1{note}) has "
            f"{_fields(wrong.actual_columns)} instead of {wrong.expected_columns}: {shown!r}. Nothing was written.",
            path=path,
            row=row,
        )
    return FormatError(f"cannot read the rows of '{path}': {error}", path=path)


def _first_field(
    batch: pa.RecordBatch, kinds: dict[str, t.DataType], convert: Convert
) -> tuple[int, str, bytes] | None:
    """Return the first field that is no value: its row in the batch, its column and what it holds."""
    first: tuple[int, str, bytes] | None = None
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name not in kinds:
            continue
        part = column if first is None else column.slice(0, first[0])
        if _fits(part, kinds[name], convert):
            continue
        start, end = 0, len(part)
        while end - start > 1:
            middle = (start + end) // 2
            if _fits(part.slice(start, middle - start), kinds[name], convert):
                start = middle
            else:
                end = middle
        first = (start, name, part[start].as_py() or b"")
    return first


def _fits(texts: pa.Array, kind: t.DataType, convert: Convert) -> bool:
    try:
        if len(texts):
            convert(texts, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _no_value(path: str, name: str, value: bytes, kind: t.DataType, row: int, note: str) -> MerganserError:
    where = f"row {row + 1} (counting from 1{note})"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return FormatError(
            f"cannot read the rows of '{path}': column '{name}' has {value[:_SHOWN_MAX]!r} in {where}, which is not "
            "UTF-8. Nothing was written. Name the encoding of the file with 'csv.encoding'.",
            path=path,
            column=name,
            row=row,
        )
    return _misfit(path, name, text, kind, row, where)


def _misfit(path: str, name: str, text: str, kind: t.DataType, row: int, where: str) -> InvalidInputError:
    base64 = isinstance(kind, t.Binary | t.VarBinary)
    return InvalidInputError(
        f"cannot read the rows of '{path}': column '{name}' has '{_short(text)}' in {where}, which does not fit "
        f"{kind.with_nullable(True)}{', written as base64' if base64 else ''}. Nothing was written.",
        path=path,
        column=name,
        row=row,
        value=text,
    )


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def _fields(count: int) -> str:
    return f"{count} field" if count == 1 else f"{count} fields"


def json_refusal(
    path: str, file: BinaryIO, error: Exception, fields: Sequence[t.Field], parse: Parse
) -> MerganserError:
    """Return the error to raise for a file of JSON lines that was refused.

    Args:
        path: the file, for messages.
        file: its bytes, from the first on.
        error: what the reader said.
        fields: columns of the table.
        parse: parses bytes as the file was parsed.
    """
    found = _first_refused(file, parse)
    if found is None:
        return FormatError(f"cannot read the rows of '{path}': {error}", path=path)
    row, line, why = found
    where = f"row {row + 1} (counting from 1)"
    kinds = {field.name: field.type for field in fields}
    values, twice = _values(line)
    fact = f"{where}: {_ROW_OF_BLOCK.sub('', why)}"
    if twice:
        fact = f"{where} names '{_short(twice[0])}' twice in one object. Nothing was written."
    elif isinstance(values, dict):
        for name, value in values.items():
            # By itself, too: every column of a line is refused if another part of the line is wrong.
            alone = json.dumps({name: value}).encode()
            if name in kinds and _refused(parse, line, name) and _refused(parse, alone, name):
                return _misfit(path, name, _shown(line, name), kinds[name], row, where)
    elif values is not None:
        text = _short(line.decode(errors="replace").strip())
        fact = f"{where} is no object: '{text}'. Write one object per line. Nothing was written."
    return FormatError(f"cannot read the rows of '{path}': {fact}", path=path, row=row)


def _first_refused(file: BinaryIO, parse: Parse) -> tuple[int, bytes, str] | None:
    """Return the first refused row: its number from 0, its line, and why; None: all are fine alone."""
    before = 0
    for lines in _blocks(file):
        if _refused(parse, b"".join(lines)):
            start, end = 0, len(lines)
            while end - start > 1:
                middle = (start + end) // 2
                if _refused(parse, b"".join(lines[start:middle])):
                    end = middle
                else:
                    start = middle
            why = _refused(parse, lines[start])
            return (before + start, lines[start], why) if why else None
        before += len(lines)
    return None


def _blocks(file: BinaryIO) -> Iterator[list[bytes]]:
    while lines := file.readlines(_BLOCK_BYTES):
        if rows := [line for line in lines if line.strip()]:
            yield rows


def _refused(parse: Parse, data: bytes, only: str | None = None) -> str | None:
    try:
        parse(data, only)
    except pa.ArrowInvalid as error:
        return str(error)
    return None


def _values(line: bytes) -> tuple[Any, list[str]]:
    """Return what a line of JSON holds, None where it is no JSON, and the names that an object in it has twice."""
    twice: list[str] = []

    def held(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(repeated_of(name for name, _ in pairs))
        return dict(pairs)

    try:
        return json.loads(line, object_pairs_hook=held), twice
    except ValueError:
        return None, []


def _shown(line: bytes, name: str) -> str:
    """Return a value of a line as the line has it: a number with its digits, a text without its quotes."""
    value = json.loads(line, parse_int=str, parse_float=str)[name]
    return value if isinstance(value, str) else json.dumps(json.loads(line)[name], ensure_ascii=False)
