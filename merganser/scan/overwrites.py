"""Overwrites as readers of a changelog get them: what differs between the published rows before and after.

No engine logs what an overwrite, a truncate or a dropped partition changes: its commit has no changelog files. Whoever
replays the changelog needs it all the same, so readers compare two states:

    before   the rows that the changelog had published until then   ─┐
                                                                     ├─►  -D   +I   -U +U
    after    the rows that the changelog goes on from               ─┘

Published are all rows with the producers `input` and `per-record`, those above level 0 with `lookup`, and those of the
highest level with `full-compaction`. Rows of the overwrite that lie below come with the compaction that takes them, as
those of other commits do. Rows that were removed before a compaction has published them come never.

Only the partitions of the commit are compared, and in them only files that the two states do not share.

Where readers do not get it, the commit is a gap (`scan.gaps`): if the table or the reader says so, or if the snapshot
before it has expired, and the rows with it.

Docs: decision 0064.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from merganser.errors import FormatError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.key_change import key_ids, may_differ
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import OVERWRITE, Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.meta.tracking import left_out
from merganser.options import read as r
from merganser.options import write as w
from merganser.rules.compacting import publishes_by_compaction
from merganser.scan.forms import OFFSETS_PER_SNAPSHOT
from merganser.scan.plan_diff import plan_diff
from merganser.scan.source import Difference
from merganser.scan.split import DiffSplit, Origin, Phase, ReadJob
from merganser.storage.env import Env


def is_replaced(table: TableDef, snapshot: Snapshot) -> bool:
    """Return whether a snapshot replaced rows of a table that publishes all its changes."""
    return snapshot.commit_kind == OVERWRITE and table.options.get(w.CHANGELOG_PRODUCER) != "none"


def replaced_in(table: TableDef, env: Env, snapshot: Snapshot) -> frozenset[bytes] | None:
    """Return the serialized partitions in which a snapshot replaced rows; None: it has expired, and the list of them.

    A commit that gave the table its primary key changed no row for readers.
    """
    try:
        return _replaced_in(table, env, snapshot)
    except FormatError:
        if SnapshotStore(table.paths, env, table.name).get(snapshot.id) is not None:
            raise
        return None


def _replaced_in(table: TableDef, env: Env, snapshot: Snapshot) -> frozenset[bytes]:
    if _gave_the_key(table, env, snapshot):
        return frozenset()
    return frozenset(entry.partition for entry in MetaReader(table.paths, env, table.name).delta(snapshot))


def why_unknown(table: TableDef, env: Env, snapshot: Snapshot) -> str | None:
    """Return why readers do not get what a snapshot replaced, for messages; None: they get it."""
    option = r.STREAMING_READ_OVERWRITE
    if table.options.get(option) is False:
        return f"it is an overwrite, and '{option.key}' is 'false'"
    store = SnapshotStore(table.paths, env, table.name)
    needed = max(1, snapshot.id - 1)
    if store.get(needed) is None:
        of = "before" if needed < snapshot.id else "after"
        return f"it is an overwrite, and snapshot {needed}, which has the rows {of} it, has expired"
    if not publishes_by_compaction(table.options):
        entries = MetaReader(table.paths, env, table.name).delta(snapshot)
        if any(entry.bucket < 0 for entry in entries):
            return "it is an overwrite of rows that wait for their buckets, which cannot be compared"
    return None


def plan_overwrite(
    table: TableDef, env: Env, snapshot: Snapshot, job: ReadJob
) -> tuple[ReadJob, tuple[DiffSplit, ...]]:
    """Return a job and the splits of what a snapshot replaced, bucket by bucket; where keys move, first those that go.

    Raises:
        ExpiredError: the snapshot before it has expired.
        InvalidInputError: sequence numbers are asked for.
        FormatError: metadata is damaged or missing.
    """
    if table.options.get(w.DELETION_VECTORS) and table.options.get(w.CHANGELOG_PRODUCER) != "lookup":
        # The commit has published the rows of level 0, though reads do not show them yet.
        table = replace(table, options=table.options.merged({r.DELETION_VECTORS_MERGE_ON_READ.key: "true"}))
    store = SnapshotStore(table.paths, env, table.name)
    skipped = left_out(snapshot)
    partitions = frozenset[bytes]() if skipped is None else _replaced_in(table, env, snapshot) - skipped
    if not partitions:
        return job, ()
    ends = Difference(store.load(snapshot.id - 1) if snapshot.id > 1 else None, snapshot)
    plan = plan_diff(table, env, ends, replace(job, table=table), published_in=partitions)
    splits = [split for split in plan.splits if isinstance(split, DiffSplit)]
    return plan.job, tuple(_numbered(splits, snapshot))


def first_known(table: TableDef, env: Env, number: int) -> int:
    """Return the oldest snapshot whose changes are kept.

    Args:
        number: the oldest one of which something is kept.
    """
    store, changelogs = SnapshotStore(table.paths, env, table.name), ChangelogStore(table.paths, env)
    while (
        (snapshot := store.get(number) or changelogs.get(number)) is not None
        and number > 1
        and is_replaced(table, snapshot)
        and store.get(number - 1) is None
    ):
        number += 1
    return number


def _gave_the_key(table: TableDef, env: Env, snapshot: Snapshot) -> bool:
    if snapshot.id == 1 or not may_differ(table.schema):
        return False
    number = snapshot.id - 1
    before = SnapshotStore(table.paths, env, table.name).get(number) or ChangelogStore(table.paths, env).get(number)
    if before is None:
        return False
    schemas = SchemaStore(table.paths, env)
    return key_ids(schemas.load(before.schema_id)) != key_ids(schemas.load(snapshot.schema_id))


def _numbered(splits: Sequence[DiffSplit], snapshot: Snapshot) -> list[DiffSplit]:
    """Return splits in an order that depends on the two states alone, with the offsets of their first rows.

    A split gives at most a row for each that is stored, so offsets of a bucket rise.
    """
    by_place = sorted(splits, key=lambda split: (split.phase is Phase.STAYING, _place(split)))
    counted: dict[str, int] = {}
    found = []
    for split in by_place:
        before = counted.get(_place(split), 0)
        offset = snapshot.id * OFFSETS_PER_SNAPSHOT + before
        found.append(replace(split, origin=Origin(snapshot.id, 0, offset, snapshot.time_millis)))
        stored = sum(file.row_count for portion in (*split.before, *split.after) for file in portion.files)
        counted[_place(split)] = before + stored
    return found


def _place(split: DiffSplit) -> str:
    return min(portion.directory for portion in (*split.before, *split.after))
