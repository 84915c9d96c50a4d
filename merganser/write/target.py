"""WriteTarget: what one write puts where. Checks a call against its table, before any row is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import arrow_to_stored, serialize
from merganser.commit.message import CommitMessage
from merganser.errors import InvalidInputError, a_type, check_flags
from merganser.files.layout import value_limits
from merganser.ingest.rows import split_kinds
from merganser.meta.table_def import TableDef
from merganser.meta.tracking import UNTRACKED_FILE, untracked_of
from merganser.options import write as w
from merganser.options.registry import did_you_mean
from merganser.rules.checks import check_partitions_off
from merganser.rules.compacting import publishes_by_compaction
from merganser.rules.dialects import keeps_other_columns
from merganser.rules.gaps import check_can_write
from merganser.schema.arrow import arrow_type
from merganser.schema.conform import conform, fill_missing
from merganser.schema.types import DataType, Double, Float
from merganser.write import overwrite as ow
from merganser.write.incoming import Arrival, Prepared, accepted, deletes_among


class WriteTarget:
    """The target of a write: checks a call against its table before it takes any row.

    Args:
        columns: the columns supplied; None: all.
        overwrite: a static spec, "dynamic", or None to append.
        changes: publish what changes, where the table tracks it.
        streams: the write goes on, commit after commit; its rows wait for their buckets where the table postpones them.
        action: beginning of messages; None: that the table cannot be written to.

    Raises:
        InvalidInputError: a spec or column that the table does not have.
        UnsupportedError: the table asks for something this version does not write.
    """

    def __init__(
        self,
        table: TableDef,
        *,
        columns: Sequence[str] | None = None,
        overwrite: Mapping[str, Any] | str | None = None,
        changes: bool = True,
        streams: bool = False,
        action: str | None = None,
    ) -> None:
        check_can_write(replace(table.schema, options=table.options), name=table.name)
        self.table = table
        self.action = action or f"cannot write to '{table.name}'"
        check_flags(self.action, changes=changes)
        self._changes = changes
        self.postpones = table.postpones and (streams or not table.options.get(w.POSTPONE_BATCH_WRITE_FIXED_BUCKET))
        check_partitions_off(replace(table.schema, options=table.options), what=self.action)
        self.columns = self._checked_columns(columns)
        if action is None and overwrite is None:
            self._check_columns_can_be_left_out()
        self.dynamic = False
        self.spec: dict[str, Any] | None = None
        if isinstance(overwrite, str):
            if overwrite != "dynamic":
                raise InvalidInputError(
                    f"{self.action}: overwrite is '{overwrite}'. Give \"dynamic\", a partition such as "
                    f"{{'dt': '2026-01-01'}}, or {{}} for the table."
                )
            self.dynamic = True
        elif isinstance(overwrite, Mapping):
            self.spec = self.stored_spec(overwrite, whole=" overwrite={} replaces it.")
            for name, value in self.spec.items():
                if value is None and not table.schema.field(name).type.nullable:
                    raise InvalidInputError(
                        f"{self.action}: overwrite names the partition of '{name}' = None, and the column is NOT NULL, "
                        "so no row can be there. Nothing was written. Give a value, or {} for the whole table.",
                        column=name,
                    )
        elif overwrite is not None:
            raise InvalidInputError(
                f'{self.action}: overwrite is {a_type(overwrite)}. Give "dynamic", a partition such as '
                f"{{'dt': '2026-01-01'}}, or {{}} for the table."
            )

        if table.moves_keys and (self.dynamic or self.spec):
            raise InvalidInputError(
                f"{self.action}: overwrite is {overwrite!r:.80}, and keys of this table may lie in other partitions. "
                "Nothing was written. Give {} to replace the whole table, or delete the rows of the partition and "
                "write the new ones.",
                table=table.name,
            )

    def untracked(self, partitions: Collection[bytes]) -> frozenset[bytes]:
        """Return those of some serialized partitions whose changes a commit does not publish."""
        return untracked_of(self.table, partitions) if self._changes else frozenset(partitions)

    def publishes(self, partition: bytes) -> bool:
        """Return whether a changelog of the rows of a serialized partition is written; an overwrite has none."""
        return not self.overwrites and not self.untracked((partition,))

    def mark(self, partition: bytes) -> str:
        """Return the part of the names of data files of a serialized partition that tells compactions of its rows."""
        left_out = publishes_by_compaction(self.table.options) and self.untracked((partition,))
        return UNTRACKED_FILE if left_out else ""

    @property
    def overwrites(self) -> bool:
        """Whether a commit replaces what is there."""
        return self.dynamic or self.spec is not None

    def accepted(
        self, rows: pa.Table, kinds: pa.Array | None, arrival: Arrival | None = None, *, in_task: bool = False
    ) -> Prepared:
        """Return the rows to write, checked: exactly the table's columns and types, and kinds that it takes.

        Args:
            rows: the columns supplied, in types that convert without loss.
            kinds: int8, one per row; None: all inserts.
            arrival: int64, orders the rows; None: by position.
            in_task: the rows are what one task was given, so their numbers say nothing to the user.

        Raises:
            InvalidInputError: names the column, the value, and the row: by its number, in a task by its key.
        """
        return accepted(self.table, self._conformed(rows, kinds, in_task), kinds, arrival, action=self.action)

    def accepted_part(self, rows: pa.Table, kinds: pa.Array | None) -> tuple[pa.Table, pa.Array | None]:
        """Return rows of the columns given and no others, checked as by `accepted`. A null stays null."""
        assert self.columns is not None
        self._check_given(rows)
        given = set(self.columns)
        fields = [replace(field, default=None) for field in self.table.schema.user_fields if field.name in given]
        rows = conform(
            rows,
            fields,
            action=self.action,
            not_null_names=self.table.schema.primary_keys,
            fills=self.table.options.get(w.MERGE_SCHEMA),
            limits=value_limits(self.table.options),
            placing=self.table.schema.placing_columns,
        )
        prepared = accepted(self.table, rows, kinds, None, action=self.action)
        return prepared[0], prepared[1]

    def check_names_and_types(self, schema: pa.Schema, kinds: Any) -> None:
        """Refuse names and types of columns that do not fit, as rows of them would be.

        Args:
            kinds: the column with the row kinds, not stored; None: there is none.

        Raises:
            InvalidInputError: names the column.
        """
        if kinds is not None and not isinstance(kinds, str):
            raise InvalidInputError(f"{self.action}: kinds is {a_type(kinds)}. On Spark it is the name of a column.")
        empty, texts = split_kinds(schema.empty_table(), kinds, table=self.table.name)
        self.accepted(empty, texts)
        there = set(empty.column_names)
        for field in self.table.schema.fields_with_defaults:
            if field.name not in there and not field.type.nullable and field.default is None:
                raise InvalidInputError(
                    f"{self.action}: the data lacks column '{field.name}', which is NOT NULL and has no default. "
                    "Nothing was written. Give this column too.",
                    column=field.name,
                )

    def _conformed(self, rows: pa.Table, kinds: pa.Array | None, in_task: bool) -> pa.Table:
        table, options = self.table, self.table.options
        fields = table.schema.fields_with_defaults
        if self.columns is not None:
            self._check_given(rows)
        if self.columns is not None or options.get(w.MERGE_SCHEMA):
            rows = fill_missing(rows, fields)
        rows = conform(
            rows,
            fields,
            action=self.action,
            not_null_names=() if options.get(w.PRIMARY_KEY_NULLABLE) else table.schema.primary_keys,
            deletes=deletes_among(table, rows, kinds),
            needed_by_deletes=options.get(w.SEQUENCE_FIELD),  # a null there is older than the row
            named_by=(table.schema.primary_keys or rows.column_names) if in_task else (),
            fills=options.get(w.MERGE_SCHEMA),
            limits=value_limits(options),
            placing=table.schema.placing_columns,
        )
        if self.spec:
            self._check_inside(rows)
        return rows

    def _check_given(self, rows: pa.Table) -> None:
        """Refuse rows that do not have exactly the columns given."""
        assert self.columns is not None
        found, given = set(rows.column_names), set(self.columns)
        extra = [name for name in rows.column_names if name not in given]
        lacking = [name for name in self.columns if name not in found]
        if extra or lacking:
            what = (
                f"column '{extra[0]}' is in the data but not"
                if extra
                else f"column '{lacking[0]}' is missing from the data but"
            )
            raise InvalidInputError(
                f"{self.action}: {what} among the columns given ({', '.join(self.columns)}).",
                column=(extra or lacking)[0],
            )

    def selection(self, messages: Sequence[CommitMessage]) -> ow.Selection | None:
        """Return which files a commit of these messages removes; None: it adds only."""
        if self.dynamic:
            return ow.of_partitions([message.partition for message in messages]) if messages else None
        return None if self.spec is None else ow.of_spec(self.table, self.spec)

    def stored_spec(self, spec: Mapping[str, Any], whole: str = "", action: str | None = None) -> dict[str, Any]:
        """Return a partition spec with stored values.

        Args:
            spec: values by the names of partition columns. Text stands for a value of any type, as in the names of
                directories and in SQL.
            action: the beginning of messages; None: that of the target.
            whole: how all of a table without partitions is named instead, as the end of a message.

        Raises:
            InvalidInputError: a name that is no partition column, or a value that is not of its type.
        """
        action, names = action or self.action, self.table.schema.partition_keys
        out = {}
        if not isinstance(spec, Mapping):
            raise InvalidInputError(f"{action}: {spec!r:.60} is not a partition. Write one as {{'dt': '2026-01-01'}}.")
        for name, value in spec.items():
            if name not in names:
                hint = did_you_mean(str(name), list(names)) if names else f"The table has no partitions.{whole}"
                raise InvalidInputError(
                    f"{action}: '{name}' is not a partition column. {hint}",
                    column=name,
                )
            kind = self.table.schema.field(name).type
            try:
                given = pa.scalar(value)
                scalar = given.cast(arrow_type(kind))
                if isinstance(value, datetime) and not scalar.cast(given.type).equals(given):
                    raise ValueError("the cast loses the time of day, or digits of seconds")
                is_infinite = isinstance(kind, Float | Double) and scalar.is_valid and np.isinf(scalar.as_py())
                if is_infinite and any(map(str.isdigit, str(value))):
                    raise ValueError("the number is too large")
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InvalidInputError(
                    f"{action}: {value!r} is not a value of partition column '{name}' {kind}.", column=name
                ) from error
            out[name] = arrow_to_stored(scalar, kind)
        return out

    def _check_columns_can_be_left_out(self) -> None:
        given, names = self.columns, self.table.schema.shown.names
        if given is None or set(given) >= set(names) or not keeps_other_columns(self.table.options):
            return
        if self.table.options.get(w.MERGE_ENGINE) == "first-row":
            raise InvalidInputError(
                f"{self.action}: partial rows (columns {', '.join(given)}) cannot be written, since a first-row table "
                "keeps the row that came first as it is. Nothing was written. Give all columns.",
                table=self.table.name,
            )
        raise InvalidInputError(
            f"{self.action}: the table publishes what each row changes, and a row with some columns "
            f"({', '.join(given)}) leaves the others as they are. Nothing was written. Use Table.write or "
            "Table.upsert, which look up the rows before, or give all columns.",
            table=self.table.name,
        )

    def _checked_columns(self, columns: Sequence[str] | None) -> tuple[str, ...] | None:
        if columns is None:
            return None
        names = self.table.schema.shown.names
        brings = self.table.options.get(w.MERGE_SCHEMA)  # the rows say what they bring: then the table has it
        if isinstance(columns, str):
            raise InvalidInputError(
                f"{self.action}: columns must be a list of names, not the text '{columns}'. Write "
                f"columns=['{columns}']."
            )
        if not isinstance(columns, Iterable):
            raise InvalidInputError(
                f"{self.action}: columns must be a list of names, not {columns!r:.100}. Write columns=['id']."
            )
        for i, name in enumerate(columns):
            if name not in names and not (brings and isinstance(name, str)):
                raise InvalidInputError(
                    f"{self.action}: it has no column '{name}'. {did_you_mean(str(name), names)}", column=name
                )
            if name in columns[:i]:
                raise InvalidInputError(f"{self.action}: column '{name}' is named twice. Name it once.", column=name)
        for name in self.table.schema.shown.primary_keys:
            if name not in columns:
                raise InvalidInputError(
                    f"{self.action}: key column '{name}' is not among the columns given ({', '.join(columns)}). "
                    "Supply the whole key.",
                    column=name,
                )
        return tuple(columns)

    def _check_inside(self, rows: pa.Table) -> None:
        for name, value in (self.spec or {}).items():
            column = rows.column(name)
            row = first_outside(column, self.table.schema.field(name).type, value)
            if row is not None:
                raise InvalidInputError(
                    f"{self.action}: row {row + 1} (counting from 1) has {name} = '{column[row].as_py()}', outside "
                    "the partition that is overwritten. Nothing was written.",
                    column=name,
                    row=row,
                )


def first_outside(column: pa.Array | pa.ChunkedArray, kind: DataType, value: Any) -> int | None:
    """Return the position of the first row of a partition column that has another value than a stored one."""
    if not len(column):  # Arrow does not join codes of dates, times and decimals without rows
        return None
    wanted = serialize((value,), (kind,))  # as bytes, as partitions differ: NaN is one of them, and -0.0 is not 0.0
    codes = pc.dictionary_encode(column, null_encoding="encode")
    codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
    other = [
        code
        for code, scalar in enumerate(codes.dictionary)
        if serialize((arrow_to_stored(scalar, kind),), (kind,)) != wanted
    ]
    return min((pc.index(codes.indices, code).as_py() for code in other), default=None)
