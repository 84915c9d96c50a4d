"""Combinations of options that the format refuses."""

from __future__ import annotations

import pytest
from rule_tables import KEYED, table

from merganser.errors import InvalidInputError
from merganser.rules.checks import check_table_options


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
    (
        {"streaming-read-overwrite": "true", "changelog-producer": "lookup"},
        ("k",),
        "get what an overwrite changed, once",
    ),
    ({"streaming-read-overwrite": "true"}, (), "streaming-read-append-overwrite"),
    ({"merge-engine": "first-row", "changelog-producer": "input"}, ("k",), "first-row"),
    ({"merge-engine": "first-row", "sequence.field": "a"}, ("k",), "sequence.field"),
    ({"merge-engine": "first-row", "deletion-vectors.enabled": "true"}, ("k",), "deletion-vectors.enabled"),
    ({"deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"}, ("k",), "lookup or per-record"),
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
    "options", [aggregation("dt", "last_value"), partial(**{"fields__a__sequence-group": "s,dt"})], ids=str
)
def test_a_partition_column_is_not_merged(options):
    with pytest.raises(InvalidInputError, match=r"column 'dt' of .* is a partition column.* is not merged"):
        check_table_options(table({"bucket": "1"} | options, partition=("dt",)))
