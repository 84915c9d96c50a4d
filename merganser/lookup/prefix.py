"""Lookups by the first columns of the key: all rows of them lie in one bucket."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any

import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.lookup.keys import check_has_key, key_rows
from merganser.meta.table_def import TableDef


def prefix_filter(table: TableDef, prefix: Mapping[str, Any]) -> pc.Expression:
    """Return the filter for the rows of a prefix.

    Raises:
        InvalidInputError: the key of the table has no prefix that lies in one bucket; or `prefix` has other columns, a
            null, or a value of another type. Nothing was read.
    """
    action = f"cannot look up a prefix in '{table.name}'"
    check_has_key(table, action)
    names = tuple(table.schema.bucket_key)
    if len(table.key) == 1:
        raise InvalidInputError(
            f"{action}: in a partition, the key is the one column '{table.key[0]}', so it has no beginning. Nothing "
            "was read. Use lookup, or read(where=...).",
            table=table.name,
        )
    if table.bucket <= 0 or names != table.key[: len(names)] or len(names) == len(table.key):
        key = ", ".join(table.key)
        raise InvalidInputError(
            f"{action}: rows with the same prefix of the key ({key}) may lie in any bucket, because the bucket key is "
            f"({', '.join(names)}). Nothing was read. Create the table with 'bucket-key' = '{table.key[0]}', or use "
            "read(where=...).",
            table=table.name,
        )
    if not isinstance(prefix, Mapping):
        raise InvalidInputError(f"{action}: the prefix is {prefix!r:.80}. Give a dict, such as {{'{names[0]}': ...}}.")
    columns = (*table.schema.partition_keys, *names)
    rows = key_rows(table, prefix, columns, action)
    conditions = [pc.field(name) == rows.column(name)[0] for name in columns]
    return reduce(operator.and_, conditions)
