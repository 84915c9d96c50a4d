"""A table: columns and their history, options, partitions, and how it grew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from merganser.console.charts import line_chart
from merganser.console.history import Line
from merganser.console.page import Asked, Page, Paged, paged_rows
from merganser.console.pages.warehouse import figures
from merganser.console.schemas import column_changes, option_changes
from merganser.handle.table import Table
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.options import write as w
from merganser.options.registry import find_option
from merganser.options.secrets import shown
from merganser.schema.table_schema import TableSchema
from merganser.values import dataclass

_SORTS: Final = {
    "partition": "partition",
    "rows": "record_count",
    "size": "file_size_in_bytes",
    "files": "file_count",
    "newest": "last_update_time",
}
_SCHEMAS_SHOWN: Final = 50
_POINTS: Final = 200
"""Snapshots of the chart: evenly chosen ones of those that are kept."""


@dataclass(frozen=True)
class SchemaChange:
    """A schema, and what it changed of the one before."""

    schema: TableSchema
    time: datetime
    changes: tuple[str, ...]


def view(asked: Asked) -> Mapping[str, Any]:
    """Return what the page shows of the table."""
    table = asked.table
    newest = table.latest_snapshot()
    hidden = table.definition.unstored_client if table.options.get(w.LOG_SYSTEM) == "none" else {}
    options = shown({key: text for key, text in table.options.items() if key not in hidden})
    return {
        "table": table,
        "figures": figures(table, asked),
        "newest": newest,
        "options": [(key, value, _meaning(key)) for key, value in sorted(options.items())],
        "partitions": _partitions(asked, table, newest) if table.partition_by else None,
        "history": _history(table),
        "grown": None
        if newest is None
        else asked.known.get(_key("grown", table, newest), lambda: _grown(asked, table)),
    }


def _key(what: str, table: Table, snapshot: Snapshot) -> tuple[object, ...]:
    return (what, table.path, table.definition.branch, snapshot.id, snapshot.time_millis)


def _meaning(key: str) -> str:
    option = find_option(key)
    return "" if option is None else option.doc


def _partitions(asked: Asked, table: Table, newest: Snapshot | None) -> Paged:
    order = asked.choice("sort", ("-newest", *_SORTS, *(f"-{name}" for name in _SORTS)))
    if newest is None:
        return paged_rows(pa.table({"partition": pa.array([], pa.string())}), asked)
    found: pa.Table = asked.known.get(_key("partitions", table, newest), lambda: table.system("partitions").to_arrow())
    way = "descending" if order.startswith("-") else "ascending"
    page = paged_rows(found.sort_by([(_SORTS[order.removeprefix("-")], way), ("partition", "ascending")]), asked)
    return replace(page, lines=[line | {"partition": _named(table, line["partition"])} for line in page.lines])


def _named(table: Table, text: str) -> str:
    """Return the values of a partition with the names of their columns, if it is plain which is which."""
    values = text.removeprefix("{").removesuffix("}").split(", ")
    if len(values) != len(table.partition_by):
        return text
    return ", ".join(f"{name}={value}" for name, value in zip(table.partition_by, values, strict=True))


def _grown(asked: Asked, table: Table) -> Any:
    """Return the chart of rows over time, from snapshots that are spread over those that are kept."""
    line = Line(asked, table)
    ids = line.ids[::-1]
    step = max(1, len(ids) // _POINTS)
    chosen = sorted({*ids[::step], *ids[-1:]})
    points = [(each.commit_time, float(each.total_record_count or 0)) for each in line.snapshots(chosen)]
    return line_chart(points, title="Rows stored over time", unit="rows") if len(points) > 1 else None


def _history(table: Table) -> list[SchemaChange]:
    """Return the newest schemas, newest first, each with what it changed."""
    store = SchemaStore(table.definition.paths, table.env)
    schemas = [store.load(each).shown for each in store.ids()[-_SCHEMAS_SHOWN - 1 :]]
    told: list[tuple[TableSchema, tuple[str, ...]]] = (
        [(schemas[0], ("created",))] if schemas and schemas[0].id == 0 else []
    )
    told += [(after, _changes(before, after)) for before, after in pairwise(schemas)]
    return [
        SchemaChange(schema, datetime.fromtimestamp(schema.time_millis / 1000, UTC), tuple(changes))
        for schema, changes in reversed(told)
    ]


def _changes(before: TableSchema, after: TableSchema) -> tuple[str, ...]:
    texts = [text for _, text in column_changes(before, after)]
    for key, _, now in option_changes(before, after):
        texts.append(f"{key} was removed" if now is None else f"{key} = {now}")
    return tuple(texts) or ("nothing that is shown here",)


PAGE: Final = Page("table", "/t/{table}", view, title="Table", key="o")
