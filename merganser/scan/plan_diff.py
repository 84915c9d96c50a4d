"""Two states and a filter -> the splits to compare: buckets and ranges of keys in which the states differ.

A bucket whose files are the same in both states, with the same deletion vectors, is left out. Of the others the files
of both states are cut into sections, ranges of keys that no file crosses; a section with the same files on both sides
is left out, too. Where keys may have moved between the buckets of a partition, since their number changed or an
overwrite assigned keys to buckets again, the partition is one split: both rows of a key are in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from merganser.codec.binary_row import deserialize_columns
from merganser.errors import FormatError, InvalidInputError
from merganser.expr.predicate import Predicate
from merganser.files.key_hashes import read_hashes
from merganser.files.masks import NO_VECTORS, BucketVectors, vectors_by_bucket
from merganser.lsm.levels import dense_ranks, sections
from merganser.lsm.unmarked import unmarked_schemas
from merganser.meta.data_file import DataFile
from merganser.meta.followed import check_key, columns_of
from merganser.meta.index_manifest import HASH
from merganser.meta.live_files import BucketFiles, BucketId
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.rules.compacting import hides_level_0, is_masked, looks_up
from merganser.rules.gaps import check_can_read
from merganser.scan.forms import kind_column
from merganser.scan.plan import Plan, buckets_through, partitions_of
from merganser.scan.read import key_filter
from merganser.scan.rows import counted
from merganser.scan.source import Difference, published_of
from merganser.scan.split import DiffSplit, Phase, Portion, ReadJob
from merganser.schema.table_schema import SEQUENCE_NUMBER
from merganser.storage.env import Env

_Buckets = dict[BucketId, tuple[BucketFiles, tuple[DataFile, ...], BucketVectors]]
"""Buckets with all their files, those that are compared, and deletion vectors."""


def plan_diff(
    table: TableDef, env: Env, source: Difference, job: ReadJob, published_in: Collection[bytes] | None = None
) -> Plan:
    """Return the splits in which two states may differ.

    Args:
        published_in: serialized partitions, of which the rows are compared that the changelog producer has published;
            None: what reads of the states show.

    Raises:
        InvalidInputError: sequence numbers are asked for.
        UnsupportedError: the table needs something this version cannot read rightly.
        FormatError: metadata is damaged or missing.
    """
    if SEQUENCE_NUMBER in job.columns:
        raise InvalidInputError(
            f"cannot compare two states of '{table.name}': rows of two states have no sequence number. Nothing was "
            f"read. Leave out the column '{SEQUENCE_NUMBER.name}'.",
            column=SEQUENCE_NUMBER.name,
        )
    check_can_read(replace(table.schema, options=table.options), name=table.name, merge=table.keyed)
    ends = [snapshot for snapshot in (source.before, source.after) if snapshot is not None]
    check_key(table, env, ends, f"cannot compare two states of '{table.name}'")
    states = [_buckets(table, env, snapshot, job.where, published_in) for snapshot in (source.before, source.after)]
    narrow = key_filter(job.where, table.key) if table.keyed else None
    groups = _groups(*states, reassigned=_reassigned(table, env, source, states))
    splits = [split for group in groups for split in _splits(table, group, states)]
    if table.moves_keys and kind_column(job.what) is not None:
        splits = _in_phases(splits)
    ids = {file.schema_id for split in splits for portion in (*split.before, *split.after) for file in portion.files}
    schemas = columns_of(table, env, ids)
    titles = ["an empty table" if one is None else f"snapshot {one.id}" for one in (source.before, source.after)]
    buckets = len({bucket for state in states for bucket in state})
    notes = (
        ("between", " and ".join(titles)),
        ("from", f"states compared: {counted(len(splits), 'split')} of {counted(buckets, 'bucket')}"),
    )
    return Plan(None, replace(job, schemas=schemas, key_filter=narrow), tuple(splits), notes=notes)


def _in_phases(splits: Sequence[DiffSplit]) -> list[DiffSplit]:
    """Return splits whose deletes come first: a key leaves its old bucket before it comes to the new one."""
    going = [replace(split, phase=Phase.GOING) for split in splits if any(portion.files for portion in split.before)]
    staying = [replace(split, phase=Phase.STAYING) for split in splits if any(portion.files for portion in split.after)]
    return going + staying


def _buckets(
    table: TableDef,
    env: Env,
    snapshot: Snapshot | None,
    where: Predicate | None,
    published_in: Collection[bytes] | None,
) -> _Buckets:
    """Return the buckets of a state that the filter lets through, with the files that are compared."""
    reader = MetaReader(table.paths, env, table.name)
    vectors = vectors_by_bucket(table, reader.index(snapshot))
    chosen = buckets_through(table, partitions_of(table, reader.state(snapshot).live, where), where)
    found: _Buckets = {}
    for bucket, files in chosen:
        if bucket[1] < 0:
            continue
        if published_in is None:
            held = _shown(table, env, files)
        elif bucket[0] in published_in:
            held = published_of(table, [entry.file for entry in files.entries])
        else:
            continue
        found[bucket] = (files, tuple(held), vectors.get(bucket, NO_VECTORS))
    return found


def _shown(table: TableDef, env: Env, held: BucketFiles) -> list[DataFile]:
    """Return the files of a bucket whose rows reads show."""
    files = [entry.file for entry in held.entries]
    if not table.keyed or not hides_level_0(table.options):
        return files
    seen: Collection[int] = ()
    if is_masked(table.options):
        seen = unmarked_schemas(table, env, {file.schema_id for file in files})
    return [file for file in files if file.level or file.schema_id in seen]


def _reassigned(table: TableDef, env: Env, source: Difference, states: Sequence[_Buckets]) -> set[bytes]:
    """Return the partitions whose keys may have moved to other buckets, though the number of buckets is no option.

    An index lists the keys of each bucket, and keys are only added to it. So a key of the earlier state that is not in
    the later index of its bucket was removed from it, as an overwrite does, and may be in another bucket since then.
    """
    if not table.indexes_keys:
        return set()
    reader = MetaReader(table.paths, env, table.name)
    indexes = [
        {(entry.partition, entry.bucket): entry for entry in reader.index(snapshot) if entry.index_type == HASH}
        for snapshot in (source.before, source.after)
    ]

    def loses_keys(bucket: BucketId) -> bool:
        old, new = (index.get(bucket) for index in indexes)
        if old is None or new is None:
            return True
        try:
            if old.name == new.name:
                return False
            return not np.isin(read_hashes(table, env, old), read_hashes(table, env, new)).all()
        except FormatError:  # the rows can be read without it
            return True

    filled = {partition for partition, _ in states[1]}
    buckets = [bucket for bucket in states[0] if bucket[0] in filled and states[0][bucket] != states[1].get(bucket)]
    return {bucket[0] for bucket, loses in zip(buckets, env.map(loses_keys, buckets), strict=True) if loses}


def _groups(before: _Buckets, after: _Buckets, *, reassigned: Collection[bytes]) -> Iterator[list[BucketId]]:
    """Yield the buckets that have to be compared together: each by itself, unless rows moved between them."""
    totals: dict[bytes, set[int]] = {}
    for state in (before, after):
        for bucket, (files, _, _) in state.items():
            totals.setdefault(bucket[0], set()).add(files.total_buckets)
    moved: dict[bytes, list[BucketId]] = {}
    for bucket in dict.fromkeys([*before, *after]):
        if bucket[0] in reassigned or len(totals[bucket[0]]) > 1:
            moved.setdefault(bucket[0], []).append(bucket)
        else:
            yield [bucket]
    yield from moved.values()


def _splits(table: TableDef, group: Sequence[BucketId], states: Sequence[_Buckets]) -> Iterator[DiffSplit]:
    pairs = [[_portion(table, bucket, state) for state in states] for bucket in group]
    changed = [(old, new) for old, new in pairs if old is None or new is None or not _alike(table, old, new)]
    before = [old for old, _ in changed if old is not None]
    after = [new for _, new in changed if new is not None]
    if not before and not after:
        return
    if not table.keyed or len(group) > 1:
        yield DiffSplit(tuple(before), tuple(after))
        return
    known = (before or after)[0]
    empty = Portion(known.directory, known.partition, ())
    yield from _sections(table, (before or [empty])[0], (after or [empty])[0])


def _portion(table: TableDef, bucket: BucketId, state: _Buckets) -> Portion | None:
    """Return the files of a bucket that are compared of a state; None: there are none."""
    if bucket not in state:
        return None
    _, files, vectors = state[bucket]
    names = [file.name for file in files]
    return Portion(table.bucket_directory(*bucket), bucket[0], files, vectors.of(names)) if files else None


def _identity(table: TableDef, file: DataFile) -> tuple[str, bool]:
    """Return what makes a file the same in two states. A compaction that moves a file up changes no row.

    Only where rows above level 0 count as whole rows does it matter whether it lies there.
    """
    return file.name, looks_up(table.options) and not file.level


def _alike(table: TableDef, one: Portion, other: Portion) -> bool:
    return (
        one.directory == other.directory
        and {_identity(table, file) for file in one.files} == {_identity(table, file) for file in other.files}
        and one.vectors == other.vectors
    )


def _sections(table: TableDef, before: Portion, after: Portion) -> Iterator[DiffSplit]:
    """Yield the sections of a bucket in which two states differ."""
    files = [*before.files, *after.files]
    low = deserialize_columns([file.min_key for file in files], table.key_types)
    high = deserialize_columns([file.max_key for file in files], table.key_types)
    for members in sections(*dense_ranks(low, high)):
        places = np.sort(members).tolist()
        parts = [
            _part(before, [i for i in places if i < len(before.files)]),
            _part(after, [i - len(before.files) for i in places if i >= len(before.files)]),
        ]
        if not _alike(table, *parts):
            names = [{_identity(table, file) for file in part.files} for part in parts]
            yield DiffSplit((parts[0],), (parts[1],), frozenset(name for name, _ in names[0] & names[1]))


def _part(portion: Portion, places: Sequence[int]) -> Portion:
    files = tuple(portion.files[i] for i in places)
    return Portion(
        portion.directory,
        portion.partition,
        files,
        {f.name: portion.vectors[f.name] for f in files if f.name in portion.vectors},
    )
