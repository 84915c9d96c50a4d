"""Views: tables beside a table whose rows are its own, read in another way. Each is a scan made of the table's scan.

| | rows |
|---|---|
| `ro` | with a key, what the last full compactions left: nothing is merged, and rows that came since do not show |
| `audit_log` | the row that is stored of each key with its kind in `rowkind`, retractions among them |
| `binlog` | the same, each column as an ARRAY; of changes, the rows before and after an update lie in one row |
| `changelog` | what all snapshots that are kept have published, with offsets, as Fluss shows it |

A retraction shows while it is stored: a compaction may drop it with the row that it took back. If the scan is one of
changes, `audit_log` and `binlog` show these. With `binlog.columns` = `fluss`, `binlog` shows what `changelog` does,
with the rows before and after in one row. `scan.forms` has the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from merganser.errors import InvalidInputError
from merganser.expr.filters import to_predicate
from merganser.expr.setting import Setting
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.scan.forms import WITH_OFFSETS, columns_of
from merganser.scan.overwrites import first_known
from merganser.scan.scan import Scan, chosen_columns
from merganser.scan.source import NOTHING_CHANGED, Compacted, Increment, Published, State
from merganser.scan.split import What
from merganser.schema import types as t


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
    what = form_of(name, scan.table)
    if what is None:
        made, fields = _read_optimized(scan), scan.table.schema.user_fields
    else:
        made, fields = replace(scan, what=what), checked_columns(what, scan.table)
        if what in WITH_OFFSETS:
            made = replace(made, source=_kept(name, scan))
    predicate = to_predicate(where, fields, setting=setting)
    return replace(made, columns=chosen_columns(scan.table, columns, fields), where=predicate)


def form_of(name: str, table: TableDef) -> What | None:
    """Return the form in which a view shows changes; None: it shows none."""
    match name:
        case "audit_log":
            return What.STORED
        case "binlog":
            return What.PAIRED if table.options.get(r.BINLOG_COLUMNS) == "fluss" else What.PACKED
        case "changelog":
            return What.LOGGED
    return None


def checked_columns(what: What, table: TableDef) -> tuple[t.Field, ...]:
    """Return all columns of a form of changes.

    Raises:
        InvalidInputError: the table has a column of the name of one that the form adds.
    """
    fields = columns_of(what, table)
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInputError(
                f"cannot read the changes of '{table.name}' in this form: the table has a column '{name}', and the "
                "form adds one of this name. Rename the column, or read the table's '$audit_log'.",
                column=name,
            )
    return fields


def _kept(name: str, scan: Scan) -> Increment:
    """Return the changes that a log shows: those that the scan asks for, else all that are kept."""
    source, table = scan.source, scan.table
    if isinstance(source, Published) or source == NOTHING_CHANGED:
        return source
    if source != State():
        raise InvalidInputError(
            f"cannot read an older state of '{table.name}${name}': it holds changes, not a state. Nothing was read. "
            "Select changes with 'incremental-between' or 'incremental-between-timestamp'."
        )
    earliest = SnapshotStore(table.paths, scan.env, table.name).earliest_id() or 1
    earliest = min([earliest, *ChangelogStore(table.paths, scan.env).ids()[:1]])
    return Published(first_known(table, scan.env, earliest), None)


def _read_optimized(scan: Scan) -> Scan:
    if isinstance(scan.source, Increment):
        raise InvalidInputError(
            f"cannot read the changes of '{scan.table.name}$ro': changes are those of the table. Nothing was read. "
            f"Read '{scan.table.name}', or '{scan.table.name}$audit_log', which shows kinds."
        )
    source = scan.source if isinstance(scan.source, Compacted) else Compacted(scan.source)
    return replace(scan, source=source)


VIEWS: Final = ("ro", "audit_log", "binlog", "changelog")
"""The views: what stands after the `$`."""
