"""Sort-merge: cut k sorted runs into windows of rows, so that no key straddles two windows.

The merge reads every run in pieces in proportion to the run's rows, so that the pieces cover about the same range of
keys. A window ends at the smallest of the last keys of the present pieces; rows above it wait in the buffer of their
run. So memory holds `window_rows` rows and about as many waiting ones, for any number of runs and rows. It holds fewer
rows if they take more than `window_bytes`::

    run 2   ....|=========|-----       = in the window
    run 1   ...|===|------             - waits
    run 0   ...|==========|            this one's last key is the smallest: the bound

The caller gives the runs oldest first, and the versions of a key keep that order. It is the order of sequence numbers
if the runs have disjoint ranges of them. Otherwise, or if the table has an order of its own, the caller names the
further order (`merge.order`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.errors import FormatError
from merganser.merge.keys import Image, KeyImages, count_at_most, sorted_positions
from merganser.values import dataclass

WINDOW_ROWS = 65_536
"""Rows of a window, about: enough to make the cost of one vanish, few enough for memory.

Memory that a thread touches for the first time can cost as much as the merge itself (docs/decisions/0019)."""

WINDOW_BYTES = 32 * 1024 * 1024
"""Bytes of a window in memory, about; rows of up to 512 bytes never feel it."""


class Run(Protocol):
    """A sorted run that is read in stretches. A key occurs in it once."""

    @property
    def rows(self) -> int:
        """Rows in all, at most."""

    def read(self, rows: int) -> pa.Table | None:
        """Return the next rows, about `rows` of them and some at least, or None after the last."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of all runs within a range of keys.

    Attributes:
        rows: the rows, run by run; not sorted.
        spans: which run the rows come from, and how many; in the order of the rows.
    """

    rows: pa.Table
    spans: tuple[tuple[int, int], ...]

    def run_of(self) -> npt.NDArray[np.int64]:
        """Return int64[n], the place of each row's run among the runs."""
        runs, counts = zip(*self.spans, strict=True)
        return np.repeat(np.array(runs, np.int64), counts)


@dataclass(frozen=True, slots=True)
class Window(Stretch):
    """The same with the order of its rows.

    Attributes:
        positions: int64[n], rows in (key, order) order.
        is_last: bool[n] over sorted rows: the last version of its key here.
    """

    positions: npt.NDArray[np.int64]
    is_last: npt.NDArray[np.bool_]


def windows(
    runs: Sequence[Run],
    *,
    key: Sequence[str],
    tie: Callable[[Stretch], npt.NDArray[np.int64] | None] | None = None,
    window_rows: int = WINDOW_ROWS,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Window]:
    """Yield windows in key order; together they hold every row of every run once.

    Args:
        runs: oldest first.
        key: names of the key columns, in key order.
        tie: gives int64[n] that orders versions of a key; None, or when it gives None: by run.
        window_rows, window_bytes: approximate limits of a window; it ends at the limit that it reaches first.

    Raises:
        FormatError: a run is not sorted by its key.
    """
    total = sum(run.rows for run in runs)
    shares = [run.rows / max(1, total) for run in runs]
    buffers: list[pa.Table | None] = [None] * len(runs)
    finished = [False] * len(runs)
    widths = [0.0] * len(runs)  # bytes per row, as last seen
    images: KeyImages | None = None
    reached: Image | None = None  # the bound of the window before
    for i, run in enumerate(runs):  # how wide rows are is seen, not foretold
        buffers[i], finished[i] = _filled(run, None, 1)
    while True:
        widths = [known if b is None else b.nbytes / b.num_rows for b, known in zip(buffers, widths, strict=True)]
        width = sum(share * known for share, known in zip(shares, widths, strict=True))
        size = min(window_rows, window_bytes / max(1.0, width))
        for i, run in enumerate(runs):
            if not finished[i]:
                # Every buffer is filled up before the bound is chosen: a short one would make a small window.
                buffers[i], finished[i] = _filled(run, buffers[i], max(1, int(shares[i] * size)))
        present = [i for i, buffer in enumerate(buffers) if buffer is not None]
        if not present:
            return
        tables: dict[int, pa.Table] = {i: buffer for i, buffer in enumerate(buffers) if buffer is not None}
        if images is None:
            images = KeyImages([tables[present[0]].schema.field(name).type for name in key])
        columns = {i: [table.column(name) for name in key] for i, table in tables.items()}
        last = {i: images.at(columns[i], tables[i].num_rows - 1) for i in present if not finished[i]}
        parts: dict[int, pa.Table] = {}
        bound: Image | None = None
        if len(present) == 1:
            parts, buffers[present[0]], bound = tables, None, last.get(present[0])
        else:
            bound = min(last.values()) if last else None
            for i in present:
                at = tables[i].num_rows if bound is None else count_at_most(columns[i], bound, images)
                if at:
                    parts[i] = tables[i].slice(0, at)
                buffers[i] = tables[i].slice(at) if at < tables[i].num_rows else None
        if not parts:  # the run that set the bound has no row up to it
            raise _unsorted(runs, key)
        rows = pa.concat_tables(parts.values()) if len(parts) > 1 else next(iter(parts.values()))
        spans = tuple((i, part.num_rows) for i, part in parts.items())
        keys = [rows.column(name) for name in key]
        if len(parts) == 1:
            window = Window(rows, spans, np.arange(rows.num_rows), np.ones(rows.num_rows, np.bool_))
        else:
            window = Window(rows, spans, *sorted_positions(keys, None if tie is None else tie(Stretch(rows, spans))))
        # Versions of a key could come in two windows, and both be taken for the newest, if a run were not sorted.
        if reached is not None and images.at(keys, int(window.positions[0])) <= reached:
            raise _unsorted(runs, key)
        if bound is not None and images.at(keys, int(window.positions[-1])) > bound:
            raise _unsorted(runs, key)
        reached = bound
        made = [window]
        del window, rows, keys, parts, tables, columns  # what is merged goes before what comes is read
        yield made.pop()


def only_window(
    rows: pa.Table,
    spans: Sequence[tuple[int, int]],
    *,
    key: Sequence[str],
    tie: Callable[[Stretch], npt.NDArray[np.int64] | None] | None = None,
) -> Window:
    """Return the one window of runs that are in memory; see `windows`.

    Args:
        rows: all rows, run by run, oldest first.
        spans: which run the rows come from, and how many.
        key: names of the key columns, in key order.
        tie: as for `windows`.
    """
    stretch = Stretch(rows, tuple(spans))
    columns = [rows.column(name) for name in key]
    return Window(rows, stretch.spans, *sorted_positions(columns, None if tie is None else tie(stretch)))


def _unsorted(runs: Sequence[Run], key: Sequence[str]) -> FormatError:
    return FormatError(
        f"cannot merge sorted runs: one of {len(runs)} is not sorted by its key ({', '.join(key)}). "
        "Another engine wrote it so, or its file is damaged."
    )


def _filled(run: Run, buffer: pa.Table | None, rows: int) -> tuple[pa.Table | None, bool]:
    """Return the buffer with at least `rows` rows, fewer at the end of the run, and whether that is reached."""
    parts = [] if buffer is None else [buffer]
    held = 0 if buffer is None else buffer.num_rows
    finished = False
    while held < rows and not finished:
        table = run.read(rows - held)
        finished = table is None
        if table is not None and table.num_rows:
            parts.append(table)
            held += table.num_rows
    return (pa.concat_tables(parts) if len(parts) > 1 else parts[0] if parts else None), finished
