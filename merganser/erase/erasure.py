"""An erasure: rows are deleted, files that hold a version of them are written again, and what is left is read.

The order of the work. A crash after any step leaves a whole table, and the same call finishes the work::

    1  find      the keys of the rows that the filter lets through, in all files of all lines
    2  delete    a commit like that of `Table.delete`, so that streams see the rows go
    3  rewrite   a commit that replaces each live file that holds a version of them: no row changes for readers
    4  renew     a commit without files, whose manifests name live files alone
    5  end       with `everywhere`: branches go through 2 to 4, then all that names an old file ends, and files go;
                 the records of the table's log go, too
    6  verify    read the deciding columns of every file that is there

Steps 2 and 3 are repeated if another writer adds such rows in between. Later rows are new rows: they stay.

Docs: decision 0065.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from merganser.commit.committable import Committable
from merganser.commit.conflict import Reads
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.commit.turns import in_rounds
from merganser.edit.asked import check_is_newest, filter_of
from merganser.edit.change import Change
from merganser.edit.matching import Matching, reads_of_keys
from merganser.edit.rewrite import run_here
from merganser.edit.rounds import check_columns
from merganser.edit.row_changes import RowChanges, check_can_erase, takes_deletes
from merganser.erase.endings import end_holders, finish, holdings, note
from merganser.erase.inventory import (
    Holder,
    Inventory,
    Line,
    StoredFile,
    may_be_of,
    may_hold,
    take_inventory,
    unnamed_file,
    unnamed_metadata,
)
from merganser.erase.report import Erasure, Holding
from merganser.erase.rewriting import RewritingJob
from merganser.erase.search import Finder, SearchJob
from merganser.erase.sought import Sought, among
from merganser.errors import (
    CommitUnknownError,
    ConflictError,
    FormatError,
    InvalidInputError,
    MerganserError,
    StorageError,
    check_flags,
)
from merganser.expr.predicate import Predicate
from merganser.expr.setting import Setting
from merganser.files.masks import NO_VECTORS, vectors_by_bucket
from merganser.lsm.abandoned import remove_uncommitted
from merganser.lsm.held import local_copies
from merganser.meta.data_file import ManifestEntry
from merganser.meta.followed import columns_of, for_changing, look
from merganser.meta.index_manifest import DELETION_VECTORS, HASH
from merganser.meta.kept import is_kept
from merganser.meta.live_files import BucketId
from merganser.meta.refs import MAIN
from merganser.meta.row_counts import RowCounts, RowEdit
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.shards import FORGOTTEN
from merganser.meta.snapshot import APPEND, COMPACT, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.rules.compacting import hides_level_0, publishes_by_compaction
from merganser.storage.env import Env
from merganser.storage.retries import REREAD, Retries
from merganser.upkeep.compact_table import RunJobs, compact
from merganser.upkeep.needed_files import NeededFiles
from merganser.upkeep.orphans import DAY_MS, remove_orphans
from merganser.upkeep.plan_compaction import CompactionRequest
from merganser.values import dataclass
from merganser.write.distribute import distribute
from merganser.write.job import Outcome, messages_of
from merganser.write.session import WriteSession
from merganser.write.transaction import check_user

RunErasing = Callable[[Sequence[SearchJob] | Sequence[RewritingJob]], list[Outcome]]
"""Runs jobs side by side and returns what they found or did, in any order."""

_RETRIES: Final = Retries(attempts=20)
"""More than `RACE` has: some rounds only find further keys, or publish rows first."""
_FOREVER_MS: Final = 1 << 62
_OUTSIDE: Final = "The file lies outside of the table, so it is as it was. Remove it, or write it without the rows."
_UNNAMED: Final = (
    "No snapshot names the file: a writer has not committed it, or was stopped, or a rollback removed its snapshot. "
    "When no writer runs, call table.remove_orphans(older_than=..., dry_run=False), and repeat the call."
)

_SHARDS: Final = (
    "The file remembers the shards of the table's stream, and a shard is of a partition that the rows were in. "
    "erase(..., everywhere=True) takes the partition from it. A damaged file is written again by table.repair()."
)

_LOG: Final = (
    "The topic of the table's log in Kafka has each row that was committed, until its retention ends. "
    "erase(..., everywhere=True) removes all its records, and readers take them from the files."
)

_OTHER_COLUMNS: Final = (
    "{} {}, so its rows were not asked by the filter or the key. Make it the same in both{}, and repeat the call."
)

_OR_DROP: Final = ", or drop the branch with table.branches.drop('{}')"

_INDEX: Final = (
    "The index file was made by another engine, and its type '{}' is not known, so it was not read. Drop the index "
    "with that engine, repeat the call, and build the index again."
)


def erasing(
    table: TableDef,
    env: Env,
    where: str | Any,
    everywhere: bool,
    commit_user: str | None,
    setting: Setting,
    *,
    run: RunErasing | None = None,
    run_compactions: RunJobs | None = None,
) -> Erasing:
    """Return a call of `Table.erase`.

    Raises:
        InvalidInputError: there is no filter, or it, `everywhere` or the user is invalid.
    """
    action = f"cannot erase rows of '{table.name}'"
    found = filter_of(where, table, action, setting)
    check_user(commit_user, action)
    check_flags(action, everywhere=everywhere)
    user = commit_user or env.new_id()
    return Erasing(table, env, found, str(where), action, everywhere, user, run, run_compactions)


@dataclass
class Erasing:
    """One call of `Table.erase`; see there.

    Attributes:
        where: the rows.
        text: the filter as the caller gave it, for the report.
        run, run_compactions: where jobs run; None: on the threads of this process.
    """

    table: TableDef
    env: Env
    where: Predicate
    text: str
    action: str
    everywhere: bool
    commit_user: str
    run: RunErasing | None = None
    run_compactions: RunJobs | None = None
    _finder: Finder = field(init=False)
    _counts: RowCounts = field(default_factory=RowCounts)
    _versions: int = 0
    _seen: dict[str, int] = field(default_factory=dict)  # of the line: files that were live, and their sought rows
    _rewritten: set[str] = field(default_factory=set)
    _removed: set[str] = field(default_factory=set)
    _ended: list[Holding] = field(default_factory=list)
    _clean: dict[str, int] = field(default_factory=dict)
    _later: set[str] = field(default_factory=set)
    _untold: set[str] = field(default_factory=set)
    _read: set[str] = field(default_factory=set)
    _read_for: Sought | None = None

    def done(self) -> Erasure:
        """Erase, verify and return the report.

        Raises:
            InvalidInputError: the table takes no deletes; nothing was written.
            ConflictError: other commits changed the rows again and again. Call it again.
            FormatError: metadata or a file is damaged. What was erased before stays erased.
        """
        started = self._now()
        check_is_newest(self.table, self.action)
        self.table = for_changing(self.table, self.env, self.action, self.where.columns)
        check_can_erase(self.table, self.action)
        self._finder = Finder(self.table, self.env, Sought.of(self.table, self.where), self.run)
        self._removed.update(finish(self.table, self.env))
        found = self._searched()
        for line in found.lines[1:] if self.everywhere else ():
            check_can_erase(line.table, self.action)
        self._erase_line(self.table)
        if self.everywhere:
            self._end(found)
            self._forget_shards(found.lines)
        old_ms = self.env.now_ms() - DAY_MS
        self._removed.update(remove_orphans(self.table, self.env, older_than_ms=old_ms, dry_run=False))
        self._drop_copies()
        return self._verified(started, self._of_log(found.lines))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.env.now_ms() / 1000, UTC)

    # search

    def _searched(self) -> Inventory:
        """Search the files that are there, but for those of later commits; return the inventory."""
        inventory = take_inventory(self.table, self.env)
        for attempt in REREAD.each():
            named = inventory.named(lambda line, one: not self._is_later(line, one, or_equal=False)) - self._later
            try:
                self._finder.search([one for path, one in inventory.files.items() if path in named])
                return inventory
            except FormatError as error:
                before, inventory = inventory.files, take_inventory(self.table, self.env)
                if attempt.is_last or error.context.get("path") not in before.keys() - inventory.files.keys():
                    raise  # else its snapshots expired while it was read
        raise AssertionError("the last attempt returns or raises")

    def _is_later(self, line: Line, holder: Holder, *, or_equal: bool) -> bool:
        """Return whether a snapshot came after the one in which no live file holds a row that is sought."""
        clean = self._clean.get(line.table.branch)
        return clean is not None and holder.kind == "snapshot" and holder.snapshot.id >= clean + (not or_equal)

    # one line

    def _erase_line(self, table: TableDef) -> None:
        """Delete the rows of a line, rewrite its live files, and renew its manifests; steps 2 to 4."""
        table = self._quiet(table)
        lost = ConflictError(
            f"{self.action}: other writers changed them {_RETRIES.attempts} times in the meantime. Deleted rows stay "
            "deleted. Repeat the call.",
            table=table.name,
        )
        self._seen.clear()
        before = TableCommit(table, self.env).latest()
        with suppress(FormatError):  # they are only counted
            self._hit(table, before)
        for _ in _RETRIES.each():
            try:
                clean_since = self._deleted(table)
            except InvalidInputError:  # rows of kind -D would lose to what is there: files are written without the rows
                self._untold.add(table.branch)
                continue
            state = TableCommit(table, self.env).latest()
            if state.snapshot is None:
                return
            try:
                known = self._finder.sought
                hit, clean = self._live_hits(table, state), state.snapshot
                if self._finder.sought is not known:
                    continue  # rows of other keys came, which have to be deleted first
                if hit and self._published_first(table, state, hit):
                    continue
                self._renew(table, self._rewrite(table, state, hit, clean_since) if hit else clean)
                self._count_versions(table)
                return
            except ConflictError as error:
                lost = error
            except FormatError:
                if is_kept(table, self.env, state.snapshot):
                    raise
        raise lost

    @staticmethod
    def _quiet(table: TableDef) -> TableDef:
        """Return a table whose deletes are not followed by a compaction that nobody needs: files are written again."""
        if table.keyed and (hides_level_0(table.options) or publishes_by_compaction(table.options)):
            return table
        return replace(table, options=table.options.merged({w.WRITE_ONLY.key: "true"}))

    def _tells(self, table: TableDef) -> bool:
        """Return whether rows of kind -D, of which streams are told, go before files are written without the rows."""
        return table.keyed and takes_deletes(table) and table.branch not in self._untold

    def _deleted(self, table: TableDef) -> Snapshot | None:
        """Delete the rows that reads of the newest state return; return a state in which there were none."""
        before = MetaReader(table.paths, self.env, table.name).snapshots.latest()
        if not self._tells(table):
            return before
        if self._finder.sought.by is None:
            made = Change(
                table,
                self.env,
                self.where,
                None,
                self.action,
                commit_user=self.commit_user,
                run_compactions=self.run_compactions,
            ).done()
        else:
            made = self._deleted_by_key(table)
        if made is None:
            return before
        counts = RowCounts(deleted=made.rows_deleted)
        self._counts = self._counts + counts
        return made

    def _deleted_by_key(self, table: TableDef) -> Snapshot | None:
        keys = self._finder.sought.keys
        if keys is None:
            return None
        session = WriteSession(table, self.env, commit_user=self.commit_user, seen=look(table, self.env))
        by = self._finder.sought.by
        assert by is not None

        def one(is_first: bool) -> Snapshot | None:
            matching = Matching(table, self.env, None, self.action)
            if not is_first:
                session.take_turn()
            snapshot, parts = matching.found(None if table.moves_keys else keys)
            check_columns(table, self.env, snapshot, self.action)
            out = RowChanges(table, session, self.action)
            for rows in parts:
                gone = rows.filter(pa.array(among(rows, keys, by)))  # rows may have moved to another partition
                if gone.num_rows:
                    out.delete(gone)
            if not out.deleted:
                session.abort()
                return None
            counts = RowCounts(deleted=out.deleted)
            reads = matching.reads(snapshot) if table.moves_keys else reads_of_keys(table, snapshot, keys)
            return session.commit(None, reads, edit=RowEdit("DELETE", lambda: counts))

        with closing(session):
            if table.postpones:
                distribute(table, self.env, run=self.run_compactions)
            return in_rounds(table, self.env, one, session.begin_anew)

    def _live_hits(self, table: TableDef, state: TableState) -> dict[BucketId, list[ManifestEntry]]:
        """Return the live files that hold rows that are sought, by bucket."""
        found: dict[BucketId, list[ManifestEntry]] = {}
        for entry in self._hit(table, state):
            found.setdefault((entry.partition, entry.bucket), []).append(entry)
        return found

    def _hit(self, table: TableDef, state: TableState) -> list[ManifestEntry]:
        """Return the live files that hold rows that are sought, and remember them for the count of versions."""
        needed = NeededFiles(table, self.env)
        paths = {next(iter(needed.data_paths(entry))): entry for entry in state.live}
        self._finder.search([StoredFile(path, table, entry) for path, entry in paths.items()])
        hits = {path: count for path in paths if (count := self._finder.hits[path])}
        self._seen |= hits
        return [paths[path] for path in hits]

    def _count_versions(self, table: TableDef) -> None:
        """Count the rows that are sought in files that are live no more, also those that a deletion vector marked."""
        needed = NeededFiles(table, self.env)
        live = {next(iter(needed.data_paths(entry))) for entry in TableCommit(table, self.env).latest().live}
        gone = self._seen.keys() - live
        self._versions += sum(self._seen[path] for path in gone)
        self._rewritten.update(path.rpartition("/")[2] for path in gone)

    def _published_first(
        self, table: TableDef, state: TableState, hit: Mapping[BucketId, Sequence[ManifestEntry]]
    ) -> bool:
        """Compact what is not published yet, or waits for its bucket; return whether there was any.

        Without their files a later compaction could not tell streams which rows went.
        """
        if table.postpones and any(bucket < 0 for _, bucket in hit):
            distribute(table, self.env, run=self.run_compactions)
            return True
        if not publishes_by_compaction(table.options) or not self._tells(table):
            return False
        full = table.options.get(w.CHANGELOG_PRODUCER) == "full-compaction"
        due = set()
        for bucket, entries in hit.items():
            highest = max(entry.file.level for entry in state.live.buckets[bucket].entries)
            shown_from = max(1, highest) if full else 1
            if any(entry.file.level < shown_from for entry in entries):
                due.add(bucket)
        if not due:
            return False
        request = CompactionRequest(full=full, buckets=due, push_level_0=True)
        compact(table, self.env, request, run=self.run_compactions)
        return True

    def _rewrite(
        self,
        table: TableDef,
        state: TableState,
        hit: Mapping[BucketId, Sequence[ManifestEntry]],
        clean_since: Snapshot | None,
    ) -> Snapshot | None:
        """Replace live files that hold rows that are sought, in one commit; step 3.

        Raises:
            ConflictError: others replaced a file, or added rows that are sought. The new files are removed.
        """
        env = self.env
        vectors = vectors_by_bucket(table, MetaReader(table.paths, env, table.name).index(state.snapshot))
        jobs = [
            RewritingJob(
                table,
                partition,
                bucket,
                entries[0].total_buckets,
                table.bucket_directory(partition, bucket),
                tuple(entry.file for entry in entries),
                columns_of(table, env, (entry.file.schema_id for entry in entries)),
                vectors.get((partition, bucket), NO_VECTORS),
                self._finder.sought,
            )
            for (partition, bucket), entries in hit.items()
        ]
        outcomes = (self.run or run_here(env))(jobs)
        messages = messages_of(table, env, outcomes)
        gone = sum((outcome.counts or RowCounts() for outcome in outcomes), RowCounts())
        told = self._tells(table)
        counts = RowCounts(deleted=None) if table.keyed else gone
        change = Committable(
            messages,
            self.commit_user,
            kind=COMPACT if told else APPEND,
            merges=False,
            reads=Reads(clean_since if told else state.snapshot, covers=lambda entry: self._finder.holds(table, entry)),
            edit=None if told else RowEdit("DELETE", lambda: counts),
        )
        try:
            made = TableCommit(table, env).commit(change)
        except CommitUnknownError:
            raise
        except MerganserError:
            remove_uncommitted(table, env, messages)
            raise
        if not told:
            self._counts = self._counts + counts
        return made

    def _renew(self, table: TableDef, clean: Snapshot | None) -> None:
        """Make a snapshot whose manifests name live files alone; step 4.

        Args:
            clean: a snapshot without rows that are sought. Rows that were added after it are new rows.
        """
        reader = MetaReader(table.paths, self.env, table.name)
        state = TableCommit(table, self.env).latest()
        if state.snapshot is None or clean is None:
            return
        renewed: Snapshot | None = state.snapshot
        snapshot = state.snapshot
        stale = sum(one.added + one.deleted for one in reader.manifests(snapshot)) != len(state.live)
        empty = _indexes_of_nothing(table, reader, state)
        if stale or empty or snapshot.statistics is not None or snapshot.changelog_manifest_list is not None:
            change = Committable(empty, self.commit_user, kind=COMPACT, allow_empty=True, renews_manifests=True)
            renewed = TableCommit(table, self.env).commit(change)
        assert renewed is not None
        self._clean[table.branch] = renewed.id
        if renewed.id > clean.id:
            needed = NeededFiles(table, self.env)
            self._later |= needed.state(renewed, table.paths) - needed.state(clean, table.paths)

    # everywhere

    def _end(self, found: Inventory) -> None:
        """Erase the rows of branches, then end what names old files; step 5."""
        for line in found.lines[1:]:
            if self._finder.asks(line.table):
                self._erase_line(line.table)
        while True:  # statistics of what stays may tell of a snapshot that ends
            found = self._searched()
            dirty = self._dirty(found)
            if all(holder.manifests.isdisjoint(dirty) for line in found.lines for holder in line.holders):
                return
            needed = NeededFiles(self.table, self.env)
            noted = note(self.table, self.env, {path for paths in needed.lines() for path in needed.line(paths)})
            ended = [one for line in found.lines for one in end_holders(line, self.env, dirty)]
            self._removed.update(finish(self.table, self.env, noted))
            self._ended += ended
            if not ended:
                return
            self._remember_read()

    def _dirty(self, inventory: Inventory) -> frozenset[str]:
        """Return the manifests that name a file that holds rows that are sought, or is gone and may have held some."""
        dirty = self._dirty_paths(inventory)
        known = inventory.partitions(dirty)
        indexes = {
            name
            for name, (table, partitions) in inventory.indexed.items()
            if may_be_of(table, partitions - known, self._finder.sought)
        }
        found = inventory.naming(dirty) | indexes
        return found | self._dirty_statistics(inventory, found)

    def _clean_metadata(self, inventory: Inventory, dirty: frozenset[str], paths: Collection[str]) -> set[str]:
        """Return those of some files that are metadata and hold nothing of rows that are sought.

        Beside a writer there are always manifests of a commit that is being made. They are asked as those are that a
        snapshot names, unless the table has branches: nothing says whose columns such a file has.
        """
        if len(inventory.lines) > 1:
            return set()
        young = unnamed_metadata(self.table, self.env, paths)
        every = {path: one for files in young.files.values() for path, one in files.items()}
        gone = {path: one for path, one in every.items() if path not in inventory.files}
        gone = {path: one for path, one in gone.items() if not self.env.storage.exists(path)}
        hits = {path for path in every if self._finder.hits.get(path)}
        unread = may_hold(self.env, gone, self._finder.sought)
        if self._finder.sought is self._read_for:
            unread -= self._read
        if unread:  # what was committed meanwhile has names now
            now = take_inventory(self.table, self.env)
            unread -= now.named(lambda line, one: self._is_later(line, one, or_equal=True))
        known = inventory.partitions(self._dirty_paths(inventory))
        clean = {name for name, files in young.files.items() if files.keys().isdisjoint(hits | unread)}
        for name, partitions in young.indexed.items():
            if not may_be_of(self.table, partitions - known, self._finder.sought):
                clean.add(name)
        judged = clean | (inventory.paths.keys() - dirty)
        clean |= {name for name, manifests in young.lists.items() if manifests <= judged}
        return {path for path in paths if path.rpartition("/")[2] in clean}

    def _dirty_statistics(self, inventory: Inventory, manifests: frozenset[str]) -> set[str]:
        """Return files of statistics that may hold values of rows that are sought.

        They hold the smallest and largest value of each column. Those of a snapshot that is kept tell of its rows,
        which were read.
        """
        found = set()
        for line in inventory.lines:
            kept = [one for one in line.holders if one.kind != "changelog"]
            read = {one.snapshot.id for one in kept if one.manifests.isdisjoint(manifests)}
            names = {one.snapshot.statistics for one in kept if one.snapshot.statistics is not None}
            found |= {name for name in names if inventory.analyzed.get(name) not in read}
        return found

    def _dirty_paths(self, inventory: Inventory) -> set[str]:
        """Return the files that hold rows that are sought, and those that are gone and may have held some."""
        sought = self._finder.sought
        hits = {path for path, count in self._finder.hits.items() if count}
        unread = may_hold(self.env, inventory.gone, sought)
        if sought is self._read_for:
            unread -= self._read  # this call has read them before it removed them
        if unread:
            unread -= inventory.named(lambda line, one: self._is_later(line, one, or_equal=True))
        return hits | unread

    def _remember_read(self) -> None:
        """Keep which files were read and hold none of the rows: once they are gone, their statistics do not count."""
        self._read = {path for path, count in self._finder.hits.items() if not count}
        self._read_for = self._finder.sought

    def _forget_shards(self, lines: Sequence[Line]) -> None:
        """Take partitions that nothing else names from the shards of streams, and from the files that remember them.

        The commit goes first: processes that know the shards learn of it, and find the same ones.
        """
        if not any(_keeps_partitions_of_shards(line.table) for line in lines):
            return
        inventory = take_inventory(self.table, self.env)
        known = inventory.partitions(self._dirty_paths(inventory))
        for line, store, of_files in self._shards(inventory, known):
            newest = TableCommit(line.table, self.env).latest().snapshot
            if newest is None or not any(of_files.values()):
                continue
            with store.lock:
                every = {one.id: one.partition for one in store.up_to(newest) if one.partition}
            mine = may_be_of(line.table, set(every.values()) - known, self._finder.sought)
            ids = [name for name, partition in every.items() if partition in mine]
            if ids:
                marked = {FORGOTTEN: ",".join(ids)}
                change = Committable((), self.commit_user, kind=COMPACT, allow_empty=True, properties=marked)
                newest = TableCommit(line.table, self.env).commit(change) or newest
            store.remember_alone(newest)

    def _shards(self, inventory: Inventory, known: set[bytes]) -> Iterator[tuple[Line, ShardStore, dict[str, bool]]]:
        """Yield lines with a shard stream, and which files remember shards of partitions of rows that are sought.

        Args:
            known: partitions that other files are in.
        """
        for line in inventory.lines:
            stream = stream_of(line.table.schema.options, line.table.branch)
            if stream is None or not _keeps_partitions_of_shards(line.table):
                continue
            store = ShardStore(line.table, self.env, stream)
            of_files = {
                path: named is None or bool(may_be_of(line.table, named - known, self._finder.sought))
                for path, named in store.partitions().items()
            }
            yield line, store, of_files

    def _of_log(self, lines: Sequence[Line]) -> list[Holding]:
        """Remove all records of the log's topic, with `everywhere`; return the topic if it may hold rows.

        Its records are not searched: those of a person cannot be removed alone.
        """
        [table] = [line.table for line in lines if line.table.branch == MAIN]
        if table.options.get(w.LOG_SYSTEM) == "none":
            return []
        from merganser.log import commit_log  # noqa: PLC0415 - it imports the client of Kafka, for tables with a log

        topic, why = str(table.options.get(w.KAFKA_TOPIC)), ""
        try:
            if not commit_log.log_holds_rows(table):
                return []
            if self.everywhere:
                commit_log.empty_log(table, self.env)
                self._ended.append(Holding("log", topic, MAIN))
                return []
        except StorageError as error:
            why = f" {error.message}"
        return [Holding("log", topic, MAIN, _LOG + why)]

    # what is left

    def _drop_copies(self) -> None:
        """Remove the lookup copies of this machine: whose file is gone cannot be told by its name."""
        local_copies(self.table).clear()
        self.env.cache.drop_prefix(self.table.path)

    def _verified(self, started: datetime, of_log: Sequence[Holding]) -> Erasure:
        """Read what is left, and return the report; step 6."""
        outside = sorted(self._finder.outside)
        self._remember_read()
        self._finder = Finder(self.table, self.env, self._finder.sought, self.run)
        inventory = self._searched()
        dirty = self._dirty(inventory)
        files = [one.entry.file for path, one in inventory.files.items() if path in self._finder.hits]
        held = [one for line in inventory.lines for one in holdings(line, dirty)]
        held += of_log
        held += [Holding("file", path, self.table.branch, _OUTSIDE) for path in outside]
        unnamed = remove_orphans(self.table, self.env, older_than_ms=_FOREVER_MS, dry_run=True)
        asked = ((path, unnamed_file(self.table, self.env, path)) for path in unnamed)
        rows = {path: stored for path, stored in asked if stored is not None}
        self._finder.search(list(rows.values()))
        clean = {path for path in rows if not self._finder.hits[path]}
        clean |= self._clean_metadata(inventory, dirty, [path for path in unnamed if path not in rows])
        for path in unnamed:
            if path not in clean and self.env.storage.exists(path):  # a writer that lost a race removes its own
                held.append(Holding("file", path.rpartition("/")[2], self.table.branch, _UNNAMED))
        for line, _, of_files in self._shards(inventory, inventory.partitions(self._dirty_paths(inventory))):
            names = sorted(path.rpartition("/")[2] for path, holds in of_files.items() if holds)
            held += [Holding("file", name, line.table.branch, _SHARDS) for name in names]
        for line in inventory.lines:
            differs = self._finder.differing(line.table)
            if differs is not None:
                branch = line.table.branch
                words = ("The table", "") if branch == MAIN else ("The branch", _OR_DROP.format(branch))
                held.append(Holding("branch", branch, branch, _OTHER_COLUMNS.format(words[0], differs, words[1])))
            reader = MetaReader(line.table.paths, self.env, line.table.name)
            for one in reader.index(reader.snapshots.latest()):
                if one.index_type not in (HASH, DELETION_VECTORS):
                    held.append(Holding("file", one.name, line.table.branch, _INDEX.format(one.index_type)))
        latest = inventory.lines[0].of_kind("snapshot")
        sought = self._finder.sought
        return Erasure(
            table=self.table.name,
            where=self.text,
            everywhere=self.everywhere,
            erased_by=self.commit_user,
            started=started,
            finished=self._now(),
            snapshot=latest[-1].snapshot.id if latest else None,
            rows=self._counts.deleted,
            versions=self._versions,
            keys=None if sought.by is None else 0 if sought.keys is None else sought.keys.num_rows,
            rewritten=tuple(sorted(self._rewritten)),
            removed=tuple(sorted(path.rpartition("/")[2] for path in self._removed)),
            ended=tuple(self._ended),
            held=tuple(held),
            files_read=len(files),
            rows_read=sum(file.row_count for file in files),
            bytes_read=sum(file.size for file in files),
        )


def _keeps_partitions_of_shards(table: TableDef) -> bool:
    return bool(table.schema.partition_keys) and stream_of(table.schema.options, table.branch) is not None


def _indexes_of_nothing(table: TableDef, reader: MetaReader, state: TableState) -> tuple[CommitMessage, ...]:
    """Return the removal of index files of partitions without files: an index manifest names their partitions."""
    if not table.schema.partition_keys:
        return ()
    there = {partition for partition, _ in state.live.buckets}
    return tuple(
        CommitMessage(one.partition, one.bucket, -1, (), index_removed=(one,))
        for one in reader.index(state.snapshot)
        if one.partition not in there
    )
