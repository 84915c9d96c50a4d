"""Tables that follow a database by its change records, and where they differ from it in the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import merganser as mg
from merganser.cdc.new_tables import table_told
from tests.debezium.recordings import Record, Source
from tests.debezium.values import Difference, Setting, declared, differences, reading, told

BATCH: Final = 60
"""Records of a call, so that a table has several commits and keys meet older rows."""
_TOAST_BYTES: Final = 2_000
"""Values of PostgreSQL that are larger may lie outside of their row."""
WHOLE_ROWS: Final = {"write-mode": "change-log", "bucket": "1"}
"""Options of a table without a primary key whose source sends whole old rows."""


def sendable(source: Source, setting: Setting) -> bool:
    """Return whether the records of a table say all that happened to it.

    A flattened update has no old row, and without a key that row cannot be found.
    """
    return bool(source.key) or not setting.flat


def declare(catalog: mg.Catalog, name: str, source: Source, setting: Setting, **options: str) -> mg.Table:
    """Create the table that a person declares for a table of the database."""
    columns = {
        column: declared(kind, setting) + (" NOT NULL" if column in source.required else "")
        for column, kind in source.columns.items()
    }
    options = {**({"bucket": "1"} if source.key else WHOLE_ROWS), **options}
    return catalog.create_table(name, columns, primary_key=source.key, options=options)


def make(catalog: mg.Catalog, name: str, source: Source, records: Sequence[Record], setting: Setting) -> mg.Table:
    """Create the table that the first records of a table tell, as `create=True` does."""
    first = next(record for record in records if record.table == source.topic and record.value is not None)
    told = table_told(setting.format, str(first.value), first.key)
    options = {
        "bucket": "1",
        "write.merge-schema": "true",
        "write.merge-schema.type-widening": "true",
    }  # for columns that the source adds or widens
    return catalog.create_table(name, dict(told.columns), told.key, options=options)


def apply(table: mg.Table, source: Source, records: Sequence[Record], setting: Setting, **options: Any) -> None:
    """Write the records of one table, some at a time."""
    own = [record for record in records if record.table == source.topic]
    for start in range(0, len(own), BATCH):
        part = own[start : start + BATCH]
        table.write_changes(
            [record.value for record in part],
            setting.format,
            keys=[record.key for record in part],
            **reading(source.columns, setting),
            **options,
        )


# where tables differ from the database, and why that is not theirs


def unexplained(
    source: Source,
    table: mg.Table,
    records: Sequence[Record],
    setting: Setting,
    defaults: Mapping[str, Mapping[str, str]],
) -> list[Difference]:
    """Return where a table differs from the database for another reason than what the connector does not send.

    Args:
        defaults: texts of the defaults of columns, by table and column.
    """
    every = differences(source.name, source.columns, source.key, source.rows, table, setting)
    found = [one for one in every if not _is_null_for_bytes(one, setting)]
    own = {
        column: told(text, source.columns[column], setting) for column, text in defaults.get(source.name, {}).items()
    }
    suspects = [one for one in found if one.column in own]
    if not suspects:
        return found
    sent = _columns_sent(source, records, setting)
    return [one for one in found if one.column not in own or not _is_default(one, own[one.column], sent, setting)]


def _is_null_for_bytes(one: Difference, setting: Setting) -> bool:
    """Return whether the connector sent null for large bytes that an update left alone: it does so in base64."""
    large = isinstance(one.expected, bytes) and len(one.expected) > _TOAST_BYTES
    return large and one.found is None and setting.binaries.startswith("base64")


def _is_default(one: Difference, default: Any, sent: Mapping[str, set[str]], setting: Setting) -> bool:
    """Return whether a difference comes of a column's default.

    Rows that were there when the column was added got its default, and no record says so. And a converter that
    replaces nulls sends the default where the database has NULL.
    """
    if (one.expected, one.found) == (default, None):
        return one.column not in sent[json.dumps(one.key)]
    return setting.replaces_nulls and (one.expected, one.found) == (None, default)


def _columns_sent(source: Source, records: Sequence[Record], setting: Setting) -> dict[str, set[str]]:
    """Return which columns the last record of each key has."""
    found = {}
    for row in _rows_sent(source, records, setting):
        found[json.dumps([row[column] for column in source.key])] = set(row)
    return found


def _rows_sent(source: Source, records: Sequence[Record], setting: Setting) -> Iterator[dict[str, Any]]:
    for record in records:
        if record.table == source.topic and record.value is not None:
            value = json.loads(record.value)
            payload = value["payload"] if setting.schemas else value
            row = payload if setting.flat else payload.get("after")
            if row is not None:
                yield row
