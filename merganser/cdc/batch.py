"""The records of a batch while they are read: which of them still count, what became of the others, and their changes.

A record is *open* until it is rejected with a reason, skipped, or its rows are given. The first reason stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc.options import CdcOptions
from merganser.parsing.cells import NOTHING, Cells, cells_of, joined, places
from merganser.parsing.json_scan import ABSENT, NULL, OBJECT, TEXT, Bools, Bytes, Children, Inside, Ints, scan
from merganser.parsing.rules import Encoding
from merganser.rules.merging import Vouched
from merganser.schema.conform import Limits
from merganser.values import dataclass

INSERT: Final = 0
UPSERT: Final = 1
UPDATE: Final = 2
DELETE: Final = 3
TOMBSTONE: Final = 4
ROW: Final = 5
"""Actions: new row; new row that replaces one; old and new row; old row; the row of the message key goes; new row that
may replace one."""


@dataclass(frozen=True, slots=True)
class Document:
    """Members of n objects of JSON, by name.

    Attributes:
        names: the names asked for.
        cells: values of all members.
        where: int64[n, names]: positions in `cells`, or NOTHING.
        children: what the scan found.
        inside: members of those members that were looked into, by the positions of these in `cells`.
    """

    names: tuple[str, ...]
    cells: Cells
    where: Ints
    children: Children
    inside: Document | None = None

    def place(self, name: str) -> Ints:
        """Return the positions of the members of a name."""
        return self.where[:, self.names.index(name)]

    def kinds(self, name: str) -> Bytes:
        """Return the kind of a member of each object; ABSENT where it has none."""
        place = self.place(name)
        if not len(self.cells.kinds):
            return np.full(len(place), ABSENT, np.uint8)
        return np.where(place < 0, np.uint8(ABSENT), self.cells.kinds[np.maximum(place, 0)])

    def of(self, name: str) -> Cells:
        """Return a member of each object."""
        return self.cells.take(self.place(name))

    def are_objects(self, place: Ints) -> Bools:
        """Return which members are objects, by their positions; a negative one is none."""
        if not len(self.cells.kinds):
            return np.zeros(len(place), bool)
        return np.asarray((place >= 0) & (self.cells.kinds[np.maximum(place, 0)] == OBJECT))

    def images(self, place: Ints) -> Ints:
        """Return where the members of members lie, by their positions; NOTHING for a negative one."""
        assert self.inside is not None
        if not len(self.inside.where):
            return np.full((len(place), len(self.inside.names)), NOTHING, np.int64)
        return np.where((place < 0)[:, None], NOTHING, self.inside.where[np.maximum(place, 0)])


Images = tuple[Sequence[str], Sequence[str]]
"""Names of members that are images, and of the columns in them."""


def document(texts: pa.Array, names: Sequence[str], images: Images | None = None, *, trusted: bool = False) -> Document:
    """Return the members of objects; texts that are none have no members.

    Args:
        texts: string[n].
        names: names of members.
        images: those of them that are looked into, and for what.
        trusted: see `scan`.
    """
    inside = None
    if images is not None:
        inside = Inside(tuple(names.index(name) for name in images[0]), pa.array(images[1], pa.string()))
    found = scan(texts, pa.array(names, pa.string()), inside=inside, trusted=trusted)
    within = None
    if images is not None and found.inside is not None:
        columns = tuple(images[1])
        within = Document(columns, cells_of(found.inside), places(found.inside, len(columns)), found.inside)
    return Document(tuple(names), cells_of(found), places(found, len(names)), found, within)


def documents(cells: Cells, names: Sequence[str]) -> Document:
    """Return the members of those cells that are objects."""
    return document(pc.if_else(pa.array(cells.kinds == OBJECT), cells.texts, ""), names, trusted=True)


def overlaid(below: Document, above: Document, mask: Bools) -> Document:
    """Return documents of the same names: the upper ones where a mask says so."""
    shifted = np.where(above.where < 0, above.where, above.where + len(below.cells.kinds))
    where = np.where(mask[:, None], shifted, below.where)
    inside = None
    if below.inside is not None and above.inside is not None:
        low, high = below.inside, above.inside
        shifted = np.where(high.where < 0, high.where, high.where + len(low.cells.kinds))
        inside = Document(
            low.names, joined([low.cells, high.cells]), np.concatenate([low.where, shifted]), low.children
        )
    return Document(below.names, joined([below.cells, above.cells]), where, below.children, inside)


@dataclass(frozen=True, slots=True)
class Schemas:
    """What records say of the form of their values.

    Attributes:
        of: int64[records]: which schema a record has, 0 for none.
        encodings: of each schema, the encodings of columns by name; the first is empty.
        defaults: of each schema, the defaults of columns by name, as texts; the first is empty.
    """

    of: Ints
    encodings: tuple[dict[str, Encoding], ...] = ({},)
    defaults: tuple[dict[str, str], ...] = ({},)


@dataclass(frozen=True, slots=True)
class Known:
    """A piece of the envelope: values by record, and their form."""

    cells: Cells
    encoding: Encoding = Encoding()


@dataclass(frozen=True, slots=True)
class Names:
    """Where records come from, by record; ABSENT where a record does not say it."""

    database: Cells
    schema: Cells
    table: Cells


@dataclass(slots=True)
class Changes:
    """The changes of a batch.

    Attributes:
        record: int64[e], rising: the record of each change.
        action: uint8[e].
        new, old: int64[e, columns]: cells of the image after and before the change, or NOTHING or UNAVAILABLE.
        has_new, has_old: bool[e]: whether there is such an image.
        cells: all values.
        schemas: forms of the values.
        known: pieces of the envelope by name, the better ones first.
        sources: int64[e], whether the source sends whole old rows; see `old_rows`. None: it does.
    """

    record: Ints
    action: Bytes
    new: Ints
    has_new: Bools
    old: Ints
    has_old: Bools
    cells: Cells
    schemas: Schemas
    known: dict[str, list[Known]] = field(default_factory=dict)
    sources: Ints | None = None


class Batch:
    """The records of one call.

    Attributes:
        texts: string[n], "" where there is no value.
        keys: string[n] or None: message keys.
        columns: names of the columns that images fill.
        key: indices into `columns` of the primary key, as far as images give it.
        table_key: names of the whole primary key.
        partition: names of the partition columns.
        sequence: names of the columns that order rows of a key, and that deletes need.
        ordering: names of all columns that order rows, or values of sequence groups.
        limits: values that files of the table cannot hold; None: they hold all.
        placed: names of the partition columns outside the key, if the table does not find a key in other partitions.
        retracts: whether the merge engine takes the values of old rows back.
        vouched: see `Placing`.
        open: bool[n].
        nothing: bool[n], which records have no value, or null.
        peeled: bool[n], of which records `texts` holds the payload alone.
        skipped: how many records gave no rows, by why.
    """

    def __init__(
        self,
        texts: pa.Array,
        keys: pa.Array | None,
        columns: Sequence[str],
        key: Sequence[int],
        options: CdcOptions,
        nothing: Bools,
        table_key: Sequence[str] = (),
        partition: Sequence[str] = (),
        sequence: Sequence[str] = (),
        groups: Sequence[str] = (),
        limits: Limits | None = None,
        finds: bool = True,
        retracts: bool = False,
        vouched: Sequence[Vouched] = (),
    ) -> None:
        self.texts = texts
        self.keys = keys
        self.columns = tuple(columns)
        self.key = tuple(key)
        self.options = options
        self.open = np.ones(len(texts), bool)
        self.nothing = nothing.copy()
        self.table_key = frozenset(table_key)
        self.partition = frozenset(partition)
        self.sequence = tuple(sequence)
        self.ordering = frozenset((*sequence, *groups))
        self.limits = limits
        self.placed = () if finds or not table_key else tuple(name for name in partition if name not in table_key)
        self.retracts = retracts and bool(table_key)
        self.vouched = vouched
        self.peeled = np.zeros(len(texts), bool)
        self.skipped: dict[str, int] = {}
        self._reasons: list[tuple[Ints, pa.Array]] = []
        self._rejected = np.zeros(len(texts), bool)

    def __len__(self) -> int:
        return len(self.texts)

    def reject(self, records: Bools | npt.NDArray[np.integer], reason: str | pa.Array) -> None:
        """Close records with a reason. Those that are closed already keep theirs.

        Args:
            records: a mask over all records, or positions, maybe repeated.
            reason: one for all, or one per position.
        """
        if records.dtype == np.bool_:
            records = np.flatnonzero(records)
        kept = np.flatnonzero(self.open[records])
        if not len(kept):
            return
        which = records[kept].astype(np.int64)
        first = np.ones(len(which), bool)
        if len(which) > 1:
            order = np.argsort(which, kind="stable")
            first[order[1:]] = which[order[1:]] != which[order[:-1]]
        which, kept = which[first], kept[first]
        reasons = reason.take(pa.array(kept)) if isinstance(reason, pa.Array) else pa.array([reason] * len(which))
        self._reasons.append((which, reasons.cast(pa.string())))
        self.open[which] = False
        self._rejected[which] = True

    def skip(self, records: Bools, why: str) -> None:
        """Close records without rows."""
        which = np.flatnonzero(records & self.open)
        if len(which):
            self.skipped[why] = self.skipped.get(why, 0) + len(which)
            self.open[which] = False

    def rejected(self) -> tuple[Ints, pa.Array]:
        """Return the rejected records, rising, and their reasons."""
        if not self._reasons:
            return np.zeros(0, np.int64), pa.array([], pa.string())
        which = np.concatenate([records for records, _ in self._reasons])
        order = np.argsort(which, kind="stable")
        return which[order], pa.concat_arrays([reasons for _, reasons in self._reasons]).take(pa.array(order))

    # steps that all formats share

    def opened(self, names: Sequence[str], images: Images | None = None) -> Document:
        """Return the members of the records, and close those that are no objects; those that are null stay open.

        Args:
            names: names of members.
            images: those of them that are looked into, and for what.
        """
        found = document(self.texts, names, images)
        roots, faults = found.children.roots, found.children.faults
        blank, other = (roots == ABSENT) & ~self.nothing, (roots > NULL) & (roots != OBJECT)
        if self.peeled.any():
            self.reject(self.peeled & blank, "not-json: the text is not JSON")
            self.reject(self.peeled & other, "bad-envelope: 'payload' is no object")
        self.reject(faults, "not-json: the text is not JSON")
        self.reject(blank, "empty: the text is empty or blank")
        self.reject(other, "not-object: the JSON is no object")
        self.nothing |= roots == NULL
        return found

    def skip_tombstones(self) -> None:
        """Skip records without a value if they are to be ignored; else they wait for `with_tombstones`."""
        if self.options.tombstone == "ignore":
            self.skip(self.nothing, "tombstone")
        else:
            self.open &= ~self.nothing

    def images(self, cells: Cells) -> Document:
        """Return the columns of images, which are cells; those that are no objects give none."""
        return documents(cells, self.columns)

    def bad_images(self, document_: Document, *names: str) -> None:
        """Reject records in which a member should be an image and is neither an object nor null."""
        for name in names:
            kinds = document_.kinds(name)
            self.reject((kinds > NULL) & (kinds != OBJECT), f"bad-envelope: '{name}' is no object")

    def choose_tables(self, database: Cells | None, table: Cells | None) -> None:
        """Close records of other tables, before their values are looked at."""
        for pattern, names, word in (
            (self.options.database, database, "database"),
            (self.options.table, table, "table"),
        ):
            if pattern is None:
                continue
            named = np.zeros(len(self), bool) if names is None else names.kinds == TEXT
            self.reject(~named, f"missing-table: the record does not name its {word}")
            if names is not None:
                fits = np.asarray(pc.match_substring_regex(names.texts, pattern))
                self.skip(named & ~fits, "other-table")

    def operations(self, cells: Cells, name: str) -> pa.Array:
        """Return the operations of records, "" for closed ones; rejects records without one."""
        self.reject(cells.kinds <= NULL, f"missing-op: the record has no '{name}'")
        self.reject(cells.kinds != TEXT, f"unknown-op: '{name}' is no text")
        return pc.if_else(pa.array(self.open), cells.texts, "")

    def truncates(self, records: Bools) -> None:
        """Close records that empty the source table."""
        if self.options.truncate == "ignore":
            self.skip(records, "truncate")
        else:
            self.reject(records, "truncate: the source table was emptied. Empty the table, or set truncate='ignore'")

    def unknown(self, operations: pa.Array, known: Bools) -> None:
        """Reject open records whose operation is not known."""
        wrong = np.flatnonzero(self.open & ~known)
        if len(wrong):
            named = operations.take(pa.array(wrong))
            self.reject(wrong, pc.binary_join_element_wise("unknown-op: '", named, "'", ""))

    def among(self, operations: pa.Array, *names: str) -> Bools:
        """Return which open records have one of some operations."""
        return np.asarray(self.open & np.asarray(pc.is_in(operations, value_set=pa.array(names))))


def with_tombstones(batch: Batch, changes: Changes) -> Changes:
    """Return changes and, in their order, the deletes of records without a value, if those delete."""
    if batch.options.tombstone == "ignore" or not batch.nothing.any():
        return changes
    batch.open |= batch.nothing
    gone = np.flatnonzero(batch.nothing)
    order = np.argsort(np.concatenate([changes.record, gone]), kind="stable")
    none, no = no_images(len(gone), len(batch.columns)), np.zeros(len(gone), bool)

    def merged(own: Any, more: Any) -> Any:
        return np.concatenate([own, more])[order]

    return Changes(
        merged(changes.record, gone),
        merged(changes.action, np.full(len(gone), TOMBSTONE, np.uint8)),
        merged(changes.new, none),
        merged(changes.has_new, no),
        merged(changes.old, none),
        merged(changes.has_old, no),
        changes.cells,
        changes.schemas,
        changes.known,
        None if changes.sources is None else merged(changes.sources, np.zeros(len(gone), np.int64)),
    )


def no_images(count: int, columns: int) -> Ints:
    """Return images without any column."""
    return np.full((count, columns), NOTHING, np.int64)
