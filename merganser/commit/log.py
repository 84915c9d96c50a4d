"""Interface between a commit and the log of its table.

    check     before a write: raise an error if the log cannot be written
    prepare   before the snapshot is created: make its changes durable in the log, not yet visible
    publish   after the snapshot was created: make its changes visible
    drop      after a failure, or if the outcome is unknown: the prepared changes never become visible

The files decide. If a process stops between the creation of the snapshot and `publish`, the log lacks the snapshot. The
next `prepare` or `publish` of the table, in any process, first sends the snapshots that the log lacks.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final, Protocol

from merganser.meta.refs import MAIN
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env

_HOMES: Final[Mapping[str, str]] = {"kafka": "merganser.log.commit_log"}
"""Module with the function `log_of`, by log system. Found by name, since it reads files and lies in a layer above."""


class CommitLog(Protocol):
    """The log during one commit."""

    def check(self) -> None:
        """Raise an error if the log cannot be written.

        Raises:
            MerganserError: the log cannot be written; nothing was changed.
        """

    def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
        """Make the changes of a snapshot durable, not yet visible; return the snapshot with its end offsets.

        Called by each attempt of a commit. Data files and manifest lists of the snapshot are durable.

        Args:
            previous: the snapshot before it. None for the first snapshot.

        Raises:
            MerganserError: the log could not be written; nothing is committed.
        """

    def publish(self, snapshot: Snapshot | None) -> None:
        """Make the changes visible.

        Args:
            snapshot: the snapshot of the commit. None if it has expired.

        Raises:
            MerganserError: the log lacks the snapshot until the next commit.
        """

    def drop(self) -> None:
        """Abort what was prepared and not published. Raises nothing."""


class _NoLog:
    def check(self) -> None:
        pass

    def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
        return snapshot

    def publish(self, snapshot: Snapshot | None) -> None:
        pass

    def drop(self) -> None:
        pass


NO_LOG: Final[CommitLog] = _NoLog()


def log_of(table: TableDef, env: Env) -> CommitLog:
    """Return the log for one commit to a table. Branches have no log."""
    system = table.options.get(w.LOG_SYSTEM)
    if system == "none" or table.branch != MAIN:
        return NO_LOG
    found: CommitLog = importlib.import_module(_HOMES[system]).log_of(table, env)
    return found
