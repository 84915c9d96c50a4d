"""Merges whose rows an engine has joined: what jobs make of rows, and what an engine cannot join."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import merganser as mg
from merganser.edit import merging
from merganser.edit.merge_jobs import MARK, MergeJob, joined_elsewhere, merged_in_tasks
from merganser.upkeep.compact_table import on_threads
from merganser.write.job import Outcome

COLUMNS = {"k": "INT", "a": "INT"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("db")
    return found


def test_a_job_changes_rows_that_meet_none_window_by_window(
    catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_WINDOW_ROWS", 4)
    table = catalog.create_table("db.t", COLUMNS, primary_key=["k"], options={"bucket": "1"})
    table.write([{"k": k, "a": k} for k in range(20)])
    merge = table.merge(pa.table({"s": pa.array([], pa.int32())}), on="target.a = source.s")
    merge = merge.when_matched_delete().when_not_matched_insert({"k": "s"})
    merge = merge.when_not_matched_by_source_update({"a": "a + 100"}, condition="a > 5")
    joined = joined_elsewhere(merge)
    assert joined is not None
    assert (dict(joined.keys), joined.new, joined.others) == ({"k": "_merganser_key_0"}, {"k": "s"}, True)
    schema = pa.schema([("s", pa.int32()), (MARK, pa.bool_()), ("_merganser_key_0", pa.int32())])
    rows = [(None, None, k) if k not in (3, 8) else (k, True, k) for k in range(20)] + [(30, True, None)]
    looked: list[int] = []
    monkeypatch.setattr(
        MergeJob,
        "_change_others",
        lambda self, keys, *others, real=MergeJob._change_others: (looked.append(len(keys)), real(self, keys, *others)),
    )

    def run(job: MergeJob) -> list[Outcome]:
        parts = [dict(zip(schema.names, row, strict=True)) for row in rows]
        return [job.run((pa.Table.from_pylist(parts[i : i + 3], schema) for i in range(0, 21, 3)), table.env)]

    found = merged_in_tasks(joined.merge, run, on_threads(table.env), 1)
    assert found is not None
    assert (found.rows_inserted, found.rows_updated, found.rows_deleted) == (1, 13, 2)
    assert {row["k"]: row["a"] for row in table.read().to_pylist()} == {
        k: k if k < 6 else k + 100 for k in range(20) if k not in (3, 8)
    } | {30: None}
    assert max(looked) < 8
    assert sum(looked) == 18


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"k": "TIMESTAMP(9)", "a": "INT"}, {}),
        ({"k": "INT", "a": "TIMESTAMP_LTZ(7)"}, {}),
        ({"k": "DOUBLE", "a": "INT"}, {}),
        ({"k": "INT", "a": "INT"}, {"primary-key.nullable": "true"}),
    ],
)
def test_what_an_engine_holds_in_another_way_is_not_joined_there(
    catalog: mg.Catalog, columns: dict[str, str], options: dict[str, str]
) -> None:
    table = catalog.create_table("db.t", columns, primary_key=["k"], options={"bucket": "1", **options})
    merge = table.merge([], on="target.a = source.a").when_not_matched_by_source_delete()
    assert joined_elsewhere(merge) is None
