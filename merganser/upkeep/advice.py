"""Advice: what costs readers or writers of a table more than it need, with numbers, and the command that helps.

A pure function of the newest state and of what readers keep: it reads no file. Each piece of advice looks at one thing,
and says nothing if that is fine. A table without advice has buckets of a good size, few runs to merge, few small files,
files as its options ask, few deleted rows, few old snapshots, and readers that keep up.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Final

from merganser.lsm.tombstones import Tombstones
from merganser.meta.data_file import DataFile
from merganser.meta.layout import numbers_other_than
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.shard_stream import span_text, stream_of
from merganser.meta.table_def import TableDef
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.progress.sizes import size_text
from merganser.rules.facts import BUCKETS_MAX
from merganser.upkeep.expire_snapshots import HeldBack
from merganser.upkeep.orphans import DAY_MS, Orphan
from merganser.upkeep.outdated import COMPRESSION, FORMAT, INDEX
from merganser.values import dataclass

_MB: Final = 1 << 20
BUCKET_BYTES_MAX: Final = 2048 * _MB
"""A compaction that rewrites a bucket of more takes minutes, and reads of it have too few tasks."""
BUCKET_BYTES_FAR: Final = 5120 * _MB
BUCKET_BYTES_MIN: Final = 200 * _MB
"""Smaller buckets make many files; that costs once there are many."""
_GOOD_BYTES: Final = BUCKET_BYTES_MAX // 2
"""What a bucket should hold once advice was followed."""
_BUCKETS_FEW: Final = 100
"""So many buckets of any size cost nothing worth a word."""
_SMALL_FILES_FEW: Final = 20
_SMALL_PART: Final = 0.25
"""A file of less than this part of the target size is small."""
_SNAPSHOTS_PATIENCE: Final = 2
"""Expiry is late once there are so many times the snapshots that it keeps at most, or they are so many times as old."""

_DELETED_PART: Final = 0.05
"""Minimum share of rows that are deleted and still stored. Fewer cost a read next to nothing."""
_BEHIND_PART: Final = 0.25
"""Minimum share of the retention of a shard stream by which its workers are behind: the rest is time to act."""
_CONSUMERS_SHOWN: Final = 5
"""Maximum number of consumers that are named."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do.

    Attributes:
        topic: "branches", "buckets", "runs", "files", "deletes", "indexes", "formats", "consumers", "shards",
            "snapshots", "statistics" or "orphans".
        problem: a sentence with the numbers, and what they cost.
        remedy: a sentence that says what to do, with the command.
    """

    topic: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.problem} {self.remedy}"


@dataclass(frozen=True, slots=True)
class ShardLag:
    """How far the workers of `Table.follow` are behind in one shard.

    Attributes:
        shard_id: the shard.
        rows: stored rows that were not handled.
        behind: how long ago the first of them was committed.
    """

    shard_id: str
    rows: int
    behind: timedelta


@dataclass(frozen=True, slots=True)
class Facts:
    """What advice is made from.

    Attributes:
        live: the live files.
        snapshots: how many are kept.
        oldest: when the oldest was made; None: there is none.
        now: the time.
        wanted: the number of a rescale that was stopped before it set `bucket`; None: none was.
        number: `bucket` as writers find it now; None: as in the table that is asked.
        outdated: live files that differ from what the options ask for, by the reason; see `upkeep.outdated`.
        marked: how many rows the deletion vectors mark, by data file.
        held: what consumers keep from expiry.
        lags: how far the workers of the shard stream are behind that keep their leases with the table.
    """

    live: LiveFiles
    snapshots: int
    oldest: datetime | None
    now: datetime
    wanted: int | None = None
    number: int | None = None
    outdated: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)
    marked: Mapping[str, int] = field(default_factory=dict)
    held: Sequence[HeldBack] = ()
    lags: Sequence[ShardLag] = ()


def advice_for(table: TableDef, facts: Facts) -> tuple[Advice, ...]:
    """Return what to do for a table, the most pressing first; empty: nothing."""
    looks: Sequence[Callable[[TableDef, Facts], Iterator[Advice]]] = (
        _unfinished,
        _mixed,
        _large,
        _runs,
        _small_files,
        _many,
        _deletes,
        _indexes,
        _formats,
        _consumers,
        _shards,
        _old,
        _stats,
    )
    return tuple(found for look in looks for found in look(table, facts))


def _sizes(live: LiveFiles) -> dict[BucketId, int]:
    return {bucket: sum(e.file.size for e in files.entries) for bucket, files in live.buckets.items() if bucket[1] >= 0}


def _named(table: TableDef, bucket: BucketId) -> str:
    where = table.bucket_directory(*bucket).removeprefix(table.path).strip("/")
    return f"'{where}'"


def _unfinished(table: TableDef, facts: Facts) -> Iterator[Advice]:
    if facts.wanted is None:
        return
    yield Advice(
        "buckets",
        f"A rescale to {facts.wanted:,} buckets was stopped before its end: its rows have moved, and 'bucket' still is "
        f"'{table.bucket}'. The next write to these rows sets it.",
        f"Run `merganser rescale {table.name} {facts.wanted}` to finish it now.",
    )


def _mixed(table: TableDef, facts: Facts) -> Iterator[Advice]:
    wanted = table.bucket if facts.number is None else facts.number
    others = numbers_other_than(wanted, facts.live) if wanted > 0 and facts.wanted is None else {}
    if not others:
        return
    first, number = next(iter(others.items()))
    if table.schema.partition_keys:
        some = f"{len(others):,} of its partitions {'lie' if len(others) > 1 else 'lies'} in another number"
        where = f"{some} of buckets (first: {table.partition_shown(first)}, {number:,} buckets)"
    else:
        where = f"its rows lie in {number:,} buckets"
    yield Advice(
        "buckets",
        f"'bucket' is '{wanted}', and {where}. Writes to these rows are refused; reads see them.",
        f"Run `merganser rescale {table.name} {wanted}`, or replace the rows with overwrite=.",
    )


def _large(table: TableDef, facts: Facts) -> Iterator[Advice]:
    if not table.bucketed:
        return
    large = {bucket: size for bucket, size in _sizes(facts.live).items() if size > BUCKET_BYTES_MAX}
    if not large:
        return
    worst = max(large, key=lambda bucket: large[bucket])
    far = sum(size > BUCKET_BYTES_FAR for size in large.values())
    count = f"{len(large):,} of {len(facts.live.buckets):,} buckets hold more than {size_text(BUCKET_BYTES_MAX)}"
    more = f", and {far:,} more than {size_text(BUCKET_BYTES_FAR)}" if far else ""
    yield Advice(
        "buckets",
        f"{count}{more}; {_named(table, worst)} holds {size_text(large[worst])}. A compaction rewrites a bucket at a "
        "time, and one task reads it.",
        _more_buckets(table, worst[0], large[worst], facts),
    )


def _more_buckets(table: TableDef, partition: bytes, size: int, facts: Facts) -> str:
    if table.assigns_keys:
        held = (files for (of, _), files in facts.live.buckets.items() if of == partition)
        rows = max(sum(entry.file.row_count for entry in files.entries) for files in held)
        wanted = max(1, rows * _GOOD_BYTES // size)
        return (
            f"Set 'dynamic-bucket.target-row-num' to about {wanted:,}: buckets that are full keep their keys, and new "
            "keys go to more buckets."
        )
    own = next(
        files.total_buckets for (of, number), files in facts.live.buckets.items() if of == partition and number >= 0
    )
    wanted = -(-size // _GOOD_BYTES) * own  # of a multiple, each bucket is split by itself, on a core of its own
    if wanted > BUCKETS_MAX:
        return f"It has {own:,} buckets, and {BUCKETS_MAX:,} is the most: partition by something finer."
    return f"Run `merganser rescale {table.name} {wanted}`: that makes {wanted:,} buckets of {own:,}."


def _many(table: TableDef, facts: Facts) -> Iterator[Advice]:
    sizes = _sizes(facts.live)
    small = [size for size in sizes.values() if size < BUCKET_BYTES_MIN // 10]
    if not table.bucketed or len(sizes) <= _BUCKETS_FEW or len(small) * 2 < len(sizes):
        return
    partitions: dict[bytes, list[int]] = {}
    for (partition, _), size in sizes.items():
        partitions.setdefault(partition, []).append(size)
    each = len(sizes) / len(partitions)
    many = f"{len(small):,} of {len(sizes):,} buckets hold less than {size_text(BUCKET_BYTES_MIN // 10)}"
    if each < 2:
        remedy = "Each partition has one bucket: partition by something coarser, such as months in place of days."
    elif table.assigns_keys:
        remedy = _fuller_buckets(table, facts.live, each)
    else:
        wanted = max(1, max(-(-sum(held) // _GOOD_BYTES) for held in partitions.values()))
        if wanted * 2 > each:  # few buckets hold the most: another number would not help
            return
        most = max(facts.live.totals, default=1)
        wanted = next((n for n in range(wanted, 2 * wanted) if most % n == 0), wanted)
        remedy = f"Run `merganser rescale {table.name} {wanted}`: a partition has {_shown(each)} buckets."
    yield Advice(
        "buckets",
        f"{many}. Each is a directory with files of its own, which every plan and every commit names.",
        remedy,
    )


def _fuller_buckets(table: TableDef, live: LiveFiles, each: float) -> str:
    """Return what makes buckets that are added as keys arrive fewer."""
    rows, size = sum(entry.file.row_count for entry in live), sum(entry.file.size for entry in live)
    target, wanted = table.options.get(w.DYNAMIC_BUCKET_TARGET_ROW_NUM), max(1, rows * _GOOD_BYTES // max(1, size))
    again = "An overwrite of a partition with its own rows makes fewer of those that are there."
    if target * 10 <= wanted:
        return (
            f"A bucket is full at {target:,} keys: set 'dynamic-bucket.target-row-num' to about {wanted:,}, and new "
            f"keys fill the buckets that are there. {again}"
        )
    return (
        f"A partition has {_shown(each)} buckets, since each task of a writer adds its own. Let writers open the table "
        f"with 'dynamic-bucket.assigner-parallelism' = '1'. {again}"
    )


def _shown(average: float) -> str:
    return f"{average:,.0f}" if average == round(average) else f"about {average:,.1f}"


def _runs(table: TableDef, facts: Facts) -> Iterator[Advice]:
    if not table.keyed:
        return
    trigger = table.options.get(u.COMPACTION_TRIGGER)
    flushed = {
        bucket: sum(entry.file.level == 0 for entry in files.entries)
        for bucket, files in facts.live.buckets.items()
        if bucket[1] >= 0
    }
    late = {bucket: count for bucket, count in flushed.items() if count > trigger}
    if not late:
        return
    worst = max(late, key=lambda bucket: late[bucket])
    who = (
        "The table is 'write-only', so no writer compacts it, and no compactor keeps up. "
        if table.options.get(w.WRITE_ONLY)
        else ""
    )
    yield Advice(
        "runs",
        f"{len(late):,} of {len(flushed):,} buckets have more than {trigger:,} files of level 0; "
        f"{_named(table, worst)} has {late[worst]:,}. A read merges them all.",
        f"{who}Run `merganser compact {table.name}`.",
    )


def _small_files(table: TableDef, facts: Facts) -> Iterator[Advice]:
    if table.keyed:
        return
    target = w.target_file_size_bytes(table.options, keyed=False)
    files: list[DataFile] = [entry.file for entry in facts.live]
    small = [file for file in files if file.size < target * _SMALL_PART]
    in_one = max((len(held.entries) for held in facts.live.buckets.values()), default=0)
    if len(small) <= _SMALL_FILES_FEW or len(small) * 2 < len(files) or in_one <= _SMALL_FILES_FEW:
        return
    size = sum(file.size for file in small)
    yield Advice(
        "files",
        f"{len(small):,} of {len(files):,} files are small, {size_text(size // len(small))} on average, and a file is "
        f"full at {size_text(target)}. A read opens each of them.",
        f"Run `merganser compact {table.name}`.",
    )


def _old(table: TableDef, facts: Facts) -> Iterator[Advice]:
    most = table.options.get(u.SNAPSHOT_NUM_RETAINED_MAX)
    keeps = table.options.get(u.SNAPSHOT_TIME_RETAINED)
    least = table.options.get(u.SNAPSHOT_NUM_RETAINED_MIN)
    if facts.oldest is None or facts.snapshots <= least:
        return
    if facts.held:  # they keep the snapshots
        return
    age = facts.now - facts.oldest
    too_many = facts.snapshots > _SNAPSHOTS_PATIENCE * most
    too_old = age > _SNAPSHOTS_PATIENCE * keeps and age > timedelta(days=1)
    if not too_many and not too_old:
        return
    yield Advice(
        "snapshots",
        f"{facts.snapshots:,} snapshots are kept, the oldest for {_age(age)}; the options keep {most:,} at most, for "
        f"{_age(keeps)}. They keep files that no reader of today needs.",
        f"Run `merganser expire {table.name}`."
        + (
            ""
            if stream_of(table.options, table.branch) is None
            else " What stays is what the shard stream needs for its retention."
        ),
    )


def _deletes(table: TableDef, facts: Facts) -> Iterator[Advice]:
    files = [entry.file for entry in facts.live if entry.bucket >= 0]
    marked = sum(facts.marked.values())
    holders = [file for file in files if file.delete_row_count] if table.keyed else []
    rows, stored = sum(file.delete_row_count or 0 for file in holders), sum(file.row_count for file in files)
    if not marked + rows or marked + rows < _DELETED_PART * stored:
        return
    said = [f"marked as deleted ({_counted(len(facts.marked), 'file')})"] if marked else []
    said += [f"deletes ({_counted(len(holders), 'file')})"] if rows else []
    verb = "is" if marked + rows == 1 else "are"
    problem = f"{marked + rows:,} of {_counted(stored, 'stored row')} {verb} {' or '.join(said)}. Reads pass over them."
    tombstones = Tombstones.of(table, round(facts.now.timestamp() * 1000))
    kept = sum(file.delete_row_count or 0 for file in holders if file.level and not tombstones.due(file))
    remedy = f"Run `merganser compact {table.name} --full`."
    if kept:
        why = "rows that they take back may still come"
        if tombstones.lasting.removals:
            age = facts.now - datetime.fromtimestamp(tombstones.oldest_ms / 1000, facts.now.tzinfo)
            why = (
                f"older rows that come late must lose against them for '{u.TOMBSTONE_TIME_RETAINED.key}' ({_age(age)})"
            )
        stay = f"{_counted(kept, 'delete')} {'stays' if kept == 1 else 'stay'} for now, since {why}."
        remedy = f"{remedy} {stay}" if marked or rows > kept else stay[0].upper() + stay[1:]
    yield Advice("deletes", problem, remedy)


def _indexes(table: TableDef, facts: Facts) -> Iterator[Advice]:
    files = facts.outdated.get(INDEX, ())
    if files:
        yield Advice(
            "indexes",
            f"{_share(files, facts.live)} {_verb(files, 'lacks', 'lack')} a Bloom filter that "
            f"'{w.FILE_INDEX_BLOOM_COLUMNS.key}' asks for. A filter on the column skips none of them.",
            f"Run `merganser compact {table.name} --full`: it rewrites these files.",
        )


def _formats(table: TableDef, facts: Facts) -> Iterator[Advice]:
    for reason, option, levels in (
        (FORMAT, w.FILE_FORMAT, w.FILE_FORMAT_PER_LEVEL),
        (COMPRESSION, w.FILE_COMPRESSION, w.FILE_COMPRESSION_PER_LEVEL),
    ):
        files = facts.outdated.get(reason, ())
        if files:
            asked = f"'{option.key}' ({table.options.get(option)})" + (
                f" and '{levels.key}' ask" if table.options.get(levels) else " asks"
            )
            yield Advice(
                "formats",
                f"{_share(files, facts.live)} {_verb(files, 'has', 'have')} another {reason} than {asked} "
                f"for. Reads take them as they are.",
                f"Run `merganser compact {table.name} --full`: it rewrites these files.",
            )


def _consumers(table: TableDef, facts: Facts) -> Iterator[Advice]:
    last = sorted(facts.held, key=lambda one: -one.count)
    for one in last[:_CONSUMERS_SHOWN]:
        name = one.consumer.id
        size = "files" if one.size_bytes is None else f"{size_text(one.size_bytes)} of data files"
        heard = _age(max(facts.now - one.consumer.modified, timedelta(0)))  # the clock of the store may be ahead
        drop = f"`merganser consumer drop {table.name} {shlex.quote(name)}` and `merganser expire {table.name}`"
        yield Advice(
            "consumers",
            f"Consumer '{name}' reads snapshot {one.consumer.next_snapshot:,} next, and was last heard of "
            f"{heard} ago. It keeps {_counted(one.count, one.kind)} from expiry, the oldest "
            f"{_age(facts.now - one.since)} old, and {size} that no later {one.kind} needs.",
            f"Let its reader go on, or run {drop}. '{u.CONSUMER_EXPIRATION_TIME.key}' drops consumers that are not "
            "heard of.",
        )
    if len(last) > _CONSUMERS_SHOWN:
        yield Advice(
            "consumers",
            f"{len(last) - _CONSUMERS_SHOWN:,} more consumers keep snapshots or changelogs from expiry.",
            f"Run `merganser consumers {table.name}` to see them.",
        )


def _shards(table: TableDef, facts: Facts) -> Iterator[Advice]:
    stream = stream_of(table.options, table.branch)
    if stream is None:
        return
    late = [lag for lag in facts.lags if lag.rows and lag.behind >= _BEHIND_PART * stream.retention]
    if not late:
        return
    worst = max(late, key=lambda lag: lag.behind)
    yield Advice(
        "shards",
        f"The workers of `Table.follow` are behind in {len(late):,} of {_counted(len(facts.lags), 'shard')}: in "
        f"'{worst.shard_id}' by {_counted(worst.rows, 'row')}, the first committed {_age(worst.behind)} ago. The "
        f"stream keeps records for {span_text(stream.retention)}. Workers that fall behind this miss records.",
        f"Start workers, or keep records longer: `merganser stream enable {table.name} --retention TIME`.",
    )


def drop_advice(table: TableDef, names: Sequence[str]) -> Iterator[Advice]:
    """Yield what to do about branches whose removal has begun and not ended."""
    for name in names:
        yield Advice(
            "branches",
            f"A call that drops the branch '{name}' was stopped, or still runs. Files that only the branch needs take "
            "room.",
            f"Run `merganser branch drop {table.name} {name}` to finish it.",
        )


def orphan_advice(table: TableDef, orphans: Sequence[Orphan], now_ms: int) -> Iterator[Advice]:
    """Yield what to do about files that no metadata names, of any age."""
    old = [orphan for orphan in orphans if orphan.modified_ms < now_ms - DAY_MS]
    young = [orphan for orphan in orphans if orphan.modified_ms >= now_ms - DAY_MS]
    if old:
        yield Advice(
            "orphans",
            f"{_room(old)} that no snapshot, tag or branch needs, such as '{old[0].path}', "
            f"{_verb(old, 'takes', 'take')} room.",
            f"Run `merganser orphans {table.name}`, and again with --remove.",
        )
    if young:
        until = datetime.fromtimestamp(max(now_ms, *(orphan.modified_ms for orphan in young)) // 1000 + 1, UTC)
        yield Advice(
            "orphans",
            f"{_room(young)} that no snapshot, tag or branch needs, such as '{young[0].path}', "
            f"{_verb(young, 'is', 'are')} younger than a day. "
            "Rollbacks, fast-forwards and stopped writers leave such files. Or a writer is about to commit them.",
            f"`merganser orphans {table.name} --remove` removes files that are a day old. If nothing writes to the "
            f"table now, add --older-than {until:%Y-%m-%dT%H:%M:%S} to remove these at once.",
        )


def _room(orphans: Sequence[Orphan]) -> str:
    return f"{_counted(len(orphans), 'file')} ({size_text(sum(orphan.size for orphan in orphans))})"


def _share(files: Sequence[DataFile], live: LiveFiles) -> str:
    return f"{len(files):,} of {_counted(len(live), 'file')} ({size_text(sum(file.size for file in files))})"


def _verb(files: Sequence[object], one: str, many: str) -> str:
    return one if len(files) == 1 else many


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _age(age: timedelta) -> str:
    seconds = age.total_seconds()
    for size, noun, most in ((60, "minute", 120), (3600, "hour", 72), (86_400, "day", None)):
        number = round(seconds / size)
        if most is None or number < most:
            return f"{number:,} {noun}{'' if number == 1 else 's'}"
    raise AssertionError("the last unit has no most")


def _stats(table: TableDef, facts: Facts) -> Iterator[Advice]:
    files = [entry.file for entry in facts.live if entry.bucket >= 0]
    bare = [file for file in files if file.value_stats_columns == ()]
    if len(files) <= _SMALL_FILES_FEW or len(bare) * 2 < len(files):
        return
    mode = table.options.get(w.STATS_MODE_OPTION)
    remedy = (
        f"Another engine wrote them. `merganser compact {table.name} --full` gives those that it merges statistics."
    )
    if mode == "none":
        remedy = (
            "'metadata.stats-mode' is none. Open the table with "
            "`table.with_options({'metadata.stats-mode': 'truncate(16)'})` to write and to compact it: files that are "
            "written then have statistics."
        )
    yield Advice(
        "statistics",
        f"{len(bare):,} of {len(files):,} files have no statistics of their columns, so filters on them skip no file.",
        remedy,
    )
