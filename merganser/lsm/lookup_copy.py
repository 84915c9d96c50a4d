"""A lookup copy of a data file: its rows without compression, and the image of its keys.

Rows lie in batches of as many rows each, so a position tells batch and row. Each block (a batch, a part of the image)
has a checksum, which is verified when the block is first used: the CRC-32 of the sums of its pages, as 64-bit words. A
sum shows every change of one word, at the speed of memory; the CRC shows pages that changed places. Blocks are used
where they lie: a copy on disk is mapped, not read.

    block | block | ... | trailer (JSON) | length and CRC-32 of the trailer, magic
"""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from merganser.lsm.key_image import HashImage, IntegerImage, Positions, image_of
from merganser.schema import types as t
from merganser.schema.arrow import in_types
from merganser.schema.pieces import rows_at

_BATCH_BYTES: Final = 32 << 20
_BATCH_ROWS_MAX: Final = 1 << 20
_MAGIC: Final = b"MGLOOK02"
_TAIL: Final = struct.Struct("<II8s")
_ALIGNED: Final = 64
_PAGE_WORDS: Final = 512
_PAGE_BYTES: Final = 8 * _PAGE_WORDS
_TYPES: Final = {"integers": (np.int64,), "hashes": (np.uint32, np.uint32)}


class DamagedCopyError(Exception):
    """The bytes are not those of a lookup copy. It is made again, and no caller of a lookup sees this error."""


class CopyWriter:
    """Writes the copy of a file while its rows go by.

    Memory: a batch of rows, and 8 bytes per row of the file.

    Args:
        schema: of the rows.
        key, kinds: names and types of the key columns.
        write: takes bytes, one piece after the other.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key: Sequence[str],
        kinds: Sequence[t.DataType],
        write: Callable[[pa.Buffer | bytes], object],
    ) -> None:
        self._schema = schema
        self._kinds = kinds
        self._write = write
        self._blocks = _Blocks(write)
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._blocks, mode="w"), schema)
        nothing = pa.RecordBatch.from_pylist([], schema=schema)
        self._described = self._written(nothing)  # the stream writes the schema before its first batch
        self._keys: dict[str, list[pa.Array]] = {name: [] for name in key}
        self._batches: list[list[int]] = []
        self._rows = self._batch_rows = 0
        self._held: list[pa.Table] = []
        self._count = 0

    def add(self, rows: pa.Table) -> None:
        """Append rows of the file, in its order. They are written in batches of as many rows each."""
        if not rows.num_rows:
            return
        if not self._batch_rows:
            self._batch_rows = min(_BATCH_ROWS_MAX, max(1, _BATCH_BYTES * rows.num_rows // max(1, rows.nbytes)))
        self._held.append(in_types(rows, self._schema))
        self._count += rows.num_rows
        while self._count >= self._batch_rows:
            whole = pa.concat_tables(self._held)
            self._put(whole.slice(0, self._batch_rows))
            self._held, self._count = [whole.slice(self._batch_rows)], self._count - self._batch_rows

    def close(self) -> None:
        """Write the rest: the last batch, which may have fewer rows, and the image of the keys."""
        if self._count:
            self._put(pa.concat_tables(self._held))
        empty = self._schema.empty_table()
        columns = [pa.concat_arrays([*parts, *empty.column(name).chunks]) for name, parts in self._keys.items()]
        image = image_of(columns, self._kinds)
        trailer = {
            "rows": self._rows,
            "batch_rows": min(self._batch_rows, self._rows),
            "schema": self._described,
            "batches": self._batches,
            "image": "integers" if isinstance(image, IntegerImage) else "hashes",
            "parts": [self._blocks.add(pa.py_buffer(np.ascontiguousarray(part))) for part in image.parts],
        }
        text = json.dumps(trailer).encode()
        self._write(text)
        self._write(_TAIL.pack(len(text), zlib.crc32(text), _MAGIC))

    def _put(self, rows: pa.Table) -> None:
        columns = [
            pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0) for column in rows.columns
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        self._batches.append(self._written(batch))
        for name, parts in self._keys.items():
            parts.append(batch.column(name))
        self._rows += batch.num_rows

    def _written(self, batch: pa.RecordBatch) -> list[int]:
        """Write a batch, column by column from where it lies; return its block."""
        self._stream.write_batch(batch)
        return self._blocks.end()


class Copy:
    """A lookup copy that is open. Threads may share it.

    Args:
        data: all its bytes.

    Raises:
        DamagedCopyError: they are not those of a copy. Later calls raise it, too, when they find damage.
    """

    def __init__(self, data: pa.Buffer) -> None:
        self._data = data
        if data.size < _TAIL.size:
            raise DamagedCopyError
        length, crc, magic = _TAIL.unpack(data.slice(data.size - _TAIL.size).to_pybytes())
        start = data.size - _TAIL.size - length
        if magic != _MAGIC or start < 0 or zlib.crc32(text := data.slice(start, length).to_pybytes()) != crc:
            raise DamagedCopyError
        trailer: dict[str, Any] = json.loads(text)
        self.rows: int = trailer["rows"]
        self.batch_rows: int = trailer["batch_rows"]
        self._batches: list[list[int]] = trailer["batches"]
        self._open: dict[int, pa.RecordBatch] = {}
        self._lock = threading.Lock()
        self.schema = pa.ipc.read_schema(self._block(trailer["schema"]))
        parts = [
            np.frombuffer(self._block(part), kind)
            for part, kind in zip(trailer["parts"], _TYPES[trailer["image"]], strict=True)
        ]
        self.image = IntegerImage(*parts) if len(parts) == 1 else HashImage(*parts)

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self._data.size)

    def take(self, positions: Positions, names: Sequence[str]) -> pa.Table:
        """Return rows.

        Args:
            positions: of the rows, in any order.
            names: the columns.
        """
        if not len(positions):
            return self.schema.empty_table().select(list(names))
        number = positions // self.batch_rows
        first = int(number[0])
        if (number == first).all():
            return pa.Table.from_batches([self._taken(first, positions, names)])
        order = np.argsort(number, kind="stable")
        ends = np.flatnonzero(np.diff(number[order])) + 1
        groups = np.split(order, ends)
        rows = pa.Table.from_batches([self._taken(int(number[at[0]]), positions[at], names) for at in groups])
        if (order[1:] > order[:-1]).all():
            return rows
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return rows_at(rows, back)

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a batch of rows."""
        found = self._open.get(number)
        if found is None:
            with self._lock:
                found = self._open.get(number)
                if found is None:
                    found = pa.ipc.read_record_batch(self._block(self._batches[number]), self.schema)
                    self._open[number] = found
        return found

    def place(self, position: int) -> tuple[int, int]:
        """Return the batch of a row, and where it is there."""
        return divmod(position, self.batch_rows)

    def _taken(self, number: int, positions: Positions, names: Sequence[str]) -> pa.RecordBatch:
        batch = self.batch(number).select(list(names))
        first, last = int(positions[0]), int(positions[-1])
        if last - first == len(positions) - 1 and (len(positions) == 1 or (np.diff(positions) == 1).all()):
            return batch.slice(first - number * self.batch_rows, len(positions))
        return batch.take(pa.array(positions - number * self.batch_rows))

    def _block(self, place: Sequence[int]) -> pa.Buffer:
        offset, length, checksum = place
        block = self._data.slice(offset, length)
        sums = _PageSums()
        sums.add(block)
        if block.size != length or sums.checksum != checksum:
            raise DamagedCopyError
        return block


class _Blocks:
    """Writes blocks at aligned places. Arrow takes it for a file that is open for writing.

    Attributes:
        size: bytes written.
    """

    closed = False

    def __init__(self, write: Callable[[pa.Buffer | bytes], object]) -> None:
        self.size = 0
        self._write = write
        self._start = 0
        self._sums = _PageSums()

    def write(self, data: pa.Buffer | bytes) -> int:
        """Append bytes to the block."""
        self._write(data)
        size = self._sums.add(data)
        self.size += size
        return size

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.size

    def flush(self) -> None:
        """Do nothing: bytes are written at once."""

    def end(self) -> list[int]:
        """End the block; return its offset, length and checksum."""
        place = [self._start, self.size - self._start, self._sums.checksum]
        gap = -self.size % _ALIGNED
        self._write(bytes(gap))
        self._start = self.size = self.size + gap
        self._sums = _PageSums()
        return place

    def add(self, block: pa.Buffer) -> list[int]:
        """Write a block as a whole; return the same."""
        self.write(block)
        return self.end()


class _PageSums:
    """The checksum of a block that comes in pieces."""

    def __init__(self) -> None:
        self._crc = 0
        self._begun = b""
        """The part of a page that is there."""

    def add(self, data: pa.Buffer | bytes) -> int:
        """Take the next bytes of the block; return how many there are."""
        view = memoryview(data).cast("B")
        start = min(len(view), -len(self._begun) % _PAGE_BYTES)
        self._begun += view[:start]
        if len(self._begun) == _PAGE_BYTES:
            self._sum(memoryview(self._begun))
            self._begun = b""
        end = len(view) - (len(view) - start) % _PAGE_BYTES
        if start < end:
            self._sum(view[start:end])
        if start < len(view):
            self._begun += view[end:]
        return len(view)

    @property
    def checksum(self) -> int:
        """Of what was taken; the last page, if it is not whole, as it is."""
        return zlib.crc32(self._begun, self._crc)

    def _sum(self, pages: memoryview) -> None:
        words = np.frombuffer(pages, "<u8").reshape(-1, _PAGE_WORDS)
        self._crc = zlib.crc32(words.sum(axis=1, dtype="<u8"), self._crc)
