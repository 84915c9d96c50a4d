"""Wait of a stream for the next snapshot. If the table has a log, the log delivers the rows of the snapshot.

The log only saves time, since the files hold every snapshot. A stream still checks the files once per discovery
interval. It reads from the files what the log does not have: snapshots from before it subscribed, the changes of
overwrites, and everything while the broker does not answer. It also reads large commits from the files, which are
faster than records, and commits whose rows have other columns than the reader.

    wait    for readers of one process: returns when the log tells of the next commit, or when the files need a check
    heard   for engines, which ask again and again: returns at once
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from merganser.errors import MerganserError
from merganser.meta.followed import as_of
from merganser.meta.refs import MAIN
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.rules.compacting import publishes_by_compaction
from merganser.storage.env import Env

if TYPE_CHECKING:
    from merganser.log.tail import LogCommit, LogTail
    from merganser.log.uncommitted import FlushedRows

LOG_BYTES_MAX: Final = 4 << 20
"""Maximum bytes of records that a reader takes from the log at once. Above it files are faster: they are read as
columns and by many tasks, while records go through one process."""
_POLL_S: Final = 0.5
_RETRY_S: Final = 1.0
"""Maximum seconds before a stream subscribes again after an error, such as that of a new topic without leader."""

_log = logging.getLogger(__name__)


class Waiting:
    """Wait for the next snapshot of a table.

    Args:
        table: the table, whose options say where its log is.
        listens: whether the reader takes rows from the log, if the table has one.
        exact: take a commit from the log only if its rows are those of the files. Otherwise rows of kind -U may be
            missing, and those of kind -D may have the key alone: enough for readers that keep the last row of each key.
        since_ms: the time since which rows were sent that are not committed and that the reader shows. None: it shows
            committed rows alone.

    Attributes:
        may_be_rolled_back: whether the log reported a rollback since the last check of the files, or was not heard.
    """

    def __init__(
        self, table: TableDef, env: Env, *, listens: bool, exact: bool, since_ms: Callable[[], int] | None = None
    ) -> None:
        self._table = table
        self._env = env
        self._since_ms = since_ms
        self._listens = listens
        self._exact = exact
        self.may_be_rolled_back = False
        self._tail: LogTail | None = None
        self._subscription: _Subscription | None = None
        self._subscribes_at = 0.0
        self._looks_at = 0.0
        self._is_ended = False
        self._has_warned = False

    @property
    def looks(self) -> bool:
        """Whether it is time to check the files."""
        return self._tail is None or self._env.seconds() >= self._looks_at

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot that the log has told of. None if it has not, or is not listened to."""
        mark = None if self._tail is None else self._tail.newest
        return None if mark is None else mark.shown()

    @property
    def has_flushed(self) -> bool:
        """Whether there are rows for `flushed`."""
        return self._tail is not None and self._tail.has_flushed

    def flushed(self) -> list[FlushedRows]:
        """Return the rows that are not committed since the last call; see `LogTail.flushed`."""
        return [] if self._tail is None else self._tail.flushed()

    def look(self) -> None:
        """Let the files be checked next."""
        self._looks_at = 0.0

    def looked(self, interval_ms: float) -> None:
        """Schedule the next check of the files."""
        self._looks_at = self._env.seconds() + interval_ms / 1000
        self.may_be_rolled_back = False

    def altered(self, table: TableDef) -> None:
        """Take note of newer options of the table: it may have got a log, another one, or none."""
        if self._listens and any(
            table.options.get(option) != self._table.options.get(option)
            for option in (w.LOG_SYSTEM, w.KAFKA_TOPIC, w.KAFKA_BOOTSTRAP_SERVERS)
        ):
            self.close()
            self._has_warned = False
        self._table = table

    def wait(self, number: int, interval_ms: float) -> LogCommit | None:
        """Return the next commit from the log. None if it is time to check the files, or `flushed`, or for late rows.

        Args:
            number: id of the next snapshot.
            interval_ms: milliseconds until the next check of the files.
        """
        if not self._has_log:
            self._env.sleep_ms(interval_ms)
            return None
        return self._next(number, interval_ms / 1000)

    def heard(self, number: int) -> LogCommit | None:
        """Return the next commit if the log has told of it. None if it has not, or if it is time to check the files.

        Args:
            number: id of the next snapshot.
        """
        return self._next(number, 0.0) if self._has_log else None

    def listens(self) -> bool:
        """Return whether the log is listened to. If it is not, subscribe, which takes some calls."""
        if self._tail is None and self._has_log:
            self._next(0, 0.0)
        return self._tail is not None

    @property
    def _has_log(self) -> bool:
        return self._listens and self._table.branch == MAIN and self._table.options.get(w.LOG_SYSTEM) != "none"

    def _next(self, number: int, wait_s: float) -> LogCommit | None:
        try:
            if self._tail is None:
                self._subscribe(wait_s)
                return None
            return self._heard(self._tail, number, waits=wait_s > 0)
        except MerganserError as error:
            if not self._has_warned:
                _log.warning("the log of '%s' cannot be read, so its files are: %s", self._table.name, error)
            self._has_warned = True
            self.close()
            self._pause(wait_s)
            return None

    def _subscribe(self, wait_s: float) -> None:
        """Listen to the log if the broker answers within some seconds; it may answer later, too."""
        if self._env.seconds() < self._subscribes_at:
            self._pause(wait_s)
            return
        if self._subscription is None:
            self._subscription = _Subscription(self._table, None if self._since_ms is None else self._since_ms())
        self._tail = self._subscription.tail(wait_s)
        if self._tail is not None:
            self._subscription = None
            self._looks_at, self.may_be_rolled_back = 0.0, True  # what the log told before is not known

    def _pause(self, wait_s: float) -> None:
        if wait_s:
            self._env.sleep_ms(1000 * min(wait_s, _RETRY_S))

    def _heard(self, tail: LogTail, number: int, *, waits: bool) -> LogCommit | None:
        while True:
            # First, since after a rollback the log may have a next commit that does not follow what was read.
            self.may_be_rolled_back |= tail.was_rolled_back()
            found = None if self.may_be_rolled_back else tail.next(number)
            if found is not None and self._takes(found):
                self._has_warned = False
                return found
            if tail.held_bytes > LOG_BYTES_MAX and self._since_ms is None:  # of commits that the files give sooner
                self.close()
                return None
            left = self._looks_at - self._env.seconds()
            if found is not None or self.may_be_rolled_back or tail.lacks(number) or left <= 0:
                self._looks_at = 0.0
                return None
            if tail.has_flushed:
                return None
            if self._is_ended:
                return None
            if not tail.poll(min(_POLL_S, left) if waits else 0.0) and (not waits or self._since_ms is not None):
                return None  # rows may be late

    def _takes(self, commit: LogCommit) -> bool:
        """Return whether the rows of a commit are taken from the log."""
        mark = commit.mark
        if mark.files or (mark.shortened and self._exact) or commit.size_bytes > LOG_BYTES_MAX:
            return False
        told = as_of(self._table, self._env, mark.schema)
        if self._since_ms is not None and publishes_by_compaction(told.options):
            return False  # the commit was before, and the reader has its rows
        return told.schema.fields == self._table.schema.fields

    def close(self) -> None:
        """Close the consumer. A reader that goes on subscribes again."""
        tail, self._tail = self._tail, None
        subscription, self._subscription = self._subscription, None
        self._subscribes_at = self._env.seconds() + _RETRY_S
        if tail is not None:
            tail.close()
        if subscription is not None:
            subscription.drop()

    def end(self) -> None:
        """Let `wait` return soon. Another thread may be in it."""
        self._is_ended = True


class _Subscription:
    """A subscription that a thread makes: a broker that does not answer takes seconds."""

    def __init__(self, table: TableDef, since_ms: int | None) -> None:
        self._found: queue.SimpleQueue[LogTail | Exception] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_dropped = False
        threading.Thread(target=self._make, args=(table, since_ms), daemon=True).start()

    def _make(self, table: TableDef, since_ms: int | None) -> None:
        from merganser.log.tail import LogTail  # noqa: PLC0415 - a client of Kafka, for tables with a log

        found: LogTail | Exception
        try:
            found = LogTail(table, since_ms)
        except Exception as error:
            found = error
        with self._lock:
            if not self._is_dropped:
                self._found.put(found)
                return
        if not isinstance(found, Exception):
            found.close()

    def drop(self) -> None:
        """Close the reader, now or when it is made."""
        with self._lock:
            self._is_dropped = True
        with suppress(queue.Empty):
            found = self._found.get_nowait()
            if not isinstance(found, Exception):
                found.close()

    def tail(self, wait_s: float) -> LogTail | None:
        """Return the reader of the log. None if the broker has not answered after `wait_s` seconds.

        Raises:
            MerganserError: the broker does not answer, or the client is not installed.
        """
        try:
            found = self._found.get(timeout=wait_s) if wait_s else self._found.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found
