"""Change tracking: which commits publish their changes, and how a snapshot says that its commit did not.

Tracking is off for a table (`change-tracking` = `false`), for partitions (`change-tracking.off-partitions`) or for one
write (`changes=False`). The snapshot of a commit that left changes out has the property `merganser.untracked`: its own
id, since other writers may carry properties on, and the partitions. Without the property, nothing was left out.

Where compactions publish what commits changed, the names of the files of such a commit say that their rows are left
out: `data-<id>-0-untracked.parquet`. So any later compaction knows.

Docs: decision 0041.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Final

from merganser.meta.data_file import DataFile
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import write as w

UNTRACKED: Final = "merganser.untracked"
UNTRACKED_FILE: Final = "-untracked"
"""Part of the names of data files whose rows no compaction is to publish."""
_UNTRACKED_NAME: Final = re.compile(rf"{UNTRACKED_FILE}[-.]")
_NAMED_MAX: Final = 1000
"""Of more partitions the property names none: all count as untracked."""


def tracks(table: TableDef) -> bool:
    """Return whether the options of a table let commits publish changes at all."""
    return bool(table.options.get(w.CHANGE_TRACKING))


def untracked_of(table: TableDef, partitions: Iterable[bytes]) -> frozenset[bytes]:
    """Return those of some serialized partitions whose changes the options of the table leave out."""
    if not tracks(table):
        return frozenset(partitions)
    off = [set(spec) for spec in table.options.get(w.CHANGE_TRACKING_OFF)]
    if not off:
        return frozenset()
    start = len(table.paths.root) + 1
    named = {partition: set(table.partition_directory(partition)[start:].split("/")) for partition in set(partitions)}
    return frozenset(partition for partition, parts in named.items() if any(spec <= parts for spec in off))


def is_untracked(file: DataFile) -> bool:
    """Return whether no compaction is to publish the rows of a file."""
    return _UNTRACKED_NAME.search(file.name) is not None


def mark(number: int, partitions: Collection[bytes]) -> dict[str, str]:
    """Return the property of a snapshot that left out the changes of some partitions; none of no partitions."""
    if not partitions:
        return {}
    named = sorted(each.hex() for each in partitions) if len(partitions) <= _NAMED_MAX else None
    return {UNTRACKED: json.dumps({"snapshot": number, "partitions": named})}


def left_out(snapshot: Snapshot) -> frozenset[bytes] | None:
    """Return the serialized partitions whose changes a snapshot left out; None: it may be any partition."""
    text = (snapshot.properties or {}).get(UNTRACKED)
    if text is None:
        return frozenset()
    try:
        said = json.loads(text)
        if said["snapshot"] != snapshot.id:
            return frozenset()
        return None if said["partitions"] is None else frozenset(bytes.fromhex(each) for each in said["partitions"])
    except (ValueError, TypeError, KeyError):  # written by no release that we know: better told too often
        return None
