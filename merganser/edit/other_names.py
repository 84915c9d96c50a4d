"""Method names of other table stores, answered with ours: `'Table' has no 'vacuum'. Write expire() ...`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from merganser.options.registry import closest, did_you_mean

OF_MERGE: Final = {
    "whenMatchedUpdate": "when_matched_update(set, condition)",
    "whenMatchedUpdateAll": "when_matched_update(), or when_matched_update(condition=...)",
    "whenMatchedDelete": "when_matched_delete(condition)",
    "whenNotMatchedInsert": "when_not_matched_insert(values, condition)",
    "whenNotMatchedInsertAll": "when_not_matched_insert(), or when_not_matched_insert(condition=...)",
    "whenNotMatchedBySourceUpdate": "when_not_matched_by_source_update(set, condition)",
    "whenNotMatchedBySourceDelete": "when_not_matched_by_source_delete(condition)",
    "whenMatched": "when_matched_update(set, condition) or when_matched_delete(condition)",
    "whenNotMatched": "when_not_matched_insert(values, condition)",
    "whenNotMatchedBySource": (
        "when_not_matched_by_source_update(set, condition) or when_not_matched_by_source_delete(condition)"
    ),
    "delete": "when_matched_delete(condition)",
    "insert": "when_not_matched_insert(values, condition)",
    "insertAll": "when_not_matched_insert()",
    "merge": "execute()",
    "update": "when_matched_update(set, condition)",
    "updateAll": "when_matched_update()",
    "withSchemaEvolution": "table.alter([merganser.changes.add_column(name, type)]) before the merge",
}
"""What to write in place of methods of a merge in Delta and of `DataFrame.mergeInto`."""
OF_TABLE: Final = {
    "addColumn": "alter([merganser.changes.add_column(name, type)])",
    "alias": "merge(source, 't.id = s.id', alias=('t', 's'))",
    "append": "write(rows)",
    "clean": "expire()",
    "clone": "catalog.clone(table, name)",
    "collect": "read().to_pylist()",
    "count": "read().count()",
    "createBranch": "branches.create(name)",
    "createCheckpoint": "tags.create(name) to keep a state; what a checkpoint of a log is for needs no call",
    "createTag": "tags.create(name)",
    "currentSnapshot": "latest_snapshot()",
    "deleteBranch": "branches.drop(name)",
    "deleteOrphanFiles": "remove_orphans(dry_run=False)",
    "deletePartition": "drop_partitions([{'day': '2026-10-03'}]), with values of your partition columns",
    "deleteTag": "tags.drop(name)",
    "detail": "describe()",
    "drop": "catalog.drop_table(name)",
    "dropBranch": "branches.drop(name)",
    "dropColumn": "alter([merganser.changes.drop_column(name)])",
    "dropTag": "tags.drop(name)",
    "executeCompaction": "compact(full=True)",
    "expireSnapshots": "expire()",
    "fastForward": "branches.fast_forward(name)",
    "filter": "read(where=...)",
    "forName": "catalog.table(name)",
    "forPath": "merganser.table(path)",
    "history": "snapshots()",
    "insert": "write(rows)",
    "insertInto": "write(rows)",
    "insertOverwrite": "write(rows, overwrite='dynamic')",
    "limit": "read(limit=...)",
    "listBranches": "branches.list()",
    "listTags": "tags.list()",
    "loadTable": "catalog.table(name)",
    "location": "path",
    "mergeInto": "merge(source, on)",
    "optimize": "compact(full=True)",
    "overwrite": "write(rows, overwrite='dynamic'), or write(rows, overwrite={}) to replace the whole table",
    "properties": "options",
    "readChangeFeed": "changes(start)",
    "removeOrphanFiles": "remove_orphans(dry_run=False)",
    "renameColumn": "alter([merganser.changes.rename_column(name, new_name)])",
    "restore": "rollback(snapshot)",
    "restoreToTimestamp": "rollback(snapshot), with a number from snapshots()",
    "restoreToVersion": "rollback(snapshot)",
    "rewriteDataFiles": "compact(full=True)",
    "rollbackToSnapshot": "rollback(snapshot)",
    "rollbackToTag": "rollback(tag=...)",
    "rollbackToTimestamp": "rollback(snapshot), with a number from snapshots()",
    "runClean": "expire()",
    "select": "read(columns=[...])",
    "show": "read().to_arrow()",
    "toArrow": "read().to_arrow()",
    "toDF": "read(), or merganser.spark.read(spark, table) for a DataFrame of Spark",
    "toPandas": "read().to_pandas()",
    "toPolars": "read().to_polars()",
    "toPylist": "read().to_pylist()",
    "snapshotId": "read(snapshot=...)",
    "timestampAsOf": "read(timestamp=...)",
    "updateExpr": "update(where, set)",
    "updateSchema": "alter([merganser.changes.add_column(name, type)])",
    "vacuum": "expire() for what old snapshots keep, and remove_orphans() for files that no commit names",
    "versionAsOf": "read(snapshot=...)",
    "where": "read(where=...)",
    "withSchemaEvolution": "with_options({'write.merge-schema': True}).write(rows)",
}
"""What to write in place of methods of a table in Delta, Iceberg and Hudi, and of a DataFrame."""
OF_TAGS: Final = {
    "add": "create(name)",
    "createTag": "create(name)",
    "delete": "drop(name)",
    "deleteTag": "drop(name)",
    "dropTag": "drop(name)",
    "remove": "drop(name)",
}
"""What to write in place of other verbs for tags."""
OF_BRANCHES: Final = {
    "add": "create(name)",
    "createBranch": "create(name)",
    "delete": "drop(name)",
    "deleteBranch": "drop(name)",
    "dropBranch": "drop(name)",
    "open": "table.branch(name)",
    "remove": "drop(name)",
}
"""What to write in place of other verbs for branches."""
OF_CONSUMERS: Final = {
    "add": "set(consumer_id, next_snapshot)",
    "create": "set(consumer_id, next_snapshot)",
    "delete": "drop(consumer_id)",
    "remove": "drop(consumer_id)",
    "reset": "set(consumer_id, next_snapshot)",
}
"""What to write in place of other verbs for consumers."""
OF_CATALOG: Final = {
    "DeltaTable": "table(name)",
    "createNamespace": "create_database(name)",
    "dropNamespace": "drop_database(name)",
    "execute": "sql(text)",
    "forName": "table(name)",
    "forPath": "merganser.table(path)",
    "getTable": "table(name)",
    "listNamespaces": "list_databases()",
    "loadTable": "table(name)",
    "openTable": "table(name)",
}
"""What to write in place of methods of a catalog in Iceberg and Delta."""
OF_PACKAGE: Final = {
    "DeltaTable": "catalog(warehouse).table(name), or table(path)",
    "forName": "catalog(warehouse).table(name)",
    "forPath": "table(path)",
    "loadCatalog": "catalog(warehouse)",
    "loadTable": "catalog(warehouse).table(name)",
    "openTable": "table(path)",
}
"""What to write in place of functions of other packages."""
OF_SPARK: Final = {
    "DeltaTable": "merganser.catalog(warehouse).table(name), or merganser.table(path)",
    "expireSnapshots": "table.expire()",
    "forName": "merganser.catalog(warehouse).table(name)",
    "forPath": "merganser.table(path)",
    "incremental": "changes(spark, table, start)",
    "loadTable": "merganser.catalog(warehouse).table(name)",
    "mergeInto": "merge(spark, table, source, on)",
    "optimize": "compact(spark, table, full=True)",
    "readChangeFeed": "changes(spark, table, start)",
    "rewriteDataFiles": "compact(spark, table, full=True)",
    "stream": "read_stream(spark, table)",
    "toDF": "read(spark, table)",
    "vacuum": "table.expire() for what old snapshots keep, and table.remove_orphans() for files that no commit names",
}
"""What to write in place of functions of Delta, Iceberg and Hudi on Spark."""

_REMOVERS: Final = re.compile(
    r"(catalog\.|tags\.|branches\.)?(delete|drop|drop_partitions|drop_table|drop_database|erase|expire"
    r"|expire_partitions|fast_forward|remove_orphans|rollback|truncate)\b|write\(rows, overwrite"
)
"""What removes rows, files, snapshots or names."""
_SLIP: Final = 0.8
"""Least likeness to a name that removes, or of another store, and is longer or shorter by one letter: `vaccum`."""
_SLIPS: Final = 0.9
"""Least likeness to any other of them: `drop_partiton` is `drop_partitions`, and `deleteTag` is not `delete`."""


def no_method(instance: Any, name: str, known: Mapping[str, str]) -> AttributeError:
    """Return the error of a method that an object lacks, with the one to write.

    Args:
        instance: the object. Names that its `__dir__` leaves out are never suggested.
        name: of the method.
        known: what to write, by a name that other stores use; it counts in any case, with or without underscores.
    """
    kind = type(instance)
    if hasattr(kind, name):  # lost inside of a property
        return AttributeError(f"'{kind.__name__}' has no '{name}'.")
    return no_name(f"'{kind.__name__}'", name, set(dir(kind)) & set(dir(instance)), known)


def no_name(owner: str, name: str, own: Iterable[str], known: Mapping[str, str]) -> AttributeError:
    """Return the error of a name that a class or a module lacks, with the one to write.

    A name that removes something is suggested only if it differs by a letter or two. A search for another verb must not
    end in one that deletes.

    Args:
        owner: the class or module, as the message names it.
        name: what is looked for.
        own: the names that there are.
        known: see `no_method`.
    """
    text = f"{owner} has no '{name}'."
    if name.startswith("_"):  # asked for by Python's protocols
        return AttributeError(text)
    by_folded = {_folded(other): ours for other, ours in known.items()}
    if (ours := by_folded.get(_folded(name))) is not None:
        return AttributeError(f"{text} Write {ours}.")
    own = [found for found in own if not found.startswith("_")]
    answers = {found: found for found in own} | {other: ours for other, ours in known.items() if other not in own}
    sure = {found for found, ours in answers.items() if found in own and not _REMOVERS.match(ours)}
    safe = [found for found in answers if found in sure or _is_slip(name, found)]
    meant = closest(_folded(name), map(_folded, safe))
    found = max(
        (found for found in safe if _folded(found) == meant), key=lambda found: _likeness(found, name), default=None
    )
    if found is None:
        return AttributeError(f"{text} {did_you_mean('', own)}")
    return AttributeError(f"{text} " + (f"Did you mean '{found}'?" if found in own else f"Write {answers[found]}."))


def _is_slip(name: str, meant: str) -> bool:
    name, meant = _folded(name), _folded(meant)
    return _likeness(name, meant) >= (_SLIP if abs(len(name) - len(meant)) <= 1 else _SLIPS)


def _likeness(name: str, meant: str) -> float:
    return difflib.SequenceMatcher(None, meant, name).ratio()


def _folded(name: str) -> str:
    return name.replace("_", "").lower()
