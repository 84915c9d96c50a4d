"""Rows put aside on the local disk while there are too many for memory, in parts that are read back one by one.

They lie in a directory of the system's place for temporary files, which goes with them. They are nothing of a table:
when a process dies, they are the system's to clear away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from merganser.errors import StorageError

_COMPRESSION: Final = "lz4"


class Spill:
    """Parts of rows on the local disk. One thread at a time."""

    def __init__(self) -> None:
        """Make the directory.

        Raises:
            StorageError: the local disk has no room for it.
        """
        with _told("make a place for rows that do not fit into memory"):
            self._directory = tempfile.mkdtemp(prefix="merganser-")
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._bytes: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def add(self, part: int, rows: pa.Table) -> None:
        """Append rows to a part; all rows of all parts have one schema.

        Raises:
            StorageError: the local disk is full.
        """
        with _told("put rows aside that do not fit into memory"):
            if part not in self._writers:
                options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
                self._writers[part] = pa.ipc.new_stream(self._path(part), rows.schema, options=options)
            self._writers[part].write_table(rows)
        self._bytes[part] = self._bytes.get(part, 0) + rows.nbytes

    def size_bytes(self, part: int) -> int:
        """Return how many bytes a part takes in memory."""
        return self._bytes.get(part, 0)

    def tables(self, part: int, columns: Sequence[str] | None = None) -> Generator[pa.Table, None, None]:
        """Yield the rows of a part in the order in which they came; None: all columns. Nothing is added after."""
        if part not in self._writers:
            return
        with _told("read rows back that were put aside"):
            self._writers[part].close()
            with pa.ipc.open_stream(pa.OSFile(self._path(part))) as source:
                names = source.schema.names
            fields = None if columns is None else [names.index(name) for name in columns]
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            source = pa.ipc.open_stream(pa.OSFile(self._path(part)), options=options)
        with source:
            while True:
                with _told("read rows back that were put aside"):
                    batch = next(source, None)
                if batch is None:
                    return
                table = pa.Table.from_batches([batch])
                yield table if columns is None else table.select(list(columns))

    def drop(self, part: int) -> None:
        """Give the place of a part back."""
        with contextlib.suppress(OSError):
            os.remove(self._path(part))

    def _path(self, part: int) -> str:
        return os.path.join(self._directory, f"{part}.arrow")


class SpillFile:
    """Pieces of rows in one file on the local disk, which are read back by number. All are written before any is read.

    The file is made with the first piece. One thread at a time.
    """

    def __init__(self) -> None:
        self._directory: str | None = None
        self._file: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self._pieces = 0

    def add(self, rows: pa.Table, piece_rows: int) -> range:
        """Append rows in pieces of at most `piece_rows`, and return the numbers of the pieces.

        Args:
            rows: all rows of one file have one schema.

        Raises:
            StorageError: the local disk is full.
        """
        with _told("put rows aside that do not fit into memory"):
            if self._writer is None:
                self._directory = tempfile.mkdtemp(prefix="merganser-")
                options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION)
                self._file = pa.OSFile(self._path(), "wb")
                self._writer = pa.ipc.new_file(self._file, rows.schema, options=options)
            batches = rows.to_batches(max_chunksize=piece_rows)
            for batch in batches:
                self._writer.write_batch(batch)
        first, self._pieces = self._pieces, self._pieces + len(batches)
        return range(first, self._pieces)

    def read(self, piece: int) -> pa.Table:
        """Return the rows of a piece."""
        with _told("read rows back that were put aside"):
            if self._reader is None:
                assert self._writer is not None
                assert self._file is not None
                self._writer.close()
                self._file.close()
                self._file = pa.OSFile(self._path())
                self._reader = pa.ipc.open_file(self._file)
            return pa.Table.from_batches([self._reader.get_batch(piece)])

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _path(self) -> str:
        assert self._directory is not None
        return os.path.join(self._directory, "pieces.arrow")


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot {what}: {error}. Give the local disk room, or point the environment variable TMPDIR at one that "
            "has some."
        ) from error
