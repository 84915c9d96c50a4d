"""Plans of compactions: choose the files and buckets to compact, from one state of a table, by metadata alone.

The rules choose the files in a bucket (`lsm.pick` for sorted runs, `lsm.compact.append_groups` for files without a
key). This module adds the part of the table: it chooses the buckets, gives the rules the facts of each bucket, and
completes each job with the schemas, the files below and the deletion vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from merganser.codec.binary_row import deserialize, deserialize_columns, serialize
from merganser.errors import NotFoundError
from merganser.expr.predicate import Predicate
from merganser.files.layout import file_layout
from merganser.files.masks import NO_VECTORS, BucketVectors, vectors_by_bucket
from merganser.lsm.clustering import Order
from merganser.lsm.compact import CompactJob, append_groups, uncounted
from merganser.lsm.levels import dense_ranks, sections, top_level
from merganser.lsm.pick import RunSize, pick
from merganser.lsm.record_expiry import RecordExpiry
from merganser.lsm.tombstones import Tombstones
from merganser.merge.rules import merge_of
from merganser.meta.data_file import DataFile
from merganser.meta.followed import columns_of
from merganser.meta.live_files import BucketFiles, BucketId, LiveFiles
from merganser.meta.shard_stream import span_text
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.registry import did_you_mean
from merganser.rules.compacting import empties_level_0, looks_up
from merganser.scan.plan import partitions_through
from merganser.schema import types as t
from merganser.storage.env import Env
from merganser.upkeep.outdated import Outdated
from merganser.values import dataclass

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class CompactionRequest:
    """What a compaction is to do.

    Attributes:
        full: everything into the highest level, and every file as the options now ask; else what the rules pick.
        partitions: only partitions that one of these specs, of stored values, fits; None: all.
        buckets: only these buckets; None: all.
        where: only partitions that this filter on partition columns lets through; None: all.
        order: sort the rows of all files so; tables without a key and without a bucket key only.
        push_level_0: empty level 0, even if no other rule asks for it.
        inline: it follows a write, so its cost is to follow the rows written: in tables without a key, files that
            weigh more than all that would join them stay.
    """

    full: bool = False
    partitions: Sequence[Mapping[str, Any]] | None = None
    buckets: Collection[BucketId] | None = None
    where: Predicate | None = None
    order: Order | None = None
    push_level_0: bool | None = None
    inline: bool = False


def plan_jobs(table: TableDef, env: Env, state: TableState, request: CompactionRequest) -> list[CompactJob]:
    """Return what there is to compact in a state, the largest first."""
    jobs: list[CompactJob] = []
    planner = Planner(table, env)
    index = MetaReader(table.paths, env, table.name).index(state.snapshot)
    if request.buckets is not None:
        wanted = frozenset(request.buckets)
        index = tuple(entry for entry in index if (entry.partition, entry.bucket) in wanted)
    vectors = vectors_by_bucket(table, index)
    for (partition, bucket), files in _wanted(table, state.live, request):
        held = vectors.get((partition, bucket), NO_VECTORS)
        of_bucket = planner.jobs((partition, bucket), files, held, request)
        if held.entries and of_bucket:  # each would replace the vectors of the bucket as a whole
            of_bucket = [replace(of_bucket[0], others=tuple(of_bucket[1:]))]
        jobs += of_bucket
    return sorted(jobs, key=lambda job: -job.size_bytes)


def deletes_left(table: TableDef, env: Env, live: LiveFiles, request: CompactionRequest) -> str | None:
    """Return which deletes a full compaction leaves in the files that it made, and why; None if it leaves none."""
    now_ms = env.now_ms()
    tombstones = Tombstones.of(table, now_ms)
    if not tombstones.any:
        return None
    files = [entry.file for _, bucket in _wanted(table, live, request) for entry in bucket.entries]
    count = sum(file.delete_row_count or 0 for file in files if file.level and not tombstones.due(file))
    if not count:
        return None
    said = f"{count:,} deletes stay" if count > 1 else "1 delete stays"
    if not tombstones.lasting.removals:
        return f"{said}: rows that they take back may still come"
    time = f"'{u.TOMBSTONE_TIME_RETAINED.key}' ({span_text(timedelta(milliseconds=now_ms - tombstones.oldest_ms))})"
    return f"{said} for {time}, so that older rows that come late stay deleted; later full compactions remove them"


def check_partitions(table: TableDef, live: LiveFiles, request: CompactionRequest, *, what: str = "compact") -> None:
    """Refuse a request that names a partition without files.

    Args:
        what: is to be done, for messages.

    Raises:
        NotFoundError: names the partition, and one that is there.
    """
    partitions = {partition for (partition, _), files in live.buckets.items() if files.entries}
    for spec in request.partitions or ():
        if spec and not any(fits(table, partition, (spec,)) for partition in partitions):
            names, kinds = table.schema.partition_keys, table.partition_types
            there = {_text(table, dict(zip(names, deserialize(one, kinds), strict=True)), spec) for one in partitions}
            text = _text(table, spec, spec)
            hint = did_you_mean(text, sorted(there)) if there else "The table has none."
            raise NotFoundError(
                f"cannot {what} '{table.name}': it has no partition '{text}'. Nothing was changed. {hint}",
                table=table.name,
                partition=text,
            )


def _text(table: TableDef, values: Mapping[str, Any], names: Collection[str]) -> str:
    """Return some values of a partition for people."""
    chosen = [name for name in table.schema.partition_keys if name in names]
    kinds = [table.schema.field(name).type for name in chosen]
    return table.paths.partition_shown(chosen, [values[name] for name in chosen], kinds)


def _wanted(table: TableDef, live: LiveFiles, request: CompactionRequest) -> Iterator[tuple[BucketId, BucketFiles]]:
    """Yield the buckets that a request is about."""
    named = list(live.buckets) if request.buckets is None else [key for key in request.buckets if key in live.buckets]
    chosen = frozenset(partitions_chosen(table, list({partition for partition, _ in named}), request))
    for key in named:
        if key[1] >= 0 and key[0] in chosen:
            yield key, live.buckets[key]


def partitions_chosen(table: TableDef, partitions: Sequence[bytes], request: CompactionRequest) -> list[bytes]:
    """Return those of some partitions that a request is about."""
    if request.where is not None:
        through = partitions_through(table, set(partitions), request.where)
        partitions = [partition for partition in partitions if partition in through]
    specs = request.partitions
    return [partition for partition in partitions if specs is None or fits(table, partition, specs)]


class _Bucket(NamedTuple):
    """What jobs of one bucket have in common."""

    id: BucketId
    total: int
    vectors: BucketVectors


class Planner:
    """Picks what to compact in the buckets of a table, at one time."""

    def __init__(self, table: TableDef, env: Env) -> None:
        self._table = table
        self._env = env
        now_ms = env.now_ms()
        self._now = _EPOCH + timedelta(milliseconds=now_ms)
        self.expiry = RecordExpiry.of(table, now_ms)
        self.tombstones = Tombstones.of(table, now_ms)
        self._outdated = Outdated(table, env)

    def schemas_of(self, files: Sequence[DataFile]) -> Mapping[int, tuple[t.Field, ...]]:
        """Return the columns of the schemas of files."""
        return columns_of(self._table, self._env, (file.schema_id for file in files))

    def whole(
        self, partition: bytes, bucket: int, total: int, files: Sequence[DataFile], vectors: BucketVectors
    ) -> CompactJob:
        """Return the compaction of all files of a bucket into the highest level, whatever they are."""
        table = self._table
        taken = tuple(files if table.keyed else sorted(files, key=lambda file: file.min_sequence))
        top = top_level(table.options, (file.level for file in files)) if table.keyed else 0
        return self._job(_Bucket((partition, bucket), total, vectors), taken, level=top, top=top, drops=True)

    def jobs(
        self, bucket: BucketId, held: BucketFiles, vectors: BucketVectors, request: CompactionRequest
    ) -> list[CompactJob]:
        """Return what to compact in a bucket."""
        files, of = [entry.file for entry in held.entries], _Bucket(bucket, held.total_buckets, vectors)
        if request.order is not None:
            return [self._job(of, tuple(files), order=request.order)] if files else []
        if not self._table.keyed:
            outdated = self._outdated_of(files, 0, request)
            worn = self._worn(files, vectors, full=request.full) | outdated
            groups = append_groups(self._table, files, full=request.full, worn=worn)
            if request.inline and not request.full:
                kept = [group for group in groups if not worn.isdisjoint(file.name for file in group)]
                groups = kept + [even for group in groups if group not in kept for even in self._even(group)]
            return [self._job(of, group) for group in groups]
        return self._of_runs(of, files, request)

    def _job(
        self,
        bucket: _Bucket,
        files: tuple[DataFile, ...],
        *,
        level: int = 0,
        top: int = 0,
        drops: bool = False,
        below: tuple[DataFile, ...] = (),
        older: tuple[DataFile, ...] = (),
        **others: Any,
    ) -> CompactJob:
        return CompactJob(
            table=self._table,
            partition=bucket.id[0],
            bucket=bucket.id[1],
            total_buckets=bucket.total,
            directory=self._table.bucket_directory(*bucket.id),
            files=files,
            output_level=level,
            top=top,
            drop_retractions=drops,
            schemas=self.schemas_of(files + below + older),
            tombstones=self.tombstones,
            below=below,
            expiry=self.expiry if drops and not older else None,
            older=older,
            vectors=bucket.vectors,
            **others,
        )

    def _worn(self, files: Sequence[DataFile], vectors: BucketVectors, *, full: bool) -> set[str]:
        """Return the files of which so large a share is deleted that they are rewritten; `full`: any row at all."""
        share = 0 if full else self._table.options.get(u.DELETE_RATIO_THRESHOLD)
        deleted = {name: vector.cardinality or 1 for name, vector in vectors.by_file.items()}
        return {file.name for file in files if deleted.get(file.name, 0) > share * file.row_count}

    def _outdated_of(self, files: Sequence[DataFile], level: int, request: CompactionRequest) -> frozenset[str]:
        """Return the files that a full compaction rewrites for the options of the table.

        None if it follows a write: a change of an option must not make the next writer rewrite the table.
        """
        if not request.full or request.inline:
            return frozenset()
        return frozenset(file.name for file in files if self._outdated.reasons(file, level))

    def _of_runs(self, bucket: _Bucket, files: list[DataFile], request: CompactionRequest) -> list[CompactJob]:
        table, options = self._table, self._table.options
        runs = _runs(files)
        lifted = 0 if request.full else self._liftable(runs)
        top = top_level(options, (file.level for file in files))
        young, old = runs[: len(runs) - lifted], [file for run in runs[len(runs) - lifted :] for file in run]
        sizes = [_size_of(run[0].level, run) for run in young] + ([_size_of(top, old)] if old else [])
        found = pick(
            sizes,
            options,
            full=request.full,
            push_level_0=request.push_level_0,
            now=self._now,
            last_full=_last_full(runs[-1]),
        )
        outdated = self._outdated_of(files, top, request)
        if found is None:
            return self._in_place(bucket, files, top, outdated) if request.full else []
        if found.run_count == len(sizes):
            young, old = runs, []
        else:
            young = young[: found.run_count]
        drops = found.output_level != 0 and not old and found.output_level >= max(file.level for file in files)
        chosen = {file.name for run in young for file in run}
        older: tuple[DataFile, ...] = ()
        if options.get(w.DELETION_VECTORS) and found.output_level:  # what lies below is told by vectors
            drops, older = True, tuple(file for file in files if file.name not in chosen)
        elif looks_up(options) and options.get(w.MERGE_ENGINE) != "first-row":
            older = tuple(file for file in files if file.name not in chosen and file.level)
        takes_back = any(f.delete_row_count or uncounted(table, f) for run in young for f in run)
        if not drops and not merge_of(table).engine.chooses and takes_back:
            # Merged with what came after it, a retraction would no longer reach the versions that lie below.
            return self._of_runs(bucket, files, replace(request, full=True))
        below = () if options.get(w.MERGE_ENGINE) != "first-row" else tuple(f for f in files if f.name not in chosen)
        taken = tuple(file for file in files if file.name in chosen)
        return [
            self._job(
                bucket,
                taken,
                level=found.output_level,
                top=top,
                drops=drops,
                below=below,
                older=older,
                lifted=tuple(old),
                outdated=outdated,
                rule=found.rule,
            )
        ]

    def _in_place(self, bucket: _Bucket, files: list[DataFile], top: int, outdated: frozenset[str]) -> list[CompactJob]:
        """Return jobs for files of a bucket that is compacted fully which are rewritten where they are."""
        if self._table.options.get(u.FORCE_REWRITE_ALL_FILES):
            return [self._job(bucket, tuple(files), level=top, top=top, drops=True)] if files else []
        expiry = self.expiry
        schemas = {} if expiry is None else self.schemas_of(files)
        due = [
            file
            for file in files
            if file.name in bucket.vectors.by_file
            or file.name in outdated
            or (expiry is not None and expiry.reaches(file, schemas))
            or (file.delete_row_count and self.tombstones.due(file))
        ]
        # Each by itself: put together, two would span the files between them.
        return [
            self._job(bucket, (file,), level=top, top=top, drops=True, outdated=outdated & {file.name}) for file in due
        ]

    def _liftable(self, runs: Sequence[Sequence[DataFile]]) -> int:
        """Return how many of the oldest runs are together one of the highest level as they stand.

        A bucket that was filled by one large commit has its base at level 0, where the first pick would take it in
        and rewrite it whole. It is the same base at the highest level, and no byte has to be moved.
        """
        table, options = self._table, self._table.options
        goes_anyway = empties_level_0(options) or options.get(u.FORCE_UP_LEVEL_0)
        as_it_stands = not table.counting and not options.get(u.FORCE_REWRITE_ALL_FILES)
        published = options.get(w.CHANGELOG_PRODUCER) not in ("none", "input")  # a file that changes its level is read
        if goes_anyway or not as_it_stands or published or runs[-1][0].level:
            return 0
        small_bytes = file_layout(table).target_size_bytes * options.get(u.SMALL_FILE_RATIO)
        count = 0
        for (file,) in reversed(runs):
            if file.delete_row_count != 0 or uncounted(table, file) or (count and file.size < small_bytes):
                break
            count += 1
        least = min(count, 1)
        while least < count:  # of files that do not meet, fewer do not either
            middle = (least + count + 1) // 2
            if self._apart([run[0] for run in runs[len(runs) - middle :]]):
                least = middle
            else:
                count = middle - 1
        return count

    def _apart(self, files: Sequence[DataFile]) -> bool:
        """Return whether no two files hold keys of one range."""
        kinds = self._table.key_types
        low = deserialize_columns([file.min_key for file in files], kinds)
        high = deserialize_columns([file.max_key for file in files], kinds)
        return len(sections(*dense_ranks(low, high))) == len(files)

    def _even(self, group: tuple[DataFile, ...]) -> list[tuple[DataFile, ...]]:
        """Return the parts of a group without files that weigh more than all the others, where still worth it.

        Else every few commits would rewrite what many made before: so a row is rewritten as often as its file
        doubles, and no oftener.
        """
        if not group:
            return []
        total, largest = sum(file.size for file in group), max(group, key=lambda file: file.size)
        if total >= 2 * file_layout(self._table).target_size_bytes:
            return [group]
        if 2 * largest.size > total:
            at = group.index(largest)
            return self._even(group[:at]) + self._even(group[at + 1 :])
        return [group] if len(group) >= self._table.options.get(u.COMPACTION_MIN_FILE_NUM) else []


def _runs(files: Sequence[DataFile]) -> list[list[DataFile]]:
    """Return the sorted runs of a bucket, newest first."""
    young = sorted((file for file in files if file.level == 0), key=lambda file: -file.max_sequence)
    levels = sorted({file.level for file in files} - {0})
    return [[file] for file in young] + [[file for file in files if file.level == level] for level in levels]


def _size_of(level: int, files: Sequence[DataFile]) -> RunSize:
    return RunSize(level, sum(file.size for file in files), len(files))


def _last_full(oldest: Sequence[DataFile]) -> datetime | None:
    """Return when a bucket was compacted fully, as its files tell: the newest of the oldest run was made then.

    Files that only changed their level are older than that, so the answer is too early, never too late.
    """
    times = [file.creation_time_ms for file in oldest if file.creation_time_ms is not None and file.level]
    return _EPOCH + timedelta(milliseconds=max(times)) if times else None


def fits(table: TableDef, partition: bytes, specs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a partition has the values of one of the specs, compared as bytes, as partitions differ."""
    names, kinds = table.schema.partition_keys, table.partition_types
    values = dict(zip(names, zip(deserialize(partition, kinds), kinds, strict=True), strict=True))

    def same(name: str, value: Any) -> bool:
        stored, kind = values[name]
        return serialize((stored,), (kind,)) == serialize((value,), (kind,))

    return any(all(same(name, value) for name, value in spec.items()) for spec in specs)
