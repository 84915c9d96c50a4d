"""Rows that lie in files -> Arrow tables, in the order of the files' paths."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
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


def batches_of_files(pattern: str, fields: Sequence[t.Field]) -> Iterator[pa.RecordBatchReader]:
    """Yield a stream of rows of every file.

    Args:
        fields: columns of the table: what text in CSV and JSON files is read as.
    """
    for path in matching_files(pattern):
        yield read_file(path, fields)


def read_file(path: str, fields: Sequence[t.Field]) -> pa.RecordBatchReader:
    """Return the rows of one file as a stream.

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
                return pa_csv.open_csv(path, convert_options=convert)
            case "json" | "jsonl" | "ndjson":
                return pa_json.open_json(
                    path, parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(list(kinds.items())))
                )
            case "arrow" | "ipc" | "feather":
                return pa.ipc.open_file(pa.memory_map(path)).read_all().to_reader()
            case other:
                raise InvalidInputError(
                    f"cannot read '{path}': rows are read from parquet, csv, json and arrow files, not '{other}'.",
                    path=path,
                )
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"cannot read the rows of '{path}': {error}", path=path) from error
