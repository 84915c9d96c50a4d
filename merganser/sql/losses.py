"""What a statement takes away: tables, rows, snapshots and files, for the question that a shell asks before it runs.

Nothing is changed. Procedures that expire are run with `dry_run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from merganser.codec.binary_row import deserialize
from merganser.errors import MerganserError
from merganser.handle.table import Table
from merganser.meta.table_state import MetaReader
from merganser.scan.rows import counted
from merganser.sql import statements as s
from merganser.sql.engine import Engine
from merganser.sql.literals import spelled_spec
from merganser.sql.procedures import Given, asked, rollback_target, table_named
from merganser.sql.state import State


def loss(state: State, engine: Engine, statement: s.Statement) -> str | None:
    """Return what a statement would take away, as a sentence; None if it takes nothing, or would fail.

    Rows are counted as they are stored: several versions of a row of a table with a key count as several rows.
    """
    told = _LOSSES.get(type(statement))
    if told is None:
        return None
    try:
        return told(state, engine, statement)
    except MerganserError:
        return None  # the statement says it


# tables and databases


def _drop_database(state: State, engine: Engine, statement: s.DropDatabase) -> str | None:
    database = state.database_of(statement.name)
    if not statement.cascade or database not in state.catalog.list_databases():
        return None
    tables = state.catalog.list_tables(database)
    if not tables:
        return None
    rows = [_rows(state.catalog.table(f"{database}.{name}")) for name in tables]
    return (
        f"Drops the database {database} with {counted(len(tables), 'table')}, "
        f"{counted(sum(rows), 'stored row')}: {_listed(tables)}."
    )


def _drop_table(state: State, engine: Engine, statement: s.DropTable) -> str | None:
    return f"Drops the table {_holding(state.table(statement.name))}."


def _truncate(state: State, engine: Engine, statement: s.Truncate) -> str | None:
    table = state.table(statement.name)
    if statement.partition is not None:
        return _partitions_lost("Removes all rows of", table, [statement.partition])
    return f"Removes all rows of {table.name}: {counted(_rows(table), 'stored row')}." if _rows(table) else None


def _delete(state: State, engine: Engine, statement: s.Delete) -> str | None:
    where = None if statement.where is None else statement.where.unnest()
    whole = where is None or (isinstance(where, exp.Boolean) and where.this)
    return None if not whole else _truncate(state, engine, s.Truncate(statement.name, None))


def _insert(state: State, engine: Engine, statement: s.Insert) -> str | None:
    if not statement.overwrite:
        return None
    table = state.table(statement.name, statement.options)
    rows = _rows(table)
    if not rows:
        return None
    which = "the partitions that it writes, of all the" if table.partition_by else "the"
    return f"Replaces rows of {table.name}: {which} {counted(rows, 'stored row')}."


def _drop_partitions(state: State, engine: Engine, statement: s.DropPartitions) -> str | None:
    return _partitions_lost("Drops", state.table(statement.name), statement.partitions)


def _drop_columns(state: State, engine: Engine, statement: s.DropColumns) -> str | None:
    table = state.table(statement.name)
    return (
        f"Drops {_named('column', statement.columns)} of {table.name}, which has {counted(_rows(table), 'stored row')}."
    )


def _delete_tags(state: State, engine: Engine, statement: s.DeleteTags) -> str | None:
    return _tags_lost(state.table(statement.name), statement.tags)


# procedures


def _call(state: State, engine: Engine, statement: s.Call) -> str | None:
    name, procedure, given = asked(state, statement)
    told = _OF_PROCEDURES.get(name)
    if told is not None:
        return told(state, given)
    if name not in _DRY or given.get("dry_run") is not None:
        return None
    result = procedure.run(state, engine, {**given, "dry_run": True}).rows
    return _DRY[name](str(given["table"]), result.to_pylist())


def _snapshots_expired(table: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    count = rows[0]["deleted_snapshots_count"]
    return f"Expires {counted(count, 'snapshot')} of {table}." if count else None


def _partitions_expired(table: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    texts = [row["expired_partitions"] for row in rows if "=" in row["expired_partitions"]]
    return f"Drops {counted(len(texts), 'partition')} of {table}: {_listed(texts)}." if texts else None


def _orphans_removed(table: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    count, size = rows[0]["deletedFileCount"], rows[0]["deletedFileTotalLenInBytes"]
    return f"Removes {counted(count, 'file')} of {table} ({size:,} bytes) that nothing refers to." if count else None


_DRY: Final = {
    "expire_snapshots": _snapshots_expired,
    "expire_partitions": _partitions_expired,
    "remove_orphan_files": _orphans_removed,
}
"""Procedures with a dry run, and how its result is told."""


def _rollback(state: State, given: Given) -> str | None:
    table = table_named(state, given)
    latest, (_, target) = table.latest_snapshot(), rollback_target(state, given)
    if latest is None or target >= latest.id:
        return None
    gone = f"snapshot {latest.id} is" if target + 1 == latest.id else f"snapshots {target + 1} to {latest.id} are"
    return f"Sets {table.name} back to snapshot {target}; {gone} removed for good, and their tags."


def _erase(state: State, given: Given) -> str | None:
    table = table_named(state, given)
    more = "; also in branches, and snapshots and tags that hold them end" if given.get("everywhere") else ""
    return f"Removes rows of {table.name} from every file that holds them, where {given['where']}{more}."


def _delete_tag(state: State, given: Given) -> str | None:
    return _tags_lost(table_named(state, given), [tag.strip() for tag in str(given["tag"]).split(",")])


def _delete_branch(state: State, given: Given) -> str | None:
    table, names = table_named(state, given), [name.strip() for name in str(given["branch"]).split(",")]
    return f"Removes {_named('branch', names, 'branches')} of {table.name} with the rows written there."


def _fast_forward(state: State, given: Given) -> str | None:
    table = table_named(state, given)
    return (
        f"Replaces the rows of {table.name} by those of the branch {given['branch']}; snapshots that were committed "
        "since it began are removed."
    )


def _reset_consumer(state: State, given: Given) -> str | None:
    if given.get("next_snapshot") is not None:
        return None
    return f"Removes the consumer {given['consumer_id']} of {table_named(state, given).name}."


def _clear_consumers(state: State, given: Given) -> str | None:
    table = table_named(state, given)
    names = [consumer.id for consumer in table.consumers.list()]
    return f"Removes {_named('consumer', names)} of {table.name}." if names else None


def _disable_stream(state: State, given: Given) -> str | None:
    return f"Discards the shard stream of {table_named(state, given).name}; its positions are refused from then on."


def _migrate_folder(state: State, given: Given) -> str | None:
    return f"Moves the files out of {given['source']}." if given.get("how") == "move" else None


_OF_PROCEDURES: Final[dict[str, Callable[[State, Given], str | None]]] = {
    "rollback": _rollback, "rollback_to": _rollback, "rollback_to_timestamp": _rollback, "erase": _erase,
    "delete_tag": _delete_tag, "delete_branch": _delete_branch, "fast_forward": _fast_forward,
    "reset_consumer": _reset_consumer, "clear_consumers": _clear_consumers, "disable_stream": _disable_stream,
    "migrate_folder": _migrate_folder,
}  # fmt: skip

_LOSSES: Final[dict[type[s.Statement], Callable[..., str | None]]] = {
    s.DropDatabase: _drop_database, s.DropTable: _drop_table, s.Truncate: _truncate, s.Delete: _delete,
    s.Insert: _insert, s.DropPartitions: _drop_partitions, s.DropColumns: _drop_columns, s.DeleteTags: _delete_tags,
    s.Call: _call,
}  # fmt: skip


# what a table holds


def _meta(table: Table) -> MetaReader:
    return MetaReader(table.definition.paths, table.env, table.name)


def _rows(table: Table) -> int:
    latest = table.latest_snapshot()
    return 0 if latest is None else latest.total_record_count or 0


def _holding(table: Table) -> str:
    snapshots = len(_meta(table).snapshots.ids())
    parts = [counted(_rows(table), "stored row"), counted(snapshots, "snapshot")]
    for noun, plural, found in (("tag", "tags", table.tags.list()), ("branch", "branches", table.branches.list())):
        if found:
            parts.append(f"{len(found):,} {noun if len(found) == 1 else plural}")
    return f"{table.name}: {', '.join(parts)}"


def _tags_lost(table: Table, names: Sequence[str]) -> str | None:
    of = {tag.name: tag.snapshot.id for tag in table.tags.list()}
    kept = set(_meta(table).snapshots.ids())
    last = [name for name in names if name in of and of[name] not in kept]
    found = [name for name in names if name in of]
    note = f" {_listed(last)} kept a snapshot that has expired: its rows can be read no more." if last else ""
    return f"Deletes {_named('tag', found)} of {table.name}.{note}" if found else None


def _partitions_lost(verb: str, table: Table, specs: Sequence[s.Spec]) -> str | None:
    latest = table.latest_snapshot()
    stored = table.stored_specs([spelled_spec(table, spec) for spec in specs], "drop partitions of") or ()
    if latest is None:
        return None
    live = _meta(table).state(latest).live
    kinds = table.definition.partition_types
    rows: dict[bytes, int] = {}
    for entry in live:
        rows[entry.partition] = rows.get(entry.partition, 0) + entry.file.row_count
    gone = 0
    found: set[bytes] = set()
    for part, count in rows.items():
        values = dict(zip(table.partition_by, deserialize(part, kinds), strict=True))
        if any(all(values[name] == value for name, value in spec.items()) for spec in stored):
            found.add(part)
            gone += count
    if not found:
        return None
    return f"{verb} {counted(len(found), 'partition')} of {table.name}: {counted(gone, 'stored row')}."


def _named(noun: str, names: Sequence[str], plural: str | None = None) -> str:
    return f"the {noun if len(names) == 1 else plural or noun + 's'} {_listed(names)}"


def _listed(names: Sequence[str], shown_max: int = 5) -> str:
    more = len(names) - shown_max
    return ", ".join(names[:shown_max]) + (f" and {more:,} more" if more > 0 else "")
