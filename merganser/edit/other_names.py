"""Method names of other table stores, answered with ours: `'Table' has no 'vacuum'. Write expire() ...`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from merganser.options.registry import did_you_mean

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
    "merge": "execute()",
}
"""What to write in place of methods of a merge in Delta and of `DataFrame.mergeInto`."""
OF_TABLE: Final = {
    "alias": "merge(source, 't.id = s.id', alias=('t', 's'))",
    "append": "write(rows)",
    "createTag": "tags.create(name)",
    "currentSnapshot": "latest_snapshot()",
    "detail": "describe()",
    "expireSnapshots": "expire()",
    "history": "snapshots()",
    "insert": "write(rows)",
    "optimize": "compact(full=True)",
    "overwrite": "write(rows, overwrite={})",
    "restoreToTimestamp": "rollback(snapshot), with a number from snapshots()",
    "restoreToVersion": "rollback(snapshot)",
    "toArrow": "read().to_arrow()",
    "toDF": "read(), or merganser.spark.read(spark, table) for a DataFrame of Spark",
    "toPandas": "read().to_pandas()",
    "updateExpr": "update(where, set)",
    "vacuum": "expire() for what old snapshots keep, and remove_orphans() for files that no commit names",
}
"""What to write in place of methods of a table in Delta and Iceberg."""


def no_method(instance: Any, name: str, known: Mapping[str, str]) -> AttributeError:
    """Return the error of a method that an object lacks, with the one to write.

    Args:
        instance: the object.
        name: of the method.
        known: what to write, by a name that other stores use; it counts in any case, with or without underscores.
    """
    kind = type(instance)
    text = f"'{kind.__name__}' has no '{name}'."
    if name.startswith("_") or hasattr(kind, name):  # asked for by Python's protocols, or lost inside of a property
        return AttributeError(text)
    ours = next((ours for other, ours in known.items() if _folded(other) == _folded(name)), None)
    if ours is not None:
        return AttributeError(f"{text} Write {ours}.")
    return AttributeError(f"{text} {did_you_mean(name, [own for own in dir(kind) if not own.startswith('_')])}")


def _folded(name: str) -> str:
    return name.replace("_", "").lower()
