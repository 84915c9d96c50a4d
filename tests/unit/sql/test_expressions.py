"""Expressions give in this process what Spark gave when they were recorded, or are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.sql.session import Session
from tests.unit.sql.recorded import RECORDED, expressions, plain, query

CASES = json.loads(RECORDED.read_text(encoding="utf-8"))
REFUSED = "in this process"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return mg.catalog(tmp_path_factory.mktemp("sql")).session()


def outcome(session: Session, case: dict[str, Any]) -> str:
    """Return "equal", "refused", or how the result differs."""
    try:
        column = session.sql(query(case["sql"])).column("v")
    except UnsupportedError as error:
        return "refused" if "Spark" in str(error) or REFUSED in str(error) else f"refused without a way out: {error}"
    except InvalidInputError as error:
        if "there is no function" in str(error):
            return "refused"
        return "equal" if "error" in case else f"an error here, none in Spark: {str(error)[:150]}"
    if "error" in case:
        return f"no error here, {case['error']} in Spark: {column.to_pylist()}"
    values = [plain(value) for value in column.to_pylist()]
    kind = str(column.type)
    if values != case["values"]:
        return f"{values} ({kind}) instead of {case['values']} ({case['type']})"
    theirs = case["type"].replace("list<element:", "list<item:")
    same = kind.replace("large_", "") == theirs or (kind, theirs) in ALIKE or "<" in kind
    return "equal" if same else f"the type {kind} instead of {theirs}"


ALIKE = {("timestamp[us]", "timestamp[ns]"), ("string", "large_string")}


def test_all_expressions_are_recorded() -> None:
    assert [case["sql"] for case in CASES] == expressions()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["sql"])
def test_expression(session: Session, case: dict[str, Any]) -> None:
    assert outcome(session, case) in ("equal", "refused")
