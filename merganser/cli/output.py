"""Where rows go: stdout or a file, and the texts of values in a terminal."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from merganser.cli import render
from merganser.errors import StorageError


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
