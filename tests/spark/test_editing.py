"""`ms.delete`, `ms.update` and `ms.merge`: tasks change rows, and one commit holds what all of them did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from merganser import changes as c
from merganser.errors import InvalidInputError
from tests.unit.erase.traces import traces

pytestmark = pytest.mark.spark

COLUMNS = {"k": "INT", "p": "STRING", "a": "INT", "at": "TIMESTAMP_LTZ(6)"}
TABLES: dict[str, tuple[list[str], dict[str, str]]] = {
    "deduplicate": (["p", "k"], {"bucket": "2"}),
    "per-record": (["p", "k"], {"bucket": "1", "changelog-producer": "per-record"}),
    "input": (["p", "k"], {"bucket": "2", "changelog-producer": "input"}),
    "lookup": (["p", "k"], {"bucket": "2", "changelog-producer": "lookup"}),
    "dynamic": (["p", "k"], {"bucket": "-1"}),
    "partial-update": (
        ["p", "k"],
        {"bucket": "2", "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    ),
    "partial-update in files": (["p", "k"], {"bucket": "2", "merge-engine": "partial-update"}),
    "append": ([], {}),
    "append vectors": ([], {"deletion-vectors.enabled": "true"}),
}


def made(catalog: mg.Catalog, kind: str) -> mg.Table:
    key, options = TABLES[kind]
    table = catalog.create_table("shop.t", COLUMNS, primary_key=key, partition_by=["p"], options=options)
    for first in (0, 20):
        rows = [{"k": k, "p": "xy"[k % 2], "a": k, "at": None} for k in range(first, first + 20)]
        table.write(rows)
    return table


def values(table: mg.Table) -> dict[int, int | None]:
    return {row["k"]: row["a"] for row in table.read().to_pylist()}


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("kind", TABLES)
def test_tasks_delete_and_update_rows_in_one_commit(spark: SparkSession, catalog: mg.Catalog, kind: str) -> None:
    table = made(catalog, kind)
    found = ms.delete(spark, table, "a % 5 = 0 AND k > 3")
    assert found is not None
    assert (found.operation, found.rows_deleted) == ("DELETE", 7)
    deleted = found
    table.alter([c.rename_column("at", "since"), c.add_column("z", "INT")])  # the handle stays as it was
    found = ms.update(spark, table.path, "A >= 30", {"A": "a + 100"}, commit_user="job", identifier=1)
    assert found is not None
    assert found.rows_updated == 8
    assert ms.update(spark, table, "a >= 30", {"a": "a + 100"}, commit_user="job", identifier=1) == found
    assert ms.delete(spark, table, "a = 77") is None
    left = [k for k in range(40) if k % 5 or k < 4]
    assert values(table) == {k: k + 100 if k >= 30 else k for k in left}
    assert [each for each in table.check() if each.is_fault] == []
    if table.options.get("changelog-producer", "none") != "none":
        changes = [(row["_row_kind"], row["k"], row["a"]) for row in table.changes(start=deleted.id).to_pylist()]
        gone = [("-D", k, k) for k in range(5, 40, 5)]
        updated = [change for k in left if k >= 30 for change in (("-U", k, k), ("+U", k, k + 100))]
        assert sorted(changes) == sorted(gone + updated)


def test_what_a_task_refuses_changes_nothing(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = made(catalog, "deduplicate")
    for where, sets in (("k >= 0", {"a": "1 DIV (k - 25)"}), ("k >= 0", {"p": "'x'"})):
        with pytest.raises(InvalidInputError, match=r"cannot update 'shop\.t'"):
            ms.update(spark, table, where, sets)
    assert values(table) == {k: k for k in range(40)}
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def test_texts_are_in_the_time_zone_of_the_session(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = made(catalog, "deduplicate")
    ms.update(spark, table, "k = 1", {"at": "TIMESTAMP_LTZ '2026-01-01 00:00:00'"})
    [row] = table.read(where="k = 1").to_pylist()
    assert row["at"].isoformat() == "2026-01-01T05:00:00+00:00"
    found = ms.delete(spark, table, "at < TIMESTAMP '2026-01-01 00:00:01' AND a >= 0")
    assert found is not None
    assert found.rows_deleted == 1


def test_a_frame_is_merged(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = made(catalog, "deduplicate")
    source = spark.range(38, 42).selectExpr("cast(id as int) k", "if(id % 2 = 0, 'x', 'y') p", "-id as v")
    merge = ms.merge(spark, table, source, on="target.p = source.p AND target.k = source.k")
    found = merge.when_matched_update({"a": "v"}).when_not_matched_insert({"k": "k", "p": "p", "a": "v"}).execute()
    assert found is not None
    assert (found.rows_inserted, found.rows_updated, found.rows_deleted) == (2, 2, 0)
    assert {k: a for k, a in values(table).items() if k >= 37} == {37: 37, 38: -38, 39: -39, 40: -40, 41: -41}
    rows: Any = [{"k": 1}]
    with pytest.raises(InvalidInputError, match=r"Table\.merge takes rows"):
        ms.merge(spark, table, rows, on="target.k = source.k")


@pytest.mark.parametrize("kind", ["deduplicate", "per-record", "dynamic"])
def test_tasks_share_the_keys_of_a_large_source(
    spark: SparkSession, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("merganser.spark.merging.FILES_FROM_BYTES", 1)
    monkeypatch.setattr("pyspark.sql.DataFrame.toArrow", None)  # no row comes to the driver
    table = made(catalog, kind)
    table.alter([c.rename_column("at", "since"), c.add_column("z", "INT")])  # the handle stays as it was
    columns = ["cast(id as int) `the key`", "if(id % 2 = 0, 'x', 'y') p", "-id as v"]
    source = spark.range(30, 50, 1, 4).selectExpr(*columns)
    merge = ms.merge(spark, table, source, on="target.p = source.p AND target.k = source.`the key`")
    merge = merge.when_matched_delete("v % 5 = 0").when_matched_update({"a": "target.a + v"})
    found = merge.when_not_matched_insert({"k": "`the key`", "p": "p", "a": "v"}, condition="v > -48").execute()
    assert found is not None
    assert (found.operation, found.rows_inserted, found.rows_updated, found.rows_deleted) == ("MERGE", 8, 8, 2)
    expected = {k: k for k in range(30)} | {k: 0 for k in range(30, 40) if k % 5} | {k: -k for k in range(40, 48)}
    assert values(table) == expected
    assert [each for each in table.check() if each.is_fault] == []
    twice = source.union(source)
    with pytest.raises(InvalidInputError, match=r"meet more than one row of the source \(.*k = 3"):
        ms.merge(spark, table, twice, on="target.p = source.p AND k = `the key`").when_matched_delete().execute()


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("kind", ["deduplicate", "lookup", "dynamic"])
def test_spark_joins_a_source_that_names_no_whole_key(
    spark: SparkSession, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("merganser.spark.merging.FILES_FROM_BYTES", 1)
    monkeypatch.setattr("pyspark.sql.DataFrame.toArrow", None)  # no row comes to the driver
    table = made(catalog, kind)
    table.delete("k = 12")
    table.alter([c.rename_column("at", "since"), c.add_column("z", "INT")])  # the handle stays as it was
    source = spark.range(0, 60, 10, 4).selectExpr("cast(id as int) `the a`", "cast(id as int) k", "'y' p", "-id v")
    merge = ms.merge(spark, table, source, on="a >= `the a` AND a < `the a` + 4 AND target.p = source.p")
    merge = merge.when_matched_delete("source.v = -20").when_matched_update({"a": "v"}, condition="target.k % 2 = 1")
    found = merge.execute()
    assert found is not None
    assert (found.operation, found.rows_inserted, found.rows_updated, found.rows_deleted) == ("MERGE", 0, 6, 2)
    met = {k: -(k // 10) * 10 for k in (1, 3, 11, 13, 31, 33)}
    expected = {k: k for k in range(40) if k not in (12, 21, 23)} | met
    assert values(table) == expected
    merge = ms.merge(
        spark, table, source, on="target.a = -source.`the a` AND target.p = source.p AND target.k < 3 + `the a`"
    )
    new = merge.when_not_matched_insert({"k": "source.k", "p": "source.p", "a": "v"}, condition="`the a` > 30")
    found = new.execute()
    assert found is not None
    assert (found.rows_inserted, found.rows_updated, found.rows_deleted) == (2, 0, 0)
    assert values(table) == expected | {40: -40, 50: -50}
    merge = ms.merge(spark, table, source, on="target.a = 1000 + source.`the a`")
    with pytest.raises(InvalidInputError, match="have a key that is there"):
        merge.when_not_matched_insert({"k": "source.k", "p": "source.p", "a": "v"}).execute()
    with pytest.raises(InvalidInputError, match=r"meet more than one row of the source \(.*k = "):
        ms.merge(spark, table, source, on="target.p = source.p AND a < `the a`").when_matched_delete().execute()
    assert [each for each in table.check() if each.is_fault] == []


@pytest.mark.parametrize("kind", ["input", "append vectors"])
def test_tasks_erase_rows(spark: SparkSession, catalog: mg.Catalog, kind: str) -> None:
    table = made(catalog, kind)
    table.tags.create("v1")
    report = ms.erase(spark, table, "A = 7 OR k = 12", everywhere=True, commit_user="privacy")
    assert report.is_complete
    assert (report.rows, report.erased_by) == (2, "privacy")
    assert [one.name for one in report.ended if one.kind == "tag"] == ["v1"]
    assert values(table) == {k: k for k in range(40) if k not in (7, 12)}


@pytest.mark.parametrize("options", [{"bucket": "-1"}, {"bucket": "1", "stream.enabled": "true"}])
def test_tasks_erase_partitions_from_metadata(
    spark: SparkSession, catalog: mg.Catalog, options: dict[str, str]
) -> None:
    """A partition column holds the person's name: no index manifest and no file of shards has it afterwards."""
    schema = {"id": "BIGINT", "name": "STRING"}
    table = catalog.create_table(
        "shop.people", schema, primary_key=["id", "name"], partition_by=["name"], options=options
    )
    table.write([{"id": 7, "name": "Ada-Lovelace"}, {"id": 8, "name": "Bo"}])
    assert ms.erase(spark, table, "id = 7", everywhere=True).is_complete
    files = {str(path): path.read_bytes() for path in Path(table.path).rglob("*") if path.is_file()}
    assert traces(files, "Ada-Lovelace") == []
    assert table.read().to_pylist() == [{"id": 8, "name": "Bo"}]
