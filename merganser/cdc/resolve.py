"""Changes -> rows with kinds: which rows a change makes, of what kind, and with which values.

A change keeps its place: its old row comes right before its new one. All rows of a record are given, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc.batch import DELETE, INSERT, TOMBSTONE, UPDATE, UPSERT, Batch, Changes, Known
from merganser.cdc.computed import computed
from merganser.cdc.message_keys import key_cells
from merganser.parsing.cells import NOTHING, UNAVAILABLE, Cells, joined
from merganser.parsing.json_scan import ARRAY, NULL, OBJECT, Bools, Ints, compact
from merganser.parsing.outcome import Read
from merganser.parsing.rules import PLAIN, Encoding
from merganser.parsing.values import column
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field, arrow_type
from merganser.schema.row_kind import DELETE as MINUS_D
from merganser.schema.row_kind import INSERT as PLUS_I
from merganser.schema.row_kind import UPDATE_AFTER as PLUS_U
from merganser.schema.row_kind import UPDATE_BEFORE as MINUS_U

_SHOWN_MAX: Final = 100
_KEYLESS: Final = ("canal-json", "ogg-json")
"""Formats whose message keys say nothing to rely on."""
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
        expressions = [found for name, found in batch.options.computed.items() if name in batch.table_key]
        names = {*batch.table_key, *(name for expression in expressions for name in expression.columns)}
        self._identity = names if batch.table_key else {field.name for field in fields}
        """Columns that tell which row is meant."""
        action = changes.action
        self.updates = action == UPDATE
        self.deletes = (action == DELETE) | (action == TOMBSTONE)
        self.has_column = changes.new != NOTHING
        self.kept: Bools | None = None
        """bool[e, columns], the values that a new row keeps of the row before it; None: no row keeps any."""

    def _reject(self, changes: Bools, reason: str) -> None:
        if changes.any():
            self.batch.reject(self.c.record[changes], reason)

    # which images there are

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
            return
        side = {"new": ~self.deletes, "old": self.deletes}
        gaps = {name: self._gaps(name) & mask[:, None] for name, mask in side.items()}
        asking = (gaps["new"] | gaps["old"]).any(axis=1) & self.batch.open[self.c.record]
        filled = np.zeros(len(asking), bool)
        if asking.any() and self.batch.keys is not None and self.batch.options.format not in _KEYLESS:
            which = np.flatnonzero(asking)
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
        values, where, encodings, schema = key_cells(keys, [prefix + name for name in names])
        where = np.where(where < 0, where, where + len(self.cells.kinds))
        self.cells = joined([self.cells, values])
        self.key_encodings = encodings
        self.key_schema = np.zeros(len(self.c.record), np.int64)
        self.key_schema[which] = schema
        found = np.zeros(len(which), bool)
        for i, index in enumerate(self.key):
            useful = ~self._is_gap(where[:, i])
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

    # which rows there are

    def choose_rows(self) -> None:
        """Decide which rows each change makes, and their kinds."""
        moved = self._moved()
        updates, keyed = self.updates, bool(self.key)
        both = updates & (self.whole | moved)
        if self.kept is not None:
            for i in np.flatnonzero(self.kept[moved].any(axis=0)).tolist():
                self._reject(
                    self.kept[:, i] & moved,
                    f"unavailable: column {self.batch.columns[i]}: the record does not hold its value, and the update "
                    "changes the key. Let the source send whole rows (REPLICA IDENTITY FULL)",
                )
        if not keyed:
            self._reject(updates & ~self.whole, _UPDATE_WITHOUT_KEY)
        live = self.batch.open[self.c.record]
        self.emits = np.column_stack([live & (self.deletes | both), live & ~self.deletes])
        old_kind = np.where(updates & ~moved, MINUS_U, MINUS_D)
        new_kind = np.where(updates & ~moved | (self.c.action == UPSERT), PLUS_U, PLUS_I)
        self.kinds = np.column_stack([old_kind, new_kind]).astype(np.int8)

    def _moved(self) -> Bools:
        """Return which updates change the primary key, and reject those whose old key cannot be read."""
        moved = np.zeros(len(self.c.record), bool)
        if not self.key or not self.updates.any():
            return moved
        live = self.updates & self.c.has_old & self.batch.open[self.c.record]
        for index in self.key:
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
            moved[at[~np.asarray(equal)]] = True
        return moved & self.batch.open[self.c.record]

    # values

    def rows(self) -> Rows:
        """Return the rows of the records that stay open."""
        flat = np.flatnonzero(self.emits.ravel())  # the old row of a change, then the new one
        change, side = flat >> 1, flat & 1
        kinds = self.kinds.ravel()[flat]
        options = self.batch.options
        columns: dict[str, pa.Array] = {}
        for field in self.fields:
            if field.name in options.computed:
                continue
            if field.name in options.metadata:
                found = self._metadata(field, change)
            else:
                index = self.batch.columns.index(field.name)
                where = np.where(side == 1, self.new[change, index], self.old[change, index])
                found = self._read(index, where, change, side)
                found = self._spared(field.name, found, kinds)
                self._reject_values(index, found, change, where=where)
            self._reject_nulls(field, found, change, kinds, self._kept_in(field.name, change, side))
            columns[field.name] = found.values
        self._check_computed(change, side)
        for field in self.fields:
            if field.name in options.computed:
                found = computed(options.computed[field.name], pa.table(columns), field.type)
                found = self._spared(field.name, found, kinds)
                bad = np.flatnonzero(found.bad)
                if len(bad):
                    why = found.why.take(pa.array(bad)) if isinstance(found.why, pa.Array) else found.why
                    said = pc.binary_join_element_wise(f"bad-value: column {field.name}:", why, " ")
                    self.batch.reject(self.c.record[change[bad]], said)
                self._reject_nulls(field, found, change, kinds)
                columns[field.name] = found.values
                if field.name in self.batch.table_key:
                    kinds = _apart(kinds, change, found.values)
        kept = self.batch.open[self.c.record[change]]
        schema = pa.schema([arrow_field(field).with_nullable(True) for field in self.fields])
        table = pa.Table.from_arrays([columns[field.name] for field in self.fields], schema=schema)
        record = self.c.record[change]
        unavailable = self._unavailable(change, side)
        if not kept.all():
            table, kinds, record = table.filter(pa.array(kept)), kinds[kept], record[kept]
            unavailable = None if unavailable is None else unavailable.filter(pa.array(kept))
        return Rows(table, pa.array(kinds, pa.int8()), record, unavailable)

    def _spared(self, name: str, found: Read, kinds: Any) -> Read:
        """Return values of a column, of which those of deletes are not bad if they do not tell which row is meant."""
        if name in self._identity or not found.bad.any():
            return found
        return replace(found, bad=found.bad & (kinds != MINUS_D))

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

    def _reject_nulls(self, field: t.Field, found: Read, change: Ints, kinds: Any, kept: Bools | None = None) -> None:
        """Reject rows without a value that they need: a delete needs the primary key alone."""
        if field.name in self.batch.table_key:
            needed, reason = np.ones(len(kinds), bool), f"missing-key: key column {field.name} is null"
        elif not field.type.nullable:
            needed, reason = kinds != MINUS_D, f"bad-value: column {field.name}: null, and the column is NOT NULL"
        else:
            return
        if kept is not None:
            needed = needed & ~kept
        null = np.asarray(found.values.is_null()) & ~found.bad & needed
        if null.any():
            self.batch.reject(self.c.record[change[null]], reason)

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
        rules = self.batch.options.rules.of(name)
        cells = self.cells.take(where)
        code, encodings = self._encodings(index, name, change, side)
        if len(encodings) == 1:
            return column(cells, kind, encodings[0], rules)
        return _merged(
            [column(cells.filter(code == i), kind, encoding, rules) for i, encoding in enumerate(encodings)],
            code,
            kind,
        )

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
        for known in _by_precision(self.c.known.get(name, []), field.type):
            cells = known.cells.take(record)
            found = column(cells, field.type, known.encoding, self.batch.options.rules.of(field.name))
            lacking = np.asarray(values.is_null()) & ~bad
            wrong = found.bad & lacking
            if wrong.any():
                at = np.flatnonzero(wrong)
                self.batch.reject(record[at], _reasons(field.name, cells.take(at), found, at))
                bad |= wrong
            values = pc.coalesce(values, found.values)
        return Read(values, bad, "")


def _apart(kinds: Any, change: Ints, key: pa.Array) -> Any:
    """Return kinds, `-D` and `+I` for the rows of an update between which a computed key column differs."""
    if len(kinds) < 2:
        return kinds
    pair = (change[1:] == change[:-1]) & (kinds[:-1] == MINUS_U)
    moved = np.flatnonzero(pair & ~np.asarray(pc.equal(key[1:], key[:-1]).fill_null(True)))
    kinds = kinds.copy()
    kinds[moved], kinds[moved + 1] = MINUS_D, PLUS_I
    return kinds


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
