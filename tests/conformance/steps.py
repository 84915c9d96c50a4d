"""One step of a case -> one call of the public surface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import signature
from typing import Any, Final

import merganser as mg
from tests.conformance.column_types import UNKNOWN, Type
from tests.conformance.outcome import Skip, method, not_built
from tests.conformance.sql_text import condition, identifier, literal
from tests.conformance.values import arrow_table
from tests.conformance.world import TABLE, World

Step = Mapping[str, Any]
_USER: Final = "conformance"


def run_step(world: World, step: Step) -> None:
    """Run one step.

    Raises:
        Skip: merganser does not have what it needs yet.
        MerganserError: it was refused.
    """
    world.clock.set(step.get("commit_time"))
    world.clock.set(step.get("now"))
    _OPS[step["op"]](world, step)


def _write(world: World, step: Step) -> None:
    columns = step.get("columns")
    if columns is not None and world.fluss and not _keeps_other_columns(world):
        raise not_built("writing some columns leaves the others as they are (Fluss)")
    rows, kinds = _rows(world, step["rows"], columns)
    number = step.get("commit_identifier")
    world.door.write(
        world.table_for_writing(),
        rows,
        kinds,
        columns=columns,
        commit_user=None if number is None else _USER,
        identifier=number,
    )


def _keeps_other_columns(world: World) -> bool:
    """Return whether this version has writes that leave columns alone: with Fluss's options it has its rules."""
    return world.translation.per_record


def _compact(world: World, step: Step) -> None:
    partition = step.get("partition")
    world.door.compact(
        world.table(),
        full=bool(step.get("full", True)),
        partitions=None if partition is None else [world.spec(partition)],
    )


def _overwrite(world: World, step: Step) -> None:
    rows, kinds = _rows(world, step["rows"])
    world.door.write(world.table_for_writing(), rows, kinds, overwrite=_what_to_overwrite(world, step))


def _what_to_overwrite(world: World, step: Step) -> dict[str, Any] | str:
    table = world.table()
    if not table.partition_by:
        return {}
    dynamic = step.get("dynamic")
    if dynamic is None:
        dynamic = table.options.get("dynamic-partition-overwrite", "true").lower() == "true"
    return "dynamic" if dynamic else world.spec(step.get("partition", {}))


def _overwrite_select(world: World, step: Step) -> None:
    table = world.table()
    rows = table.read(where=condition(step["partition"], dict(world.columns()))).to_arrow()
    world.door.write(world.table_for_writing(), rows, ["+I"] * rows.num_rows, overwrite=world.spec(step["partition"]))


def _streaming_overwrite(world: World, step: Step) -> None:
    rows, kinds = _rows(world, step["rows"])
    world.door.write_streaming_overwrite(world.table(), rows, kinds)


def _truncate(world: World, step: Step) -> None:
    method(world.table(), "truncate")()


def _drop_partition(world: World, step: Step) -> None:
    specs = step["partitions"]
    given = [world.spec(spec) for spec in (specs if isinstance(specs, list) else [specs])]
    method(world.table(), "drop_partitions")(given)


def _delete(world: World, step: Step) -> None:
    method(world.table(), "delete")(condition(step.get("where", {}), dict(world.columns())))


def _update(world: World, step: Step) -> None:
    types = dict(world.columns())
    assignments = {name: literal(value, types.get(name)) for name, value in step["set"].items()}
    method(world.table(), "update")(condition(step.get("where", {}), types), assignments)


def _merge(world: World, step: Step) -> None:
    types = dict(world.columns())
    names = step["source_columns"]
    columns = [(name, types.get(name, UNKNOWN)) for name in names]
    on = " AND ".join(f"target.{identifier(name)} = source.{identifier(name)}" for name in step["on"])
    builder = method(world.table(), "merge")(arrow_table(step["source"], columns), on=on)
    for clause in step.get("when_matched", []):
        builder = _matched(builder, clause, names, types)
    for clause in step.get("when_not_matched", []):
        if clause["then"] != "insert":
            raise Skip(f"unknown clause 'when_not_matched {clause['then']}'")
        values = _taken(clause.get("set", [name for name in names if name in types]))
        builder = builder.when_not_matched_insert(values, condition=_clause_condition(clause, types))
    builder.execute()


def _matched(builder: Any, clause: Mapping[str, Any], names: list[str], types: Mapping[str, Type]) -> Any:
    test = _clause_condition(clause, types)
    match clause["then"]:
        case "delete":
            return builder.when_matched_delete(condition=test)
        case "update":
            return builder.when_matched_update(_taken(clause.get("set", names)), condition=test)
    raise Skip(f"unknown clause 'when_matched {clause['then']}'")


def _taken(names: list[str]) -> dict[str, str]:
    return {name: f"source.{identifier(name)}" for name in names}


def _clause_condition(clause: Mapping[str, Any], types: Mapping[str, Type]) -> str | None:
    return condition(clause["if"], types, prefix="source.") if clause.get("if") else None


def _alter(world: World, step: Step) -> None:
    alter = method(world.catalog, "alter_table")
    partition = world.spec(step["partition"]) if "partition" in step else None
    alter(TABLE, [change_of(mg.changes, change, partition) for change in step["changes"]])


def change_of(changes: Any, change: Mapping[str, Any], partition: Mapping[str, Any] | None = None) -> Any:
    """Return one schema change as `merganser.changes` makes it.

    Args:
        changes: that module.
        partition: the change concerns options of this partition only.
    """
    kind = str(change.get("type"))
    if kind not in _CHANGES:
        raise Skip(f"unknown change '{kind}'")
    name, known = _CHANGES[kind]
    for key in change:
        if key not in known and key not in ("type", "note"):
            raise Skip(f"unknown field '{key}' of change '{kind}'")
    make = method(changes, name, f"mg.changes.{name}")
    if partition is not None:
        if "partition" not in signature(make).parameters:
            raise not_built("options of single partitions")
        make = partial(make, partition=dict(partition))
    match kind:
        case "add_column":
            return make(change["name"], change["data_type"], **_place(change), **_given(change, "default", "comment"))
        case "rename_column":
            return make(change["from"], change["to"])
        case "move_column":
            return make(change["name"], **_place(change))
    return make(*(change[key] for key in known))


_CHANGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "add_column": ("add_column", ("name", "data_type", "position", "after", "first", "default", "comment")),
    "drop_column": ("drop_column", ("name",)),
    "rename_column": ("rename_column", ("from", "to")),
    "modify_type": ("retype_column", ("name", "data_type")),
    "set_option": ("set_option", ("key", "value")),
    "reset_option": ("remove_option", ("key",)),
    "set_nullable": ("set_nullable", ("name", "nullable")),
    "move_column": ("move_column", ("name", "position", "after", "first")),
    "set_default": ("set_default", ("name", "value")),
}
"""Type of a change -> its maker in `merganser.changes` and its fields, in the order of the maker's arguments."""


def _place(change: Mapping[str, Any]) -> dict[str, Any]:
    position = change.get("position")
    if isinstance(position, Mapping):
        change = position
    elif position == "first" or change.get("first"):
        return {"first": True}
    elif position not in (None, "last"):
        raise Skip(f"unknown position '{position}'")
    if change.get("after") is not None:
        return {"after": change["after"]}
    return {"first": True} if change.get("type") == "move_column" and position != "last" else {}


def _given(change: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: change[name] for name in names if name in change}


def _tag(world: World, step: Step) -> None:
    method(world.table(), "tags").create(step["name"], snapshot=step.get("snapshot"))


def _rollback(world: World, step: Step) -> None:
    method(world.table(), "rollback")(snapshot=step["snapshot"])


def _expire_snapshots(world: World, step: Step) -> None:
    now = world.clock() if world.clock.millis is not None else datetime.now(UTC)
    method(world.table(), "expire")(
        retain_max=step.get("retain_max"),
        retain_min=step.get("retain_min"),
        older_than=now - timedelta(milliseconds=step.get("time_retained_ms", 0)),
        max_deletes=step.get("max_deletes"),
    )


def _set_consumer(world: World, step: Step) -> None:
    method(world.table(), "consumers").set(step["consumer_id"], next_snapshot=step["next_snapshot"])


def _expire_partitions(world: World, step: Step) -> None:
    method(world.table(), "expire_partitions")()


def _rows(world: World, rows: list[Any], columns: list[str] | None = None) -> tuple[Any, list[str]]:
    """Return the rows of a step as Arrow, and their kinds."""
    for row in rows:
        if not isinstance(row, list) or not row or row[0] not in ("+I", "-U", "+U", "-D"):
            raise Skip(f"not a case: {row!r:.80} is no row with a kind")
    return arrow_table([row[1:] for row in rows], world.columns(columns)), [row[0] for row in rows]


_OPS: Final[Mapping[str, Callable[[World, Step], None]]] = {
    "write": _write,
    "compact": _compact,
    "overwrite": _overwrite,
    "overwrite_select": _overwrite_select,
    "streaming_overwrite": _streaming_overwrite,
    "truncate": _truncate,
    "drop_partition": _drop_partition,
    "delete": _delete,
    "update": _update,
    "merge": _merge,
    "alter": _alter,
    "tag": _tag,
    "rollback": _rollback,
    "expire_snapshots": _expire_snapshots,
    "set_consumer": _set_consumer,
    "expire_partitions": _expire_partitions,
}
