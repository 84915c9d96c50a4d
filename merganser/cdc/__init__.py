"""Change records of other systems -> rows with kinds for a table.

::

    envelopes        debezium      which records are changes, and where their images before and after lie
    changes          resolve       the rows of each change, with kinds; keys from message keys; values not sent

`merganser.parsing` finds the members of the records and makes their cells values of a type.

No step loops over records, and no step looks at a table: `parse_records` is a function of the batch, so a job on
another machine runs it on its part of a stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from merganser.cdc.options import check_names
from merganser.cdc.records import Parsed, Placing, parse_records
from merganser.options.registry import arguments_of
from merganser.schema.table_schema import TableSchema

__all__ = ["DEAD_LETTERS", "Parsed", "parse"]

DEAD_LETTERS: Final = {
    "table": "STRING",
    "position": "BIGINT",
    "reason": "STRING",
    "text": "BYTES",
    "key": "BYTES",
    "time": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
}
"""Columns of an append table for records that could not be read; see `Table.write_changes`."""


class _Table(Protocol):
    @property
    def schema(self) -> TableSchema: ...

    @property
    def primary_key(self) -> tuple[str, ...]: ...


def parse(records: Any, format: str, table: _Table, /, *, keys: Any = None, **options: Any) -> Parsed:
    """Return the rows with kinds that change records stand for. Nothing is written.

    Args:
        records: the values of the records as an Arrow array or a list, of text or bytes; null has no value.
        format: "debezium-json", "debezium-json-schema", "debezium-flat", "canal-json", "maxwell-json", "ogg-json" or
            "json".
        table: the table whose columns and primary key the rows get.
        keys: the message keys, one per record; they fill key columns that records lack.
        options: see `docs/cdc.md`.

    Raises:
        InvalidInputError: the format is unknown, or an option has no meaning; or, with bad="fail", a record is bad.
        UnsupportedError: the table has a column of a type that change records do not hold.
    """
    check_names(options, arguments_of(parse))
    key: Sequence[str] = table.primary_key
    placing = Placing.of(table.schema, table.schema.options)
    return parse_records(records, format, table.schema.fields, key, options, keys, placing)
