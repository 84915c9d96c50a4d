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

import pyarrow as pa

from merganser.errors import MerganserError
from merganser.meta.followed import as_of, newest
from merganser.meta.refs import MAIN
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env

_HOMES: Final[Mapping[str, str]] = {"kafka": "merganser.log"}
"""Package with the modules `commit_log` and `uncommitted`, by log system. Found by name, since it reads files and lies
in a layer above."""


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


class UncommittedRows(Protocol):
    """The rows of writes that are not committed yet, which readers of an eventual log see at once.

    They are hints. A row that cannot be sent comes with its commit. A row whose write is never committed goes when the
    write ends, or when readers have waited for it as long as the table says.
    """

    def send(self, write: str, after: int, rows: pa.Table, kinds: pa.Array | None) -> None:
        """Send rows, and do not wait for it. Raises nothing about the log.

        Args:
            write: the name of the write; see `write_names`.
            after: its commit comes after this snapshot.
            rows: in exactly the columns of the table.
            kinds: int8, one per row; None: all are +I.
        """

    def flush(self) -> None:
        """Wait until readers can see what was sent.

        Raises:
            StorageError: the log does not take it. The rows come with their commit.
        """

    def end(self, write: str, *, committed: bool) -> None:
        """Tell readers that a write is committed, or that it never will be. Raises nothing about the log.

        Args:
            write: its name; "": all writes that are not committed.
        """


def write_names(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names under which the rows of a snapshot may have been sent before it: those of its write."""
    named = () if snapshot.uuid is None else (snapshot.uuid,)
    is_single = snapshot.commit_identifier == BATCH_IDENTIFIER
    return named if is_single else (*named, batch_name(snapshot.commit_user, snapshot.commit_identifier))


def batch_name(commit_user: str, identifier: int) -> str:
    """Return the name of a write that tasks know by its committer and number alone."""
    return f"{commit_user} {identifier}"


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


def is_eventual(table: TableDef) -> bool:
    """Return whether readers of the log of a table see rows before their commit."""
    options = table.options
    return table.branch == MAIN and options.get(w.LOG_SYSTEM) != "none" and options.get(w.LOG_CONSISTENCY) == "eventual"


def uncommitted_rows(table: TableDef, env: Env) -> UncommittedRows | None:
    """Return where rows of a table go before their commit. None if they are seen after it."""
    if not is_eventual(table):
        return None
    home = importlib.import_module(f"{_HOMES[table.options.get(w.LOG_SYSTEM)]}.uncommitted")
    found: UncommittedRows = home.uncommitted_of(table, env)
    return found


class _NewestLog:
    """The log that the table has at the commit, whatever it had when its handle was opened."""

    def __init__(self, table: TableDef, env: Env) -> None:
        self._table, self._env = table, env
        self._log = _made(table, env)

    def check(self) -> None:
        try:
            self._log.check()
        except MerganserError:
            now = newest(self._table, self._env)
            if now.schema.id == self._table.schema.id:
                raise
            _made(now, self._env).check()

    def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
        self._log.drop()
        self._log = _made(as_of(self._table, self._env, snapshot.schema_id), self._env)
        return self._log.prepare(snapshot, previous)

    def publish(self, snapshot: Snapshot | None) -> None:
        self._log.publish(snapshot)

    def drop(self) -> None:
        self._log.drop()


def log_of(table: TableDef, env: Env) -> CommitLog:
    """Return the log for one commit to a table, as the newest schema says. Branches have no log."""
    return NO_LOG if table.branch != MAIN else _NewestLog(table, env)


def _made(table: TableDef, env: Env) -> CommitLog:
    system = table.options.get(w.LOG_SYSTEM)
    if system == "none":
        return NO_LOG
    found: CommitLog = importlib.import_module(f"{_HOMES[system]}.commit_log").log_of(table, env)
    return found


def carried_offsets(
    table: TableDef, env: Env, previous: Snapshot | None, schema: TableSchema
) -> Mapping[int, int] | None:
    """Return the log offsets that a snapshot takes over from the one before it.

    They are kept for logs of other engines. Those of a log that has ended would be taken for offsets of the next one.

    Args:
        schema: the one that the snapshot gets.
    """
    if previous is None or previous.log_offsets is None:
        return None
    if previous.schema_id == schema.id:
        return previous.log_offsets
    before = as_of(table, env, previous.schema_id).schema.options
    has_ended = before.get(w.LOG_SYSTEM) != "none" and before.get(w.KAFKA_TOPIC) != schema.options.get(w.KAFKA_TOPIC)
    return None if has_ended else previous.log_offsets
