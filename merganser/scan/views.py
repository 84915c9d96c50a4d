"""Views: tables beside a table whose rows are its own, read in another way. Each is a scan made of the table's scan.

| | rows |
|---|---|
| `ro` | with a key, what the last full compactions left: nothing is merged, and rows that came since do not show |
| `audit_log` | the row that is stored of each key with its kind in `rowkind`, retractions among them |

A retraction shows while it is stored: a compaction may drop it with the row that it took back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from merganser.errors import InvalidInputError
from merganser.expr.setting import Setting
from merganser.expr.text import to_predicate
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.scan.scan import Scan, chosen_columns
from merganser.scan.source import Compacted, Increment
from merganser.scan.split import What
from merganser.schema import types as t
from merganser.schema.table_schema import ROW_KIND, SEQUENCE_NUMBER


def view(name: str, scan: Scan, columns: Sequence[str] | None, where: str | Any | None, setting: Setting) -> Scan:
    """Return the scan of a view.

    Args:
        name: of `VIEWS`.
        scan: of the table, all columns and rows.
        columns: names of the view's columns, in the order wanted; None: all.
        where: rows to return, by columns of the view.
        setting: what texts mean besides their words.

    Raises:
        InvalidInputError: a column or filter that has no meaning.
    """
    made, fields = VIEWS[name](scan)
    predicate = to_predicate(where, fields, setting=setting)
    return replace(made, columns=chosen_columns(scan.table, columns, fields), where=predicate)


def _read_optimized(scan: Scan) -> tuple[Scan, tuple[t.Field, ...]]:
    if isinstance(scan.source, Increment):
        raise InvalidInputError(
            f"cannot read the changes of '{scan.table.name}$ro': changes are those of the table. Nothing was read. "
            f"Read '{scan.table.name}', or '{scan.table.name}$audit_log', which shows kinds."
        )
    source = scan.source if isinstance(scan.source, Compacted) else Compacted(scan.source)
    return replace(scan, source=source), scan.table.schema.user_fields


def _audit_log(scan: Scan) -> tuple[Scan, tuple[t.Field, ...]]:
    return replace(scan, what=What.STORED), (ROW_KIND, *_numbers(scan.table), *scan.table.schema.user_fields)


def _numbers(table: TableDef) -> tuple[t.Field, ...]:
    return (SEQUENCE_NUMBER,) if table.keyed and table.options.get(r.SEQUENCE_NUMBER_READ) else ()


VIEWS: Final[dict[str, Callable[[Scan], tuple[Scan, tuple[t.Field, ...]]]]] = {
    "ro": _read_optimized,
    "audit_log": _audit_log,
}
"""The views, by what stands after the `$`: from the scan of a table to that of the view, and all its columns."""
