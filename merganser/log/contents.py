"""Records of a snapshot in the log: the changes that a stream reads from the files, by bucket.

A reader may take each snapshot from the log or from the files and gets the same rows. Changes that readers compute,
such as the difference of an overwrite, stay in the files. The log then only names the snapshot (`Mark.files`).

    the snapshot                                        the log
    publishes rows                                      has them
    is an overwrite, or left changes out                says so
    was made while the broker did not answer            says so, later
    publishes nothing, as most compactions              has nothing
    publishes with a later compaction, if the log is
    eventual                                            has a record without a row: writes end with their snapshot
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from merganser.commit.log import is_eventual
from merganser.log.records import Mode
from merganser.meta.followed import as_of
from merganser.meta.snapshot import APPEND, OVERWRITE, Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.tracking import left_out
from merganser.options import write as w
from merganser.rules.compacting import newest_counts, publishes_by_compaction
from merganser.scan.forms import columns_of
from merganser.scan.gaps import gap_of
from merganser.scan.phases import may_retract
from merganser.scan.plan_changes import files_published_by
from merganser.scan.read import read_split
from merganser.scan.split import PublishedSplit, ReadJob, What
from merganser.schema.table_schema import SEQUENCE_NUMBER
from merganser.storage.env import Env
from merganser.values import dataclass

FILES_ONLY: Final = "merganser.log.files-only"
"""The property of a snapshot that was made while the broker did not answer: its id, as others may carry it on."""


@dataclass(frozen=True)
class Contents:
    """What a snapshot puts into the log.

    Attributes:
        table: the table with the schema of the rows.
        buckets: by bucket, the files with its rows; in the order of the rows.
        in_files: the changes are in the files alone.
        shortened: records in mode upsert say less than these files; see `Mark.shortened`.
    """

    table: TableDef
    buckets: dict[int, list[PublishedSplit]]
    in_files: bool = False
    shortened: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the log needs nothing."""
        return not self.buckets and not self.in_files

    def rows(self, env: Env, bucket: int) -> Iterator[pa.Table]:
        """Yield the rows of a bucket: `_row_kind`, the columns of the table, and if it has a key `_SEQUENCE_NUMBER`."""
        columns = columns_of(What.CHANGED, self.table)
        if self.table.schema.shown.keyed:
            columns = (*columns, SEQUENCE_NUMBER)
        job = ReadJob(self.table, columns, None, {}, What.CHANGED)
        for split in self.buckets[bucket]:
            yield from read_split(job, split, env.storage)


def contents_of(table: TableDef, env: Env, snapshot: Snapshot) -> Contents:
    """Return what a snapshot puts into the log; it stands, or is about to be created.

    Raises:
        FormatError: metadata is damaged or missing.
    """
    table = as_of(table, env, snapshot.schema_id)
    changelog = table.options.get(w.CHANGELOG_PRODUCER) != "none"
    if snapshot.commit_kind == OVERWRITE or is_files_only(snapshot) or left_out(snapshot) != frozenset():
        return Contents(table, {}, in_files=True)
    if gap_of(table, env, snapshot, None, changelog=changelog) != frozenset():
        return Contents(table, {}, in_files=True)
    columns = columns_of(What.CHANGED, table)
    if table.moves_keys or table.postpones:  # rows of several buckets come in phases, or have no bucket yet
        found = files_published_by(table, env, snapshot, columns=columns, where=None, what=What.CHANGED)
        return Contents(table, {}, in_files=bool(found))
    buckets: dict[int, list[PublishedSplit]] = {}
    retracts = False
    for directory, _, split in files_published_by(
        table, env, snapshot, columns=columns, where=None, what=What.CHANGED, by_bucket=False
    ):
        if split is not None:
            buckets.setdefault(int(directory.rpartition("bucket-")[2]), []).append(split)
            retracts |= any(may_retract(table, file) for file in split.files)
    if not buckets and snapshot.commit_kind == APPEND and is_eventual(table) and publishes_by_compaction(table.options):
        return Contents(table, {0: []})
    return Contents(table, dict(sorted(buckets.items())), shortened=retracts and mode_of(table) == "upsert")


def is_files_only(snapshot: Snapshot) -> bool:
    """Return whether the log has nothing of a snapshot, since the broker did not answer."""
    return (snapshot.properties or {}).get(FILES_ONLY) == str(snapshot.id)


def mode_of(table: TableDef) -> Mode:
    """Return "upsert" or "all". auto is upsert if the newest row of a key is the row of the table."""
    asked = table.options.get(w.LOG_CHANGELOG_MODE)
    if asked != "auto":
        return "all" if asked == "all" else "upsert"
    return "upsert" if table.schema.shown.primary_keys and newest_counts(table.options) else "all"
