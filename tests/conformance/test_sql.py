"""The cases of SQL in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from tests.conformance.sql_cases import cases, check

_LACKING = {
    "analyze-table-makes-a-snapshot": "ANALYZE is not written yet",
}


@pytest.mark.parametrize("case", cases("embedded"), ids=lambda case: case["name"])
def test_case(case: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if case["name"] in _LACKING:
        request.applymarker(pytest.mark.xfail(reason=_LACKING[case["name"]], strict=True))
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    check(case, catalog.session().sql)
