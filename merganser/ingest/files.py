"""Rows that lie in files -> Arrow tables, in the order of the files' paths."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from merganser.codec.data_format import format_of
from merganser.errors import FormatError, InvalidInputError, MerganserError, NotFoundError
from merganser.ingest.refusals import refusal
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

_BATCH_ROWS = 131_072

_Open = Callable[[Any, Mapping[str, pa.DataType], str | None], pa.RecordBatchReader]


def matching_files(pattern: str | os.PathLike[str]) -> list[str]:
    """Return the files of a pattern, ordered by path; of a directory, the files in it.

    Raises:
        InvalidInputError: it is no pattern.
        NotFoundError: there is none.
    """
    pattern = os.fspath(pattern) if isinstance(pattern, os.PathLike) else pattern
    if not isinstance(pattern, str):
        raise InvalidInputError(
            f"cannot load files: files is {pattern!r:.100}, a {type(pattern).__name__}. Give one path or pattern as "
            "text, such as 'in/*.parquet'."
        )
    if os.path.isdir(pattern):
        pattern = os.path.join(pattern, "*")
    found = sorted(
        path
        for path in glob.glob(pattern, recursive=True)
        if os.path.isfile(path) and not os.path.basename(path).startswith(("_", "."))
    )
    if not found:
        raise NotFoundError(f"no file matches '{pattern}' (working directory '{os.getcwd()}').", pattern=pattern)
    return found


def read_file(path: str, fields: Sequence[t.Field]) -> pa.RecordBatchReader:
    """Return the rows of one file as a stream.

    Args:
        fields: columns of the table: what text in CSV and JSON files is read as.

    Raises:
        InvalidInputError: the extension is none that can be read, or a text is no value of its column; names the
            column, the row and the value.
        FormatError: the bytes are no such file.
    """
    try:
        match format_of(path):
            case "parquet":
                file = pq.ParquetFile(path)
                schema = file.schema_arrow.remove_metadata()
                return pa.RecordBatchReader.from_batches(
                    schema, (b.replace_schema_metadata(None) for b in file.iter_batches(_BATCH_ROWS))
                )
            case "csv":
                return _text_rows(path, fields, _open_csv, heading=True)
            case "json" | "jsonl" | "ndjson":
                return _text_rows(path, fields, _open_json, heading=False)
            case "arrow" | "ipc" | "feather":
                return pa.ipc.open_file(pa.memory_map(path)).read_all().to_reader()
            case other:
                raise InvalidInputError(
                    f"cannot read '{path}': rows are read from parquet, csv, json and arrow files, not '{other}'.",
                    path=path,
                )
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"cannot read the rows of '{path}': {error}", path=path) from error


def _text_rows(path: str, fields: Sequence[t.Field], opened: _Open, *, heading: bool) -> pa.RecordBatchReader:
    """Return a reader whose errors name the file and the value: text is parsed block by block, while it is read."""
    kinds = {f.name: arrow_type(f.type) for f in fields}

    def parse(data: bytes, only: str | None = None) -> pa.Table:
        return opened(pa.BufferReader(data), kinds, only).read_all()

    def batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except pa.ArrowInvalid as error:
            raise refused(error) from error

    def refused(error: Exception) -> MerganserError:
        with io.BufferedReader(pa.OSFile(path)) as file:
            return refusal(path, file, error, fields, parse, heading=heading)

    try:
        reader = opened(path, kinds, None)
    except pa.ArrowInvalid as error:
        raise refused(error) from error
    return pa.RecordBatchReader.from_batches(reader.schema, batches(reader))


def _open_csv(source: Any, kinds: Mapping[str, pa.DataType], only: str | None) -> pa.RecordBatchReader:
    convert = pa_csv.ConvertOptions(
        column_types=kinds, strings_can_be_null=True, include_columns=None if only is None else [only]
    )
    return pa_csv.open_csv(source, convert_options=convert)


def _open_json(source: Any, kinds: Mapping[str, pa.DataType], only: str | None) -> pa.RecordBatchReader:
    texts = pa.schema(
        [
            (name, pa.string() if pa.types.is_time(kind) else _as_json_has_it(kind))
            for name, kind in kinds.items()
            if only in (None, name)
        ]
    )
    options = pa_json.ParseOptions(
        explicit_schema=texts, unexpected_field_behavior="infer" if only is None else "ignore"
    )
    found = pa_json.open_json(source, parse_options=options)
    wanted = pa.schema([pa.field(f.name, kinds.get(f.name, f.type)) for f in found.schema])
    return pa.RecordBatchReader.from_batches(wanted, _cast(found, wanted))


def _as_json_has_it(kind: pa.DataType) -> pa.DataType:
    """Return the type as which a value stands in JSON: dates are texts there."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_json_has_it(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_json_has_it(field.type)) for field in kind])
    return kind


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = []
        for column, field in zip(batch.columns, schema, strict=True):
            if pa.types.is_time(field.type):  # Arrow reads it from text as a part of a timestamp only
                column = pc.binary_join_element_wise("1970-01-01T", column, "").cast(pa.timestamp(field.type.unit))
            columns.append(pc.cast(column, field.type))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
