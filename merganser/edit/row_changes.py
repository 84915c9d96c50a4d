"""Changes of rows that are there, written as rows: +U and -D by key, or retractions where equal rows are counted.

No file is rewritten. What is written is merged with what is there by the rules of the table, so it is checked that the
merge gives the row that was asked for: a column of sums cannot be set by adding to it, a null says nothing in a
partial-update table, and a row that is older by its sequence field loses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.merge.deduplicate import Deduplicate
from merganser.merge.engine import Kinds
from merganser.merge.groups import Mask, Positions
from merganser.merge.images import Fate
from merganser.merge.partial_update import PartialUpdate
from merganser.merge.rules import merge_of
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.rules.compacting import publishes_each_record
from merganser.scan.rows import counted, joined
from merganser.schema import row_kind
from merganser.schema.arrow import arrow_type
from merganser.schema.hidden import nulls
from merganser.schema.pieces import rows_at
from merganser.schema.same import same_rows
from merganser.values import dataclass
from merganser.write.incoming import Prepared, accepted

_REMOVING: Final = {
    "partial-update": "'partial-update.remove-record-on-delete', or 'partial-update.remove-record-on-sequence-group'",
    "aggregation": "'aggregation.remove-record-on-delete'",
}


class Takes(Protocol):
    """What takes rows to write: a session, or the writer of a task."""

    def put(self, rows: Prepared) -> None:
        """Take rows that were checked."""


class Taken:
    """Holds rows until they are written.

    Attributes:
        rows: what was taken.
    """

    def __init__(self) -> None:
        self.rows: list[Prepared] = []

    def put(self, rows: Prepared) -> None:
        """Take rows that were checked."""
        self.rows.append(rows)


def deletes_in_files(table: TableDef) -> bool:
    """Return whether a delete takes rows out of the files of a table with a key, since no row of kind -D removes them.

    Not if the table publishes its changes: a stream would never learn of the rows.
    """
    options = table.options
    if not table.keyed or options.get(w.MERGE_ENGINE) not in _REMOVING or _has_rule(table):
        return False
    return options.get(w.CHANGELOG_PRODUCER) == "none" and not options.get(w.DELETE_FORCE_PRODUCE_CHANGELOG)


def _has_rule(table: TableDef) -> bool:
    """Return whether a row of kind -D removes the row of its key."""
    options = table.options
    rules = {
        "deduplicate": True,
        "partial-update": options.get(w.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE)
        or bool(options.get(w.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP)),
        "aggregation": options.get(w.AGGREGATION_REMOVE_RECORD_ON_DELETE) or table.counting,
        "first-row": False,
    }
    return bool(rules[options.get(w.MERGE_ENGINE)])


def check_can_delete(table: TableDef, action: str, *, by_files: bool = False) -> None:
    """Refuse deletes that the merge engine of a table has no rule for.

    Args:
        by_files: the delete can take rows out of files, if `deletes_in_files` says that it has to.

    Raises:
        InvalidInputError: names the engine and why; nothing was written.
    """
    options = table.options
    if options.get(w.DELETES) == "refuse":
        _refuse(table, action, f"its option '{w.DELETES.key}' is 'refuse'.")
    if not table.keyed or (by_files and deletes_in_files(table)):
        return
    if options.get(w.IGNORE_DELETE):
        _refuse(table, action, f"its option '{w.IGNORE_DELETE.key}' drops every delete.")
    engine = options.get(w.MERGE_ENGINE)
    if _has_rule(table):
        return
    why = f"merge engine {engine} has no rule by which a row of kind -D removes a row"
    if engine not in _REMOVING:
        _refuse(table, action, f"{why}.")
    if not by_files:
        advice = f"To delete rows, call `delete`, or set {_REMOVING[engine]} in a new table."
    else:
        why += ", and files that are written without the row publish no change"
        advice = f"To delete rows, set {_REMOVING[engine]} in a new table."
    _refuse(table, action, f"{why}. {advice}")


def takes_deletes(table: TableDef) -> bool:
    """Return whether a row of kind -D removes the row of its key from a table with a key."""
    return _has_rule(table) and not table.options.get(w.IGNORE_DELETE)


def check_can_erase(table: TableDef, action: str) -> None:
    """Refuse to erase rows of a table that refuses deletes. No merge engine needs a rule: files are written again.

    Raises:
        InvalidInputError: names the option; nothing was written.
    """
    if table.options.get(w.DELETES) == "refuse":
        _refuse(table, action, f"its option '{w.DELETES.key}' is 'refuse'.")


def check_can_update(table: TableDef, action: str) -> None:
    """Refuse updates of tables whose merge engine does not take the newest value of a column.

    Raises:
        InvalidInputError: names the engine and why; nothing was written.
    """
    engine = table.options.get(w.MERGE_ENGINE)
    if not table.keyed or table.counting or engine in ("deduplicate", "partial-update"):
        return
    why = {
        "aggregation": "merge engine aggregation adds new values to those that are there. Write rows that change the "
        "aggregates.",
        "first-row": "merge engine first-row keeps the row of a key that came first.",
    }
    _refuse(table, action, why[engine])


def _refuse(table: TableDef, action: str, why: str) -> None:
    raise InvalidInputError(f"{action}: {why} Nothing was written.", table=table.name)


@dataclass
class RowChanges:
    """Writes changes of rows. Each row is changed at most once.

    Attributes:
        inserted, updated, deleted: how many rows were changed so far.
    """

    table: TableDef
    out: Takes
    action: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __post_init__(self) -> None:
        options = self.table.options
        self._stored = None if self.table.counting else merge_of(self.table)
        # As a row of its own, what an input changelog is to publish: the rows as they came are all it has.
        self._pairs = self.table.counting or (
            options.get(w.CHANGELOG_PRODUCER) == "input"
            and not publishes_each_record(options)
            and options.get(w.MERGE_ENGINE) == "deduplicate"
            and not options.get(w.IGNORE_UPDATE_BEFORE)
        )

    def insert(self, rows: pa.Table, removed: Callable[[pa.Table], tuple[Positions, pa.Table]] | None = None) -> None:
        """Write rows that are not there.

        Args:
            removed: looks up the stored deletes of n keys: which keys have one, int64[k], and k whole rows. A row that
                is older than the delete of its key would stay deleted. None: there are no deletes.

        Raises:
            InvalidInputError: a row would not be there; nothing was written.
        """
        self.inserted += rows.num_rows
        if removed is not None and not self._is_plain:
            which, olds = removed(rows.select(list(self.table.row_key)))
            if len(which):
                news = rows_at(rows, which)
                there, _ = self._merged(olds, news, row_kind.inserts(len(which)).to_numpy(), row_kind.DELETE)
                if not there.all():
                    raise self._lost(
                        news, there, "a delete of the key is stored, which counts against rows that come late"
                    )
        self._put(rows, None)

    def delete(self, rows: pa.Table) -> None:
        """Remove rows that are there."""
        self.deleted += rows.num_rows
        kinds = np.full(rows.num_rows, row_kind.DELETE, np.int8)
        if not self._is_plain:
            stays, _ = self._merged(rows, rows, kinds)
            if stays.any():
                raise self._lost(rows, ~stays)
        self._put(rows, kinds)

    def update(self, olds: pa.Table, news: pa.Table, sets: Collection[str]) -> None:
        """Replace rows that are there; those that stay the same are left alone.

        Args:
            olds, news: n rows each, of the same keys in the same order.
            sets: the columns that the update sets; all others are the same.
        """
        changed = ~same_rows(olds, news)
        if not changed.all():
            olds, news = olds.filter(pa.array(changed)), news.filter(pa.array(changed))
        if not news.num_rows:
            return
        self.updated += news.num_rows
        kinds = np.full(news.num_rows, row_kind.UPDATE_AFTER, np.int8)
        written = news if self._is_plain else self._reaching(olds, news, kinds, sets)
        if self._pairs:
            every = np.ones(news.num_rows, np.bool_)
            order, kinds = Fate(~every, every, ~every).interleaved()
            self._put(rows_at(joined([olds, news]), order), kinds)
            return
        self._put(written, kinds)

    @property
    def _is_plain(self) -> bool:
        """Whether the row that comes last is the row, whatever it holds."""
        merge = self._stored
        return merge is None or (isinstance(merge.engine, Deduplicate) and merge.order is None)

    def _put(self, rows: pa.Table, kinds: Kinds | None) -> None:
        if not rows.num_rows:
            return
        given = None if kinds is None else pa.array(kinds)
        if self.table.counting:
            self.out.put(accepted(self.table, rows, given, None, action=self.action))
        else:
            self.out.put((rows, given, None))

    def _reaching(self, olds: pa.Table, news: pa.Table, kinds: Kinds, sets: Collection[str]) -> pa.Table:
        """Return rows to write such that the merge with the old rows gives the new ones.

        Raises:
            InvalidInputError: there are none.
        """
        tried = [news]
        assert self._stored is not None
        if isinstance(self._stored.engine, PartialUpdate):
            tried.append(self._fewest(news, self._stored.engine, sets))
        fine = np.ones(0, np.bool_)
        for rows in tried:
            fine, merged = self._merged(olds, rows, kinds)
            fine[fine] = same_rows(merged, news.filter(pa.array(fine)))
            if fine.all():
                return rows
        raise self._lost(news, fine)

    def _reasons(self) -> list[str]:
        assert self._stored is not None
        reasons = []
        if self._stored.order is not None:
            reasons.append(f"a row that is older by 'sequence.field' = {', '.join(self._stored.order.columns)} loses")
        if isinstance(self._stored.engine, PartialUpdate):
            reasons.append("merge engine partial-update keeps a value where the new one is null")
            if self._stored.engine.groups:
                reasons.append("a sequence group takes no row whose ordering columns are null, and adds to aggregates")
        return reasons

    def _lost(self, rows: pa.Table, fine: Mask, *before: str) -> InvalidInputError:
        first = int(np.flatnonzero(~fine)[0])
        key = ", ".join(f"{name} = {rows.column(name)[first].as_py()!r:.60}" for name in self.table.row_key)
        return InvalidInputError(
            f"{self.action}: {counted(int((~fine).sum()), 'row')} of {len(fine):,} would not become what is asked for "
            f"(first: {key}): {'; '.join((*before, *self._reasons()))}. Nothing was written.",
            table=self.table.name,
        )

    def _fewest(self, news: pa.Table, engine: PartialUpdate, sets: Collection[str]) -> pa.Table:
        """Return rows that leave null what stays as it is: values of functions would else be taken in twice."""
        needed = {*self.table.row_key, *sets}
        needed |= {field.name for field in self.table.schema.fields if not field.type.nullable}
        for group in engine.groups:
            if not set(group.columns).isdisjoint(sets):
                needed |= {*group.ordering, *(name for name in group.protected if name not in group.functions)}
        if self._stored is not None and self._stored.order is not None:
            needed |= set(self._stored.order.columns)
        columns = [
            news.column(field.name)
            if field.name in needed
            else pa.chunked_array([nulls(news.num_rows, arrow_type(field.type))])
            for field in self.table.schema.fields
        ]
        return pa.Table.from_arrays(columns, schema=news.schema)

    def _merged(
        self, olds: pa.Table, written: pa.Table, kinds: Kinds, old_kind: int = row_kind.INSERT
    ) -> tuple[Mask, pa.Table]:
        """Return which of n keys have a row once written rows are merged with the old ones, and these rows in order."""
        assert self._stored is not None
        table, count = self.table, olds.num_rows
        names = [field.name for field in table.schema.fields]
        incoming = merge_of(table, stored=False)
        keys = [written.column(name) for name in table.row_key]
        flushed = incoming.fold(written, incoming.groups(written, keys, kinds), kinds, names)
        rows = joined([olds, flushed.table()])
        new_kinds = np.zeros(count, np.int8) if flushed.kinds is None else flushed.kinds
        every = np.concatenate([np.full(count, old_kind, np.int8), new_kinds])
        keys = [rows.column(name) for name in table.row_key]
        groups = self._stored.groups(rows, keys, every)
        old = np.minimum.reduceat(groups.positions, groups.starts)  # old rows come before new ones in `rows`
        folded = self._stored.fold(rows, groups, every, names)
        place = np.full(count, -1, np.int64)
        shown = np.ones(len(old), np.bool_) if folded.kinds is None else (folded.kinds & 1) == 0
        place[old[shown]] = np.flatnonzero(shown)
        there = place >= 0
        return there, rows_at(folded.table(), place[there])
