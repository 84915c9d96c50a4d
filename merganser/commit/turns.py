"""Turns: when a writer may try to commit, so that of many writers each one gets its turn.

Where the store has locks, the writers of a table queue: one has the turn, the others wait, and no attempt is lost. The
lock is advice. The system releases it when a writer dies, and a writer that has waited long enough tries without it.

Other stores have no locks, and other engines ask for none. Then a writer may lose an attempt, and waits before the
next one. These waits are random, and multiples of the time that an attempt takes. Decision 0029 has the measurements.
What is done again without a commit of its own follows `storage.retries` (decision 0081).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeVar

from merganser.errors import ConflictError, ExpiredError, Overtaken
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.storage.protocol import no_lock

R = TypeVar("R")
_FIRST_WINDOW: Final = 4.0
_BUSY_WINDOW: Final = 32.0
_TOOTH: Final = 5
_RETRIES_MAX: Final = 100
_CROWDED: Final = 2
"""So many lost attempts in one commit say that the table is busy."""


_QUEUE_S: Final = 1.0
"""So long a writer waits for the turn: a commit holds it for some hundredths of a second, a large one for longer."""
_FIRST_LOOK_S: Final = 0.004
_LAST_LOOK_S: Final = 0.001

_CAME_BETWEEN: Final = frozenset({Overtaken.ROWS, Overtaken.FILES, Overtaken.BUCKETS})
"""What may be overtaken of rows that are at hand: they can be written after the commit that came between."""

COMPUTED: Final = frozenset({Overtaken.QUERY})
"""The same of rows that a query gave: it has to be run again, too."""
WRITTEN: Final = COMPUTED | _CAME_BETWEEN - {Overtaken.ROWS}
"""The same of such rows that are written as they are."""


class Turn:
    """The turn of a writer to commit to a table, or its decision to try without. Ends once; more calls do nothing.

    Attributes:
        has_queued: it asked for a lock, so others may have committed before it had it. A store without locks gives
            every turn at once.
    """

    def __init__(self, release: Callable[[], None], *, has_queued: bool = False) -> None:
        self._release: Callable[[], None] | None = release
        self.has_queued = has_queued

    def end(self) -> None:
        """Let the next writer try."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def no_turn() -> Turn:
    """Return the turn of a writer that tries without one: others may commit meanwhile."""
    return Turn(no_lock)


def take_turn(table: TableDef, env: Env) -> Turn:
    """Wait until it is this writer's turn, at most `_QUEUE_S`. The caller ends it.

    A writer asks again the sooner the longer it has waited, so the one that has waited longest comes first in most
    cases.
    """
    began = env.seconds()
    while True:
        release = env.storage.try_lock(table.paths.snapshot_directory)
        waited = env.seconds() - began
        if release is not None:
            return Turn(release, has_queued=release is not no_lock)
        if waited >= _QUEUE_S:
            return Turn(no_lock, has_queued=True)
        pause = max(_LAST_LOOK_S, _FIRST_LOOK_S * (1 - waited / _QUEUE_S))
        env.sleep_ms(2 * env.random.random() * pause * 1000)


def rest_if_crowded(table: TableDef, env: Env) -> bool:
    """Wait before a write begins if the last commit of this process lost several attempts.

    A writer that has just committed leaves the table to those that still try. The wait counts from that last commit,
    so a writer that commits seldom does not wait. It comes before the write takes sequence numbers: numbers taken
    before it would be those of others after it.

    Returns:
        Whether it waited.
    """
    ended, attempt_s = env.crowded.pop(table.path, (0.0, 0.0))
    if not attempt_s:
        return False
    since = env.seconds() - ended
    return _sleep(table, env, env.random.random() * attempt_s * _BUSY_WINDOW - since)


class Attempts:
    """The attempts of one commit.

    Attributes:
        lost: attempts that other writers were faster at.
        env: clock, random numbers and waits.
    """

    def __init__(self, table: TableDef, env: Env) -> None:
        self.lost = 0
        self.env = env
        self._table = table
        self._started = env.seconds()
        self._attempt_s = math.inf  # how long the quickest one took

    def wait_for_next(self, begun: float) -> bool:
        """Wait after a lost attempt.

        Args:
            begun: when the attempt began, in seconds of `Env.seconds`.

        Returns:
            Whether there is another attempt. None begins after `commit.timeout`. None begins after
            `commit.max-retries`, once so many waits from `commit.min-retry-wait` on, each twice as long as the one
            before, would have ended: at most `commit.max-retry-wait`, which is 10 s for tables without options.
        """
        now = self.env.seconds()
        self.lost += 1
        self._attempt_s = min(self._attempt_s, now - begun)
        options = self._table.options
        retries, timeout = options.get(w.COMMIT_MAX_RETRIES), options.get(w.COMMIT_TIMEOUT)
        shortest = options.get(w.COMMIT_MIN_RETRY_WAIT).total_seconds()
        patience = min(_longest_s(self._table), shortest * (2.0 ** min(retries, _RETRIES_MAX) - 1))
        tried = now - self._started
        if (timeout is not None and tried >= timeout.total_seconds()) or (self.lost > retries and tried >= patience):
            return False
        wait = self.env.random.random() * self._attempt_s * _window(self.lost)
        wait = max(shortest * (1 + 0.2 * self.env.random.random()), wait)
        _sleep(self._table, self.env, wait if timeout is None else min(wait, timeout.total_seconds() - tried))
        return True

    def end(self) -> None:
        """Note whether the commit met many others."""
        if self.lost >= _CROWDED:
            self.env.crowded[self._table.path] = self.env.seconds(), self._attempt_s


def in_rounds(
    table: TableDef,
    env: Env,
    round_: Callable[[bool], R],
    abort: Callable[[], None],
    lost: frozenset[Overtaken] = _CAME_BETWEEN,
) -> R:
    """Return the result of the first round that nothing has come between.

    Args:
        round_: reads, writes and commits; it is told whether it is the first one.
        abort: removes what a round wrote that has not committed. The next round takes the number of buckets that the
            table has then.
        lost: what may have been overtaken, if another round is to be tried.

    Raises:
        ConflictError: other commits came between again and again, until `commit.max-retries` or `commit.timeout`; or
            the commit failed for another reason.
        ExpiredError: the same, of snapshots that expired while a round read them.
    """
    turns = Attempts(table, env)
    try:
        while True:
            begun = env.seconds()
            try:
                return round_(not turns.lost)
            except (ConflictError, ExpiredError) as error:
                abort()
                overtaken = error.overtaken if isinstance(error, ConflictError) else Overtaken.ROWS
                if overtaken not in lost or not turns.wait_for_next(begun):
                    raise
    finally:
        turns.end()


def _longest_s(table: TableDef) -> float:
    return table.options.get(w.COMMIT_MAX_RETRY_WAIT).total_seconds()


def _sleep(table: TableDef, env: Env, wait_s: float) -> bool:
    if wait_s > 0:
        env.sleep_ms(min(_longest_s(table), wait_s) * 1000)
    return wait_s > 0


def _window(lost: int) -> float:
    """Return the longest wait after some lost attempts, in attempts.

    One collision is bad luck: 4. After the second the table is busy: 32, 16, 8, 4, 2, so the writer that has waited
    longest comes first. Then it begins again with 32, so that no writer waits for long.
    """
    if lost == 1:
        return _FIRST_WINDOW
    return _BUSY_WINDOW / 2.0 ** ((lost - 2) % _TOOTH)
