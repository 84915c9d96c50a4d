"""Tables of other implementations read equal: the rows of every golden table that this version reads.

Tables that need a feature which is not built yet are refused by name, never misread. `refused` says which, by the
options and schemas of the table itself, so that a feature that is built moves its tables to the first kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import UnsupportedError
from tests.interop.values import difference, rows_of

TABLES = Path(__file__).parent / "tables"
NAMES = sorted(path.name.removesuffix(".expected.json") for path in TABLES.glob("*.expected.json"))


def newest_schema(name: str) -> dict[str, Any]:
    """The newest schema file of a golden table."""
    newest = max((TABLES / name / "schema").glob("schema-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return json.loads(newest.read_text())


def refused(name: str) -> bool:
    """Whether the table needs what this version does not read."""
    options = newest_schema(name)["options"]
    return bool(options.get("deletion-vectors.enabled") == "true")


@pytest.mark.parametrize("name", [name for name in NAMES if not refused(name)])
def test_a_table_of_another_implementation_reads_equal(name: str) -> None:
    expected = expected_of(name)
    table = mg.table(str(TABLES / name))
    found = rows_of(table.read().to_arrow(), newest_schema(name)["fields"])
    assert difference(found, expected["rows"]) is None
    assert table.read().count() == expected["row_count"]


@pytest.mark.parametrize("name", [name for name in NAMES if refused(name)])
def test_a_table_that_needs_an_unbuilt_feature_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot read"):
        mg.table(str(TABLES / name)).read().to_arrow()


def _further_reads() -> list[tuple[str, str]]:
    names = (name for name in NAMES if not refused(name))
    return [(name, what) for name in names for what in expected_of(name).get("reads") or {}]


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
