"""Options that say what a read sees: time travel, start of a stream, increments, lookups."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from merganser.options.option import (
    BOOLEAN,
    BYTES,
    DURATION,
    FILE_NAME_PART,
    INTEGER,
    LONG,
    LONG_MAX,
    TEXT,
    Option,
    choice,
    integer,
    size,
)

SCAN_MODE: Final = Option(
    "scan.mode",
    choice(
        "default", "latest-full", "latest", "latest-delta", "compacted-full", "from-timestamp",
        "from-creation-timestamp", "from-file-creation-time", "from-snapshot", "from-snapshot-full", "incremental",
        full="latest-full",
    ),
    "default",
    "What is read, and where a stream starts. default: as the other scan options say, else latest-full.",
    aliases=("log.scan",),
)  # fmt: skip
SCAN_TIMESTAMP_MILLIS: Final = Option[int | None](
    "scan.timestamp-millis", LONG, None, "Milliseconds since 1970 for the mode from-timestamp.",
    aliases=("log.scan.timestamp-millis",),
)  # fmt: skip
SCAN_TIMESTAMP: Final = Option[str | None](
    "scan.timestamp", TEXT, None, "Time for the mode from-timestamp, such as '2026-01-31 10:00:00'."
)
SCAN_WATERMARK: Final = Option[int | None](
    "scan.watermark", LONG, None, "Batch: the first snapshot whose watermark is not below this."
)
SCAN_SNAPSHOT_ID: Final = Option[int | None](
    "scan.snapshot-id", integer(0, LONG_MAX), None, "Snapshot for the modes from-snapshot and from-snapshot-full."
)
SCAN_TAG_NAME: Final = Option[str | None]("scan.tag-name", TEXT, None, "Batch: the snapshot that this tag keeps.")
SCAN_VERSION: Final = Option[str | None](
    "scan.version", TEXT, None, "Batch: a tag of this name, else 'watermark-<n>', else a snapshot id."
)
SCAN_FILE_CREATION_TIME_MILLIS: Final = Option[int | None](
    "scan.file-creation-time-millis", LONG, None, "Read only files created at or after this time."
)
SCAN_CREATION_TIME_MILLIS: Final = Option[int | None](
    "scan.creation-time-millis", LONG, None, "Time for the mode from-creation-timestamp."
)
SCAN_BOUNDED: Final = Option[bool | None](
    "scan.bounded", BOOLEAN, None, "Force a read that ends, or one that follows the table.", reserved=True
)
SCAN_BOUNDED_WATERMARK: Final = Option[int | None](
    "scan.bounded.watermark", LONG, None, "Stream: end before the first snapshot whose watermark is above this."
)
SCAN_FALLBACK_BRANCH: Final = Option[str | None](
    "scan.fallback-branch", TEXT, None, "Batch: partitions that the table lacks are read from this branch."
)
SCAN_PRIMARY_BRANCH: Final = Option[str | None](
    "scan.primary-branch", TEXT, None, "Batch: partitions are read from this branch first."
)
SCAN_PLAN_SORT_PARTITION: Final = Option(
    "scan.plan-sort-partition", BOOLEAN, False, "Read partitions in the order of their values, not of their creation."
)
SCAN_MAX_SNAPSHOT_COUNT: Final = Option(
    "scan.max-snapshot.count", INTEGER, -1, "Most snapshots that a stream reads between checkpoints; -1 has no limit.",
    aliases=("scan.max-snapshot-count",),
)  # fmt: skip
SCAN_REMOVE_NORMALIZE: Final = Option(
    "scan.remove-normalize", BOOLEAN, False, "Do not fill in old rows of a stream without a changelog.",
    aliases=("log.scan.remove-normalize",), reserved=True,
)  # fmt: skip
SCAN_PARALLELISM: Final = Option[int | None](
    "scan.parallelism", integer(1), None, "How many tasks read.", reserved=True
)
SCAN_MANIFEST_PARALLELISM: Final = Option[int | None](
    "scan.manifest.parallelism", integer(1), None, "How many manifests are read at the same time."
)
SOURCE_SPLIT_TARGET_SIZE: Final = Option(
    "source.split.target-size", size(1), 128 << 20, "Bytes of data that one split should hold."
)
SOURCE_SPLIT_OPEN_FILE_COST: Final = Option(
    "source.split.open-file-cost", BYTES, 4 << 20, "Least bytes that a file counts for when splits are packed."
)
READ_BATCH_SIZE: Final = Option("read.batch-size", integer(1), 1024, "Rows that are read from a file at a time.")
INCREMENTAL_BETWEEN: Final = Option[str | None](
    "incremental-between", TEXT, None,
    "Changes between two snapshots or tags, 'start,end': the start is not part of it, the end is.",
)  # fmt: skip
INCREMENTAL_BETWEEN_TIMESTAMP: Final = Option[str | None](
    "incremental-between-timestamp", TEXT, None, "Changes between two times, 'start,end'."
)
INCREMENTAL_BETWEEN_SCAN_MODE: Final = Option(
    "incremental-between-scan-mode", choice("auto", "delta", "changelog", "diff"), "auto",
    "What the changes are. delta: files that were added. changelog: changelog files. diff: the two states compared. "
    "auto: the changelog if the table has one, else delta.",
)  # fmt: skip
INCREMENTAL_BETWEEN_TAG_TO_SNAPSHOT: Final = Option(
    "incremental-between-tag-to-snapshot", BOOLEAN, False, "Treat the tags of 'incremental-between' as their snapshots."
)
INCREMENTAL_TO_AUTO_TAG: Final = Option[str | None](
    "incremental-to-auto-tag", TEXT, None, "Changes from the automatic tag before this one up to this tag."
)
CONSUMER_ID: Final = Option[str | None](
    "consumer-id", FILE_NAME_PART, None, "Name under which a stream records how far it has read."
)
CONSUMER_MODE: Final = Option(
    "consumer.mode", choice("exactly-once", "at-least-once"), "exactly-once",
    "When the progress of a consumer is recorded.",
)  # fmt: skip
CONSUMER_IGNORE_PROGRESS: Final = Option(
    "consumer.ignore-progress", BOOLEAN, False, "Start as the scan options say although the consumer has progress."
)
CONSUMER_CHANGELOG_ONLY: Final = Option(
    "consumer.changelog-only", BOOLEAN, False, "The consumer keeps changelogs from expiring, but not snapshots."
)
STREAMING_READ_OVERWRITE: Final = Option(
    "streaming-read-overwrite", BOOLEAN, False, "Streams deliver what an overwrite removed and added."
)
STREAMING_READ_APPEND_OVERWRITE: Final = Option(
    "streaming-read-append-overwrite", BOOLEAN, False,
    "Streams of tables without a key deliver the rows of an overwrite as new rows.",
)  # fmt: skip
STREAMING_READ_MODE: Final = Option[str | None](
    "streaming-read-mode", choice("log", "file"), None, "Read a stream from the log or from the files."
)
STREAMING_READ_SNAPSHOT_DELAY: Final = Option[timedelta | None](
    "streaming.read.snapshot.delay", DURATION, None, "Streams leave snapshots alone that are younger than this."
)
CONTINUOUS_DISCOVERY_INTERVAL: Final = Option(
    "continuous.discovery-interval", DURATION, timedelta(seconds=10), "How often a stream looks for new snapshots."
)
READ_CHANGELOG: Final = Option("read.changelog", BOOLEAN, False, "Spark: streams carry the row kind in '_row_kind'.")
READ_STREAM_MAX_FILES: Final = Option[int | None](
    "read.stream.maxFilesPerTrigger", integer(1), None, "Spark: most files of a micro-batch."
)
READ_STREAM_MAX_BYTES: Final = Option[int | None](
    "read.stream.maxBytesPerTrigger", size(1), None, "Spark: most bytes of a micro-batch."
)
READ_STREAM_MAX_ROWS: Final = Option[int | None](
    "read.stream.maxRowsPerTrigger", integer(1, LONG_MAX), None, "Spark: most rows of a micro-batch."
)
READ_STREAM_MIN_ROWS: Final = Option[int | None](
    "read.stream.minRowsPerTrigger", integer(1, LONG_MAX), None, "Spark: least rows of a micro-batch."
)
READ_STREAM_MAX_DELAY: Final = Option[int | None](
    "read.stream.maxTriggerDelayMs",
    integer(0, LONG_MAX),
    None,
    "Spark: milliseconds after which a smaller micro-batch is read.",
)
SEQUENCE_NUMBER_READ: Final = Option(
    "table-read.sequence-number.enabled", BOOLEAN, False, "Show sequence numbers in $audit_log and $binlog."
)
DELETION_VECTORS_MERGE_ON_READ: Final = Option(
    "deletion-vectors.merge-on-read", BOOLEAN, False,
    "Keyed tables with deletion vectors: also read rows that no compaction has taken in yet.",
)  # fmt: skip
POSTPONE_MERGE_ON_READ: Final = Option(
    "postpone.merge-on-read", BOOLEAN, False, "Postponed buckets: also read rows that have no bucket yet."
)
BRANCH: Final = Option("branch", TEXT, "main", "Branch of the table that is opened.")

LOOKUP_ASYNC: Final = Option("lookup.async", BOOLEAN, False, "Join by lookup without waiting for each.", reserved=True)
LOOKUP_CACHE: Final = Option(
    "lookup.cache", choice("auto", "full", "memory"), "auto", "What a lookup join keeps at hand.", reserved=True
)
LOOKUP_CACHE_FILE_RETENTION: Final = Option(
    "lookup.cache-file-retention", DURATION, timedelta(hours=1), "How long unused lookup files are kept."
)
LOOKUP_CACHE_MAX_MEMORY: Final = Option(
    "lookup.cache-max-memory-size", BYTES, 256 << 20, "Most memory for lookup blocks."
)
LOOKUP_CACHE_MAX_DISK: Final = Option[int | None](
    "lookup.cache-max-disk-size", BYTES, None, "Most local disk for lookup files. Default: no limit."
)

OPTIONS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Option))
