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
    if found["values"] != case["values"]:
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["sql"])
def test_expression(catalog: Any, case: dict[str, Any]) -> None:
    assert outcome(catalog, case) in ("equal", "refused")
