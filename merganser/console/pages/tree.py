"""The files of each bucket: the sorted runs of its LSM tree, what a read merges, and what is compacted next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from markupsafe import Markup

from merganser.codec.binary_row import deserialize_columns
from merganser.console.cells import brief_texts
from merganser.console.charts import Column, column_chart
from merganser.console.lsm_drawing import SHAPES_MAX, drawing
from merganser.console.page import Asked, Page, paged
from merganser.errors import InvalidInputError, MerganserError
from merganser.files.layout import file_layout
from merganser.files.masks import marked_rows
from merganser.handle.table import Table
from merganser.lsm.compact import CompactJob
from merganser.lsm.levels import dense_ranks, runs_of, sections
from merganser.meta.data_file import DataFile
from merganser.meta.live_files import BucketId
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import upkeep as u
from merganser.options.option import Options
from merganser.progress.sizes import size_text
from merganser.storage.cache import weight_of
from merganser.upkeep.plan_compaction import CompactionRequest, plan_jobs
from merganser.values import dataclass

_PER_PAGE: Final = 50
_LISTED: Final = 300
_SORTS: Final[Mapping[str, Callable[[BucketLine], Any]]] = {
    "runs": lambda line: line.runs,
    "files": lambda line: line.files,
    "size": lambda line: line.size,
    "rows": lambda line: line.rows,
    "bucket": lambda line: (line.partition, line.bucket),
}
_RULES: Final[Mapping[str, str]] = {
    "early full": "early full compaction: an interval has passed, or the bucket or its young runs cross a size",
    "size amplification": (
        "size amplification: the runs above the oldest are together larger than {amplification} % of it"
    ),
    "size ratio": "size ratio: neighbouring runs have about the same size, within {ratio} %",
    "run count": "run count: the bucket has more than {trigger} sorted runs",
    "level 0": "level 0 push: the table looks rows up while it compacts, so level 0 has to become empty",
}


@dataclass(frozen=True, slots=True)
class BucketLine:
    """One bucket in the list.

    Attributes:
        at: names the bucket in an address.
        runs: sorted runs: files of level 0, and levels above with files; 0 in a table without a key.
        deletes: rows that delete others.
        marked: rows that deletion vectors mark.
    """

    at: str
    partition: str
    bucket: int
    files: int
    runs: int
    size: int
    rows: int
    deletes: int
    marked: int


@dataclass(frozen=True, slots=True)
class FileLine:
    """One file of the chosen bucket.

    Attributes:
        at: its place among the files of the bucket.
        taken: whether the next compaction takes it.
    """

    at: int
    file: DataFile
    low: str
    high: str
    marked: int
    created: datetime | None
    taken: bool
    small: bool


@dataclass(frozen=True, slots=True)
class Amplification:
    """What a read of the whole bucket merges.

    Attributes:
        most: the largest number of sorted runs that are merged in one range of keys.
        mean: the mean of that number, each stored row counted once.
        alone: the share of stored rows that no other run meets.
    """

    most: int
    mean: float
    alone: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen bucket.

    Attributes:
        picture: of its files.
        is_whole: whether each file is drawn by itself.
        lines: of its first files, the newest run first.
        next: what the next compaction does, as sentences.
    """

    line: BucketLine
    picture: Markup
    is_whole: bool
    lines: tuple[FileLine, ...]
    total: int
    amplification: Amplification | None
    next: tuple[str, ...]


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the buckets of a page, and the chosen one with its files."""
    table = asked.table
    newest = table.latest_snapshot()
    if newest is None:
        return {"buckets": None}
    state = MetaReader(table.definition.paths, table.env, table.name).state(newest)
    lines = _kept_lines(table, state)
    wanted = asked.text("partition")
    found = [line for line in lines if wanted.lower() in line.partition.lower()]
    order = asked.choice("sort", tuple(sign + name for name in _SORTS for sign in ("-", "")))
    found.sort(key=_SORTS[order.removeprefix("-")], reverse=order.startswith("-"))
    at = asked.text("bucket") or (found[0].at if found else "")
    return {
        "buckets": paged(found, asked, _PER_PAGE),
        "all": len(lines),
        "wanted": wanted,
        "chosen": _chosen(asked, table, state, lines, at) if at else None,
        "keyed": table.definition.keyed,
        "is_partitioned": bool(table.partition_by),
        "has_marks": any(line.marked for line in lines),
        "listed": _LISTED,
        "shapes": SHAPES_MAX,
    }


def _kept_lines(table: Table, state: TableState) -> tuple[BucketLine, ...]:
    """Return the lines of all buckets; those of the newest state are kept, in the memory that metadata may take."""
    name = ("buckets", table.definition.paths.metadata_root)
    kept: tuple[Any, tuple[BucketLine, ...]] | None = table.env.cache.get(name)
    if kept is None or kept[0] != state.snapshot:
        kept = (state.snapshot, _lines(table, state))
        table.env.cache.put(name, kept, weight_of(kept[1]))
    return kept[1]


def _lines(table: Table, state: TableState) -> tuple[BucketLine, ...]:
    reader = MetaReader(table.definition.paths, table.env, table.name)
    marked = marked_rows(table.definition, reader.index(state.snapshot))
    names: dict[bytes, str] = {}
    found = []
    for (partition, bucket), held in state.live.buckets.items():
        if not held.entries:
            continue
        if partition not in names:
            names[partition] = table.definition.partition_shown(partition) if table.partition_by else ""
        files = [entry.file for entry in held.entries]
        young = sum(file.level == 0 for file in files)
        found.append(
            BucketLine(
                f"{partition.hex()}.{bucket}",
                names[partition],
                bucket,
                len(files),
                young + len({file.level for file in files} - {0}) if table.definition.keyed else 0,
                sum(file.size for file in files),
                sum(file.row_count for file in files),
                sum(file.delete_row_count or 0 for file in files),
                sum(marked.get(file.name, 0) for file in files) if marked else 0,
            )
        )
    return tuple(found)


def _chosen(asked: Asked, table: Table, state: TableState, lines: Sequence[BucketLine], at: str) -> Chosen:
    line = next((line for line in lines if line.at == at), None)
    if line is None:
        raise InvalidInputError(
            f"'{table.name}' has no bucket {at!r:.60} at its newest snapshot. Choose one from the list."
        )
    bucket: BucketId = (bytes.fromhex(at.rpartition(".")[0]), line.bucket)
    files = [entry.file for entry in state.live.buckets[bucket].entries]
    taken, told = _next(table, state, bucket, files)
    marked = marked_rows(table.definition, _index_of(table, state, bucket))
    if not table.definition.keyed:
        return _appended(table, line, files, taken, told, marked)
    low, high = (deserialize_columns(keys, table.definition.key_types) for keys in _bounds(files))
    ranks = dense_ranks(low, high)
    places = {id(file): i for i, file in enumerate(files)}
    runs = [[places[id(file)] for file in run] for run in reversed(runs_of(files, *ranks))]
    shown = [i for run in runs for i in run][:_LISTED]
    lows, highs = ([_key(columns, i) for i in shown] for columns in (low, high))
    texts = {i: f"{a} to {b}" for i, a, b in zip(shown, lows, highs, strict=True)}
    drawn = drawing(files, runs, ranks, texts, taken)
    listed = [_file_line(i, files[i], a, b, marked, taken, False) for i, a, b in zip(shown, lows, highs, strict=True)]
    amplified = _amplification(files, ranks)
    return Chosen(line, drawn.svg, drawn.is_whole, tuple(listed), len(files), amplified, tuple(told))


def _index_of(table: Table, state: TableState, bucket: BucketId) -> list[Any]:
    index = MetaReader(table.definition.paths, table.env, table.name).index(state.snapshot)
    return [entry for entry in index if (entry.partition, entry.bucket) == bucket]


def _bounds(files: Sequence[DataFile]) -> tuple[list[bytes], list[bytes]]:
    return [file.min_key for file in files], [file.max_key for file in files]


def _key(columns: Sequence[Any], i: int) -> str:
    texts = (brief_texts(pa.chunked_array([column.slice(i, 1)]))[0] for column in columns)
    return ", ".join("null" if text is None else text for text in texts)


def _file_line(
    at: int, file: DataFile, low: str, high: str, marked: Mapping[str, int], taken: frozenset[str], small: bool
) -> FileLine:
    made = None if file.creation_time_ms is None else datetime.fromtimestamp(file.creation_time_ms / 1000, UTC)
    return FileLine(at, file, low, high, marked.get(file.name, 0), made, file.name in taken, small)


def _amplification(files: Sequence[DataFile], ranks: tuple[Any, Any]) -> Amplification:
    low, high = ranks
    rows_by_runs: dict[int, int] = defaultdict(int)
    for section in sections(low, high):
        some = [files[i] for i in section]
        rows_by_runs[len(runs_of(some, low[section], high[section]))] += sum(file.row_count for file in some)
    rows = sum(rows_by_runs.values()) or 1
    mean = sum(runs * count for runs, count in rows_by_runs.items()) / rows
    return Amplification(max(rows_by_runs), mean, rows_by_runs[1] / rows)


def _appended(
    table: Table,
    line: BucketLine,
    files: Sequence[DataFile],
    taken: frozenset[str],
    told: Sequence[str],
    marked: Mapping[str, int],
) -> Chosen:
    """Return the bucket of a table without a key: its files by size."""
    small = file_layout(table.definition).target_size_bytes * table.definition.options.get(u.SMALL_FILE_RATIO)
    order = sorted(range(len(files)), key=lambda i: -files[i].size)
    size = -(-len(order) // SHAPES_MAX)
    columns = []
    for begin in range(0, len(order), size):
        some = [files[i] for i in order[begin : begin + size]]
        told_of = some[0].name if len(some) == 1 else f"{len(some):,} files"
        rows, whole = sum(file.row_count for file in some), sum(file.size for file in some)
        note = f"{told_of}\n{rows:,} rows, {size_text(whole)}"
        columns.append(Column(f"{begin + 1:,}", whole, 0, note, marked=some[0].size < small))
    shown = order[:_LISTED]
    listed = [_file_line(i, files[i], "", "", marked, taken, files[i].size < small) for i in shown]
    count = sum(file.size < small for file in files)
    title = f"Bytes by file, largest first; {count:,} of {len(files):,} are small (below {size_text(round(small))})"
    chart = column_chart(columns, title=title, unit="bytes")
    return Chosen(line, chart, size == 1, tuple(listed), len(files), None, tuple(told))


# what is compacted next


def _next(
    table: Table, state: TableState, bucket: BucketId, files: Sequence[DataFile]
) -> tuple[frozenset[str], list[str]]:
    """Return the files that a compaction takes now, and what it does, as sentences."""
    if bucket[1] < 0:
        return frozenset(), ["These rows wait for a bucket; the next compaction gives them one."]
    try:
        jobs = plan_jobs(table.definition, table.env, state, CompactionRequest(buckets=[bucket]))
    except MerganserError as error:
        return frozenset(), [f"It cannot be told: {error.message}"]
    jobs = [one for job in jobs for one in (job, *job.others)]
    if not jobs:
        return frozenset(), [_nothing(table, files)]
    return frozenset(file.name for job in jobs for file in job.files), [_told(table, job, len(files)) for job in jobs]


def _nothing(table: Table, files: Sequence[DataFile]) -> str:
    options = table.definition.options
    if not table.definition.keyed:
        least = options.get(u.COMPACTION_MIN_FILE_NUM)
        return f"Nothing: fewer than {least} small files ('{u.COMPACTION_MIN_FILE_NUM.key}') are there to be joined."
    runs = sum(file.level == 0 for file in files) + len({file.level for file in files} - {0})
    trigger = options.get(u.COMPACTION_TRIGGER)
    return (
        f"Nothing: no rule picks any of the {_counted(runs, 'sorted run')}. Rules begin at {trigger} runs "
        f"('{u.COMPACTION_TRIGGER.key}')."
    )


def _told(table: Table, job: CompactJob, count: int) -> str:
    what = f"{'all' if len(job.files) == count else len(job.files)} of {_counted(count, 'file')}"
    said = f"It takes {what} ({size_text(sum(file.size for file in job.files))})"
    if not table.definition.keyed:
        return f"{said} and joins them: small files, or files with many deleted rows."
    lifted = f" {_counted(len(job.lifted), 'file')} move there as they are." if job.lifted else ""
    return f"{said} into level {job.output_level}.{lifted} Rule: {_rule(job.rule, table.definition.options)}."


def _rule(rule: str, options: Options) -> str:
    text = _RULES.get(rule, "files are rewritten where they are")
    return text.format(
        amplification=options.get(u.MAX_SIZE_AMPLIFICATION_PERCENT),
        ratio=options.get(u.SIZE_RATIO),
        trigger=options.get(u.COMPACTION_TRIGGER),
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


PAGE: Final = Page("tree", "/t/{table}/tree", view, title="Tree", key="f")
