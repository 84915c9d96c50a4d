"""TableBatches: what a table publishes, cut into batches between two positions, for engines that keep the position.

    nowhere --> a state, some splits at a time --> what snapshot n published, some files at a time --> n + 1 --> ...

The rows between two positions are a pure function of the two: an engine that repeats a batch after a crash gets the
same rows. A position says where the stream started, so the first batch is no exception, and when the last snapshot
before it was committed, so that a rollback is noticed.

Semantics: "start modes", "streaming".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, TypeVar

import pyarrow as pa

from merganser.errors import ConflictError, InvalidInputError, NotFoundError
from merganser.expr.predicate import Predicate
from merganser.files.masks import vectors_by_bucket
from merganser.files.read import is_small
from merganser.meta.consumers import ConsumerStore, check_consumer_id, stays_known_ms
from merganser.meta.data_file import ADD, DELETE
from merganser.meta.erased import erasure_of
from merganser.meta.followed import as_of
from merganser.meta.lag import Lag, lag_of
from merganser.meta.snapshot import OVERWRITE, Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import read as r
from merganser.scan.changes import AsChanges, visible
from merganser.scan.forms import WHOLE_CHANGES
from merganser.scan.gaps import gap_of, refusal
from merganser.scan.ordered_splits import are_ordered
from merganser.scan.overwrites import is_replaced, plan_overwrite, replaced_in, why_unknown
from merganser.scan.plan import partition_filter, partitions_through
from merganser.scan.plan_changes import from_changelog, published_files
from merganser.scan.read import key_filter, read_split
from merganser.scan.source import Exchanged, MadeSince, Marked, Published, Source, State, marks_rows
from merganser.scan.split import AnySplit, DiffSplit, Phase, PublishedSplit, ReadJob, Split, What
from merganser.scan.split import Portion as Compared
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.storage.protocol import Storage
from merganser.stream.line import Line, Needed, check_columns_stay
from merganser.stream.logged import Heard, LoggedCommit, LoggedPart, logged_turns
from merganser.stream.starts import start_of
from merganser.stream.waiting import LOG_BYTES_MAX, Waiting
from merganser.values import dataclass

_VERSION: Final = 1
_FILES_TOGETHER: Final = 512
_PLANS_MAX: Final = 256
_EMPTY_MAX: Final = 32
"""A batch without rows passes so many snapshots that published nothing: a position that stays behind could expire."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a reader has come.

    Attributes:
        state: the snapshot of the state that the stream began with; None: it began with changes.
        made_since: of that state only files made since then count, in epoch milliseconds; None: all.
        first: the first snapshot whose changes are read.
        splits: of the state, how many splits were read; None: all, or there is no state.
        of: of how many; None: not known yet.
        next: the snapshot that is read next.
        files: how many portions of it were read: files, or what it published in a shard.
        after_ms: when the snapshot before `next` was committed, which may be that of the state; None: not known.
        part_ms: when `next` was committed, of which a part was read; None: none was, or it is not known.
    """

    state: int | None
    made_since: int | None
    first: int
    splits: int | None
    next: int
    files: int = 0
    after_ms: int | None = None
    of: int | None = None
    part_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the position as plain values, for a checkpoint; see `position_of`."""
        found: dict[str, Any] = {"version": _VERSION}
        if self.state is not None:
            found["state"] = self.state
        if self.made_since is not None:
            found["made_since_ms"] = self.made_since
        if self.splits is not None:
            more = {"of": self.of, "after_ms": self.after_ms}
            return found | {"splits": self.splits} | {key: value for key, value in more.items() if value is not None}
        found |= {"first": self.first, "next": self.next}
        if self.files:
            found["files"] = self.files
        if self.after_ms is not None:
            found["after_ms"] = self.after_ms
        if self.part_ms is not None:
            found["part_ms"] = self.part_ms
        return found


def position_of(value: Mapping[str, Any], name: str) -> Position | None:
    """Return the position that a checkpoint of a stream of the table `name` holds; None: nothing was read yet.

    Raises:
        InvalidInputError: it is no such position.
    """
    known = {"version", "state", "made_since_ms", "splits", "first", "next", "files", "after_ms", "of", "part_ms"}
    whole = all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in value.values())
    if value == {"version": _VERSION}:
        return None
    if value.get("version") == _VERSION and whole and value.keys() <= known:
        state = value.get("state")
        if state is not None and "splits" in value:
            since, of = value.get("made_since_ms"), value.get("of")
            after = value.get("after_ms")
            return Position(state, since, state + 1, value["splits"], state + 1, after_ms=after, of=of)
        if "first" in value and "next" in value and "splits" not in value:
            return Position(
                state,
                value.get("made_since_ms"),
                value["first"],
                None,
                value["next"],
                value.get("files", 0),
                value.get("after_ms"),
                part_ms=value.get("part_ms"),
            )
    raise InvalidInputError(
        f"cannot follow '{name}': the checkpoint holds the offset {dict(value)!r:.200}, which is none of this version "
        f"of merganser. Nothing was read. Use the version that wrote the checkpoint, or start with a new one."
    )


NOWHERE: Final[dict[str, Any]] = {"version": _VERSION}
"""The position before the first batch."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a batch may have; None: no limit. At least one file is read, however large it is.

    Attributes:
        files, rows, size_bytes: most of each.
        min_rows: less than that waits for more,
        max_delay: but not longer than this.
    """

    files: int | None = None
    rows: int | None = None
    size_bytes: int | None = None
    min_rows: int | None = None
    max_delay: timedelta | None = None

    def allow(self, files: int, rows: int, size_bytes: int) -> bool:
        """Return whether a batch may have so much."""
        return (
            (self.files is None or files <= self.files)
            and (self.rows is None or rows <= self.rows)
            and (self.size_bytes is None or size_bytes <= self.size_bytes)
        )


UNLIMITED: Final = Limits()


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a batch.

    Attributes:
        place: parts of one place are read one after the other; "" if no order counts.
        job: how the split is read.
        split: what is read; None: nothing of it passes the filter.
        form: of rows of a state, how they are shown; None: they are changes already.
        directory: the directory of the bucket.
        buckets: over how many buckets the keys of the partition are spread, as its files say it; 0: it does not count.
    """

    place: str
    job: ReadJob
    split: AnySplit | None
    form: AsChanges | None = None
    directory: str = ""
    buckets: int = 0

    @property
    def partition(self) -> str:
        """The directory of the partition."""
        return self.directory.rpartition("/")[0]

    @property
    def files(self) -> int:
        """Number of its files."""
        return 0 if self.split is None else len(self.split.files)

    @property
    def rows(self) -> int:
        """Stored rows."""
        return 0 if self.split is None else self.split.rows

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return 0 if self.split is None else self.split.size_bytes

    def read(self, storage: Storage) -> Iterator[pa.Table]:
        """Yield its rows, in order."""
        if self.split is not None:
            for rows in read_split(self.job, self.split, storage):
                yield rows if self.form is None else self.form.shown(rows)


Turn = tuple[Part, ...] | tuple[LoggedPart, ...]
"""Parts that are read one after the other."""

_ANY_BUCKET: Final = "any"
"""The place of parts whose order counts, whatever bucket they are of."""


class Portion(Protocol):
    """What a batch takes as a whole or leaves to the next one."""

    @property
    def files(self) -> int:
        """Number of files."""
        ...

    @property
    def rows(self) -> int:
        """Stored rows."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        ...


_P = TypeVar("_P", bound=Portion, contravariant=True)


class Room(Generic[_P]):
    """What is left of a batch."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.files = self.rows = self._size_bytes = 0

    def takes(self, portion: _P) -> bool:
        """Return whether there is room, and take it if there is."""
        files, rows = self.files + portion.files, self.rows + portion.rows
        size_bytes = self._size_bytes + portion.size_bytes
        if self.files and not self._limits.allow(files, rows, size_bytes):
            return False
        self.files, self.rows, self._size_bytes = files, rows, size_bytes
        return True


def check_batches(table: TableDef, action: str) -> None:
    """Refuse options that batches do not have, and a consumer without a name.

    Raises:
        InvalidInputError: names the option. Nothing was read.
    """
    if table.options.get(r.CHANGE_TRACKING_GAPS) == "mark":
        raise InvalidInputError(
            f"{action}: '{r.CHANGE_TRACKING_GAPS.key}' is 'mark', and a DataFrame holds rows alone. Nothing was read. "
            "Choose 'error' or 'skip', or follow the table with Table.stream.",
            option=r.CHANGE_TRACKING_GAPS.key,
        )
    consumer = table.options.get(r.CONSUMER_ID)
    if consumer is not None:
        check_consumer_id(consumer, what=action)


class TableBatches:
    """Batches of what a table publishes.

    Args:
        table: the table; its options say where to start.
        what: the form of the changes; MERGED: the rows that came, without kinds and without what they replaced.
        columns: to return, of the form.
        where: rows to return; None: all.
        limits: how much a batch may have.
        by_bucket: rows are read bucket by bucket, also where keys move between these.
        listens: take rows from the log of the table, if it has one and the form of the changes is there.

    Raises:
        InvalidInputError: an option that a stream does not have.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        *,
        what: What,
        columns: tuple[t.Field, ...],
        where: Predicate | None,
        limits: Limits = UNLIMITED,
        by_bucket: bool = False,
        listens: bool = False,
    ) -> None:
        self._action = f"cannot follow '{table.name}'"
        check_batches(table, self._action)
        self._gaps = table.options.get(r.CHANGE_TRACKING_GAPS)
        self._table = replace(table, options=table.options.merged({r.CHANGE_TRACKING_GAPS.key: "skip"}))
        self._env = env
        self._what = what
        self._columns = columns
        self._where = where
        self._limits = limits
        self._by_bucket = by_bucket
        self._consumer = table.options.get(r.CONSUMER_ID)
        self._consumers = ConsumerStore(table.paths, env, table.name)
        self._store = SnapshotStore(table.paths, env, table.name)
        self._line = Line(self._table, env, self._consumer, reset=True)
        self._states: dict[tuple[int, int | None], tuple[Part, ...]] = {}
        self._plans: dict[int, list[Part]] = {}
        self._taken: dict[int, list[Part]] = {}
        self._snapshots: dict[int, Snapshot] = {}
        # The rows of a batch are those of its positions, whoever reads them: so the log has to say what the files say.
        exact = what is not What.MERGED
        plain = what in (What.CHANGED, What.MERGED) and table.options.get(r.STREAMING_READ_SNAPSHOT_DELAY) is None
        self._log = Waiting(self._table, env, listens=listens and plain and not by_bucket, exact=exact)
        self._heard = Heard()
        self._options_of = table.schema.id
        self._waiting_since: float | None = None
        self._kept: int | None = None
        self._kept_ms = 0

    def position(self, value: Mapping[str, Any]) -> Position | None:
        """Return the position that a checkpoint holds; None: nothing was read yet.

        Raises:
            InvalidInputError: it is no such position.
        """
        return position_of(value, self._table.name)

    def value(self, position: Position) -> dict[str, Any]:
        """Return what a checkpoint holds of a position."""
        return position.to_json()

    def start(self) -> Position:
        """Return the position before all rows, as the options and the consumer say now.

        Raises:
            NotFoundError, ExpiredError: there is no such start, or no longer.
        """
        if self._consumer is not None and not self._table.options.get(r.CONSUMER_IGNORE_PROGRESS):
            position = self._consumers.start(self._consumer)
            if position is not None:
                return self._at(Position(None, None, max(1, position), None, max(1, position)))
        found = start_of(self._table, self._env, self._what, self._action)
        if found.state is None:
            return self._at(Position(None, None, found.next, None, found.next))
        assert found.state.snapshot is not None
        since = found.state.millis if isinstance(found.state, MadeSince) else None
        return self._at(Position(found.state.snapshot.id, since, found.next, 0, found.next))

    def after(self, snapshot: int) -> Position:
        """Return the position behind what a snapshot published; 0: before all snapshots.

        Raises:
            NotFoundError, ExpiredError: there is no such snapshot, or the changes after it are no longer kept.
        """
        if not 0 <= snapshot <= self.head():
            raise NotFoundError(
                f"{self._action}: there is no snapshot {snapshot}. The newest one is {self.head()}. Nothing was "
                "changed.",
                table=self._table.name,
                snapshot=snapshot,
            )
        position = self._at(Position(None, None, snapshot + 1, None, snapshot + 1))
        self.check(position)
        return position

    def before(self, position: Position) -> Position:
        """Return where the stream began that has come to a position.

        The newest state stands for the state that the stream began with. A start that a rollback removed is the end of
        the table.
        """
        newest = self._store.latest()
        behind = 1 if newest is None else newest.id + 1
        if position.state is None or newest is None:
            first = min(position.first, behind)
            return self._at(Position(None, None, first, None, first))
        return self._at(Position(newest.id, position.made_since, behind, 0, behind))

    def check(self, position: Position) -> None:
        """Refuse a position from which the table cannot be followed.

        Raises:
            ConflictError: the table was rolled back behind the position.
            NotFoundError, ExpiredError: what comes next is no longer kept.
        """
        self._note_last(position)
        if position.next > self.head() + 1:
            raise self._line.rolled_back(position.next - 1)
        if position.splits is not None:
            assert position.state is not None
            self._store.load(position.state)
        else:
            self._line.get(position.next, waits=False)

    def head(self) -> int:
        """Return the newest snapshot; 0: there is none."""
        return self._store.latest_id() or 0

    def listens(self) -> bool:
        """Return whether the log of the table tells of the next commit."""
        return self._log.listens()

    @property
    def hears(self) -> bool:
        """Whether the log is asked next, which costs no request to the store, and not the files."""
        return not self._log.looks

    @property
    def heard(self) -> int:
        """Number of snapshots whose changes batches have taken from the log."""
        return self._heard.count

    def close(self) -> None:
        """Stop listening to the log."""
        self._log.close()

    def advance(self, start: Position, *, limited: bool = True, head: int | None = None) -> Position:
        """Return how far the next batch goes; `start` itself: there is nothing to read yet.

        Args:
            start: where the batch begins.
            limited: whether the limits count.
            head: the last snapshot to read, for which no batch waits for more rows; None: the newest.

        Raises:
            ExpiredError: snapshots that were not read yet have expired; says how many.
            ConflictError: the table was rolled back behind what was read.
            NotFoundError: the table was dropped.
            UntrackedError: a commit published no changes.
            FormatError: metadata is damaged or missing.
        """
        room = self._room(self._limits if limited else UNLIMITED)
        if start.splits is not None:
            return self._through_state(start, room)
        self._heard.pass_by(start.next)
        at = self._through_log(start, room, limited=limited) if head is None and not start.files else None
        if at is None:
            self._note_last(start)
            last = self._line.last
            at = self._through_changes(start, room, head)
            if not room.files:  # `start` is returned, unless it passes many snapshots
                self._line.last = last
        least = self._limits.min_rows
        if limited and head is None and least is not None and at != start and room.rows < least and self._waits():
            return start
        if not room.files and at.next > start.next and not self._passes(start, at):
            return start  # nothing was published: no batch is worth its cost yet
        if at != start:
            self._waiting_since = None
        return at

    def needed(self, start: Position | None, end: Position) -> Needed:
        """Return what the rows between two positions are read from; start is as for `turns`."""
        if start is None or start.splits is not None:
            state, first = end.state, end.first
        else:
            state, first = None, start.next
        last = end.next + bool(end.files) if end.splits is None else 0
        return Needed(self._table, self._env, state, range(first, last))

    def turns(self, start: Position | None, end: Position) -> tuple[Turn, ...]:
        """Return what lies between two positions. Rows of a bucket lie in one turn, in their order.

        If keys may have moved between the buckets of a partition, since their number changed or rows were replaced, its
        rows lie in one turn. If keys may have moved between partitions, all rows do.

        Args:
            start: where the rows begin; None: before all.

        Raises:
            ExpiredError: snapshots of the batch have expired.
            FormatError: metadata is damaged or missing.
        """
        with self.needed(start, end).unless_expired():
            return self._turns_between(start, end)

    def _turns_between(self, start: Position | None, end: Position) -> tuple[Turn, ...]:
        found: list[Part] = []
        begins = start is None or start.splits is not None
        if start is not None and not (begins or start.files or end.files):
            logged = self._heard.between(start.next, end.next)
            if logged is not None:
                return logged_turns(logged, self._table, self._what, self._columns, self._where)
        anew: set[str] = set()
        if begins and end.state is not None:
            found += self._state_parts(end)[0 if start is None else start.splits : end.splits]
        if end.splits is None:
            found += self._between(None if begins else start, end)
            anew = {part.partition for part in found if len({one.directory for one in _compared(part.split)}) > 1}
            if self._table.assigns_keys:
                first = end.first if start is None or begins else start.next
                assigned = self._assigned_anew(range(first, end.next + bool(end.files)))
                anew |= {part.partition for part in found} if assigned is None else assigned
        return _turns(self._table, found, anew)

    def _assigned_anew(self, numbers: range) -> set[str] | None:
        """Return the directories of partitions whose keys may have got other buckets in some snapshots; None: all."""
        found = set[bytes]()
        for number in numbers:
            snapshot = self._planned(number)
            if snapshot.commit_kind == OVERWRITE:
                replaced = replaced_in(self._table, self._env, snapshot)
                if replaced is None:
                    return None
                found |= replaced
        return {self._table.partition_directory(partition) for partition in found}

    def keep(self, position: Position) -> None:
        """Take note that all before a position was handed over for good: the consumer, if there is one, moves on.

        Raises:
            ConflictError: the table was rolled back behind the position; the consumer stays where that has moved it.
        """
        if self._consumer is None or position.splits is not None:
            return
        now = self._env.now_ms()
        if self._kept == position.next and now - self._kept_ms <= stays_known_ms(self._table.options):
            return
        if self._kept is None and erasure_of(self._table.paths, self._env, position.next) is not None:
            return  # the reader missed an erasure: the note that it ended the consumer stays until somebody decides
        self._note_last(position)
        self._line.check_unbroken()
        write = self._consumers.begin if self._kept is None else self._consumers.set
        write(self._consumer, position.next)
        self._kept, self._kept_ms = position.next, now

    def lag(self, position: Position) -> Lag:
        """Return how far a position is behind the table. A snapshot that was read in part counts as not read."""
        unread = position.next if position.splits is None else position.state
        assert unread is not None
        newest = self._log.newest
        if newest is None or newest.id < unread - 1:
            newest = self._store.latest()
        return lag_of(self._store, unread, newest)

    def _passes(self, start: Position, end: Position) -> bool:
        """Return whether a batch without rows is worth its cost."""
        return end.next >= start.next + _EMPTY_MAX

    def _room(self, limits: Limits) -> Room[Any]:
        """Return the room of a batch."""
        return Room(limits)

    def _portions(self, number: int) -> Sequence[Any]:
        """Return what a snapshot published, by the smallest portions that a batch takes or leaves, in order."""
        return self.published(number)

    def _between(self, start: Position | None, end: Position) -> Iterator[Any]:
        """Yield the portions of changes between two positions."""
        first, skipped = (end.first, 0) if start is None else (start.next, start.files)
        for number in range(first, end.next + 1):
            if number == end.next and not end.files:
                return
            portions = self._portions(number)
            last = end.files if number == end.next else len(portions)
            if last > len(portions):  # of an overwrite, whose rows before it have expired since
                self._store.load(number - 1)
            yield from portions[skipped if number == first else 0 : last]

    def _at(self, position: Position) -> Position:
        """Return a position with the time of the snapshot before it."""
        before = self._line.there(position.next - 1) if position.next > 1 else None
        return position if before is None else replace(position, after_ms=before.time_millis)

    def _through_state(self, start: Position, room: Room[Any]) -> Position:
        assert start.splits is not None
        self._note_last(start)
        with self.needed(start, start).unless_expired():
            parts = self._state_parts(start)
        taken = start.splits
        while taken < len(parts) and room.takes(parts[taken]):
            taken += 1
        if taken < len(parts):
            return replace(start, splits=taken, of=len(parts))
        return self._at(replace(start, splits=None, of=None))

    def _through_log(self, start: Position, room: Room[Any], *, limited: bool) -> Position | None:
        """Return how far the log tells to go. None if it is time to look at the files."""
        if self._log.looks:
            return None
        limits = self._limits if limited else UNLIMITED
        at, size_bytes = start, 0
        while (commit := self._log.heard(at.next)) is not None:
            snapshot, portion = commit.mark.shown(), LoggedCommit(commit)
            if self._is_behind_the_end(snapshot):
                return at
            if not limits.allow(portion.files, portion.rows, portion.size_bytes):  # files can be taken in part
                self._log.look()
                break
            if (size_bytes and size_bytes + portion.size_bytes > LOG_BYTES_MAX) or not room.takes(portion):
                break
            size_bytes += portion.size_bytes
            self._heard.add(at.next, commit)
            self._line.last = snapshot
            at = replace(at, next=snapshot.id + 1, after_ms=snapshot.time_millis)
        return None if at == start and self._log.looks else at

    def _through_changes(self, start: Position, room: Room[Any], head: int | None) -> Position:
        at = start
        while head is None or at.next <= head:
            snapshot = self._line.get(at.next, waits=True)
            if snapshot is None or self._is_behind_the_end(snapshot):
                self._caught_up()
                break
            self._follow_options(snapshot)
            check_columns_stay(self._table, self._env, snapshot, self._action)
            with self.needed(at, replace(at, files=1)).unless_expired():
                self._refuse_gap(snapshot)
                self._forget_unless_planned(snapshot)
                units = self._portions(at.next)
            taken = at.files
            while taken < len(units) and room.takes(units[taken]):
                taken += 1
            if taken < len(units):
                if not taken:
                    return at
                self._line.last = snapshot
                return replace(at, files=taken, part_ms=snapshot.time_millis)
            self._line.last = snapshot
            at = replace(at, next=at.next + 1, files=0, after_ms=snapshot.time_millis, part_ms=None)
        return at

    def _caught_up(self) -> None:
        """Let the log tell of what comes, if there is one, since the files have no more."""
        if self._log.may_be_rolled_back:
            self._heard.clear()
            self._line.check_unbroken()
        self._log.looked(self._table.options.get(r.CONTINUOUS_DISCOVERY_INTERVAL).total_seconds() * 1000)

    def _follow_options(self, snapshot: Snapshot) -> None:
        """Take note if the table has got a log, or has none any more."""
        if snapshot.schema_id > self._options_of:
            self._options_of = snapshot.schema_id
            self._log.altered(replace(self._table, options=as_of(self._table, self._env, snapshot.schema_id).options))

    def _forget_unless_planned(self, snapshot: Snapshot) -> None:
        """Forget all plans if that of a snapshot was made for another one of its id, which a rollback has removed."""
        known = self._snapshots.get(snapshot.id)
        if known is not None and not same_snapshot(known, snapshot):
            for plans in (self._snapshots, self._plans, self._taken):
                plans.clear()

    def _note_last(self, start: Position) -> None:
        """Find out in which history the reader was: after a restart the position alone knows."""
        number, millis = start.next - 1, start.after_ms
        if start.part_ms is not None:
            number, millis = start.next, start.part_ms
        if self._line.last is not None and self._line.last.id == number:
            return
        self._line.last = None
        if number and millis is not None:
            there = self._line.there(number)
            # One that is not there has expired, or a rollback has removed it and all that came after it.
            above = there is None and number > (self._store.latest_id() or number + 1)
            if above or (there is not None and there.time_millis != millis):
                raise self._line.rolled_back(number)
            self._line.last = there

    def _is_behind_the_end(self, snapshot: Snapshot) -> bool:
        options = self._table.options
        bound, delay = options.get(r.SCAN_BOUNDED_WATERMARK), options.get(r.STREAMING_READ_SNAPSHOT_DELAY)
        if bound is not None and snapshot.watermark is not None and snapshot.watermark > bound:
            return True
        return delay is not None and self._env.now_ms() - snapshot.time_millis < delay.total_seconds() * 1000

    def _waits(self) -> bool:
        """Return whether a small batch waits for more rows."""
        now = self._env.seconds()
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        delay = self._limits.max_delay
        return delay is None or now - self._waiting_since < delay.total_seconds()

    def _refuse_gap(self, snapshot: Snapshot) -> None:
        """Refuse a snapshot that left changes out of partitions of the filter, if gaps are errors.

        Raises:
            UntrackedError: it is one.
        """
        changelog = from_changelog(self._table, Published(snapshot.id, snapshot.id))
        where = None if self._what in WHOLE_CHANGES else self._where
        partitions = gap_of(self._table, self._env, snapshot, where, changelog=changelog)
        if self._gaps == "error" and partitions != frozenset():
            raise refusal(self._table, self._env, self._action, snapshot, partitions, following=True)

    def _state_parts(self, position: Position) -> tuple[Part, ...]:
        """Return the splits of the state that a stream began with, in an order that depends on nothing else."""
        assert position.state is not None
        place = (position.state, position.made_since)
        found = self._states.get(place)
        if found is None:
            snapshot = self._store.load(position.state)
            source = State(snapshot) if position.made_since is None else MadeSince(position.made_since, snapshot)
            parts = self._rows_of(self._table, visible(self._table, source), "+I", ordered=False)
            found = self._states[place] = tuple(parts)
        if position.of is not None and position.of != len(found):
            raise ConflictError(
                f"{self._action}: the reader was in the middle of snapshot {position.state}, and now its filter, or "
                "an option that decides about splits, is another one. Nothing was read. Go on as before until the "
                "state is read, or begin anew.",
                table=self._table.name,
                snapshot=position.state,
            )
        return found

    def published(self, number: int) -> list[Part]:
        """Return what a snapshot published, in order; a batch takes or leaves one file at least.

        Raises:
            ExpiredError: the snapshot has expired, or the one before it, which has the rows that it took away.
        """
        return self.taken(number) + self.added(number)

    def added(self, number: int) -> list[Part]:
        """Return what a snapshot published, without the rows of earlier snapshots that it took away."""
        found = self._plans.get(number)
        if found is None:
            snapshot = self._planned(number)
            if self._compares(snapshot):
                found = []
            elif snapshot.commit_kind == OVERWRITE and self._table.options.get(r.STREAMING_READ_OVERWRITE):
                files = visible(self._table, Exchanged(snapshot, ADD, snapshot))
                found = self._rows_of(self._table, files, "+I", ordered=True, buckets=self._numbers(snapshot))
            else:
                job = ReadJob(self._table, self._columns, self._where, {}, self._what)
                splits = published_files(
                    self._table,
                    self._env,
                    number,
                    columns=self._columns,
                    where=self._where,
                    what=self._what,
                    by_bucket=self._by_bucket,
                )
                found = [
                    Part(self._place(directory), job, split, directory=directory, buckets=total)
                    for directory, total, split in splits
                ]
            self._plans[number] = found
            self._plans.pop(number - _PLANS_MAX, None)
        return found

    def taken(self, number: int) -> list[Part]:
        """Return the rows that a snapshot took away: in files that it removed, or that it marked in files that stay.

        Of an overwrite of a table with a changelog it is all that the overwrite changed. With `by_bucket`, the rows
        that it removed and those that it added are told apart: other shards have them.

        They are read from the files of the snapshot before, so they can be read for as long as that one is there.

        Raises:
            ExpiredError: the snapshot before has expired.
        """
        found = self._taken.get(number)
        if found is None:
            found = self._taken[number] = self._taken_by(self._planned(number))
            self._taken.pop(number - _PLANS_MAX, None)
        elif found and number > 1:
            self._store.load(number - 1)
        return found

    def _planned(self, number: int) -> Snapshot:
        """Return a snapshot whose plan is made, which is looked at once."""
        found = self._snapshots.get(number)
        if found is None:
            found = self._snapshots[number] = self._line.kept(number)
            self._snapshots.pop(number - _PLANS_MAX, None)
        return found

    def _compares(self, snapshot: Snapshot) -> bool:
        """Return whether the states before and after a snapshot are compared."""
        return is_replaced(self._table, snapshot) and not self._by_bucket

    def _replaced(self, snapshot: Snapshot) -> list[Part]:
        """Return what an overwrite changed; which portions there are does not depend on the filter."""
        if why_unknown(self._table, self._env, snapshot) is not None:
            self._refuse_gap(snapshot)
            return []
        every = ReadJob(self._table, self._columns, None, {}, self._what)
        job, splits = plan_overwrite(self._table, self._env, snapshot, every)
        where = None if self._what in WHOLE_CHANGES else self._where
        narrow = key_filter(where, self._table.key) if self._table.keyed else None
        job = replace(job, where=self._where, key_filter=narrow)
        partitions = {portion.partition for split in splits for portion in _compared(split)}
        through = partitions_through(self._table, partitions, partition_filter(self._table, where))
        numbers = self._numbers(snapshot)
        found = []
        for split in splits:
            portion = _compared(split)[0]
            total = numbers.get(split.files[0].name, 0) if split.files else 0
            kept = split if portion.partition in through else None
            found.append(Part(portion.directory, job, kept, directory=portion.directory, buckets=total))
        return found

    def _taken_by(self, snapshot: Snapshot) -> list[Part]:
        if self._compares(snapshot):
            return self._replaced(snapshot)
        if snapshot.id == 1 or self._what is What.MERGED or not self._table.options.get(r.STREAMING_READ_OVERWRITE):
            return []
        reader = MetaReader(self._table.paths, self._env, self._table.name)
        removes = snapshot.commit_kind == OVERWRITE and any(entry.kind == DELETE for entry in reader.delta(snapshot))
        marks = marks_rows(self._table, snapshot, None) and marks_rows(
            self._table, snapshot, self._line.kept(snapshot.id - 1)
        )
        if not removes and not marks:
            return []
        before = self._store.load(snapshot.id - 1)
        found: list[Part] = []
        if removes:
            removed = visible(self._table, Exchanged(snapshot, DELETE, before))
            found = self._rows_of(self._table, removed, "-D", ordered=True, buckets=self._numbers(snapshot))
        return found + self._marked(snapshot, before, reader) if marks else found

    def _marked(self, snapshot: Snapshot, before: Snapshot, reader: MetaReader) -> list[Part]:
        """Return the rows that a commit to a table without a key marked as deleted in files that stay."""
        vectors = vectors_by_bucket(self._table, reader.index(snapshot))
        marked = {name: vector for each in vectors.values() for name, vector in each.by_file.items()}
        found = []
        for part in self._rows_of(self._table, Marked(snapshot, before), "-D", ordered=True):
            assert isinstance(part.split, Split)
            names = [file.name for file in part.split.files]
            split = replace(part.split, marked={name: marked[name] for name in names})
            found.append(replace(part, split=split))
        return found

    def _numbers(self, snapshot: Snapshot) -> dict[str, int]:
        """Return over how many buckets keys are spread, by file that a snapshot added or removed."""
        reader = MetaReader(self._table.paths, self._env, self._table.name)
        return {entry.file.name: entry.total_buckets for entry in reader.delta(snapshot)}

    def _rows_of(
        self, table: TableDef, source: Source, kind: str, *, ordered: bool, buckets: Mapping[str, int] | None = None
    ) -> list[Part]:
        form = AsChanges(self._columns, self._where, self._what, kind)
        plan = form.scan(table, self._env, source).plan()
        splits = [split for split in plan.splits if isinstance(split, Split)]
        splits.sort(key=lambda split: (split.directory, [file.name for file in split.files]))
        numbers = buckets or {}
        return [
            Part(
                self._place(split.directory) if ordered else "",
                plan.job,
                split,
                form,
                split.directory,
                numbers.get(split.files[0].name, 0),
            )
            for split in splits
        ]

    def _place(self, directory: str) -> str:
        """Return where order counts: in a bucket, unless the table says that its rows have none."""
        return directory if self._table.keyed or self._table.schema.bucket_key else ""


def _compared(split: AnySplit | None) -> tuple[Compared, ...]:
    """Return the files of a split of two states, bucket by bucket; none of another split."""
    return (*split.before, *split.after) if isinstance(split, DiffSplit) else ()


def _turns(table: TableDef, every: Sequence[Part], anew: set[str]) -> tuple[Turn, ...]:
    """Return parts place by place; small files that follow each other are read at once.

    Args:
        anew: directories of partitions whose keys may have got other buckets meanwhile.
    """
    parts = [part for part in every if part.split is not None]
    if _may_move(table, parts) or (table.moves_keys and anew):
        parts = [replace(part, place=_ANY_BUCKET) for part in parts]
    else:
        parts = _by_partition(parts, anew)
    places: dict[str, list[Part]] = {}
    turns: list[list[Part]] = []
    for part in parts:
        if not part.place:
            turns.append([part])
            continue
        if part.place not in places:
            places[part.place] = []
            turns.append(places[part.place])
        turn = places[part.place]
        joined = _joined(turn[-1], part) if turn and table.keyed else None
        if joined is None:
            turn.append(part)
        else:
            turn[-1] = joined
    return tuple(tuple(turn) for turn in turns)


def _by_partition(parts: Sequence[Part], anew: set[str]) -> list[Part]:
    """Return parts with the partition as their place where keys may have got other buckets."""
    numbers: dict[str, set[int]] = {}
    for part in parts:
        if part.buckets:
            numbers.setdefault(part.partition, set()).add(part.buckets)
    mixed = anew.union(partition for partition, found in numbers.items() if len(found) > 1)
    return [replace(part, place=part.partition) if part.place and part.partition in mixed else part for part in parts]


def _joined(one: Part, other: Part) -> Part | None:
    """Return two parts of a place as one, if they are small files of changes."""
    first, second = one.split, other.split
    if not isinstance(first, PublishedSplit) or not isinstance(second, PublishedSplit):
        return None
    if first.phase is not second.phase or first.phase not in (None, Phase.IN_PHASES):
        return None
    if len(first.targets) + len(second.targets) > _FILES_TOGETHER:
        return None
    if not all(is_small(target.file) for target in (first.targets[-1], *second.targets)):
        return None
    split = PublishedSplit(first.targets + second.targets, first.origins + second.origins, first.phase)
    return replace(one, split=split)


def _may_move(table: TableDef, parts: Sequence[Part]) -> bool:
    """Return whether keys may have moved between the buckets of some parts."""
    removes = table.moves_keys and any(part.form is not None and part.form.kind == "-D" for part in parts)
    return removes or are_ordered(table, [part.split for part in parts if part.split is not None])
