"""`ms.lookup_join`: the rows of Spark's own join, of batches and streams; one snapshot per micro-batch; errors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import merganser as mg
import merganser.spark as ms
from merganser.errors import ExpiredError, InvalidInputError, NotFoundError
from merganser.spark.lookup import _snapshot_at

pytestmark = pytest.mark.spark


@pytest.fixture
def users(catalog: mg.Catalog) -> mg.Table:
    table = catalog.create_table(
        "shop.users",
        schema={"city": "STRING", "id": "BIGINT", "name": "STRING", "n": "DECIMAL(10, 2)"},
        primary_key=["city", "id"],
        partition_by=["city"],
        options={"bucket": "2"},
    )
    rng = random.Random(1)
    for part in range(3):
        rows = [{"city": f"c{i % 3}", "id": i, "name": f"u{i}.{part}", "n": i} for i in rng.sample(range(300), 120)]
        table.write(rows)
    table.write([{"city": "c1", "id": 1, "name": None, "n": None}], kinds=["-D"])
    return table


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_rows_are_those_of_a_join_by_spark(spark: SparkSession, users: mg.Table, how: str, shuffle: bool) -> None:
    rng = random.Random(2)
    given = [(rng.choice(["c0", "c1", "c2", "c9", None]), rng.randrange(400), i) for i in range(500)]
    orders = spark.createDataFrame(given, "town STRING, user BIGINT, no INT")
    found = ms.lookup_join(orders, users, on={"town": "city", "user": "id"}, how=how, shuffle=shuffle)
    right = ms.read(spark, users)
    expected = orders.join(right, (orders.town == right.city) & (orders.user == right.id), how)
    assert found.columns == ["town", "user", "no", "name", "n"]
    assert rows(found) == rows(expected.select(*found.columns))


def test_columns_are_chosen_and_narrower_keys_are_widened(spark: SparkSession, users: mg.Table) -> None:
    orders = spark.createDataFrame([("c1", 4)], "city STRING, id INT")
    found = ms.lookup_join(orders, users, on=["city", "id"], columns=["n", "name"])
    [row] = users.lookup({"city": "c1", "id": 4}).to_pylist()
    assert [tuple(one) for one in found.collect()] == [("c1", 4, row["n"], row["name"])]


def test_keys_that_move_between_partitions_are_joined_without_them(spark: SparkSession, catalog: mg.Catalog) -> None:
    options = {"dynamic-bucket.target-row-num": "3"}
    schema = {"p": "STRING", "k": "BIGINT", "a": "INT"}
    table = catalog.create_table("shop.moving", schema, primary_key=["k"], partition_by=["p"], options=options)
    table.write([{"p": "a", "k": k, "a": k} for k in range(20)])
    table.write([{"p": "b", "k": k, "a": -k} for k in range(0, 20, 2)])
    frame = spark.createDataFrame([(k,) for k in (2, 3, 99)], "k BIGINT")
    for shuffle in (False, True):
        found = ms.lookup_join(frame, table, on="k", shuffle=shuffle)
        assert rows(found) == [(2, "b", -2), (3, "a", 3), (99, None, None)]


def test_a_frame_keeps_the_snapshot_of_its_call(spark: SparkSession, users: mg.Table) -> None:
    orders = spark.createDataFrame([("c1", 4)], "city STRING, id BIGINT")
    [before] = users.lookup({"city": "c1", "id": 4})["name"].to_pylist()
    newest = users.latest_snapshot()
    assert newest is not None
    frame = ms.lookup_join(orders, users, on=["city", "id"], columns=["name"])
    users.write([{"city": "c1", "id": 4, "name": "new", "n": None}])
    assert frame.collect()[0].name == before
    assert ms.lookup_join(orders, users, ["city", "id"], columns=["name"]).collect()[0].name == "new"
    old = ms.lookup_join(orders, users, ["city", "id"], columns=["name"], snapshot=newest.id)
    assert old.collect()[0].name == before
    with pytest.raises(NotFoundError):
        ms.lookup_join(orders, users, ["city", "id"], snapshot=999)


def test_a_state_is_chosen_by_tag_by_time_or_by_the_options_of_the_table(spark: SparkSession, users: mg.Table) -> None:
    key = {"city": "c1", "id": 4}
    frame = spark.createDataFrame([("c1", 4)], "city STRING, id BIGINT")
    first = users.latest_snapshot()
    assert first is not None
    users.tags.create("before")
    before = users.lookup(key)["name"].to_pylist()
    users.write([{**key, "name": "new", "n": None}])
    states: list[Any] = [
        {"tag": "before"},
        {"timestamp": first.commit_time},
        {"timestamp": first.commit_time.isoformat()},
    ]
    for state in states:
        assert ms.lookup_join(frame, users, ["city", "id"], **state).toArrow()["name"].to_pylist() == before
    by_option = users.with_options({"scan.tag-name": "before"})
    assert ms.lookup_join(frame, by_option, ["city", "id"]).toArrow()["name"].to_pylist() == before
    users.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
    tagged = ms.lookup_join(frame, users, ["city", "id"], tag="before")
    assert tagged.toArrow()["name"].to_pylist() == before
    with pytest.raises(InvalidInputError, match="snapshot and tag are both given"):
        ms.lookup_join(frame, users, ["city", "id"], snapshot=1, tag="before")


def test_other_commits_of_the_same_number_after_a_rollback_are_found(spark: SparkSession, users: mg.Table) -> None:
    frame = spark.createDataFrame([("c1", 4)], "city STRING, id BIGINT")
    kept = users.latest_snapshot()
    assert kept is not None
    for name in ("once", "again"):
        users.write([{"city": "c1", "id": 4, "name": name, "n": None}])
        assert ms.lookup_join(frame, users, ["city", "id"]).toArrow()["name"].to_pylist() == [name]
        users.rollback(snapshot=kept.id)


def test_a_micro_batch_whose_snapshot_has_expired_says_how_to_go_on(users: mg.Table) -> None:
    begun = users.snapshots()[0].commit_time
    users.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
    with pytest.raises(ExpiredError, match="remove the newest file of the folder 'offsets' in the checkpoint"):
        _snapshot_at(users.definition, users.env.storage, begun)


def test_a_table_without_rows_has_no_partners(spark: SparkSession, catalog: mg.Catalog) -> None:
    empty = catalog.create_table("shop.empty", {"id": "INT", "v": "INT"}, primary_key=["id"], options={"bucket": "1"})
    frame = spark.createDataFrame([(1,)], "id INT")
    assert rows(ms.lookup_join(frame, empty, "id")) == [(1, None)]
    assert rows(ms.lookup_join(frame, empty, "id", how="inner")) == []


def test_a_micro_batch_sees_one_snapshot_and_the_next_one_what_was_committed_since(
    spark: SparkSession, users: mg.Table, tmp_path: Path
) -> None:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).option("numPartitions", 2).load()
    keys = source.select(f.lit("c0").alias("city"), (f.col("value") % 5).alias("id"))
    seen: list[set[str | None]] = []

    def each(batch: DataFrame, number: int) -> None:
        seen.append({row.name for row in batch.collect()})
        users.write([{"city": "c0", "id": i, "name": f"batch {number}", "n": 0} for i in range(5)])

    users.write([{"city": "c0", "id": i, "name": "before", "n": 0} for i in range(5)])
    query = (
        ms.lookup_join(keys, users, on=["city", "id"], columns=["name"])
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while len(seen) < 3 and query.isActive:
            query.awaitTermination(0.2)
    finally:
        query.stop()
    assert query.exception() is None
    assert seen[:3] == [{"before"}, {"batch 0"}, {"batch 1"}]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "id"}, "the key lacks column 'city'"),
        ({"on": ["city", "id", "x"]}, "column 'x' is no part of the key"),
        ({"on": {"town": "city", "id": "id"}}, "the DataFrame has no column 'town'"),
        ({"on": 7}, "on is 7"),
        ({"on": ["city", "id"], "how": "outer"}, "how is 'outer'"),
        ({"on": ["city", "id"], "columns": ["nope"]}, "no column 'nope'"),
        ({"on": {"city": "city", "x": "id"}}, "column 'id'"),
        ({"on": ["city", "id"], "columns": ["id"]}, "column 'id' is in the DataFrame and in the table"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(
    spark: SparkSession, users: mg.Table, arguments: dict[str, Any], message: str
) -> None:
    frame = spark.createDataFrame([("c1", 4, "text")], "city STRING, id BIGINT, x STRING")
    with pytest.raises(InvalidInputError, match=message):
        ms.lookup_join(frame, users, **arguments)


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["city", "id", "NAME"], "column 'name' is in the DataFrame and in the table"),
        (["city", "id", "x", "x"], "2 columns with the name 'x'"),
        (["city", "id", "x", "X"], "2 columns with the name 'x'"),
        (["city", "id", "id"], "2 columns with the name 'id'"),
    ],
)
def test_names_that_spark_takes_for_one_are_refused(
    spark: SparkSession, users: mg.Table, columns: list[str], message: str
) -> None:
    frame = spark.createDataFrame([("c1", 4, 1, 2)[: len(columns)]], [f"c{i}" for i in range(len(columns))])
    with pytest.raises(InvalidInputError, match=message):
        ms.lookup_join(frame.toDF(*columns), users, on=["city", "id"])


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_key_beyond_the_type_of_the_table_has_no_partner(
    spark: SparkSession, catalog: mg.Catalog, shuffle: bool
) -> None:
    key = {"i": "INT", "s": "VARCHAR(3)", "d": "DECIMAL(4, 2)", "t": "TIMESTAMP(3)"}
    table = catalog.create_table("shop.narrow", key | {"v": "INT"}, primary_key=list(key), options={"bucket": "3"})
    good = ("1", "'abc'", "1.50", "TIMESTAMP_NTZ '2024-05-01 00:00:00.001'")
    wrong = [
        ("1099511627776", *good[1:]),
        (good[0], "'abcd'", *good[2:]),
        (good[0], "CAST(x'ff' AS STRING)", *good[2:]),
        (*good[:2], "100.00", good[3]),
        (*good[:2], "1.505", good[3]),
        (*good[:3], "TIMESTAMP_NTZ '2024-05-01 00:00:00.001001'"),
        (*good[:3], "NULL"),
    ]
    texts = [
        f"SELECT {n} AS n, CAST({i} AS BIGINT) AS i, {s} AS s, CAST({d} AS DECIMAL(20, 5)) AS d, {t} AS t"
        for n, (i, s, d, t) in enumerate([good, *wrong])
    ]
    frame = spark.sql(" UNION ALL ".join(texts))
    row = frame.where("n = 0").drop("n").toArrow().append_column("v", pa.array([7], pa.int32()))
    table.write(row)
    found = ms.lookup_join(frame, table, on=list(key), shuffle=shuffle)
    assert rows(found.select("n", "v")) == [(0, 7), *((n, None) for n in range(1, len(texts)))]
    assert rows(ms.lookup_join(frame, table, on=list(key), how="inner", shuffle=shuffle).select("n", "v")) == [(0, 7)]
