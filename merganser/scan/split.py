"""Split: one worker's portion of a scan, as a value that pickles: of a state (`Split`) or of changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from merganser.expr.predicate import Predicate
from merganser.files.masks import Vector
from merganser.files.read import FileToRead
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """Whole sections of one bucket, or files of an append table.

    Attributes:
        directory: the bucket's directory.
        partition: the serialized partition.
        bucket: the bucket number.
        sections: groups of files; key ranges of two groups never meet. The files of a group are in the order in
            which they were committed. Append tables: one file per group.
        raw: no section needs a merge, and no file holds retractions: rows are read as they stand.
        vectors: deletion vectors, by data file; the rows that they name are not part of the split.
        marked: later deletion vectors, by data file: of these files only the rows that they name are part of it.
    """

    directory: str
    partition: bytes
    bucket: int
    sections: tuple[tuple[DataFile, ...], ...]
    raw: bool
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    marked: Mapping[str, Vector] = field(default_factory=dict)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files, section by section."""
        return tuple(file for section in self.sections for file in section)

    @property
    def rows(self) -> int:
        """Physical rows."""
        return sum(file.row_count for section in self.sections for file in section)

    @property
    def deleted(self) -> int | None:
        """Rows that deletion vectors name; None where a writer did not say."""
        counts = [vector.cardinality for vector in self.vectors.values()]
        return None if None in counts else sum(counts)  # type: ignore[arg-type]

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.size for section in self.sections for file in section)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of a file of changes come from.

    Attributes:
        snapshot: the snapshot that published it.
        place: a number that the files of one bucket share, among those of the snapshot.
        offset: of its first row; see `scan.forms`.
        time_ms: when its snapshot was committed.
    """

    snapshot: int
    place: int
    offset: int
    time_ms: int


class Phase(Enum):
    """Which changes of a split are read, where keys move between partitions; see `scan.phases`.

    IN_PHASES: all, each snapshot phase by phase. The files are small.
    GOING: those of keys that have no row in the bucket afterwards.
    STAYING: the others.
    """

    IN_PHASES = "in phase"
    GOING = "going"
    STAYING = "staying"


@dataclass(frozen=True, slots=True)
class PublishedSplit:
    """Files whose rows are changes, each as it stands.

    Attributes:
        targets: the files, in order.
        origins: of each file, where its rows come from.
        phase: which of the rows, and in which order; None: all, as they stand. Else the split has all files that hold
            retractions of their buckets and snapshots, or may hold rows of the same keys.
    """

    targets: tuple[FileToRead, ...]
    origins: tuple[Origin, ...]
    phase: Phase | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files."""
        return tuple(target.file for target in self.targets)

    @property
    def rows(self) -> int:
        """Stored rows."""
        return sum(target.file.row_count for target in self.targets)

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(target.file.size for target in self.targets)


@dataclass(frozen=True, slots=True)
class Portion:
    """Files of one state in one bucket.

    Attributes:
        directory: the bucket's directory.
        partition: the serialized partition.
        files: in the order in which they were committed.
        vectors: deletion vectors, by data file.
    """

    directory: str
    partition: bytes
    files: tuple[DataFile, ...]
    vectors: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DiffSplit:
    """Files of two states whose rows are compared: no key of theirs lies in another split.

    Attributes:
        before, after: the portions of both; several where the rows moved between buckets.
        shared: names of the files that both states have, perhaps with other deletion vectors.
        phase: which changes, GOING or STAYING; None: all.
        origin: where the rows come from, if one commit changed them: then an update is two rows in every form. None:
            they are the sum of several commits.
    """

    before: tuple[Portion, ...]
    after: tuple[Portion, ...]
    shared: frozenset[str] = frozenset()
    phase: Phase | None = None
    origin: Origin | None = None

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that are not shared."""
        every = (file for portion in (*self.before, *self.after) for file in portion.files)
        return tuple(file for file in every if file.name not in self.shared)

    @property
    def rows(self) -> int:
        """Stored rows of the files that are not shared."""
        return sum(file.row_count for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that are not shared."""
        return sum(file.size for file in self.files)


AnySplit = Split | PublishedSplit | DiffSplit


class What(Enum):
    """The stored versions of each key that a read returns.

    MERGED: the row that they make, as a batch shows the table.
    STORED: the same with its kind, and a key whose newest row is a retraction has that row: whatever is stored still.
    CHANGED: of changes, all rows with their kinds. MERGED leaves out retractions there.
    PACKED, LOGGED, PAIRED: the same in other forms; see `scan.forms`.
    """

    MERGED = "merged rows"
    STORED = "stored rows"
    CHANGED = "changes"
    PACKED = "changes in arrays"
    LOGGED = "changes with offsets"
    PAIRED = "changes with the rows before and after"


@dataclass(frozen=True, slots=True)
class ReadJob:
    """How splits are read: what every worker must know beside its splits.

    Attributes:
        table: the table.
        columns: columns to return, in this order; of stored rows `ROW_KIND` and `SEQUENCE_NUMBER` may be among them, of
            changes `CHANGE_KIND`.
        where: rows to return; applied exactly. None: all.
        schemas: columns of every older schema that a file was written with, by schema id.
        what: which rows are made of the versions of a key.
        key_filter: the part of `where` that looks at key columns alone, for splits that compare states.
    """

    table: TableDef
    columns: tuple[t.Field, ...]
    where: Predicate | None
    schemas: Mapping[int, tuple[t.Field, ...]]
    what: What = What.MERGED
    key_filter: Predicate | None = None
