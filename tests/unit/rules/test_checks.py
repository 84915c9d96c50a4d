"""Combinations of options: what the format refuses, and what this version does not do."""

from __future__ import annotations

import pytest

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.options.option import Options
from merganser.rules.checks import (
    MERGE_READ_GAPS,
    READ_GAPS,
    WRITE_GAPS,
    check_can_read,
    check_can_write,
    check_scan_options,
    check_table_options,
    scan_mode,
    unsupported_for_reading,
    unsupported_for_writing,
)
from merganser.schema.table_schema import TableSchema
from merganser.schema.types import Field
from merganser.schema.types_text import parse_type

COLUMNS = {
    "k": "INT NOT NULL",
    "dt": "STRING",
    "a": "INT",
    "b": "BIGINT",
    "s": "STRING",
    "vc": "VARCHAR(5)",
    "arr": "ARRAY<INT>",
    "m": "MAP<STRING, INT>",
    "mt": "MAP<STRING, ROW<v INT, at STRING>>",
    "n": "ARRAY<ROW<id INT, v INT>>",
    "f": "BOOLEAN",
    "y": "BYTES",
    "ts": "TIMESTAMP(3)",
    "d": "DECIMAL(10, 2)",
}
KEYED = {"bucket": "1"}


def table(options=(), *, key=("k",), partition=()):
    fields = tuple(Field(i, name, parse_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    return TableSchema(0, fields, len(fields) - 1, tuple(partition), tuple(key), Options(dict(options)))


def partial(**options):
    return {"bucket": "1", "merge-engine": "partial-update"} | {k.replace("__", "."): v for k, v in options.items()}


def aggregation(column, function, **more):
    return {"merge-engine": "aggregation", f"fields.{column}.aggregate-function": function} | {
        f"fields.{column}.{key.replace('_', '-')}": value for key, value in more.items()
    }


REFUSED = [
    ({"primary-key.nullable": "true"}, (), "primary-key.nullable"),
    ({"write-mode": "append-only"}, ("k",), "append-only"),
    ({"bucket": "0"}, ("k",), "greater than 0"),
    ({"bucket": "-3"}, ("k",), "greater than 0"),
    ({"bucket": "-2"}, (), "greater than 0"),
    ({"bucket-key": "k"}, ("k",), "'bucket' = '-1'"),
    ({"bucket": "2", "bucket-key": "zz"}, ("k",), "'zz' is not found"),
    ({"bucket": "2", "bucket-key": "a"}, ("k",), "not part of the primary key"),
    ({"bucket": "2", "bucket-key": "arr"}, (), "cannot choose a bucket"),
    ({"bucket": "2", "bucket-key": "a,a"}, (), "repeated"),
    ({"bucket": "2"}, (), "bucket-key"),
    ({"bucket": "2", "bucket-key": "s", "bucket-function.type": "mod"}, (), "INT or BIGINT"),
    ({"full-compaction.delta-commits": "3"}, (), "without buckets"),
    ({"changelog-producer": "lookup", "full-compaction.delta-commits": "3"}, ("k",), "incompatible"),
    ({"changelog-producer": "input"}, (), "needs a primary key"),
    ({"streaming-read-overwrite": "true", "changelog-producer": "lookup"}, ("k",), "changes twice"),
    ({"streaming-read-overwrite": "true"}, (), "streaming-read-append-overwrite"),
    ({"merge-engine": "first-row", "changelog-producer": "input"}, ("k",), "first-row"),
    ({"merge-engine": "first-row", "sequence.field": "a"}, ("k",), "sequence.field"),
    ({"merge-engine": "first-row", "deletion-vectors.enabled": "true"}, ("k",), "deletion-vectors.enabled"),
    ({"deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"}, ("k",), "none, input or lookup"),
    ({"sequence.field": "zz"}, ("k",), "sequence field 'zz' is not found"),
    ({"sequence.field": "a,a"}, ("k",), "repeated"),
    ({"sequence.field": "arr"}, ("k",), "no order"),
    (aggregation("a", "sum") | {"sequence.field": "a"}, ("k",), "aggregate function"),
    ({"sequence.snapshot-ordering": "true", "write-only": "true"}, (), "primary key"),
    ({"sequence.snapshot-ordering": "true", "write-only": "true", "sequence.field": "a"}, ("k",), "exclude each other"),
    ({"sequence.snapshot-ordering": "true"}, ("k",), "write-only"),
    ({"rowkind.field": "zz"}, ("k",), "row kind field 'zz' is not found"),
    ({"rowkind.field": "a"}, ("k",), "only STRING"),
    (partial(**{"fields__a__sequence-group": "zz"}), ("k",), "'zz' of .* is not found"),
    (partial(**{"fields__a__sequence-group": "s", "fields__b__sequence-group": "s"}), ("k",), "multiple groups"),
    (partial(**{"fields__a__sequence-group": "s,s"}), ("k",), "repeated"),
    (partial(**{"fields__a__sequence-group": "k"}), ("k",), "primary key column 'k'"),
    (partial(**{"fields__k__sequence-group": "a"}), ("k",), "primary key column 'k'"),
    (partial(**{"fields__a__aggregate-function": "sum"}), ("k",), "no sequence group"),
    (partial(**{"fields__default-aggregate-function": "max"}), ("k",), "no sequence group"),
    (partial(**{"partial-update__remove-record-on-delete": "true", "ignore-delete": "true"}), ("k",), "conflict"),
    (
        partial(**{"partial-update__remove-record-on-delete": "true", "fields__a__sequence-group": "s"}),
        ("k",),
        "conflicts with sequence groups",
    ),
    (
        partial(**{"partial-update__remove-record-on-sequence-group": "s", "fields__a__sequence-group": "s"}),
        ("k",),
        "part of a sequence group",
    ),
    (
        aggregation("a", "max", ignore_retract="true") | {"aggregation.remove-record-on-delete": "true"},
        ("k",),
        "conflict",
    ),
    (aggregation("a", "sums"), ("k",), "Did you mean 'sum'"),
    (aggregation("s", "sum"), ("k",), "takes a number"),
    (aggregation("arr", "max"), ("k",), "with an order"),
    (aggregation("a", "bool_or"), ("k",), "takes BOOLEAN"),
    (aggregation("vc", "listagg"), ("k",), "takes STRING"),
    (aggregation("s", "collect"), ("k",), "takes ARRAY"),
    (aggregation("s", "merge_map"), ("k",), "takes MAP"),
    (aggregation("m", "merge_map_with_keytime"), ("k",), "two fields or more"),
    (aggregation("mt", "merge_map_with_keytime", ts_field="zz"), ("k",), "field 'zz' is not found"),
    (aggregation("arr", "nested_update"), ("k",), "ARRAY<ROW"),
    (aggregation("n", "nested_update", nested_key="zz"), ("k",), "field 'zz' is not found"),
    (aggregation("n", "nested_partial_update"), ("k",), "nested-key"),
    (aggregation("n", "nested_update", nested_sequence_field="v"), ("k",), "needs 'fields.n.nested-key'"),
    (aggregation("n", "nested_update", nested_key_null_strategy="error"), ("k",), "needs 'fields.n.nested-key'"),
    (aggregation("s", "rbm32"), ("k",), "VARBINARY"),
    ({"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"}, ("k",), "takes a number"),
    ({"snapshot.num-retained.min": "0"}, ("k",), "at least 1"),
    ({"snapshot.num-retained.min": "20", "snapshot.num-retained.max": "10"}, ("k",), "should not be larger"),
    ({"changelog.num-retained.min": "0"}, ("k",), "changelog.num-retained.min"),
    ({"target-file-row-num": "0"}, ("k",), "target-file-row-num"),
    ({"record-level.expire-time": "1 d"}, ("k",), "record-level.time-field"),
    ({"record-level.time-field": "zz"}, ("k",), "'zz' is not found"),
    ({"record-level.time-field": "s"}, ("k",), "INT, BIGINT or a timestamp"),
    ({"row-tracking.enabled": "true"}, ("k",), "without a primary key"),
    ({"row-tracking.enabled": "true", "bucket": "2", "bucket-key": "a"}, (), "needs 'bucket' = '-1'"),
    ({"data-evolution.enabled": "true"}, (), "row-tracking.enabled"),
    ({"log.changelog-mode": "upsert"}, ("k",), "needs a log"),
    ({"log.consistency": "eventual"}, ("k",), "needs a log"),
    ({"log.system": "kafka"}, ("k",), "kafka.bootstrap.servers"),
    ({"log.system": "kafka", "kafka.bootstrap.servers": "h:1", "log.changelog-mode": "upsert"}, (), "primary key"),
    ({"file-index.bloom-filter.columns": "a,zz"}, (), "column 'zz' of 'file-index"),
    ({"changelog-producer.row-deduplicate-ignore-fields": "zz"}, ("k",), "column 'zz' of"),
    ({"scan.mode": "from-timestamp"}, ("k",), "needs one of 'scan.timestamp-millis'"),
    ({"partition.default-name": "../x"}, (), "'partition.default-name' is '../x'"),
    ({"branch": "../x"}, (), "'branch' is '../x'"),
    ({"scan.tag-name": "a/b"}, (), "'scan.tag-name' is 'a/b'"),
    ({"file.compression": "zlib"}, (), "parquet files cannot be written with the compression 'zlib'"),
    ({"file.format": "avro", "file.compression": "zlib"}, (), "avro files cannot be written .* 'zlib'"),
    ({"file.compression": "deflate", "file.format.per.level": "0:avro"}, ("k",), "parquet files .* 'deflate'"),
    ({"file.format": "orc", "file.compression.per.level": "5:deflate"}, ("k",), "orc files .* 'deflate'"),
    (
        {"changelog-producer": "input", "changelog-file.format": "avro", "changelog-file.compression": "zlib"},
        ("k",),
        "avro files .* 'zlib'",
    ),
]


@pytest.mark.parametrize(("options", "key", "why"), REFUSED, ids=lambda value: str(value)[:60])
def test_a_combination_that_is_no_table_is_refused(options, key, why):
    if key and not set(options) & {"bucket", "bucket-key"}:
        options = options | KEYED
    with pytest.raises(InvalidInputError, match=why):
        check_table_options(table(options, key=key), what="cannot create 'db.t'")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, ()),
        ({}, ("k",)),
        ({"bucket": "-2"}, ("k",)),
        ({"bucket": "2", "bucket-key": "s,a"}, ()),
        ({"bucket": "2", "bucket-function.type": "mod"}, ("k",)),
        ({"merge-engine": "first-row", "changelog-producer": "lookup"}, ("k",)),
        (partial(**{"fields__a,b__sequence-group": "s", "fields__s__aggregate-function": "listagg"}), ("k",)),
        (partial(**{"fields__a__aggregate-function": "last_non_null_value"}), ("k",)),
        (aggregation("mt", "merge_map_with_keytime", ts_field="at"), ("k",)),
        (aggregation("n", "nested_update", nested_key="id", nested_sequence_field="v"), ("k",)),
        (aggregation("d", "sum") | {"sequence.field": "b,ts"}, ("k",)),
        ({"write-mode": "change-log", "changelog-producer": "input", "bucket": "1"}, ()),
        ({"record-level.expire-time": "1 d", "record-level.time-field": "ts"}, ("k",)),
        ({"row-tracking.enabled": "true", "data-evolution.enabled": "true"}, ()),
        ({"file-index.bitmap.columns": "m[x],a"}, ()),
        ({"sequence.field": "a", "sequence.auto-padding": "row-kind-flag"}, ("k",)),
        ({"file.format": "orc", "file.compression": "ZLIB"}, ()),
        ({"file.format.per.level": "0:avro", "file.compression.per.level": "0:deflate"}, ("k",)),
        ({"data-file.path-directory": "data/v1", "data-file.prefix": "part-", "partition.default-name": ""}, ()),
        ({"data-file.path-directory": "/data"}, ()),
        ({"data-file.path-directory": "a:b/../c"}, ()),
    ],
)
def test_a_combination_of_the_format_is_accepted(options, key):
    check_table_options(table(options, key=key))


def test_sequence_fields_need_keys_that_stay_in_their_partition():
    with pytest.raises(InvalidInputError, match="'dt'"):
        check_table_options(table({"bucket": "1", "sequence.field": "a"}, partition=("dt",)))


def test_a_partition_column_cannot_choose_the_bucket():
    with pytest.raises(InvalidInputError, match="'dt' is a partition column"):
        check_table_options(table({"bucket": "2", "bucket-key": "dt"}, key=("k", "dt"), partition=("dt",)))


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "latest-full"),
        ({"scan.timestamp-millis": "1"}, "from-timestamp"),
        ({"scan.tag-name": "t"}, "from-snapshot"),
        ({"incremental-between": "1,2"}, "incremental"),
        ({"scan.mode": "latest"}, "latest"),
        ({"log.scan": "full"}, "latest-full"),
    ],
)
def test_the_start_mode_follows_from_the_scan_options(options, mode):
    check_scan_options(Options(options))
    assert scan_mode(Options(options)) == mode


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"scan.mode": "from-snapshot"}, "none is set"),
        ({"scan.snapshot-id": "1", "scan.tag-name": "t"}, "'scan.snapshot-id', 'scan.tag-name' are set"),
        ({"scan.mode": "latest", "scan.snapshot-id": "1"}, "'scan.snapshot-id' must be absent"),
        ({"scan.mode": "from-snapshot-full", "scan.tag-name": "t"}, "needs 'scan.snapshot-id', which is not set"),
        ({"scan.mode": "from-snapshot"}, "'scan.watermark', 'scan.version', and none is set"),
        ({"scan.timestamp": "2026-01-01", "scan.snapshot-id": "1"}, "must be absent"),
        ({"scan.fallback-branch": "a", "scan.primary-branch": "b"}, "exclude each other"),
    ],
)
def test_scan_options_that_disagree_are_refused(options, why):
    with pytest.raises(InvalidInputError, match=why):
        check_scan_options(Options(options), what="cannot read 'db.t'")


def test_plain_tables_can_be_written_and_read():
    for schema in (table(KEYED), table({}, key=())):
        check_can_write(schema, name="db.t")
        check_can_read(schema, name="db.t", merge=True)


def test_an_option_at_its_default_asks_for_nothing():
    defaults = {
        "bucket": "1",
        "merge-engine": "deduplicate",
        "changelog-producer": "none",
        "deletion-vectors.enabled": "false",
        "ignore-delete": "false",
        "log.system": "none",
        "write-mode": "auto",
    }
    assert unsupported_for_writing(table(defaults)) == ()
    assert unsupported_for_reading(table(defaults), merge=True) == ()


@pytest.mark.parametrize(("options", "advice"), [({}, "a number such as 4"), ({"bucket": "-2"}, "a number such as 4")])
def test_a_keyed_table_without_a_number_of_buckets_asks_for_one(options, advice):
    with pytest.raises(UnsupportedError, match=advice):
        check_can_write(table(options), name="db.t")


def test_keys_that_move_between_partitions_need_the_partition_columns():
    with pytest.raises(UnsupportedError, match="Add the partition columns to the primary key"):
        check_can_write(table({}, partition=("dt",)), name="db.t")


def test_a_refusal_to_write_names_the_table_and_every_feature():
    with pytest.raises(UnsupportedError) as caught:
        check_can_write(table(KEYED | {"manifest.format": "orc", "changelog-producer": "lookup"}), name="db.t")
    assert str(caught.value).startswith("cannot write to 'db.t': ")
    assert "Nothing was written." in str(caught.value)
    assert len(caught.value.context["features"]) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"data-file.path-directory": "../../x"},
        {"data-file.prefix": "../x"},
        {"changelog-file.prefix": "../x"},
        {"file.compression": "lzo"},
        {"file.compression": "zlib"},
        {"file.compression.per.level": "3:brotli"},
        {"file.format.per.level": "0:csv"},
        {"manifest.compression": "lzo"},
        {"manifest.target-file-size": "0"},
        {"target-file-size": "0"},
        {"file.block-size": "0"},
    ],
    ids=str,
)
def test_stored_options_without_a_meaning_stop_writing_before_it_begins_and_not_reading(options):
    schema = table(KEYED | options)
    check_can_read(schema, name="db.t", merge=True)
    with pytest.raises(InvalidInputError) as caught:
        check_can_write(schema, name="db.t")
    ((key, text),) = options.items()
    assert str(caught.value).startswith("cannot write to 'db.t': ")
    assert f"'{text}'" in str(caught.value)
    assert caught.value.context["option"] == key


@pytest.mark.parametrize("gaps", [WRITE_GAPS, READ_GAPS, MERGE_READ_GAPS])
def test_every_gap_has_a_feature_and_advice_of_its_own(gaps):
    features = [gap.feature for gap in gaps]
    assert len(features) == len(set(features))
    assert all(gap.advice.endswith(".") for gap in gaps)


def test_an_order_that_is_not_done_stops_reading_only_where_rows_must_be_merged():
    schema = table(KEYED | {"sequence.snapshot-ordering": "true", "write-only": "true"})
    check_can_read(schema, name="db.t", merge=False)
    with pytest.raises(UnsupportedError, match="whose files have to be merged"):
        check_can_read(schema, name="db.t", merge=True)


def test_a_table_with_deletion_vectors_is_written_and_read():
    schema = table(KEYED | {"deletion-vectors.enabled": "true"})
    check_can_write(schema, name="db.t")
    check_can_read(schema, name="db.t", merge=True)
