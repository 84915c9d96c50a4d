"""The sorted runs that one merge reads, with a bounded number of open files.

A merge reads all its runs side by side. Up to `OPEN_MAX` runs are read from their files: each run opens one file after
the other, and the first file of each run is requested in parallel. If there are more runs, the largest of them are read
in this way. Every other run is read once from its first row to its last, several runs in parallel, and its rows are put
aside: in memory up to `ASIDE_BYTES` for all of them, then in one file on the local disk. So a merge of any number of
runs holds `OPEN_MAX` files open, and one more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from merganser.lsm.record_expiry import RowSource
from merganser.merge.sort_merge import WINDOW_BYTES, WINDOW_ROWS, Run
from merganser.meta.data_file import DataFile
from merganser.storage.env import Env
from merganser.storage.protocol import Storage
from merganser.storage.spill import SpillFile
from merganser.values import dataclass

OPEN_MAX: Final = 16
"""Maximum number of files that a merge reads side by side. Two merges of a process with the usual limit of 256 to 1,024
open files may run on each core."""

ASIDE_BYTES: Final = WINDOW_BYTES
"""Maximum number of bytes in memory of runs that are put aside; the rest lies on the local disk."""

_PIECE_BYTES_MIN: Final = 64 * 1024
"""Minimum size of a piece that is read back from the local disk: a smaller one would be mostly framing."""

_ASIDE_AT_ONCE: Final = 8
"""Number of runs that are put aside in parallel."""

Open: TypeAlias = "Callable[[DataFile], RowSource]"


@contextlib.contextmanager
def open_runs(storage: Storage, runs: Sequence[Sequence[DataFile]], open_file: Open) -> Iterator[list[Run]]:
    """Return runs whose files are open as long as they are read, and are closed at the end, also after an error.

    Args:
        runs: the files of each run, in key order.
        open_file: opens one file; threads may call it.
    """
    large = sorted(range(len(runs)), key=lambda i: sum(file.size for file in runs[i]), reverse=True)[:OPEN_MAX]
    with contextlib.ExitStack() as stack:
        found: dict[int, Run] = {}
        if len(large) < len(runs):
            aside = stack.enter_context(_Aside(WINDOW_BYTES // len(runs)))
            others = [i for i in range(len(runs)) if i not in set(large)]
            put = [_FileRun(runs[i], open_file) for i in others]
            done = Env(storage).fetch(aside.put, put, at_once=_ASIDE_AT_ONCE)
            found.update(zip(others, done, strict=True))
        files = {i: stack.enter_context(contextlib.closing(_FileRun(runs[i], open_file))) for i in large}
        if len(files) > 1:
            Env(storage).fetch(_FileRun.open, files.values())
        yield [found[i] if i in found else files[i] for i in range(len(runs))]


class _FileRun:
    """A run that is read from its files, one after the other."""

    def __init__(self, files: Sequence[DataFile], open_file: Open) -> None:
        self.rows = sum(file.row_count for file in files)
        self._rest = iter(files)
        self._open_file = open_file
        self._source: RowSource | None = None

    def open(self) -> None:
        """Open the first file, or the next one."""
        if self._source is None and (file := next(self._rest, None)) is not None:
            self._source = self._open_file(file)

    def read(self, rows: int) -> pa.Table | None:
        while True:
            self.open()
            if self._source is None:
                return None
            table = self._source.read(rows)
            if table is not None:
                return table
            self.close()

    def close(self) -> None:
        """Close the file that is open, if there is one."""
        source, self._source = self._source, None
        if source is not None:
            source.close()


@dataclass
class _AsideRun:
    """A run whose rows were put aside, in pieces: tables in memory, or numbers of pieces in a file."""

    rows: int
    pieces: Iterator[pa.Table | int]
    file: SpillFile

    def read(self, rows: int) -> pa.Table | None:
        piece = next(self.pieces, None)
        return self.file.read(piece) if isinstance(piece, int) else piece


class _Aside:
    """Rows of runs that were put aside. Threads may put runs; one thread reads them then."""

    def __init__(self, piece_bytes: int) -> None:
        self._piece_bytes = max(_PIECE_BYTES_MIN, piece_bytes)
        self._file = SpillFile()
        self._held_bytes = 0
        self._lock = threading.Lock()

    def __enter__(self) -> _Aside:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def put(self, run: _FileRun) -> _AsideRun:
        """Read a run to its end, and return its rows as a run."""
        pieces: list[pa.Table | int] = []
        count = 0
        with contextlib.closing(run):
            while (rows := run.read(WINDOW_ROWS)) is not None:
                count += rows.num_rows
                if rows.num_rows:
                    pieces += self._kept(rows)
        return _AsideRun(count, iter(pieces), self._file)

    def _kept(self, rows: pa.Table) -> Sequence[pa.Table | int]:
        size = rows.nbytes
        with self._lock:
            if self._held_bytes + size <= ASIDE_BYTES:
                self._held_bytes += size
                return [rows]
            return self._file.add(rows, max(1, rows.num_rows * self._piece_bytes // max(1, size)))
