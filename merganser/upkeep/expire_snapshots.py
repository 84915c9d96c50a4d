"""Expiry: remove old snapshots, and the files that no other snapshot, tag or branch needs.

Snapshots b to e - 1 expire, and e is the oldest that stays. Steps::

    1  plan       read the files that commits b + 1 to e removed and that b to e - 1 name; change nothing yet
    2  changelog  if changelogs are kept longer, copy the snapshot files to `changelog/`
    3  snapshots  remove b, b + 1, ... e - 1 one by one while e exists, then move the hint to e
    4  list again list tags and branches anew; e must still exist
    5  files      remove the planned files, except those that a tag, a branch or a kept snapshot needs

A snapshot disappears before its files, so no reader finds an incomplete one. A reader of an expired snapshot gets an
error that says so. A crash after step 3 leaves files that no metadata names; the removal of orphans finds them. A crash
before step 3 leaves whole snapshots, and the next run continues.

Expiry never removes a live file, for three reasons:

* A file that a commit removed is live in no later snapshot unless an overwrite brought it back. Expiry reads the
  overwrites.
* An operation that makes a tag or branch, or rolls back, checks afterwards that its snapshot still exists. Step 4
  comes after step 3, so one of the two sees the other.
* Expiry does not guess the content of unreadable files. An unreadable tag, branch or kept snapshot stops the run
  before step 3. An unreadable expired snapshot keeps its files, for the removal of orphans.

Other processes may expire snapshots, or drop tags and branches, at the same time. A run that misses a file of its plan
lists and plans anew. It does not touch what the other process removes.

The cost follows the snapshots that expire: their lists and their own manifests, not the table.

Format: "expiration", "changelog lifecycle", "delete tag". Decision 0016.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from datetime import datetime
from itertools import pairwise
from typing import Final

from merganser.errors import FormatError, MerganserError, NotFoundError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.consumers import Consumer, ConsumerStore
from merganser.meta.data_file import ADD, SOURCE_APPEND
from merganser.meta.followed import for_writing
from merganser.meta.refs import Tag
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.snapshot import OVERWRITE, Snapshot, same_snapshot
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import INT_MAX
from merganser.scan.overwrites import is_replaced
from merganser.scan.source import takes_rows
from merganser.storage.env import Env
from merganser.storage.tuning import no_collection
from merganser.upkeep.needed_files import NeededFiles
from merganser.upkeep.retention import Retention, changelog_retention, consumers_hold_snapshots, snapshot_retention
from merganser.values import dataclass

_READ_AHEAD: Final = 256
"""Snapshots that are read side by side to find where to stop."""
_SNAPSHOTS_AT_ONCE: Final = 1000
"""Snapshots of which is remembered what they name: a long run goes step by step."""
_DELETED_AT_ONCE: Final = 200

_log = logging.getLogger(__name__)


def expire(table: TableDef, env: Env, retention: Retention, *, dry_run: bool = False) -> tuple[Snapshot, ...]:
    """Remove the snapshots that the options let expire, and the long-lived changelogs that are too old.

    Args:
        dry_run: change nothing.

    Returns:
        The snapshots that this run removed, or would remove, oldest first.

    Raises:
        FormatError: a tag, a branch, a consumer or a snapshot that stays cannot be read; nothing was removed.
        StorageError: the store failed; some snapshots may be removed, and all others are whole.
    """
    table = for_writing(table, env)
    run = _Run(table, env)
    if dry_run:
        return run.going(retention, run.listed())[:-1]
    run.needed.beside_removals(lambda: run.expire(run.going(retention, run.listed())))
    return tuple(run.removed)


def expire_after_commit(table: TableDef, env: Env, newest: Snapshot) -> None:
    """Remove the snapshots that the options let expire, as `expire` does, after a commit of this process.

    The process decides from the result of its last run whether expiry is due, and reads the store only if so.

    Args:
        newest: the newest snapshot that this process knows; there may be newer ones.
    """
    retention = snapshot_retention(table.options, env.now_ms(), table=table.name)
    if _Run(table, env).is_due(retention, newest.id):
        run = _Run(for_writing(table, env), env)
        run.needed.beside_removals(lambda: run.expire(run.going(retention, run.up_to(newest))))


def remove_files_of_tag(table: TableDef, env: Env, snapshot: Snapshot) -> None:
    """Remove the files that only a dropped tag needed.

    While the table still has the snapshot of the tag, this removes nothing. Otherwise it removes the files of the
    snapshot, except those of the nearest tags below and above, of the oldest snapshot, and of branches: no other
    snapshot or tag holds the rest.

    Args:
        snapshot: the snapshot that the tag kept.

    Raises:
        FormatError: metadata that may name the files cannot be read; no file was removed. The removal of orphans
            finds the files later.
    """
    run = _Run(table, env)
    run.needed.beside_removals(lambda: run.remove_files_of(snapshot))


def end_snapshots(table: TableDef, env: Env, going: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    """Remove snapshots whatever retention and consumers say. Their files and changelogs stay for the caller to remove.

    Args:
        going: the snapshots to remove, oldest first, without gaps, and last the oldest that stays.

    Returns:
        The snapshots that were removed, oldest first: fewer if the table was rolled back in the middle of it.
    """
    run = _Run(table, env)
    if run.stream is not None and len(going) > 1:
        ShardStore(table, env, run.stream).remember_before(run.store.latest(), going[-2].id)
    run.remove_snapshots(going[:-1], going[-1])
    return tuple(run.removed)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What the position of one consumer keeps from expiry.

    Attributes:
        consumer: the consumer.
        kind: "snapshot" or, with 'consumer.changelog-only', "changelog".
        count: how many of them expiry would remove if there were no consumers, and this one keeps.
        since: when the oldest of them was committed.
        size_bytes: size of the data files that these snapshots need and no later one; None: not known.
    """

    consumer: Consumer
    kind: str
    count: int
    since: datetime
    size_bytes: int | None


def held_back(table: TableDef, env: Env) -> tuple[HeldBack, ...]:
    """Return what consumers keep from expiry, by name; consumers that keep nothing are left out.

    The cost follows the snapshots that they keep: their lists and their own manifests.

    Raises:
        FormatError: a consumer is damaged.
    """
    consumers = ConsumerStore(table.paths, env, table.name).list()
    if not consumers:
        return ()
    run = _Run(table, env)
    if not consumers_hold_snapshots(table.options):
        return run.changelogs_held_back(consumers)
    retention = replace(snapshot_retention(table.options, env.now_ms(), table=table.name), limit=INT_MAX)
    return run.held_back(retention, consumers)


@dataclass
class _Plan:
    """Files of the expired snapshots; `_keep_needed` takes out those that others still need."""

    data: set[str] = field(default_factory=set)
    metadata: set[str] = field(default_factory=set)


class _Run:
    """One run over one line of a table."""

    def __init__(self, table: TableDef, env: Env) -> None:
        self.table = table
        self.env = env
        self.stream = stream_of(table.options, table.branch)
        self.needed = NeededFiles(table, env)
        self.reader = self.needed.reader()
        self.store = self.reader.snapshots
        self.left_over: Sequence[int] = ()
        self.removed: list[Snapshot] = []
        self._seen = ("seen by expiry", table.paths.metadata_root)
        self.keeps_changelogs = changelog_retention(table.options, 0) is not None
        # Rows that were appended are the changelog of a table that makes no changelog files.
        self.keeps_rows = self.keeps_changelogs and table.options.get(w.CHANGELOG_PRODUCER) == "none"

    # which

    def up_to(self, newest: Snapshot) -> Sequence[int]:
        """Return the ids from the oldest snapshot to one that exists or existed."""
        first = self.store.earliest_id()
        return [] if first is None else range(first, newest.id + 1)

    def listed(self) -> Sequence[int]:
        """Return the ids of the newest snapshots without a gap; snapshots below a gap remain from a stopped run."""
        ids = self.store.ids()
        start = next((i for i in range(len(ids) - 1, 0, -1) if ids[i - 1] != ids[i] - 1), 0)
        self.left_over = ids[:start]
        return ids[start:]

    def is_due(self, retention: Retention, latest: int) -> bool:
        """Return whether a snapshot may have to expire, by the result of an earlier run of this process."""
        known: tuple[int, int, int] | None = self.env.cache.get(self._seen)
        if known is None:
            return latest > retention.kept_min
        first, successor_ms, taken_ms = known
        if first > latest - retention.kept_min or taken_ms >= self._needed_since_ms():
            return False
        return not retention.keeps(first, latest=latest, successor_ms=successor_ms)

    def going(self, retention: Retention, ids: Sequence[int]) -> tuple[Snapshot, ...]:
        """Return the snapshots that expire, and last the oldest that stays; nothing if none expires.

        Args:
            ids: the ids of all snapshots, rising, without gaps.
        """
        held = self._held_state() if consumers_hold_snapshots(self.table.options) else None
        going, seen = self._chosen(retention, ids, held)
        if seen is not None:
            self.env.cache.put(self._seen, seen, 100)
        return going

    def _chosen(
        self, retention: Retention, ids: Sequence[int], held: int | None
    ) -> tuple[tuple[Snapshot, ...], tuple[int, int, int] | None]:
        """Return what `going` does, and what later runs of this process have to know.

        Args:
            held: the oldest snapshot that consumers hold; None: they hold none.
        """
        if not ids:
            return (), None
        first, latest = ids[0], ids[-1]
        end = retention.end(first=first, latest=latest, held_from=held)
        found = self._whole(self._read(first, min(end + 1, latest), latest, retention))
        if not found:
            return (), None
        upto = min(end, found[-1].id)
        times = [snapshot.time_millis for snapshot in found]
        stop = retention.stop(first=found[0].id, latest=latest, end=max(upto, found[0].id), times_ms=times)
        stop, taken_ms = self._before_taken(found, stop)
        after = next((snapshot for snapshot in found if snapshot.id == stop + 1), None)
        seen = (stop, 0 if after is None else after.time_millis, taken_ms)
        return tuple(snapshot for snapshot in found if snapshot.id <= stop) if stop > found[0].id else (), seen

    def held_back(self, retention: Retention, consumers: Sequence[Consumer]) -> tuple[HeldBack, ...]:
        """Return what consumers keep from expiry; see the function of this name."""
        free, _ = self._chosen(retention, self.listed(), None)
        first = {consumer.id: self._needed_by(consumer.next_snapshot) for consumer in consumers}
        behind = [consumer for consumer in consumers if free and first[consumer.id] < free[-1].id]
        removed: list[tuple[int, int]] | None = None
        if behind:
            with contextlib.suppress(FormatError):
                removed = list(self._removed(free[1:]).values())
        found = []
        for consumer in behind:
            kept = [snapshot for snapshot in free[:-1] if snapshot.id >= first[consumer.id]]
            size = None if removed is None else sum(size for number, size in removed if number > kept[0].id)
            found.append(HeldBack(consumer, "snapshot", len(kept), kept[0].commit_time, size))
        return tuple(found)

    def _before_taken(self, found: Sequence[Snapshot], stop: int) -> tuple[int, int]:
        """Return the oldest snapshot that stays, so that the shard stream has the rows that commits took away.

        Its records of such a commit are made of the files of the snapshot before, and of those that an overwrite
        added. Other records are kept without snapshots, as changelogs.

        Args:
            stop: the oldest that stays by what else is known.

        Returns:
            Its id; and when the commit was that needs an earlier one than `stop`, in epoch milliseconds, or 0.
        """
        since_ms = self._needed_since_ms()
        after = 0 if self.stream is None else self.stream.after
        if found[0].commit_kind == OVERWRITE and found[0].id > after and found[0].time_millis >= since_ms:
            return found[0].id, found[0].time_millis  # what it added is published by no changelog either
        for before, snapshot in pairwise(found):
            if snapshot.id > stop:
                break
            if snapshot.id > after and snapshot.time_millis >= since_ms and takes_rows(self.table, snapshot, before):
                return before.id, snapshot.time_millis
        return stop, 0

    def _needed_since_ms(self) -> float:
        """Return since when the shard stream keeps records, in epoch milliseconds; infinite if there is none."""
        if self.stream is None:
            return math.inf
        return self.env.now_ms() - self.stream.retention.total_seconds() * 1000

    def _read(self, first: int, end: int, latest: int, retention: Retention) -> list[Snapshot | None]:
        """Return the snapshots from `first` to `end`; fewer, if the last of them shows where to stop."""
        found: list[Snapshot | None] = []
        while first <= end:
            upto = min(end, first + _READ_AHEAD - 1)
            found += self.env.fetch(self.store.get, range(first, upto + 1))
            last = found[-1]
            if last is not None and retention.keeps(last.id - 1, latest=latest, successor_ms=last.time_millis):
                break
            first = upto + 1
        return found

    @staticmethod
    def _whole(found: Sequence[Snapshot | None]) -> list[Snapshot]:
        """Return the snapshots above the last missing one: another process is removing them, too, the oldest first."""
        kept: list[Snapshot] = []
        for snapshot in reversed(found):
            if snapshot is None:
                break
            kept.append(snapshot)
        return kept[::-1]

    def _held_from(self) -> int | None:
        consumers = ConsumerStore(self.table.paths, self.env, self.table.name).list()
        return min((consumer.next_snapshot for consumer in consumers), default=None)

    def _held_state(self) -> int | None:
        """Return the oldest snapshot that consumers hold."""
        held = self._held_from()
        return None if held is None else self._needed_by(held)

    def _needed_by(self, next_snapshot: int) -> int:
        """Return the first snapshot that a consumer needs: of an overwrite it needs the rows before it, too."""
        snapshot = self.store.get(next_snapshot) if next_snapshot > 1 else None
        replaced = snapshot is not None and is_replaced(self.table, snapshot)
        return next_snapshot - 1 if replaced else next_snapshot

    def expire(self, going: Sequence[Snapshot]) -> None:
        """Remove all snapshots except the last one, then the long-lived changelogs that are too old."""
        every = max(len(going) - 1, 0)
        if every and self.stream is not None:  # what the commits say of its shards goes with them
            ShardStore(self.table, self.env, self.stream).remember_before(self.store.latest(), going[-2].id)
        with self.env.progress.work(f"expiring snapshots of {self.table.name}", steps=every) as work:
            for at in range(0, every, _SNAPSHOTS_AT_ONCE):
                self.expire_snapshots(going[at : at + _SNAPSHOTS_AT_ONCE + 1])
                work.advance(0, min(_SNAPSHOTS_AT_ONCE, every - at))
        if self.removed:
            first, last = self.removed[0].id, self.removed[-1].id
            _log.info("expired snapshots %d to %d of '%s'", first, last, self.table.name)
        longer = changelog_retention(self.table.options, self.env.now_ms())
        if longer is not None:
            self.expire_changelogs(longer)

    # snapshots

    def expire_snapshots(self, going: Sequence[Snapshot]) -> None:
        """Remove all snapshots except the last one; steps 1 to 5."""
        stays, gone = going[-1], going[:-1]
        tags = self.needed.tags().list()
        with no_collection():
            plan = self._plan(gone, stays)
            self._keep_needed(plan, gone, stays, tags)
        if self.keeps_changelogs:
            self._keep_changelogs(gone)
        self.remove_snapshots(gone, stays)
        try:
            named_since = [tag for tag in self.needed.tags().list() if tag not in tags]
            stood_still = self._stays(stays)
            if stood_still:
                self._keep_needed(plan, gone, stays, named_since)
        except MerganserError as error:
            _log.warning("files of expired snapshots of '%s' were kept as orphans: %s", self.table.name, error)
            return
        if stood_still:
            self._remove(plan)
            return
        if self.keeps_changelogs:  # the rollback may have removed those of later snapshots before they were written
            ChangelogStore(self.table.paths, self.env).delete_above(self.store.latest_id() or 0)
        _log.warning(
            "'%s' was rolled back, or others let more expire, while snapshots expired: their files were kept",
            self.table.name,
        )
        if self.removed and not self.store.ids():  # a whole rollback to it came between a look and a removal
            self.store.create(self.removed.pop())

    def remove_snapshots(self, gone: Sequence[Snapshot], stays: Snapshot) -> None:
        """Remove snapshots from the oldest up, while the oldest kept snapshot exists.

        A rollback to one of them removes that kept snapshot first, and checks at its end that its target exists.
        """
        for number in self.left_over:
            if not self._stays(stays):
                return
            self.store.delete(number)
        for snapshot in gone:
            if not self._stays(stays):
                return
            self.store.delete(snapshot.id)  # one by one: below a missing snapshot there is none
            self.removed.append(snapshot)
        with contextlib.suppress(MerganserError):
            self.store.set_earliest_hint(stays.id)

    def _stays(self, stays: Snapshot) -> bool:
        found = self.store.get(stays.id)
        return found is not None and same_snapshot(found, stays)

    def _plan(self, gone: Sequence[Snapshot], stays: Snapshot) -> _Plan:
        """Return the files that are live or named in `gone`, and not in the snapshot that stays."""
        plan = _Plan()
        with self._unreadable_is_kept():
            plan.data = set(self._removed([*gone[1:], stays]))
        for snapshot in gone:
            with self._unreadable_is_kept():
                if not self.keeps_changelogs:
                    data, metadata = self.needed.changelog(snapshot)
                    plan.data |= data
                    plan.metadata |= metadata
                plan.metadata |= self.needed.indexes(snapshot)
        if not self.keeps_rows:
            plan.metadata |= self._lists_and_manifests(gone)
        return plan

    def _lists_and_manifests(self, snapshots: Sequence[Snapshot]) -> set[str]:
        try:
            return self.needed.lists_and_manifests(snapshots)
        except FormatError:  # one of them: what the others name
            found: set[str] = set()
            for snapshot in snapshots:
                with self._unreadable_is_kept():
                    found |= self.needed.lists_and_manifests([snapshot])
            return found

    @contextlib.contextmanager
    def _unreadable_is_kept(self) -> Iterator[None]:
        try:
            yield
        except FormatError as error:
            _log.warning("files of expired snapshots of '%s' are kept as orphans: %s", self.table.name, error)

    def _removed(self, snapshots: Sequence[Snapshot]) -> dict[str, tuple[int, int]]:
        """Return the data files that these commits removed, and that none of them added again.

        Returns:
            The commit that removed it and its bytes, by path. A file beside a data file counts as one of 0 bytes.
        """
        removed: dict[str, tuple[int, int]] = {}
        lists = self.reader.delta_lists(snapshots)
        found = iter(self.reader.entries_of_each([manifest for manifests in lists for manifest in manifests]))
        for snapshot, manifests in zip(snapshots, lists, strict=True):
            added: set[str] = set()
            for _ in manifests:
                for entry in next(found):
                    if entry.kind == ADD:  # of a file that changed its level, too
                        added.update(self.needed.data_paths(entry))
                    elif not self.keeps_rows or entry.file.source not in (SOURCE_APPEND, None):
                        path, *beside = self.needed.data_paths(entry)
                        removed[path] = snapshot.id, entry.file.size
                        removed.update(dict.fromkeys(beside, (snapshot.id, 0)))
            for path in added:
                removed.pop(path, None)
        return removed

    def _keep_needed(self, plan: _Plan, gone: Sequence[Snapshot], stays: Snapshot, tags: Collection[Tag]) -> None:
        """Take out of a plan the files that kept snapshots, tags and branches need."""
        if plan.metadata:
            plan.metadata -= self.needed.metadata(stays)
        kept = [tag.snapshot for tag in tags if tag.snapshot.id < stays.id]
        # A file of an older tag that is not in the nearest tag below had been removed before that tag.
        below = max((snapshot.id for snapshot in kept if snapshot.id < gone[0].id), default=0)
        for snapshot in kept:
            if snapshot.id >= below:
                self._keep_state(plan, snapshot)
        if plan.data or plan.metadata:
            for snapshot in self._brought_back(stays):
                plan.metadata -= self.needed.indexes(snapshot)
                plan.data -= self.needed.added(self.reader.delta_lists([snapshot])[0])
        self._keep_other_lines(plan)

    def _keep_state(self, plan: _Plan, snapshot: Snapshot) -> None:
        if plan.data:
            plan.data -= self.needed.state(snapshot)
        if plan.metadata:
            plan.metadata -= self.needed.metadata(snapshot)

    def _keep_other_lines(self, plan: _Plan) -> None:
        for paths in self.needed.lines():
            if paths.branch != self.table.branch and (plan.data or plan.metadata):
                reached = self.needed.line(paths)
                plan.data -= reached
                plan.metadata -= reached

    def _brought_back(self, stays: Snapshot) -> list[Snapshot]:
        """Return the overwrites since a snapshot: only they may add files that an earlier commit removed.

        The process remembers what it read, and a later run continues from there.
        """
        key = ("overwrites", self.table.paths.metadata_root)
        known: tuple[int, Snapshot, tuple[Snapshot, ...]] | None = self.env.cache.get(key)
        start, last, found = stays.id, stays, list[Snapshot]()
        if known is not None and known[0] <= stays.id <= known[1].id and self._stays(known[1]):
            start, last, found = known[0], known[1], list(known[2])
        latest = self.store.latest_id() or 0
        for snapshot in self.env.fetch(self.store.get, range(last.id + 1, latest + 1)):
            if snapshot is not None:
                last = snapshot
                if snapshot.commit_kind == OVERWRITE:
                    found.append(snapshot)
        found = [snapshot for snapshot in found if snapshot.id > stays.id]
        self.env.cache.put(key, (max(start, stays.id), last, tuple(found)), 1000 * (len(found) + 1))
        return found

    # changelogs

    def _keep_changelogs(self, gone: Sequence[Snapshot]) -> None:
        store = ChangelogStore(self.table.paths, self.env)
        self.env.fetch(store.put, gone)
        store.write_hints(latest=gone[-1].id)

    def expire_changelogs(self, retention: Retention) -> None:
        """Remove long-lived changelogs and their files."""
        store = ChangelogStore(self.table.paths, self.env)
        earliest = self.store.earliest_id()
        stays = None if earliest is None else self.store.get(earliest)
        found, gone = self._old_changelogs(retention, self._held_from())
        if stays is None or not gone:
            return
        plan = _Plan()
        for snapshot in gone:
            with self._unreadable_is_kept():
                if snapshot.changelog_manifest_list is not None:
                    data, metadata = self.needed.changelog(snapshot)
                else:
                    data, metadata = self._rows_removed_by(snapshot), self.needed.long_lived(snapshot)[1]
                plan.data |= data
                plan.metadata |= metadata
        self._keep_state(plan, stays)
        for snapshot in found[len(gone) :][:1]:
            plan.metadata -= self.needed.long_lived(snapshot)[1]
        tags = self.needed.tags().list()
        for snapshot in gone:
            store.delete(snapshot.id)
        store.write_hints(earliest=gone[-1].id + 1)
        named = {tag.snapshot.id: tag.snapshot for tag in (*tags, *self.needed.tags().list())}
        try:
            for snapshot in (*named.values(), *self._brought_back(stays)):
                self._keep_state(plan, snapshot)
            self._keep_other_lines(plan)
            if not self._stays(stays):
                return
        except MerganserError as error:
            _log.warning("files of expired changelogs of '%s' were kept as orphans: %s", self.table.name, error)
            return
        self._remove(plan)

    def _old_changelogs(self, retention: Retention, held: int | None) -> tuple[Sequence[Snapshot], Sequence[Snapshot]]:
        """Return the oldest long-lived changelogs, and those of them that expire.

        Args:
            held: the oldest one that consumers hold; None: they hold none.
        """
        store = ChangelogStore(self.table.paths, self.env)
        ids, latest = store.ids(), self.store.latest_id()
        if not ids or latest is None:
            return (), ()
        end = min(retention.end(first=ids[0], latest=latest, held_from=held), ids[-1])
        found = [one for one in self.env.fetch(store.get, [i for i in ids if i <= end]) if one is not None]
        return found, _before_stop(found, retention, latest) if found else ()

    def changelogs_held_back(self, consumers: Sequence[Consumer]) -> tuple[HeldBack, ...]:
        """Return which long-lived changelogs consumers keep from expiry; see `held_back`."""
        retention = changelog_retention(self.table.options, self.env.now_ms())
        if retention is None:
            return ()
        _, free = self._old_changelogs(replace(retention, limit=INT_MAX), None)
        kept = {one.id: [old for old in free if old.id >= one.next_snapshot] for one in consumers}
        return tuple(
            HeldBack(one, "changelog", len(kept[one.id]), kept[one.id][0].commit_time, None)
            for one in consumers
            if kept[one.id]
        )

    def _rows_removed_by(self, snapshot: Snapshot) -> set[str]:
        """Return the appended files that a commit removed; the changelog of earlier commits still needed them."""
        if not self.keeps_rows and not self.env.storage.exists(self.table.paths.manifest(snapshot.delta_manifest_list)):
            return set()  # with changelog files, what a commit names goes with its snapshot
        found: set[str] = set()
        for entries in self.reader.entries_of_each(self.reader.delta_lists([snapshot])[0]):
            for entry in entries:
                if entry.kind != ADD and entry.file.source in (SOURCE_APPEND, None):
                    found.update(self.needed.data_paths(entry))
            for entry in entries:
                if entry.kind == ADD:
                    found.difference_update(self.needed.data_paths(entry))
        return found

    # tags

    def remove_files_of(self, tagged: Snapshot) -> None:
        """See `remove_files_of_tag`."""
        found = self.store.get(tagged.id)
        if found is not None and same_snapshot(found, tagged):
            return
        tags = self.needed.tags().list()
        if any(same_snapshot(tag.snapshot, tagged) for tag in tags):
            return
        try:
            plan = _Plan(set(self.needed.state(tagged)), self.needed.metadata(tagged))
        except FormatError as error:
            if isinstance(error.__cause__, NotFoundError):  # another process that dropped the tag has been here
                return
            raise
        earliest = self.store.earliest_id()
        oldest = None if earliest is None else self.store.get(earliest)
        kept = [tag.snapshot for tag in tags] + ([] if oldest is None else [oldest])
        below = max((one for one in kept if one.id <= tagged.id), key=lambda one: one.id, default=None)
        above = min((one for one in kept if one.id > tagged.id), key=lambda one: one.id, default=None)
        for snapshot in (below, above):
            if snapshot is not None:
                self._keep_state(plan, snapshot)
        if oldest is not None:
            for snapshot in self._brought_back(oldest):
                plan.metadata -= self.needed.indexes(snapshot)
                plan.data -= self.needed.added(self.reader.delta_lists([snapshot])[0])
        for snapshot in ChangelogStore(self.table.paths, self.env).list():
            for reached in self.needed.long_lived(snapshot):
                plan.data -= reached
                plan.metadata -= reached
        self._keep_other_lines(plan)
        self._remove(plan)

    # files

    def _remove(self, plan: _Plan) -> None:
        """Remove files. Files that the store fails to remove stay as orphans: no metadata names them any more."""
        try:
            remove_files(self.table, self.env, plan.data)
            if self.table.options.get(u.SNAPSHOT_CLEAN_EMPTY_DIRECTORIES):
                remove_empty_directories(self.table, self.env, {path.rpartition("/")[0] for path in plan.data})
            remove_files(self.table, self.env, plan.metadata)
        except MerganserError as error:
            _log.warning("some files of '%s' that nothing needs were left as orphans: %s", self.table.name, error)


def _before_stop(found: Sequence[Snapshot], retention: Retention, latest: int) -> Sequence[Snapshot]:
    """Return the changelogs that expire: those before the first that stays."""
    for position, (snapshot, successor) in enumerate(pairwise(found)):
        if snapshot.id > latest - retention.kept_max and successor.time_millis >= retention.older_than_ms:
            return found[:position]
    return found[:-1]


def remove_files(table: TableDef, env: Env, paths: Iterable[str]) -> None:
    """Remove files of a table, many at a time; those that lie elsewhere stay.

    Raises:
        StorageError: the store failed; some are gone.
    """
    todo = sorted(path for path in paths if path.startswith(f"{table.path}/") and ".." not in path.split("/"))
    for path in todo:
        env.cache.drop(path)
    env.fetch(env.storage.delete, [todo[at : at + _DELETED_AT_ONCE] for at in range(0, len(todo), _DELETED_AT_ONCE)])


def remove_empty_directories(table: TableDef, env: Env, directories: Collection[str]) -> None:
    """Remove empty directories below a table, and parents that become empty. Best effort."""
    level = {path for path in directories if path.startswith(f"{table.path}/")}
    with contextlib.suppress(MerganserError):
        while level:
            env.storage.delete_empty(sorted(level))
            level = {above for path in level if (above := path.rpartition("/")[0]).startswith(f"{table.path}/")}
