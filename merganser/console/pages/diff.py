"""What differs between two snapshots of a table: columns, options, files by bucket, and the first changed rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar
from urllib.parse import quote

import pyarrow as pa

from merganser.codec.display import display_texts
from merganser.console.cells import brief_texts
from merganser.console.history import Line, Step, step_of
from merganser.console.page import Asked, Page, paged
from merganser.console.schemas import column_changes, option_changes
from merganser.errors import InvalidInputError, MerganserError
from merganser.handle.table import Table
from merganser.meta.data_file import DELETE, ManifestEntry
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import MetaReader
from merganser.progress.sizes import size_text
from merganser.schema.table_schema import TableSchema
from merganser.storage.cache import weight_of
from merganser.values import dataclass

T = TypeVar("T")

_ROWS: Final = 50
_COLUMNS_MAX: Final = 100
_BYTES_MAX: Final = 64 << 20
"""Maximum size of files that differ between two states of which rows are compared: about a second of work."""
_STEPS_MAX: Final = 64
_KINDS: Final = {"+I": "good", "+U": "good", "-U": "bad", "-D": "bad"}


@dataclass(frozen=True, slots=True)
class BucketStep:
    """What changed in a bucket.

    Attributes:
        partition: such as "day=2026-01-01", or "" if the table has none.
    """

    partition: str
    bucket: int
    step: Step


@dataclass(frozen=True, slots=True)
class Files:
    """What changed in the files: the whole and by bucket, those with most rows first."""

    whole: Step
    buckets: tuple[BucketStep, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A value of a changed row; `differs` from the row before or after it."""

    text: str
    is_null: bool
    differs: bool


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The first rows that changed.

    Attributes:
        rows: the kind of each, the mark of the kind, and its cells.
        note: what is to be known of them, or why there are none; "" if there is nothing to say.
        more: whether more rows changed than are shown.
        hidden: how many columns are not shown.
    """

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, str, tuple[Cell, ...]], ...] = ()
    note: str = ""
    more: bool = False
    hidden: int = 0


def view(asked: Asked) -> Mapping[str, Any]:
    """Return what differs between two snapshots, `from` the older one; each is an id or the name of a tag."""
    table = asked.table
    line = Line(asked, table)
    before, after = _asked_for(asked, line)
    if after is None:
        return {"before": None, "after": None, "quote": quote}
    files = _kept(line, "files", before, after, lambda: _files(line, before, after))
    schemas = [_schema(table, each) for each in (before, after)]
    return {
        "before": before,
        "after": after,
        "whole": files.whole,
        "buckets": paged(list(files.buckets), asked),
        "columns": column_changes(*schemas),
        "options": option_changes(*schemas),
        "changed": _changed(line, before, after, files.whole),
        "is_partitioned": bool(table.partition_by),
        "earlier": before.id if before is not None and before.id - 1 in line and before.id + 1 == after.id else None,
        "later": after.id + 1 if after.id + 1 in line else None,
        "quote": quote,
    }


def _asked_for(asked: Asked, line: Line) -> tuple[Snapshot | None, Snapshot | None]:
    """Return the older and the newer of the snapshots that are asked for."""
    last = asked.text("to")
    after = line.resolve(last) if last else line.table.latest_snapshot()
    if after is None:
        return None, None
    first = asked.text("from")
    if first:
        before: Snapshot | None = line.resolve(first)
    else:
        before = line.store.get(after.id - 1) if after.id > 1 else None
        if before is None and after.id > 1:
            raise InvalidInputError(
                f"snapshot {after.id - 1} of '{line.table.name}' has expired, so what snapshot {after.id} changed is "
                "only known from a tag before it: give the tag as 'from'."
            )
    if before is not None and (before.id, before.time_millis) > (after.id, after.time_millis):
        before, after = after, before
    return before, after


def _kept(line: Line, what: str, before: Snapshot | None, after: Snapshot, make: Callable[[], T]) -> T:
    """Return what was found of two snapshots before, or find it; it is kept in the memory that metadata may take."""
    ends = (None if before is None else before.delta_manifest_list, after.delta_manifest_list)
    name = (what, line.paths.metadata_root, line.table.schema.id, *ends)
    kept: T | None = line.table.env.cache.get(name)
    if kept is None:
        kept = make()
        line.table.env.cache.put(name, kept, weight_of([kept]))
    return kept


# files


def _files(line: Line, before: Snapshot | None, after: Snapshot) -> Files:
    table, by_bucket = line.table.definition, defaultdict[tuple[bytes, int], list[ManifestEntry]](list)
    entries = _net(line, before, after)
    for entry in entries:
        by_bucket[entry.partition, entry.bucket].append(entry)
    names = {partition: table.partition_shown(partition) for partition in {partition for partition, _ in by_bucket}}
    found = [BucketStep(names[key[0]], key[1], step_of(some)) for key, some in by_bucket.items()]
    found.sort(key=lambda each: (-each.step.rows_in - each.step.rows_out, each.partition, each.bucket))
    return Files(step_of(entries), tuple(found))


def _net(line: Line, before: Snapshot | None, after: Snapshot) -> list[ManifestEntry]:
    """Return the files that one of two states has alone, as entries of manifests."""
    reader = MetaReader(line.paths, line.table.env, line.table.name)
    start = 0 if before is None else before.id
    steps = range(start + 1, after.id + 1)
    if len(steps) <= _STEPS_MAX and all(number in line for number in steps) and (not start or start in line):
        snapshots = line.snapshots(steps)
        if len(snapshots) == len(steps):
            return _netted(chain.from_iterable(reader.delta(each) for each in snapshots))
    old = [] if before is None else [*reader.state(before).live]
    new = [*reader.state(after).live]
    there = {entry.identity for entry in old}
    still = {entry.identity for entry in new}
    gone = [_removed(entry) for entry in old if entry.identity not in still]
    return gone + [entry for entry in new if entry.identity not in there]


def _netted(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return entries without files that came and went, or went and came back."""
    found: dict[tuple[object, ...], ManifestEntry] = {}
    for entry in entries:
        other = found.pop(entry.identity, None)
        if other is None or other.kind == entry.kind:
            found[entry.identity] = entry
    return list(found.values())


def _removed(entry: ManifestEntry) -> ManifestEntry:
    return ManifestEntry(DELETE, entry.partition, entry.bucket, entry.total_buckets, entry.file)


# columns and options


def _schema(table: Table, snapshot: Snapshot | None) -> TableSchema | None:
    if snapshot is None:
        return None
    return SchemaStore(table.definition.paths, table.env).load(snapshot.schema_id).shown


# rows


def _changed(line: Line, before: Snapshot | None, after: Snapshot, whole: Step) -> ChangedRows:
    """Return the first changed rows, or why they are not known."""
    try:
        return _kept(line, "rows", before, after, lambda: _rows(line, before, after, whole))
    except MerganserError as error:
        return ChangedRows(note=f"The changed rows cannot be told: {error.message}")


def _rows(line: Line, before: Snapshot | None, after: Snapshot, whole: Step) -> ChangedRows:
    if after.id not in line or (before is not None and before.id not in line):
        return ChangedRows(note="Rows are compared between snapshots that have not expired; of tags only files are.")
    if before is not None and before.id == after.id:
        return ChangedRows()
    size = whole.bytes_in + whole.bytes_out
    mode, note = "diff", ""
    if size > _BYTES_MAX:
        mode = "auto"
        note = (
            f"The two states differ in {size_text(size)} of files, and rows are compared up to "
            f"{size_text(_BYTES_MAX)}. These are the first rows as commits published them."
        )
    changes = line.table.changes(1 if before is None else before.id + 1, after.id, mode=mode)
    found, count = [], 0
    for batch in changes.to_batches():
        found.append(batch.slice(0, _ROWS + 1 - count))
        count += found[-1].num_rows
        if count > _ROWS:
            break
    table = pa.Table.from_batches(found, changes.schema)
    kind, *columns = table.column_names
    shown = columns[:_COLUMNS_MAX]
    kinds = table.column(kind).to_pylist()
    texts = [display_texts(table.column(name)).to_pylist() for name in shown]
    briefs = [brief_texts(table.column(name)) for name in shown]
    rows = []
    for i, mark in enumerate(kinds[:_ROWS]):
        other = _partner(kinds, i)
        cells = tuple(
            Cell(brief[i] or "", brief[i] is None, other is not None and whole[other] != whole[i])
            for brief, whole in zip(briefs, texts, strict=True)
        )
        rows.append((mark, _KINDS.get(mark, "plain"), cells))
    return ChangedRows(tuple(shown), tuple(rows), note, count > _ROWS, len(columns) - len(shown))


def _partner(kinds: Sequence[str], i: int) -> int | None:
    """Return the other row of an update: the one after it follows the one before it."""
    at, wanted = (i + 1, "+U") if kinds[i] == "-U" else (i - 1, "-U") if kinds[i] == "+U" else (-1, "")
    return at if 0 <= at < len(kinds) and kinds[at] == wanted else None


PAGE: Final = Page("diff", "/t/{table}/diff", view)
