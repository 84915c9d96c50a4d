"""Waiting: how a stream that has caught up learns of the next snapshot. With a log it gets its rows at once.

The files hold every snapshot, so the log saves time and nothing else. A stream looks at the files once per discovery
interval all the same, and takes from them what the log does not have: what was shown before the stream listened, the
changes of overwrites, and everything while the broker does not answer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from merganser.errors import MerganserError
from merganser.meta.refs import MAIN
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env

if TYPE_CHECKING:
    from merganser.log.tail import LogCommit, LogTail

_log = logging.getLogger(__name__)
_POLL_S: Final = 0.5
_RETRY_MS: Final = 1000.0
"""Maximum wait before a stream listens again to a log that could not be read, such as that of a new topic."""


class Waiting:
    """Waits for the next snapshot of a table.

    Args:
        listens: the reader takes rows from a log, if the table has one.

    Attributes:
        was_rolled_back: the log told so since the last look at the files.
    """

    def __init__(self, table: TableDef, env: Env, *, listens: bool) -> None:
        self._table = table
        self._env = env
        self._listens = listens and table.branch == MAIN and table.options.get(w.LOG_SYSTEM) != "none"
        complete = table.options.get(w.CHANGELOG_PRODUCER) != "none"
        self._takes_rows = not complete or table.options.get(w.LOG_CHANGELOG_MODE) != "upsert"
        self.was_rolled_back = False
        self._tail: LogTail | None = None
        self._looks_at = 0.0

    @property
    def looks(self) -> bool:
        """Whether it is time to look at the files."""
        return self._tail is None or self._env.seconds() >= self._looks_at

    def looked(self, interval_ms: float) -> None:
        """Look at the files again after an interval."""
        self._looks_at = self._env.seconds() + interval_ms / 1000
        self.was_rolled_back = False

    def wait(self, number: int, interval_ms: float) -> LogCommit | None:
        """Return the next commit from the log; None: it is time to look at the files.

        Args:
            number: the snapshot that comes next.
            interval_ms: until the next look at the files.
        """
        if not self._listens:
            self._env.sleep_ms(interval_ms)
            return None
        try:
            if self._tail is None:
                from merganser.log.tail import LogTail  # noqa: PLC0415 - a client of Kafka, for tables with a log

                self._tail = LogTail(self._table)
                self._looks_at = 0.0  # what was shown before is in the files
                return None
            return self._heard(self._tail, number)
        except MerganserError as error:
            _log.warning("the log of '%s' cannot be read, so its files are: %s", self._table.name, error)
            self.close()
            self._env.sleep_ms(min(interval_ms, _RETRY_MS))
            return None

    def _heard(self, tail: LogTail, number: int) -> LogCommit | None:
        while True:
            found = tail.next(number)
            if found is not None and self._takes_rows and not found.mark.files:
                return found
            self.was_rolled_back |= tail.was_rolled_back()
            left = self._looks_at - self._env.seconds()
            if found is not None or self.was_rolled_back or tail.lacks(number) or left <= 0:
                self._looks_at = 0.0
                return None
            tail.poll(min(_POLL_S, left))

    def close(self) -> None:
        """Stop listening."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.close()
