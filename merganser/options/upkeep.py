"""Options that say how a table is kept in shape: compaction, expiry of snapshots and partitions, tags."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from merganser.options.option import (
    BOOLEAN,
    BYTES,
    DURATION,
    FILE_NAME_PART,
    INT_MAX,
    INTEGER,
    NUMBER,
    TEXT,
    Option,
    Options,
    choice,
    integer,
)

# compaction

NUM_LEVELS: Final = Option[int | None](
    "num-levels", integer(2), None, "Levels of a bucket. Default: 'num-sorted-run.compaction-trigger' + 1."
)
COMPACTION_TRIGGER: Final = Option(
    "num-sorted-run.compaction-trigger", integer(1), 5, "Sorted runs of a bucket at which compaction starts."
)
MAX_SIZE_AMPLIFICATION_PERCENT: Final = Option(
    "compaction.max-size-amplification-percent", integer(0), 200,
    "Compact everything when the young runs hold more than this percentage of the oldest run's bytes.",
)  # fmt: skip
SIZE_RATIO: Final = Option(
    "compaction.size-ratio", integer(0), 1, "Percentage by which a run may be larger and still join a compaction."
)
OFFPEAK_RATIO: Final = Option(
    "compaction.offpeak-ratio", integer(0), 0, "Percentage added to 'compaction.size-ratio' during off-peak hours."
)
OFFPEAK_START_HOUR: Final = Option(
    "compaction.offpeak.start.hour", integer(-1, 23), -1, "Hour of the day (UTC) when off-peak begins; -1 is off."
)
OFFPEAK_END_HOUR: Final = Option(
    "compaction.offpeak.end.hour", integer(-1, 23), -1, "Hour of the day (UTC) when off-peak ends; -1 is off."
)
OPTIMIZATION_INTERVAL: Final = Option[timedelta | None](
    "compaction.optimization-interval", DURATION, None, "Time after which everything is compacted again."
)
TOTAL_SIZE_THRESHOLD: Final = Option[int | None](
    "compaction.total-size-threshold", BYTES, None, "Compact everything while a bucket has fewer bytes than this."
)
INCREMENTAL_SIZE_THRESHOLD: Final = Option[int | None](
    "compaction.incremental-size-threshold", BYTES, None,
    "Compact everything when runs below the highest level hold more bytes than this.",
)  # fmt: skip
COMPACTION_MIN_FILE_NUM: Final = Option(
    "compaction.min.file-num", integer(1), 5, "Tables without a key: least number of files to join into one."
)
SMALL_FILE_RATIO: Final = Option(
    "compaction.small-file-ratio", NUMBER, 0.7, "Share of 'target-file-size' below which a file is small."
)
DELETE_RATIO_THRESHOLD: Final = Option(
    "compaction.delete-ratio-threshold", NUMBER, 0.2,
    "Tables without a key: share of deleted rows above which a file is rewritten.",
)  # fmt: skip
FORCE_REWRITE_ALL_FILES: Final = Option(
    "compaction.force-rewrite-all-files", BOOLEAN, False, "A full compaction rewrites files that need no merge too."
)
FORCE_UP_LEVEL_0: Final = Option(
    "compaction.force-up-level-0", BOOLEAN, False, "Every compaction includes all of level 0."
)
FULL_COMPACTION_DELTA_COMMITS: Final = Option[int | None](
    "full-compaction.delta-commits", integer(1), None,
    "Compact everything after so many commits. Default: 1 with the changelog producer full-compaction, unless "
    "'changelog-producer.compaction-interval' is set; otherwise never.",
)  # fmt: skip
CHANGELOG_COMPACTION_INTERVAL: Final = Option(
    "changelog-producer.compaction-interval", DURATION, timedelta(0),
    "Time between full compactions of a bucket, for the changelog producer full-compaction. 0: the number of commits "
    "decides, see 'full-compaction.delta-commits'.",
)  # fmt: skip
FORCE_LOOKUP: Final = Option(
    "force-lookup", BOOLEAN, False, "Compact level 0 with lookups, with any merge engine.", immutable=True
)
LOOKUP_WAIT: Final = Option(
    "lookup-wait", BOOLEAN, True, "Commits wait until the compaction that looks rows up has taken in level 0.",
    aliases=("changelog-producer.lookup-wait",),
)  # fmt: skip
LOOKUP_COMPACT: Final = Option(
    "lookup-compact", choice("radical", "gentle"), "radical",
    "How often level 0 is looked up. radical: at every commit. gentle: every 'lookup-compact.max-interval' commits.",
)  # fmt: skip
LOOKUP_COMPACT_MAX_INTERVAL: Final = Option[int | None](
    "lookup-compact.max-interval", integer(1), None,
    "Most commits between two lookups of level 0. Default: twice 'num-sorted-run.compaction-trigger'.",
)  # fmt: skip
RECORD_LEVEL_EXPIRE_TIME: Final = Option[timedelta | None](
    "record-level.expire-time", DURATION, None, "Age at which compaction drops a row; see 'record-level.time-field'."
)
TOMBSTONE_TIME_RETAINED: Final = Option[timedelta | None](
    "tombstone.time-retained", DURATION, None,
    "How long a delete outlives the compaction of all that is older, so that late rows lose against it. Default: 1 d "
    "where columns order rows ('sequence.field', sequence groups); elsewhere no row is late, and deletes go at once.",
)  # fmt: skip
RECORD_LEVEL_TIME_FIELD: Final = Option[str | None](
    "record-level.time-field", TEXT, None,
    "Column that holds the time of a row: INT (seconds), BIGINT (seconds or milliseconds) or a timestamp.",
)  # fmt: skip

# snapshots, changelogs, consumers

SNAPSHOT_NUM_RETAINED_MIN: Final = Option(
    "snapshot.num-retained.min", INTEGER, 10, "Least number of snapshots that are kept, at any age."
)
SNAPSHOT_NUM_RETAINED_MAX: Final = Option(
    "snapshot.num-retained.max", INTEGER, INT_MAX, "Most snapshots that are kept."
)
SNAPSHOT_TIME_RETAINED: Final = Option(
    "snapshot.time-retained", DURATION, timedelta(hours=1), "How long snapshots are kept."
)
SNAPSHOT_EXPIRE_LIMIT: Final = Option(
    "snapshot.expire.limit", integer(1), 50, "Most snapshots that one run of expiry removes."
)
SNAPSHOT_EXPIRE_EXECUTION_MODE: Final = Option(
    "snapshot.expire.execution-mode", choice("sync", "async"), "sync", "Whether a commit waits for expiry."
)
SNAPSHOT_CLEAN_EMPTY_DIRECTORIES: Final = Option(
    "snapshot.clean-empty-directories", BOOLEAN, False, "Expiry removes directories that it has emptied.",
    aliases=("snapshot.expire.clean-empty-directories",),
)  # fmt: skip
CHANGELOG_NUM_RETAINED_MIN: Final = Option[int | None](
    "changelog.num-retained.min", INTEGER, None,
    "Least number of changelogs that are kept. Default: 'snapshot.num-retained.min'.",
)  # fmt: skip
CHANGELOG_NUM_RETAINED_MAX: Final = Option[int | None](
    "changelog.num-retained.max", INTEGER, None, "Most changelogs that are kept. Default: 'snapshot.num-retained.max'."
)
CHANGELOG_TIME_RETAINED: Final = Option[timedelta | None](
    "changelog.time-retained", DURATION, None, "How long changelogs are kept. Default: 'snapshot.time-retained'."
)
CONSUMER_EXPIRATION_TIME: Final = Option[timedelta | None](
    "consumer.expiration-time", DURATION, None, "Time without progress after which a consumer is removed."
)

# tags

TAG_AUTOMATIC_CREATION: Final = Option(
    "tag.automatic-creation", choice("none", "process-time", "watermark", "batch"), "none",
    "Make tags automatically: by the clock, by the watermark, or after each batch job.",
)  # fmt: skip
TAG_CREATE_SUCCESS_FILE: Final = Option(
    "tag.create-success-file", BOOLEAN, False, "Write a marker file for every automatic tag."
)
TAG_CREATION_PERIOD: Final = Option(
    "tag.creation-period", choice("daily", "hourly", "two-hours"), "daily", "How often automatic tags are made."
)
TAG_CREATION_PERIOD_DURATION: Final = Option[timedelta | None](
    "tag.creation-period-duration", DURATION, None, "How often automatic tags are made, as a duration."
)
TAG_CREATION_DELAY: Final = Option[timedelta](
    "tag.creation-delay", DURATION, timedelta(0), "How long after the end of a period its tag is made."
)
TAG_PERIOD_FORMATTER: Final = Option(
    "tag.period-formatter", choice("with-dashes", "without-dashes", "without-dashes-and-spaces"), "with-dashes",
    "How the names of automatic tags are written.",
)  # fmt: skip
TAG_NUM_RETAINED_MAX: Final = Option[int | None](
    "tag.num-retained-max", integer(1), None, "Most automatic tags that are kept."
)
TAG_DEFAULT_TIME_RETAINED: Final = Option[timedelta | None](
    "tag.default-time-retained", DURATION, None, "How long a tag is kept if it sets no time of its own."
)
TAG_AUTOMATIC_COMPLETION: Final = Option(
    "tag.automatic-completion", BOOLEAN, False, "Make tags of periods that were missed."
)
TAG_BATCH_CUSTOMIZED_NAME: Final = Option[str | None](
    "tag.batch.customized-name", FILE_NAME_PART, None, "Name of the tags that batch jobs make."
)

# partitions

PARTITION_EXPIRATION_TIME: Final = Option[timedelta | None](
    "partition.expiration-time", DURATION, None, "Age at which a partition is dropped."
)
PARTITION_EXPIRATION_CHECK_INTERVAL: Final = Option(
    "partition.expiration-check-interval", DURATION, timedelta(hours=1), "How often partitions are checked for expiry."
)
PARTITION_EXPIRATION_STRATEGY: Final = Option(
    "partition.expiration-strategy", choice("values-time", "update-time", "custom"), "values-time",
    "Age of a partition: by its values, or by its last change.",
    refused=("custom",),
)  # fmt: skip
PARTITION_EXPIRATION_MAX_NUM: Final = Option(
    "partition.expiration-max-num", integer(1), 100, "Most partitions that one run drops."
)
PARTITION_EXPIRATION_BATCH_SIZE: Final = Option[int | None](
    "partition.expiration-batch-size", integer(1), None, "Partitions that one commit of expiry drops."
)
PARTITION_TIMESTAMP_PATTERN: Final = Option[str | None](
    "partition.timestamp-pattern", TEXT, None,
    "Text that gives the time of a partition, such as '$dt $hour:00:00'. Default: the first partition column.",
)  # fmt: skip
PARTITION_TIMESTAMP_FORMATTER: Final = Option[str | None](
    "partition.timestamp-formatter", TEXT, None,
    "Form of that text, such as 'yyyyMMdd'. Default: 'yyyy-MM-dd', with or without ' HH:mm:ss'.",
)  # fmt: skip

OPTIONS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Option))


def tag_period(options: Options) -> timedelta:
    """Return how much time each automatic tag stands for."""
    length = options.get(TAG_CREATION_PERIOD_DURATION)
    return _TAG_PERIODS[options.get(TAG_CREATION_PERIOD)] if length is None else length


_TAG_PERIODS: Final = {"daily": timedelta(days=1), "hourly": timedelta(hours=1), "two-hours": timedelta(hours=2)}
