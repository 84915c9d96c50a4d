"""Recorded files of other writers: tables have the rows that the writers' own readers gave, or refuse them by name."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import merganser as mg

from .__main__ import RECORDED, form_of, in_short
from .compare import WAYS, expected_rows, outcome, table_of

OUTCOMES: dict[str, dict[str, list[str]]] = json.loads((RECORDED / "outcomes.json").read_text())


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    made = mg.catalog(str(tmp_path / "w"), options={"local.sync": "false"})
    made.create_database("db")
    return made


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("writer", OUTCOMES)
def test_files_become_the_rows_that_their_writer_reads_or_are_refused(catalog: mg.Catalog, writer: str) -> None:
    found = {}
    for i, name in enumerate(OUTCOMES[writer]):
        ways = {w: outcome(catalog, f"db.t{i}_{w}", RECORDED / writer / name, w, form_of(name)) for w in WAYS}
        assert not [text for text in ways.values() if text.startswith("WRONG")], (name, ways)
        for way in WAYS[1:]:
            assert ways[way].startswith(("equal", "refused: cannot migrate ")), (name, ways)
        found[name] = list(in_short(ways))
    assert found == OUTCOMES[writer]


@pytest.mark.parametrize("way", ["link", "copy"])
@pytest.mark.parametrize("name", ["parquet-legacy-micros", "parquet-legacy-int96", "avro-legacy", "orc-old"])
def test_filters_and_columns_see_dates_of_the_old_calendar_as_they_are_meant(
    catalog: mg.Catalog, name: str, way: str
) -> None:
    folder = RECORDED / "spark-3.5" / name
    table = table_of(catalog, "db.t", folder, way)
    days = expected_rows(folder).column("d").cast(pa.int32())
    for day, text in ((-353_920, "1001-01-01"), (-141_438, "1582-10-04"), (-141_427, "1582-10-15")):
        for sign, compare in (("=", pc.equal), ("<", pc.less), (">=", pc.greater_equal)):
            wanted = pc.sum(compare(days, day)).as_py()
            assert table.read(columns=["id"], where=f"d {sign} DATE '{text}'").count() == wanted, (sign, text)
    times = expected_rows(folder).column("t")
    for at in times.cast(pa.timestamp("us", "UTC")).drop_null():
        assert table.read(columns=["id"], where=pc.field("t") == at).count() >= 1, at
