"""Changes -> rows with kinds: which rows a change makes, of what kind, and with which values.

A change keeps its place: its old row comes right before its new one. All rows of a record are given, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc.batch import DELETE, INSERT, ROW, TOMBSTONE, UPDATE, UPSERT, Batch, Changes, Known
from merganser.cdc.computed import computed
from merganser.cdc.log_positions import LOG_POSITIONS, sortable
from merganser.cdc.message_keys import key_cells
from merganser.cdc.old_rows import FILLED, SENT, evidence
from merganser.parsing.cells import NOTHING, UNAVAILABLE, Cells, joined
from merganser.parsing.json_scan import ARRAY, NULL, OBJECT, Bools, Ints, compact
from merganser.parsing.outcome import Read, read
from merganser.parsing.rules import PLAIN, Encoding
from merganser.parsing.values import column
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field, arrow_type
from merganser.schema.row_kind import DELETE as MINUS_D
from merganser.schema.row_kind import INSERT as PLUS_I
from merganser.schema.row_kind import UPDATE_AFTER as PLUS_U
from merganser.schema.row_kind import UPDATE_BEFORE as MINUS_U
from merganser.values import dataclass

_SHOWN_MAX: Final = 100
_TIMES: Final = (t.Date, t.Time, t.Timestamp, t.LocalZonedTimestamp)
_KEYLESS: Final = ("canal-json", "ogg-json")
"""Formats whose message keys say nothing to rely on."""
_UNTOLD: Final = "Let the source send it, or order rows by other metadata"
_UNTOLD_TOMBSTONE: Final = (
    "A record without a value has no metadata: set tombstone='ignore' if the source sends deletes as rows, too, or let "
    "it send them (delete.tombstone.handling.mode=rewrite)"
)
_NOT_TAKEN_BACK: Final = (
    "missing-before: the merge engine takes the values of the old row back, and the record does not hold all of them. "
    "Let the source send whole old rows (in Postgres: REPLICA IDENTITY FULL)"
)
_UPDATE_WITHOUT_KEY: Final = (
    "missing-before: an update of a table without primary key needs the whole row before the change"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with kinds.

    Attributes:
        table: the columns of the table.
        kinds: int8[n].
        record: int64[n], rising: the record each row came from.
        unavailable: list<string>[n], the columns whose value the source did not send, so that the row keeps the value
            of the row before it; null in whole rows. None: unavailable values are not kept.
    """

    table: pa.Table
    kinds: pa.Array
    record: Ints
    unavailable: pa.Array | None = None


def rows_of(batch: Batch, changes: Changes, fields: Sequence[t.Field]) -> Rows:
    """Return the rows of changes, and reject the records whose rows cannot be made.

    Args:
        batch: the records.
        changes: what they say.
        fields: the columns of the table; those of `batch.columns` come from images, the others from the envelope.
    """
    work = _Resolving(batch, changes, fields)
    work.forget_old_values()
    work.check_images()
    work.fill_unavailable()
    work.fill_keys()
    work.choose_rows()
    return work.rows()


class _Resolving:
    def __init__(self, batch: Batch, changes: Changes, fields: Sequence[t.Field]) -> None:
        self.batch = batch
        self.c = changes
        self.fields = fields
        self.by_name = {field.name: field for field in fields}
        self.new, self.old = changes.new.copy(), changes.old.copy()
        self.cells = changes.cells
        self.key = list(batch.key)
        self.key_encodings: list[dict[str, Encoding]] = [{}]
        self.key_schema: Ints | None = None
        self.from_key: dict[int, tuple[Bools, Bools]] = {}
        self.inputs = {
            name: [batch.columns.index(part) for part in sorted(found.columns) if part in batch.columns]
            for name, found in batch.options.computed.items()
            if name in batch.table_key
        }
        """Of each computed column of the key, the columns that it is computed from."""
        parts = {batch.columns[i] for places in self.inputs.values() for i in places}
        self._identity = {*batch.table_key, *parts} if batch.table_key else {field.name for field in fields}
        """Columns that tell which row is meant."""
        self.placed = [batch.columns.index(name) for name in batch.placed if name in batch.columns]
        """The columns that tell in which partition the row of a key lies."""
        self._identity |= set(batch.placed)
        if batch.retracts:
            self._identity |= {field.name for field in fields}
        self._ordering = self._feeding(batch.ordering)
        """Columns filled from the envelope that order rows, in a text form that sorts."""
        self.in_key = np.zeros((len(changes.record), len(self.key)), bool)
        """bool[e, key columns], the key columns that the message key holds."""
        self.names_key = np.zeros(len(changes.record), bool)
        """bool[e], the changes whose message key names columns."""
        action = changes.action
        self.updates = action == UPDATE
        self.deletes = (action == DELETE) | (action == TOMBSTONE)
        self.has_column = changes.new != NOTHING
        self.kept: Bools | None = None
        """bool[e, columns], the values that a new row keeps of the row before it; None: no row keeps any."""

    def _feeding(self, ordering: frozenset[str]) -> frozenset[str]:
        """Return the text columns that order rows, or that text columns which do are computed from."""
        texts = {name for name, field in self.by_name.items() if isinstance(field.type, t.Char | t.VarChar)}
        found = ordering & texts
        for name, projection in self.batch.options.computed.items():
            if name in found:
                found |= texts.intersection(projection.columns)
        return found

    def _reject(self, changes: Bools, reason: str) -> None:
        if changes.any():
            self.batch.reject(self.c.record[changes], reason)

    # which images there are

    def forget_old_values(self) -> None:
        """Leave old rows their key columns, if no other value of theirs is known."""
        if self.batch.options.old_rows == "key":
            others = [i for i in range(len(self.batch.columns)) if i not in self.key]
            self.old[:, others] = NOTHING

    def check_images(self) -> None:
        """Reject changes without the image that they need."""
        action = self.c.action
        self._reject(~self.deletes & ~self.c.has_new, "missing-after: there is no row after the change")
        if self.key:
            return
        self._reject(action == TOMBSTONE, "missing-key: a record without a value needs a primary key to delete by")
        part = (self.old < 0).any(axis=1)
        self._reject(
            (action == DELETE) & (~self.c.has_old | part),
            "missing-before: a delete from a table without primary key needs the whole row before the change",
        )
        self._reject(action == UPSERT, _UPDATE_WITHOUT_KEY)

    def fill_unavailable(self) -> None:
        """Take values that the new image lacks from the old one; without them the record is bad, or they are null."""
        # "whole" is judged before: a value that was filled in is known in both images
        known = (self.old >= 0) | ~self.has_column
        self.whole = self.c.has_old & known.all(axis=1)
        lacking = self.new == UNAVAILABLE
        if lacking.any():
            self.new = np.where(lacking & (self.old >= 0), self.old, self.new)
            lacking = (self.new == UNAVAILABLE) & ~self.deletes[:, None]
            self._settle_unavailable(lacking)
            self.new[self.new == UNAVAILABLE] = NOTHING
        self.old[self.old == UNAVAILABLE] = NOTHING

    def _settle_unavailable(self, lacking: Bools) -> None:
        """Reject records with values that the source did not send, or note that rows keep those of the row before.

        Args:
            lacking: bool[e, columns], values that neither image holds.
        """
        option = self.batch.options.unavailable
        inserts = self.c.action == INSERT
        for i in np.flatnonzero(lacking.any(axis=0)).tolist():
            column = f"unavailable: column {self.batch.columns[i]}:"
            if option == "bad" or (option == "keep" and not self.key):
                self._reject(
                    lacking[:, i],
                    f"{column} the record does not hold its value, nor does an old row. "
                    + ("Set unavailable='keep' to take the value of the stored row, or let" if self.key else "Let")
                    + " the source send whole old rows (REPLICA IDENTITY FULL)",
                )
                continue
            self._reject(
                lacking[:, i] & inserts,
                f"{column} the record does not hold its value, and no row is there before an insert. A source that "
                "sends a changed key as a delete and an insert needs whole old rows (REPLICA IDENTITY FULL)",
            )
        if option == "keep" and self.key:
            self.kept = lacking
            self.kept[:, self.key] = False  # the message key holds them, or they are missing

    # keys

    def fill_keys(self) -> None:
        """Fill key columns that images do not have from the message key; without one the record is bad."""
        if not self.key:
            self._check_deletes()
            return
        side = {"new": ~self.deletes, "old": self.deletes}
        gaps = {name: self._gaps(name) & mask[:, None] for name, mask in side.items()}
        asking = (gaps["new"] | gaps["old"]).any(axis=1)
        needed = (asking | self._compares()) & self.batch.open[self.c.record]
        filled = np.zeros(len(asking), bool)
        if needed.any() and self.batch.keys is not None and self.batch.options.format not in _KEYLESS:
            which = np.flatnonzero(needed)
            filled[which] = self._fill(which, gaps)
            gaps = {name: self._gaps(name) & mask[:, None] for name, mask in side.items()}
        missing = {name: gap.any(axis=1) for name, gap in gaps.items()}
        # a delete that says nothing at all lacks its old row, and not just a key
        silent = (self.c.action == DELETE) & ~self.c.has_old & ~filled
        self._reject(
            missing["old"] & silent, "missing-before: there is neither a row before the change nor a message key"
        )
        for i, index in enumerate(self.key):
            name = self.batch.columns[index]
            for side_gaps in gaps.values():
                self._reject(side_gaps[:, i], f"missing-key: key column {name} is null or absent")
        self._check_updates()
        self._check_deletes()
        # an old image without all of the key is of the same row, as far as it does not say otherwise
        rows, columns = np.ix_(np.flatnonzero(self.updates & self.c.has_old), np.array(self.key))
        own = self.old[rows, columns]
        self.old[rows, columns] = np.where(self._is_gap(own), self.new[rows, columns], own)

    def _is_gap(self, where: Ints) -> Bools:
        if not len(self.cells.kinds):
            return np.ones(where.shape, bool)
        return (where < 0) | (self.cells.kinds[np.maximum(where, 0)] <= NULL)

    def _gaps(self, side: str) -> Bools:
        return self._is_gap(getattr(self, side)[:, self.key])

    def _fill(self, which: Ints, gaps: Mapping[str, Bools]) -> Bools:
        names = [self.batch.columns[i] for i in self.key]
        prefix = "pk." if self.batch.options.format == "maxwell-json" else ""
        assert self.batch.keys is not None
        keys = self.batch.keys.take(pa.array(self.c.record[which]))
        is_text = len(names) == 1 and isinstance(self.by_name[names[0]].type, t.Char | t.VarChar)
        values, where, encodings, schema, self.names_key[which] = key_cells(
            keys, [prefix + name for name in names], is_text=is_text
        )
        where = np.where(where < 0, where, where + len(self.cells.kinds))
        self.cells = joined([self.cells, values])
        self.key_encodings = encodings
        self.key_schema = np.zeros(len(self.c.record), np.int64)
        self.key_schema[which] = schema
        found = np.zeros(len(which), bool)
        for i, index in enumerate(self.key):
            useful = ~self._is_gap(where[:, i])
            self.in_key[which, i] = useful
            used = {}
            for side, images in (("new", self.new), ("old", self.old)):
                at = useful & gaps[side][which, i]
                images[which[at], index] = where[at, i]
                mask = np.zeros(len(self.c.record), bool)
                mask[which[at]] = True
                used[side] = mask
                found |= at
            self.from_key[index] = (used["new"], used["old"])
        return found

    # whether old rows are known as far as they must be

    def _compares(self) -> Bools:
        """Return the changes whose message key may tell which row they replace or remove."""
        action = self.c.action
        found: Bools = (self.updates | (action == UPSERT)) & self._gaps("old").any(axis=1)
        if self.inputs or self.placed or self.batch.partition & self.batch.table_key:
            found |= action == ROW
        return found | self._doubtful()

    def _doubtful(self) -> Bools:
        """Return the deletes whose old row may hold values that the connector put in."""
        option = self.batch.options.old_rows
        deletes: Bools = (self.c.action == DELETE) & self.c.has_old
        if option == "key":
            return deletes
        if option == "whole" or self.c.sources is None:
            return np.zeros(len(deletes), bool)
        deletes &= self.c.sources != SENT
        return deletes

    def _check_updates(self) -> None:
        """Reject updates of rows that may lie at another key: the row before would stay."""
        action = self.c.action
        updates = self.updates | (action == UPSERT)
        rows = (action == ROW) & self.names_key
        if not updates.any() and not rows.any():
            return
        for index in self.placed:
            self._reject(rows | (updates & (self.old[:, index] < 0)), _unplaced(self.batch.columns[index]))
        if self.batch.retracts:
            self._reject(updates & ~self.whole, _NOT_TAKEN_BACK)
        places = {index: i for i, index in enumerate(self.key)}
        for index, i in places.items():
            name = self.batch.columns[index]
            known = self.in_key[:, i] | ~self._is_gap(self.old[:, index])
            if name in self.batch.partition:
                self._reject((updates | rows) & ~known, _unknown(name))
            else:
                self._reject(updates & self.names_key & ~known, _unknown(name))
        for name, inputs in self.inputs.items():
            for index in inputs:
                if index not in places:
                    self._reject(rows | (updates & (self.old[:, index] < 0)), _unknown(name, self.batch.columns[index]))

    def _check_deletes(self) -> None:
        """Reject deletes that need values which the connector may have put in, and leave such values out."""
        for index in self.placed:
            self._reject(self.deletes & (self.old[:, index] < 0), _unplaced(self.batch.columns[index]))
        if self.batch.retracts:
            self._reject(self.deletes & (self.old < 0).any(axis=1), _NOT_TAKEN_BACK)
        at = np.flatnonzero(self._doubtful() & self.batch.open[self.c.record])
        if not len(at):
            return
        if not self.key and self.batch.keys is not None:
            keys = self.batch.keys.take(pa.array(self.c.record[at]))
            at = at[key_cells(keys, ())[-1]]  # a source without a key sends whole rows
        columns = self.batch.columns
        sure = np.zeros((len(at), len(columns)), bool)
        for i, index in enumerate(self.key):
            sure[:, index] = np.where(
                self.names_key[at], self.in_key[at, i], columns[index] not in self.batch.partition
            )
        real, whole = self._evidence(at, sure)
        needed = {name: [index] for index, name in enumerate(columns) if index in self.key} | self.inputs
        needed |= {columns[index]: [index] for index in self.placed}
        if not self.batch.table_key or self.batch.retracts:
            needed = {name: [index] for index, name in enumerate(columns)}
        for name, inputs in needed.items():
            for index in inputs:
                self._reject_at(at[~whole & ~sure[:, index]], _invented(name, columns[index]))
        for name in self.batch.sequence:
            if name in columns:
                self._reject_at(at[~whole & ~sure[:, columns.index(name)]], _unordered(name))
        if self.c.sources is not None:
            real |= self.c.sources[at] != FILLED
        self.old[at[~real]] = np.where(sure[~real], self.old[at[~real]], NOTHING)

    def _evidence(self, at: Ints, sure: Bools) -> tuple[Bools, Bools]:
        if self.batch.options.old_rows == "key":
            return np.zeros(len(at), bool), np.zeros(len(at), bool)
        assert self.c.sources is not None
        times = [isinstance(self.by_name[name].type, _TIMES) for name in self.batch.columns]
        return evidence(
            self.old[at], self.cells, sure, self.c.sources[at], self.c.record[at], self.c.schemas,
            self.batch.columns, times,
        )  # fmt: skip

    def _reject_at(self, changes: Ints, reason: str) -> None:
        self.batch.reject(self.c.record[changes], reason)

    # which rows there are

    def choose_rows(self) -> None:
        """Decide which rows each change makes, and their kinds."""
        moved = self._moved()
        updates, keyed = self.updates, bool(self.key)
        both = updates & (self.whole | moved)
        if not keyed:
            self._reject(updates & ~self.whole, _UPDATE_WITHOUT_KEY)
        live = self.batch.open[self.c.record]
        # the old row is not whole, but its computed key is known: it is removed if that differs
        self.part: Bools = updates & self.c.has_old & ~both if self.inputs else np.zeros(len(updates), bool)
        self.emits = np.column_stack([live & (self.deletes | both | self.part), live & ~self.deletes])
        old_kind = np.where(updates & ~moved & ~self.part, MINUS_U, MINUS_D)
        new_kind = np.where(updates & ~moved | (self.c.action == UPSERT), PLUS_U, PLUS_I)
        self.kinds = np.column_stack([old_kind, new_kind]).astype(np.int8)

    def _moved(self) -> Bools:
        """Return which updates change the primary key, and reject those whose old key cannot be read."""
        moved = np.zeros(len(self.c.record), bool)
        if not self.key or not self.updates.any():
            return moved
        live = self.updates & self.c.has_old & self.batch.open[self.c.record]
        for index in (*self.key, *self.placed):
            at = np.flatnonzero(live & (self.old[:, index] != self.new[:, index]))
            if not len(at):
                continue
            old, new = self.cells.take(self.old[at, index]), self.cells.take(self.new[at, index])
            differ = (old.kinds != new.kinds) | ~np.asarray(pc.equal(old.texts, new.texts))
            at = at[differ]
            if not len(at):
                continue
            before, after = (self._read(index, images[at, index], at, None) for images in (self.old, self.new))
            for side in (before, after):
                self._reject_values(index, side, at, images=self.old if side is before else self.new)
            equal = pc.equal(before.values, after.values).fill_null(False)
            both_null = pc.and_(before.values.is_null(), after.values.is_null())
            moved[at[~np.asarray(pc.or_(equal, both_null))]] = True
        return moved & self.batch.open[self.c.record]

    # values

    def rows(self) -> Rows:
        """Return the rows of the records that stay open."""
        flat = np.flatnonzero(self.emits.ravel())  # the old row of a change, then the new one
        change, side = flat >> 1, flat & 1
        kinds = self.kinds.ravel()[flat]
        options = self.batch.options
        columns: dict[str, pa.Array] = {}
        part = self.part[change] & (side == 0)
        for field in self.fields:
            if field.name in options.computed:
                continue
            if field.name in options.metadata:
                found = self._metadata(field, change)
            else:
                index = self.batch.columns.index(field.name)
                where = np.where(side == 1, self.new[change, index], self.old[change, index])
                found = self._read(index, where, change, side)
                found = self._spared(field.name, found, kinds, part)
                self._reject_values(index, found, change, where=where)
                if field.name in self.batch.ordering:
                    lost = np.asarray(found.values.is_null()) & ~found.bad & (kinds != MINUS_U)
                    lost &= self.cells.take(where).kinds > NULL
                    self._reject_at(change[lost], _lost_order(field.name))
            self._reject_nulls(field, found, change, kinds, part, self._kept_in(field.name, change, side))
            columns[field.name] = found.values
        self._check_computed(change, side)
        for field in self.fields:
            if field.name in options.computed:
                found = self._held(computed(options.computed[field.name], pa.table(columns), field.type))
                found = self._spared(field.name, found, kinds, part)
                bad = np.flatnonzero(found.bad)
                if len(bad):
                    why = found.why.take(pa.array(bad)) if isinstance(found.why, pa.Array) else found.why
                    said = pc.binary_join_element_wise(f"bad-value: column {field.name}:", why, " ")
                    self.batch.reject(self.c.record[change[bad]], said)
                if field.name in self.batch.ordering and not options.metadata.keys().isdisjoint(
                    options.computed[field.name].columns
                ):
                    self._reject_untold(field.name, change, np.asarray(found.values.is_null()) & ~found.bad)
                self._reject_nulls(field, found, change, kinds, part)
                columns[field.name] = found.values
                if field.name in self.batch.table_key:
                    kinds, part = _apart(kinds, change, found.values, part)
        self._reject_unordered(change, side, kinds, columns)
        self._reject_unvouched(change, side, kinds, columns)
        self._reject_kept_of_moved(change, side, kinds, part)
        kept = self.batch.open[self.c.record[change]] & ~part
        schema = pa.schema([arrow_field(field).with_nullable(True) for field in self.fields])
        table = pa.Table.from_arrays([columns[field.name] for field in self.fields], schema=schema)
        record = self.c.record[change]
        unavailable = self._unavailable(change, side)
        if not kept.all():
            table, kinds, record = table.filter(pa.array(kept)), kinds[kept], record[kept]
            unavailable = None if unavailable is None else unavailable.filter(pa.array(kept))
        return Rows(table, pa.array(kinds, pa.int8()), record, unavailable)

    def _spared(self, name: str, found: Read, kinds: Any, part: Bools) -> Read:
        """Return values of a column, of which those of old rows are not bad if they do not tell which row is meant.

        Args:
            part: old rows that are not whole; those of updates with such a value become so.
        """
        if name in self._identity or not found.bad.any():
            return found
        part |= found.bad & (kinds == MINUS_U)
        bad = found.bad & ~part
        # a delete without a value that orders rows would be older than the row
        return replace(found, bad=bad if name in self.batch.sequence else bad & (kinds != MINUS_D))

    def _kept_in(self, name: str, change: Ints, side: Ints) -> Bools | None:
        """Return which rows keep the value of a column; None: none does."""
        if self.kept is None or name not in self.batch.columns:
            return None
        found: Bools = self.kept[change, self.batch.columns.index(name)] & (side == 1)
        return found if found.any() else None

    def _check_computed(self, change: Ints, side: Ints) -> None:
        """Reject rows that lack a value which a computed column needs."""
        if self.kept is None:
            return
        for name, projection in self.batch.options.computed.items():
            for needed in sorted(projection.columns):
                lacking = self._kept_in(needed, change, side)
                if lacking is not None:
                    self.batch.reject(
                        self.c.record[change[lacking]],
                        f"unavailable: column {needed}: the record does not hold its value, and column {name} is "
                        "computed from it. Let the source send whole rows (REPLICA IDENTITY FULL)",
                    )

    def _reject_kept_of_moved(self, change: Ints, side: Ints, kinds: Any, part: Bools) -> None:
        """Reject updates that change the key, computed columns of it too, and keep values: those lie at the old key.

        Args:
            part: old rows that are left out.
        """
        if self.kept is None or len(change) < 2:
            return
        at = 1 + np.flatnonzero((change[1:] == change[:-1]) & (kinds[:-1] == MINUS_D) & ~part[:-1] & (side[1:] == 1))
        for i in np.flatnonzero(self.kept[change[at]].any(axis=0)).tolist():
            self._reject_at(
                change[at[self.kept[change[at], i]]],
                f"unavailable: column {self.batch.columns[i]}: the record does not hold its value, and the update "
                "changes the key. Let the source send whole rows (REPLICA IDENTITY FULL)",
            )

    def _unavailable(self, change: Ints, side: Ints) -> pa.Array | None:
        """Return for each row the columns whose values it keeps; None if that is not asked for."""
        if self.batch.options.unavailable != "keep":
            return None
        if self.kept is None:
            return pa.nulls(len(change), pa.list_(pa.string()))
        kept = self.kept[change] & (side == 1)[:, None]
        counts = kept.sum(axis=1)
        names = pa.array(self.batch.columns, pa.string()).take(pa.array(np.nonzero(kept)[1]))
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        found = pa.ListArray.from_arrays(offsets, names)
        return pc.if_else(pa.array(counts > 0), found, pa.scalar(None, found.type))

    def _reject_nulls(
        self, field: t.Field, found: Read, change: Ints, kinds: Any, part: Bools, kept: Bools | None = None
    ) -> None:
        """Reject rows without a value that they need: an old row needs the primary key alone.

        Args:
            part: old rows that are not whole; those of updates that lack the value become so.
        """
        if field.name in self.batch.table_key:
            needed, reason = np.ones(len(kinds), bool), f"missing-key: key column {field.name} is null"
        elif not field.type.nullable:
            if self.batch.table_key and not self.batch.retracts:
                part |= (kinds == MINUS_U) & np.asarray(found.values.is_null())
            needed = (kinds != MINUS_D) & ~part
            reason = f"bad-value: column {field.name}: null, and the column is NOT NULL"
        else:
            return
        if kept is not None:
            needed = needed & ~kept
        null = np.asarray(found.values.is_null()) & ~found.bad & needed
        if null.any():
            self.batch.reject(self.c.record[change[null]], reason)

    def _reject_unordered(self, change: Ints, side: Any, kinds: Any, columns: Mapping[str, pa.Array]) -> None:
        """Reject deletes without a value of a column that orders rows: they would count as older than the row."""
        for name in self.batch.sequence:
            if name in self.batch.columns:
                absent = self.old[change, self.batch.columns.index(name)] < 0
                lacking = (kinds == MINUS_D) & (side == 0) & absent & np.asarray(columns[name].is_null())
                self._reject_at(change[lacking], _unordered(name))

    def _reject_unvouched(self, change: Ints, side: Any, kinds: Any, columns: Mapping[str, pa.Array]) -> None:
        """Reject rows that add and whose sequence group does not set a NOT NULL column, since its ordering is null."""
        for ordering, protected in self.batch.vouched:
            silent = (kinds & 1) == 0
            for name in ordering:
                silent &= np.asarray(columns[name].is_null())
                kept = self._kept_in(name, change, side)
                silent = silent if kept is None else silent & ~kept
            self._reject_at(
                change[silent],
                f"missing-order: column {', '.join(ordering)}: it orders the sequence group of {protected}, and is "
                f"null. Such a row does not set {protected}, which is NOT NULL",
            )

    def _read(self, index: int, where: Ints, change: Ints, side: Any) -> Read:
        """Return a column of rows.

        Args:
            index: the column.
            where: where its cells lie.
            change: the change of each row.
            side: 0 for old rows, 1 for new ones; None where the row's side does not matter.
        """
        name = self.batch.columns[index]
        kind = self.by_name[name].type
        cells = self.cells.take(where)
        code, encodings = self._encodings(index, name, change, side)
        if len(encodings) == 1:
            return self._values(name, cells, kind, encodings[0])
        return _merged(
            [self._values(name, cells.filter(code == i), kind, encoding) for i, encoding in enumerate(encodings)],
            code,
            kind,
        )

    def _values(self, name: str, cells: Cells, kind: t.DataType, encoding: Encoding) -> Read:
        return self._held(column(cells, kind, encoding, self.batch.options.rules.of(name)))

    def _held(self, found: Read) -> Read:
        """Return values, of which those are bad, too, that files of the table cannot hold."""
        limits = self.batch.limits
        beyond = None if limits is None else limits.beyond(found.values)
        if limits is None or beyond is None or not beyond.any():
            return found
        why = found.why if isinstance(found.why, pa.Array) else pa.array([found.why] * len(beyond), pa.string())
        return read(found.values, found.bad | beyond, pc.if_else(pa.array(beyond), f"is {limits.why}", why))

    def _encodings(self, index: int, name: str, change: Ints, side: Any) -> tuple[Ints, list[Encoding]]:
        """Return for each row which encoding its value has, and these."""
        schemas = self.c.schemas
        told = [found.get(name, PLAIN) for found in schemas.encodings]
        keys = [found.get(name, PLAIN) for found in self.key_encodings]
        used = self.from_key.get(index)
        distinct = list(dict.fromkeys([*told, *(keys if used is not None else ())]))
        if len(distinct) == 1:
            return np.zeros(len(change), np.int64), distinct
        of = np.array([distinct.index(found) for found in told])[schemas.of[self.c.record[change]]]
        if used is not None and self.key_schema is not None:
            new, old = used[0][change], used[1][change]
            filled = np.where(side == 1, new, old) if side is not None else new | old
            filled &= self.key_schema[change] > 0  # a key without a schema is written like its record
            of = np.where(filled, np.array([distinct.index(found) for found in keys])[self.key_schema[change]], of)
        present = np.flatnonzero(np.bincount(of, minlength=len(distinct)))
        renumbered = np.zeros(len(distinct), np.int64)
        renumbered[present] = np.arange(len(present))
        return renumbered[of], [distinct[i] for i in present.tolist()] or [PLAIN]

    def _reject_values(
        self, index: int, found: Read, change: Ints, *, where: Ints | None = None, images: Ints | None = None
    ) -> None:
        if not found.bad.any():
            return
        bad = np.flatnonzero(found.bad)
        place = where[bad] if where is not None else images[change[bad], index]  # type: ignore[index]
        self.batch.reject(
            self.c.record[change[bad]], _reasons(self.batch.columns[index], self.cells.take(place), found, bad)
        )

    # the envelope

    def _metadata(self, field: t.Field, change: Ints) -> Read:
        name = self.batch.options.metadata[field.name]
        target = arrow_type(field.type)
        values: pa.Array = pa.nulls(len(change), target)
        record = self.c.record[change]
        bad = np.zeros(len(change), bool)
        sorted_ = field.name in self._ordering and name in LOG_POSITIONS
        for known in _by_precision(self.c.known.get(name, []), field.type):
            cells = known.cells.take(record)
            if sorted_:
                cells, unknown = sortable(cells)
                unordered = np.flatnonzero(unknown & np.asarray(values.is_null()))
                self.batch.reject(record[unordered], _without_order(field.name, cells.take(unordered)))
            found = self._values(field.name, cells, field.type, known.encoding)
            lacking = np.asarray(values.is_null()) & ~bad
            wrong = found.bad & lacking
            if wrong.any():
                at = np.flatnonzero(wrong)
                self.batch.reject(record[at], _reasons(field.name, cells.take(at), found, at))
                bad |= wrong
            values = pc.coalesce(values, found.values)
        if field.name in self.batch.ordering:
            self._reject_untold(field.name, change, np.asarray(values.is_null()) & ~bad)
        return Read(values, bad, "")

    def _reject_untold(self, name: str, change: Ints, null: Bools) -> None:
        """Reject rows without a value of a column that orders them and that the envelope fills."""
        if null.any():
            tombstone = self.c.action[change] == TOMBSTONE
            for which, advice in ((~tombstone, _UNTOLD), (tombstone, _UNTOLD_TOMBSTONE)):
                self._reject_at(
                    change[null & which],
                    f"missing-order: column {name}: it orders the rows of a key, and the record does not say the "
                    f"metadata that fills it. {advice}",
                )


def _unplaced(column: str) -> str:
    """Return why a change is bad that may be of a row in another partition."""
    return (
        f"missing-before: column {column}: it tells in which partition the row lies, and no old row tells its value. "
        "Let the source send whole old rows (in Postgres: REPLICA IDENTITY FULL), or use a table with "
        "'bucket' = '-1', which finds the row in any partition"
    )


def _lost_order(column: str) -> str:
    """Return why a row is bad whose value is no value of a column that orders rows."""
    return (
        f"missing-order: column {column}: it orders the rows of a key, and the option out_of_range or zero_dates makes "
        "its value null: the row would be older than all others. Order rows by another column, or by metadata"
    )


def _without_order(name: str, cells: Cells) -> pa.Array:
    """Return why positions are bad whose order is not known."""
    shown = pc.binary_join_element_wise("'", pc.utf8_slice_codeunits(cells.texts, 0, _SHOWN_MAX), "'", "")
    return pc.binary_join_element_wise(
        f"missing-order: column {name}: it orders the rows of a key, and",
        shown,
        "is no position whose order is known. Order rows by other metadata, such as source_ts",
        " ",
    )


def _apart(kinds: Any, change: Ints, key: pa.Array, part: Bools) -> tuple[Any, Bools]:
    """Return kinds, `-D` and `+I` for the rows of an update between which a computed key column differs.

    Args:
        part: old rows that are not whole, and that are left out if no column differs.

    Returns:
        The kinds; and `part` without the rows that stay.
    """
    if len(kinds) < 2:
        return kinds, part
    pair = (change[1:] == change[:-1]) & ((kinds[:-1] == MINUS_U) | part[:-1])
    moved = np.flatnonzero(pair & ~np.asarray(pc.equal(key[1:], key[:-1]).fill_null(True)))
    kinds, part = kinds.copy(), part.copy()
    kinds[moved], kinds[moved + 1], part[moved] = MINUS_D, PLUS_I, False
    return kinds, part


def _unknown(column: str, part: str | None = None) -> str:
    """Return why an update is bad that may move a row.

    Args:
        column: a column of the key.
        part: the column that it is computed from.
    """
    of = f" of {part}, which it is computed from" if part else ""
    return (
        f"missing-before: column {column}: it is part of the primary key, and neither a row before the change nor the "
        f"message key tells its old value{of}. So the row that is replaced is not known. Let the source send whole old "
        "rows (in Postgres: REPLICA IDENTITY FULL), or leave the column out of the primary key"
    )


def _unordered(column: str) -> str:
    """Return why a delete is bad that may be older than the row that it removes."""
    return (
        f"missing-before: column {column}: it orders the rows of a key ('sequence.field'), and the delete lacks it, or "
        "holds what the connector put in. Let the source send whole old rows (in Postgres: REPLICA IDENTITY FULL, and "
        "the option old_rows='whole' if it is set already), or order rows by a column that the option metadata fills"
    )


def _invented(column: str, part: str) -> str:
    """Return why a delete is bad that needs a value of which it is not known whether the source has sent it."""
    value = "it" if column == part else f"{part}, which it is computed from,"
    return (
        f"missing-before: column {column}: it tells which row is deleted, and {value} may be a value that the "
        "connector put in: with its default replica identity, Postgres sends the key alone. Set REPLICA IDENTITY FULL "
        "for the table of the source, and the option old_rows='whole' if it is set already"
    )


def _by_precision(known: list[Known], kind: t.DataType) -> list[Known]:
    """Return pieces of the envelope, of times of several units the one first that the column holds whole."""
    if len(known) == 3 and isinstance(kind, t.Timestamp | t.LocalZonedTimestamp):
        best = 0 if kind.precision <= 3 else 1 if kind.precision <= 6 else 2
        return [*reversed(known[: best + 1])]
    return known


def _merged(parts: Sequence[Read], code: Ints, kind: t.DataType) -> Read:
    order = np.argsort(np.argsort(code, kind="stable"), kind="stable")
    values = pa.concat_arrays([part.values for part in parts]).take(pa.array(order))
    bad = np.concatenate([part.bad for part in parts])[order]
    texts = [
        part.why if isinstance(part.why, pa.Array) else pa.array([part.why] * len(part.bad), pa.string())
        for part in parts
    ]
    return Read(values, bad, pa.concat_arrays(texts).take(pa.array(order)) if bad.any() else f"is no {kind}")


def _reasons(name: str, cells: Cells, found: Read, bad: Ints) -> pa.Array:
    """Return what to say of bad values: their column, the value and why."""
    why = found.why.take(pa.array(bad)) if isinstance(found.why, pa.Array) else found.why
    nested = (cells.kinds == OBJECT) | (cells.kinds == ARRAY)
    texts = pc.if_else(pa.array(nested), compact(cells.texts), cells.texts) if nested.any() else cells.texts
    cut = pc.utf8_slice_codeunits(texts, 0, _SHOWN_MAX)
    shown = pc.binary_join_element_wise("'", cut, pc.if_else(pc.equal(cut, texts), "'", "...'"), "")
    return pc.binary_join_element_wise(f"bad-value: column {name}:", shown, why, " ")
