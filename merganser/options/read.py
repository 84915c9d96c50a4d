"""Options that say what a read sees: time travel, start of a stream, increments, lookups."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from merganser.options.option import (
    BOOLEAN,
    BYTES,
    DURATION,
    FILE_NAME_PART,
    LONG,
    LONG_MAX,
    MOMENT,
    PAIR,
    TEXT,
    Option,
    State,
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
    "scan.timestamp", MOMENT, None, "Time for the mode from-timestamp, such as '2026-01-31 10:00:00'."
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
POSTPONE_MERGE_ON_READ: Final = Option(
    "postpone.merge-on-read", BOOLEAN, False, "Postponed buckets: also read rows that wait for a compaction.",
    state=State.REFUSED,
)  # fmt: skip
SCAN_FALLBACK_BRANCH: Final = Option[str | None](
    "scan.fallback-branch",
    TEXT,
    None,
    "Batch: partitions that the table lacks are read from this branch.",
    state=State.REFUSED,
)
SCAN_PRIMARY_BRANCH: Final = Option[str | None](
    "scan.primary-branch", TEXT, None, "Batch: partitions are read from this branch first.", state=State.REFUSED
)
SCAN_PLAN_SORT_PARTITION: Final = Option(
    "scan.plan-sort-partition", BOOLEAN, False, "Read partitions in the order of their values, not of their creation."
)
SCAN_MANIFEST_PARALLELISM: Final = Option[int | None](
    "scan.manifest.parallelism", integer(1), None, "How many manifests are read at the same time."
)
FILE_INDEX_READ: Final = Option("file-index.read.enabled", BOOLEAN, True, "Use file indexes to skip files.")
SOURCE_SPLIT_TARGET_SIZE: Final = Option(
    "source.split.target-size", size(1), 128 << 20, "Bytes of data that one split should hold."
)
INCREMENTAL_BETWEEN: Final = Option[str | None](
    "incremental-between", PAIR, None,
    "Batch: changes between two snapshots or tags, 'start,end': the start is not part of it, the end is.",
)  # fmt: skip
INCREMENTAL_BETWEEN_TIMESTAMP: Final = Option[str | None](
    "incremental-between-timestamp", PAIR, None,
    "Batch: changes between two times, 'start,end': milliseconds since 1970, or texts such as '2026-01-31 10:00:00'.",
)  # fmt: skip
INCREMENTAL_TO_AUTO_TAG: Final = Option[str | None](
    "incremental-to-auto-tag", TEXT, None, "Batch: changes from the automatic tag before this one up to this tag."
)
INCREMENTAL_SCAN_MODE: Final = Option(
    "incremental-between-scan-mode", choice("auto", "delta", "changelog", "diff"), "auto",
    "What the changes are. delta: files that were added. changelog: changelog files. diff: the two states compared. "
    "auto: the changelog if the table has a producer, else delta. Between tags, always diff.",
)  # fmt: skip
INCREMENTAL_TAG_TO_SNAPSHOT: Final = Option(
    "incremental-between-tag-to-snapshot",
    BOOLEAN,
    False,
    "Treat the tags of 'incremental-between' as their snapshots.",
)
CONSUMER_CHANGELOG_ONLY: Final = Option(
    "consumer.changelog-only", BOOLEAN, False, "The consumer keeps changelogs from expiring, but not snapshots."
)
STREAMING_READ_OVERWRITE: Final = Option[bool | None](
    "streaming-read-overwrite", BOOLEAN, None,
    "Readers of changes get what an overwrite, a truncate or a dropped partition changed. Not set: those of tables "
    "with a changelog producer get it. true: streams of tables without a producer, too, as rows removed and added. "
    "false: nobody does; with a producer, the commit is a gap ('change-tracking.gaps').",
)  # fmt: skip
SCAN_REMOVE_NORMALIZE: Final = Option(
    "scan.remove-normalize", BOOLEAN, False,
    "Of a table with 'log.consistency' = 'eventual': streams deliver each row as the log has it, when it is flushed "
    "and when it is committed, without old rows. Otherwise they deliver what changes, once.",
    aliases=("log.scan.remove-normalize",),
)  # fmt: skip
STREAMING_READ_SNAPSHOT_DELAY: Final = Option[timedelta | None](
    "streaming.read.snapshot.delay", DURATION, None, "Streams leave snapshots alone that are younger than this."
)
CONTINUOUS_DISCOVERY_INTERVAL: Final = Option(
    "continuous.discovery-interval", DURATION, timedelta(seconds=10), "How often a stream looks for new snapshots."
)
CHANGE_TRACKING_GAPS: Final = Option(
    "change-tracking.gaps", choice("error", "mark", "skip"), "error",
    "Ours: what a reader of changes does about a commit that published none, since change tracking was off. error: "
    "raise an error. mark: a stream hands over a Gap there, and a read names it in gaps(). skip: go on.",
)  # fmt: skip
STREAM_SCHEMA_CHANGES: Final = Option(
    "scan.schema-changes", choice("follow", "end"), "follow",
    "Ours: what a stream does when the columns of the table change. follow: go on. end: raise an error before the "
    "first commit with other columns.",
)  # fmt: skip
READ_CHANGELOG: Final = Option("read.changelog", BOOLEAN, False, "Spark: streams carry the row kind in '_row_kind'.")
STREAM_MAX_FILES: Final = Option[int | None](
    "read.stream.maxFilesPerTrigger", integer(1), None, "Spark: most files of a micro-batch."
)
STREAM_MAX_BYTES: Final = Option[int | None](
    "read.stream.maxBytesPerTrigger", size(1), None, "Spark: most bytes of a micro-batch."
)
STREAM_MAX_ROWS: Final = Option[int | None](
    "read.stream.maxRowsPerTrigger", integer(1, LONG_MAX), None, "Spark: most rows of a micro-batch."
)
STREAM_MIN_ROWS: Final = Option[int | None](
    "read.stream.minRowsPerTrigger", integer(1, LONG_MAX), None,
    "Spark: a micro-batch waits for so many rows; goes with 'read.stream.maxTriggerDelayMs'.",
)  # fmt: skip
STREAM_MAX_DELAY: Final = Option[int | None](
    "read.stream.maxTriggerDelayMs", integer(0, LONG_MAX), None,
    "Spark: milliseconds after which a smaller micro-batch is read.",
)  # fmt: skip
SCAN_BOUNDED_WATERMARK: Final = Option[int | None](
    "scan.bounded.watermark", LONG, None, "Stream: end before the first snapshot whose watermark is above this."
)
CONSUMER_ID: Final = Option[str | None](
    "consumer-id", FILE_NAME_PART, None, "Name under which a stream records how far it has read."
)
CONSUMER_IGNORE_PROGRESS: Final = Option(
    "consumer.ignore-progress",
    BOOLEAN,
    False,
    "Start as the scan options say although the consumer has progress.",
)
SEQUENCE_NUMBER_READ: Final = Option(
    "table-read.sequence-number.enabled", BOOLEAN, False, "Show sequence numbers in $audit_log and $binlog."
)
BINLOG_COLUMNS: Final = Option(
    "binlog.columns", choice("paimon", "fluss"), "paimon",
    "Ours: the columns of $binlog. paimon: rowkind, and every column as an ARRAY. fluss: _change_type, _log_offset, "
    "_commit_timestamp, and the rows before and after as ROWs.",
)  # fmt: skip
DELETION_VECTORS_MERGE_ON_READ: Final = Option(
    "deletion-vectors.merge-on-read", BOOLEAN, False,
    "Keyed tables with deletion vectors: also read rows that no compaction has taken in yet.",
)  # fmt: skip
LOOKUP_CACHE_FILE_RETENTION: Final = Option(
    "lookup.cache-file-retention", DURATION, timedelta(hours=1), "How long lookup copies are kept that nobody opens."
)
LOOKUP_CACHE_MAX_MEMORY_SIZE: Final = Option(
    "lookup.cache-max-memory-size",
    BYTES,
    256 << 20,
    "Maximum memory of a lookup handle for small files. All handles of a process together hold at most the largest of "
    "these values.",
)
LOOKUP_CACHE_MAX_DISK_SIZE: Final = Option[int | None](
    "lookup.cache-max-disk-size", BYTES, None, "Most local disk for lookup copies. Default: no limit."
)
LOOKUP_CACHE_DIRECTORY: Final = Option[str | None](
    "lookup.cache-directory",
    TEXT,
    None,
    "Directory of lookup copies on the local disk. Default: one of the user among the temporary files of the system.",
)
BRANCH: Final = Option("branch", TEXT, "main", "Branch of the table that is opened.")


OPTIONS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Option))
