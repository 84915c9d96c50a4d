"""`ms.read` and the data source: merged rows, pruned and filtered exactly, as of any snapshot; views; errors."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.errors import FormatError, InvalidInputError, NotFoundError

pytestmark = pytest.mark.spark

SCHEMA = {"dt": "STRING", "id": "INT", "n": "DOUBLE", "at": "TIMESTAMP(6)"}


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    table = catalog.create_table(
        "shop.orders", schema=SCHEMA, primary_key=["dt", "id"], partition_by=["dt"], options={"bucket": "2"}
    )
    table.write([{"dt": f"d{i % 2}", "id": i, "n": i / 2, "at": None} for i in range(20)])
    table.write([{"dt": "d1", "id": 3, "n": -1.0, "at": None}, {"dt": "d0", "id": 4, "n": None, "at": None}])
    table.write([{"dt": "d0", "id": 0, "n": None, "at": None}], kinds=["-D"])
    return table


def pairs(frame: object) -> dict[int, float | None]:
    return {row.id: row.n for row in frame.select("id", "n").collect()}  # type: ignore[attr-defined]


MERGED = {i: i / 2 for i in range(1, 20)} | {3: -1.0, 4: None}


def test_rows_are_merged(spark: SparkSession, orders: mg.Table) -> None:
    assert pairs(ms.read(spark, orders)) == MERGED
    declared = ms.read(spark, orders.path).schema
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in declared] == [
        ("dt", "string", False),
        ("id", "int", False),
        ("n", "double", True),
        ("at", "timestamp_ntz", True),
    ]


def test_columns_filters_and_limits_are_applied_in_the_tasks(spark: SparkSession, orders: mg.Table) -> None:
    frame = ms.read(spark, orders, columns=["n", "id"], where="dt = 'd1' AND n > 6")
    assert sorted(map(tuple, frame.collect())) == [(6.5, 13), (7.5, 15), (8.5, 17), (9.5, 19)]
    assert ms.read(spark, orders, where=pc.field("id") == 4).count() == 1
    assert ms.read(spark, orders, where="id = 4000").collect() == []
    assert ms.read(spark, orders, limit=5).count() == 5
    with pytest.raises(InvalidInputError, match="no column 'x'"):
        ms.read(spark, orders, columns=["x"])


def test_rows_of_whole_keys_are_looked_up_by_the_driver(spark: SparkSession, orders: mg.Table) -> None:
    where = "id IN (3, 4, 0, 77) AND dt IN ('d0', 'd1')"
    frame = ms.read(spark, orders, columns=["n", "id"], where=where)
    orders.write([{"dt": "d1", "id": 3, "n": 8.0, "at": None}])
    assert "mapInArrow" not in frame._jdf.queryExecution().toString()
    assert sorted(map(tuple, frame.collect()), key=str) == [(-1.0, 3), (None, 4)]
    assert pairs(ms.read(spark, orders, where=where, snapshot=1)) == {0: 0.0, 3: 1.5, 4: 2.0}
    assert pairs(ms.read(spark, orders, where=f"{where} AND n > 7")) == {3: 8.0}
    assert [ms.read(spark, orders, where=where, limit=n).count() for n in (0, 1, 9)] == [0, 1, 2]
    assert ms.read(spark, orders, where="dt = 'd0' AND id = 77").schema == ms.read(spark, orders).schema
    assert ms.read(spark, orders.with_options({"scan.snapshot-id": 1}), where="dt = 'd0' AND id = 0").count() == 1


def test_an_older_snapshot_is_read_and_a_frame_keeps_its_own(spark: SparkSession, orders: mg.Table) -> None:
    assert pairs(ms.read(spark, orders, snapshot=1)) == {i: i / 2 for i in range(20)}
    frame = ms.read(spark, orders)
    orders.write([{"dt": "d1", "id": 99, "n": 1.0, "at": None}])
    assert frame.count() == 19
    with pytest.raises(NotFoundError):
        ms.read(spark, orders, snapshot=77)


def test_a_damaged_file_is_named_when_its_rows_are_written_elsewhere(
    spark: SparkSession, orders: mg.Table, catalog: mg.Catalog
) -> None:
    other = catalog.create_table("shop.other", schema=SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for path in Path(orders.path).glob("dt=d1/bucket-*/*"):
        path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FormatError, match="bucket-"):
        ms.write(ms.read(spark, orders), other)
    assert other.snapshots() == ()


def test_tags_branches_and_scan_options_are_read(spark: SparkSession, orders: mg.Table) -> None:
    orders.tags.create("v1", snapshot=1)
    orders.branches.create("b", tag="v1")
    orders.branch("b").write([{"dt": "d1", "id": 99, "n": 9.0, "at": None}])
    first = {i: i / 2 for i in range(20)}
    source = spark.read.format("merganser")
    assert pairs(ms.read(spark, orders, tag="v1")) == first
    assert pairs(ms.read(spark, orders.with_options({"scan.version": "v1"}))) == first
    assert pairs(source.option("scan.tag-name", "v1").load(orders.path)) == first
    assert pairs(ms.read(spark, orders.branch("b"))) == first | {99: 9.0}
    assert pairs(spark.read.format("merganser").option("branch", "b").load(orders.path)) == first | {99: 9.0}
    delta = spark.read.format("merganser").option("scan.mode", "latest-delta").load(orders.path)
    assert pairs(delta) == {}
    ms.write(spark.createDataFrame([("d1", 5, 1.5, None)], ms.read(spark, orders).schema), orders.branch("b"))
    assert pairs(ms.read(spark, orders.branch("b")))[5] == 1.5
    assert pairs(ms.read(spark, orders)) == MERGED


def test_system_tables_are_frames(spark: SparkSession, catalog: mg.Catalog, orders: mg.Table) -> None:
    files = ms.read(spark, catalog.table("shop.orders$files"), columns=["level", "record_count"], where="level = 0")
    found = sorted(tuple(row) for row in files.collect())
    assert found == sorted(zip(*orders.files().select(["level", "record_count"]).to_pydict().values(), strict=True))
    for name in ("snapshots", "schemas", "tags", "table_indexes"):
        table = catalog.table(f"shop.orders${name}")
        assert ms.read(spark, table).count() == table.read().count()
    with pytest.raises(InvalidInputError, match="have only their current state"):
        ms.read(spark, catalog.table("shop.orders$files"), snapshot=1)


def test_the_data_source_reads_columns_filters_and_snapshots(spark: SparkSession, orders: mg.Table) -> None:
    source = spark.read.format("merganser")
    assert pairs(source.load(orders.path)) == MERGED
    chosen = spark.read.format("merganser").option("columns", "id, n").option("where", "id < 3").load(orders.path)
    assert chosen.columns == ["id", "n"]
    assert pairs(chosen) == {1: 0.5, 2: 1.0}
    assert pairs(spark.read.format("merganser").option("snapshot", 1).load(orders.path))[0] == 0.0
    named = spark.read.schema("id int, n double").format("merganser").load(orders.path)
    assert named.columns == ["id", "n"]
    assert pairs(named) == MERGED


def test_filters_of_one_query_do_not_reach_another(spark: SparkSession, orders: mg.Table) -> None:
    frame = spark.read.format("merganser").load(orders.path).select("id", "n")
    both = frame.where("id = 5").union(frame.where("id = 6"))
    assert pairs(both) == {5: 2.5, 6: 3.0}
    assert frame.where("n IS NULL").count() == 1
    assert frame.count() == 19


def test_an_empty_table_has_columns_and_no_rows(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.empty", schema=SCHEMA, primary_key=["id"], options={"bucket": "1"})
    assert ms.read(spark, table).collect() == []
    assert spark.read.format("merganser").load(table.path).collect() == []


def test_errors_of_the_source_carry_our_class_and_text(spark: SparkSession, tmp_path: Path, orders: mg.Table) -> None:
    for text, path, option in [
        ("NotFoundError: there is no table at", str(tmp_path / "none"), ("columns", "")),
        ("InvalidInputError: cannot read .* it has no column 'x'", orders.path, ("columns", "x")),
        ("InvalidInputError: option 'snapshot' is 'new'", orders.path, ("snapshot", "new")),
        ("NotFoundError", orders.path, ("tag", "v1")),
        (
            "InvalidInputError: unknown option '(?i:versionAsOf)' .* Did you mean 'snapshot'",
            orders.path,
            ("versionAsOf", "1"),
        ),
        (
            "InvalidInputError: unknown option 'snapshot-id' .* Did you mean 'snapshot'",
            orders.path,
            ("snapshot-id", "1"),
        ),
        ("unknown option 's3.endpont'. Did you mean 's3.endpoint'", orders.path, ("s3.endpont", "https://host")),
        ("unknown table option 'scan.mod'. Did you mean 'scan.mode'", orders.path, ("scan.mod", "latest")),
    ]:
        with pytest.raises(PySparkException, match=text):
            spark.read.format("merganser").option(*option).load(path).schema  # noqa: B018
    with pytest.raises(PySparkException, match="needs the path of a table"):
        spark.read.format("merganser").load()
    with pytest.raises(PySparkException, match="is declared as string and is int"):
        spark.read.schema("id string").format("merganser").load(orders.path).collect()


@pytest.mark.campaign(1 / 5)
@pytest.mark.parametrize("key", ["commit-user", "identifier", "kinds", "partitionOverwriteMode", "compaction"])
def test_options_of_writes_are_refused_in_reads(spark: SparkSession, orders: mg.Table, key: str) -> None:
    with pytest.raises(PySparkException, match=f"option '{key}' is for writes. Nothing was read. Leave the option out"):
        spark.read.format("merganser").option(key, "1").load(orders.path).collect()
    rows = spark.readStream.format("merganser").option(key, "1").load(orders.path)
    query = rows.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match=f"option '{key}' is for writes. Nothing was read"):
        query.awaitTermination()


@pytest.mark.parametrize(("key", "use"), [("where", "reads"), ("snapshot", "reads"), ("compaction", "streams")])
def test_options_of_reads_and_streams_are_refused_in_writes(
    spark: SparkSession, orders: mg.Table, key: str, use: str
) -> None:
    before = orders.latest_snapshot().id
    rows = ms.read(spark, orders)
    with pytest.raises(PySparkException, match=f"option '{key}' is for {use}. Nothing was written"):
        rows.write.format("merganser").mode("append").option(key, "1").save(orders.path)
    assert orders.latest_snapshot().id == before


def test_the_data_source_appends_and_overwrites(spark: SparkSession, orders: mg.Table) -> None:
    data = spark.createDataFrame(
        [("d0", 1, 9.0, None, "+I"), ("d1", 5, 1.0, None, "-D")],
        "dt string, id int, n double, at timestamp_ntz, op string",
    ).repartition(2)
    data.write.format("merganser").mode("append").option("kinds", "op").save(orders.path)
    assert orders.latest_snapshot().id == 4
    assert orders.read(where="id = 5").count() == 0
    assert orders.read(where="dt = 'd0' AND id = 1").to_pylist()[0]["n"] == 9.0
    one = data.drop("op").where("id = 1")
    one.write.format("merganser").mode("overwrite").option("replaceWhere", "dt = 'd0'").save(orders.path)
    assert orders.read(where="dt = 'd0'").count() == 1
    assert orders.read(where="dt = 'd1'").count() == 9
    data.drop("op").where("id = 5").write.format("merganser").mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).save(orders.path)
    assert orders.read().count() == 2
    one.write.format("merganser").mode("overwrite").save(orders.path)
    assert orders.read().count() == 1
    assert orders.latest_snapshot().commit_kind == "OVERWRITE"


def test_later_partitions_of_a_frame_win_in_the_data_source_too(spark: SparkSession, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.t", schema={"id": "BIGINT", "n": "BIGINT"}, primary_key=["id"], options={"bucket": "2"}
    )
    for identifier in (1, 1):
        spark.range(0, 400, 1, 4).selectExpr("id % 100 as id", "id as n").write.format("merganser").mode(
            "append"
        ).options(**{"commit-user": "job", "identifier": str(identifier)}).save(table.path)
    assert len(table.snapshots()) == 1
    assert {r["id"]: r["n"] for r in table.read().to_pylist()} == {i: 300 + i for i in range(100)}


def test_bad_writes_through_the_data_source_change_nothing(
    spark: SparkSession, orders: mg.Table, tmp_path: Path
) -> None:
    def save(frame: object, path: str, **options: str) -> None:
        frame.write.format("merganser").mode("append").options(**options).save(path)  # type: ignore[attr-defined]

    files = sorted(Path(orders.path).rglob("*"))
    good = "dt string, id int, n double, at timestamp_ntz"
    null_key = spark.createDataFrame([("d0", None, 9.0, None), ("d0", 1, 9.0, None)], good).repartition(2)
    for text, frame, path, options in [
        ("NotFoundError: there is no table .*create_table", null_key, str(tmp_path / "none"), {}),
        ("InvalidInputError: .*3 of 4 columns are missing", null_key.select("id"), orders.path, {}),
        ("InvalidInputError: .*key column 'id' is null", null_key, orders.path, {}),
        ("InvalidInputError: identifier 3 is given without", null_key, orders.path, {"identifier": "3"}),
        ("InvalidInputError: option 'replaceWhere' goes with", null_key, orders.path, {"replaceWhere": "dt = 'd0'"}),
    ]:
        with pytest.raises(PySparkException, match=text):
            save(frame, path, **options)
    assert sorted(Path(orders.path).rglob("*")) == files


def test_a_temporary_view_is_selected_from_and_inserted_into(spark: SparkSession, orders: mg.Table) -> None:
    def view() -> None:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING merganser OPTIONS (path '{orders.path}')")

    view()
    assert spark.sql("SELECT max(id) AS m, count(*) AS c FROM v WHERE dt = 'd1'").collect()[0].asDict() == {
        "m": 19,
        "c": 10,
    }
    spark.sql("INSERT INTO v VALUES ('d2', 100, 1.5D, TIMESTAMP_NTZ '2026-01-01 00:00:00'), ('d1', 1, 7.5D, NULL)")
    spark.sql("INSERT INTO v (id, dt, n, at) SELECT 101, 'd2', CAST(id AS DOUBLE), at FROM v WHERE id = 19")
    assert orders.latest_snapshot().id == 5
    view()
    found = spark.sql("SELECT id, n FROM v WHERE dt = 'd2' OR id = 1").collect()
    assert sorted(map(tuple, found)) == [(1, 7.5), (100, 1.5), (101, 19.0)]
    spark.sql("INSERT OVERWRITE v SELECT 'd9', 1, 1.0D, NULL")
    assert orders.read().count() == 1
    assert orders.read().to_pylist()[0]["dt"] == "d9"


def test_files_without_their_partition_columns_are_read(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1, "a/b", 1.5), (2, "c", None), (3, None, 0.5)], "id INT, place STRING, n DOUBLE")
    frame.write.partitionBy("place").parquet(str(tmp_path / "folder"))
    table = catalog.migrate(tmp_path / "folder", "shop.places")
    found = ms.read(spark, table).select("id", "place", "n")
    assert sorted(map(tuple, found.collect())) == [(1, "a/b", 1.5), (2, "c", None), (3, None, 0.5)]
    assert [row.id for row in ms.read(spark, table, where="place is null or n > 1").sort("id").collect()] == [1, 3]
    ms.write(frame.select("id", "n", "place"), table)
    assert ms.read(spark, table, where="place = 'a/b'").count() == 2
