"""Gaps: commits that published no changes, as a reader of changes meets them.

A gap names its snapshot and the partitions whose changes were left out. `Gap.read` returns their rows after it: who
replaces these partitions by them has the state of the table again, and goes on with the changes that follow.

A commit left changes out in one of three ways:

* Change tracking was off. The snapshot says so (`meta.tracking`).
* The table had no changelog producer when the commit was made, and has one now. The snapshot names the schema that its
  writer saw last, so that schema has no producer. This holds for a commit that was in flight while the producer was
  set, too. A writer reads the newest snapshot, then the newest schema, and then creates the next snapshot. So if a
  snapshot with the new schema exists, every writer that has not seen the schema loses its snapshot id, looks again, and
  is refused (`commit.table_commit`). All snapshots that log nothing come before the first one of the new schema, and
  name an older one. It does not matter which process stops at which instruction: what a reader needs is in the
  snapshot.
* It is an overwrite, and readers do not compare what it replaced: they do not want to, or cannot (`scan.overwrites`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from merganser.codec.binary_row import stored_to_arrow
from merganser.errors import UntrackedError
from merganser.expr.predicate import Predicate
from merganser.meta.data_file import ManifestEntry
from merganser.meta.followed import as_of
from merganser.meta.snapshot import APPEND, COMPACT, Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.tracking import left_out
from merganser.options import write as w
from merganser.rules.compacting import publishes_by_compaction
from merganser.scan.overwrites import is_replaced, replaced_in, why_unknown
from merganser.scan.plan import partition_filter, partition_values, partitions_through
from merganser.storage.env import Env
from merganser.values import dataclass


@dataclass(frozen=True)
class Gap:
    """Changes that were not published.

    Attributes:
        snapshot: the id of the snapshot that changed the rows.
        partitions: the partitions it changed, each as a dict of its values. () stands for the whole table: it has no
            partitions, or it is not known which of them the snapshot changed.
    """

    snapshot: int
    partitions: tuple[Mapping[str, Any], ...]
    _rows: Callable[[], pa.Table] = field(repr=False, compare=False)

    def read(self) -> pa.Table:
        """Return all rows of these partitions after the snapshot, as inserts, with the columns of the reader.

        If `partitions` is (), these are all rows of the table. They pass the filter of the reader, and the changes that
        follow continue from them.

        Raises:
            ExpiredError: the snapshot has expired. Begin again with a state of the table.
        """
        return self._rows()


def gap_of(
    table: TableDef, env: Env, snapshot: Snapshot, where: Predicate | None, *, changelog: bool
) -> frozenset[bytes] | None:
    """Return the partitions whose changes a snapshot left out and a filter looks at; None: it may be any of the table.

    Args:
        changelog: changelog files are read, and not the files that commits added.
    """
    if snapshot.commit_kind == COMPACT and not changelog:  # it changed no row
        return frozenset()
    if changelog and _came_before_the_producer(table, env, snapshot):
        return None
    partitions = left_out(snapshot)
    if changelog and partitions is not None and is_replaced(table, snapshot) and why_unknown(table, env, snapshot):
        replaced = replaced_in(table, env, snapshot)
        if replaced is None:
            return None
        partitions |= replaced
    if not partitions:
        return partitions
    return frozenset(partitions_through(table, partitions, partition_filter(table, where)))


def _came_before_the_producer(table: TableDef, env: Env, snapshot: Snapshot) -> bool:
    """Return whether a commit changed or moved rows that no changelog has, since the table had no producer yet."""
    producer = table.options.get(w.CHANGELOG_PRODUCER)
    if producer == "none" or snapshot.changelog_manifest_list or snapshot.schema_id >= table.schema.id:
        return False
    kind = COMPACT if publishes_by_compaction(table.options) else APPEND  # of the commits that publish
    if snapshot.commit_kind != kind or (kind == APPEND and not snapshot.delta_record_count):
        return False
    then = as_of(table, env, snapshot.schema_id).schema
    return then.options.get(w.CHANGELOG_PRODUCER) == "none"


def named(table: TableDef, partitions: frozenset[bytes] | None) -> tuple[Mapping[str, Any], ...]:
    """Return the values of partitions, in order; () of a table without partitions, and of None."""
    keys = table.schema.partition_keys
    if not partitions or not keys:
        return ()
    rows = partition_values(table, sorted(partitions))
    columns = [
        stored_to_arrow([row[i] for row in rows], kind).to_pylist() for i, kind in enumerate(table.partition_types)
    ]
    return tuple(dict(zip(keys, values, strict=True)) for values in zip(*columns, strict=True))


def refusal(
    table: TableDef,
    env: Env,
    action: str,
    snapshot: Snapshot,
    partitions: frozenset[bytes] | None,
    *,
    following: bool,
) -> UntrackedError:
    """Return the error of a reader that meets a gap.

    Args:
        action: what it does, as messages begin.
        snapshot: the commit that left changes out.
        following: it goes on in time.
    """
    number = snapshot.id
    why = why_unknown(table, env, snapshot) if is_replaced(table, snapshot) else None
    if why is None:
        why = (
            "change tracking was off (changes=False, 'change-tracking' or 'change-tracking.off-partitions'), or since "
            f"it was made before '{w.CHANGELOG_PRODUCER.key}' was set"
        )
    values = named(table, partitions)
    first = ", ".join(f"{name}={value}" for name, value in values[0].items()) if values else ""
    more = f" and {len(values) - 1} more" if len(values) > 1 else ""
    of = f" of partition {first}{more}" if first else ""
    ways = [f"read the state of snapshot {number} and the changes from snapshot {number + 1} on"]
    if SnapshotStore(table.paths, env, table.name).get(number) is None:  # a changelog alone is kept
        ways = ["begin again with the newest state of the table"]
    elif not following:
        ways.append("compare the states with mode='diff'")
    if following:
        ways.append("hand it over as a Gap with gaps='mark'")
    ways.append("leave it out with gaps='skip'")
    advice = f"{', '.join(ways[:-1])}{',' if len(ways) > 2 else ''} or {ways[-1]}"
    return UntrackedError(
        f"{action}: snapshot {number} changed rows{of} and published nothing, since {why}. Nothing of it was handed "
        f"over. {advice[0].upper()}{advice[1:]}.",
        table=table.name,
        snapshot=number,
        partitions=values,
        earliest=number + 1,
    )


def tracked(entries: list[ManifestEntry], partitions: frozenset[bytes] | None) -> list[ManifestEntry]:
    """Return the files of a commit whose rows are changes to serve."""
    return [] if partitions is None else [entry for entry in entries if entry.partition not in partitions]
