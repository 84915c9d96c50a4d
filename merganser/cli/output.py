"""Rows -> CSV, JSON or Parquet, batch by batch: memory stays bounded whatever the table."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from merganser.cli import render
from merganser.cli.arguments import FORMATS
from merganser.codec.json_lines import base64, json_lines
from merganser.errors import InvalidInputError, StorageError, UnsupportedError
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
def sink_of(path: str | None) -> Iterator[IO[bytes]]:
    """Open the output: stdout, or a file that gets its name when it is complete.

    Raises:
        StorageError: the file cannot be written.
    """
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = f"{path}.part"
    try:
        with io.FileIO(part, "wb") as file, io.BufferedWriter(file) as sink:
            yield sink
        os.replace(part, path)
    except OSError as error:
        if isinstance(error, StorageError) or error.errno == errno.EPIPE:
            raise
        raise StorageError(f"cannot write '{path}': {error.strerror or error}.", path=path) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


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
            raise InvalidInputError(f"there is no format '{form}'. Choose from {', '.join(FORMATS)}.")


def _with_base64(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with bytes as text, which CSV has no other form for."""
    columns = [base64(column) if pa.types.is_binary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_flat(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise UnsupportedError(
                f"column '{field.name}' is {field.type}, which CSV has no form for. "
                "Write --format json or parquet, or leave the column out.",
                column=field.name,
            )


def cells(column: pa.ChunkedArray) -> list[str]:
    """Return the values of a column as texts on one line each. Python itself has no times of nine digits."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        zone = "" if kind.tz is None else "+00:00"
        texts = column.cast(pa.timestamp("ns")).cast(pa.string()).to_pylist()
        return [render.cell(None if text is None else render.without_zeros(text) + zone) for text in texts]
    shown = _shown(kind)
    return [render.cell(value) for value in (column if shown == kind else column.cast(shown)).to_pylist()]


def _shown(kind: pa.DataType) -> pa.DataType:
    """Return a type with text for times of nine digits inside of values."""
    if pa.types.is_timestamp(kind):
        return pa.string() if kind.unit == "ns" else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_shown(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(*(field.with_type(_shown(field.type)) for field in (kind.key_field, kind.item_field)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_shown(kind.value_type)))
    return kind
