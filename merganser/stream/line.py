"""Line: the snapshots of a table one after the other, as a reader that goes on from a position finds them.

A reader notices when snapshots that it has not read have expired, and when the table was rolled back behind what it has
read: then another history goes on under the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from merganser.errors import ConflictError, ExpiredError, FormatError, NotFoundError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.erased import KINDER_ERASURE, erasure_of
from merganser.meta.followed import as_of, check_not_replaced
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.rules.facts import listed
from merganser.scan.overwrites import is_replaced
from merganser.scan.scan import check_is_there
from merganser.scan.source import takes_rows
from merganser.storage.env import Env
from merganser.stream.starts import oldest_changes
from merganser.values import dataclass

_PROBE_EVERY: Final = 16
"""Among so many looks at the hint there is one at the next snapshot itself: a writer may have died before the hint."""

_LAST_EVERY: Final = 8
"""Of this number of looks, one reads the last snapshot again: a rollback and new commits may have replaced it."""


def check_columns_stay(table: TableDef, env: Env, snapshot: Snapshot, action: str) -> None:
    """Refuse a snapshot with other columns than a stream has, if the stream is to end there.

    Args:
        action: beginning of the message, such as "cannot follow 'db.orders'".

    Raises:
        ConflictError: names the columns that differ; nothing of the snapshot was handed over.
    """
    schema = table.schema
    if snapshot.schema_id <= schema.id or table.options.get(r.STREAM_SCHEMA_CHANGES) == "follow":
        return
    there = as_of(table, env, snapshot.schema_id).schema
    if there.fields == schema.fields:
        return
    known = {field.id: field for field in schema.fields}
    new = [field.name for field in there.fields if known.pop(field.id, None) != field]
    gone = [field.name for field in known.values()]
    told = [f"{what} {listed(names)}" for what, names in (("new or other are", new), ("gone are", gone)) if names]
    raise ConflictError(
        f"{action}: with snapshot {snapshot.id} the table has other columns (schema {there.id}): "
        f"{'; '.join(told) or 'they have another order'}. '{r.STREAM_SCHEMA_CHANGES.key}' = 'end' ends the stream "
        f"here. Nothing of snapshot {snapshot.id} was handed over. Open the table again, and go on from this snapshot.",
        table=table.name,
        snapshot=snapshot.id,
    )


@dataclass(frozen=True, slots=True)
class Needed:
    """What rows of a batch are read from, which says whether a missing file has expired.

    Attributes:
        state: the snapshot whose rows are in the batch; None: it has changes alone.
        numbers: the snapshots whose changes are in the batch.
    """

    table: TableDef
    env: Env
    state: int | None
    numbers: range

    @contextmanager
    def unless_expired(self) -> Iterator[None]:
        """Say that snapshots have expired, where that is why one of their files is missing.

        Raises:
            ExpiredError: they were removed while they were read.
            ConflictError: the table was rolled back behind them.
        """
        try:
            yield
        except FormatError as error:
            if isinstance(error.__cause__, NotFoundError):
                self._check_kept()
            raise

    def _check_kept(self) -> None:
        store = SnapshotStore(self.table.paths, self.env, self.table.name)
        line = Line(self.table, self.env, self.table.options.get(r.CONSUMER_ID), reset=True)
        if self.state is not None:
            store.load(self.state)
        for number in self.numbers:
            snapshot = line.kept(number)
            compares = is_replaced(self.table, snapshot) or self.table.options.get(r.STREAMING_READ_OVERWRITE)
            if compares and number > 1 and takes_rows(self.table, snapshot, line.there(number - 1)):
                store.load(number - 1)


class Line:
    """The snapshots of a table after those that a reader has read.

    Args:
        consumer: the name of the reader, if it has one.
        reset: an engine keeps the position of the reader, and `ms.reset_stream` changes it.

    Attributes:
        last: the snapshot that was read last; None: none, or it is not known.
    """

    def __init__(self, table: TableDef, env: Env, consumer: str | None, *, reset: bool = False) -> None:
        self.last: Snapshot | None = None
        self._table = table
        self._env = env
        self._consumer = consumer
        self._reset = reset
        self._store = SnapshotStore(table.paths, env, table.name)
        self._looks = 0

    def get(self, number: int, *, waits: bool) -> Snapshot | None:
        """Return the snapshot that comes after what was read, if it is there.

        Args:
            number: its id.
            waits: the caller will ask again: most looks may be at the hint alone.

        Raises:
            ExpiredError: it has expired; says how many have.
            ConflictError: the table was rolled back behind what was read.
            NotFoundError: the table was dropped.
        """
        self._looks += 1
        newest = self._store.latest_hint()
        if newest is not None and newest < number and self._looks % _PROBE_EVERY and waits:
            self._check_end(newest, thorough=not self._looks % _LAST_EVERY)
            return None
        found = self.there(number)
        if found is not None:
            self.check_unbroken()
            return found
        latest = self._store.latest_id()
        if latest is not None and latest >= number:
            earliest = oldest_changes(self._table, self._env) or latest
            if earliest > number:
                raise self._expired(number, earliest)
            if self.there(number) is None:  # there are older changes, and later ones
                raise self._expired(number, self._next_kept(number))
        if latest is None:
            check_is_there(self._table, self._env, None, f"cannot follow '{self._table.name}'")
        else:
            self._check_end(latest, thorough=True)
        return None

    def there(self, number: int) -> Snapshot | None:
        """Return a snapshot, or its changelog if it has expired; None if nothing of it is there."""
        found = self._store.get(number)
        if found is None and (kept := ChangelogStore(self._table.paths, self._env).get(number)) is not None:
            hint = self._store.latest_hint()
            if hint is None or hint < number:
                hint = self._store.latest_id() or 0
            found = kept if hint >= number else None  # else a rollback overtook the expiry that wrote it
        return found

    def kept(self, number: int) -> Snapshot:
        """Return a snapshot that is there, or whose changelog is.

        Raises:
            ExpiredError: it has expired; says how many have.
            ConflictError: the table was rolled back behind it.
        """
        found = self.there(number)
        if found is None:
            if number > (self._store.latest_id() or 0):
                raise self.rolled_back(number)
            raise self._expired(number, oldest_changes(self._table, self._env) or number)
        return found

    def check_unbroken(self) -> None:
        """Refuse to go on in another history: the snapshot that was read last has to be there still, or expired.

        Raises:
            ConflictError: it is not.
        """
        last = self.last
        if last is None:
            return
        now = self.there(last.id)
        if now is None:
            self._check_not_rolled_back(self._store.latest_id() or 0)
        elif not same_snapshot(now, last):
            raise self.rolled_back(last.id)

    def rolled_back(self, number: int) -> ConflictError:
        """Return the error that the table was rolled back behind a snapshot that was read.

        Raises:
            ConflictError: the table was dropped and re-created.
        """
        check_not_replaced(self._table, self._env, f"cannot follow '{self._table.name}'")
        if self._reset:
            todo = (
                "Keep the checkpoint, and stop the query. Call ms.reset_stream(spark, checkpoint, "
                f"'{self._table.path}', table=...) with the table that the query writes: it says to which snapshot "
                "that table has to be rolled back, and then makes the query go on from there"
            )
        else:
            todo = (
                "Undo what came from the snapshots that were removed, and start again from 'latest-full'"
                f"{self._without_consumer}"
            )
        return ConflictError(
            f"cannot follow '{self._table.name}': the table was rolled back behind snapshot {number}, which "
            f"this reader has handed over already. {todo}.",
            table=self._table.name,
            snapshot=number,
        )

    def _expired(self, number: int, earliest: int) -> ExpiredError:
        name = f" of consumer '{self._consumer}'" if self._consumer is not None else ""
        if self._reset:
            drop = ""
            if self._consumer is not None:
                drop = f" call consumers.drop('{self._consumer}') of '{self._table.name}',"
            todo = (
                f"Empty the table that the query writes,{drop} and start the query with a new checkpoint. To do "
                f"without these changes, stop the query and call ms.reset_stream(spark, checkpoint, "
                f"'{self._table.path}', start={earliest - 1})"
            )
        else:
            todo = (
                f"Read the table again from 'latest-full'{self._without_consumer}, or go on at 'from-snapshot' with "
                f"'scan.snapshot-id' = '{earliest}' and do without these changes"
            )
        erasure = erasure_of(self._table.paths, self._env, number)
        if erasure is None:
            why = f"{earliest - number} snapshots have expired that were not read"
            kinder = "A consumer keeps snapshots from expiring; 'changelog.time-retained' keeps changes for longer."
        else:
            why = f"{erasure} ended snapshots that were not read, so the reader may not know which rows are gone"
            kinder = KINDER_ERASURE
        return ExpiredError(
            f"cannot follow '{self._table.name}': the reader{name} would go on with snapshot {number}, and the "
            f"table keeps the changes from snapshot {earliest} on. {why}. Nothing of them was handed over. {todo}. "
            f"{kinder}",
            table=self._table.name,
            snapshot=number,
            earliest=earliest,
        )

    def _next_kept(self, number: int) -> int:
        """Return the first snapshot above one of which the changes are kept."""
        ids = [*self._store.ids(), *ChangelogStore(self._table.paths, self._env).ids()]
        return min((each for each in ids if each > number), default=number + 1)

    @property
    def _without_consumer(self) -> str:
        """What a new start needs besides, since a consumer overrides where a stream starts."""
        return "" if self._consumer is None else f" with '{r.CONSUMER_IGNORE_PROGRESS.key}' = 'true'"

    def _check_end(self, newest: int, *, thorough: bool) -> None:
        """Refuse to wait for more in another history than the one that was read.

        Args:
            newest: id of the newest snapshot.
            thorough: also if it may be as long as the one that was read, which takes a read.
        """
        if thorough and self.last is not None and newest == self.last.id:
            self.check_unbroken()
        else:
            self._check_not_rolled_back(newest)

    def _check_not_rolled_back(self, newest: int) -> None:
        if self.last is not None and newest < self.last.id and self._store.get(self.last.id) is None:
            raise self.rolled_back(self.last.id)
