"""`ms.load`: rows of files, in file and row order, one commit, by tasks that read the files themselves."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
import merganser.spark.files as spark_files
from merganser.errors import FormatError, InvalidInputError, NotFoundError

pytestmark = pytest.mark.spark

ROWS = 3_000
KEYS = 500


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_files, "TASK_BYTES_MIN", 1)


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    return catalog.create_table(
        "shop.orders", schema={"id": "BIGINT", "n": "BIGINT"}, primary_key=["id"], options={"bucket": "2"}
    )


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Three files whose names and rows are in order; every key occurs six times."""
    (tmp_path / "in").mkdir()
    for i in range(3):
        start = i * ROWS // 3
        numbers = list(range(start, start + ROWS // 3))
        data = pa.table({"n": numbers, "id": [n % KEYS for n in numbers]})
        pq.write_table(data, tmp_path / "in" / f"part-{i}.parquet", row_group_size=130)
    return str(tmp_path / "in" / "*.parquet")


LAST = [{"id": i, "n": ROWS - KEYS + i} for i in range(KEYS)]


def rows(table: mg.Table) -> list[dict[str, int]]:
    return sorted(table.read().to_pylist(), key=lambda row: row["id"])


def test_few_rows_are_one_task_and_add_one_file_to_a_bucket(
    spark: SparkSession, orders: mg.Table, files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_files, "TASK_BYTES_MIN", 1 << 20)
    ms.load(spark, files, orders)
    assert sorted(orders.files().column("bucket").to_pylist()) == [0, 1]


def test_the_last_row_of_a_key_in_the_files_wins(spark: SparkSession, orders: mg.Table, files: str) -> None:
    orders.write([{"id": 1, "n": -1}, {"id": 9999, "n": 0}])
    snapshot = ms.load(spark, files, orders)
    assert snapshot is not None
    assert snapshot.id == 2
    assert rows(orders) == [*LAST, {"id": 9999, "n": 0}]
    files_of = orders.files().select(["bucket", "min_sequence_number", "max_sequence_number"])
    ranges = sorted(tuple(row.values()) for row in files_of.to_pylist())
    for before, after in pairwise(ranges):
        assert before[0] < after[0] or before[2] < after[1]
    ms.write(spark.createDataFrame([(1, -5)], "id long, n long"), orders, collect=True)
    assert rows(orders)[1] == {"id": 1, "n": -5}


def test_many_files_per_bucket_are_avoided_by_a_shuffle(
    spark: SparkSession, orders: mg.Table, files: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_files, "FILES_PER_BUCKET_MAX", 1)
    ms.load(spark, files, orders, commit_user="job", identifier=1, watermark=77)
    assert orders.files().num_rows == 2
    assert rows(orders) == LAST
    assert ms.load(spark, files, orders, commit_user="job", identifier=1).id == 1
    assert orders.snapshots()[0].watermark == 77
    pq.write_table(pa.table({"id": pa.array([None], pa.int64()), "n": [1]}), files.replace("*", "part-9"))
    with pytest.raises(InvalidInputError, match="key column 'id' is null"):
        ms.load(spark, files, orders)
    assert len(orders.snapshots()) == 1


def test_kinds_and_text_files(spark: SparkSession, orders: mg.Table, tmp_path: Path) -> None:
    pa_csv.write_csv(pa.table({"id": [1, 2, 3], "n": [1, 2, 3]}), tmp_path / "a.csv")
    pa_csv.write_csv(pa.table({"id": [2, 4], "n": [20, 4]}), tmp_path / "b.csv")
    ms.load(spark, str(tmp_path / "*.csv"), orders)
    pq.write_table(pa.table({"op": ["-D", "+I"], "id": [3, 5], "n": [3, 5]}), tmp_path / "c.parquet")
    ms.load(spark, str(tmp_path / "c.parquet"), orders, kinds="op")
    assert rows(orders) == [{"id": i, "n": n} for i, n in ((1, 1), (2, 20), (4, 4), (5, 5))]


def test_files_that_spark_wrote_keep_their_instants(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path) -> None:
    schema = {"id": "BIGINT", "at": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "wall": "TIMESTAMP(6)"}
    table = catalog.create_table("shop.times", schema=schema, primary_key=["id"], options={"bucket": "1"})
    data = spark.range(1).selectExpr(
        "id", "timestamp'1500-01-01 00:00:00Z' as at", "timestamp_ntz'2020-01-01 00:00:00' as wall"
    )
    data.write.parquet(str(tmp_path / "spark"))
    ms.load(spark, str(tmp_path / "spark"), table)
    found = table.read().to_pylist()[0]
    assert (found["at"].isoformat(), found["wall"].isoformat()) == ("1500-01-01T00:00:00+00:00", "2020-01-01T00:00:00")


def test_directories_of_patterns_say_columns(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path) -> None:
    data = spark.range(2).selectExpr("id", "date_add(date'2026-01-01', cast(id as int)) as day")
    data.write.partitionBy("day").parquet(str(tmp_path / "in"))
    for i, pattern in enumerate(("in", "in/day=*", "in/day=*/*.parquet", "in/**/*.parquet")):
        table = catalog.create_table(f"shop.days{i}", {"id": "BIGINT", "day": "DATE"})
        ms.load(spark, str(tmp_path / pattern), table)
        assert sorted((row["id"], row["day"].day) for row in table.read().to_pylist()) == [(0, 1), (1, 2)]


def test_directories_are_read_as_fields_are(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path) -> None:
    for shop in ("ab", "abc"):
        (tmp_path / f"shop={shop}" / "at=2026-10-03 01%3A02%3A03").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"shop={shop}" / "at=2026-10-03 01%3A02%3A03" / "x.parquet")
    columns = {"id": "BIGINT", "shop": "VARCHAR(2)", "at": "TIMESTAMP_LTZ(3)"}
    table = catalog.create_table("shop.visits", columns, primary_key=["id", "shop"])
    with pytest.raises(InvalidInputError, match=r"'shop' is 'abc', which does not fit VARCHAR\(2\)\. Nothing"):
        ms.load(spark, str(tmp_path / "shop=*"), table)
    assert table.snapshots() == ()
    ms.load(spark, str(tmp_path / "shop=ab"), table, time_zone="Europe/Vienna")
    assert table.read().to_pylist()[0]["at"].isoformat() == "2026-10-02T23:02:03+00:00"
    with pytest.raises(InvalidInputError, match="partitions is 'no'"):
        ms.load(spark, str(tmp_path / "shop=ab"), table, partitions="no")  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_before_any_job(spark: SparkSession, orders: mg.Table, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no file matches"):
        ms.load(spark, str(tmp_path / "*.parquet"), orders)
    pq.write_table(pa.table({"id": ["a"], "n": [1]}), tmp_path / "text.parquet")
    with pytest.raises(InvalidInputError, match="column 'id' is string"):
        ms.load(spark, str(tmp_path / "text.parquet"), orders)
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    with pytest.raises(FormatError, match=r"bad\.parquet"):
        ms.load(spark, str(tmp_path / "bad.parquet"), orders)
    pq.write_table(pa.table({"id": pa.array([], pa.int64()), "n": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    assert ms.load(spark, str(tmp_path / "none.parquet"), orders) is None
    assert orders.snapshots() == ()


def test_files_are_read_by_the_same_rules_as_without_spark(
    spark: SparkSession, orders: mg.Table, catalog: mg.Catalog, tmp_path: Path
) -> None:
    """Options of CSV, compressed text, whose rows are no more than its bytes allow, and batches of Arrow files."""
    schema = {"id": "BIGINT", "name": "STRING"}
    names = catalog.create_table("shop.names", schema, primary_key=["id"], options={"bucket": "1"})
    (tmp_path / "1.csv.gz").write_bytes(gzip.compress(b"".join(b"%d;first\n" % i for i in range(2_000))))
    (tmp_path / "2.csv").write_text('1;NA\n2;\n3;""\n')
    ms.load(spark, str(tmp_path / "*.csv*"), names, options={"csv.delimiter": ";", "csv.header": "false"})
    found = {row["id"]: row["name"] for row in names.read().to_pylist()}
    assert ([found[i] for i in range(5)], len(found)) == (["first", "NA", None, "", "first"], 2_000)
    many = pa.table({"id": [n % KEYS for n in range(ROWS)], "n": range(ROWS)})
    with pa.ipc.new_file(tmp_path / "a.arrow", many.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(many, max_chunksize=170)
    ms.load(spark, str(tmp_path / "a.arrow"), orders)
    assert rows(orders) == LAST
