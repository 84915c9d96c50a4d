"""Tables of other implementations read equal: the rows of every golden table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from tests.interop.values import difference, rows_of

TABLES = Path(__file__).parent / "tables"
NAMES = sorted(path.name.removesuffix(".expected.json") for path in TABLES.glob("*.expected.json"))


def newest_schema(name: str) -> dict[str, Any]:
    """The newest schema file of a golden table."""
    newest = max((TABLES / name / "schema").glob("schema-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return json.loads(newest.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_another_implementation_reads_equal(name: str) -> None:
    expected = expected_of(name)
    table = mg.table(str(TABLES / name))
    found = rows_of(table.read().to_arrow(), newest_schema(name)["fields"])
    assert difference(found, expected["rows"]) is None
    assert table.read().count() == expected["row_count"]


def _further_reads() -> list[tuple[str, str]]:
    return [(name, what) for name in NAMES for what in expected_of(name).get("reads") or {}]


def expected_of(name: str) -> dict[str, Any]:
    """What a correct reader returns of a golden table."""
    return json.loads((TABLES / f"{name}.expected.json").read_text())


@pytest.mark.parametrize(("name", "what"), _further_reads())
def test_a_tag_or_branch_of_another_implementation_reads_equal(name: str, what: str, tmp_path: Path) -> None:
    kind, _, of = what.partition(" ")
    (tmp_path / "golden.db").mkdir()
    (tmp_path / "golden.db" / name).symlink_to(TABLES / name)
    catalog = mg.catalog(str(tmp_path))
    match kind:
        case "tag":
            scan = catalog.table(f"golden.{name}").read(tag=of)
        case "branch":
            scan = catalog.table(f"golden.{name}$branch_{of}").read()
        case _:
            scan = catalog.table(f"golden.{name}").read(snapshot=int(of))
    assert difference(rows_of(scan.to_arrow(), newest_schema(name)["fields"]), expected_of(name)["reads"][what]) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_another_implementation_is_sound(name: str) -> None:
    assert not [found for found in mg.table(str(TABLES / name)).check() if found.is_fault]
