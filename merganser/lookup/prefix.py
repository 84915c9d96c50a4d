"""Lookups by the first columns of the key: all rows of them lie in one bucket."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.lookup.keys import check_has_key, key_rows
from merganser.meta.table_def import TableDef


def prefix_row(table: TableDef, prefix: Mapping[str, Any]) -> pa.Table:
    """Return a prefix as one row, in the types of the table.

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
    return key_rows(table, prefix, columns, action, "prefix")


def prefix_filter(prefix: pa.Table) -> pc.Expression | None:
    """Return a filter that no row of a prefix fails; None: every row passes.

    It takes 0.0 and -0.0 for one number, which as keys are two; see `has_prefix`.
    """
    values = [(name, prefix.column(name)[0]) for name in prefix.column_names]
    conditions = [pc.field(name) == value for name, value in values if value == value]  # NaN equals nothing
    return reduce(operator.and_, conditions) if conditions else None


def floats_of(prefix: pa.Table) -> list[str]:
    """Return the columns of a prefix that hold FLOAT or DOUBLE."""
    return [field.name for field in prefix.schema if pa.types.is_floating(field.type)]


def has_prefix(rows: pa.Table, prefix: pa.Table) -> npt.NDArray[np.bool_]:
    """Return bool[n], which rows have the numbers of a prefix, as keys are compared: NaN is NaN, and -0.0 is not 0.0.

    Args:
        rows: n rows with at least the columns that `floats_of` names.
    """
    same = np.ones(rows.num_rows, np.bool_)
    for name in floats_of(prefix):
        found, wanted = rows.column(name).to_numpy(), prefix.column(name)[0].as_py()
        if math.isnan(wanted):
            same &= np.isnan(found) & np.asarray(rows.column(name).is_valid())
        else:
            same &= (found == wanted) & (np.signbit(found) == np.signbit(wanted))
    return same
