"""Rows in text files, CSV and JSON lines -> Arrow tables, block by block.

CSV: a field in quotes is a value, whatever it holds; a field without is null when it is one of the words for null
(the empty field, unless others were named), so NA, null and NaN are texts, and NaN is a number in a DOUBLE column.
Values may hold line breaks. An empty line is skipped, but in a file of one column it is an empty field.

JSON: one object per line. NaN, Infinity and -Infinity stand for numbers, in quotes (as Spark writes them) or bare (as
Python does).

Binary values are base64 in both. A row has at most `_BLOCK_BYTES`, sure to be read; longer ones may be refused.
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
from typing import Any, Final, Self

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from merganser.errors import FormatError, InvalidInputError
from merganser.ingest.file_options import CsvFormat
from merganser.ingest.refusals import csv_refusal, json_refusal
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
_INFINITY: Final = r"(?i)^\s*[-+]?inf"
"""What a field begins with that says infinity; a number that is too large becomes infinite, too."""
_NO_NUMBER: Final = rb"(?:NaN|[+-]?(?:Infinity|INF))"
"""What Spark takes for no number in JSON."""
_QUOTED: Final = re.compile(rb'"(' + _NO_NUMBER + rb')"')
_STRADDLES: Final = "straddl"
"""What pyarrow says of a row that is longer than its blocks."""

Opened = Callable[[], pa.NativeFile]
"""Opens a file from its beginning, decompressed; the caller closes it."""


# CSV


def csv_tables(
    path: str, opened: Opened, fields: Sequence[t.Field], csv: CsvFormat, names: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a CSV file, a block at a time, as the types that their columns have in the table.

    Args:
        path: the file, for messages.
        opened: opens it.
        fields: columns of the table. Other columns of the file get types that fit their values.
        csv: how the file is laid out.
        names: the columns of a file without a heading, by position.

    Raises:
        InvalidInputError: a text is no value of its column; names the column, the row and the value.
        FormatError: a row has too many fields or too few, or text is not in the encoding; names the row.
    """
    kinds = {field.name: field.type for field in fields}
    quotes: list[int] = []

    def utf8(end: bytes = b"") -> _Blocks:
        quotes.append(0)
        return _Blocks(opened(), csv, end, quotes)

    try:
        checked = False
        for batch in _csv_batches(path, utf8, kinds, csv, names):
            rows = _with_bytes(pa.Table.from_batches([batch]), kinds, csv)
            if not checked and _has_infinity(rows, kinds):  # of a number that is too large, or written so: texts tell
                for texts in _csv_texts(utf8, csv, names, None):
                    for name in texts.schema.names:
                        if isinstance(kinds.get(name), t.Float | t.Double):
                            _values_of(texts.column(name), kinds[name], csv)
                checked = True
            yield rows
        if quotes[-1] % 2:  # a quote within a plain field is none of a pair, so this proves nothing yet
            _check_closed(path, utf8, csv, names)
    except pa.ArrowInvalid as error:
        if _STRADDLES in str(error):
            raise _too_long(path) from error
        raise csv_refusal(
            path,
            lambda skipped: _csv_texts(utf8, csv, names, skipped),
            error,
            fields,
            lambda texts, kind: _values_of(texts, kind, csv),
            heading=csv.header,
        ) from error
    except UnicodeError as error:
        raise FormatError(
            f"cannot read the rows of '{path}': its text is not {csv.encoding} ({error}). Name its encoding with "
            "'csv.encoding'.",
            path=path,
        ) from error


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


def _values_of(texts: pa.Array, kind: t.DataType, csv: CsvFormat) -> pa.Array:
    """Return fields of a column as values, as `csv_tables` reads them.

    Args:
        texts: binary, null where the file says null.

    Raises:
        pa.ArrowInvalid: one is no value.
    """
    utf8 = texts.cast(pa.string())
    sink = pa.BufferOutputStream()
    style = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")
    pa_csv.write_csv(pa.table({"v": utf8}), sink, style)
    data = sink.getvalue()
    found = pa_csv.read_csv(
        pa.BufferReader(data),
        pa_csv.ReadOptions(column_names=["v"], block_size=max(_BLOCK_BYTES, 2 * data.size)),
        pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        _convert_options(CsvFormat(), {"v": _csv_type(kind)}),
    )
    values = _with_bytes(found, {"v": kind}, csv).column("v")
    if isinstance(kind, t.Float | t.Double):
        infinite = pc.fill_null(pc.is_inf(values), False)
        if pc.any(pc.and_(infinite, pc.invert(pc.match_substring_regex(utf8, _INFINITY)))).as_py():
            raise pa.ArrowInvalid(f"a number is too large for {kind}")
    return values


def _has_infinity(rows: pa.Table, kinds: Mapping[str, t.DataType]) -> bool:
    return any(
        pc.any(pc.is_inf(rows.column(name))).as_py()
        for name in rows.column_names
        if isinstance(kinds.get(name), t.Float | t.Double)
    )


def _check_closed(path: str, utf8: Callable[[bytes], _Blocks], csv: CsvFormat, names: Sequence[str]) -> None:
    """Refuse a file that ends inside quotes: a row put behind its end would be part of the last value.

    Raises:
        FormatError: nothing of the file may be written.
    """
    width = rows = 0
    for batch in _csv_texts(lambda: utf8(b""), csv, names, None):
        width, rows = batch.num_columns, rows + len(batch)
    if not width:
        return
    row = csv.delimiter * (width - 1) if width > 1 else "0"
    behind = f"\n{row}\n".encode()
    if rows == sum(len(batch) for batch in _csv_texts(lambda: utf8(behind), csv, names, None)):
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
    return pa.string() if isinstance(kind, t.Binary | t.VarBinary) else arrow_type(kind)


def _with_bytes(table: pa.Table, kinds: Mapping[str, t.DataType], csv: CsvFormat) -> pa.Table:
    """Return the rows with binary columns as bytes, which CSV has as text."""
    for i, name in enumerate(table.column_names):
        if isinstance(kinds.get(name), t.Binary | t.VarBinary):
            column = table.column(i)
            table = table.set_column(i, name, _from_base64(column) if csv.base64 else column.cast(pa.binary()))
    return table


def _too_long(path: str) -> FormatError:
    return FormatError(
        f"cannot read the rows of '{path}': one of them is longer than {_BLOCK_BYTES >> 20} MiB, which is the most "
        "that is read of a text file at a time. An open quote looks the same. Give longer rows as Parquet.",
        path=path,
    )


# JSON


def json_tables(path: str, opened: Opened, fields: Sequence[t.Field]) -> Iterator[pa.Table]:
    """Yield the rows of a file of JSON lines, a block at a time, as the types that their columns have in the table.

    Raises:
        InvalidInputError: a value does not fit its column; names the column, the row and the value.
        FormatError: a line is no object; names the row.
    """
    kinds = {field.name: arrow_type(field.type) for field in fields}
    no_numbers = _no_numbers(kinds)

    def parsed(data: bytes, only: str | None = None) -> None:
        for _ in _json_batches(pa.BufferReader(_bare(data, no_numbers)), kinds, only):
            pass

    try:
        with opened() as file:
            parts = (
                [file] if no_numbers is None else (pa.BufferReader(_bare(x, no_numbers)) for x in _line_blocks(file))
            )
            for part in parts:
                for batch in _json_batches(part, kinds, None):
                    yield pa.Table.from_batches([batch])
    except pa.ArrowInvalid as error:
        if _STRADDLES in str(error):
            raise _too_long(path) from error
        with opened() as file, io.BufferedReader(file) as lines:
            raise json_refusal(path, lines, error, fields, parsed) from error


def _no_numbers(kinds: Mapping[str, pa.DataType]) -> re.Pattern[bytes] | None:
    """Return what finds NaN and infinities in quotes where a FLOAT or DOUBLE stands; None: there are no such columns.

    Arrow's reader takes them bare only. They are found by the names before them: in a file of lines, quotes inside of
    texts have a backslash, so a name with its quotes and a colon is one. A name that a text has elsewhere is left out.
    """
    floats: set[str] = set()
    texts: set[str] = set()

    def look(name: str, kind: pa.DataType) -> None:
        if pa.types.is_list(kind):
            look(name, kind.value_type)
        elif pa.types.is_map(kind):
            look("key", kind.key_type)
            look("value", kind.item_type)
        elif pa.types.is_struct(kind):
            for field in kind:
                look(field.name, field.type)
        elif pa.types.is_floating(kind):
            floats.add(name)
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            texts.add(name)

    for name, kind in kinds.items():
        look(name, kind)
    names = b"|".join(re.escape(json.dumps(name, ensure_ascii=False)[1:-1].encode()) for name in sorted(floats - texts))
    if not names:
        return None
    lists = rb"[\[\s]*(?:[^\"{}]*\"" + _NO_NUMBER + rb"\"(?=[\s,\]}]))+"
    return re.compile(rb'(?<!\\)"(?:' + names + rb')"\s*:' + lists)


def _bare(data: bytes, no_numbers: re.Pattern[bytes] | None) -> bytes:
    """Return lines of JSON in which NaN and infinities stand without quotes."""
    if no_numbers is None or not (b'NaN"' in data or b'nfinity"' in data or b'INF"' in data):
        return data
    return no_numbers.sub(lambda found: _QUOTED.sub(_one_spelling, found[0]), data)


def _one_spelling(found: re.Match[bytes]) -> bytes:
    text = found[1]
    return b"NaN" if text == b"NaN" else b"-Infinity" if text.startswith(b"-") else b"Infinity"


def _line_blocks(file: pa.NativeFile) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines. pyarrow's threads never read a file of Python for it."""
    rest = b""
    while data := file.read(_BLOCK_BYTES):
        lines, end, rest = (rest + data).rpartition(b"\n")
        if end:
            yield lines + end
    if rest:
        yield rest


def _json_batches(source: Any, kinds: Mapping[str, pa.DataType], only: str | None) -> Iterator[pa.RecordBatch]:
    texts = pa.schema([(name, _as_json_has_it(kind)) for name, kind in kinds.items() if only in (None, name)])
    options = pa_json.ParseOptions(
        explicit_schema=texts, unexpected_field_behavior="infer" if only is None else "ignore"
    )
    try:
        batches = pa_json.open_json(source, pa_json.ReadOptions(block_size=_BLOCK_BYTES), options)
    except pa.ArrowInvalid as error:
        if "Empty JSON" in str(error):
            return
        raise
    for batch in batches:
        names = batch.schema.names
        columns = [_from_json(held, kinds.get(name, held.type)) for name, held in zip(names, batch, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names)


def _as_json_has_it(kind: pa.DataType) -> pa.DataType:
    """Return the type as which a value stands in JSON: dates, times and bytes are texts there, numbers doubles."""
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_json_has_it(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_json_has_it(field.type)) for field in kind])
    if pa.types.is_map(kind):
        parts = (("key", kind.key_type), ("value", kind.item_type))
        return pa.list_(pa.struct([(name, _as_json_has_it(part)) for name, part in parts]))
    return kind


def _from_json(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values that were read as `_as_json_has_it` says in the type wanted, but maps as lists of entries."""
    if array.type == kind:
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        ends = pc.cumulative_sum(lengths.cast(pa.int32()))
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        return pa.ListArray.from_arrays(offsets, _from_json(array.flatten(), kind.value_type), mask=mask)
    if pa.types.is_struct(kind):
        parts = [_from_json(part, field.type) for part, field in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=mask)
    if pa.types.is_map(kind):  # where rows are conformed, lists of entries become maps
        parts = [pa.field("key", kind.key_type), pa.field("value", kind.item_type)]
        return _from_json(array, pa.list_(pa.struct(parts)))
    if pa.types.is_float32(kind):
        narrow = array.cast(kind)
        if pc.any(pc.and_(pc.is_inf(narrow), pc.is_finite(array))).as_py():
            raise pa.ArrowInvalid("a number is too large for FLOAT")
        return narrow
    if pa.types.is_binary(kind):
        return _from_base64(array)
    if pa.types.is_time(kind):  # Arrow reads it from text as a part of a timestamp only
        moments = pc.binary_join_element_wise("1970-01-01T", array, "").cast(pa.timestamp(kind.unit))
        return moments.cast(kind)
    return array.cast(kind)


def _from_base64(texts: Any) -> Any:
    """Return texts in base64 as bytes.

    Raises:
        pa.ArrowInvalid: one is no base64.
    """
    series = pl.from_arrow(texts)
    assert isinstance(series, pl.Series)
    try:
        found = series.str.decode("base64", strict=True)
    except pl.exceptions.ComputeError as error:
        raise pa.ArrowInvalid(f"{error}: no base64") from error
    return found.to_arrow().cast(pa.binary())  # not large_binary, as Polars has it
