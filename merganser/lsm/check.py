"""Checks of one bucket and of one data file: the rules that must hold, and a finding for each that does not.

Every check is a function of values: files as manifests describe them, and rows of the files. `upkeep.check` walks
over a table and calls the checks. The bounds in manifests may be wider than the rows only for types whose bounds the
format cuts (text and binary); all other bounds equal those of the rows.

Format: sections "data manifest record", "stats", "order and content", "levels", "bucketing".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import arrow_to_stored, deserialize, deserialize_columns, serialize, sort_key
from merganser.codec.hashing import row_hashes
from merganser.codec.stats import ColumnStats, SimpleStats, column_stats, decode_stats, merge_stats
from merganser.codec.stored import BINARY, TEXT, Stored
from merganser.errors import MerganserError
from merganser.lsm.levels import dense_ranks
from merganser.meta.data_file import DataFile, ManifestEntry
from merganser.meta.layout import bucket_numbers
from merganser.meta.table_def import TableDef
from merganser.schema import row_kind
from merganser.schema import types as t
from merganser.schema.table_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.paths import join
from merganser.values import dataclass

UNSURE: Final = "unsure"
"""The code of the one finding that is no fault: something of which the check cannot tell."""

KINDS: Final[Mapping[str, str]] = {
    "missing": "Restore the file, or roll back to a snapshot that does not need it. Until then reads that need it fail "
    "and name it; others go on.",
    "damaged": "Restore the file, or roll back to a snapshot that does not need it. Until then reads that need it fail "
    "and name it; others go on.",
    "unreadable": "Nothing is known of it. Run the check again when the store answers, or use an engine that reads it.",
    "gap": "Restore the missing snapshots. Without them a time between cannot be read, and a stream cannot pass.",
    "lost": "Restore the file, or run `merganser repair`, which restores what a tag keeps and gives up the rest. Until "
    "then reads return the state before and warn, and writers refuse.",
    "hint": "No row is lost by it: readers list the directory instead. The next commit writes LATEST anew, and the "
    "next expiry that removes a snapshot EARLIEST. You may also remove the hint.",
    "count": "Reads are right, what is counted without reading is not. Compact the bucket in full, or restore the "
    "metadata.",
    "replay": "Roll back to the snapshot before, or restore the file.",
    "bounds": "Reads with a filter may miss rows. Compact the bucket in full, which writes the bounds anew.",
    "order": "Merges of the bucket may be wrong. Overwrite its partition from a source that is right.",
    "levels": "Reads merge the files one by one and stay right. Compact the bucket in full.",
    "placement": "Reads by key or partition may miss the rows. Overwrite the partitions from a source that is right.",
    "value": "Overwrite the partition from a source that is right.",
    "nulls": "Reads show the rows as they are. Give them a value with `merganser update`, or let the column be null "
    "again with `merganser alter set-nullable`.",
    "index": "No read needs a key index, and writes do: run `merganser repair`, which builds that of the newest "
    "snapshot anew from the rows. If a deletion vector is at fault, compact the bucket in full, or roll back to the "
    "snapshot before.",
    UNSURE: "Nothing is known to be wrong. Compact the table in full to have checksums: merganser notes one of each "
    "file that it writes.",
    "shards": "The commits say the same: run `merganser repair`, which writes the file anew. Until then processes that "
    "look at the shards go through the commits.",
    "forgotten": "Restore the file. Otherwise run `merganser repair`: shards begin anew at the oldest snapshot, and "
    "positions in those before are refused. Readers then read the table, and begin with the new shards.",
    "lease": "Remove the directory of the shard, and its workers read it from the beginning of what is kept.",
    "twice": "Rows may be there twice in tables without a key. Roll back to the snapshot before the second.",
}
"""What can be wrong, by the code of a finding, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a table, or of which the check cannot tell.

    Attributes:
        code: the kind of it, a key of `KINDS`.
        path: the file at fault.
        problem: what is wrong, with its values, as a sentence.
        snapshot: a snapshot that needs the file, the newest that was looked at; None: none does.
    """

    code: str
    path: str
    problem: str
    snapshot: int | None = None

    @property
    def is_fault(self) -> bool:
        """Whether something is wrong; else the check cannot tell."""
        return self.code != UNSURE

    @property
    def advice(self) -> str:
        """What to do."""
        return KINDS[self.code]

    def __str__(self) -> str:
        needed = "" if self.snapshot is None else f" Snapshot {self.snapshot} needs it."
        return f"'{self.path}': {self.problem}{needed} {self.advice}"


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A data file to look at.

    Attributes:
        table: with the schema that the file was written with.
        entry: as a manifest describes it.
        path: where it lies.
        snapshot: the newest snapshot that was seen to hold it.
        merged: rows are in key order and of each key there is one; not so in changelogs and postponed files.
        counts_retractions: its writer counted them; one known writer leaves 0, whatever it wrote.
        hashes: of all keys of the bucket, where it is a dynamic one.
        once_nullable: ids of columns that other schemas let be null; rows from then may be.
    """

    table: TableDef
    entry: ManifestEntry
    path: str
    snapshot: int | None
    merged: bool = True
    counts_retractions: bool = True
    hashes: npt.NDArray[np.int32] | None = None
    once_nullable: frozenset[int] = frozenset()

    def finding(self, code: str, problem: str) -> Finding:
        """Return a finding about it."""
        return Finding(code, self.path, problem, self.snapshot)


def bucket_findings(
    table: TableDef, entries: Sequence[ManifestEntry], *, directory: str, snapshot: int
) -> Iterator[Finding]:
    """Yield what is wrong between the live files of one bucket.

    Args:
        entries: of one partition and bucket, as one snapshot has them.
        directory: the bucket's.
    """
    seen: set[str] = set()
    for entry in entries:
        path = entry.file.external_path or join(directory, entry.file.name)
        if path in seen:
            yield Finding("levels", path, "it is live more than once, at several levels.", snapshot)
        seen.add(path)
    if not table.keyed or entries[0].bucket < 0:
        return
    for level in sorted({entry.file.level for entry in entries} - {0}):
        files = [entry.file for entry in entries if entry.file.level == level]
        try:
            yield from _meeting(table, files, directory, level, snapshot)
        except MerganserError as error:  # a key that is none: also a finding of the file itself
            yield Finding("bounds", join(directory, files[0].name), f"a key of level {level}: {error}", snapshot)


def _meeting(
    table: TableDef, files: Sequence[DataFile], directory: str, level: int, snapshot: int
) -> Iterator[Finding]:
    low, high = dense_ranks(
        deserialize_columns([file.min_key for file in files], table.key_types),
        deserialize_columns([file.max_key for file in files], table.key_types),
    )
    for a, b in pairwise(np.argsort(low, kind="stable").tolist()):
        if high[a] >= low[b]:
            yield Finding(
                "levels",
                join(directory, files[b].name),
                f"its keys begin at or before the last of '{files[a].name}', and files of level {level} may not meet.",
                snapshot,
            )


def total_findings(totals: Mapping[bytes, set[int]], directories: Mapping[bytes, str], snapshot: int) -> list[Finding]:
    """Return which partitions have live files of several numbers of buckets.

    Args:
        totals: by serialized partition, the numbers of its live files.
        directories: by serialized partition, its directory.
    """
    found = []
    for partition, every in totals.items():
        numbers = sorted(total for total in every if total > 0)
        if len(numbers) > 1:
            problem = f"its files were written for {' and '.join(map(str, numbers))} buckets."
            found.append(Finding("placement", directories[partition], problem, snapshot))
    return found


class RowCheck:
    """What the rows of one data file are, gathered window by window, held against what its manifest says."""

    def __init__(self, place: FilePlace) -> None:
        self._place = place
        self._table = place.table
        self._types = {field.name: field.type for field in place.table.schema.fields}
        self._found: dict[str, Finding] = {}
        self._rows = 0
        self._retractions = 0
        self._others = 0  # rows that are no inserts
        self._sequences: tuple[int, int] | None = None
        self._first: tuple[Stored, ...] = ()
        self._last: list[pa.ChunkedArray] | None = None
        self._stats: dict[str, ColumnStats] = {}
        self._said = self._said_stats("column statistics", place.entry.file.value_stats, self._stats_columns())
        self._said_keys = self._said_stats("key statistics", place.entry.file.key_stats, self._key_columns())
        self._partition = self._decoded_partition()

    def add(self, rows: pa.Table, repeated: pa.Table | None = None) -> None:
        """Take the next rows.

        Args:
            rows: at least one: the columns of the file's schema, and of a table with a key `_SEQUENCE_NUMBER` and
                `_VALUE_KIND`.
            repeated: the `_KEY_` columns, where the file has them.
        """
        if self._table.keyed:
            self._look_at_system_columns(rows)
            self._look_at_keys(rows, repeated)
        self._look_at_place(rows)
        for field in self._table.schema.fields:
            column = rows.column(field.name)
            if column.null_count and not field.type.nullable and field.id not in self._place.once_nullable:
                count = self._null_count(rows, field.name)
                if count:
                    self._note(
                        "value", f"column '{field.name}' is NOT NULL and null in {count} of rows {self._span(rows)}."
                    )
            if field.name in self._said or field.name in self._said_keys:
                more = column_stats(column, field.type)
                known = self._stats.get(field.name)
                self._stats[field.name] = more if known is None else merge_stats(known, more, field.type)
        self._rows += rows.num_rows

    def findings(self, *, noted_inserts: bool = False) -> list[Finding]:
        """Return what is wrong, once all rows were taken.

        Args:
            noted_inserts: whether the file's footer notes that all its rows are inserts.
        """
        file = self._place.entry.file
        if self._rows != file.row_count:
            self._note("count", f"it has {self._rows} rows, and its manifest says {file.row_count}.")
        if self._table.keyed and self._rows:
            counted = self._place.counts_retractions or file.delete_row_count != 0
            if counted and file.delete_row_count not in (None, self._retractions):
                self._note(
                    "count",
                    f"{self._retractions} of its rows are retractions, and its manifest says {file.delete_row_count}.",
                )
            if noted_inserts and self._others:
                self._note("value", f"its footer notes that all its rows are inserts, and {self._others} are not.")
            self._compare_sequences(file)
            if self._place.merged:
                self._compare_keys(file)
        for what, said in (("column", self._said), ("key", self._said_keys)):
            for name, stats in said.items():
                if self._rows and (why := _contradiction(stats, self._stats[name], self._types[name])):
                    self._note("bounds", f"the {what} statistics of '{name}' say {why}.")
        return list(self._found.values())

    def _note(self, code: str, problem: str) -> None:
        self._found.setdefault(problem.split(" of rows ")[0], self._place.finding(code, problem))

    def _span(self, rows: pa.Table) -> str:
        return f"{self._rows} to {self._rows + rows.num_rows - 1}"

    def _stats_columns(self) -> tuple[str, ...]:
        columns = self._place.entry.file.value_stats_columns
        if columns is None:
            columns = self._place.entry.file.write_columns or self._table.schema.names
        unknown = [name for name in columns if name not in self._types]
        if unknown:
            self._note("bounds", f"its statistics are of column '{unknown[0]}', which its schema does not have.")
            return ()
        return columns

    def _key_columns(self) -> tuple[str, ...]:
        return self._table.key if self._table.keyed else ()

    def _said_stats(self, what: str, stats: SimpleStats, names: Sequence[str]) -> dict[str, ColumnStats]:
        try:
            said = decode_stats(stats, [self._types[name].with_nullable(True) for name in names])
        except MerganserError as error:
            self._note("bounds", f"its {what} cannot be read: {error}")
            return {}
        return dict(zip(names, said, strict=True))

    def _decoded_partition(self) -> tuple[Stored, ...] | None:
        try:
            return deserialize(self._place.entry.partition, self._table.partition_types)
        except MerganserError as error:
            self._note("placement", f"its partition cannot be read: {error}")
            return None

    def _look_at_system_columns(self, rows: pa.Table) -> None:
        kinds = rows.column(VALUE_KIND.name)
        numbers = rows.column(SEQUENCE_NUMBER.name)
        if kinds.null_count or numbers.null_count:
            self._note("value", f"a kind or a sequence number is null in one of rows {self._span(rows)}.")
            return
        values = kinds.to_numpy()
        strange = (values < row_kind.INSERT) | (values > row_kind.DELETE)
        if strange.any():
            self._note(
                "value",
                f"{int(values[strange][0])} is no kind of row; it stands in one of rows {self._span(rows)}.",
            )
        self._retractions += int(((values & 1) == 1).sum())
        self._others += int(np.count_nonzero(values))
        bounds = pc.min_max(numbers).as_py()
        low, high = self._sequences or (bounds["min"], bounds["max"])
        self._sequences = (min(low, bounds["min"]), max(high, bounds["max"]))

    def _null_count(self, rows: pa.Table, name: str) -> int:
        """Return in how many rows a column is null; a retraction needs its key alone."""
        nulls = pc.is_null(rows.column(name))
        if self._table.keyed and name not in self._table.schema.primary_keys:
            kinds = pc.fill_null(rows.column(VALUE_KIND.name), row_kind.INSERT)
            nulls = pc.and_(nulls, pc.equal(pc.bit_wise_and(kinds, 1), 0))
        return int(pc.sum(nulls).as_py() or 0)

    def _look_at_keys(self, rows: pa.Table, repeated: pa.Table | None) -> None:
        names = self._table.key
        key = [rows.column(name) for name in names]
        for name, column in zip(names, key, strict=True):
            if repeated is not None and not _equal(repeated.column(KEY_PREFIX + name), column):
                self._note("value", f"'{KEY_PREFIX}{name}' is not what '{name}' is in one of rows {self._span(rows)}.")
        if not self._place.merged:
            return
        if self._last is None:
            self._first = self._key(key, 0)
        else:
            key = [pa.chunked_array([*a.chunks, *b.chunks], b.type) for a, b in zip(self._last, key, strict=True)]
        whole = [column.combine_chunks() for column in key]
        ranks, _ = dense_ranks(whole, [column.slice(0, 0) for column in whole])
        falls = np.flatnonzero(ranks[1:] <= ranks[:-1])
        if len(falls):
            at = int(falls[0])
            how = "repeats the key of" if ranks[at] == ranks[at + 1] else "has a smaller key than"
            row = self._rows + at + (self._last is None)
            self._note("order", f"its rows are not in key order: row {row} {how} the row before it.")
        self._last = [column.slice(len(column) - 1) for column in key]

    def _look_at_place(self, rows: pa.Table) -> None:
        for i, name in enumerate(self._table.schema.partition_keys if self._partition is not None else ()):
            assert self._partition is not None
            kind = self._types[name].with_nullable(True)
            expected = serialize((self._partition[i],), (kind,))
            for value in rows.column(name).unique():
                stored = arrow_to_stored(value, kind)
                if serialize((stored,), (kind,)) != expected:
                    self._note(
                        "placement",
                        f"a row of partition {name} = {stored!r:.60} lies in the partition {name} = "
                        f"{self._partition[i]!r:.60}.",
                    )
                    break
        entry = self._place.entry
        if self._place.hashes is not None and self._table.keyed:
            hashes = row_hashes([rows.column(name) for name in self._table.key], self._table.key_types)
            strays = np.flatnonzero(~np.isin(hashes, self._place.hashes))
            if len(strays):
                self._note("index", f"the key of row {self._rows + int(strays[0])} is not in the index of its bucket.")
        key = self._table.schema.bucket_key
        if entry.total_buckets < 1 or entry.bucket < 0 or not key:
            return
        numbers = bucket_numbers(self._table, rows, entry.total_buckets)
        strays = np.flatnonzero(numbers != entry.bucket)
        if len(strays):
            row = int(strays[0])
            self._note(
                "placement",
                f"row {self._rows + row} belongs to bucket {int(numbers[row])} of {entry.total_buckets}, "
                f"and the file is one of bucket {entry.bucket}.",
            )

    def _compare_sequences(self, file: DataFile) -> None:
        if self._sequences is not None and self._sequences != (file.min_sequence, file.max_sequence):
            low, high = self._sequences
            self._note(
                "bounds",
                f"its sequence numbers are {low} to {high}, and its manifest says {file.min_sequence} to "
                f"{file.max_sequence}.",
            )

    def _compare_keys(self, file: DataFile) -> None:
        assert self._last is not None
        kinds = self._table.key_types
        for what, said, found in (
            ("first", file.min_key, self._first),
            ("last", file.max_key, self._key(self._last, 0)),
        ):
            try:
                key = deserialize(said, kinds)
            except MerganserError as error:
                self._note("bounds", f"its {what} key cannot be read: {error}")
                continue
            if sort_key(key, kinds) != sort_key(found, kinds):
                self._note("bounds", f"its {what} key is {found!r:.80}, and its manifest says {key!r:.80}.")

    def _key(self, columns: Sequence[pa.ChunkedArray], row: int) -> tuple[Stored, ...]:
        return tuple(arrow_to_stored(c[row], kind) for c, kind in zip(columns, self._table.key_types, strict=True))


def _equal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(a.type):
        return bool(a.equals(b))
    ranks, others = dense_ranks([a.combine_chunks()], [b.combine_chunks()])  # -0.0 is not 0.0, and a NaN is a NaN
    return bool((ranks == others).all())


def _contradiction(said: ColumnStats, found: ColumnStats, kind: t.DataType) -> str | None:
    """Return what statistics say that is not so, or None. What they leave out is unknown, and never wrong."""
    if said.null_count is not None and said.null_count != found.null_count:
        return f"{said.null_count} nulls, and there are {found.null_count}"
    if said.min is None:
        return None
    if found.no_values:
        return f"{said.min!r:.40} to {said.max!r:.40}, and there are only nulls"
    if found.min is None:  # a NaN among the values: every bound is one in some order
        return None
    if _inside(said, found, kind):
        return None
    return f"{said.min!r:.40} to {said.max!r:.40}, and the values are {found.min!r:.40} to {found.max!r:.40}"


def _inside(said: ColumnStats, found: ColumnStats, kind: t.DataType) -> bool:
    if not isinstance(kind, (*TEXT, *BINARY)):
        return bool(said.min == found.min and said.max == found.max)

    def image(value: Stored) -> Any:
        return sort_key((value,), (kind,))

    lower: Any = said.min
    return bool(
        (found.min == lower or found.min[: len(lower)] == lower)  # type: ignore[index]
        and (found.max == said.max or image(found.max) <= image(said.max))
        and len(said.max) <= len(found.max)  # type: ignore[arg-type]
    )
