"""Rows -> CSV, JSON or Parquet, batch by batch: memory stays bounded whatever the table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from merganser.codec.json_lines import base64, json_lines
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.scan.rows import Rows


def write_rows(rows: Rows | pa.Table, form: str, sink: IO[bytes], *, seen: Callable[[int], None]) -> int:
    """Write all rows and return how many there were.

    Args:
        rows: what to write.
        form: "csv": with a heading; "json": one object per line; "parquet".
        sink: open for writing.
        seen: called with the number of rows written so far.

    Raises:
        UnsupportedError: a column has no form in CSV.
    """
    fields = [field.with_nullable(True) for field in rows.schema]
    schema = pa.schema(fields)
    if form == "csv":
        _check_flat(schema)
    done = 0
    with _writer(form, sink, schema) as write:
        for batch in rows.to_batches():
            write(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            done += batch.num_rows
            seen(done)
    return done


@contextlib.contextmanager
def _writer(form: str, sink: IO[bytes], schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], Any]]:
    match form:
        case "csv":
            texts = pa.schema([f.with_type(pa.string()) if pa.types.is_binary(f.type) else f for f in schema])
            with pa_csv.CSVWriter(sink, texts) as csv:
                yield lambda batch: csv.write_batch(_with_base64(batch, texts))
        case "json":
            yield lambda batch: sink.write(json_lines(batch))
        case "parquet":
            with pq.ParquetWriter(sink, schema) as parquet:
                yield parquet.write_batch
        case _:
            raise InvalidInputError(f"there is no format '{form}'. Choose csv, json or parquet.")


def _with_base64(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with bytes as text, which CSV has no other form for."""
    columns = [base64(column) if pa.types.is_binary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_flat(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise UnsupportedError(
                f"column '{field.name}' is {field.type}, which CSV has no form for. "
                "Write JSON or Parquet, or leave the column out.",
                column=field.name,
            )
