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

from merganser.codec.display import display_texts, on_one_line
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
    """Return the values of a column as texts on one line each."""
    texts = display_texts(column).to_pylist()
    return ["null" if text is None else on_one_line(text) for text in texts]


def named_cells(rows: pa.Table, between: str) -> list[str]:
    """Return each row as text on one line: "dt=2026-01-01, hour=7"."""
    columns = [[f"{name}={text}" for text in cells(rows.column(name))] for name in rows.column_names]
    return [between.join(texts) for texts in zip(*columns, strict=True)] if columns else [""] * rows.num_rows
