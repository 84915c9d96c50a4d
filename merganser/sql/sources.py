"""Tables as queries see them: names with hints and time travel -> what the query part reads."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from merganser.catalogs.definitions import View
from merganser.commit.conflict import Reads
from merganser.edit.matching import Matching
from merganser.errors import InvalidInputError, NotFoundError
from merganser.expr.predicate import Predicate, conjunction
from merganser.expr.setting import Setting
from merganser.expr.text import parse_predicate
from merganser.handle.system_table import CatalogTable, SystemTable
from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.options.option import Options
from merganser.options.read import SCAN_SNAPSHOT_ID, SCAN_TAG_NAME, SCAN_TIMESTAMP_MILLIS
from merganser.options.registry import did_you_mean
from merganser.rules.starts import starts_given
from merganser.scan.changes import Changes
from merganser.scan.scan import Scan
from merganser.scan.source import Above, Compacted, Difference, OfPartitions, Published
from merganser.scan.system_tables import OF_ONE_SNAPSHOT
from merganser.schema import types as t
from merganser.schema.arrow import fields_from_arrow
from merganser.sql.assigning import check_columns
from merganser.sql.literals import value_of
from merganser.sql.query import Source, Stored
from merganser.sql.state import State
from merganser.sql.trees import hinted
from merganser.sql.view_texts import tree_of

_TRAVEL: Final = ("scan.snapshot-id", "scan.tag-name", "scan.timestamp", "scan.timestamp-millis", "scan.mode")


FUNCTIONS: Final = {
    "paimon_incremental_query": "incremental-between",
    "paimon_incremental_between_timestamp": "incremental-between-timestamp",
    "paimon_incremental_to_auto_tag": "incremental-to-auto-tag",
}


class Sources:
    """The tables of one statement. All references to a table read the same snapshot.

    Args:
        into: the table that the statement changes; None: it is a query.
    """

    def __init__(self, state: State, into: Table | None = None) -> None:
        self.state = state
        self._into = into
        self._read: list[Reads] = []
        self._newest: dict[tuple[str, str], Snapshot | None] = {}
        self._references: Counter[tuple[str, str]] = Counter()

    def inside(self, state: State) -> Sources:
        """Return the same tables for the query of a view, whose names mean what a state of its own says."""
        made = copy.copy(self)
        made.state = state
        return made

    def source(self, node: exp.Table) -> Source | Stored:
        """Return what a reference to a table or view reads.

        Raises:
            NotFoundError: no such table, snapshot or tag.
            InvalidInputError: an option of a hint that does not exist.
        """
        handle, travel = self.found(node)
        if isinstance(handle, View):
            state = self.state.inside(handle.name)
            return Stored(
                handle.name,
                handle.fields,
                tree_of(state, handle),
                self.inside(state).source,
                partial(check_columns, handle),
            )
        return self.source_of(node, handle, travel)

    def source_of(self, node: exp.Table, handle: Any, travel: Mapping[str, Any]) -> Source:
        """Return what a reference reads, of which `found` has returned the table."""
        options = self.name_of(node)[1]
        keyed = isinstance(handle, Table) and bool(handle.primary_key) and not options
        return Source(
            name=handle.name,
            fields=fields_of(handle, travel),
            key=tuple(handle.primary_key) if isinstance(handle, Table) else (),
            open=lambda columns, where, limit: self.scan(handle, travel, columns, where, limit),
            lookup=(lambda keys, columns: self._looked_up(handle, keys, columns, travel)) if keyed else None,
        )

    def found(self, node: exp.Table) -> tuple[Any, Mapping[str, Any]]:
        """Return the table, view or system table of a reference, and the arguments of its read for time travel.

        Raises:
            NotFoundError, InvalidInputError: as for `source`.
        """
        name, options = self.name_of(node)
        handle = self.state.handle(name, {**self._session_options(name), **options})
        if isinstance(handle, View):
            _check_plain(handle, node, options)
            return handle, {}
        self._references[_place(handle)] += 1
        travel = self._travel(node, handle)
        if travel and (given := starts_given(Options(options))):
            raise InvalidInputError(
                f"cannot read '{handle.name}': its state is given twice, behind AS OF and by "
                f"'{given[0]}' in the hint. Nothing was read. Keep one."
            )
        return (_as_of(handle, travel), {}) if travel and isinstance(handle, SystemTable) else (handle, travel)

    def scan(
        self, handle: Any, travel: Mapping[str, Any], columns: Sequence[str] | None, where: Any, limit: int | None
    ) -> Any:
        """Return the scan of a reference."""
        if isinstance(handle, SystemTable) and self._references[_place(handle)] > 1:
            handle, where = self._at_newest(handle, where)
        scan = read(handle, columns, where, limit, travel, self.state.zone)
        if self._is_changed(handle) and not _is_past(scan):
            self._note_read(handle, where if isinstance(handle, Table) else None)
        return self._fixed(handle, scan)

    def reads(self) -> Reads | None:
        """Return what was read of the table that the statement changes, at its newest; None: nothing."""
        parts = tuple(self._read)
        if not parts:
            return None
        return replace(parts[0], covers=lambda entry: any(part.touched_by(entry) for part in parts))

    def _is_changed(self, handle: Any) -> bool:
        return self._into is not None and _place(handle) == _place(self._into)

    def _note_read(self, handle: Any, where: Predicate | None) -> None:
        """Note which rows of the table are read, all of the snapshot that the first reference has found.

        In a table without a key, rows go without a file that comes or goes.
        """
        table = base_of(handle)
        matching = Matching(table.definition, table.env, where, f"cannot read '{table.name}'")
        self._read.append(replace(matching.reads(self._newest_of(table)), marks=not table.primary_key))

    def _fixed(self, handle: Any, scan: Any) -> Any:
        """Return a scan of the newest state as it was at the first reference."""
        if not isinstance(scan, Scan | Changes) or _is_past(scan):
            return scan
        newest = self._newest_of(base_of(handle))
        return scan if newest is None else replace(scan, source=_until(scan.source, newest))

    def _at_newest(self, handle: SystemTable, where: Predicate | None) -> tuple[SystemTable, Predicate | None]:
        """Return a system table, and the filter of its rows, as it was at the snapshot that other references read."""
        newest = self._newest_of(handle.base)
        if newest is None or starts_given(handle.base.definition.options):
            return handle, where
        if handle.system_name == "snapshots":
            known = parse_predicate(f"snapshot_id <= {newest.id}", fields_of(handle, {}))
            return handle, known if where is None else conjunction([where, known])
        if handle.system_name not in OF_ONE_SNAPSHOT:
            return handle, where
        return replace(handle, base=handle.base.with_options({SCAN_SNAPSHOT_ID.key: str(newest.id)})), where

    def _looked_up(
        self, handle: Table, keys: pa.Table, columns: Sequence[str], travel: Mapping[str, Any]
    ) -> pa.Table | None:
        """Return the rows of keys; None if the table is read elsewhere too, since scans fix their snapshot."""
        if self._references[_place(handle)] > 1:
            return None
        if self._is_changed(handle) and not travel:
            self._note_read(handle, None)
        return handle.lookup(keys, columns=columns, **travel)

    def _newest_of(self, handle: Table) -> Snapshot | None:
        place = _place(handle)
        if place not in self._newest:
            self._newest[place] = handle.latest_snapshot()
        return self._newest[place]

    def name_of(self, node: exp.Table) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Return the parts of a name, and the options of its hint."""
        if isinstance(node.this, exp.Func):
            return self._function(node.this)
        parts = [part.name for part in node.parts]
        plain, options = hinted(parts[-1])
        return (*parts[:-1], plain), options

    def _function(self, call: exp.Func) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Return the table that a function such as `paimon_incremental_query('t', 1, 2)` reads, and the options."""
        name = call.name.lower() if isinstance(call, exp.Anonymous) else call.sql_name().lower()
        option = FUNCTIONS.get(name)
        if option is None:
            raise NotFoundError(f"there is no table function '{name}'. {did_you_mean(name, list(FUNCTIONS))}")
        what = f"cannot call {name}"
        values = [value_of(argument, Setting(), what) for argument in call.expressions]
        n = 2 if option == "incremental-to-auto-tag" else 3
        if len(values) != n or not isinstance(values[0], str):
            raise InvalidInputError(
                f"{what}: give the name of a table, and {'a tag' if n == 2 else 'a start and an end'}."
            )
        table = tuple(part.strip("`") for part in values[0].split("."))
        return table, {option: ",".join(str(value) for value in values[1:])}

    def _session_options(self, name: tuple[str, ...]) -> dict[str, str]:
        return self.state.read_options(name)

    def _travel(self, node: exp.Table, handle: Any) -> dict[str, Any]:
        version = node.args.get("version") or node.args.get("when")
        if version is None:
            return {}
        if isinstance(handle, CatalogTable):
            raise InvalidInputError(f"'{handle.name}' has no versions.")
        kind = str(version.this).upper()
        given = version.expression
        what = f"cannot read '{handle.name}'"
        setting = Setting(self.state.zone, self.state.catalog.env.now_ms())
        if "VERSION" in kind:
            value = given.name if isinstance(given, exp.Literal | exp.Column) else value_of(given, setting, what)
            text = str(value)
            base = handle if isinstance(handle, Table) else handle.base
            if any(tag.name == text for tag in base.tags.list()):
                return {"tag": text}
            if text.isdigit():
                return {"snapshot": int(text)}
            names = [tag.name for tag in base.tags.list()]
            raise InvalidInputError(
                f"{what}: there is no tag '{text}'. {did_you_mean(text, names) if names else 'The table has no tags.'}"
            )
        value = value_of(given, setting, what)
        zone = setting.tzinfo
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = datetime.fromtimestamp(value, UTC)
        elif isinstance(value, str) and value.strip().isdigit():
            value = datetime.fromtimestamp(int(value), UTC)
        elif isinstance(value, str):
            try:
                value = datetime.fromisoformat(value.strip())
            except ValueError as error:
                raise InvalidInputError(f"{what}: '{value}' is not a time. Write '2026-01-31 10:00:00'.") from error
        if isinstance(value, datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=zone)
        if not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=zone)
        return {"timestamp": value}


def base_of(handle: Any) -> Table:
    """Return the table of a table, view or system table; of a catalog table this one."""
    return handle if isinstance(handle, Table) else handle.base


def _as_of(handle: SystemTable, travel: Mapping[str, Any]) -> SystemTable:
    """Return a system table of an older state.

    Raises:
        InvalidInputError: the system table describes all snapshots, or what is there now.
    """
    if handle.system_name not in OF_ONE_SNAPSHOT:
        raise InvalidInputError(
            f"cannot read '{handle.name}' at a version or a time: it does not describe one snapshot. Nothing was read. "
            f"{', '.join(f'${name}' for name in sorted(OF_ONE_SNAPSHOT))} do. Filter this one with WHERE."
        )
    [(kind, value)] = travel.items()
    option = {"tag": SCAN_TAG_NAME, "snapshot": SCAN_SNAPSHOT_ID, "timestamp": SCAN_TIMESTAMP_MILLIS}[kind]
    text = str(math.floor(value.timestamp() * 1000) if kind == "timestamp" else value)
    return replace(handle, base=handle.base.with_options({option.key: text}))


def _check_plain(view: View, node: exp.Table, options: Mapping[str, str]) -> None:
    """Refuse time travel and hints of a view: they are those of tables.

    Raises:
        InvalidInputError: the reference has one of them.
    """
    for given, what in (
        (node.args.get("version") or node.args.get("when"), "at a version or a time"),
        (options, "with options"),
    ):
        if given:
            raise InvalidInputError(
                f"cannot read '{view.name}' {what}: it is a view. Write it behind a table of the query of the view, or "
                "read that table itself.",
                table=view.name,
            )


def _place(handle: Any) -> tuple[str, str]:
    table = base_of(handle)
    return table.path, table.definition.branch if isinstance(table, Table) else ""


def _is_past(scan: Any) -> bool:
    """Return whether a scan reads what later commits do not change: a snapshot, or changes that have an end."""
    match source := getattr(scan, "source", None):
        case Published():
            return source.last is not None
        case Difference():
            return True
    return source is not None and source.snapshot is not None


def _until(source: Any, newest: Snapshot) -> Any:
    """Return a source that ends with the newest snapshot, as one that ends with a given one."""
    if isinstance(source, Published):
        return source if source.first > newest.id else replace(source, last=newest.id)
    if isinstance(source, Compacted | OfPartitions | Above):
        return replace(source, of=_until(source.of, newest))
    return replace(source, snapshot=newest)


def fields_of(handle: Any, travel: Mapping[str, Any]) -> Sequence[t.Field]:
    """Return the columns of a table, a view or a system table."""
    if isinstance(handle, View):
        return handle.fields
    if isinstance(handle, Table) and not travel and not any(key in handle.options for key in _TRAVEL):
        return handle.schema.fields
    scan = read(handle, None, None, None, travel, "UTC")
    return scan.fields if hasattr(scan, "fields") else fields_from_arrow(scan.schema)


def read(
    handle: Any, columns: Sequence[str] | None, where: Any, limit: int | None, travel: Mapping[str, Any], zone: str
) -> Any:
    """Return the scan of a table, a view or a system table."""
    return handle.read(columns=columns, where=where, limit=limit, timezone=zone, **travel)
