"""Options in the words of others become options of the format, and what they exclude is refused."""

from __future__ import annotations

from typing import Any

import pytest

from merganser.errors import InvalidInputError
from merganser.rules.create import create_schema
from merganser.rules.dialects import check_has_key, translated


def stored(options: dict[str, Any], schema: dict[str, str] | None = None) -> dict[str, str]:
    columns = schema or {"k": "INT", "v": "BIGINT", "s": "STRING"}
    return dict(create_schema(columns, primary_key=["k"], options={"bucket": "1"} | options).options)


@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "versioned", "versioned.ver-column": "v"},
        {"merge-engine": "versioned", "merge-engine.versioned.ver-column": "v"},
        {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"},
    ],
)
def test_versioned_is_stored_as_what_other_engines_read_alike(options: dict[str, str]) -> None:
    assert stored(options) == {
        "bucket": "1",
        "merge-engine": "deduplicate",
        "sequence.field": "v",
        "merganser.merge-engine": "versioned",
        "ignore-delete": "true",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merge-engine": "versioned"}, "needs one version column, and 0 are given"),
        ({"merge-engine": "versioned", "versioned.ver-column": "s"}, "versions are INT, BIGINT or timestamps"),
        ({"merge-engine": "versioned", "versioned.ver-column": "gone"}, "'gone' is not found"),
        ({"merge-engine": "versioned", "versioned.ver-column": "v", "sequence.field": "v"}, "Remove 'sequence.field'"),
        ({"table.merge-engine": "first_row", "table.delete.behavior": "allow"}, "takes no row back"),
        ({"table.delete.behavior": "alow"}, "Did you mean 'allow'"),
        ({"table.merge-engine": "aggregation", "merge-engine": "first-row"}, "are both set"),
    ],
)
def test_what_excludes_each_other_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        stored(options)


def test_words_of_fluss_are_translated() -> None:
    given = {
        "table.merge-engine": "aggregation",
        "table.delete.behavior": "allow",
        "fields.v.agg": "sum",
        "fields.s.agg": "string_agg",
        "fields.s.listagg.delimiter": "|",
    }
    assert stored(given) == {
        "bucket": "1",
        "merge-engine": "aggregation",
        "aggregation.remove-record-on-delete": "true",
        "fields.v.aggregate-function": "sum",
        "fields.s.aggregate-function": "listagg",
        "fields.s.list-agg-delimiter": "|",
    }


@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [("ignore", {"ignore-delete": "true"}), ("disable", {"merganser.deletes": "refuse"}), ("allow", {})],
)
def test_what_deletes_do(behaviour: str, expected: dict[str, str]) -> None:
    assert translated({"table.delete.behavior": behaviour}, what="x") == expected


def test_an_engine_of_fluss_needs_a_key() -> None:
    with pytest.raises(InvalidInputError, match="needs a primary key"):
        check_has_key({"table.merge-engine": "aggregation"}, (), what="cannot create")
    check_has_key({"merge-engine": "aggregation"}, (), what="cannot create")


def test_options_of_the_format_stay_as_they_are() -> None:
    given = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "bucket": 4}
    assert translated(given, what="x") == given
