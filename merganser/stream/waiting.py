"""Wait of a stream for the next snapshot. If the table has a log, the log delivers the rows of the snapshot.

The log only saves time, since the files hold every snapshot. A stream still checks the files once per discovery
interval. It reads from the files what the log does not have: snapshots from before it subscribed, the changes of
overwrites, and everything while the broker does not answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from merganser.errors import MerganserError
from merganser.meta.refs import MAIN
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env

if TYPE_CHECKING:
    from merganser.log.tail import LogCommit, LogTail
    from merganser.log.uncommitted import FlushedRows

_log = logging.getLogger(__name__)
_POLL_S: Final = 0.5
_RETRY_MS: Final = 1000.0
"""Maximum milliseconds before a stream subscribes again after an error, such as that of a new topic without leader."""


class Waiting:
    """Wait for the next snapshot of a table.

    Args:
        listens: whether the reader takes rows from the log, if the table has one.
        since_ms: the time since which rows were sent that are not committed and that the reader shows. None: it shows
            committed rows alone.

    Attributes:
        was_rolled_back: whether the log reported a rollback since the last check of the files.
    """

    def __init__(self, table: TableDef, env: Env, *, listens: bool, since_ms: Callable[[], int] | None = None) -> None:
        self._table = table
        self._env = env
        self._since_ms = since_ms
        self._listens = listens and table.branch == MAIN and table.options.get(w.LOG_SYSTEM) != "none"
        complete = table.options.get(w.CHANGELOG_PRODUCER) != "none"
        self._takes_rows = not complete or table.options.get(w.LOG_CHANGELOG_MODE) != "upsert"
        self.was_rolled_back = False
        self._tail: LogTail | None = None
        self._looks_at = 0.0
        self._has_warned = False

    @property
    def looks(self) -> bool:
        """Whether it is time to check the files."""
        return self._tail is None or self._env.seconds() >= self._looks_at

    def looked(self, interval_ms: float) -> None:
        """Schedule the next check of the files."""
        self._looks_at = self._env.seconds() + interval_ms / 1000
        self.was_rolled_back = False

    @property
    def has_flushed(self) -> bool:
        """Whether there are rows for `flushed`."""
        return self._tail is not None and self._tail.has_flushed

    def flushed(self) -> list[FlushedRows]:
        """Return the rows that are not committed since the last call; see `LogTail.flushed`."""
        return [] if self._tail is None else self._tail.flushed()

    def wait(self, number: int, interval_ms: float) -> LogCommit | None:
        """Return the next commit from the log. None if it is time to check the files, or `flushed`, or for late rows.

        Args:
            number: id of the next snapshot.
            interval_ms: milliseconds until the next check of the files.
        """
        if not self._listens:
            self._env.sleep_ms(interval_ms)
            return None
        try:
            if self._tail is None:
                from merganser.log.tail import LogTail  # noqa: PLC0415 - a client of Kafka, for tables with a log

                self._tail = LogTail(self._table, None if self._since_ms is None else self._since_ms())
                self._looks_at = 0.0  # what was shown before is in the files
                return None
            return self._heard(self._tail, number)
        except MerganserError as error:
            if not self._has_warned:
                _log.warning("the log of '%s' cannot be read, so its files are: %s", self._table.name, error)
            self._has_warned = True
            self.close()
            self._env.sleep_ms(min(interval_ms, _RETRY_MS))
            return None

    def _heard(self, tail: LogTail, number: int) -> LogCommit | None:
        while True:
            found = tail.next(number)
            if found is not None and self._takes_rows and not found.mark.files:
                self._has_warned = False
                return found
            self.was_rolled_back |= tail.was_rolled_back()
            left = self._looks_at - self._env.seconds()
            if found is not None or self.was_rolled_back or tail.lacks(number) or left <= 0:
                self._looks_at = 0.0
                return None
            if tail.has_flushed:
                return None
            if not tail.poll(min(_POLL_S, left)) and self._since_ms is not None:
                return None  # rows may be late

    def close(self) -> None:
        """Close the consumer."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()
