"""Upsert: rows are written by key, exactly and with knowledge of the rows that are there.

A round (`commit.turns.in_rounds`): look up the keys in the newest snapshot, rows that still wait for their compaction
included. Make the rows that the keys shall have. Write what differs, and commit. The commit fails if another commit
changed one of the buckets since that snapshot.

Docs: decision 0035.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from merganser.commit.conflict import Reads
from merganser.commit.turns import in_rounds
from merganser.edit.asked import lost, new_names
from merganser.edit.given import Given, given_rows
from merganser.edit.images import Upserted, upserted
from merganser.edit.matching import reads_of_keys
from merganser.edit.partial import Partial
from merganser.edit.rounds import check_columns
from merganser.errors import ConflictError, InvalidInputError, MerganserError, UnsupportedError
from merganser.ingest.rows import RowKinds, batches_of
from merganser.lookup.lookup import shared_lookup
from merganser.merge.deduplicate import Deduplicate
from merganser.merge.groups import Mask, Positions
from merganser.merge.rules import merge_of
from merganser.meta.followed import for_changing, for_writing, look
from merganser.meta.snapshot import COMPACT, Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.scan.images import Images
from merganser.scan.rows import joined
from merganser.schema import row_kind
from merganser.schema.arrow import arrow_schema
from merganser.schema.pieces import in_one, rows_at
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.buffer import SMALL_BYTES
from merganser.write.merge_schema import fields_for
from merganser.write.session import WriteSession
from merganser.write.target import WriteTarget
from merganser.write.transaction import checked_watermark

_Parts: TypeAlias = Sequence[tuple[pa.Table, pa.Array | None]]
"""Rows as they were given, and the kinds of each part (None: all inserts)."""

IF_EXISTS: Final = ("update", "keep")
"""What happens to a row whose key is there: it replaces the row, or it is left out."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Edit:
    """What a round writes.

    Attributes:
        rows: whole rows.
        kinds: int8 per row; None: all are inserts.
        after: the rows of the keys after the commit; None: only the table can tell.
        same: which keys have the same row as before, if `after` is known.
    """

    rows: pa.Table
    kinds: pa.Array | None
    after: Images | None = None
    same: Mask | None = None


class Upsert:
    """One call of `Table.upsert`; see there for its arguments and errors."""

    def __init__(
        self,
        table: TableDef,
        env: Env,
        *,
        columns: Sequence[str] | None,
        if_exists: str,
        commit_user: str | None,
        changes: bool = True,
        computed_from: Reads | None = None,
    ) -> None:
        self._action = f"cannot upsert into '{table.name}'"
        known = table
        seen = look(table, env)
        if table.options.get(w.MERGE_SCHEMA):  # rows say which columns they have
            table = for_writing(table, env, seen)
        else:
            names = table.schema.names if columns is None else columns
            table = for_changing(table, env, self._action, names, seen)
        self._table = table
        self._env = env
        if not table.keyed or table.counting:
            raise InvalidInputError(
                f"{self._action}: the table has no primary key, so no row replaces another one. Nothing was written. "
                "Use write.",
                table=table.name,
            )
        if if_exists not in IF_EXISTS:
            raise InvalidInputError(
                f"{self._action}: if_exists is {if_exists!r:.50}. Give one of {', '.join(map(repr, IF_EXISTS))}."
            )
        if table.moves_keys:
            raise UnsupportedError(
                f"{self._action}: a key of this table may lie in any partition, and upsert looks only where the row "
                "says. Nothing was written. Use write(): it moves keys as the merge engine says.",
                table=table.name,
            )
        self._older: TableSchema | None = None
        """The schema by which the caller takes rows for whole, if the table has got another one since."""
        if columns is None and table.schema.id != known.schema.id:
            columns, self._older = self._known_columns(known), known.schema
        self._session = WriteSession(table, env, commit_user=commit_user, changes=changes, seen=seen)
        self._session.computed_from = computed_from
        self._watermark: int | None = None
        self._keeps = if_exists == "keep"
        self._columns = columns
        if not table.options.get(w.MERGE_SCHEMA):
            self._aim(table)

    def _known_columns(self, known: TableDef) -> list[str] | None:
        """Return the columns that rows have which the caller takes for whole; None: all that there are.

        Args:
            known: the table as the caller opened it.

        Raises:
            ConflictError: rows would lose their values of newer columns.
        """
        table = self._table
        new = new_names(known.schema, table.schema)
        if not new:
            return None
        options = table.options
        merges = options.get(w.MERGE_ENGINE) != "deduplicate" or options.get(w.ROWKIND_FIELD) is not None
        fills = any(field.default is not None for field in known.schema.fields_with_defaults)  # nulls of whole rows
        if not merges and not fills:
            return list(known.schema.shown.names)
        raise lost(table.name, known.schema, table.schema, new, self._action)

    def _aim(self, table: TableDef) -> None:
        """Check the call against the table, as the rows can be written to it."""
        self._table = table
        self._target = WriteTarget(table, columns=self._columns, action=self._action)
        self._merge = merge_of(table, stored=False)
        given = self._target.columns
        self._is_partial = given is not None and set(given) != {field.name for field in table.schema.user_fields}
        if self._is_partial:
            self._check_can_be_partial()

    def _check_can_be_partial(self) -> None:
        columns = self._target.columns or ()
        for name in self._table.row_key:
            if name not in columns:
                raise InvalidInputError(
                    f"{self._action}: partition column '{name}' is not among the columns given ({', '.join(columns)}), "
                    "and a row is found in its partition. Nothing was written. Give this column too.",
                    column=name,
                )
        engine = self._table.options.get(w.MERGE_ENGINE)
        if engine != "deduplicate":
            raise InvalidInputError(
                f"{self._action}: merge engine {engine} merges the columns of a row by rules of its own, so columns "
                "cannot be given to upsert. Nothing was written. Use write(columns=...), or give upsert all columns.",
                table=self._table.name,
            )
        if self._table.options.get(w.ROWKIND_FIELD) is not None:
            raise InvalidInputError(
                f"{self._action}: 'rowkind.field' says that a column holds the kind of each row, so rows need all "
                "columns. Nothing was written. Give all columns.",
                table=self._table.name,
            )

    def run(self, data: Any, kinds: Any, identifier: int | None, watermark: int | datetime | None = None) -> Upserted:
        """Write rows as one commit."""
        self._watermark = checked_watermark(watermark, self._action)
        session = self._session
        with closing(session):
            given = self._given(data, kinds)
            if identifier is not None:
                done, snapshot = session.applied(identifier)
                if done:
                    return self._applied(given, snapshot)
            return in_rounds(
                self._table,
                self._env,
                lambda is_first: self._round(given, identifier, is_first=is_first),
                self._begin_anew,
            )

    def _begin_anew(self) -> None:
        self._session.begin_anew()
        self._aim(self._session.table)

    def _given(self, data: Any, kinds: Any) -> Given:
        """Return the rows of the call, checked.

        Raises:
            InvalidInputError: nothing was written.
        """
        of_rows = RowKinds(kinds, table=self._table.name)
        fields = fields_for(self._table, self._env, data)
        parts = [of_rows.split(batch, last=held) for batch, held in batches_of(data, fields)]
        of_rows.finish()
        parts = [part for part in parts if part[0].num_columns or part[0].num_rows]
        self._check_known(parts)
        if self._table.options.get(w.MERGE_SCHEMA):
            rows = self._columns_of([part for part, _ in parts])
            self._aim(self._session.take_columns_of(rows, lambda table: self._fitting(table, parts)))
        return self._checked(parts)

    def _check_known(self, parts: _Parts) -> None:
        """Refuse whole rows with columns that the table has got since it was opened.

        Raises:
            ConflictError: nothing was written.
        """
        new = () if self._older is None else new_names(self._older, self._table.schema)
        there = {name for part, _ in parts for name in part.column_names}
        given = [name for name in new if name in there]
        if self._older is not None and given:
            raise ConflictError(
                f"{self._action}: since it was opened with schema {self._older.id}, it got columns that the rows have: "
                f"{', '.join(given)} (schema {self._table.schema.id}). Nothing was written. Open the table again.",
                table=self._table.name,
            )

    def _columns_of(self, parts: Sequence[pa.Table]) -> pa.Schema:
        """Return the columns that some of the parts have."""
        schemas = [part.schema for part in parts] or [pa.schema([])]
        if len(schemas) == 1:
            return schemas[0]
        try:
            return pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise InvalidInputError(
                f"{self._action}: the parts of the rows have columns that do not go together ({error}). Nothing was "
                "written. Give values of one type."
            ) from error

    def _fitting(self, table: TableDef, parts: _Parts) -> Given:
        """Return the rows as `table` takes them, which is not made yet."""
        self._aim(table)
        return self._checked(parts)

    def _checked(self, parts: _Parts) -> Given:
        """Return the rows as the table takes them.

        Raises:
            InvalidInputError: they do not fit.
        """
        rows: list[pa.Table] = []
        row_kinds: list[pa.Array] = []
        for given, given_kinds in parts:
            part, part_kinds = self._accepted(given, given_kinds)
            rows.append(part)
            row_kinds.append(row_kind.inserts(part.num_rows) if part_kinds is None else part_kinds)
        fields = self._table.schema.user_fields
        if self._is_partial:
            fields = tuple(field for field in fields if field.name in (self._target.columns or ()))
        whole = in_one(pa.concat_tables(rows)) if rows else arrow_schema(fields).empty_table()
        whole_kinds = pa.concat_arrays(row_kinds) if row_kinds else row_kind.inserts(0)
        self._check_keys(whole)
        return self._grouped(whole, whole_kinds)

    def _accepted(self, rows: pa.Table, kinds: pa.Array | None) -> tuple[pa.Table, pa.Array | None]:
        if self._is_partial:
            return self._target.accepted_part(rows, kinds)
        prepared = self._target.accepted(rows, kinds)
        return prepared[0], prepared[1]

    def _check_keys(self, rows: pa.Table) -> None:
        """Refuse null keys: only tables with 'primary-key.nullable' have them, and no lookup finds them."""
        for name in self._table.schema.primary_keys:
            if rows.column(name).null_count:
                raise InvalidInputError(
                    f"{self._action}: key column '{name}' is null in {rows.column(name).null_count} of "
                    f"{rows.num_rows:,} rows, and rows with such keys are not found by key. Nothing was written. Use "
                    "write.",
                    column=name,
                )

    def _grouped(self, rows: pa.Table, kinds: pa.Array) -> Given:
        """Return rows by key, once what this call does not take is refused or left out."""
        found = kinds.to_numpy()
        retracts = (found & 1) == 1
        if not retracts.any():
            return given_rows(self._table, rows, None if not found.any() else kinds)
        row = int(np.flatnonzero(retracts)[0])
        if self._keeps:
            raise InvalidInputError(
                f"{self._action}: row {row + 1} (counting from 1) is of kind {row_kind.SYMBOLS[found[row]]}, and "
                "if_exists='keep' takes inserts only. Nothing was written. Leave such rows out.",
                row=row,
            )
        if not self._is_partial:
            return given_rows(self._table, rows, kinds)
        deletes = np.flatnonzero(found == row_kind.DELETE)
        if self._merge.order is not None and len(deletes):
            row = int(deletes[0])
            raise InvalidInputError(
                f"{self._action}: row {row + 1} (counting from 1) is of kind -D, and a table with "
                "'sequence.field' takes deletes as whole rows only. Nothing was written. Give all columns, or set "
                "columns to null by inserts.",
                row=row,
            )
        shown = found != row_kind.UPDATE_BEFORE  # the row after an update says it all
        if not shown.all():
            rows, kinds = rows.filter(pa.array(shown)), kinds.filter(pa.array(shown))
        given = given_rows(self._table, rows, kinds)
        self._partial(given).check_deletes()
        return given

    def _partial(self, given: Given) -> Partial:
        schema = self._table.schema
        return Partial(given, schema.fields_with_defaults, self._table.row_key, self._action)

    def _round(self, given: Given, identifier: int | None, *, is_first: bool) -> Upserted:
        """Make rows of those of the newest snapshot, and commit them.

        Raises:
            ConflictError: another commit changed the rows meanwhile, or gave new keys other buckets: `overtaken` says
                so; or the commit failed.
        """
        session = self._session
        if given.rows.nbytes <= SMALL_BYTES or not is_first:
            session.take_turn()
        lookup = shared_lookup(self._table, self._env, waiting=True, newest=session.known_state)
        snapshot, which, rows = lookup.rows_of(given.keys)
        check_columns(self._table, self._env, snapshot, self._action)
        before = Images.of(given.keys.num_rows, which, rows)
        edit = self._edit(given, before)
        reads = None
        if edit.rows.num_rows or identifier is not None:
            reads = reads_of_keys(self._table, snapshot, given.keys)
        if edit.rows.num_rows:
            session.put((edit.rows, edit.kinds, None), held=True)
        uuid = session.uuid
        made = session.commit(identifier, reads, self._watermark)
        if edit.rows.num_rows and (made is None or made.uuid != uuid):
            return self._applied(given, made)  # a twin of this call was faster
        if edit.after is not None:
            return upserted(made, before, edit.after, edit.same)
        return upserted(made, before, before if made is None else self._images_at(given, made))

    def _edit(self, given: Given, before: Images) -> _Edit:
        if self._keeps:
            return self._inserted(given, before)
        if isinstance(self._merge.engine, Deduplicate):
            return self._replaced(given, before)
        kinds = None if given.kinds is None else pa.array(given.kinds)
        return _Edit(given.rows, kinds)

    @property
    def _is_plain(self) -> bool:
        """Whether the last row of a key to arrive is its row."""
        return isinstance(self._merge.engine, Deduplicate) and self._merge.order is None

    def _inserted(self, given: Given, before: Images) -> _Edit:
        """Return the first row of each key that has none."""
        new = ~before.there
        if self._is_partial:
            _, whole = self._partial(given).after(before, given.first)
            rows = whole.filter(pa.array(new))
        else:
            rows = rows_at(given.rows, given.first[new])
        if not self._is_plain:
            return _Edit(rows, None)
        place = np.where(new, before.rows.num_rows + np.cumsum(new) - 1, before.place)
        return _Edit(rows, None, Images(place, joined([before.rows, rows])), ~new)

    def _replaced(self, given: Given, before: Images) -> _Edit:
        """Return, of the rows of each key, the one that counts, unless it changes nothing."""
        at = self._deciding(given, before)
        if self._is_partial:
            exists, rows = self._partial(given).after(before, at)
        else:
            rows = rows_at(given.rows, at)
            exists = np.ones(len(at), np.bool_) if given.kinds is None else (given.kinds[at] & 1) == 0
        after = Images(np.where(exists, np.arange(len(at)), -1), rows)
        same = before.same(after)
        # By an order of the user a delete counts against rows that come late, even if there was no row.
        written = ~same if self._is_plain else ~same | ~exists
        if not written.all():
            rows, exists = rows.filter(pa.array(written)), exists[written]
        kinds = None if exists.all() else pa.array(np.where(exists, row_kind.INSERT, row_kind.DELETE).astype(np.int8))
        return _Edit(rows, kinds, after, same) if self._is_plain else _Edit(rows, kinds)

    def _deciding(self, given: Given, before: Images) -> Positions:
        """Return int64[k], the row of each key that decides: the last to arrive, or the last by its sequence fields."""
        order = self._merge.order
        if order is None:
            return given.last
        groups = given.groups
        every = np.arange(given.rows.num_rows)
        if self._is_partial:
            key_of = np.empty(len(given.order), np.int64)
            key_of[given.order] = np.arange(len(given.order))
            group = np.empty(len(every), np.int64)
            group[groups.positions] = key_of[groups.group_of]
            ordered = self._partial(given).candidates(before, every, group, order.columns)
        else:
            ordered = given.rows.select(order.columns)
        keys = [given.rows.column(name) for name in self._table.row_key]
        return self._merge.groups(ordered, keys, given.kinds).last[given.order]

    def _applied(self, given: Given, snapshot: Snapshot | None) -> Upserted:
        """Return the result of an earlier call: the rows in its snapshot, and in the one before it."""
        if snapshot is None:
            return upserted(None, None, None)
        after = self._images_at(given, snapshot)
        before = None
        if snapshot.commit_kind != COMPACT:  # else the commit has expired, and its compaction has not
            before = self._images_before(given, snapshot, after)
        return upserted(snapshot, before, after)

    def _images_before(self, given: Given, snapshot: Snapshot, after: Images | None) -> Images | None:
        if snapshot.id == 1:
            nothing = np.full(given.keys.num_rows, -1, np.int64)
            return None if after is None else Images(nothing, after.rows.slice(0, 0))
        try:
            previous = SnapshotStore(self._table.paths, self._env, self._table.name).load(snapshot.id - 1)
        except MerganserError as error:
            _log.info("the snapshot before %d of '%s' cannot be read: %s", snapshot.id, self._table.name, error)
            return None
        return self._images_at(given, previous)

    def _images_at(self, given: Given, snapshot: Snapshot) -> Images | None:
        """Return the rows of a snapshot; None: they cannot be read. The commit stands, so that is no error."""
        try:
            _, which, rows = shared_lookup(self._table, self._env, waiting=True).rows_of(given.keys, snapshot)
        except MerganserError as error:
            _log.warning("rows of snapshot %d of '%s' cannot be read: %s", snapshot.id, self._table.name, error)
            return None
        return Images.of(given.keys.num_rows, which, rows)
