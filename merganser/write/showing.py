"""Rows of a write that readers see before its commit: those of tables with 'log.consistency' = 'eventual'.

They are sent as they are given, before they become files, in this process and in tasks. An overwrite shows nothing:
what it replaces is known with its commit. Neither do rows whose changes the table does not track.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from merganser.commit.log import UncommittedRows, uncommitted_rows
from merganser.errors import StorageError
from merganser.merge.groups import Positions
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.buckets import partition_groups
from merganser.write.incoming import Prepared
from merganser.write.target import WriteTarget


def shown_rows(target: WriteTarget, env: Env) -> ShownRows | None:
    """Return what shows rows of a write before its commit. None if nobody sees them before it."""
    log = None if target.overwrites else uncommitted_rows(target.table, env)
    return None if log is None else ShownRows(target, log)


@dataclass(frozen=True)
class ShownRows:
    """Shows rows before their commit."""

    target: WriteTarget
    log: UncommittedRows

    def send(self, write: str, after: int, rows: Prepared) -> None:
        """Send rows, and do not wait for it.

        Args:
            write, after: see `UncommittedRows.send`.
        """
        table, kinds, arrival = rows
        if arrival is not None:
            table, kinds = _taken(table, kinds, np.argsort(arrival, kind="stable"))
        groups = list(partition_groups(self.target.table, table))
        hidden = [at for partition, at in groups if not self.target.publishes(partition)]
        if hidden:
            kept = np.ones(table.num_rows, np.bool_)
            kept[np.concatenate(hidden)] = False
            table, kinds = _taken(table, kinds, np.flatnonzero(kept))
        if table.num_rows:
            self.log.send(write, after, table, kinds)

    def finish(self) -> None:
        """Wait until what was sent has arrived. Rows that have not come with their commit."""
        try:
            self.log.flush()
        except StorageError:
            return


def _taken(rows: pa.Table, kinds: pa.Array | None, at: Positions) -> tuple[pa.Table, pa.Array | None]:
    positions = pa.array(at)
    return rows.take(positions), None if kinds is None else kinds.take(positions)
