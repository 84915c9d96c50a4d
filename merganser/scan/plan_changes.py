"""What a read of changes has to read: the files that snapshots published, or those in which two states differ.

| the table has | a snapshot published |
|---|---|
| a changelog producer | the rows of its changelog files; of an overwrite what it replaced (`scan.overwrites`) |
| none | the rows of the files that its commit added; compactions and overwrites publish none |

Nothing is merged: a key may come several times, once for each commit, and with old values only if a producer gives
them. Rows of a snapshot come bucket by bucket, and those of a bucket in the order of its files. Where keys move between
partitions, they come in phases, so that a key leaves its old bucket before it comes to the new one (`scan.phases`).

Format: sections "changelog files", "changelog lifecycle". Semantics: "incremental".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import Final

from merganser.errors import ExpiredError, FormatError, InvalidInputError, NotFoundError
from merganser.expr.predicate import Predicate
from merganser.files.read import FileToRead, is_small
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.erased import erasure_of
from merganser.meta.followed import check_key, columns_of
from merganser.meta.kept import is_kept
from merganser.meta.live_files import BucketId
from merganser.meta.snapshot import APPEND, OVERWRITE, Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.meta.tracking import left_out
from merganser.options import read as r
from merganser.options import write as w
from merganser.rules.gaps import check_can_read
from merganser.scan.forms import LOG_OFFSET, OFFSETS_PER_SNAPSHOT, WHOLE_CHANGES, WITH_OFFSETS, single_rows
from merganser.scan.gaps import gap_of, refusal, tracked
from merganser.scan.ordered_splits import are_ordered, groups_of
from merganser.scan.overwrites import is_replaced, plan_overwrite, why_unknown
from merganser.scan.phases import may_retract
from merganser.scan.plan import Plan, by_stats, partition_filter, partitions_through
from merganser.scan.plan_diff import plan_diff
from merganser.scan.rows import counted
from merganser.scan.source import NOTHING_CHANGED, Difference, Increment, Published
from merganser.scan.split import DiffSplit, Origin, Phase, PublishedSplit, ReadJob, What
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.storage.paths import join

_Group = list[tuple[FileToRead, Origin]]
_TOGETHER: Final = 512
"""So many small files are read at once."""


def plan_changes(
    table: TableDef,
    env: Env,
    source: Increment,
    *,
    columns: Sequence[t.Field],
    where: Predicate | None,
    what: What = What.CHANGED,
) -> Plan:
    """Return the splits that may hold changes of the filter, in the order of the changes.

    Raises:
        ExpiredError: a snapshot of the range is not kept any more, and neither is its changelog.
        NotFoundError: there is no such snapshot yet.
        InvalidInputError: changelog files are asked for, and the table has none.
        FormatError: metadata is damaged or missing.
    """
    asked = ReadJob(table, tuple(columns), where, {}, what)
    states = source != NOTHING_CHANGED and (isinstance(source, Difference) or source.mode == "diff")
    if states and what in WITH_OFFSETS:
        raise InvalidInputError(
            f"cannot read the changes of '{table.name}' with '{LOG_OFFSET.name}': what differs between two states was "
            "not published, so it has no offsets. Nothing was read. Read 'delta' or 'changelog' between snapshots, or "
            "the differences from the table or its '$audit_log'.",
            table=table.name,
        )
    job = single_rows(asked, DiffSplit if states else PublishedSplit) if what in WHOLE_CHANGES else asked
    found = _planned(table, env, source, job, whole=what in WHOLE_CHANGES)
    job = replace(found.job, columns=asked.columns, where=asked.where, what=asked.what)
    return replace(found, job=job)


def _planned(table: TableDef, env: Env, source: Increment, job: ReadJob, *, whole: bool) -> Plan:
    if source == NOTHING_CHANGED:
        return Plan(None, job, (), notes=(("snapshots", "none: the range is empty"),))
    with unless_gone(table, env, source, job.where):
        if isinstance(source, Difference):
            return _differing(table, env, source, job)
        if source.mode == "diff":
            return _differing(table, env, _difference(table, env, source), job)
        return _published(table, env, source, job, whole=whole)


def _differing(table: TableDef, env: Env, source: Difference, job: ReadJob) -> Plan:
    plan = plan_diff(table, env, source, job)
    return replace(plan, snapshot=source.after, groups=(plan.splits,) if are_ordered(table, plan.splits) else ())


@contextmanager
def unless_gone(
    table: TableDef, env: Env, source: Increment, where: Predicate | None, planned: Snapshot | None = None
) -> Iterator[None]:
    """Say that snapshots have expired, where that is why one of their files is missing.

    Args:
        where: the filter of the read.
        planned: the later one of two states that are compared, as the plan fixed it; None: the source says it.

    Raises:
        ExpiredError: they were removed while they were read.
    """
    try:
        yield
    except FormatError as error:
        if isinstance(error.__cause__, NotFoundError):
            _check_kept(table, env, source, where, planned)
        raise


def explained(name: str, plan: Plan) -> str:
    """Return what a plan of changes reads, line by line."""
    splits = plan.splits
    where = plan.job.where
    return "\n".join(
        [
            f"table      {name}",
            *(f"{title:<11}{text}" for title, text in plan.notes),
            f"filter     {where if where is not None else 'none'}",
            f"read       {sum(split.size_bytes for split in splits):,} bytes in "
            f"{counted(sum(len(split.files) for split in splits), 'file')}, "
            f"{counted(sum(split.rows for split in splits), 'row')} stored",
        ]
    )


def _check_kept(
    table: TableDef, env: Env, source: Increment, where: Predicate | None, planned: Snapshot | None
) -> None:
    if isinstance(source, Difference) or source.mode == "diff":
        ends = source if isinstance(source, Difference) else _difference(table, env, source)
        for snapshot in (ends.before, planned or ends.after):
            if snapshot is not None and not is_kept(table, env, snapshot):
                raise _not_kept(table, env, snapshot.id)
        return
    changelog = from_changelog(table, source)
    snapshots, _ = _snapshots(table, env, source, changelog=changelog)
    for snapshot in snapshots:
        if changelog and is_replaced(table, snapshot) and why_unknown(table, env, snapshot):
            _refuse_gap(table, env, snapshot, where)


def _refuse_gap(table: TableDef, env: Env, snapshot: Snapshot, where: Predicate | None) -> None:
    """Refuse an overwrite that is a gap, unless the filter leaves out its partitions.

    Raises:
        UntrackedError: names the partitions.
    """
    partitions = gap_of(table, env, snapshot, where, changelog=True)
    if partitions != frozenset():
        action = f"cannot read the changes of '{table.name}'"
        raise refusal(table, env, action, snapshot, partitions, following=False)


def _not_kept(table: TableDef, env: Env, number: int) -> ExpiredError:
    erasure = erasure_of(table.paths, env, number)
    why, advice = f"{erasure} ended snapshot {number}", "Compare later ones."
    if erasure is None:
        why = f"snapshot {number} has expired"
        advice = (
            "Tags keep snapshots, and 'snapshot.time-retained' or 'snapshot.num-retained.min' keep them for longer."
        )
    return ExpiredError(
        f"cannot compare two states of '{table.name}': {why}. Nothing more was read. {advice}",
        table=table.name,
        snapshot=number,
    )


def _difference(table: TableDef, env: Env, source: Published) -> Difference:
    """Return the states before and after some snapshots."""
    store = SnapshotStore(table.paths, env, table.name)
    end = store.latest() if source.last is None else store.load(source.last) if source.last else None
    last = 0 if end is None else end.id
    if source.first > last + 1:
        raise NotFoundError(
            f"cannot read the changes of '{table.name}': they would start with snapshot {source.first} and end with "
            f"{last}. Nothing was read. Wait until more is committed, or start earlier.",
            table=table.name,
            snapshot=source.first,
        )
    return Difference(store.load(source.first - 1) if source.first > 1 else None, end)


def gaps_in(
    table: TableDef, env: Env, source: Increment, where: Predicate | None
) -> dict[int, frozenset[bytes] | None]:
    """Return the gaps among some snapshots: ids, and the serialized partitions; see `gap_of`."""
    if isinstance(source, Difference) or source.mode == "diff":
        return {}
    changelog = from_changelog(table, source)
    snapshots, _ = _snapshots(table, env, source, changelog=changelog)
    return _gaps(table, env, snapshots, where, changelog=changelog)


def _gaps(
    table: TableDef, env: Env, snapshots: Sequence[Snapshot], where: Predicate | None, *, changelog: bool
) -> dict[int, frozenset[bytes] | None]:
    found = {one.id: gap_of(table, env, one, where, changelog=changelog) for one in snapshots}
    return {number: partitions for number, partitions in found.items() if partitions is None or partitions}


def from_changelog(table: TableDef, source: Published) -> bool:
    """Return whether changelog files are read, and not the files that commits added."""
    producer = table.options.get(w.CHANGELOG_PRODUCER)
    return source.mode == "changelog" or (source.mode == "auto" and producer != "none")


def _published(table: TableDef, env: Env, source: Published, job: ReadJob, *, whole: bool) -> Plan:
    """Return the files of some snapshots.

    Args:
        whole: the files of a bucket and a snapshot stay together, since a change may lie in two of them.
    """
    check_can_read(replace(table.schema, options=table.options), name=table.name, merge=False)
    changelog = from_changelog(table, source)
    snapshots, end = _snapshots(table, env, source, changelog=changelog)
    refuses = table.options.get(r.CHANGE_TRACKING_GAPS) == "error"
    if refuses and (gaps := _gaps(table, env, snapshots, job.where, changelog=changelog)):
        number, partitions = next(iter(gaps.items()))
        (snapshot,) = (one for one in snapshots if one.id == number)
        action = f"cannot read the changes of '{table.name}'"
        raise refusal(table, env, action, snapshot, partitions, following=False)
    chosen = [one for one in snapshots if _publishes(one, changelog=changelog)]
    if changelog and not chosen and snapshots and table.options.get(w.CHANGELOG_PRODUCER) == "none":
        raise InvalidInputError(
            f"cannot read the changelog of '{table.name}': its 'changelog-producer' is 'none', and snapshots "
            f"{source.first} to {end} have no changelog files. Nothing was read. Use 'delta', the rows that "
            "commits added, or 'diff', what changed in all.",
            table=table.name,
        )
    splits: list[PublishedSplit | DiffSplit] = []
    waiting: list[_Group] = []
    bucket_counts: dict[bytes, set[int]] = {}  # by partition
    reassigned: set[bytes] = set()
    published = 0
    every = _added(table, env, chosen, changelog=changelog)
    for snapshot in snapshots:
        if changelog and is_replaced(table, snapshot):
            if why_unknown(table, env, snapshot) is None:
                states, replaced = plan_overwrite(table, env, snapshot, job)
                splits += [*_parted(waiting, keyed=table.keyed, whole=whole), *replaced]
                for entry in MetaReader(table.paths, env, table.name).delta(snapshot):
                    bucket_counts.setdefault(entry.partition, set()).add(entry.total_buckets)
                    if table.assigns_keys:
                        reassigned.add(entry.partition)
                waiting = []
                schemas = {**job.schemas, **states.schemas}
                job = replace(job, table=states.table, schemas=schemas, key_filter=states.key_filter)
                published += bool(replaced)
            elif refuses:  # it may have become one since
                _refuse_gap(table, env, snapshot, job.where)
        if not _publishes(snapshot, changelog=changelog):
            continue
        added = next(every)
        published += bool(added)
        for entry in added:
            bucket_counts.setdefault(entry.partition, set()).add(entry.total_buckets)
        groups = _groups(table, env, job, snapshot, added)
        if not _come_in_phases(table, groups):
            waiting += groups
            continue
        splits += _parted(waiting, keyed=table.keyed, whole=whole)
        waiting = []
        splits += _in_phases(table, groups)
        if len(splits) > 1 and (one := _joined(*splits[-2:])) is not None:
            splits[-2:] = [one]
    splits += _parted(waiting, keyed=table.keyed, whole=whole)
    notes = (
        ("snapshots", f"{source.first} to {end}, {counted(published, 'snapshot')} with changes"),
        ("from", "changelog files" if changelog else "the files that commits added"),
    )
    reassigned.update(partition for partition, counts in bucket_counts.items() if len(counts) > 1)
    return Plan(None, job, tuple(splits), notes=notes, groups=groups_of(table, splits, reassigned))


def published_files(
    table: TableDef,
    env: Env,
    number: int,
    *,
    columns: Sequence[t.Field],
    where: Predicate | None,
    what: What,
    by_bucket: bool = False,
) -> list[tuple[str, int, PublishedSplit | None]]:
    """Return the files that a snapshot published, by the smallest portions that can be read by themselves.

    Which portions there are, and their order, does not depend on the filter.

    Args:
        by_bucket: each portion is of one bucket; else it may be of several, where keys move between them. Then there
            are two of a bucket: first the rows that go (`Phase.GOING`), if there may be some, then the others.

    Returns:
        The directory of the bucket, or of one of them; over how many buckets the keys of its partition were spread, as
        files say it; and a file as a split, or several if a change may lie in two. None in place of files that hold no
        rows of the filter.

    Raises:
        ExpiredError: the snapshot is not kept any more, and neither is its changelog.
        FormatError: metadata is damaged or missing.
    """
    check_can_read(replace(table.schema, options=table.options), name=table.name, merge=False)
    source = Published(number, number)
    with unless_gone(table, env, source, None if what in WHOLE_CHANGES else where):
        snapshots, _ = _snapshots(table, env, source, changelog=from_changelog(table, source))
        (snapshot,) = snapshots
        return files_published_by(table, env, snapshot, columns=columns, where=where, what=what, by_bucket=by_bucket)


def files_published_by(
    table: TableDef,
    env: Env,
    snapshot: Snapshot,
    *,
    columns: Sequence[t.Field],
    where: Predicate | None,
    what: What,
    by_bucket: bool = False,
) -> list[tuple[str, int, PublishedSplit | None]]:
    """Return the files that a snapshot publishes, which may be about to be created; otherwise as `published_files`."""
    changelog = from_changelog(table, Published(snapshot.id, snapshot.id))
    if not _publishes(snapshot, changelog=changelog):
        return []
    (added,) = _added(table, env, [snapshot], changelog=changelog)
    every = ReadJob(table, tuple(columns), None, {}, what)
    groups = _groups(table, env, every, snapshot, added)
    places = {
        entry.file.name: (table.bucket_directory(entry.partition, entry.bucket), entry.total_buckets) for entry in added
    }
    kept = {id(target.file) for group in groups for target, _ in group}
    if where is not None and what not in WHOLE_CHANGES:
        found = _groups(table, env, replace(every, where=where), snapshot, added)
        kept = {id(target.file) for group in found for target, _ in group}
    if _come_in_phases(table, groups):
        portions = _bucket_by_bucket(table, groups) if by_bucket else _in_phases(table, groups)
    else:
        if what not in WHOLE_CHANGES:
            groups = [[each] for group in groups for each in group]
        portions = [_split(group) for group in groups]
    return [
        (
            *places[portion.targets[0].file.name],
            portion if any(id(target.file) in kept for target in portion.targets) else None,
        )
        for portion in portions
    ]


def _publishes(snapshot: Snapshot, *, changelog: bool) -> bool:
    """Return whether a snapshot may have published rows."""
    if changelog:
        return snapshot.commit_kind != OVERWRITE and bool(snapshot.changelog_manifest_list)
    return snapshot.commit_kind == APPEND


def _added(
    table: TableDef, env: Env, snapshots: Sequence[Snapshot], *, changelog: bool
) -> Iterator[list[ManifestEntry]]:  # fmt: skip
    """Yield the changelog files of each snapshot, or the data files that it added, but for what it left out."""
    reader = MetaReader(table.paths, env, table.name)
    lists = reader.changelog_lists(snapshots) if changelog else reader.delta_lists(snapshots)
    entries = iter(reader.entries_of_each([manifest for manifests in lists for manifest in manifests]))
    for snapshot, manifests in zip(snapshots, lists, strict=True):
        added = [entry for _ in manifests for entry in next(entries) if entry.kind == ADD]
        yield added if changelog else tracked(added, left_out(snapshot))


def _snapshots(table: TableDef, env: Env, source: Published, *, changelog: bool) -> tuple[list[Snapshot], int]:
    """Return the snapshots of the range, and its end.

    Args:
        changelog: whether their changelog files are wanted, and not their data files.
    """
    name = table.name
    store = SnapshotStore(table.paths, env, name)
    latest = store.latest()
    newest = 0 if latest is None else latest.id
    end = newest if source.last is None else source.last
    if end > newest:
        raise NotFoundError(
            f"cannot read the changes of '{name}': snapshot {end} is not there yet, the newest is {newest}. "
            "Nothing was read. Leave end out to read up to the newest.",
            table=name,
            snapshot=end,
        )
    if source.first > end + 1:
        raise NotFoundError(
            f"cannot read the changes of '{name}': they would start with snapshot {source.first} and end with "
            f"{end}. Nothing was read. Wait until more is committed, or start earlier.",
            table=name,
            snapshot=source.first,
        )
    ids = range(source.first, end + 1)
    changelogs = ChangelogStore(table.paths, env)
    outlive = changelog or table.options.get(w.CHANGELOG_PRODUCER) == "none"  # else changelog files alone are kept
    found: list[Snapshot] = []
    for number, one in zip(ids, env.fetch(store.get, ids), strict=True):
        kept = one if one is not None else changelogs.get(number) if outlive else None
        if kept is None:
            there = [*store.ids(), *(changelogs.ids() if outlive else [])]
            raise _expired(table, env, number, min((each for each in there if each > number), default=end))
        found.append(kept)
    check_key(table, env, found, f"cannot read the changes of '{name}'")
    return found, end


def _expired(table: TableDef, env: Env, number: int, earliest: int) -> ExpiredError:
    erasure = erasure_of(table.paths, env, number)
    why, longer = f"{erasure} ended snapshot {number}", ""
    if erasure is None:
        why = f"snapshot {number} has expired"
        longer = ", and raise 'changelog.time-retained' or 'snapshot.time-retained' to keep changes for longer"
    return ExpiredError(
        f"cannot read the changes of '{table.name}': {why}. The table keeps the changes from snapshot {earliest} on. "
        f"Nothing was read. Start there after a read of that snapshot{longer}.",
        table=table.name,
        snapshot=number,
        earliest=earliest,
    )


def _groups(
    table: TableDef,
    env: Env,
    job: ReadJob,
    snapshot: Snapshot,
    entries: Sequence[ManifestEntry],
) -> list[_Group]:
    """Return the files of a snapshot that may hold rows of the filter, bucket by bucket."""
    where = job.where
    origins = _origins(snapshot, entries)
    through = partitions_through(table, {entry.partition for entry in entries}, partition_filter(table, where))
    entries = [entry for entry in entries if entry.partition in through]
    if where is not None and where.columns <= {field.name for field in table.schema.fields}:
        kept = by_stats(table, list(entries), where)
        if table.moves_keys:  # the rows of a key say together in which phases they come
            mixed = {(e.partition, e.bucket) for e in entries if may_retract(table, e.file)}
            some = {(e.partition, e.bucket) for e in kept} & mixed
            names = {e.file.name for e in kept}
            kept = [e for e in entries if (e.partition, e.bucket) in some or e.file.name in names]
        entries = kept
    schemas = columns_of(table, env, (entry.file.schema_id for entry in entries))
    groups: list[_Group] = []
    for (partition, bucket), group in groupby(entries, key=lambda entry: (entry.partition, entry.bucket)):
        directory, constants = table.bucket_directory(partition, bucket), table.partition_values(partition)
        groups.append([])
        for entry in group:
            file = entry.file
            path = file.external_path or join(directory, file.name)
            target = FileToRead(path, file, schemas[file.schema_id], table.schema.id, constants=constants)
            groups[-1].append((target, origins[file.name]))
    return groups


def _origins(snapshot: Snapshot, entries: Sequence[ManifestEntry]) -> dict[str, Origin]:
    """Return where the rows of all files of a snapshot come from, by file: rows are counted bucket by bucket."""
    counted: dict[BucketId, int] = {}
    numbers: dict[BucketId, int] = {}
    found: dict[str, Origin] = {}
    for entry in entries:
        bucket = (entry.partition, entry.bucket)
        before = counted.get(bucket, 0)
        place = numbers.setdefault(bucket, len(numbers))
        offset = snapshot.id * OFFSETS_PER_SNAPSHOT + before
        found[entry.file.name] = Origin(snapshot.id, place, offset, snapshot.time_millis)
        counted[bucket] = before + entry.file.row_count
    return found


def _come_in_phases(table: TableDef, groups: Sequence[_Group]) -> bool:
    """Return whether keys may have moved between the buckets of a snapshot."""
    if not table.moves_keys or len({origin.place for group in groups for _, origin in group}) < 2:
        return False
    return any(may_retract(table, target.file) for group in groups for target, _ in group)


def _in_phases(table: TableDef, groups: Sequence[_Group]) -> list[PublishedSplit]:
    """Return the files of a snapshot as splits whose rows come in phases."""
    every = [each for group in groups for each in group]
    if len(every) <= _TOGETHER and all(is_small(target.file) for target, _ in every):
        return [_split(every, Phase.IN_PHASES)]
    mixed: list[_Group] = []
    staying: list[_Group] = []
    for group in _by_place(groups):
        (mixed if any(may_retract(table, target.file) for target, _ in group) else staying).append(group)
    return [
        _split([each for group in mixed for each in group], Phase.GOING),
        *(replace(split, phase=Phase.STAYING) for split in _parted(mixed, keyed=True, whole=True)),
        *_parted(staying, keyed=True, whole=True),
    ]


def _bucket_by_bucket(table: TableDef, groups: Sequence[_Group]) -> list[PublishedSplit]:
    """Return the files of a snapshot as splits of one bucket and of rows that go or stay."""
    return [
        _split(group, phase)
        for group in _by_place(groups)
        for phase in (Phase.GOING, Phase.STAYING)
        if phase is Phase.STAYING or any(may_retract(table, target.file) for target, _ in group)
    ]


def _by_place(groups: Sequence[_Group]) -> list[_Group]:
    """Return the files of a snapshot, those of each bucket together."""
    found: dict[int, _Group] = {}
    for group in groups:
        for target, origin in group:
            found.setdefault(origin.place, []).append((target, origin))
    return list(found.values())


def _joined(one: PublishedSplit | DiffSplit, other: PublishedSplit | DiffSplit) -> PublishedSplit | None:
    """Return two splits as one, if they are small files whose rows come in phases."""
    if not isinstance(one, PublishedSplit) or not isinstance(other, PublishedSplit):
        return None
    if not one.phase is other.phase is Phase.IN_PHASES or len(one.targets) + len(other.targets) > _TOGETHER:
        return None
    return replace(one, targets=one.targets + other.targets, origins=one.origins + other.origins)


def _split(group: _Group, phase: Phase | None = None) -> PublishedSplit:
    targets, origins = zip(*group, strict=True)
    return PublishedSplit(targets, origins, phase)


def _parted(groups: Sequence[_Group], *, keyed: bool, whole: bool) -> list[PublishedSplit]:
    """Return groups of files as splits: groups with a large file by themselves, the others together.

    Args:
        whole: groups are not torn; else each file is one.
    """
    parts: list[_Group] = []
    open_part = False
    for group in groups if whole else [[each] for every in groups for each in every]:
        small = keyed and all(is_small(target.file) for target, _ in group)
        if small and open_part and len(parts[-1]) + len(group) <= _TOGETHER:
            parts[-1] += group
        else:
            parts.append(list(group))
        open_part = small
    return [_split(part) for part in parts]
