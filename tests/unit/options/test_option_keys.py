"""Which keys are ours, and what a user may give as their values."""

from __future__ import annotations

from datetime import timedelta

import pytest

from merganser.errors import InvalidInputError
from merganser.options import write
from merganser.options.registry import (
    ALL_OPTIONS,
    COLUMN_OPTIONS,
    IMMUTABLE_KEYS,
    did_you_mean,
    find_option,
    normalize_options,
    sequence_groups,
    split_column_key,
)


def test_keys_are_unique_over_names_and_older_names():
    keys = [key for option in ALL_OPTIONS for key in (option.key, *option.aliases)]
    assert len(keys) == len(set(keys))


def test_every_option_has_a_doc_of_whole_sentences():
    assert [option for option in (*ALL_OPTIONS, *COLUMN_OPTIONS) if not option.doc.endswith((".", ".)"))] == []


def test_every_default_with_a_simple_text_is_of_the_form_of_its_option():
    simple = [option for option in ALL_OPTIONS if isinstance(option.default, bool | int | str)]
    texts = normalize_options({option.key: option.default for option in simple})
    assert [option.key for option in simple if option.parse(texts[option.key]) != option.default] == []


def test_python_values_become_texts():
    given = {
        "bucket": 4,
        "write-only": True,
        "compaction.small-file-ratio": 0.5,
        "bucket-key": ["a", "b"],
        "snapshot.time-retained": timedelta(hours=2),
        "file.format": "orc",
    }
    assert normalize_options(given) == {
        "bucket": "4",
        "write-only": "true",
        "compaction.small-file-ratio": "0.5",
        "bucket-key": "a,b",
        "snapshot.time-retained": "7200000 ms",
        "file.format": "orc",
    }


def test_no_options_are_no_texts():
    assert normalize_options(None) == {}


@pytest.mark.parametrize("value", [None, {"a": 1}, b"x", [1]])
def test_a_value_without_a_text_form_is_refused(value):
    with pytest.raises(InvalidInputError, match="cannot use table option 'bucket'"):
        normalize_options({"bucket": value})


@pytest.mark.parametrize("key", [1, "", " "])
def test_a_key_that_is_no_text_is_refused(key):
    with pytest.raises(InvalidInputError, match="a key is text"):
        normalize_options({key: "1"})


def test_a_bad_text_is_refused_before_it_is_stored():
    with pytest.raises(InvalidInputError, match=r"'merge-engine' = 'magic': expected one of deduplicate"):
        normalize_options({"merge-engine": "magic"})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("bucket-num", "bucket"),
        ("bukcet", "bucket"),
        ("Bucket", "bucket"),
        ("merge_engine", "merge-engine"),
        ("scan.snapshot_id", "scan.snapshot-id"),
        ("changelog.producer", "changelog-producer"),
        ("file.fromat", "file.format"),
        ("log.sytem", "log.system"),
        ("snapshot.time-retain", "snapshot.time-retained"),
        ("fields.v.agregate-function", "fields.v.aggregate-function"),
        ("fields.v.sequence-groups", "fields.v.sequence-group"),
        ("fields.default-agg-function", "fields.default-aggregate-function"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_that_was_meant(key, meant):
    with pytest.raises(InvalidInputError) as caught:
        normalize_options({key: "1"})
    assert str(caught.value) == f"unknown table option '{key}'. Did you mean '{meant}'?"


@pytest.mark.parametrize(
    "key",
    [
        "k",
        "owner",
        "location",
        "transient_lastDdlTime",
        "delta.minReaderVersion",
        "write.target-file-size-bytes",
        "bucket.num",
        "table.merge-engine",
        "kafka.security.protocol",
        "fields.v.agg",
        "fields.l.listagg.delimiter",
        "file-index.bloom-filter.columns",
        "file-index.bloom-filter.v.items",
        "sink.writer-memory",
    ],
)
def test_a_key_of_another_engine_is_kept(key):
    assert normalize_options({key: "1"}) == {key: "1"}


def test_an_option_of_a_column_that_does_not_exist_is_refused_with_the_nearest_column():
    with pytest.raises(InvalidInputError, match=r"column 'amout' is not found in the table\. Did you mean 'amount'\?"):
        normalize_options({"fields.amout.aggregate-function": "sum"}, columns=["id", "amount"])


def test_an_option_of_a_field_inside_a_column_is_refused():
    with pytest.raises(InvalidInputError, match="options of fields inside a column are not possible"):
        normalize_options({"fields.r.x.aggregate-function": "sum"}, columns=["id", "r"])


def test_each_ordering_column_of_a_sequence_group_must_exist():
    normalize_options({"fields.g,h.sequence-group": "a"}, columns=["a", "g", "h"])
    with pytest.raises(InvalidInputError, match="column 'h' is not found"):
        normalize_options({"fields.g,h.sequence-group": "a"}, columns=["a", "g"])


def test_a_key_of_a_column_splits_into_column_and_suffix():
    assert split_column_key("fields.a.b.nested-key") == ("a.b", "nested-key")
    assert split_column_key("fields.default-aggregate-function") is None
    assert split_column_key("fields.a.agg") is None


def test_an_option_is_found_by_key_older_key_and_column():
    assert find_option("first-row.ignore-delete") is write.IGNORE_DELETE
    assert find_option("fields.v.distinct") == write.DISTINCT.of("v")
    assert find_option("owner") is None


def test_sequence_groups_name_ordering_and_protected_columns():
    options = {"fields.g, h.sequence-group": "a, b", "bucket": "1", "fields.i.sequence-group": "c"}
    assert sequence_groups(options) == ((("g", "h"), ("a", "b")), (("i",), ("c",)))


def test_the_format_s_immutable_options_and_ours_are_marked():
    listed = (
        "type bucket-key bucket-function.type data-file.path-directory merge-engine sequence.snapshot-ordering "
        "aggregation.remove-record-on-delete partial-update.remove-record-on-delete "
        "partial-update.remove-record-on-sequence-group rowkind.field primary-key primary-key.nullable partition "
        "dynamic-bucket.initial-buckets force-lookup row-tracking.enabled data-evolution.enabled "
        "index-file-in-data-file-dir blob-field blob-descriptor-field blob-view-field pk-clustering-override "
        "merganser.merge-engine"
    )
    assert frozenset(listed.split()) == IMMUTABLE_KEYS


def test_the_end_of_a_message_names_the_likely_name_or_the_first_three():
    assert did_you_mean("amout", ["id", "amount"]) == "Did you mean 'amount'?"
    assert did_you_mean("x", ["id", "amount"]) == "Choose from 'id', 'amount'."
    assert did_you_mean("zz", ["a", "b", "c", "d"]) == "Choose one of 4, such as 'a', 'b', 'c'."
    assert did_you_mean("zz", []) == "There are none."
    assert "so none can name column 'a,b'. Rename the column." in did_you_mean("a", ["id", "a,b"])


def test_a_list_of_columns_has_no_name_with_a_comma() -> None:
    with pytest.raises(InvalidInputError, match="so none can name column 'a,b'"):
        normalize_options({"sequence.field": ["a,b"]})
