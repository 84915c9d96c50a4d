"""Rows of one bucket of a key table -> sorted runs of level 0.

A flush writes one sorted run per bucket: the rows ordered by (key, arrival), with the versions of each key merged, lone
ones too. Where one row per key cannot say what its versions do to older ones (`merge.engine`), the flush writes further
runs before it. The writer gathers value columns slice by slice while it writes a file, so beyond the rows a flush needs
one slice of memory per thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.files.layout import FileLayout, changelog_layout, file_layout, received_layout
from merganser.files.write import RollingWriter, copied
from merganser.lsm.gather import Gather
from merganser.lsm.held import copies_beside
from merganser.merge.deduplicate import Deduplicate
from merganser.merge.engine import Folded, Kinds
from merganser.merge.functions.segments import any_of, selected
from merganser.merge.groups import Groups
from merganser.merge.keys import sorted_positions
from merganser.merge.rules import Merge
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.schema import row_kind
from merganser.storage.env import Env

Fold = Callable[[pa.Table, Groups, Kinds | None, Sequence[str]], Folded | None]
"""(rows, groups, kinds, columns) -> one row of each group, or of some; see `merge.engine`."""

Keeps = Literal["published", "received"]
"""For whom a flush keeps the rows as they came."""

SLICE_ROWS = 262_144
"""Rows gathered at a time."""


class Flush:
    """Rows that are written together, bucket by bucket; buckets may be written side by side.

    Args:
        rows: of many buckets, each column in one piece.
        kinds: int8, one per row; None: all inserts.
        arrival: int64, orders the rows where their position does not; None: by position.
        keeps: also write the rows as they came, with their kinds, into changelog files: for readers in merge order, for
            a job that finds out what each of them changed in the order of their arrival. None: no such files.
        mark: part of the names of data files.
        numbers_by_arrival: sequence numbers are the arrival itself, with gaps: rows that arrived earlier may still
            come. Otherwise rows of a bucket are numbered one after the other.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        merge: Merge,
        rows: pa.Table,
        kinds: pa.Array | None,
        arrival: npt.NDArray[np.int64] | None,
        *,
        keeps: Keeps | None,
        mark: str,
        numbers_by_arrival: bool,
    ) -> None:
        self._table = table
        self._env = env
        self._merge = merge
        self._rows = rows
        self._kinds: npt.NDArray[np.int8] | None = None if kinds is None else kinds.to_numpy()
        self._given_kinds = self._kinds
        if self._kinds is not None and merge.engine.removes:
            self._kinds = self._kinds.copy()  # each bucket changes its own rows
        self._arrival = arrival
        self._numbers_by_arrival = numbers_by_arrival
        self._picked = Gather(rows)
        self._layout = file_layout(table)
        self._keeps = keeps
        self._mark = mark
        self._published = {None: lambda _: None, "published": changelog_layout, "received": received_layout}[keeps](
            table
        )

    def write_bucket(
        self,
        directory: str,
        at: npt.NDArray[np.int64],
        start: int,
        keep: Callable[[Sequence[DataFile]], None],
        publish: Callable[[Sequence[DataFile]], None],
    ) -> None:
        """Write the rows of a bucket.

        Args:
            directory: of the bucket.
            at: positions of its rows, rising.
            start: the first sequence number.
            keep: takes the files of each run as soon as they are durable.
            publish: takes changelog files likewise.
        """
        rows, arrival, merge = self._rows, self._arrival, self._merge
        if arrival is not None:
            # Runs of rows that are in order already cost next to nothing.
            at = at[np.argsort(arrival[at], kind="stable")]
        whole = len(at) == rows.num_rows and arrival is None
        indices = None if whole else pa.array(at)
        keys = [rows.column(name) if indices is None else rows.column(name).take(indices) for name in self._table.key]
        ordering = () if merge.order is None else merge.order.columns
        ordered = rows.select(ordering) if indices is None else rows.select(ordering).take(indices)
        of_bucket = None if self._kinds is None else self._kinds[at]
        groups = merge.groups(ordered, keys, of_bucket)
        numbers = arrival[at] if arrival is not None and self._numbers_by_arrival else None
        if self._published is not None and self._publishes_what_it_stores(groups):
            keep = _both(keep, self._publishing_copies(directory, self._published, publish))
        elif self._published is not None:
            order = groups.positions
            if self._keeps == "received":
                order = self._not_stored(groups, keys)
            if len(order):
                publish(self._write_changelog(directory, self._published, order, start, numbers, at))
        runs = self._runs(groups, at)
        if self._keeps == "received" and isinstance(merge.engine, Deduplicate):
            keep = _both(keep, publish)  # the files of the bucket hold the other rows as they came
        for i, (versions, fold) in enumerate(runs):
            part = None
            if len(runs) > 1:
                # The numbers of the runs lie apart, within those of the rows. A number for each run is there: every run
                # has a row of its own at least.
                numbers = np.arange(len(at)) if numbers is None else numbers
                rising = np.sort(numbers)
                last = i == len(runs) - 1
                part = np.maximum(numbers, rising[i]) if last else np.full(len(at), rising[i])
            keep(self._write_run(directory, versions, start, numbers if part is None else part, at, fold))

    def _publishes_what_it_stores(self, groups: Groups) -> bool:
        """Return whether the changelog of a bucket has the rows and bytes of its data files: each row is a key."""
        if self._keeps != "published" or groups.count < len(groups.positions):
            return False
        drops = self._merge.ignore_delete and groups.additions is not None
        if drops or not isinstance(self._merge.engine, Deduplicate):
            return False
        return self._published is not None and self._published.has_bytes_of(self._layout)

    def _publishing_copies(
        self, directory: str, layout: FileLayout, publish: Callable[[Sequence[DataFile]], None]
    ) -> Callable[[Sequence[DataFile]], None]:
        def take(files: Sequence[DataFile]) -> None:
            publish(copied(self._env, directory, files, layout))

        return take

    def _not_stored(self, groups: Groups, keys: Sequence[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
        """Return the rows of a bucket that its files will not hold as they came, in the order of key and arrival."""
        order = groups.positions
        if self._merge.order is not None:
            order, _ = sorted_positions(keys)
        if not isinstance(self._merge.engine, Deduplicate):
            return order
        stored = np.zeros(len(order), np.bool_)
        stored[groups.last] = True
        return order[~stored[order]]

    def _runs(self, groups: Groups, at: npt.NDArray[np.int64]) -> list[tuple[Groups, Fold]]:
        """Return the versions of a bucket as runs, the oldest first, each with what its groups become.

        Args:
            groups: of the rows of the bucket.
            at: where they are.
        """
        if groups.additions is None:
            return [(groups, self._merge.fold)]
        parts = self._merge.parts(self._rows, replace(groups, positions=at[groups.positions]), self._kinds)
        if parts.demoted is not None:
            assert self._kinds is not None
            self._kinds[at[groups.positions[parts.demoted]]] = row_kind.UPDATE_BEFORE
        runs: list[tuple[Groups, Fold]] = []
        for mask in parts.rows or (None,):
            part = groups if mask is None else groups.only(mask)[0]
            both = _both_ways(part) if self._merge.owes else None
            if both is not None:
                runs.append((both, self._merge.owed))
            runs.append((part, self._merge.fold))
        return runs

    def _write_run(
        self,
        directory: str,
        groups: Groups,
        start: int,
        numbers: npt.NDArray[np.int64] | None,
        at: npt.NDArray[np.int64],
        fold: Fold,
    ) -> tuple[DataFile, ...]:
        """Write one sorted run.

        Args:
            groups: versions of keys among the rows of the bucket.
            numbers: sequence numbers of the rows of the bucket, from `start` on; None: their positions.
            at: where the rows of the bucket are.
            fold: what becomes of the groups.
        """
        writer = RollingWriter(
            table=self._table,
            env=self._env,
            directory=directory,
            layout=self._layout,
            mark=self._mark,
            beside=copies_beside(self._table, groups.count),
        )
        try:
            for part in groups.slices(SLICE_ROWS):
                folded = self._folded(replace(part, positions=at[part.positions]), fold)
                if folded is None:
                    continue
                numbered = part.positions[folded.sequence_positions]
                writer.write(
                    folded.table(),
                    sequences=pa.array((numbered if numbers is None else numbers[numbered]) + start),
                    kinds=None if folded.kinds is None else pa.array(folded.kinds),
                )
            return writer.close()
        except BaseException:
            writer.abort()
            raise

    def _write_changelog(
        self,
        directory: str,
        layout: FileLayout,
        order: npt.NDArray[np.int64],
        start: int,
        numbers: npt.NDArray[np.int64] | None,
        at: npt.NDArray[np.int64],
    ) -> tuple[DataFile, ...]:
        """Write the rows of a bucket as they came.

        Args:
            order: the rows of the bucket as the files have them; other arguments as for `_write_run`.
        """
        writer = RollingWriter(table=self._table, env=self._env, directory=directory, layout=layout)
        try:
            for begin in range(0, len(order), SLICE_ROWS):
                part = order[begin : begin + SLICE_ROWS]
                writer.write(
                    self._picked.take(at[part]),
                    sequences=pa.array((part if numbers is None else numbers[part]) + start),
                    kinds=None if self._given_kinds is None else pa.array(self._given_kinds[at[part]]),
                )
            return writer.close()
        except BaseException:
            writer.abort()
            raise

    def _folded(self, groups: Groups, fold: Fold) -> Folded | None:
        try:
            return self._fold(groups, fold)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"cannot write to '{self._table.name}': {error} Nothing was written.",
                **error.context | {"table": self._table.name},
            ) from error

    def _fold(self, groups: Groups, fold: Fold) -> Folded | None:
        """Return the groups merged, at a cost that goes with their rows and not with all that were flushed."""
        rows, kinds, chooses = self._rows, self._kinds, self._merge.engine.chooses
        if not chooses and 2 * len(groups.positions) < rows.num_rows:
            kinds = None if kinds is None else kinds[groups.positions]
            rows = self._picked.take(groups.positions)
            groups = replace(groups, positions=np.arange(len(groups.positions)))
        folded = fold(rows, groups, kinds, rows.column_names)
        if chooses and folded is not None and folded.positions is not None:  # they are positions in `rows`
            return replace(folded, rows=self._picked.take(folded.positions), positions=None)
        return folded


def _both(one: Callable[[Sequence[DataFile]], None], other: Callable[[Sequence[DataFile]], None]) -> (
    Callable[[Sequence[DataFile]], None]
):  # fmt: skip
    def take(files: Sequence[DataFile]) -> None:
        one(files)
        other(files)

    return take


def _both_ways(groups: Groups) -> Groups | None:
    """Return the groups that add and retract; None: there are none."""
    if groups.additions is None:
        return None
    both = any_of(groups.additions, groups.starts) & any_of(~groups.additions, groups.starts)
    return selected(groups, both) if both.any() else None
