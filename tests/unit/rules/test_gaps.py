"""What a table may ask for and this version does not do."""

from __future__ import annotations

import pytest
from rule_tables import KEYED, table

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.options.option import State
from merganser.options.registry import ALL_OPTIONS
from merganser.rules.gaps import (
    EXPIRY_GAPS,
    MERGE_READ_GAPS,
    READ_GAPS,
    WRITE_GAPS,
    check_can_read,
    check_can_write,
    unsupported_for_reading,
    unsupported_for_writing,
)

GAPS = (WRITE_GAPS, READ_GAPS, MERGE_READ_GAPS, EXPIRY_GAPS)


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


def test_a_keyed_table_needs_no_number_of_buckets():
    check_can_write(table({}), name="db.t")
    check_can_write(table({}, partition=("dt",)), name="db.t")
    check_can_write(table({"bucket": "-2"}), name="db.t")


def test_a_refusal_to_write_names_the_table_and_every_feature():
    with pytest.raises(UnsupportedError) as caught:
        check_can_write(table(KEYED | {"manifest.format": "orc", "file.format": "csv"}), name="db.t")
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


@pytest.mark.parametrize("gaps", GAPS)
def test_every_gap_has_a_feature_and_advice_of_its_own(gaps):
    features = [gap.feature for gap in gaps]
    assert len(features) == len(set(features))
    assert all(gap.advice.endswith(".") for gap in gaps)


def test_gaps_are_of_the_options_that_say_so():
    said = {option for option in ALL_OPTIONS if option.state is State.REFUSED or option.refused}
    assert {option for gaps in GAPS for gap in gaps for option in gap.options} == said


def refused_texts(option):
    if option.refused:
        return [text.split()[0] for text in option.refused]  # what follows the value is the condition
    if option.state is not State.REFUSED:
        return []
    return [name for name in option.type.choices if name != str(option.default).lower()] or ["x"]


REFUSED = [(option.key, text) for option in ALL_OPTIONS for text in refused_texts(option)]


@pytest.mark.parametrize(("key", "text"), REFUSED, ids=str)
def test_what_an_option_calls_refused_is_refused(key, text):
    asking = KEYED | {key: text}
    parted = table(asking, partition=("dt",))
    moving = table(asking | {"bucket": "-1"}, partition=("dt",))
    assert any(_gaps_of(key, made) for made in (table(asking), table(asking, key=()), parted, moving))


HONOURED = [
    (option.key, text)
    for option in ALL_OPTIONS
    for text in option.type.choices
    if option.state is State.HONOURED and text not in option.refused
]


@pytest.mark.parametrize(("key", "text"), HONOURED, ids=str)
def test_what_an_option_calls_honoured_is_not_refused(key, text):
    assert _gaps_of(key, table(KEYED | {key: text})) == []


def _gaps_of(key, schema):
    return [gap for gaps in GAPS for gap in gaps if gap.applies(schema) and key in [o.key for o in gap.options]]


def test_an_order_that_is_not_done_stops_reading_only_where_rows_must_be_merged():
    schema = table(KEYED | {"sequence.snapshot-ordering": "true", "write-only": "true"})
    check_can_read(schema, name="db.t", merge=False)
    with pytest.raises(UnsupportedError, match="whose files have to be merged"):
        check_can_read(schema, name="db.t", merge=True)


def test_a_table_with_deletion_vectors_is_written_and_read():
    schema = table(KEYED | {"deletion-vectors.enabled": "true"})
    check_can_write(schema, name="db.t")
    check_can_read(schema, name="db.t", merge=True)
