"""Rows that lie in files -> Arrow tables, in the order of the files' paths."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from merganser.codec.data_format import format_of
from merganser.errors import FormatError, InvalidInputError, NotFoundError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

_BATCH_ROWS = 131_072


def matching_files(pattern: str) -> list[str]:
    """Return the files of a pattern, ordered by path; of a directory, the files in it.

    Raises:
        NotFoundError: there is none.
    """
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
        InvalidInputError: the extension is none that can be read.
        FormatError: the bytes are no such file.
    """
    kinds = {f.name: arrow_type(f.type) for f in fields}
    try:
        match format_of(path):
            case "parquet":
                file = pq.ParquetFile(path)
                schema = file.schema_arrow.remove_metadata()
                return pa.RecordBatchReader.from_batches(
                    schema, (b.replace_schema_metadata(None) for b in file.iter_batches(_BATCH_ROWS))
                )
            case "csv":
                convert = pa_csv.ConvertOptions(column_types=kinds, strings_can_be_null=True)
                return _named(path, pa_csv.open_csv(path, convert_options=convert))
            case "json" | "jsonl" | "ndjson":
                texts = pa.schema(
                    [(n, pa.string() if pa.types.is_time(kind) else _as_json_has_it(kind)) for n, kind in kinds.items()]
                )
                found = pa_json.open_json(path, parse_options=pa_json.ParseOptions(explicit_schema=texts))
                wanted = pa.schema([pa.field(f.name, kinds.get(f.name, f.type)) for f in found.schema])
                return _named(path, pa.RecordBatchReader.from_batches(wanted, _cast(found, wanted)))
            case "arrow" | "ipc" | "feather":
                return pa.ipc.open_file(pa.memory_map(path)).read_all().to_reader()
            case other:
                raise InvalidInputError(
                    f"cannot read '{path}': rows are read from parquet, csv, json and arrow files, not '{other}'.",
                    path=path,
                )
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error) from error


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


def _named(path: str, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return a reader whose errors name the file: text is parsed block by block, while it is read."""

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except pa.ArrowInvalid as error:
            raise _unreadable(path, error) from error

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _unreadable(path: str, error: Exception) -> FormatError:
    return FormatError(f"cannot read the rows of '{path}': {error}", path=path)
