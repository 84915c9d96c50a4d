"""Options that say what a row of the table is, how rows are merged, and how files are written."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from merganser.options.option import (
    BOOLEAN,
    BYTES,
    COLUMNS,
    DIRECTORY,
    DURATION,
    FILE_NAME_PART,
    LONG,
    LONG_MAX,
    PARTITION_SPECS,
    SHARE,
    STATS_MODE,
    TEXT,
    ColumnOption,
    Option,
    Options,
    State,
    choice,
    integer,
    levels,
    size,
)

_NO_COLUMNS: Final[tuple[str, ...]] = ()
_NO_LEVELS: Final[Mapping[int, str]] = MappingProxyType({})
_MB: Final = 1 << 20
FILE_INDEX_BLOOM: Final = "file-index.bloom-filter"
"""What options of Bloom filters begin with."""
COMPRESSIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "parquet": ("zstd", "snappy", "lz4", "gzip", "none", "uncompressed"),
    "orc": ("zstd", "snappy", "lz4", "gzip", "zlib", "none", "uncompressed"),
    "avro": ("zstd", "zstandard", "snappy", "lz4", "gzip", "deflate", "none", "uncompressed", "null"),
})  # fmt: skip
"""The compressions that each format of data files can be written with."""
_COMPRESSION: Final = choice(*dict.fromkeys(name for names in COMPRESSIONS.values() for name in names))

# keys, buckets, partitions

TYPE: Final = Option(
    "type", TEXT, "table",
    "Kind of the table. merganser reads and writes 'table'; format tables, object tables and views are other things.",
    immutable=True, state=State.REFUSED,
)  # fmt: skip
PATH: Final = Option[str | None]("path", TEXT, None, "Path of the table. Engines set it; merganser never stores it.")
PRIMARY_KEY: Final = Option(
    "primary-key", COLUMNS, _NO_COLUMNS,
    "Primary key columns, as an option of the new table. merganser moves them into the schema.",
    immutable=True,
)  # fmt: skip
PARTITION: Final = Option(
    "partition", COLUMNS, _NO_COLUMNS,
    "Partition columns, as an option of the new table. merganser moves them into the schema.",
    immutable=True,
)  # fmt: skip
PRIMARY_KEY_NULLABLE: Final = Option(
    "primary-key.nullable", BOOLEAN, False, "Let key columns be null; nulls are equal as keys.", immutable=True
)
BUCKET: Final = Option(
    "bucket", integer(), -1,
    "Number of buckets of each partition. -1: with a primary key, buckets are added as keys arrive; without one, "
    "rows have no bucket. -2: the number is decided when the table is first compacted.",
)  # fmt: skip
DYNAMIC_BUCKET_TARGET_ROW_NUM: Final = Option(
    "dynamic-bucket.target-row-num", integer(1, LONG_MAX), 2_000_000,
    "Dynamic buckets: keys of a bucket before another one is added.",
)  # fmt: skip
DYNAMIC_BUCKET_INITIAL_BUCKETS: Final = Option(
    "dynamic-bucket.initial-buckets", integer(1), None,
    "Dynamic buckets: how many tasks of one write give the keys of a partition their buckets, at most; each adds "
    "buckets of its own. Default: 'dynamic-bucket.assigner-parallelism'.",
    immutable=True,
)  # fmt: skip
DYNAMIC_BUCKET_MAX_BUCKETS: Final = Option(
    "dynamic-bucket.max-buckets",
    integer(1, no_limit=-1),
    -1,
    "Dynamic buckets: most buckets of a partition; -1 has no limit.",
)
DYNAMIC_BUCKET_ASSIGNER_PARALLELISM: Final = Option(
    "dynamic-bucket.assigner-parallelism", integer(1), None,
    "Dynamic buckets: how many tasks of a write on Spark give keys their buckets. Default: one per core.",
)  # fmt: skip
POSTPONE_DEFAULT_BUCKET_NUM: Final = Option(
    "postpone.default-bucket-num", integer(1), None,
    "Postponed buckets: number of buckets of a partition that has none yet. Default: 1 for batch writes; compactions "
    "choose it by the rows that wait.",
)  # fmt: skip
POSTPONE_TARGET_ROW_NUM: Final = Option(
    "postpone.target-row-num-per-bucket", integer(1, LONG_MAX), None,
    "Postponed buckets: rows that one bucket should hold, where 'postpone.default-bucket-num' is not set.",
)  # fmt: skip
POSTPONE_TARGET_SIZE: Final = Option(
    "postpone.target-size-per-bucket", size(1), 1 << 30,
    "Postponed buckets: bytes that one bucket should hold, where neither of the two options above is set.",
)  # fmt: skip
POSTPONE_BATCH_WRITE_FIXED_BUCKET: Final = Option(
    "postpone.batch-write-fixed-bucket", BOOLEAN, True,
    "Postponed buckets: batch writes put rows into buckets at once instead of leaving them for compaction.",
)  # fmt: skip
BUCKET_KEY: Final = Option(
    "bucket-key", COLUMNS, _NO_COLUMNS,
    "Columns whose hash chooses the bucket. Default: the primary key without the partition columns.",
    immutable=True,
)  # fmt: skip
BUCKET_FUNCTION: Final = Option(
    "bucket-function.type", choice("default", "mod", "hive"), "default",
    "How the bucket is computed. mod: one INT or BIGINT bucket key column, modulo the number of buckets. "
    "hive: as Apache Hive does.",
    immutable=True,
)  # fmt: skip
PARTITION_DEFAULT_NAME: Final = Option(
    "partition.default-name", TEXT, "__DEFAULT_PARTITION__", "Directory value of a null or blank partition value."
)
PARTITION_LEGACY_NAME: Final = Option(
    "partition.legacy-name", BOOLEAN, True,
    "Name partition directories as older engines do (dates as day numbers). false: as SQL text.",
)  # fmt: skip
PK_CLUSTERING_OVERRIDE: Final = Option(
    "pk-clustering-override", BOOLEAN, False,
    "Sort files of a keyed table by clustering columns instead of the key.",
    immutable=True, state=State.REFUSED,
)  # fmt: skip
CLUSTERING_COLUMNS: Final = Option(
    "clustering.columns", COLUMNS, _NO_COLUMNS, "Columns by which files are clustered.",
    aliases=("sink.clustering.by-columns",),
    state=State.KEPT,
)  # fmt: skip
ROW_TRACKING: Final = Option(
    "row-tracking.enabled",
    BOOLEAN,
    False,
    "Give every row of a table without a key an id that stays.",
    immutable=True,
    state=State.REFUSED,
)
DATA_EVOLUTION: Final = Option(
    "data-evolution.enabled", BOOLEAN, False,
    "Write changed columns as files of their own beside the rows. Needs 'row-tracking.enabled'.",
    immutable=True, state=State.REFUSED,
)  # fmt: skip
BLOB_FIELD: Final = Option(
    "blob-field", COLUMNS, _NO_COLUMNS, "Columns stored as large binary objects.", immutable=True, state=State.REFUSED
)

# merging

MERGE_ENGINE: Final = Option(
    "merge-engine", choice("deduplicate", "partial-update", "aggregation", "first-row"), "deduplicate",
    "How rows with the same primary key become one. deduplicate: the last row. partial-update: the newest value of "
    "each column that is not null. aggregation: one function per column. first-row: the first row.",
    immutable=True,
)  # fmt: skip
SEQUENCE_FIELD: Final = Option(
    "sequence.field", COLUMNS, _NO_COLUMNS,
    "Columns that order rows of one key before their order of arrival; the largest is the newest.",
)  # fmt: skip
SEQUENCE_FIELD_SORT_ORDER: Final = Option(
    "sequence.field.sort-order", choice("ascending", "descending"), "ascending",
    "descending: the smallest sequence field is the newest.",
)  # fmt: skip
SEQUENCE_AUTO_PADDING: Final = Option(
    "sequence.auto-padding", COLUMNS, _NO_COLUMNS,
    "Of older releases: how equal values of 'sequence.field' were told apart "
    "(row-kind-flag, second-to-micro, millis-to-micro). Only row-kind-flag has an effect.",
)  # fmt: skip
SEQUENCE_SNAPSHOT_ORDERING: Final = Option(
    "sequence.snapshot-ordering", BOOLEAN, False,
    "Order rows of one key by the snapshot that wrote them. Needs 'write-only'; excludes 'sequence.field'.",
    immutable=True, state=State.REFUSED,
)  # fmt: skip
ROWKIND_FIELD: Final = Option[str | None](
    "rowkind.field", TEXT, None,
    "STRING column that holds the row kind (+I, -U, +U, -D) of each row, instead of the kind it came with.",
    immutable=True,
)  # fmt: skip
IGNORE_DELETE: Final = Option(
    "ignore-delete", BOOLEAN, False,
    "Drop rows of kind -U and -D when they are written.",
    aliases=("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
    refused=("true in deduplicate tables whose keys may move between partitions",),
)  # fmt: skip
IGNORE_UPDATE_BEFORE: Final = Option(
    "ignore-update-before", BOOLEAN, False, "Drop rows of kind -U when they are written."
)
DEFAULT_AGGREGATE_FUNCTION: Final = Option[str | None](
    "fields.default-aggregate-function", TEXT, None, "Aggregate function of columns that have none of their own."
)
AGGREGATION_REMOVE_RECORD_ON_DELETE: Final = Option(
    "aggregation.remove-record-on-delete", BOOLEAN, False, "aggregation: a row of kind -D removes the whole row.",
    immutable=True,
)  # fmt: skip
PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE: Final = Option(
    "partial-update.remove-record-on-delete", BOOLEAN, False,
    "partial-update: a row of kind -D removes the whole row.",
    immutable=True,
)  # fmt: skip
PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP: Final = Option(
    "partial-update.remove-record-on-sequence-group", COLUMNS, _NO_COLUMNS,
    "partial-update: a row of kind -D removes the whole row when it is the newest of one of these sequence groups, "
    "named by their ordering columns.",
    immutable=True,
)  # fmt: skip
WRITE_MODE: Final = Option[str | None](
    "write-mode", choice("auto", "append-only", "change-log"), None,
    "Of older releases. append-only: no primary key, inserts only. change-log: a table without a key counts equal "
    "rows, so rows can be deleted.",
    refused=("change-log as older releases stored it",),
)  # fmt: skip

ASKED_ENGINE: Final = Option[str | None](
    "merganser.merge-engine", choice("versioned"), None,
    "Ours: the requested merge engine, if the format has another name for it. versioned: stored as "
    "deduplicate ordered by the version column.",
    immutable=True,
)  # fmt: skip
DELETES: Final = Option(
    "merganser.deletes", choice("take", "refuse"), "take",
    "Ours: take: accept rows of kind -U and -D. refuse: raise an error.",
)  # fmt: skip

AGGREGATE_FUNCTION: Final = ColumnOption[str | None](
    "aggregate-function", TEXT, None, "Function that folds the values of the column, such as sum or last_value.",
)  # fmt: skip
IGNORE_RETRACT: Final = ColumnOption(
    "ignore-retract", BOOLEAN, False, "Leave the column as it is when a row is retracted."
)
DISTINCT: Final = ColumnOption("distinct", BOOLEAN, False, "collect and listagg: keep every element once.")
LIST_AGG_DELIMITER: Final = ColumnOption("list-agg-delimiter", TEXT, ",", "listagg: text between the elements.")
NESTED_KEY: Final = ColumnOption(
    "nested-key", COLUMNS, _NO_COLUMNS, "nested_update: fields of a nested row that are its key."
)
NESTED_KEY_NULL_STRATEGY: Final = ColumnOption(
    "nested-key-null-strategy", choice("merge", "ignore", "error"), "merge",
    "nested_update: what to do with a nested row whose key is null.",
)  # fmt: skip
NESTED_SEQUENCE_FIELD: Final = ColumnOption(
    "nested-sequence-field", COLUMNS, _NO_COLUMNS, "nested_update: fields that order nested rows of one key."
)
COUNT_LIMIT: Final = ColumnOption[int | None](
    "count-limit", integer(1), None, "nested_update: most nested rows that a column holds."
)
TS_FIELD: Final = ColumnOption[str | None](
    "ts-field", TEXT, None, "merge_map_with_keytime: field that holds the time of an entry. Default: the last field."
)
SEQUENCE_GROUP: Final = ColumnOption(
    "sequence-group", COLUMNS, _NO_COLUMNS,
    "partial-update: columns that change together, and only when the ordering columns are not older than before.",
)  # fmt: skip
DEFAULT_VALUE: Final = ColumnOption[str | None](
    "default-value", TEXT, None, "Value of the column in rows that come without it, as the text of a literal."
)
COLUMN_STATS_MODE: Final = ColumnOption[str | None](
    "stats-mode", STATS_MODE, None, "Statistics kept of the column; see 'metadata.stats-mode'."
)

# changelog

CHANGELOG_PRODUCER: Final = Option(
    "changelog-producer", choice("none", "input", "lookup", "full-compaction", "per-record"), "none",
    "How the changelog is made. none: not made. input: rows as they arrive. lookup: by looking up the row that was "
    "there before. full-compaction: by comparing the table before and after a full compaction. per-record, ours: what "
    "each single row changed; stored as input, which is what it is to other engines.",
)  # fmt: skip
ASKED_PRODUCER: Final = Option[str | None](
    "merganser.changelog-producer", choice("per-record"), None,
    "Ours: the requested changelog producer, if the format has another name for it. per-record: stored as input.",
)  # fmt: skip
CHANGELOG_IMAGE: Final = Option(
    "changelog.image", choice("full", "wal"), "full",
    "Ours, for producer per-record: what an update publishes. full: the row before and the row after. wal: the row "
    "after.",
    aliases=("table.changelog.image",),
)  # fmt: skip
CHANGE_TRACKING: Final = Option(
    "change-tracking", BOOLEAN, True,
    "false: commits publish no changes, and readers of changes are told so. For the table, or one handle that writes.",
)  # fmt: skip
CHANGE_TRACKING_OFF: Final = Option[tuple[tuple[str, ...], ...]](
    "change-tracking.off-partitions", PARTITION_SPECS, (),
    "Ours: partitions whose changes commits do not publish. A partition may be named by some of its columns.",
)  # fmt: skip
CHANGELOG_ROW_DEDUPLICATE: Final = Option(
    "changelog-producer.row-deduplicate", BOOLEAN, False,
    "Leave updates that change nothing out of the changelog (producers lookup, full-compaction and per-record).",
)  # fmt: skip
CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS: Final = Option(
    "changelog-producer.row-deduplicate-ignore-fields", COLUMNS, _NO_COLUMNS,
    "Columns that 'changelog-producer.row-deduplicate' does not compare.",
)  # fmt: skip
CHANGELOG_FILE_FORMAT: Final = Option[str | None](
    "changelog-file.format",
    choice("parquet", "orc", "avro"),
    None,
    "Format of changelog files. Default: 'file.format'.",
)
CHANGELOG_FILE_COMPRESSION: Final = Option[str | None](
    "changelog-file.compression",
    _COMPRESSION,
    None,
    "Compression of changelog files. Default: 'file.compression'.",
)
CHANGELOG_FILE_STATS_MODE: Final = Option[str | None](
    "changelog-file.stats-mode",
    STATS_MODE,
    None,
    "Statistics kept of changelog files. Default: 'metadata.stats-mode'.",
)
CHANGELOG_FILE_PREFIX: Final = Option(
    "changelog-file.prefix", FILE_NAME_PART, "changelog-", "How names of changelog files begin."
)

# files

FILE_FORMAT: Final = Option(
    "file.format", choice("parquet", "orc", "avro", "json", "csv", "row", "lance", "blob"), "parquet",
    "Format of data files: parquet, orc or avro. Avro has no VARIANT, no TIME above 3 and no timestamps above 6 "
    "fraction digits, and its names of columns are letters, digits and underscores.",
    refused=("json", "csv", "row", "lance", "blob"),
)  # fmt: skip
FILE_FORMAT_PER_LEVEL: Final = Option[Mapping[int, str]](
    "file.format.per.level",
    levels(choice(*COMPRESSIONS), "0:avro,5:parquet"),
    _NO_LEVELS,
    "Format of data files by level, such as '0:avro,5:parquet'.",
)
FILE_COMPRESSION: Final = Option(
    "file.compression", _COMPRESSION, "zstd", "Compression of data files; not every format has all."
)
FILE_COMPRESSION_PER_LEVEL: Final = Option[Mapping[int, str]](
    "file.compression.per.level",
    levels(_COMPRESSION, "0:lz4,5:zstd"),
    _NO_LEVELS,
    "Compression of data files by level, such as '0:lz4,5:zstd'.",
)
FILE_COMPRESSION_ZSTD_LEVEL: Final = Option(
    "file.compression.zstd-level", integer(1, 22), 1, "Effort of zstd compression, 1 (fast) to 22 (small)."
)
FILE_BLOCK_SIZE: Final = Option[int | None](
    "file.block-size", size(1), None,
    "Bytes in memory at which a block (Parquet row group, ORC stripe) ends. Default: 32 MB.",
)  # fmt: skip
FILE_SUFFIX_INCLUDE_COMPRESSION: Final = Option(
    "file.suffix.include.compression", BOOLEAN, False, "Put the compression into the names of data files."
)
DATA_FILE_PREFIX: Final = Option("data-file.prefix", FILE_NAME_PART, "data-", "How names of data files begin.")
DATA_FILE_THIN_MODE: Final = Option(
    "data-file.thin-mode", BOOLEAN, False, "Do not store key columns twice in files of keyed tables."
)
DATA_FILE_PATH_DIRECTORY: Final = Option[str | None](
    "data-file.path-directory", DIRECTORY, None, "Directory below the table for partitions and buckets.", immutable=True
)
DATA_FILE_EXTERNAL_PATHS: Final = Option[str | None](
    "data-file.external-paths",
    TEXT,
    None,
    "Places outside the table where data files are written.",
    state=State.REFUSED,
)
INDEX_FILE_IN_DATA_FILE_DIR: Final = Option(
    "index-file-in-data-file-dir", BOOLEAN, False, "Keep index files beside the data files.", immutable=True
)
TARGET_FILE_SIZE: Final = Option[int | None](
    "target-file-size", size(1), None,
    "Bytes after which a new data file is begun. Default: 128 MB with a primary key, 256 MB without.",
)  # fmt: skip
TARGET_FILE_ROW_NUM: Final = Option(
    "target-file-row-num", integer(1, LONG_MAX), LONG_MAX, "Rows after which a new data file is begun."
)
MANIFEST_FORMAT: Final = Option(
    "manifest.format", choice("avro", "parquet", "orc"), "avro", "Format of manifests.", state=State.REFUSED
)
MANIFEST_COMPRESSION: Final = Option(
    "manifest.compression", choice(*COMPRESSIONS["avro"]), "zstd", "Compression of manifests."
)
MANIFEST_TARGET_FILE_SIZE: Final = Option(
    "manifest.target-file-size", size(1), 8 * _MB, "Bytes that a manifest should reach when manifests are merged."
)
MANIFEST_FULL_COMPACTION_SIZE: Final = Option(
    "manifest.full-compaction-threshold-size", BYTES, 16 * _MB, "Bytes of small manifests at which all are rewritten.",
    aliases=("manifest.full-compaction-file-size",),
)  # fmt: skip
MANIFEST_MERGE_MIN_COUNT: Final = Option(
    "manifest.merge-min-count", integer(1), 30, "Number of small manifests that are merged into one."
)
STATS_MODE_OPTION: Final = Option(
    "metadata.stats-mode", STATS_MODE, "truncate(16)",
    "Statistics of columns that manifests keep: none, counts (of nulls), truncate(n) (min and max cut to n "
    "characters), full.",
)  # fmt: skip
STATS_MODE_PER_LEVEL: Final = Option[Mapping[int, str]](
    "metadata.stats-mode.per.level", levels(STATS_MODE, "0:none"), _NO_LEVELS, "Statistics by level, such as '0:none'."
)
STATS_DENSE_STORE: Final = Option(
    "metadata.stats-dense-store", BOOLEAN, True, "Store only columns that have statistics."
)
STATS_KEEP_FIRST_N_COLUMNS: Final = Option(
    "metadata.stats-keep-first-n-columns", integer(-1), -1, "Keep statistics of the first n columns only; -1: of all."
)
FILE_INDEX_BLOOM_COLUMNS: Final = Option(
    "file-index.bloom-filter.columns", COLUMNS, _NO_COLUMNS,
    "Columns of which each data file has a Bloom filter, so that reads with '=' and 'IN' skip files.",
)  # fmt: skip
FILE_INDEX_BLOOM_ITEMS: Final = ColumnOption[int | None](
    "items", integer(1), None,
    "Different values in a file that the filter of the column is made for. Default: the rows of the file that have "
    "one, at most a million.",
    family=FILE_INDEX_BLOOM,
)  # fmt: skip
FILE_INDEX_BLOOM_FPP: Final = ColumnOption(
    "fpp", SHARE, 0.1, "Share of other values that the filter of the column may take for its own.",
    family=FILE_INDEX_BLOOM,
)  # fmt: skip
FILE_INDEX_IN_MANIFEST: Final = Option(
    "file-index.in-manifest-threshold", BYTES, 500,
    "Bytes up to which the index of a data file lies in the manifest; a larger one is a file beside the data file.",
)  # fmt: skip
DELETION_VECTORS: Final = Option(
    "deletion-vectors.enabled", BOOLEAN, False, "Mark deleted rows in a file of their own instead of rewriting files."
)
DELETION_VECTORS_BITMAP64: Final = Option(
    "deletion-vectors.bitmap64", BOOLEAN, False, "Deletion vectors for files of more than two billion rows."
)
DELETION_VECTORS_TARGET_SIZE: Final = Option(
    "deletion-vector.index-file.target-size", size(1), 2 * _MB, "Bytes that a file of deletion vectors should reach."
)

# writing and committing

WRITE_ONLY: Final = Option(
    "write-only", BOOLEAN, False,
    "Writers neither compact nor expire; a job of its own does.",
    aliases=("write.compaction-skip",),
)  # fmt: skip
WRITE_BUFFER_SIZE: Final = Option(
    "write-buffer-size", size(1), 256 * _MB, "Bytes that a writer collects before it sorts and writes them."
)
DYNAMIC_PARTITION_OVERWRITE: Final = Option(
    "dynamic-partition-overwrite", BOOLEAN, True,
    "INSERT OVERWRITE replaces only partitions that receive rows. false: all that the statement names.",
)  # fmt: skip
OVERWRITE_UPGRADE: Final = Option(
    "overwrite-upgrade", BOOLEAN, True, "Files of an overwrite go to the highest level when their keys do not overlap."
)
COMMIT_MAX_RETRIES: Final = Option(
    "commit.max-retries", integer(0), 10,
    "How often a commit that lost a race tries again. It tries more often until so many doubling waits would be over.",
)  # fmt: skip
COMMIT_MIN_RETRY_WAIT: Final = Option(
    "commit.min-retry-wait", DURATION, timedelta(milliseconds=10), "Shortest wait before a commit tries again."
)
COMMIT_MAX_RETRY_WAIT: Final = Option(
    "commit.max-retry-wait", DURATION, timedelta(seconds=10), "Longest wait before a commit tries again."
)
COMMIT_TIMEOUT: Final = Option[timedelta | None](
    "commit.timeout", DURATION, None, "How long a commit tries before it gives up. Default: as often as it may."
)
COMMIT_FORCE_CREATE_SNAPSHOT: Final = Option(
    "commit.force-create-snapshot", BOOLEAN, False, "A commit without changes makes a snapshot too."
)
COMMIT_STRICT_LAST_SAFE_SNAPSHOT: Final = Option[int | None](
    "commit.strict-mode.last-safe-snapshot", LONG, None,
    "Fail a commit when after this snapshot another user compacted, overwrote, or added rows to fixed buckets. "
    "A writer goes on from each of its own commits; -1 starts with the first of them.",
)  # fmt: skip
COMMIT_USER_PREFIX: Final = Option[str | None](
    "commit.user-prefix", TEXT, None, "Prefix of the commit user that merganser makes for a writer."
)
SNAPSHOT_IGNORE_EMPTY_COMMIT: Final = Option[bool | None](
    "snapshot.ignore-empty-commit", BOOLEAN, None, "false: a batch commit without changes makes a snapshot too."
)
DELETE_FORCE_PRODUCE_CHANGELOG: Final = Option(
    "delete.force-produce-changelog", BOOLEAN, False,
    "Publish every row that a DELETE removes, instead of dropping whole partitions silently.",
)  # fmt: skip
SINK_PARALLELISM: Final = Option[int | None]("sink.parallelism", integer(1), None, "How many tasks write.")

# the shard stream

STREAM_ENABLED: Final = Option(
    "stream.enabled", BOOLEAN, False,
    "Ours: the table keeps a shard stream of its changes; see `Table.enable_stream`.",
)  # fmt: skip
STREAM_RETENTION: Final = Option(
    "stream.retention", DURATION, timedelta(hours=24),
    "Ours: how long the records of the shard stream can be read.",
)  # fmt: skip
STREAM: Final = Option[str | None](
    "merganser.stream", TEXT, None,
    "Ours: the id of the shard stream, and where it began. Written when the stream is enabled.",
)  # fmt: skip

# changing the schema

PRIMARY_KEY_SINCE: Final = Option[str | None](
    "merganser.primary-key-since", TEXT, None,
    "Ours: the schema with which a table that had rows got its primary key. Written by that change.",
)  # fmt: skip

ADD_COLUMN_BEFORE_PARTITION: Final = Option(
    "add-column-before-partition", BOOLEAN, False, "Put new columns before the first partition column."
)
DISABLE_EXPLICIT_TYPE_CASTING: Final = Option(
    "disable-explicit-type-casting", BOOLEAN, False, "Allow only changes of a column's type that lose nothing."
)
NULL_TO_NOT_NULL_DISABLED: Final = Option(
    "alter-column-null-to-not-null.disabled", BOOLEAN, True, "Refuse to make a nullable column NOT NULL."
)
TIMESTAMP_PRECISION: Final = Option(
    "write.timestamp-precision", choice("refuse", "truncate"), "refuse",
    "What happens to values with more fraction digits than a TIME or TIMESTAMP column stores. refuse: the write fails. "
    "truncate: digits that the column does not store are dropped.",
)  # fmt: skip
MERGE_SCHEMA: Final = Option(
    "write.merge-schema", BOOLEAN, False,
    "Add columns of the data that the table lacks. Columns that the data lacks get their default or null.",
)  # fmt: skip
MERGE_SCHEMA_CASTING: Final = Option(
    "write.merge-schema.explicit-cast", BOOLEAN, False,
    "With 'write.merge-schema': give columns the types of the data, also those that lose something.",
)  # fmt: skip
MERGE_SCHEMA_WIDENING: Final = Option(
    "write.merge-schema.type-widening", BOOLEAN, False,
    "With 'write.merge-schema': give columns the types of the data that hold more, such as BIGINT for INT.",
)  # fmt: skip
DELETION_VECTORS_MODIFIABLE: Final = Option(
    "deletion-vectors.modifiable", BOOLEAN, False, "Let 'deletion-vectors.enabled' change after the table has data."
)

# log beside the files

LOG_SYSTEM: Final = Option(
    "log.system",
    choice("none", "kafka"),
    "none",
    "Log that readers follow with less delay than the files.",
)
LOG_CONSISTENCY: Final = Option(
    "log.consistency", choice("transactional", "eventual"), "transactional",
    "When readers of the log see rows. transactional: after their commit. eventual: when the writer has flushed them, "
    "so a row may be seen that is never committed, and is taken back then. For tables with a primary key.",
)  # fmt: skip
LOG_UNCOMMITTED_TIMEOUT: Final = Option(
    "log.uncommitted-timeout", DURATION, timedelta(minutes=10),
    "With 'log.consistency' = 'eventual': how long readers show a row that was flushed and is not committed.",
)  # fmt: skip
LOG_CHANGELOG_MODE: Final = Option(
    "log.changelog-mode", choice("auto", "all", "upsert"), "auto",
    "Rows in the log. all: every kind. upsert: no -U, and deletes by key. auto: upsert if the "
    "newest row of a key is the row of the table: merge engine deduplicate, no sequence field, no changelog producer.",
)  # fmt: skip
KAFKA_BOOTSTRAP_SERVERS: Final = Option[str | None](
    "kafka.bootstrap.servers",
    TEXT,
    None,
    "Kafka brokers of the log.",
    aliases=("log.kafka.bootstrap.servers",),
)
LOG_WHEN_UNAVAILABLE: Final = Option(
    "log.when-unavailable", choice("fail", "files-only"), "fail",
    "If the broker does not answer. fail: writes are refused. files-only: they go on, and readers take their changes "
    "from the files.",
)  # fmt: skip
LOG_RETENTION: Final = Option[timedelta | None](
    "log.retention", DURATION, None, "How long the log keeps rows. Default: as the broker says."
)
KAFKA_TOPIC: Final = Option[str | None](
    "kafka.topic",
    TEXT,
    None,
    "Kafka topic of the log; chosen when the table is created.",
    aliases=("log.kafka.topic",),
)

OPTIONS: Final = tuple(value for value in list(globals().values()) if isinstance(value, Option))
COLUMN_OPTIONS: Final = tuple(value for value in list(globals().values()) if isinstance(value, ColumnOption))


def target_file_size_bytes(options: Options, *, keyed: bool) -> int:
    """Return the size at which a data file is full: 128 MB with a primary key and 256 MB without, unless set."""
    size = options.get(TARGET_FILE_SIZE)
    return size if size is not None else (128 if keyed else 256) * _MB
