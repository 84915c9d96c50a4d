"""Compaction of one bucket, as a value: files in, fewer files of a higher level out, no row changed for readers.

The compaction takes the sections of the picked files in key order. It rewrites a section whose files overlap, together
with the small files beside it. It *upgrades* a large file that overlaps no other: only its level changes, not a byte::

    section   |1| |2 2| |3| |====== 4 ======| |5|        1, 3, 5 small; 2 overlapping; 4 large
    done      |--- rewritten --| |  upgraded  | |upgraded|

If nothing older lies below the output, the compaction drops retractions, except tombstones (`lsm.tombstones`). In
first-row tables it also drops keys that lie below the output: other engines read the levels of such a table without a
merge, so no key may be in two levels. In tables with deletion vectors it marks the rows below instead (`lsm.marks`). A
crash at any point leaves files that no snapshot names.

Format: sections "rewrite or upgrade", "when retractions may be dropped".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.binary_row import deserialize_columns
from merganser.codec.deletion_vector import Positions
from merganser.commit.message import CommitMessage
from merganser.errors import MerganserError
from merganser.expr.predicate import Predicate
from merganser.files.layout import file_layout
from merganser.files.masks import NO_VECTORS, BucketVectors, VectorChange, changed
from merganser.files.write import RollingWriter
from merganser.lsm.changelog import ChangeLog
from merganser.lsm.clustering import Order, ordered
from merganser.lsm.held import copies_beside, held_files
from merganser.lsm.key_image import Asked
from merganser.lsm.levels import dense_ranks, sections
from merganser.lsm.marks import replaced, wins_unseen
from merganser.lsm.record_expiry import RecordExpiry
from merganser.lsm.section import Compared, SectionReader
from merganser.lsm.stored_keys import find, reached
from merganser.lsm.tombstones import Kept, Tombstones
from merganser.lsm.unmarked import unmarked_schemas
from merganser.merge.deduplicate import Deduplicate, FirstRow
from merganser.merge.engine import Kinds
from merganser.meta.data_file import SOURCE_COMPACT, DataFile
from merganser.meta.table_def import TableDef
from merganser.meta.tracking import UNTRACKED_FILE, is_untracked, untracked_of
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.rules.compacting import empties_level_0, looks_up, publishes_by_compaction
from merganser.schema import types as t
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_COUNT, VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.values import dataclass

Sections = list[list[DataFile]]
Piece = tuple[pa.Table, pa.Array | None, pa.Array | None]
"""Rows on their way into a file, as `RollingWriter` takes them: the table's columns, sequence numbers, kinds."""

_GROWTH = 4
"""How much more bytes rows take in memory than in a file, at a guess."""

_RELEASE_BYTES = 128 * 1024 * 1024
"""After so many bytes written, memory that the allocator keeps for later is given back to the system."""

_AHEAD_BYTES = 8 * 1024 * 1024
"""Size of files from which on they are read and merged on a thread of their own, beside the writing."""


@dataclass(frozen=True)
class CompactJob:
    """What is compacted in one bucket. Pickles; runs wherever there is a core.

    Attributes:
        directory: the bucket's.
        files: what was picked, as they were committed.
        output_level: of the new files; 0 in tables without a key.
        top: the highest level of the bucket; 0 in tables without a key.
        drop_retractions: nothing older than the output is left in the bucket.
        tombstones: which retractions stay even then.
        schemas: columns of every schema that a file was written with.
        below: files that stay, whose keys must not be written again; all are older than what was picked.
        lifted: the bucket's oldest files, a sorted run of level 0 as it stands: they go to the highest level.
        expiry: which rows are too old to be kept; None: none, or none yet.
        older: files above level 0 that stay; rows of theirs that level 0 replaces are marked in their vectors.
        vectors: deletion vectors of the bucket, as they were committed. Rows that they name are not written again,
            and those of files that go, go with them.
        leaves_out: which merged rows are not written, as a delete asks; they are not published. None: all are written.
        order: how rows of a table without a key are sorted; None: they stay as they are.
        publishes: False: nobody is told of its rows, as of those of an overwrite.
        others: further jobs of the bucket that are done with this one: its vectors are replaced as a whole.
        outdated: names of files that are rewritten even where they would only change their level, since their format,
            compression or index is not what the options now ask for.
        rule: the name of the rule of `lsm.pick` that picked the files, for people; "": another reason.
    """

    table: TableDef
    partition: bytes
    bucket: int
    total_buckets: int
    directory: str
    files: tuple[DataFile, ...]
    output_level: int
    top: int
    drop_retractions: bool
    schemas: Mapping[int, tuple[t.Field, ...]]
    tombstones: Tombstones
    below: tuple[DataFile, ...] = ()
    lifted: tuple[DataFile, ...] = ()
    expiry: RecordExpiry | None = None
    older: tuple[DataFile, ...] = ()
    vectors: BucketVectors = NO_VECTORS
    others: tuple[CompactJob, ...] = ()
    order: Order | None = None
    leaves_out: Predicate | None = None
    publishes: bool = True
    outdated: frozenset[str] = frozenset()
    rule: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files) + sum(job.size_bytes for job in self.others)

    @property
    def reads(self) -> tuple[DataFile, ...]:
        """All files that have to be there."""
        return self.files + self.below + self.older + tuple(file for job in self.others for file in job.reads)

    @property
    def shown_from(self) -> int | None:
        """The level from which on the changelog has shown rows; None: this compaction publishes nothing.

        With the producer full-compaction it is the highest level that has files: no rule puts files there without
        all others of the bucket. It may lie below `top`, if the options have raised that since.
        """
        producer = self.table.options.get(w.CHANGELOG_PRODUCER) if self.table.keyed else "none"
        if producer == "lookup":
            return 1
        if producer != "full-compaction" or self.output_level < self.top:
            return None
        return max(file.level for file in self.files) or self.top

    @property
    def publishes_expiry(self) -> bool:
        """Whether it publishes which rows are too old to be kept. Readers of first-row tables take inserts alone."""
        first_row = self.table.options.get(w.MERGE_ENGINE) == "first-row"
        return self.expiry is not None and self.shown_from is not None and not first_row

    @property
    def is_silent(self) -> bool:
        """Whether it leaves out what it would publish: all of it comes from files whose rows nobody is to publish.

        If some come from other files, all is published: the rows before and after a key do not tell who changed what.
        """
        if self.shown_from is None:
            return False
        if not self.publishes:
            return True
        new = [file for file in self.files if file.level < self.shown_from]
        return bool(new) and (
            all(is_untracked(file) for file in new) or bool(untracked_of(self.table, (self.partition,)))
        )

    def run(self, env: Env, advance: Callable[[int], None] = lambda _: None) -> tuple[CommitMessage, ...]:
        """Do it. The new files are durable; empty when nothing had to change.

        Args:
            advance: is told again and again how many bytes more, about, of `size_bytes` are done. Not of the last ones:
                rows that merge leave it open how much there was to write.

        Raises:
            FormatError: a file is damaged or missing; what was written is removed.
        """
        parts: list[Compaction] = []
        try:
            for job in (self, *self.others):
                parts.append((KeyCompaction if self.table.keyed else AppendCompaction)(job, env, advance))
                parts[-1].work()
            added = tuple(file for part in parts for file in part.all_added)
            removed = tuple(file for part in parts for file in part.all_removed)
            published = tuple(file for part in parts for file in part.log.close())
            marked = {name: positions for part in parts for name, positions in part.marked.items()}
            gone = {file.name for file in removed} - {file.name for file in added}
            bucket = (self.partition, self.bucket)
            change = changed(self.table, env, bucket, self.vectors, dropped=gone, marked=marked)
            # Memory of the system is for readers of the new files. Should the commit fail, a retry reads anew.
            replaced_files = (file for file in removed if file.name in gone)
            env.storage.uncache(file.external_path or join(self.directory, file.name) for file in replaced_files)
            held_files(self.table, env).forget(gone)
        except BaseException:
            for part in parts:
                part.log.abort()
            with contextlib.suppress(MerganserError):
                names = [name for part in parts for file in part.written for name in file.names]
                env.storage.delete([join(self.directory, name) for name in names])
            raise
        if not removed:
            return ()
        return (CommitMessage(*bucket, self.total_buckets, added, removed, change.added, change.removed, published),)


class Compaction:
    """Files read, written, and what becomes of them."""

    def __init__(self, job: CompactJob, env: Env, advance: Callable[[int], None]) -> None:
        self.job = job
        self.advance = advance
        self.table = job.table
        self.env = env
        unseen = None if job.publishes_expiry else job.expiry
        self.reader = SectionReader(
            job.table,
            job.directory,
            job.partition,
            job.schemas,
            env.storage,
            job.vectors.by_file,
            expiry=unseen,
        )
        self.added: list[DataFile] = []
        self.removed: list[DataFile] = []
        self.written: list[DataFile] = []
        self.log = ChangeLog(job.table, env, job.directory, job.output_level, silent=job.is_silent)
        self.marked: dict[str, Positions] = {}

    @property
    def all_added(self) -> tuple[DataFile, ...]:
        """What is added, files included that only change their level."""
        return (*self.added, *(replace(file, level=self.job.top) for file in self.job.lifted))

    @property
    def all_removed(self) -> tuple[DataFile, ...]:
        """What is removed, likewise."""
        return (*self.removed, *self.job.lifted)

    @property
    def mark(self) -> str:
        """What the names of new files tell of their rows."""
        return ""

    def work(self) -> None:
        """Replace the files of the job by fewer."""
        raise TypeError("an heir says what it does")

    def all_rows(self) -> Generator[Piece, None, None]:
        """Yield all rows as a full compaction writes them, whose job has all files of its bucket."""
        raise TypeError("an heir says what it does")

    def stored_rows(self) -> Generator[Piece, None, None]:
        """Yield the rows of the files as they are, one file after the other; nothing is published."""
        names, keyed = self.table.schema.names, self.table.keyed
        for file in self.job.files:
            for rows in self.reader.plain(file, self.table.schema.fields, sequence=keyed):
                if keyed:
                    numbers, kinds = (rows.column(f.name).combine_chunks() for f in (SEQUENCE_NUMBER, VALUE_KIND))
                    yield rows.select(names), numbers, kinds
                else:
                    yield rows, None, None

    def without_vectors(self) -> VectorChange:
        """Return what becomes of the vectors of the bucket if all its files go."""
        job = self.job
        gone = {file.name for file in job.files}
        return changed(self.table, self.env, (job.partition, job.bucket), job.vectors, dropped=gone)

    def write(self, files: Sequence[DataFile], pieces: Generator[Piece, None, None]) -> tuple[DataFile, ...]:
        """Replace files by the rows of `pieces`."""
        writer = RollingWriter(
            table=self.table,
            env=self.env,
            directory=self.job.directory,
            layout=file_layout(self.table, self.job.output_level),
            level=self.job.output_level,
            source=SOURCE_COMPACT,
            mark=self.mark,
            beside=copies_beside(self.table, sum(file.row_count for file in files)),
        )
        try:
            # A bucket keeps two cores busy, however few there are; memory holds two windows more.
            read_bytes, read_rows = sum(file.size for file in files), sum(file.row_count for file in files)
            large = read_bytes >= _AHEAD_BYTES
            with contextlib.closing(self.env.ahead(pieces) if large else pieces) as ready:
                size = 0
                for rows, numbers, kinds in ready:
                    writer.write(rows, sequences=numbers, kinds=kinds)
                    self.advance(read_bytes * rows.num_rows // max(1, read_rows))
                    size += rows.nbytes
                    del rows, numbers, kinds  # before the next are made
                    if size >= _RELEASE_BYTES:
                        self.env.release_memory()
                        size = 0
            made = writer.close()
        except BaseException:
            writer.abort()
            raise
        self.written += made
        self.removed += files
        return made

    @cached_property
    def small_bytes(self) -> float:
        """Size below which a file is small."""
        layout = file_layout(self.table, self.job.output_level)
        return layout.target_size_bytes * self.table.options.get(u.SMALL_FILE_RATIO)


class KeyCompaction(Compaction):
    """Compaction of a tree.

    Attributes:
        merged_with: files that stay, of which some rows are merged with what is compacted.
    """

    merged_with: tuple[DataFile, ...] = ()

    def work(self) -> None:
        self._mark()
        self._read_copies()
        pending: Sections = []
        for section in self._sections():
            if len(section) > 1 or section[0].size < self.small_bytes:
                pending.append(section)
                continue
            self._settle(pending)
            self._upgrade(section[0])
            pending = []
        self._settle(pending)

    def all_rows(self) -> Generator[Piece, None, None]:
        """Yield the merged rows in key order."""
        self._mark()
        self._read_copies()
        yield from self._pieces(list(self._sections()))

    def _mark(self) -> None:
        """Find the rows of older files that level 0 replaces; where they have a say, they are merged with it.

        The same holds for files from before deletion vectors were turned on, at any level: no vector marks the rows
        that they replace.
        """
        above = {file.schema_id for file in self.job.files if file.level} if self.job.older else set()
        unmarked = unmarked_schemas(self.table, self.env, above)
        young = [file for file in self.job.files if file.level == 0 or file.schema_id in unmarked]
        there = replaced(self.reader, young, self.job.older, self.env.cache)
        if self.table.options.get(w.DELETION_VECTORS):
            self.marked = there
        found = [file for file in self.job.older if file.name in there]
        if self._shown_from is not None or not wins_unseen(self.reader.merge, young, found):
            self.merged_with = tuple(found)
            known = held_files(self.table, self.env)
            held = {file.name: known.of(self.reader, file) for file in found}
            self.reader = replace(self.reader, only=there, held=held)

    def _read_copies(self) -> None:
        """Read what merges from lookup copies where they are there already: they need no decoding."""
        if looks_up(self.table.options) and self.job.expiry is None:
            self.reader = held_files(self.table, self.env).read_by(self.reader, self.job.files)

    @cached_property
    def _shown_from(self) -> int | None:
        return self.job.shown_from

    def _sections(self) -> Iterator[list[DataFile]]:
        files, kinds = self.merged_with + self.job.files, self.table.key_types
        low = deserialize_columns([file.min_key for file in files], kinds)
        high = deserialize_columns([file.max_key for file in files], kinds)
        for members in sections(*dense_ranks(low, high)):
            yield [files[i] for i in sorted(members.tolist())]

    def _settle(self, pending: Sections) -> None:
        if len(pending) == 1 and len(self.reader.runs(pending[0])) == 1:
            for file in pending[0]:
                self._upgrade(file)
        elif len(pending) == 1 and (alone := self._stands_alone(pending[0])) is not None:
            for one in self._compared(pending[0], self.reader.runs(pending[0])):
                self._publish(one)
            self._lift(alone)
        elif pending:
            self._rewrite(pending)

    def _stands_alone(self, section: Sequence[DataFile]) -> DataFile | None:
        """Return the one file of a section that does not stay, if it is at once what its merge would make."""
        staying = {file.name for file in self.merged_with}
        young = [file for file in section if file.name not in staying]
        if len(young) > 1 or self._must_rewrite(young[0]) or young[0].schema_id != self.table.schema.id:
            return None
        older = [file for file in section if file.name in staying]
        return young[0] if wins_unseen(self.reader.merge, young, older) else None

    def _upgrade(self, file: DataFile) -> None:
        if self._must_rewrite(file):
            self._rewrite([[file]])
            return
        if self._shown_from is not None and file.level < self._shown_from:
            for _ in self._plain([file]):  # publishes its rows
                pass
        self._lift(file)

    def _lift(self, file: DataFile) -> None:
        if file.level != self.job.output_level:
            self.removed.append(file)
            self.added.append(replace(file, level=self.job.output_level))

    def _must_rewrite(self, file: DataFile) -> bool:
        options = self.table.options
        if uncounted(self.table, file) or self.job.leaves_out is not None or file.name in self.job.outdated:
            return True
        if self.job.drop_retractions and self.table.counting:
            return True
        if self.job.drop_retractions and file.delete_row_count != 0 and self.job.tombstones.due(file):
            return True
        if options.get(u.FORCE_REWRITE_ALL_FILES) or (self.job.below and file.level == 0):
            return True
        if self.job.expiry is not None and self.job.expiry.reaches(file, self.job.schemas):
            return True
        highest = self.job.output_level == self.job.top
        if file.name in self.job.vectors.by_file and (highest or file.level == self.job.output_level):
            return True
        if file.level or not empties_level_0(options) or highest:
            return False
        return not isinstance(self.reader.merge.engine, Deduplicate) or self.reader.merge.order is not None

    def _rewrite(self, chosen: Sections) -> None:
        stay = {file.name for file in self.merged_with}
        files = [file for section in chosen for file in section if file.name not in stay]
        self.added += self.write(files, self._pieces(chosen))

    def _pieces(self, chosen: Sections) -> Generator[Piece, None, None]:
        for section in chosen:
            runs = self.reader.runs(section)
            found = self._merged(section, runs) if len(runs) > 1 else self._plain(runs[0])
            for piece in found:
                kept = [self._kept(*piece)]
                del piece
                if kept[0][0].num_rows:
                    yield kept.pop()

    def _merged(self, section: list[DataFile], runs: Sections) -> Iterator[Piece]:
        if self._shown_from is not None:
            for one in self._compared(section, runs):
                self._publish(one)
                made_of_it = [self._rest_of(one)]
                del one
                yield made_of_it.pop()
            return
        for folded, numbers in self.reader.merged(section, runs, self.table.schema.fields, sequence=True):
            assert numbers is not None
            stays = self._stays(folded.kinds, numbers)
            if stays is not None:
                kept = np.flatnonzero(stays)
                folded, numbers = folded.chosen(kept), numbers[kept]
            made = [(folded.table(), pa.array(numbers), None if folded.kinds is None else pa.array(folded.kinds))]
            del folded  # with the rows that were merged
            yield made.pop()

    def _compared(self, section: list[DataFile], runs: Sections) -> Iterator[Compared]:
        if self._shown_from is None:
            return iter(())
        expiry = self.job.expiry if self.job.publishes_expiry else None
        return self.reader.compared(section, runs, self.table.schema.fields, shown_from=self._shown_from, expiry=expiry)

    def _publish(self, one: Compared) -> None:
        """Publish what became of keys."""
        kinds, engine = one.folded.kinds, self.reader.merge.engine
        after = one.folded.positions if engine.chooses else None  # versions themselves, and not rows made of them
        shown = np.ones(len(one.numbers), np.bool_) if kinds is None else (kinds & 1) == 0
        gone = ~shown & one.fresh
        shown &= one.fresh
        if isinstance(engine, FirstRow):  # the row that was there first stays
            shown &= one.before < 0
            if self.job.below:
                shown &= ~self._lies_below(one.folded.table())
        rows = one.folded.table() if after is None else after
        if len(one.expired):
            self.log.publish_gone(one.rows.take(pa.array(one.expired)))
        self.log.publish(one.rows, one.before, rows, one.numbers, shown, gone)

    def _rest_of(self, one: Compared) -> Piece:
        """Return the merged rows that stay."""
        kinds = one.folded.kinds
        rows, numbers, made = one.folded.table(), pa.array(one.numbers), None if kinds is None else pa.array(kinds)
        stays = self._stays(kinds, one.numbers)
        if stays is None:
            return rows, numbers, made
        mask = pa.array(stays)
        return rows.filter(mask), numbers.filter(mask), None if made is None else made.filter(mask)

    def _plain(self, files: Sequence[DataFile]) -> Iterator[Piece]:
        names = self.table.schema.names
        for file in files:
            publishes = self._shown_from is not None and file.level < self._shown_from
            for rows in self.reader.plain(file, self.table.schema.fields, sequence=True):
                if self.job.expiry is not None and self.job.publishes_expiry:
                    rows = self._unexpired(rows, shown=not publishes)
                if publishes:
                    shown = (rows.column(VALUE_KIND.name).to_numpy() & 1) == 0
                    if self.job.below and rows.num_rows:
                        shown &= ~self._lies_below(rows)
                    self.log.publish_new(rows.select(names), rows.column(SEQUENCE_NUMBER.name).to_numpy(), shown)
                stays = self._stays(*(rows.column(f.name).to_numpy() for f in (VALUE_KIND, SEQUENCE_NUMBER)))
                kept = rows if stays is None else rows.filter(pa.array(stays))
                numbers = kept.column(SEQUENCE_NUMBER.name).combine_chunks()
                yield kept.select(names), numbers, kept.column(VALUE_KIND.name).combine_chunks()

    def _unexpired(self, rows: pa.Table, *, shown: bool) -> pa.Table:
        """Return the rows that are not too old; publish that the others are gone, if they were shown."""
        assert self.job.expiry is not None
        stays = self.job.expiry.stays(rows)
        if stays.all():
            return rows
        if shown:
            adds = (rows.column(VALUE_KIND.name).to_numpy() & 1) == 0
            self.log.publish_gone(rows.filter(pa.array(~stays & adds)))
        return rows.filter(pa.array(stays))

    def _stays(self, kinds: Kinds | None, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_] | None:
        """Return bool[n], the rows that are not dropped as retractions; None: all."""
        return None if kinds is None or not self.job.drop_retractions else self._tombstones.mask(kinds, numbers)

    @cached_property
    def _tombstones(self) -> Kept:
        return self.job.tombstones.of_files(self.merged_with + self.job.files)

    @property
    def mark(self) -> str:
        """What the names of new files tell of their rows."""
        waits = publishes_by_compaction(self.table.options) and self._shown_from is None
        untracked = waits and all(is_untracked(file) for file in self.job.files)
        return (UNTRACKED_FILE if untracked else "") + self._tombstones.mark

    def _kept(self, rows: pa.Table, numbers: pa.Array, kinds: pa.Array | None) -> Piece:
        there: npt.NDArray[np.bool_] | None = None
        if self.job.below and rows.num_rows:
            there = ~self._lies_below(rows)
        if self.job.drop_retractions and self.table.counting:
            there = rows.column(VALUE_COUNT.name).to_numpy() != 0
        if self.job.leaves_out is not None and rows.num_rows:
            goes = np.asarray(self.job.leaves_out.mask(rows).fill_null(False))
            stays = ~goes if kinds is None else ~goes | ((np.asarray(kinds) & 1) == 1)
            there = stays if there is None else there & stays
        if there is None or there.all():
            return rows, numbers, kinds
        mask = pa.array(there)
        return rows.filter(mask), numbers.filter(mask), None if kinds is None else kinds.filter(mask)

    def _lies_below(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Return bool[n], whose keys lie in files that stay."""
        asked = Asked(tuple(rows.column(name).combine_chunks() for name in self.table.key), self.table.key_types)
        found = np.zeros(rows.num_rows, np.bool_)
        for file, first, end in reached(self.reader, asked, self.job.below):
            which, _ = find(self.reader, file, asked.slice(first, end), self.env.cache, additions=True)
            found[first + which] = True
        return found


class AppendCompaction(Compaction):
    """Files of a table without a key, one after the other in the order of their rows, or sorted."""

    def work(self) -> None:
        made = self.write(self.job.files, self._pieces())
        first, last = self.job.files[0].min_sequence, self.job.files[-1].min_sequence
        for file in made:
            if self.table.bucket > 0:  # numbered as the rows were, so that later files stay later
                # Writers that ran side by side gave numbers twice; counted on, they would pass those of later files.
                low = min(first, last)
                file = replace(file, min_sequence=low, max_sequence=low + file.row_count - 1)
                first += file.row_count
            self.added.append(file)

    def all_rows(self) -> Generator[Piece, None, None]:
        """Yield the rows in their order."""
        return self._pieces()

    def _pieces(self) -> Generator[Piece, None, None]:
        tables: Iterator[pa.Table] = self._rows()
        if self.job.order is not None:
            tables = ordered(
                self._rows,
                self.job.order,
                self.env,
                size_bytes=_GROWTH * self.job.size_bytes,
                budget_bytes=self.table.options.get(w.WRITE_BUFFER_SIZE),
            )
        for rows in tables:
            yield rows, None, None

    def _rows(self, names: Sequence[str] | None = None) -> Generator[pa.Table, None, None]:
        schema = self.table.schema
        fields = schema.fields if names is None else [schema.field(name) for name in names]
        for file in self.job.files:
            yield from self.reader.plain(file, fields)


def uncounted(table: TableDef, file: DataFile) -> bool:
    """Return whether a file may hold retractions that its metadata does not count.

    One known writer counts none where kinds come from a column. Above level 0 the count of a file is believed, so
    such a file may not go there as it stands.
    """
    return file.level == 0 and table.options.get(w.ROWKIND_FIELD) is not None


def append_groups(
    table: TableDef, files: Sequence[DataFile], *, full: bool, worn: Collection[str] = ()
) -> list[tuple[DataFile, ...]]:
    """Return groups of files of a table without a key that are worth being made fewer.

    Args:
        files: live files of one bucket. With a bucket key the order of their rows counts, so only neighbours
            are put together.
        full: two small files are enough; else `compaction.min.file-num`, or twice the target size.
        worn: names of files that are rewritten whatever their size: many of their rows are deleted, or the options
            of the table now ask for another format, compression or index.
    """
    options = table.options
    layout = file_layout(table)
    target = layout.target_size_bytes
    small = target * options.get(u.SMALL_FILE_RATIO)
    least = 2 if full else options.get(u.COMPACTION_MIN_FILE_NUM)
    ordered = table.bucket > 0
    found: list[tuple[DataFile, ...]] = []
    held: list[DataFile] = []
    held_bytes = 0

    def settle() -> None:
        nonlocal held_bytes
        many = len(held) >= least or (len(held) > 1 and held_bytes >= 2 * target)
        if many or any(file.name in worn for file in held):
            found.append(tuple(held))
        held.clear()
        held_bytes = 0

    for file in sorted(files, key=lambda f: f.min_sequence if ordered else f.size):
        whole = file.size >= small or file.row_count >= layout.target_rows
        if whole and file.name not in worn and not (full and options.get(u.FORCE_REWRITE_ALL_FILES)):
            if ordered:
                settle()
            continue
        held.append(file)
        held_bytes += file.size
        if held_bytes >= 2 * target:
            settle()
    settle()
    return found
