"""Conflicts: checks that a change may follow a state. Pure: the checks take entries and raise an error or nothing.

Format: section "conflict detection".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from merganser.codec.binary_row import deserialize
from merganser.codec.stored import sort_key
from merganser.commit.message import CommitMessage
from merganser.errors import ConflictError, InvalidInputError, Overtaken
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.index_manifest import DELETION_VECTORS, HASH, IndexEntry, combined, stands_alone
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot, same_snapshot
from merganser.schema import types as t
from merganser.values import dataclass


def check_removals(changes: Sequence[ManifestEntry], live: LiveFiles, *, table: str, snapshot: int) -> None:
    """Refuse to remove files that are not live, and to add files that are.

    Raises:
        ConflictError: names how many and the first; nothing was changed.
    """
    removed = [entry for entry in changes if entry.kind != ADD]
    if not removed:
        return
    identities = {
        entry.identity
        for key in {(e.partition, e.bucket) for e in changes}
        if key in live.buckets
        for entry in live.buckets[key].entries
    }
    lost = [entry for entry in removed if entry.identity not in identities]
    if lost:
        raise ConflictError(
            f"cannot commit to '{table}': other commits up to snapshot {snapshot} removed {len(lost)} of the "
            f"{len(removed)} files that this change replaces (first: '{lost[0].file.name}' in bucket "
            f"{lost[0].bucket}). Nothing was changed. Plan the change again from snapshot {snapshot}.",
            table=table,
            overtaken=Overtaken.FILES,
            snapshot=snapshot,
            replaced=lost[0].file.name,
        )


def check_levels(
    changes: Sequence[ManifestEntry], live: LiveFiles, key_types: Sequence[t.DataType], *, table: str, snapshot: int
) -> None:
    """Refuse a file above level 0 whose key range overlaps another file of its level: a level is one sorted run.

    Two compactions of different files can both write to an empty level without removing a common file.

    Args:
        changes: the files that the change adds and removes.
        live: the live files.
        key_types: the types of the key columns.

    Raises:
        ConflictError: names the level and a file; nothing was changed.
    """
    added = [entry for entry in changes if entry.kind == ADD and entry.file.level > 0]
    if not added:
        return
    removed = {entry.identity for entry in changes if entry.kind != ADD}
    for partition, bucket, level in {(e.partition, e.bucket, e.file.level) for e in added}:
        there = live.buckets.get((partition, bucket))
        files = [e.file for e in added if (e.partition, e.bucket, e.file.level) == (partition, bucket, level)]
        if there is not None:
            files += [e.file for e in there.entries if e.file.level == level and e.identity not in removed]
        ranges = sorted(
            tuple(sort_key(deserialize(key, key_types), key_types) for key in (file.min_key, file.max_key))
            for file in files
        )
        if any(low <= before for (_, before), (low, _) in pairwise(ranges)):
            raise ConflictError(
                f"cannot commit to '{table}': another commit up to snapshot {snapshot} added files to level {level} of "
                f"bucket {bucket} whose keys overlap the files of this change. Nothing was changed. Plan the change "
                f"again from snapshot {snapshot}.",
                table=table,
                snapshot=snapshot,
            )


def check_none_waits(changes: Sequence[ManifestEntry], live: LiveFiles, *, table: str, snapshot: int) -> None:
    """Refuse a compaction that merges rows of level 0 and leaves newer ones there.

    It is for tables in which a row depends on what was merged first: without the newer rows, the compaction would
    change what their commits have published.

    Args:
        changes: the files that the compaction adds and removes.
        live: the live files.

    Raises:
        ConflictError: names a file; nothing was changed.
    """
    removed = {entry.identity for entry in changes if entry.kind != ADD}
    for bucket in {(entry.partition, entry.bucket) for entry in changes if entry.kind != ADD and not entry.file.level}:
        there = live.buckets.get(bucket)
        for entry in () if there is None else there.entries:
            if entry.file.level == 0 and entry.identity not in removed:
                raise ConflictError(
                    f"cannot commit to '{table}': another commit up to snapshot {snapshot} added rows to bucket "
                    f"{bucket[1]} (first file: '{entry.file.name}'), and rows of this table depend on what is merged "
                    f"first. Nothing was changed. Plan the change again from snapshot {snapshot}.",
                    table=table,
                    snapshot=snapshot,
                    file=entry.file.name,
                )


def check_index(
    changes: Sequence[ManifestEntry],
    removed: Sequence[IndexEntry],
    added: Sequence[IndexEntry],
    index: Sequence[IndexEntry],
    live: LiveFiles,
    *,
    one_per_bucket: bool,
    table: str,
    snapshot: int,
) -> None:
    """Refuse a change that was planned on other index files than the live ones: rows would come back or vanish.

    The index files that a change removes must be live. A change may not replace an index file that it does not name:
    a HASH index that replaced another one unseen would lose the buckets of keys. A change that removes a data file
    also removes its deletion vector. A new deletion vector must be the only one of its data file, and that data file
    must stay live.

    Args:
        changes: the data files that the change adds and removes.
        removed, added: the index files that the change removes and adds.
        index, live: the live index files and data files.
        one_per_bucket: a file of deletion vectors replaces the earlier one of its bucket.
        snapshot: the snapshot that the change would follow.

    Raises:
        ConflictError: names a file; nothing was changed.
    """
    known = {entry.identity for entry in index}
    for entry in removed:
        if entry.identity not in known:
            raise _other_index(table, entry, snapshot)
    gone = {entry.identity for entry in removed}
    places = {entry.place for entry in added if stands_alone(entry, one_per_bucket=one_per_bucket)}
    for entry in index:
        if entry.place in places and entry.identity not in gone:
            raise _other_index(table, entry, snapshot)
    files_gone = {(e.partition, e.bucket, e.file.name) for e in changes if e.kind != ADD}
    files_added = {(e.partition, e.bucket, e.file.name) for e in changes if e.kind == ADD}
    buckets = {file[:2] for file in files_gone} | {(entry.partition, entry.bucket) for entry in (*removed, *added)}
    there = {
        (*bucket, entry.file.name)
        for bucket in {(entry.partition, entry.bucket) for entry in added}
        if bucket in live.buckets
        for entry in live.buckets[bucket].entries
    }
    there = (there - files_gone) | files_added
    new = {entry.identity for entry in added}
    seen: dict[tuple[bytes, int, str], bool] = {}
    for entry in combined(index, removed=removed, added=added, one_per_bucket=one_per_bucket):
        if entry.index_type != DELETION_VECTORS or (entry.partition, entry.bucket) not in buckets:
            continue
        ours = entry.identity in new
        for vector in entry.vectors:
            file = (entry.partition, entry.bucket, vector.data_file)
            lost = file in files_gone and file not in files_added
            twice = file in seen and (ours or seen[file])
            if lost or twice or (ours and file not in there):
                raise _other_vectors(table, vector.data_file, entry.bucket, snapshot)
            seen[file] = ours


def check_keys(messages: Sequence[CommitMessage], index: Callable[[], Sequence[IndexEntry]], *, table: str) -> None:
    """Refuse rows whose buckets were chosen by other index files than the live ones: a key might get two buckets.

    Args:
        messages: of the change, after its keys have joined those of the newest state as far as they can; messages
            whose buckets no index has chosen are left alone.
        index: returns the live index files.

    Raises:
        ConflictError: another commit has given a new key another bucket, or has replaced the keys of a partition.
            Nothing was changed. `context["partitions"]` says of how many partitions.
    """
    asked: dict[bytes, set[frozenset[str]]] = {}
    for message in messages:
        if message.keys is not None:
            asked.setdefault(message.partition, set()).add(message.keys)
    if not asked:
        return
    live: dict[bytes, set[str]] = {partition: set() for partition in asked}
    for entry in index():
        if entry.index_type == HASH and entry.partition in live:
            live[entry.partition].add(entry.name)
    changed = sum(names != {frozenset(live[partition])} for partition, names in asked.items())
    if changed:
        raise ConflictError(
            f"cannot commit to '{table}': in {changed} of the {len(asked)} partitions of this change another commit "
            "gave one of its new keys another bucket, or replaced the keys that it relied on. Nothing was changed. "
            "Write the rows again. If several jobs write the same new keys at the same time, set 'bucket' to a number "
            "in a new table.",
            overtaken=Overtaken.BUCKETS,
            table=table,
            partitions=changed,
        )


def rows_version(newest_first: Iterator[Snapshot]) -> tuple[str, Snapshot | None]:
    """Return a text that names the rows of a state, and the commit that changed rows last, if it is still there.

    Args:
        newest_first: the snapshots from that of the state downwards; those above the version are taken.
    """
    version = ""
    for snapshot in newest_first:
        version = snapshot.base_manifest_list  # each attempt has another one
        if snapshot.commit_kind in (APPEND, OVERWRITE):
            return version, snapshot
    return version, None


def _same_rows(newest_first: Iterator[Snapshot]) -> set[str]:
    """Return all texts by which `rows_version` may have named these rows: what changed them last may have expired."""
    names = set[str]()
    for snapshot in newest_first:
        names.add(snapshot.base_manifest_list)
        if snapshot.commit_kind in (APPEND, OVERWRITE):
            break
    return names or {""}


def check_after(
    messages: Sequence[CommitMessage], newest_first: Callable[[], Iterator[Snapshot]], *, table: str
) -> None:
    """Refuse rows whose partitions were chosen by other rows than those of the table: a key might get two rows.

    Args:
        messages: of the change; those whose places depend on no rows are left alone.
        newest_first: returns the snapshots from the newest downwards.

    Raises:
        ConflictError: another commit has changed rows. Nothing was changed.
    """
    asked = {message.after for message in messages if message.after is not None}
    if not asked or (len(asked) == 1 and asked <= _same_rows(newest_first())):
        return
    raise ConflictError(
        f"cannot commit to '{table}': another writer has changed rows since this change began, and keys of this table "
        "may move between partitions. Nothing was changed. Write the rows again. Let one job at a time write to such "
        "a table, or add the partition columns to the primary key in a new one.",
        table=table,
    )


def _other_index(table: str, entry: IndexEntry, snapshot: int) -> ConflictError:
    if entry.index_type == DELETION_VECTORS:
        return _other_vectors(table, entry.name, entry.bucket, snapshot)
    return ConflictError(
        f"cannot commit to '{table}': another commit up to snapshot {snapshot} changed the {entry.index_type} index "
        f"of bucket {entry.bucket} (first: '{entry.name}'). Nothing was changed. Plan the change again from snapshot "
        f"{snapshot}.",
        table=table,
        snapshot=snapshot,
        file=entry.name,
    )


def _other_vectors(table: str, name: str, bucket: int, snapshot: int) -> ConflictError:
    return ConflictError(
        f"cannot commit to '{table}': another commit up to snapshot {snapshot} changed the deleted rows of bucket "
        f"{bucket} (first: '{name}'). Nothing was changed. Plan the change again from snapshot {snapshot}.",
        table=table,
        snapshot=snapshot,
        overtaken=Overtaken.FILES,
        file=name,
        replaced=name,
    )


def already_there(table: str, file: str) -> ConflictError:
    """Return the refusal of a change whose new files are live: it was committed before.

    Args:
        file: the name of one of them, as the change has it.
    """
    return ConflictError(
        f"cannot commit to '{table}': the table already holds the files of this change, or the change removes a file "
        f"twice (first: '{file}'). Nothing was changed. These rows are committed; do not repeat them.",
        table=table,
        file=file,
    )


class Totals(Protocol):
    """The numbers of buckets with which files were written."""

    def other_total(self, partition: bytes, total: int) -> int | None:
        """Return a number of buckets other than `total` that a partition has files of; None if there is none."""


def check_total_buckets(
    changes: Sequence[ManifestEntry], live: Totals, *, table: str, snapshot: int | None = None, overtaken: bool = False
) -> None:
    """Refuse rows hashed over another number of buckets than the files of their partition.

    Args:
        changes: the files to add.
        live: the bucket numbers of the live files.
        table: the name of the table, for messages.
        snapshot: at a commit, the snapshot that the commit would follow. Writers also check before they write, so a
            difference found here came from a commit since. None: the writer has not written the rows yet.
        overtaken: the number of the writer was that of the table when it began, and is no longer.

    Raises:
        InvalidInputError: the writer goes by a number of its own, or the partition has one; names both numbers.
        ConflictError: the number was right when the writer began; nothing was changed.
    """
    wanted = {
        entry.partition: entry.total_buckets for entry in changes if entry.kind == ADD and entry.total_buckets > 0
    }
    for partition, total in wanted.items():
        other = live.other_total(partition, total)
        if other is not None:
            if snapshot is not None:
                raise ConflictError(
                    f"cannot commit to '{table}': the rows were written into {total} buckets, and another commit up "
                    f"to snapshot {snapshot} moved their partition to {other}. Nothing was changed. Open the table "
                    "again and repeat the write.",
                    overtaken=Overtaken.BUCKETS,
                    table=table,
                    snapshot=snapshot,
                    buckets=other,
                )
            if overtaken:
                raise ConflictError(
                    f"cannot write to '{table}': this writer began with {total} buckets, and another job has moved a "
                    f"partition of its rows to {other} since. Nothing was written. Open the table again and repeat the "
                    "write.",
                    overtaken=Overtaken.BUCKETS,
                    table=table,
                    buckets=other,
                )
            raise InvalidInputError(
                f"cannot write to '{table}': a partition of the rows has files of {other} buckets, and this write goes "
                f"by 'bucket' = '{total}'. Nothing was written. Replace the partition with overwrite=, or move its "
                f"rows to {total} buckets: Table.rescale, ms.rescale or `merganser rescale {table} {total}`.",
                table=table,
                buckets=other,
            )


def check_new_partitions(
    changes: Sequence[ManifestEntry],
    live: LiveFiles,
    numbers: Callable[[], Sequence[int]],
    *,
    table: str,
    snapshot: int,
) -> None:
    """Refuse rows of new partitions if the table had their number of buckets, and has another one by now.

    A rescale moves the partitions that it finds. A writer that began before it, and commits after it, would leave one
    that nobody can add to. An overwrite makes its partitions new.

    Args:
        changes: the files to add.
        live: the live files that stay.
        numbers: returns the option `bucket` of the schema that the writer began with, and of all later ones.
        table: the name of the table, for messages.
        snapshot: the snapshot that the commit would follow.

    Raises:
        ConflictError: nothing was changed.
    """
    added = {entry.partition: entry.total_buckets for entry in changes if entry.kind == ADD and entry.total_buckets > 0}
    new = {
        total
        for partition, total in added.items()
        if not any((partition, bucket) in live.buckets for bucket in range(total))
    }
    if not new:
        return
    first, *later = numbers()
    other = later[-1] if later else first
    overtaken = sorted((new - {other}) & {first, *later})
    if overtaken:
        raise ConflictError(
            f"cannot commit to '{table}': the rows were written into {overtaken[0]} buckets, and another job has given "
            f"the table {other} since. Nothing was changed. Open the table again and repeat the write.",
            overtaken=Overtaken.BUCKETS,
            table=table,
            snapshot=snapshot,
            buckets=other,
        )


def check_undisturbed(
    since: Iterable[Snapshot],
    delta: Callable[[Snapshot], Iterable[ManifestEntry]],
    *,
    safe: int,
    commit_user: str,
    table: str,
) -> None:
    """Refuse a commit after conflicting commits of other users (strict mode).

    Compactions, overwrites, and appends to fixed buckets conflict. Other appends do not.

    Args:
        since: the snapshots from the newest downwards; the check reads them as far as `safe`.
        delta: returns the entries of a snapshot's own commit.
        safe: the last snapshot that needs no check (`commit.strict-mode.last-safe-snapshot`).
        commit_user: commits of this user do not conflict.
        table: the name of the table, for messages.

    Raises:
        ConflictError: names the first conflicting snapshot, or the snapshots that have expired; nothing was changed.
    """
    above = None
    for snapshot in since:
        if snapshot.id <= safe:
            return
        above = snapshot.id
        if snapshot.commit_user == commit_user:
            continue
        fixed = snapshot.commit_kind == APPEND and any(e.total_buckets > 0 and e.bucket >= 0 for e in delta(snapshot))
        if fixed or snapshot.commit_kind in (COMPACT, OVERWRITE):
            raise _disturbed(
                f"snapshot {snapshot.id} ({snapshot.commit_kind}{' to fixed buckets' if fixed else ''}) of commit user "
                f"'{snapshot.commit_user}' came",
                safe=safe,
                snapshot=snapshot.id,
                table=table,
            )
    if above is not None and above > safe + 1:
        raise _disturbed(
            f"snapshots {safe + 1} to {above - 1} cannot be checked, since they have expired; they came",
            safe=safe,
            snapshot=above,
            table=table,
        )


@dataclass(frozen=True, slots=True)
class Reads:
    """What a change was made from.

    Attributes:
        snapshot: the state that was read; None: the table had no snapshot.
        buckets: the buckets that were read. A bucket without files counts too: rows may come.
        partitions: the partitions that were read, with all their buckets.
        covers: says of a data file that came or went whether it may hold rows that were read or looked for; None: no
            other files count than those of the buckets and partitions.
        marks: which rows are marked as deleted was read, too.
    """

    snapshot: Snapshot | None
    buckets: frozenset[BucketId] = frozenset()
    partitions: frozenset[bytes] = frozenset()
    covers: Callable[[ManifestEntry], bool] | None = None
    marks: bool = False

    def joined(self, other: Reads) -> Reads:
        """Return what this and another part of the same state have read, where the other names buckets."""
        return replace(self, buckets=self.buckets | other.buckets, partitions=self.partitions | other.partitions)

    def touched_by(self, entry: ManifestEntry) -> bool:
        """Return whether a data file that came or went may change what was read."""
        if entry.partition in self.partitions or (entry.partition, entry.bucket) in self.buckets:
            return True
        return self.covers is not None and self.covers(entry)


def check_reads(
    reads: Reads,
    since: Iterable[Snapshot],
    delta: Callable[[Snapshot], Iterable[ManifestEntry]],
    *,
    table: str,
    by: Overtaken = Overtaken.ROWS,
) -> None:
    """Refuse a change that was made from rows which another commit has changed since.

    Appends and overwrites of a bucket that was read conflict. Compactions do not: they change no rows.

    Args:
        since: the snapshots from the newest downwards; the check reads them as far as the state that was read.
        delta: returns the entries of a snapshot's own commit.
        table: the name of the table, for messages.
        by: ROWS if the change read them, QUERY if a query did that gave the change its rows.

    Raises:
        ConflictError: another commit changed a bucket, or that cannot be ruled out, since snapshots have expired or
            the table was rolled back. Nothing was changed. `overtaken` is `by`.
    """
    read_id = 0 if reads.snapshot is None else reads.snapshot.id
    found: Snapshot | None = None
    above: Snapshot | None = None
    lowest = 1
    for snapshot in since:
        marked = above is not None and above.commit_kind != COMPACT and above.index_manifest != snapshot.index_manifest
        if reads.marks and above is not None and marked:
            raise _read_before(
                f"snapshot {above.id} of commit user '{above.commit_user}' marked rows as deleted", table, read_id, by
            )
        above = snapshot
        if snapshot.id <= read_id:
            found = snapshot
            break
        lowest = snapshot.id
        if snapshot.commit_kind == COMPACT:
            continue
        for entry in delta(snapshot):
            if reads.touched_by(entry):
                raise _read_before(
                    f"snapshot {snapshot.id} of commit user '{snapshot.commit_user}' changed bucket {entry.bucket}",
                    table,
                    read_id,
                    by,
                )
    if reads.snapshot is None:
        if lowest > 1:
            raise _read_before(f"snapshots below {lowest} have expired", table, read_id, by)
    elif found is None or not same_snapshot(found, reads.snapshot):
        raise _read_before(f"snapshot {read_id} has expired or was rolled back", table, read_id, by)


def _read_before(what: str, table: str, read_id: int, by: Overtaken) -> ConflictError:
    return ConflictError(
        f"cannot commit to '{table}': {what} after this change was made from snapshot {read_id}. Nothing was changed. "
        "Make the change again from the newest snapshot.",
        overtaken=by,
        table=table,
        read=read_id,
    )


def _disturbed(what: str, *, safe: int, snapshot: int, table: str) -> ConflictError:
    return ConflictError(
        f"cannot commit to '{table}': {what} after snapshot {safe}, the last that is safe by "
        "'commit.strict-mode.last-safe-snapshot'. Nothing was changed. Look at the changes since, then write again "
        "with a later snapshot as the last safe one.",
        table=table,
        snapshot=snapshot,
    )
