"""Expressions give in this process what Spark gave when they were recorded, or are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError, UnsupportedError
from tests.unit.sql.recorded import RECORDED, expressions, is_query, query, seen, unnamed, zone_of

CASES = json.loads(RECORDED.read_text(encoding="utf-8"))
REFUSED = "in this process"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return mg.catalog(tmp_path_factory.mktemp("sql"))


def outcome(catalog: Any, case: dict[str, Any]) -> str:
    """Return "equal", "refused", or how the result differs."""
    zone, text = zone_of(case["sql"])
    session = catalog.session()
    session.sql(f"SET timezone = '{zone}'")
    try:
        rows = session.sql(query(text))
    except UnsupportedError as error:
        return "refused" if "Spark" in str(error) or REFUSED in str(error) else f"refused without a way out: {error}"
    except InvalidInputError as error:
        if "there is no function" in str(error):
            return "refused"
        return "equal" if "error" in case else f"an error here, none in Spark: {str(error)[:150]}"
    if "error" in case:
        return f"no error here, {case['error']} in Spark: {rows.to_pydict()}"
    found = seen(rows)
    # 0.0 and -0.0 are equal, and their texts are not
    if found["values"] != case["values"] or ("GROUP BY" in text and str(found["values"]) != str(case["values"])):
        return f"{found['values']} ({found['types']}) instead of {case['values']} ({case['types']})"
    pairs = list(zip(found["types"], case["types"], strict=True))
    if not all(own == theirs or (own, theirs) in ALIKE or "<" in own for own, theirs in pairs):
        return f"the types {found['types']} instead of {case['types']}"
    names = rows.column_names if is_query(text) else session.sql(unnamed(text)).column_names
    return "equal" if names == case["names"] or text in UNNAMED else f"the names {names} instead of {case['names']}"


ALIKE = {("timestamp[us]", "timestamp[ns]"), ("string", "large_string")}
UNNAMED = ("+i",)
"""The parser leaves the sign out."""


def test_all_expressions_are_recorded() -> None:
    assert [case["sql"] for case in CASES] == expressions()


@pytest.mark.campaign(1 / 36)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["sql"])
def test_expression(catalog: Any, case: dict[str, Any]) -> None:
    assert outcome(catalog, case) in ("equal", "refused")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("count(DISTINCT 1 / a)", 2),
        ("count(DISTINCT 1 / a, a)", 2),
        ("sum(DISTINCT 1 / a)", 0.75),
        ("max(1 / a)", 0.5),
        ("avg(1 / a)", 0.375),
        ("first(1 / a)", 0.5),
        ("max_by(1 / a, a)", 0.25),
        ("bool_and(1 / a > 0)", True),
        ("count_if(1 / a > 0)", 2),
        ("sum(CAST(t AS INT))", 6),
    ],
)
def test_filter_keeps_rows_from_the_aggregate(catalog: Any, call: str, expected: Any) -> None:
    rows = "VALUES (0, 'x'), (2, '2'), (4, '4') v(a, t)"
    assert catalog.sql(f"SELECT {call} FILTER (WHERE a <> 0) AS v FROM {rows}").to_pylist() == [{"v": expected}]
    over = catalog.sql("SELECT sum(1 / a) FILTER (WHERE a <> 0) OVER (ORDER BY a) AS v FROM VALUES (0), (2) v(a)")
    assert over["v"].to_pylist() == [None, 0.5]


def test_errors_in_windows_say_what_failed(catalog: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^cannot run the query: division by zero$"):
        catalog.sql("SELECT rank() OVER (ORDER BY 1 / a) FROM VALUES (0), (2) v(a)")
    with pytest.raises(InvalidInputError, match="cannot cast 'x' to INT"):
        catalog.sql("SELECT rank() OVER (PARTITION BY CAST(a AS INT)) FROM VALUES ('x') v(a)")
    rows = catalog.sql("SELECT rank() OVER (ORDER BY concat(a, 'error('), 1 / 2) AS r, a FROM VALUES ('error(') v(a)")
    assert rows.to_pylist() == [{"r": 1, "a": "error("}]


def test_between_symmetric_is_refused(catalog: Any) -> None:
    with pytest.raises(InvalidInputError, match="has no BETWEEN SYMMETRIC"):
        catalog.sql("SELECT 1 BETWEEN SYMMETRIC 3 AND 1")
