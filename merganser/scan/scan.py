"""Scan: a lazy read of one table. Nothing is planned or read before a result is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from merganser.errors import InvalidInputError, NotFoundError
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import read as r
from merganser.options.registry import did_you_mean
from merganser.options.validate import check_can_read
from merganser.scan.plan import Plan, plan
from merganser.scan.read import read_split, without_columns
from merganser.scan.rows import BATCH_ROWS, Rows, counted
from merganser.scan.split import Split
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.predicate import Predicate
from merganser.storage.env import Env


@dataclass(frozen=True)
class Scan(Rows):
    """Rows of a snapshot: some columns, those that a filter lets through, at most `limit`.

    Attributes:
        table: the table, with the schema that is read with.
        columns: columns to return, in order.
        where: rows to return; None: all.
        snapshot: the snapshot; None: the newest whenever a result is asked for.
        limit: most rows to return; which ones is not defined.
    """

    table: TableDef
    env: Env
    columns: tuple[t.Field, ...]
    where: Predicate | None = None
    snapshot: Snapshot | None = None
    limit: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the result."""
        return arrow_schema(self.columns)

    def plan(self) -> Plan:
        """Return what will be read: one snapshot, fixed now.

        Raises:
            NotFoundError: the table is gone since it was opened.
            UnsupportedError: the table needs something this version cannot read rightly.
            FormatError: metadata is damaged or missing.
        """
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        state = reader.state(self.snapshot) if self.snapshot is not None else reader.latest()
        if state.snapshot is None and not SchemaStore(self.table.paths, self.env).ids():
            raise NotFoundError(
                f"cannot read '{self.table.name}': nothing is at '{self.table.path}' any more, so the table was "
                "dropped or renamed since it was opened. Open it again.",
                table=self.table.name,
            )
        newest = 0 if state.snapshot is None else state.snapshot.schema_id
        if newest > self.table.schema.id:  # the handle is older than the table; or the table lost its newest schema
            SchemaStore(self.table.paths, self.env).load(newest)
        found = plan(self.table, self.env, state, columns=self.columns, where=self.where)
        asked = replace(self.table.schema, options=self.table.options)
        check_can_read(asked, name=self.table.name, merge=any(not split.raw for split in found.splits))
        return found

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most 65,536 rows, as they are ready; memory stays bounded."""
        for table in self._limited(self._tables()):
            yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table. The order of rows is not defined."""
        if self.limit is not None:
            tables = list(self._limited(self._tables()))
        else:
            found = self.plan()
            parts = self.env.map(lambda split: list(read_split(found.job, split, self.env.storage)), found.splits)
            tables = [table for part in parts for table in part]
        schema = self.schema
        if not tables:
            return schema.empty_table()
        if not len(schema):
            return without_columns(sum(table.num_rows for table in tables))
        return pa.concat_tables([_with_schema(table, schema) for table in tables])

    def count(self) -> int:
        """Return the number of rows; from metadata alone where that is exact."""
        found = Scan(self.table, self.env, self._counted_columns(), self.where, self.snapshot).plan()
        known, rest = 0, []
        for split in found.splits:
            plain = split.raw and not self.table.counting
            if self.where is None and plain and all(not self.table.keyed or file.level > 0 for file in split.files):
                known += split.rows
            else:
                rest.append(split)
        read = self.env.map(
            lambda split: sum(table.num_rows for table in read_split(found.job, split, self.env.storage)), rest
        )
        total: int = known + sum(read)
        return total if self.limit is None else min(total, self.limit)

    def explain(self) -> str:
        """Return what the scan would read, and what was left out at each step."""
        found = self.plan()
        splits = found.splits
        lines = [
            f"table      {self.table.name}",
            f"snapshot   {found.snapshot.id if found.snapshot else 'none: the table is empty'}",
            f"columns    {', '.join(f.name for f in self.columns)}",
            f"filter     {self.where if self.where is not None else 'none'}",
            *(
                f"{'files' if i == 0 else '':<11}{count:>8,} {step}"
                for i, (step, count) in enumerate(found.counts.items())
            ),
            f"read       {sum(s.size_bytes for s in splits):,} bytes in "
            f"{counted(sum(len(s.files) for s in splits), 'file')}, {counted(sum(s.rows for s in splits), 'row')} "
            "stored",
            f"splits     {len(splits):,}: {sum(1 for s in splits if s.raw):,} read as they stand, "
            f"{sum(1 for s in splits if not s.raw):,} merged",
        ]
        if widest := max((len(section) for s in splits if not s.raw for section in s.sections), default=0):
            lines.append(f"merge      at most {counted(widest, 'file')} in one section")
        return "\n".join(lines)

    def __repr__(self) -> str:
        chosen = {
            "columns": list(self.schema.names) if self.columns != self.table.schema.fields else None,
            "where": None if self.where is None else str(self.where),
            "snapshot": None if self.snapshot is None else self.snapshot.id,
            "limit": self.limit,
        }
        given = "".join(f", {name}={value!r}" for name, value in chosen.items() if value is not None)
        return f"Scan({self.table.name!r}{given})"

    def _counted_columns(self) -> tuple[t.Field, ...]:
        """Return the fewest columns whose rows can be counted."""
        name = self.table.key[0] if self.table.keyed else None
        cheap = (
            [f for f in self.table.schema.fields if f.name == name]
            if name
            else [
                f
                for f in self.table.schema.fields
                if isinstance(f.type, t.TinyInt | t.SmallInt | t.Int | t.BigInt | t.Date | t.Boolean)
            ]
        )
        return tuple(cheap[:1]) or self.table.schema.fields[:1]

    def _tables(self) -> Iterator[pa.Table]:
        found = self.plan()
        schema = self.schema
        ordered = self.table.options.get(r.SCAN_PLAN_SORT_PARTITION)
        gather = self.env.gather if not ordered else _in_turn
        for table in gather(lambda split: read_split(found.job, split, self.env.storage), found.splits):
            yield _with_schema(table, schema)

    def _limited(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        if self.limit is None:
            yield from tables
            return
        left = self.limit
        if left <= 0:
            return
        for table in tables:
            yield table.slice(0, left)
            left -= table.num_rows
            if left <= 0:
                break


def _in_turn(read: Callable[[Split], Iterator[pa.Table]], splits: Sequence[Split]) -> Iterator[pa.Table]:
    for split in splits:
        yield from read(split)


def _with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table under the declared schema: the same columns, nullability as declared where it holds."""
    if not len(schema):
        return table
    fields = [
        f if f.nullable or not column.null_count else f.with_nullable(True)
        for f, column in zip(schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def chosen_columns(table: TableDef, names: Sequence[str] | None) -> tuple[t.Field, ...]:
    """Return the columns of names, in their order; None: all.

    Raises:
        InvalidInputError: a name that is not a column, or named twice.
    """
    if names is None:
        return table.schema.user_fields
    if isinstance(names, str):
        raise InvalidInputError(f"columns must be a list of names, not the text '{names}'. Write columns=['{names}'].")
    by_name = {field.name: field for field in table.schema.user_fields}
    for i, name in enumerate(names):
        if name not in by_name:
            hint = did_you_mean(str(name), list(by_name))
            raise InvalidInputError(
                f"cannot read '{table.name}': it has no column '{name}'.{' ' + hint if hint else ''}", column=name
            )
        if name in list(names)[:i]:
            raise InvalidInputError(f"cannot read '{table.name}': column '{name}' is named twice.", column=name)
    return tuple(by_name[name] for name in names)
