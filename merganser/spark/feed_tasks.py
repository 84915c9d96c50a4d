"""The tasks of a feed: change records -> carriers -> files of each table.

    route     records -> their tables; rows of each; the task that writes each bucket -> *carriers*
    shuffle   every bucket has one task
    deliver   carriers of a table, in order -> rows -> files

Spark's DataFrames have one schema, and rows of many tables have many. So rows cross Spark as bytes: a carrier holds
rows of one table for one task, as Arrow writes them. Carriers say which task made them and in which order, so rows of a
key keep the order that one task gave them; a later task counts as later.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from merganser.cdc.new_tables import Untold, table_told
from merganser.cdc.options import COLUMNWISE, name_patterns, without_columns
from merganser.cdc.records import Parsed, Placing, letters_of, parse_records
from merganser.cdc.sources import Source, Sources, named_sources, sources_of
from merganser.commit.message import CommitMessage
from merganser.edit.keeping import stores_keys
from merganser.errors import ConflictError, InvalidInputError, NotFoundError, UnsupportedError
from merganser.handle.new_columns import with_columns_told
from merganser.handle.table import Table
from merganser.lsm.abandoned import remove_uncommitted
from merganser.meta.followed import newest
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema import row_kind
from merganser.schema.arrow import arrow_field
from merganser.schema.table_schema import VALUE_KIND
from merganser.spark.bucketing import TASK
from merganser.spark.change_records import refusal, whole
from merganser.spark.feed_tables import FeedTables
from merganser.spark.jobs import NUMBERS, OUTCOME_SCHEMA, batch_of
from merganser.spark.keeping import ARROW_MARK, MARKS, check_call, conformed, marked, marks, split, write_apart
from merganser.spark.stream_sink import LettersOutcome, SinkRequest, StreamTask, kept_of, request_of
from merganser.storage.cache import Cache
from merganser.values import dataclass
from merganser.write.buckets import sole_writers
from merganser.write.dynamic import assigners_of
from merganser.write.held import drop_held
from merganser.write.job import Outcome

CARRIERS: Final = f"{TASK} int, place string, origin int, sequence int, ignored long, rows binary"
"""The schema of carriers: the task that they go to; the table, null for dead letters; the task they come from and their
number there; records of unknown tables that were left out; and the rows, null if there are none."""
DELIVERED: Final = f"{OUTCOME_SCHEMA}, ignored long"
"""The schema of what `Deliver` yields; the message is null where nothing was written."""
UNKNOWN: Final = ("fail", "ignore", "keep")
_RECORDS_MAX: Final = 1 << 16
_RECORD_BYTES_MAX: Final = 1 << 25
"""So many records, or bytes of them, are parsed at once, since each table of a batch costs some milliseconds."""
_HELD_BYTES_MAX: Final = 1 << 25
"""Bytes of rows that a task holds before it sends carriers."""
_ADVICE: Final = "give dead_letters="
_TOLD: Final = "^(?:not-json|not-object|empty|missing-payload|bad-envelope):"
"""Reasons that explain why a record names no table."""
_TOLD_MAX: Final = 16
"""So many records of a new table are asked for its columns, in each Arrow batch, until one tells them."""
_UNNAMED, _OTHER = -1, -2
_ORDER: Final = ("place", "origin", "sequence")


@dataclass(frozen=True)
class Feed:
    """What a feed writes; see `stream_sink.BatchRequest`. Each table is a commit of its own.

    Attributes:
        id: no other feed has it.
        tables: where changes go.
        user: what the names of committers begin with.
        compaction: as for `ms.write_stream`.
        letters: what becomes of bad records; None: they are errors.
        checkpoint: where Spark keeps the progress of the query, if that is known.
    """

    id: str
    tables: FeedTables
    user: str | None
    compaction: str | None
    letters: SinkRequest | None = None
    checkpoint: str | None = None

    def with_checkpoint(self, checkpoint: str) -> Feed:
        """Return the feed of a query that keeps its progress there."""
        return replace(self, checkpoint=checkpoint)

    def sink(self, place: str, *, is_newest: bool = False) -> SinkRequest:
        """Return what is written to a table. A process opens a table once in the life of a feed.

        Args:
            is_newest: look whether tasks have given the table columns since then (`write.merge-schema`).

        Raises:
            MerganserError: the table is not there, or cannot be written to.
        """
        found: SinkRequest | None = _sinks.get((self.id, place))
        if found is not None and is_newest and found.table.options.get(w.MERGE_SCHEMA):
            found = found if newest(found.table, found.env).schema.id == found.table.schema.id else None
        if found is None:
            table = self.tables.table(place)
            if table.definition.options.get(w.MERGE_SCHEMA):
                table = replace(table, definition=newest(table.definition, table.env))
            found = self._sink(table)
            _sinks.put((self.id, place), found, 1)
        return replace(found, checkpoint=self.checkpoint)

    def _sink(self, table: Table) -> SinkRequest:
        if self.letters is not None and _root(self.letters) == table.definition.paths.metadata_root:
            raise InvalidInputError(
                f"cannot write change records to '{table.name}': it is the table of dead letters, too. A batch is one "
                "commit of each table. Nothing was written. Name another table in dead_letters=.",
                table=table.name,
            )
        rows = pa.schema([arrow_field(field) for field in table.schema.fields])
        return request_of(
            table, rows, kinds=None, columns=None, complete=False, user=self.user,
            compaction=self.compaction, checkpoint=None,
        )  # fmt: skip

    def commit(self, query: str, batch: int, outcomes: Sequence[Outcome]) -> None:
        """Make what tasks wrote one commit of each table, that of the dead letters first, unless they are already.

        A process that is killed in between leaves some tables a batch ahead. Spark repeats the batch, and its commits
        are found in these.

        Raises:
            ConflictError: a table has other rows of a batch of this number, or was made anew; nothing was committed,
                and the files are gone.
        """
        every = list(self.written(outcomes))
        try:
            begun = [request.check(query, batch) for request, *_ in every]
        except ConflictError:
            self.remove(outcomes)
            raise
        for (request, files, kept), first in zip(every, begun, strict=True):
            letters = request.dead_letters(self.letters, query, batch)
            request.apply(query, batch, files, kept, letters, first)

    def written(self, outcomes: Iterable[Outcome]) -> Iterator[tuple[SinkRequest, list[CommitMessage], list[str]]]:
        """Yield the tables that tasks wrote to, their files, and folders of rows put aside; dead letters first."""
        letters: list[CommitMessage] = []
        files: dict[str, list[TableOutcome]] = {}
        for outcome in outcomes:
            if isinstance(outcome, LettersOutcome):
                letters += outcome.messages
            elif isinstance(outcome, TableOutcome):
                files.setdefault(outcome.place, []).append(outcome)
        if letters and self.letters is not None:
            yield self.letters, letters, []
        for place in sorted(files):
            messages = [message for outcome in files[place] for message in outcome.messages]
            yield self.sink(place, is_newest=True), messages, kept_of(files[place])

    def remove(self, outcomes: Iterable[Outcome]) -> None:
        """Remove the files that tasks wrote."""
        for request, files, kept in self.written(outcomes):
            remove_uncommitted(request.table, request.here(), files)
            drop_held(request.here(), kept)


_sinks: Final = Cache(weight_max=10_000)
"""By feed and table, what is written to a table; each weighs 1. The id of a feed is that of one start of it."""


def _root(request: SinkRequest) -> str:
    return request.table.paths.metadata_root


@dataclass(frozen=True, slots=True)
class TableOutcome(Outcome):
    """What a task wrote to one of many tables.

    Attributes:
        place: which opens the table.
    """

    place: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """Makes carriers of the records of a task.

    Attributes:
        feed: where rows go.
        format, options: of the records.
        unknown: one of `UNKNOWN`.
        tasks: how many tasks the carriers go to.
    """

    feed: Feed
    format: str
    options: Mapping[str, Any]
    unknown: str
    tasks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield carriers, as `mapInArrow` wants it.

        Args:
            batches: columns `value`, and maybe `key`, `position` and `table`.
        """
        load = _Load(task_number(), self.tasks)
        for rows in _gathered(batches):
            self._route(rows, load)
            if load.bytes > _HELD_BYTES_MAX:
                yield load.taken()
        yield load.taken()

    def _route(self, rows: pa.Table, load: _Load) -> None:
        sources = self._sources(rows)
        places: list[str] = []
        numbers: dict[str, int] = {}
        codes = np.empty(len(sources.names), np.int64)
        unknown: dict[int, Source] = {}
        databases, tables = name_patterns(self.options)
        for i, source in enumerate(sources.names):
            wanted = ((databases, source.database), (tables, source.table))
            if source.table is None or any(pattern is not None and name is None for pattern, name in wanted):
                codes[i] = _UNNAMED
            elif any(pattern is not None and name is not None and not _fits(pattern, name) for pattern, name in wanted):
                codes[i] = _OTHER
            else:
                place = self.feed.tables.place_of(source)
                if place is None:
                    codes[i] = _OTHER - 1 - i
                    unknown[i] = source
                    continue
                codes[i] = numbers.setdefault(place, len(places))
                if codes[i] == len(places):
                    places.append(place)
        for code, at in _parted(codes[sources.of]):
            own = rows if at is None else rows.take(at)
            if code >= 0:
                self._known(own, places[code], load)
            elif code == _UNNAMED:
                self._unnamed(own, load)
            elif code != _OTHER:
                name = str(unknown[_OTHER - 1 - code])
                self._unknown(own, name, f"no table is given for '{name}'", load)

    def _known(self, rows: pa.Table, place: str, load: _Load) -> None:
        """Add the rows of records of a table that has a place; it may not be there."""
        try:
            self.feed.sink(place)
        except NotFoundError:
            lacks = self._create(rows, place) if self.feed.tables.creates else f"there is no table '{place}'"
            if lacks is not None:
                self._unknown(rows, place, lacks, load)
                return
        self._parse(rows, place, load)

    def _create(self, rows: pa.Table, place: str) -> str | None:
        """Create a table from the first of its records that tell enough; return why not, if none does."""
        first = rows.slice(0, _TOLD_MAX)
        lacks = f"the table '{place}' cannot be created: "
        why = ""
        keys = first.column("key").to_pylist() if "key" in first.column_names else [None] * first.num_rows
        for text, key in zip(first.column("value").to_pylist(), keys, strict=True):
            try:
                told = table_told(self.format, text or "", key)
            except Untold as untold:
                why = why or str(untold)
                continue
            try:
                self.feed.tables.create(place, told)
            except (InvalidInputError, UnsupportedError) as error:
                return f"{lacks}{error}"
            return None
        return lacks + why

    def _sources(self, rows: pa.Table) -> Sources:
        if "table" in rows.column_names:
            return named_sources(_whole(rows, "table").cast(pa.string()))
        return sources_of(_whole(rows, "value"), self.format, without_columns(self.options))

    def _parse(self, rows: pa.Table, place: str, load: _Load) -> None:
        """Add the rows of records of one table."""
        request = self._with_columns(rows, place)
        table = request.table
        found = self._parsed(rows, table)
        if found.rejected.num_rows:
            if self.feed.letters is None:
                raise refusal(table.name, found.rejected, rows.num_rows, _ADVICE)
            self._bury(found.rejected, rows, table.name, load)
        if found.unavailable is not None and stores_keys(table):
            self._apart(found, rows, place, load)
            return
        self._load(request, found.rows, found.kinds, place, load)

    def _with_columns(self, rows: pa.Table, place: str) -> SinkRequest:
        """Return what is written to a table, which gets the columns that its records tell if it takes them."""
        request = self.feed.sink(place)
        table = with_columns_told(
            request.table,
            request.here(),
            _whole(rows, "value"),
            self.format,
            without_columns(self.options),
            lambda made: self._parsed(rows, made),
            keeps_bad=self.feed.letters is not None,
        )
        return request if table.schema.id == request.table.schema.id else self.feed.sink(place, is_newest=True)

    def _parsed(self, rows: pa.Table, table: TableDef) -> Parsed:
        shown = table.schema.shown
        options = options_of(self.options, [field.name for field in shown.fields], table.name)
        placing = Placing.of(table.schema, table.options)
        return parse_records(
            _whole(rows, "value"), self.format, shown.fields, shown.primary_keys, options, _keys(rows), placing
        )

    def _apart(self, found: Parsed, rows: pa.Table, place: str, load: _Load) -> None:
        """Add rows of one table, some of which may keep values of stored rows."""
        request = self.feed.sink(place)
        check_call(request.target)
        assert found.unavailable is not None
        records = rows.take(found.record)
        kinds = {"text": ("value", pa.binary()), "key": ("key", pa.binary()), "position": ("position", pa.int64())}
        there = records.column_names
        record = pa.table(
            {
                part: records.column(name) if name in there else pa.nulls(len(found.record), kind)
                for part, (name, kind) in kinds.items()
            }
        )
        mark = pa.chunked_array([marks(whole(found.unavailable), record)])
        parts = split(request.table, found.rows, found.kinds, mark)
        self._load(request, parts.whole.rows, parts.whole.kinds, place, load, marked=True)
        for part, reasons in ((parts.waiting, None), (parts.refused, parts.reasons)):
            if part.rows.num_rows:
                self._send(request, marked(part, reasons), place, load)

    def _load(
        self,
        request: SinkRequest,
        rows: pa.Table,
        kinds: pa.Array,
        place: str,
        load: _Load,
        *,
        marked: bool = False,
    ) -> None:
        """Add rows, once they are checked.

        Args:
            marked: they get the column MARKS.
        """
        prepared, kinds, _ = request.target.accepted(rows, kinds, None, in_task=True)
        if not prepared.num_rows:
            return
        kinds = row_kind.inserts(prepared.num_rows) if kinds is None else kinds
        whole_rows = prepared.append_column(VALUE_KIND.name, kinds)
        if marked:
            whole_rows = whole_rows.append_column(MARKS, pa.nulls(prepared.num_rows, ARROW_MARK))
        self._send(request, whole_rows, place, load)

    def _send(self, request: SinkRequest, prepared: pa.Table, place: str, load: _Load) -> None:
        """Add rows with their kinds, for the tasks that write their buckets."""
        table = request.table
        if MARKS in prepared.column_names:  # values of NOT NULL columns may come later
            nullable = pa.schema([field.with_nullable(True) for field in prepared.schema])
            prepared = pa.Table.from_arrays(prepared.columns, schema=nullable)
        task = np.empty(prepared.num_rows, np.int64)
        for group in sole_writers(table, prepared, assigners_of(table, self.tasks)):
            # the rows of a bucket that has no order need no single writer
            own = zlib.crc32(group.partition, zlib.crc32(place.encode())) + group.bucket
            task[group.rows] = (own if table.keyed or table.schema.bucket_key else load.origin) % self.tasks
        for number, at in _parted(task):
            load.add(place, number, prepared if at is None else prepared.take(at))

    def _unknown(self, rows: pa.Table, name: str, why: str, load: _Load) -> None:
        """Say what becomes of records of a table that is not known; those that stand for no rows are left out.

        Args:
            name: of the table.
            why: it is not known.
        """
        changes = self._changes(rows)
        if not changes.num_rows:
            return
        if self.unknown == "ignore":
            load.ignored += changes.num_rows
            return
        if self.unknown == "fail":
            raise InvalidInputError(
                f"cannot write change records: {why}, and {changes.num_rows} of {rows.num_rows} records of an Arrow "
                "batch are changes of it. No row of this batch was written. Name the table in tables=, or choose "
                "unknown='ignore', or unknown='keep' with dead_letters=.",
                table=name,
            )
        reasons = pa.array([f"unknown-table: {why}"] * changes.num_rows)
        self._bury(changes.set_column(1, "reason", reasons), rows, name, load)

    def _unnamed(self, rows: pa.Table, load: _Load) -> None:
        """Say what becomes of records that name no table; those that stand for no rows are left out."""
        found = self._changes(rows)
        if not found.num_rows:
            return
        told = pc.match_substring_regex(found.column("reason"), _TOLD)
        reason = pc.if_else(told, found.column("reason"), "missing-table: the record does not name its table")
        found = found.set_column(1, "reason", reason)
        if self.feed.letters is None:
            raise refusal("many tables", found, rows.num_rows, _ADVICE)
        self._bury(found, rows, "", load)

    def _changes(self, rows: pa.Table) -> pa.Table:
        """Return the records that are changes, or bad, in the form of bad records; others are skipped."""
        options = {
            key: value for key, value in without_columns(self.options).items() if key not in ("database", "table")
        }
        found = parse_records(_whole(rows, "value"), self.format, (), (), options, _keys(rows))
        at = np.flatnonzero(np.bincount(found.record.to_numpy(), minlength=rows.num_rows))
        texts = rows.take(pa.array(at))
        good = {
            "record": pa.array(at),
            "reason": pa.array([""] * len(at), pa.string()),
            "text": texts.column("value").cast(pa.binary()),
            "key": pa.nulls(len(at), pa.binary()) if _keys(rows) is None else texts.column("key").cast(pa.binary()),
        }
        return pa.concat_tables([pa.table(good), found.rejected]).sort_by("record")

    def _bury(self, rejected: pa.Table, rows: pa.Table, name: str, load: _Load) -> None:
        """Add dead letters.

        Args:
            rejected: as in `Parsed`; `record` counts within `rows`.
            name: of the table that they were meant for.
        """
        assert self.feed.letters is not None
        position = pa.nulls(rejected.num_rows, pa.int64())
        if "position" in rows.column_names:
            position = rows.column("position").take(rejected.column("record")).cast(pa.int64())
        placed = rejected.set_column(0, "record", position)
        load.add(None, load.origin % self.tasks, letters_of(placed, name, self.feed.letters.env.clock()))


def task_number() -> int:
    """Return the number of the task that this process runs."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def options_of(options: Mapping[str, Any], columns: Iterable[str], table: str) -> dict[str, Any]:
    """Return the options of a feed as one of its tables takes them: records are chosen, columns are those it has.

    Args:
        table: its name. What is said of `table.column` comes before what is said of `column`.
    """
    names = set(columns)
    found = {key: value for key, value in options.items() if key not in ("database", "table")}
    for key in COLUMNWISE:
        if isinstance(found.get(key), Mapping):
            given = [(column_meant(name, table, names), name, value) for name, value in found[key].items()]
            plain = {column: value for column, name, value in given if column == name}
            found[key] = plain | {column: value for column, name, value in given if column not in (None, name)}
    return found


def column_meant(name: Any, table: str, columns: Container[str]) -> str | None:
    """Return the column of a table that a name means: `column`, `table.column` or `database.table.column`, or None."""
    if name in columns:
        return str(name)
    parts = str(name).split(".")
    for i in range(1, len(parts)):
        before, column = ".".join(parts[:i]), ".".join(parts[i:])
        if column in columns and f".{table}".endswith(f".{before}"):
            return column
    return None


@dataclass(slots=True)
class _Load:
    """What a task has made and not yet handed on.

    Attributes:
        origin: the number of the task.
        tasks: how many tasks there are to go to.
        bytes: of the rows held.
        ignored: records of unknown tables that were left out.
    """

    origin: int
    tasks: int
    bytes: int = 0
    ignored: int = 0
    _held: dict[tuple[str | None, int], list[pa.Table]] = field(default_factory=dict)
    _sent: int = 0

    def add(self, place: str | None, task: int, rows: pa.Table) -> None:
        self._held.setdefault((place, task), []).append(rows)
        self.bytes += rows.nbytes

    def taken(self) -> pa.RecordBatch:
        """Return carriers of all that is held, and hold nothing."""
        keys = [*self._held, *([(None, self.origin % self.tasks)] if self.ignored else [])]
        ignored = [0] * len(self._held) + [self.ignored] * (len(keys) - len(self._held))
        rows = [_packed(parts) for parts in self._held.values()] + [None] * (len(keys) - len(self._held))
        sequence = np.arange(self._sent, self._sent + len(keys), dtype=np.int32)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([task for _, task in keys], pa.int32()),
                pa.array([place for place, _ in keys], pa.string()),
                pa.array(np.full(len(keys), self.origin, np.int32)),
                pa.array(sequence),
                pa.array(ignored, pa.int64()),
                pa.array(rows, pa.binary()),
            ],
            names=[TASK, "place", "origin", "sequence", "ignored", "rows"],
        )
        self._held, self.bytes, self.ignored, self._sent = {}, 0, 0, self._sent + len(keys)
        return batch


@dataclass(frozen=True, slots=True)
class Deliver:
    """Writes the rows of carriers, and yields the outcome of each table.

    Attributes:
        tasks: how many tasks deliver.
        keeps: rows have the column MARKS, those of tables with a primary key.
    """

    feed: Feed
    tasks: int
    keeps: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows, as `mapInArrow` wants it.

        Args:
            batches: columns `place`, `origin`, `sequence`, `ignored`, `rows`, in any order.

        Raises:
            MerganserError: a table refused a row; nothing is left of the attempt.
        """
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        carriers = pa.Table.from_batches(held)
        ignored = pc.sum(carriers.column("ignored")).as_py()
        rows = carriers.column("rows")  # stays as it is: together they may be more than one Arrow array can hold
        places = carriers.column("place").to_pylist()
        order = pc.sort_indices(carriers.drop_columns(["rows"]), [(name, "ascending") for name in _ORDER]).to_pylist()
        outcomes: list[Outcome] = []
        try:
            for place, own in groupby((i for i in order if rows[i].is_valid), key=places.__getitem__):
                outcomes.append(self._delivered(place, (_unpacked(rows[i]) for i in own)))
        except BaseException:
            self.feed.remove(outcomes)
            raise
        for outcome in outcomes:
            batch = batch_of(outcome, letters=isinstance(outcome, LettersOutcome))
            yield batch.append_column("ignored", pa.array([0], pa.int64()))
        if ignored:
            counted = [pa.array([0], pa.int64())] * len(NUMBERS)
            yield pa.RecordBatch.from_arrays(
                [pa.nulls(1, pa.binary()), *counted, pa.array([ignored], pa.int64())],
                names=["message", *NUMBERS, "ignored"],
            )

    def _delivered(self, place: str | None, rows: Iterator[pa.Table]) -> Outcome:
        if place is None:
            assert self.feed.letters is not None
            done = StreamTask(self.feed.letters, arranged=False).run(rows)
            return LettersOutcome(done.messages, rows=done.rows)
        request = self.feed.sink(place, is_newest=True)
        if request.table.options.get(w.MERGE_SCHEMA):  # tasks may have read records before and after a new column
            rows = (_conformed(request, part) for part in rows)
        if self.keeps and stores_keys(request.table):
            return self._delivered_apart(request, place, list(rows))
        parts = ((part.drop_columns([VALUE_KIND.name]), part.column(VALUE_KIND.name)) for part in rows)
        keyed = request.table.keyed
        job = request.transaction("", 0).job(assigners=assigners_of(request.table, self.tasks))
        done = job.run_prepared((part, kinds.combine_chunks() if keyed else None, None) for part, kinds in parts)
        if done.refusal is not None:
            raise done.refusal
        return TableOutcome(done.messages, rows=done.rows, retractions=done.retractions, place=place)

    def _delivered_apart(self, request: SinkRequest, place: str, parts: list[pa.Table]) -> Outcome:
        """Write rows, some of which may keep values of stored rows."""
        job = request.transaction("", 0).job(assigners=assigners_of(request.table, self.tasks))
        rows = pa.concat_tables(parts)
        kinds, found = whole(rows.column(VALUE_KIND.name)), rows.column(MARKS)
        done = write_apart(job, rows.drop_columns([VALUE_KIND.name, MARKS]), kinds, found)
        if done.refusal is not None:
            raise done.refusal
        return TableOutcome(done.messages, rows=done.rows, retractions=done.retractions, kept=done.kept, place=place)


def _conformed(request: SinkRequest, rows: pa.Table) -> pa.Table:
    """Return rows with their kinds, and maybe their marks, with all columns that the table has."""
    others = [name for name in (VALUE_KIND.name, MARKS) if name in rows.column_names]
    found = conformed(request.target, rows.drop_columns(others))
    for name in others:
        found = found.append_column(name, rows.column(name))
    return found


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield records in larger batches, each column in one piece."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
        if sum(one.num_rows for one in held) >= _RECORDS_MAX or sum(one.nbytes for one in held) >= _RECORD_BYTES_MAX:
            yield pa.Table.from_batches(held).combine_chunks()
            held = []
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def _parted(codes: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Array | None]]:
    """Yield each code that occurs, and the positions where it stands, rising; None for all."""
    if not len(codes):
        return
    if (codes == codes[0]).all():
        yield int(codes[0]), None
        return
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    for at in np.split(order, bounds):
        yield int(codes[at[0]]), pa.array(at)


def _fits(pattern: str, name: str) -> bool:
    return bool(pc.match_substring_regex(pa.scalar(name), pattern).as_py())


def _whole(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _keys(rows: pa.Table) -> pa.Array | None:
    return _whole(rows, "key") if "key" in rows.column_names else None


def _packed(parts: list[pa.Table]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parts[0].schema) as writer:
        for part in parts:
            writer.write_table(part)
    return bytes(sink.getvalue())


def _unpacked(rows: pa.Scalar) -> pa.Table:
    return pa.ipc.open_stream(rows.as_buffer()).read_all()
