"""Rows in text files, CSV and JSON lines -> Arrow tables, block by block.

CSV: a field in quotes is a value, whatever it holds; a field without is null when it is one of the words for null
(the empty field, unless others were named), so NA, null and NaN are texts, and NaN is a number in a DOUBLE column.
Values may hold line breaks. An empty line is skipped, but in a file of one column it is an empty field.

JSON: one object per line. NaN, Infinity and -Infinity stand for numbers, in quotes (as Spark writes them) or bare (as
Python does). Arrow's reader parses a block if all values have the forms that it knows. Otherwise the block is scanned,
which takes some times as long, knows all forms, and tells what is wrong with which row.

`merganser.parsing` makes texts values, by the rules of change records. A row has at most `_BLOCK_BYTES`, sure to be
read; longer ones may be refused.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from merganser.errors import FormatError, InvalidInputError, MerganserError
from merganser.ingest.file_options import CsvFormat
from merganser.ingest.refusals import csv_refusal, names_twice, no_json, no_object, no_text, no_value
from merganser.parsing.cells import NOTHING, Cells, cells_of, repeated, utf8
from merganser.parsing.json_scan import ABSENT, OBJECT, TEXT, scan
from merganser.parsing.outcome import Read
from merganser.parsing.rules import PLAIN, Rules
from merganser.parsing.values import column, of_texts, readable
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

_BLOCK_BYTES: Final = 8 * 1024 * 1024
_READ_AHEAD: Final = 32
"""Blocks that pyarrow reads ahead at most."""
_PAUSE_SECONDS: Final = 0.5
_PAUSES_MAX: Final = 10
"""How often a thread that should read may be found not to, before it counts as ended."""
_GIVEN_BACK_PAUSES: Final = 30_000
"""Milliseconds in which threads that only decode have to give everything back."""
_NO_NUMBER: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[+-]?(?:NaN|Infinity|INF)')
"""A string of JSON, or a bare word that stands for a number."""
_STRADDLES: Final = "straddl"
"""What pyarrow says of a row that is longer than its blocks."""

Opened = Callable[[], pa.NativeFile]
"""Opens a file from its beginning, decompressed; the caller closes it."""


# CSV


def csv_tables(
    path: str, opened: Opened, fields: Sequence[t.Field], csv: CsvFormat, names: Sequence[str], rules: Rules
) -> Iterator[pa.Table]:
    """Yield the rows of a CSV file, a block at a time, as the types that their columns have in the table.

    Args:
        path: the file, for messages.
        opened: opens it.
        fields: columns of the table. Other columns of the file get types that fit their values.
        csv: how the file is laid out.
        names: the columns of a file without a heading, by position.
        rules: how texts are read.

    Raises:
        InvalidInputError: a text is no value of its column; names the column, the row and the value.
        FormatError: a row has too many fields or too few, or text is not in the encoding; names the row.
    """
    kinds = {field.name: field.type for field in fields}
    quotes: list[int] = []

    def decoded(end: bytes = b"") -> _Blocks:
        quotes.append(0)
        return _Blocks(opened(), csv, end, quotes)

    note = ", without the heading" if csv.header else ""
    before = 0
    try:
        for batch in _csv_batches(path, decoded, kinds, csv, names):
            yield _csv_values(path, batch, kinds, rules, csv, before, note)
            before += batch.num_rows
        if quotes[-1] % 2:  # a quote within a plain field is none of a pair, so this proves nothing yet
            _check_closed(path, decoded, csv, names)
    except pa.ArrowInvalid as error:
        if _STRADDLES in str(error):
            raise _too_long(path) from error
        raise csv_refusal(path, lambda skipped: _csv_texts(decoded, csv, names, skipped), error, note) from error
    except UnicodeError as error:
        raise FormatError(
            f"cannot read the rows of '{path}': its text is not {csv.encoding} ({error}). Name its encoding with "
            "'csv.encoding'.",
            path=path,
        ) from error


def _csv_values(
    path: str,
    batch: pa.RecordBatch,
    kinds: Mapping[str, t.DataType],
    rules: Rules,
    csv: CsvFormat,
    before: int,
    note: str,
) -> pa.Table:
    """Return rows whose columns of the table hold texts as rows of values.

    Args:
        before: rows of the file before these.
        note: on the counting of rows.

    Raises:
        InvalidInputError: a text is no value of its column.
        FormatError: a text is not UTF-8.
    """
    columns: list[pa.Array] = []
    first: tuple[int, Callable[[], MerganserError]] | None = None
    for name, held in zip(batch.schema.names, batch.columns, strict=True):
        kind = kinds.get(name)
        if kind is None or not readable(kind) or (isinstance(kind, t.Binary | t.VarBinary) and not csv.base64):
            columns.append(held)
            continue
        texts, broken = utf8(held)
        found = of_texts(texts, kind, rules.of(name))
        columns.append(found.values)
        bad = broken | found.bad
        row = int(np.argmax(bad)) if bad.any() else batch.num_rows
        if row < (batch.num_rows if first is None else first[0]):
            if broken[row]:
                first = row, partial(no_text, path, name, held[row].as_py(), before + row, note)
            else:
                why = found.why[row].as_py() if isinstance(found.why, pa.Array) else found.why
                first = row, partial(no_value, path, name, texts[row].as_py(), kind, before + row, note, why)
    if first is not None:
        raise first[1]()
    return pa.table(columns, names=batch.schema.names)


class _Block(bytearray):
    """Bytes of a file that are counted: weak references to plain bytes are not possible."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class _Handle(io.RawIOBase):
    """What pyarrow holds of a file: it counts as given back once nothing holds this."""

    def __init__(self, blocks: _Blocks) -> None:
        super().__init__()
        self._blocks = blocks

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytearray:
        return self._blocks.read(size)


class _Blocks(io.RawIOBase):
    r"""A file as UTF-8, of which no read ends between \r and \n: pyarrow drops a \n there, in quoted values too.

    pyarrow reads it in threads of its own, ahead of what is asked for. A thread that calls Python, or gives bytes of
    Python back, while the interpreter ends, ends the process: `terminate called without an active exception`. And a
    reader that is given up waits for the thread, which may wait for this one. So the caller first lets the thread come
    to its end (`end`), then gives up the reader, and then takes everything back (`take_back`).
    """

    error: Exception | None = None
    """What went wrong in a thread that read."""

    def __init__(self, file: pa.NativeFile, csv: CsvFormat, end: bytes, quotes: list[int]) -> None:
        """Take the file, and close it when this is closed.

        Args:
            end: is read after the last byte of the file.
            quotes: the last of them counts those that were read.
        """
        super().__init__()
        self._quotes = quotes
        self._counted = len(quotes) - 1
        self._file = file
        same = codecs.lookup(csv.encoding).name == "utf-8"
        self._decoder = None if same else codecs.getincrementaldecoder(csv.encoding)()
        self._quote = (csv.quote or "").encode()
        self._end = end
        self._held = b""
        self._over = False
        self._told = threading.Event()
        self._lock = threading.Lock()
        self._lent: weakref.WeakSet[_Block | _Handle] = weakref.WeakSet()
        self._reads = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytearray:
        """Return the next bytes; none at the end, and after an error. It is kept: in pyarrow it would hold the file."""
        with self._lock:
            data = _Block()
            if self.error is None:
                try:
                    data += self._read(size)
                except Exception as error:
                    self.error = error.with_traceback(None)  # which would hold the bytes
            self._reads += 1
            self._lent.add(data)
            if not data:
                self._told.set()
            return data

    def _read(self, size: int) -> bytes:
        while not self._over and (size < 0 or len(self._held) < size):
            data = self._file.read(_BLOCK_BYTES if size < 0 else size - len(self._held))
            self._over = not data
            self._held += data if self._decoder is None else self._decoder.decode(data, final=not data).encode()
            self._held += self._end if self._over else b""
        end = len(self._held) if size < 0 else min(size, len(self._held))
        if end > 1 and self._held[end - 1 : end] == b"\r":
            end -= 1
        data, self._held = self._held[:end], self._held[end:]
        self._quotes[self._counted] += data.count(self._quote) if self._quote else 0
        return data

    def lend(self) -> pa.NativeFile:
        """Return the file as pyarrow takes it."""
        handle = _Handle(self)
        self._lent.add(handle)
        return pa.PythonFile(handle, mode="r")

    def end(self, taken: int) -> None:
        """Let the thread that reads ahead meet the end of the file; wait for it.

        Args:
            taken: how many blocks its reader has handed out. Far ahead of them the thread pauses, and reads no more.
        """
        with self._lock:
            self._over, self._held = True, b""
        seen, still = -1, 0
        while not self._told.wait(_PAUSE_SECONDS):
            still = still + 1 if self._reads == seen else 0
            if still >= (1 if self._reads - taken >= _READ_AHEAD else _PAUSES_MAX):
                return
            seen = self._reads

    def take_back(self) -> None:
        """Wait until no thread holds the file or bytes of it, after its reader was given up; close it."""
        pause = threading.Event()  # which is never set
        for _ in range(_GIVEN_BACK_PAUSES):
            if not len(self._lent):
                break
            pause.wait(0.001)
        self.close()

    def close(self) -> None:
        self._file.close()
        super().close()


class _Rows:
    """The rows of a CSV file, in batches. On every way out of its `with` block no thread of pyarrow reads the file."""

    def __init__(
        self,
        blocks: _Blocks,
        read: pa_csv.ReadOptions,
        parse: pa_csv.ParseOptions,
        convert: pa_csv.ConvertOptions | None,
    ) -> None:
        self._blocks = blocks
        self._options = (read, parse, convert)
        self._taken = 0
        # Nobody else holds the reader: an error on its way keeps the variables of every function alive.
        self._reader: pa.RecordBatchReader | None = None

    def __enter__(self) -> Self:
        try:
            self._reader = pa_csv.open_csv(self._blocks.lend(), *self._options)
        except BaseException:  # its thread has ended, or will not read on
            self._blocks.take_back()
            if self._blocks.error is not None:
                raise self._blocks.error from None
            raise
        self.schema: pa.Schema = self._reader.schema
        return self

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._reader is not None:
            try:
                batch: pa.RecordBatch | None = self._reader.read_next_batch()
            except StopIteration:
                batch = None
            except pa.ArrowInvalid:
                if self._blocks.error is None:
                    raise
            if self._blocks.error is not None:
                raise self._blocks.error
            if batch is None:
                return
            self._taken += 1
            yield batch

    def __exit__(self, *_: object) -> None:
        self._blocks.end(self._taken)
        self._reader = None
        self._blocks.take_back()


def _csv_batches(
    path: str, opened: Callable[[], _Blocks], kinds: Mapping[str, t.DataType], csv: CsvFormat, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    flat = {name: _csv_type(kind) for name, kind in kinds.items() if not t.is_nested(kind)}
    has_rows = True
    with contextlib.ExitStack() as files:
        rows: _Rows | pa.RecordBatchReader
        try:
            options = _read_options(csv, names), _parse_options(csv), _convert_options(csv, flat)
            rows = files.enter_context(_Rows(opened(), *options))
        except pa.ArrowInvalid as error:
            if "Empty CSV" not in str(error):
                raise
            rows, has_rows = _without_rows(path, opened, csv, names), False
        for name in rows.schema.names:
            if name in kinds and name not in flat:
                raise InvalidInputError(
                    f"cannot read the rows of '{path}': column '{name}' is {kinds[name].with_nullable(True)}, which "
                    "CSV has no form for. Give Parquet or JSON files.",
                    path=path,
                    column=name,
                )
        if has_rows and len(rows.schema) == 1:  # an empty line is an empty field there
            parse = _parse_options(csv, ignore_empty_lines=False)
            options = _read_options(csv, names), parse, _convert_options(csv, flat)
            rows = files.enter_context(_Rows(opened(), *options))
        yield from rows


def _without_rows(
    path: str, opened: Callable[[], _Blocks], csv: CsvFormat, names: Sequence[str]
) -> pa.RecordBatchReader:
    """Return the reader of a file that pyarrow takes for empty: it has a heading without a line break, or nothing."""
    with opened() as file:
        heading = bytes(file.read(_BLOCK_BYTES))
    if not csv.header:
        return pa.table({name: pa.nulls(0) for name in names}).to_reader()
    if not heading.strip():
        raise FormatError(f"cannot read the rows of '{path}': it is empty, so no row names its columns.", path=path)
    return pa_csv.open_csv(pa.BufferReader(heading + b"\n"), None, _parse_options(csv))


def _csv_texts(
    opened: Callable[[], _Blocks],
    csv: CsvFormat,
    names: Sequence[str],
    skipped: Callable[[pa_csv.InvalidRow], str] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the fields of a file as they stand there, as binary; null where they mean null."""
    with _Rows(opened(), _read_options(csv, names), _parse_options(csv, skipped=skipped), None) as first:
        columns = first.schema.names
    convert = _convert_options(csv, dict.fromkeys(columns, pa.binary()))
    parse = _parse_options(csv, ignore_empty_lines=len(columns) > 1, skipped=skipped)
    with _Rows(opened(), _read_options(csv, names, numbered=True), parse, convert) as rows:
        yield from rows


def _check_closed(path: str, decoded: Callable[[bytes], _Blocks], csv: CsvFormat, names: Sequence[str]) -> None:
    """Refuse a file that ends inside quotes: a row put behind its end would be part of the last value.

    Raises:
        FormatError: nothing of the file may be written.
    """
    width = rows = 0
    for batch in _csv_texts(lambda: decoded(b""), csv, names, None):
        width, rows = batch.num_columns, rows + len(batch)
    if not width:
        return
    row = csv.delimiter * (width - 1) if width > 1 else "0"
    behind = f"\n{row}\n".encode()
    if rows == sum(len(batch) for batch in _csv_texts(lambda: decoded(behind), csv, names, None)):
        raise FormatError(
            f"cannot read the rows of '{path}': it ends inside quotes, in row {rows} (counting from 1"
            f"{', without the heading' if csv.header else ''}). Nothing was written. The file may be cut off; "
            "else close the quote, or name another one with 'csv.quote'.",
            path=path,
            row=rows - 1,
        )


def _read_options(csv: CsvFormat, names: Sequence[str], *, numbered: bool = False) -> pa_csv.ReadOptions:
    # Without threads rows that are refused come with their number.
    return pa_csv.ReadOptions(
        column_names=None if csv.header else list(names),
        block_size=_BLOCK_BYTES,
        use_threads=not numbered,
    )


def _parse_options(
    csv: CsvFormat, *, ignore_empty_lines: bool = True, skipped: Callable[[pa_csv.InvalidRow], str] | None = None
) -> pa_csv.ParseOptions:
    return pa_csv.ParseOptions(
        delimiter=csv.delimiter,
        quote_char=csv.quote or False,
        escape_char=csv.escape or False,
        newlines_in_values=csv.quote is not None or csv.escape is not None,
        ignore_empty_lines=ignore_empty_lines,
        invalid_row_handler=skipped,
    )


def _convert_options(csv: CsvFormat, types: Mapping[str, pa.DataType]) -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(
        column_types=types, null_values=list(csv.null), strings_can_be_null=True, quoted_strings_can_be_null=False
    )


def _csv_type(kind: t.DataType) -> pa.DataType:
    """Return the type that Arrow's reader gives fields: their bytes, which become values afterwards."""
    return pa.binary() if readable(kind) else arrow_type(kind)


def _too_long(path: str) -> FormatError:
    return FormatError(
        f"cannot read the rows of '{path}': one of them is longer than {_BLOCK_BYTES >> 20} MiB, which is the most "
        "that is read of a text file at a time. An open quote looks the same. Give longer rows as Parquet.",
        path=path,
    )


# JSON


def json_tables(path: str, opened: Opened, fields: Sequence[t.Field], rules: Rules) -> Iterator[pa.Table]:
    """Yield the rows of a file of JSON lines, a block at a time, as the types that their columns have in the table.

    Args:
        path: the file, for messages.
        opened: opens it.
        fields: columns of the table. Other members get types that fit their values.
        rules: how values are read.

    Raises:
        InvalidInputError: a value does not fit its column; names the column, the row and the value.
        FormatError: a line is no object; names the row.
    """
    kinds = {field.name: _spelled(field.type) for field in fields}
    before = 0
    with opened() as file:
        for block in _line_blocks(path, file):
            try:
                batches = list(_json_batches(block, kinds, rules))
            except pa.ArrowInvalid as error:
                if _STRADDLES in str(error):
                    raise _too_long(path) from error
                batches = [_scanned(path, block, kinds, rules, before)]
            for batch in batches:
                before += batch.num_rows
                yield pa.Table.from_batches([batch])


def _spelled(kind: t.DataType) -> t.DataType:
    """Return a type with those inside that JSON spells as another one: a bag is a map, and a VARIANT a row of bytes."""
    match kind:
        case t.Multiset(element=element):
            return t.Map(key=_spelled(element), value=t.Int(), nullable=kind.nullable)
        case t.Variant():
            parts = (t.Field(i, name, t.VarBinary(nullable=False)) for i, name in enumerate(("value", "metadata")))
            return t.Row(fields=tuple(parts), nullable=kind.nullable)
        case t.Array(element=element):
            return replace(kind, element=_spelled(element))
        case t.Map(key=key, value=value):
            return replace(kind, key=_spelled(key), value=_spelled(value))
        case t.Row(fields=fields):
            return replace(kind, fields=tuple(replace(field, type=_spelled(field.type)) for field in fields))
    return kind


def _line_blocks(path: str, file: pa.NativeFile) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines. pyarrow's threads never read a file of Python for it."""
    rest = b""
    while data := file.read(_BLOCK_BYTES):
        lines, end, rest = (rest + data).rpartition(b"\n")
        if end:
            yield lines + end
        if len(rest) > 2 * _BLOCK_BYTES:
            raise _too_long(path)
    if rest:
        yield rest


def _json_batches(block: bytes, kinds: Mapping[str, t.DataType], rules: Rules) -> Iterator[pa.RecordBatch]:
    """Yield lines as Arrow's reader parses them.

    Raises:
        pa.ArrowInvalid: a value has a form that the reader does not know, or is none.
    """
    texts = pa.schema([(name, _as_arrow_parses(kind)) for name, kind in kinds.items()])
    options = pa_json.ParseOptions(explicit_schema=texts, unexpected_field_behavior="infer")
    try:
        batches = pa_json.open_json(pa.BufferReader(block), pa_json.ReadOptions(block_size=_BLOCK_BYTES), options)
    except pa.ArrowInvalid as error:
        if "Empty JSON" in str(error):
            return
        raise
    for batch in batches:
        names = batch.schema.names
        columns = [
            _of_parsed(held, kinds[name], rules.of(name)) if name in kinds else held
            for name, held in zip(names, batch, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names)


def _as_arrow_parses(kind: t.DataType) -> pa.DataType:
    """Return the type that Arrow's reader gives a value: text where `merganser.parsing` reads it."""
    match kind:
        case t.Float():
            return pa.float64()
        case t.Array(element=element):
            return pa.list_(_as_arrow_parses(element))
        case t.Row(fields=fields):
            return pa.struct([(field.name, _as_arrow_parses(field.type)) for field in fields])
        case t.Map(key=key, value=value):
            return pa.list_(pa.struct([("key", _as_arrow_parses(key)), ("value", _as_arrow_parses(value))]))
    return pa.string() if isinstance(kind, _READ_AS_TEXT) else arrow_type(kind)


_READ_AS_TEXT: Final = (
    t.Decimal, t.Binary, t.VarBinary, t.Date, t.Time, t.Timestamp, t.LocalZonedTimestamp,
)  # fmt: skip


def _of_parsed(array: pa.Array, kind: t.DataType, rules: Rules) -> pa.Array:
    """Return values that were parsed as `_as_arrow_parses` says in their type; maps as lists of entries.

    Raises:
        pa.ArrowInvalid: one is no value.
    """
    mask = array.is_null() if array.null_count else None
    match kind:
        case t.Array(element=element):
            return pa.ListArray.from_arrays(_offsets(array), _of_parsed(array.flatten(), element, rules), mask=mask)
        case t.Row(fields=fields):
            parts = [_of_parsed(part, field.type, rules) for part, field in zip(array.flatten(), fields, strict=True)]
            return pa.StructArray.from_arrays(parts, names=[field.name for field in fields], mask=mask)
        case t.Map(key=key, value=value):  # where rows are conformed, lists of entries become maps
            entry = t.Row(fields=(t.Field(0, "key", key), t.Field(1, "value", value)))
            return _of_parsed(array, t.Array(element=entry), rules)
        case t.Float():
            narrow = array.cast(pa.float32())
            if pc.any(pc.and_(pc.is_inf(narrow), pc.is_finite(array))).as_py():
                raise pa.ArrowInvalid("a number is too large for FLOAT")
            return narrow
    if not isinstance(kind, _READ_AS_TEXT):
        return array
    found = of_texts(array, kind, rules)
    if found.bad.any():
        raise pa.ArrowInvalid(f"a text is no {kind}")
    return found.values


def _offsets(lists: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths.cast(pa.int32()))])


def _scanned(path: str, block: bytes, kinds: Mapping[str, t.DataType], rules: Rules, before: int) -> pa.RecordBatch:
    """Return lines as rows, values in all forms that the rules know.

    Args:
        before: rows of the file before these.

    Raises:
        InvalidInputError: a value does not fit its column.
        FormatError: a line is no object, or names a member twice.
    """
    lines = _lines(block)
    texts, broken = utf8(lines)
    texts = texts.fill_null("")
    found = scan(texts)
    if (found.faults & ~broken).any():
        texts = _quoted(texts, found.faults)
        found = scan(texts)
    rows = len(lines)
    first: tuple[int, Callable[[], MerganserError]] = (rows, lambda: _too_long(path))

    def refuse(bad: Any, error: Callable[[int], MerganserError]) -> None:
        nonlocal first
        row = int(np.argmax(bad)) if bad.any() else rows
        if row < first[0]:
            first = row, lambda: error(row)

    def line(row: int) -> bytes:
        return bytes(lines[row].as_py())

    refuse(found.faults | broken, lambda row: no_json(path, line(row), before + row))
    refuse(~found.faults & (found.roots != OBJECT), lambda row: no_object(path, line(row), before + row))
    members = np.flatnonzero(found.roots[found.parents] == OBJECT) if rows else np.zeros(0, np.int64)
    names, parents = found.names.take(pa.array(members)), found.parents[members]
    cells = cells_of(found).take(members)
    codes = names.fill_null("").dictionary_encode()
    where = np.asarray(codes.indices, dtype=np.int64)
    twice = np.zeros(rows, bool)
    twice[repeated(parents, where)] = True
    refuse(twice, lambda row: no_json(path, line(row), before + row))
    columns: dict[str, pa.Array] = {}
    known = {name: i for i, name in enumerate(codes.dictionary.to_pylist())}
    for name in (*kinds, *(name for name in known if name not in kinds)):
        place = np.full(rows, NOTHING, np.int64)
        own = np.flatnonzero(where == known.get(name, -1))
        place[parents[own]] = own
        given = cells.take(place)
        if name not in kinds:
            columns[name], bad = _inferred(given)
            refuse(bad, lambda row: no_json(path, line(row), before + row))
            continue
        read = column(given, kinds[name], PLAIN, rules.of(name))
        columns[name] = read.values
        refuse(read.bad, partial(_refused, path, line, name, given, kinds[name], read, before))
    if first[0] < rows:
        raise first[1]()
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _refused(
    path: str,
    line: Callable[[int], bytes],
    name: str,
    given: Cells,
    kind: t.DataType,
    found: Read,
    before: int,
    row: int,
) -> MerganserError:
    if names_twice(line(row)):
        return no_json(path, line(row), before + row)
    why = found.why[row].as_py() if isinstance(found.why, pa.Array) else found.why
    return no_value(path, name, given.texts[row].as_py(), kind, before + row, "", why)


def _lines(block: bytes) -> pa.Array:
    """Return the lines that are not blank, each with its end."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    if not len(ends) or ends[-1] < len(data):
        ends = np.append(ends, len(data))
    bounds = np.concatenate(([0], ends)).astype(np.int32)
    lines = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(bounds), pa.py_buffer(block)])
    full = np.add.reduceat(data > ord(" "), bounds[:-1]) > 0
    return lines.filter(pa.array(full))


def _quoted(texts: pa.Array, faults: Any) -> pa.Array:
    """Return lines in which bare words for numbers stand in quotes, where they may be what is wrong with a line."""
    some = texts.filter(pa.array(faults)).to_pylist()
    others = [_NO_NUMBER.sub(_in_quotes, text.encode()).decode() for text in some]
    return pc.replace_with_mask(texts, pa.array(faults), pa.array(others, pa.string()))


def _in_quotes(found: re.Match[bytes]) -> bytes:
    return found[0] if found[0].startswith(b'"') else b'"' + found[0] + b'"'


def _inferred(cells: Cells) -> tuple[pa.Array, Any]:
    """Return values of a type that fits them, and which of them Arrow's reader refuses."""
    bad = np.zeros(len(cells.kinds), bool)
    # null where there is nothing; strings with their quotes and escapes
    texts = pc.if_else(pa.array(cells.kinds == ABSENT), "null", cells.texts)
    quoted = cells.kinds == TEXT
    if quoted.any():
        escaped = [json.dumps(text) for text in cells.texts.filter(pa.array(quoted)).to_pylist()]
        texts = pc.replace_with_mask(texts, pa.array(quoted), pa.array(escaped, pa.string()))
    lines = pc.binary_join_element_wise('{"":', texts, "}\n", "")

    def parsed(start: int, end: int) -> pa.Array:
        data = b"".join(lines.slice(start, end - start).cast(pa.binary()).to_pylist())
        options = pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1)
        return pa_json.read_json(pa.BufferReader(data), options).column(0).combine_chunks()

    start, end = 0, len(texts)
    try:
        return parsed(0, end), bad
    except pa.ArrowInvalid:
        while end - start > 1:
            middle = (start + end) // 2
            try:
                parsed(0, middle)
                start = middle
            except pa.ArrowInvalid:
                end = middle
    bad[start] = True
    return pa.nulls(len(texts)), bad
