"""Texts of options and their values."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from merganser.errors import InvalidInputError
from merganser.options import read, upkeep, write
from merganser.options.option import (
    BOOLEAN,
    BYTES,
    COLUMNS,
    DIRECTORY,
    DURATION,
    FILE_NAME_PART,
    INTEGER,
    LONG,
    NUMBER,
    STATS_MODE,
    Option,
    Options,
    choice,
    integer,
    levels,
    size,
)

LEVELS = levels(choice("avro", "parquet"), "0:avro")


def value_of(form, text):
    return Option("x", form, None, "doc").parse(text)


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        (BOOLEAN, "true", True),
        (BOOLEAN, "FALSE", False),
        (integer(), "-12", -12),
        (NUMBER, "0.7", 0.7),
        (COLUMNS, " a, b ,c", ("a", "b", "c")),
        (COLUMNS, "", ()),
        (LEVELS, "0:avro, 5:parquet", {0: "avro", 5: "parquet"}),
        (STATS_MODE, "TRUNCATE( 3 )", "truncate(3)"),
        (DURATION, "1 h", timedelta(hours=1)),
        (DURATION, "30s", timedelta(seconds=30)),
        (DURATION, "3 d", timedelta(days=3)),
        (DURATION, "10 ms", timedelta(milliseconds=10)),
        (DURATION, "2 minutes", timedelta(minutes=2)),
        (DURATION, "1500", timedelta(milliseconds=1500)),
        (DURATION, "5 us", timedelta(microseconds=5)),
        (DURATION, "PT1H30M", timedelta(minutes=90)),
        (DURATION, "P1DT0.5S", timedelta(days=1, milliseconds=500)),
        (BYTES, "128 mb", 128 << 20),
        (BYTES, "2 MiB", 2 << 20),
        (BYTES, "256m", 256 << 20),
        (BYTES, "1 gibibytes", 1 << 30),
        (BYTES, "100 b", 100),
        (BYTES, "4096", 4096),
        (BYTES, "0", 0),
        (BYTES, str(2**63 - 1), 2**63 - 1),
        (size(1), "1", 1),
        (INTEGER, str(-(2**31)), -(2**31)),
        (INTEGER, str(2**31 - 1), 2**31 - 1),
        (LONG, str(2**63 - 1), 2**63 - 1),
        (FILE_NAME_PART, "part.1-", "part.1-"),
        (FILE_NAME_PART, "ä" * 75, "ä" * 75),
        (DIRECTORY, "data/v1.0", "data/v1.0"),
        (DIRECTORY, "..data/a..b", "..data/a..b"),
    ],
)
def test_a_text_means_its_value(form, text, value):
    assert value_of(form, text) == value


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (BOOLEAN, "yes"),
        (integer(), "1.5"),
        (integer(), "1_000"),
        (integer(1), "0"),
        (integer(-1, 23), "24"),
        (NUMBER, "nan"),
        (LEVELS, "0=avro"),
        (STATS_MODE, "truncate(0)"),
        (DURATION, "1 fortnight"),
        (DURATION, "P"),
        (DURATION, "-1 s"),
        (DURATION, "99999999999999999 d"),
        (BYTES, "1.5 mb"),
        (BYTES, "mb"),
        (choice("a", "b"), "c"),
        (LEVELS, "0:avro,1:csv"),
        (LEVELS, "-1:avro"),
        (LEVELS, "1_0:avro"),
        (BYTES, str(2**63)),
        (BYTES, "99999999999999 tb"),
        (size(1), "0"),
        (size(1), "0 kb"),
        (INTEGER, str(2**31)),
        (INTEGER, str(-(2**31) - 1)),
        (LONG, str(2**63)),
        (FILE_NAME_PART, "../../x"),
        (FILE_NAME_PART, "a/b"),
        (FILE_NAME_PART, "a\\b"),
        (FILE_NAME_PART, "a..b"),
        (FILE_NAME_PART, "a\0b"),
        (FILE_NAME_PART, "a\nb"),
        (FILE_NAME_PART, "ä" * 76),
        (DIRECTORY, ".."),
        (DIRECTORY, "../x"),
        (DIRECTORY, "a/../../x"),
        (DIRECTORY, "data/../.."),
        (DIRECTORY, "/../x"),
        (DIRECTORY, "a\\..\\x"),
        (DIRECTORY, "a\0b"),
    ],
)
def test_a_text_of_another_form_is_refused_with_key_text_and_form(form, text):
    with pytest.raises(InvalidInputError) as caught:
        value_of(form, text)
    assert str(caught.value) == f"cannot use table option 'x' = '{text}': expected {form.expected}."
    assert caught.value.context["option"] == "x"


def test_a_choice_takes_other_spellings_and_words_of_earlier_releases():
    assert value_of(choice("first-row"), "FIRST_ROW") == "first-row"
    assert Options({"scan.mode": "full"}).get(read.SCAN_MODE) == "latest-full"


def test_an_option_that_is_not_set_has_its_default():
    options = Options({"bucket": "4"})
    assert options.get(write.BUCKET) == 4
    assert options.get(write.FILE_FORMAT) == "parquet"
    assert options.get(upkeep.SNAPSHOT_TIME_RETAINED) == timedelta(hours=1)
    assert not options.is_set(write.FILE_FORMAT)


@pytest.mark.parametrize(
    "key", ["first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"]
)
def test_an_older_name_sets_the_option(key):
    assert Options({key: "true"}).get(write.IGNORE_DELETE) is True


def test_the_current_name_wins_over_an_older_one():
    assert Options({"log.scan": "latest", "scan.mode": "from-snapshot"}).get(read.SCAN_MODE) == "from-snapshot"


def test_a_bad_text_under_an_older_name_is_reported_under_that_name():
    with pytest.raises(InvalidInputError, match=r"'log\.scan' = 'x'"):
        Options({"log.scan": "x"}).get(read.SCAN_MODE)


def test_an_option_of_a_column_is_found_by_the_column():
    options = Options({"fields.a.b.aggregate-function": "sum"})
    assert options.get(write.AGGREGATE_FUNCTION.of("a.b")) == "sum"
    assert options.get(write.AGGREGATE_FUNCTION.of("c")) is None


def test_options_are_a_frozen_mapping_in_the_order_given():
    texts = {"b": "1", "a": "2"}
    options = Options(texts)
    texts["c"] = "3"
    assert dict(options) == {"b": "1", "a": "2"}
    assert list(options) == ["b", "a"]
    assert options.get("a") == "2"
    assert options.get("z", "none") == "none"
    assert hash(options) == hash(Options({"a": "2", "b": "1"}))


def test_merged_options_leave_the_first_as_they_were():
    first = Options({"a": "1", "b": "2"})
    assert dict(first.merged({"a": None, "c": "3"})) == {"b": "2", "c": "3"}
    assert dict(first) == {"a": "1", "b": "2"}


def test_options_pickle():
    options = Options({"a": "1"})
    assert pickle.loads(pickle.dumps(options)) == options


def test_values_are_not_shown_because_they_may_be_secrets():
    assert repr(Options({"kafka.password": "hunter2"})) == "Options(kafka.password)"


def test_target_file_size_depends_on_the_key_unless_it_is_set():
    assert write.target_file_size_bytes(Options(), keyed=True) == 128 << 20
    assert write.target_file_size_bytes(Options(), keyed=False) == 256 << 20
    assert write.target_file_size_bytes(Options({"target-file-size": "1 kb"}), keyed=True) == 1024
