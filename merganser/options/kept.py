"""Options that merganser keeps for other engines and for later versions: it checks them, and no code reads them.

They are data, not constants, because no code names them. Work that honours one moves its row to `write`, `read` or
`upkeep`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from merganser.options.option import (
    BOOLEAN,
    BYTES,
    COLUMNS,
    DURATION,
    INTEGER,
    LONG_MAX,
    TEXT,
    Option,
    State,
    TextForm,
    choice,
    integer,
)

_TABLE: Final[tuple[tuple[str, TextForm[Any], Any, str], ...]] = (
    # rows, buckets, large objects
    ("bucket-append-ordered", BOOLEAN, True,
     "Tables without a key and with buckets: keep rows of a bucket in the order they were written."),
    ("cross-partition-upsert.index-ttl", DURATION, None,
     "Keys that may move between partitions: how long other engines remember a key's place. merganser forgets none."),
    ("cross-partition-upsert.bootstrap-parallelism", integer(1), 10,
     "Keys that may move between partitions: how many tasks read the keys when a writer starts."),
    ("blob-descriptor-field", COLUMNS, (), "Large object columns stored as references."),
    ("blob-view-field", COLUMNS, (), "Large object columns that refer to other tables."),
    ("write.sequence-number-init-mode", choice("scan", "snapshot"), "scan",
     "Where a writer finds the last sequence number: in the files of the bucket, or in a property of the snapshot."),
    # files and manifests
    ("data-file.external-paths.strategy", TEXT, "none", "How a place of 'data-file.external-paths' is chosen."),
    ("manifest.delete-file-drop-stats", BOOLEAN, False, "Leave the statistics of deleted files out of manifests."),
    # writing and committing
    ("write-buffer-spillable", BOOLEAN, None, "Let a full write buffer spill to local disk."),
    ("write-buffer-spill.max-disk-size", BYTES, LONG_MAX, "Most bytes that a write buffer spills to disk."),
    ("spill-compression", choice("zstd", "lz4", "lzo", "none"), "zstd", "Compression of spilled data."),
    ("commit.force-compact", BOOLEAN, False, "Every commit waits for the compaction that it caused."),
    ("auto-create", BOOLEAN, False, "Create the table when it is written first."),
    # log beside the files
    ("log.format", choice("debezium-json"), "debezium-json", "Form of rows in the log."),
    ("log.key.format", choice("json"), "json", "Form of keys in the log."),
    # reading
    ("scan.bounded", BOOLEAN, None, "Force a read that ends, or one that follows the table."),
    ("scan.max-snapshot.count", INTEGER, -1,
     "Most snapshots that a stream reads between checkpoints; -1 has no limit."),
    ("scan.parallelism", integer(1), None, "How many tasks read."),
    ("source.split.open-file-cost", BYTES, 4 << 20, "Least bytes that a file counts for when splits are packed."),
    ("read.batch-size", integer(1), 1024, "Rows that are read from a file at a time."),
    # streams
    ("consumer.mode", choice("exactly-once", "at-least-once"), "exactly-once",
     "When the progress of a consumer is recorded."),
    ("streaming-read-append-overwrite", BOOLEAN, False,
     "Streams of tables without a key deliver the rows of an overwrite as new rows."),
    ("streaming-read-mode", choice("log", "file"), None, "Read a stream from the log or from the files."),
    # lookups
    ("lookup.async", BOOLEAN, False, "Join by lookup without waiting for each."),
    ("lookup.cache", choice("auto", "full", "memory"), "auto", "How much a lookup join keeps in memory."),
    # upkeep
    ("num-sorted-run.stop-trigger", integer(1), None,
     "Sorted runs of a bucket above which writers wait for compaction. Default: "
     "'num-sorted-run.compaction-trigger' + 3."),
    ("sort-spill-threshold", integer(2), None, "Sorted runs above which a merge goes through local disk."),
    ("partition.time-interval", DURATION, None, "Span of time that a partition holds."),
    ("partition.idle-time-to-done", DURATION, None, "Time without new rows after which a partition is marked as done."),
    ("partition.mark-done-action", TEXT, "success-file",
     "How to mark a partition as done: success-file, done-partition, mark-event, http-report, custom."),
    ("partition.mark-done-action.mode", choice("process-time", "watermark"), "process-time",
     "Whether the clock or the watermark decides that a partition is done."),
    ("partition.end-input-to-done", BOOLEAN, False, "Mark partitions as done when a batch job ends."),
)  # fmt: skip
"""Key, form of the text, default, meaning."""

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "scan.max-snapshot.count": ("scan.max-snapshot-count",),
}
_IMMUTABLE: Final = frozenset({"blob-descriptor-field", "blob-view-field"})

OPTIONS: Final = tuple(
    Option[Any](key, form, default, doc, _ALIASES.get(key, ()), key in _IMMUTABLE, State.KEPT)
    for key, form, default, doc in _TABLE
)
