"""Which options go together: `check_table_options` refuses what is no table of the format.

What is one, but asks for something that this version of merganser does not do, is in `gaps`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.options import read as r
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import COLUMNS, FILE_NAME_PART, Option, Options
from merganser.options.registry import check_texts, did_you_mean, split_column_key
from merganser.rules.compacting import PER_RECORD, hides_level_0, publishes_each_record
from merganser.rules.facts import DYNAMIC, POSTPONE, listed, refuse, type_of
from merganser.rules.merging import check_merge_rules, depending_on_merges
from merganser.rules.starts import check_scan_options
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema

_COLUMN_LISTS: Final = (w.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS, w.CLUSTERING_COLUMNS)
_NAMES: Final[tuple[Option[str] | Option[str | None], ...]] = (
    w.PARTITION_DEFAULT_NAME,
    r.BRANCH,
    r.SCAN_TAG_NAME,
    r.SCAN_FALLBACK_BRANCH,
    r.SCAN_PRIMARY_BRANCH,
)
_LEVELS_MAX: Final = 99
"""Levels of the deepest column that can be read back: pyarrow reads Parquet schemas of 100 levels, the first of which
is the whole row. ORC and Avro files hold more, but a table may change its format."""

_INDEX_COLUMNS: Final = re.compile(r"file-index\.[a-z-]+\.columns")

_RECORD_COLUMNS: Final = frozenset(
    {"_action", "_sequence", "_commit_time", "_changed", "_before", "_shard_id", "_row_kind"}
)


def check_table_options(table: TableSchema, *, what: str = "cannot use the options of the table") -> None:
    """Check the options of a table by themselves, against each other and against its columns.

    Args:
        table: columns, keys and options, such as a `TableSchema`.
        what: beginning of the message, such as "cannot create 'db.orders'".

    Raises:
        InvalidInputError: names the option, its value, and what would be right.
    """
    check_texts(table.options)
    _check_depth(table, what)
    _check_keys(table, what)
    _check_bucket(table, what)
    _check_bucket_key(table, what)
    _check_changelog(table, what)
    check_merge_rules(table, what=what)
    _check_retention(table.options, what)
    _check_tags(table.options, what)
    _check_record_expiry(table, what)
    _check_row_tracking(table, what)
    _check_log(table, what)
    _check_column_lists(table, what)
    check_partitions_off(table, what=what)
    _check_filters(table.options, what)
    _check_names(table.options, what)
    _check_record_columns(table, what)
    check_file_options(table.options, what=what)
    check_scan_options(table.options, what=what)


def check_type(options: Options, *, what: str, table: str) -> None:
    """Refuse a table that is not made of files of this format.

    Args:
        what: beginning of the message, such as "cannot create 'db.orders'".
        table: its name.

    Raises:
        UnsupportedError: names the type.
    """
    kind = options.get(w.TYPE.key)
    if kind is not None and kind.lower() != w.TYPE.default:
        raise UnsupportedError(
            f"{what}: it is of type '{kind}', which does not keep its rows in this format. Tables of type "
            f"'{w.TYPE.default}', the default, do.",
            option=w.TYPE.key,
            table=table,
        )


def check_partitions_off(table: TableSchema, *, what: str) -> None:
    """Refuse partitions without change tracking that the table cannot have.

    Raises:
        InvalidInputError: names the option and the column.
    """
    for spec in table.options.get(w.CHANGE_TRACKING_OFF):
        for part in spec:
            name = part.partition("=")[0]
            if name not in table.partition_keys:
                refuse(
                    what,
                    f"'{w.CHANGE_TRACKING_OFF.key}' names '{part}', and the table is not partitioned by '{name}'. "
                    f"Nothing was changed. Its partition columns are: {', '.join(table.partition_keys) or 'none'}.",
                    option=w.CHANGE_TRACKING_OFF.key,
                )


# what the format allows


def _check_depth(table: TableSchema, what: str) -> None:
    for field in table.fields:
        levels = t.levels(field.type)
        if levels > _LEVELS_MAX:
            raise UnsupportedError(
                f"{what}: column '{field.name}' is nested {levels} levels deep. What has more than {_LEVELS_MAX} could "
                "be written and never be read back. An ARRAY, MAP or MULTISET takes two levels, a ROW one, and the "
                "values inside take one. Nothing was changed. Store deeper values as text or as bytes.",
                column=field.name,
            )


def _check_keys(table: TableSchema, what: str) -> None:
    if table.options.get(w.PRIMARY_KEY_NULLABLE) and not table.primary_keys:
        refuse(what, "'primary-key.nullable' is only for tables with a primary key.")
    if table.options.get(w.WRITE_MODE) == "append-only" and table.primary_keys:
        refuse(
            what,
            f"'write-mode' = 'append-only' does not go with a primary key ({listed(table.primary_keys)}). Remove one.",
        )


def _check_bucket(table: TableSchema, what: str) -> None:
    bucket = table.options.get(w.BUCKET)
    if bucket == 0 or bucket < POSTPONE or (bucket == POSTPONE and not table.primary_keys):
        also = " or -2" if table.primary_keys else ""
        refuse(
            what, f"'bucket' is {bucket}; the number of buckets must be greater than 0, or -1{also}.", option="bucket"
        )
    if bucket == POSTPONE and publishes_each_record(table.options):
        refuse(
            what,
            "'bucket' is -2, and changelog producer per-record logs rows at their commit, when no bucket is known. "
            "Use input, lookup or full-compaction, or leave 'bucket' out.",
            option="bucket",
        )
    counting = table.options.get(w.WRITE_MODE) == "change-log"
    if bucket > 0 and not table.primary_keys and not table.options.get(w.BUCKET_KEY) and not counting:
        refuse(
            what,
            f"'bucket' is {bucket} and there is neither a primary key nor a 'bucket-key'. Name the columns that choose "
            "the bucket in 'bucket-key', or remove 'bucket'.",
            option="bucket-key",
        )


def _check_bucket_key(table: TableSchema, what: str) -> None:
    columns = table.options.get(w.BUCKET_KEY)
    names = [field.name for field in table.fields]
    if columns and table.options.get(w.BUCKET) == DYNAMIC:
        refuse(what, "'bucket-key' does not go with 'bucket' = '-1'. Set 'bucket' to a number, or remove 'bucket-key'.")
    for column in columns:
        hint = ""
        if column not in names:
            hint = f"is not found in the table. {did_you_mean(column, names)}"
        elif columns.count(column) > 1:
            hint = "is repeated. Name it once."
        elif column in table.partition_keys:
            hint = "is a partition column. Rows of a bucket are in one partition anyway: remove it."
        elif table.primary_keys and column not in table.primary_keys:
            hint = f"is not part of the primary key ({listed(table.primary_keys)}), so one key could be in two buckets."
        elif t.is_nested(type_of(table, column)):
            hint = f"has the type {type_of(table, column)}, which cannot choose a bucket."
        if hint:
            refuse(what, f"bucket key column '{column}' {hint}", column=column, option="bucket-key")
    if table.options.get(w.BUCKET_FUNCTION) == "mod" and table.options.get(w.BUCKET) > 0:
        key = columns or tuple(name for name in table.primary_keys if name not in table.partition_keys)
        if len(key) != 1 or not isinstance(type_of(table, key[0]), t.Int | t.BigInt):
            refuse(
                what, f"'bucket-function.type' = 'mod' needs one INT or BIGINT bucket key column, not {listed(key)}."
            )


def _check_changelog(table: TableSchema, what: str) -> None:
    options = table.options
    producer = options.get(w.CHANGELOG_PRODUCER)
    counting = options.get(w.WRITE_MODE) == "change-log"
    if publishes_each_record(options):
        if not table.primary_keys or counting:
            instead = "use input" if counting else "remove the option"
            refuse(what, f"'changelog-producer' = '{PER_RECORD}' needs a primary key. Define one, or {instead}.")
        if options.get(w.CHANGELOG_IMAGE) == "wal" and options.get(w.MERGE_ENGINE) == "aggregation":
            refuse(
                what,
                "'changelog.image' = 'wal' does not go with merge engine aggregation: readers that add up changes need "
                "the row before. Use full.",
            )
        depending = depending_on_merges(table)
        if depending is not None and not (options.get(u.FORCE_LOOKUP) or options.get(w.DELETION_VECTORS)):
            refuse(
                what,
                f"'changelog-producer' = '{PER_RECORD}' needs 'force-lookup' here, since {depending} depends on which "
                "versions of a key a compaction merges first. Without it, a compaction would change rows that are "
                "published already. Leave 'force-lookup' out, or set it to 'true'.",
                option=u.FORCE_LOOKUP.key,
            )
    if producer != "none" and not table.primary_keys and (producer == "full-compaction" or not counting):
        refuse(what, f"'changelog-producer' = '{producer}' needs a primary key. Define one, or remove the option.")
    if options.get(u.FULL_COMPACTION_DELTA_COMMITS) is not None:
        if not table.primary_keys and options.get(w.BUCKET) == DYNAMIC:
            refuse(
                what, "'full-compaction.delta-commits' is not supported for tables without a key and without buckets."
            )
        if producer == "lookup":
            refuse(
                what,
                "'full-compaction.delta-commits' is incompatible with 'changelog-producer' = 'lookup'. Use "
                "full-compaction, or remove the option.",
            )
    if options.get(r.STREAMING_READ_OVERWRITE):
        if not table.primary_keys:
            refuse(
                what,
                "'streaming-read-overwrite' is for tables with a primary key. Use 'streaming-read-append-overwrite'.",
            )
        if producer in ("lookup", "full-compaction"):
            refuse(
                what,
                f"'streaming-read-overwrite' does not go with 'changelog-producer' = '{producer}': other engines "
                "refuse such a table, since their streams would see changes twice. Leave it out: readers of merganser "
                "get what an overwrite changed, once.",
            )
    if options.get(w.DELETION_VECTORS) and producer == "full-compaction":
        refuse(
            what,
            "'deletion-vectors.enabled' does not go with 'changelog-producer' = 'full-compaction'. "
            "Use none, input, lookup or per-record.",
        )


def _check_retention(options: Options, what: str) -> None:
    snapshot_min, snapshot_max = options.get(u.SNAPSHOT_NUM_RETAINED_MIN), options.get(u.SNAPSHOT_NUM_RETAINED_MAX)
    own_min, own_max = options.get(u.CHANGELOG_NUM_RETAINED_MIN), options.get(u.CHANGELOG_NUM_RETAINED_MAX)
    changelog_min = snapshot_min if own_min is None else own_min
    changelog_max = snapshot_max if own_max is None else own_max
    for kind, least, most in (("snapshot", snapshot_min, snapshot_max), ("changelog", changelog_min, changelog_max)):
        if least < 1:
            refuse(what, f"'{kind}.num-retained.min' is {least} and should be at least 1.")
        if least > most:
            refuse(
                what,
                f"'{kind}.num-retained.min' is {least} and should not be larger than '{kind}.num-retained.max', "
                f"{most}.",
            )


def _check_tags(options: Options, what: str) -> None:
    period = u.tag_period(options)
    delay = options.get(u.TAG_CREATION_DELAY)
    if period <= timedelta(0):
        refuse(what, "'tag.creation-period-duration' must be above 0.")
    if delay >= period:
        refuse(what, f"'tag.creation-delay' is {delay} and must be below the period of the tags, {period}.")


def _check_record_expiry(table: TableSchema, what: str) -> None:
    column = table.options.get(u.RECORD_LEVEL_TIME_FIELD)
    if column is None:
        if table.options.get(u.RECORD_LEVEL_EXPIRE_TIME) is not None:
            refuse(
                what, "'record-level.expire-time' needs 'record-level.time-field', the column with the time of a row."
            )
        return
    names = [field.name for field in table.fields]
    if column not in names:
        refuse(
            what, f"'record-level.time-field' '{column}' is not found in the table. {did_you_mean(column, names)}",
            column=column,
        )  # fmt: skip
    kind = type_of(table, column)
    if not isinstance(kind, t.Int | t.BigInt | t.Timestamp | t.LocalZonedTimestamp):
        refuse(
            what,
            f"'record-level.time-field' '{column}' has the type {kind}; it must be INT, BIGINT or a timestamp.",
            column=column,
        )


def _check_record_columns(table: TableSchema, what: str) -> None:
    """Refuse columns that the records of a shard stream have for themselves."""
    if not table.options.get(w.STREAM_ENABLED):
        return
    for name in table.names:
        if name in _RECORD_COLUMNS:
            refuse(
                what,
                f"the column '{name}' has the name of a column of the records of its shard stream. Rename it first, "
                "or keep no stream.",
                column=name,
            )


def _check_row_tracking(table: TableSchema, what: str) -> None:
    options = table.options
    if options.get(w.ROW_TRACKING):
        if table.primary_keys:
            refuse(what, "'row-tracking.enabled' is only for tables without a primary key.")
        if options.get(w.BUCKET) != DYNAMIC:
            refuse(what, f"'row-tracking.enabled' needs 'bucket' = '-1', not {options.get(w.BUCKET)}.")
    elif options.get(w.DATA_EVOLUTION):
        refuse(what, "'data-evolution.enabled' needs 'row-tracking.enabled' = 'true'.")


def _check_log(table: TableSchema, what: str) -> None:
    options = table.options
    upsert = options.get(w.LOG_CHANGELOG_MODE) == "upsert"
    eventual = options.get(w.LOG_CONSISTENCY) == "eventual"
    for on, key, value in (
        (upsert, w.LOG_CHANGELOG_MODE.key, "upsert"),
        (eventual, w.LOG_CONSISTENCY.key, "eventual"),
    ):
        if on and options.get(w.LOG_SYSTEM) == "none":
            refuse(what, f"'{key}' = '{value}' needs a log: set 'log.system', or remove the option.")
        if on and not table.primary_keys:
            refuse(what, f"'{key}' = '{value}' needs a primary key.")
    if eventual:
        _check_shows_flushed_rows(table, what)
    if options.get(w.LOG_SYSTEM) == "kafka" and not options.get(w.KAFKA_BOOTSTRAP_SERVERS):
        refuse(what, "'log.system' = 'kafka' needs 'kafka.bootstrap.servers'.")
    retention = options.get(w.LOG_RETENTION)
    if retention is not None and retention < timedelta(milliseconds=1):
        text = options.get(w.LOG_RETENTION.key)
        refuse(
            what,
            f"'{w.LOG_RETENTION.key}' = '{text}' would let the log keep no record. Set 1 ms or more, or leave the "
            "option out.",
            option=w.LOG_RETENTION.key,
        )


def _check_shows_flushed_rows(table: TableSchema, what: str) -> None:
    """Refuse an eventual log if a row that a writer has is not the row that the table will have."""
    options, only = table.options, f"'{w.LOG_CONSISTENCY.key}' = 'eventual'"
    engine = options.get(w.MERGE_ENGINE)
    if engine != "deduplicate":
        why = f"'{w.MERGE_ENGINE.key}' = '{engine}' makes the row of a key of several rows"
    elif hides_level_0(options):
        why = "this table shows rows with a compaction that comes after their commit"
    elif table.cross_partition or options.get(w.BUCKET) == POSTPONE:
        why = "rows of this table find their bucket after they are written, so that its log has no rows"
    else:
        return
    refuse(
        what,
        f"{only} shows rows when they are flushed, and {why}. Use 'transactional', which shows them with their commit.",
        option=w.LOG_CONSISTENCY.key,
    )


def _check_column_lists(table: TableSchema, what: str) -> None:
    """Check options that list columns and have no other rule."""
    lists = [(option.key, table.options.get(option)) for option in _COLUMN_LISTS]
    lists += [(key, COLUMNS.parse(text)) for key, text in table.options.items() if _INDEX_COLUMNS.fullmatch(key)]
    names = [field.name for field in table.fields]
    for key, columns in lists:
        for column in columns:
            # An index of one key of a map is named `column[key]`.
            if column not in names and column.partition("[")[0] not in names:
                hint = did_you_mean(column, names)
                refuse(
                    what, f"column '{column}' of '{key}' is not found in the table. {hint}", column=column, option=key
                )


def _check_filters(options: Options, what: str) -> None:
    """Refuse settings of Bloom filters that no data file would have."""
    filtered = options.get(w.FILE_INDEX_BLOOM_COLUMNS)
    for key in options:
        split = split_column_key(key) if key.startswith(w.FILE_INDEX_BLOOM + ".") else None
        if split and split[0] not in filtered:
            refuse(
                what,
                f"'{key}' sets up a Bloom filter that the table does not have. Add '{split[0]}' to "
                f"'{w.FILE_INDEX_BLOOM_COLUMNS.key}', or remove the option.",
                option=key,
                column=split[0],
            )


def _check_names(options: Options, what: str) -> None:
    # Tables that are there may have any: slashes of a partition are escaped, and names are checked where they are used.
    for option in _NAMES:
        name = options.get(option)
        try:
            FILE_NAME_PART.parse(name or "")
        except ValueError:
            refuse(
                what,
                f"'{option.key}' is '{name}'; expected {FILE_NAME_PART.expected}.",
                option=option.key,
                value=name,
            )


# what files are written with

FILE_OPTIONS: Final[tuple[Option[Any], ...]] = (
    w.DATA_FILE_PATH_DIRECTORY,
    w.DATA_FILE_PREFIX,
    w.CHANGELOG_FILE_PREFIX,
    w.FILE_FORMAT,
    w.FILE_FORMAT_PER_LEVEL,
    w.FILE_COMPRESSION,
    w.FILE_COMPRESSION_PER_LEVEL,
    w.FILE_COMPRESSION_ZSTD_LEVEL,
    w.FILE_BLOCK_SIZE,
    w.TARGET_FILE_SIZE,
    w.TARGET_FILE_ROW_NUM,
    w.STATS_MODE_OPTION,
    w.STATS_MODE_PER_LEVEL,
    w.STATS_KEEP_FIRST_N_COLUMNS,
    w.FILE_INDEX_BLOOM_COLUMNS,
    w.FILE_INDEX_IN_MANIFEST,
    w.MANIFEST_COMPRESSION,
    w.MANIFEST_TARGET_FILE_SIZE,
    w.MANIFEST_FULL_COMPACTION_SIZE,
    w.MANIFEST_MERGE_MIN_COUNT,
    w.DELETION_VECTORS_TARGET_SIZE,
)
"""What a write needs to have a meaning before its first file, and a read does not, but for the directory."""


def named_formats(options: Options) -> tuple[str, ...]:
    """Return each format that the options name for files with rows of the table, at any level."""
    plain = options.get(w.FILE_FORMAT)
    others = *options.get(w.FILE_FORMAT_PER_LEVEL).values(), options.get(w.CHANGELOG_FILE_FORMAT) or plain
    return tuple(dict.fromkeys((plain, *others)))


def check_file_options(options: Options, *, what: str) -> None:
    """Check the options that say how files are named and written, and that each format has its compression.

    Raises:
        InvalidInputError: begins with `what`; names the option, its value, and what would be right.
    """
    for option in FILE_OPTIONS:
        try:
            options.get(option)
        except InvalidInputError as error:
            raise InvalidInputError(f"{what}: {error.message}", **error.context) from None
    formats, compressions = options.get(w.FILE_FORMAT_PER_LEVEL), options.get(w.FILE_COMPRESSION_PER_LEVEL)
    plain, packed = options.get(w.FILE_FORMAT), options.get(w.FILE_COMPRESSION)
    written = {(plain, packed)}
    written |= {(formats.get(level, plain), compressions.get(level, packed)) for level in {*formats, *compressions}}
    if options.get(w.CHANGELOG_PRODUCER) != "none":
        own = options.get(w.CHANGELOG_FILE_FORMAT), options.get(w.CHANGELOG_FILE_COMPRESSION)
        written.add((own[0] or plain, own[1] or packed))
    for file_format, compression in sorted(written):
        known = w.COMPRESSIONS.get(file_format, (compression,))
        if compression not in known:
            refuse(
                what,
                f"{file_format} files cannot be written with the compression '{compression}'. Choose one of "
                f"{', '.join(known)}, or set it by level in '{w.FILE_COMPRESSION_PER_LEVEL.key}'.",
                option=w.FILE_COMPRESSION.key,
                value=compression,
            )
