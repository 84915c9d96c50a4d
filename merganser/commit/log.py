"""The log of a table, as a commit sees it: what a snapshot publishes goes there, and shows when the snapshot stands.

    check     a write begins: the log can be written, or the write is refused
    prepare   the snapshot is about to be created; its changes are durable in the log, and nobody sees them
    publish   the snapshot stands: its changes are to be seen
    drop      it was not created, or nobody knows: nothing of what was prepared is ever seen

The files are the truth. If a process stops between the snapshot and `publish`, the log lacks the snapshot; the next
`prepare` or `publish` of the table, in any process, first gives the log what snapshots hold and it lacks.
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
"""By log system, the module whose `log_of` gives the log of a table. It reads files, so it lies above commits."""


class CommitLog(Protocol):
    """The log during one commit."""

    def check(self) -> None:
        """Refuse to write if the log cannot be written.

        Raises:
            MerganserError: it cannot; nothing was written.
        """

    def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
        """Make the changes of a snapshot durable, not yet visible, and return it with the offsets behind them.

        Each attempt of a commit calls it, with its own snapshot. Its data files and lists of manifests are durable.

        Args:
            previous: the snapshot that it follows.

        Raises:
            MerganserError: they could not be; nothing is committed.
        """

    def publish(self, snapshot: Snapshot | None) -> None:
        """Let readers see the changes.

        Args:
            snapshot: the one that the commit made; None: it is not kept any more.

        Raises:
            MerganserError: the log lacks them for now.
        """

    def drop(self) -> None:
        """Forget what was prepared and not published. It raises nothing."""


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
    """Return the log of one commit to a table. Branches have none: their commits are no changes of the table."""
    system = table.options.get(w.LOG_SYSTEM)
    if system == "none" or table.branch != MAIN:
        return NO_LOG
    found: CommitLog = importlib.import_module(_HOMES[system]).log_of(table, env)
    return found
