"""`ms.cdc.write_stream` and `ms.cdc.write`: change records of many tables, a commit of each table per batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError

pytestmark = pytest.mark.spark
Row = tuple[Any, ...]
Arrive = Callable[[list[str | None]], DataFrame]
_SCHEMA = "key STRING, value STRING, offset BIGINT, topic STRING"


@pytest.fixture
def arrive(spark: SparkSession, tmp_path: Path) -> Arrive:
    """Let a file of records arrive; return the stream of all files, one file per batch."""

    def made(values: list[str | None]) -> DataFrame:
        rows = [(None, value, place, "t") for place, value in enumerate(values)]
        spark.createDataFrame(rows, _SCHEMA).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        return spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))

    return made


def _change(table: str, op: str, row: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    images = {"before": row, "after": None} if op == "d" else {"before": before, "after": row}
    return json.dumps({"op": op, **images, "source": {"db": "shop", "table": table}})


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    return catalog.create_table(
        "shop.orders", {"id": "BIGINT", "state": "STRING"}, primary_key=["id"], options={"bucket": "2"}
    )


@pytest.fixture
def people(catalog: mg.Catalog) -> mg.Table:
    columns = {"name": "STRING", "age": "INT", "dt": "DATE"}
    return catalog.create_table(
        "shop.people", columns, primary_key=["name", "dt"], partition_by=["dt"], options={"bucket": "1"}
    )


def _rows(table: mg.Table) -> list[Row]:
    return sorted(tuple(row.values()) for row in table.read().to_pylist())


def _run(frame: DataFrame, tables: Any, checkpoint: Path, **options: Any) -> StreamingQuery:
    query = ms.cdc.write_stream(frame, "debezium-json", tables, str(checkpoint), trigger="availableNow", **options)
    query.awaitTermination()
    return query


def test_a_batch_is_one_commit_of_each_table(
    orders: mg.Table, people: mg.Table, arrive: Arrive, tmp_path: Path
) -> None:
    tables = {"shop.orders": orders, "people": people.path}
    day = {"dt": "2026-01-01"}
    frame = arrive(
        [
            _change("orders", "c", {"id": 1, "state": "new"}),
            _change("people", "c", {"name": "Ann", "age": 7, **day}),
            _change("orders", "u", {"id": 1, "state": "paid"}, {"id": 1, "state": "new"}),
            None,
            _change("orders", "c", {"id": 2, "state": "new"}),
        ]
    )
    _run(frame, tables, tmp_path / "cp", commit_user="feed")
    arrive(
        [
            _change("people", "u", {"name": "Ann", "age": 8, **day}, {"name": "Ann", **day}),
            _change("orders", "d", {"id": 2, "state": "new"}),
        ]
    )
    query = _run(frame, tables, tmp_path / "cp", commit_user="feed")
    assert _rows(orders) == [(1, "paid")]
    assert [row[:2] for row in _rows(people)] == [("Ann", 8)]
    for table in (orders, people):
        assert [one.commit_identifier for one in table.snapshots()] == [0, 1]
        assert {one.commit_user for one in table.snapshots()} == {f"feed-{query.id}"}
    numbers = query.lastProgress["observedMetrics"]["merganser"].asDict()
    assert numbers.pop("bytes") > 0
    assert numbers == {"rows": 2, "retractions": 1, "files": 2, "dead_letters": 0, "ignored": 0}


def test_a_repeated_batch_is_written_only_to_tables_that_lack_it(
    orders: mg.Table, people: mg.Table, catalog: mg.Catalog, arrive: Arrive, tmp_path: Path
) -> None:
    letters = catalog.create_table("shop.letters", mg.cdc.DEAD_LETTERS)
    tables = {"orders": orders, "people": people}
    person = _change("people", "c", {"name": "Ann", "age": 7, "dt": "2026-01-01"})
    options = {"dead_letters": letters, "unknown": "keep"}
    frame = arrive([_change("orders", "c", {"id": 1, "state": "new"}), person, "{", _change("cups", "c", {"id": 1})])
    _run(frame, tables, tmp_path / "cp", **options)
    before = orders.snapshots()
    for name in ("snapshot", "manifest", "bucket-0"):  # as if Spark had died between the two commits
        shutil.rmtree(Path(people.path) / name, ignore_errors=True)
    (tmp_path / "cp" / "commits" / "0").unlink()
    (tmp_path / "cp" / "commits" / ".0.crc").unlink()
    _run(frame, tables, tmp_path / "cp", **options)
    assert orders.snapshots() == before
    assert [row[:2] for row in _rows(people)] == [("Ann", 7)]
    assert sorted(row["reason"][:13] for row in letters.read().to_pylist()) == ["not-json: the", "unknown-table"]


def test_a_batch_frame_is_written_once_and_a_column_names_the_tables(
    spark: SparkSession, orders: mg.Table, people: mg.Table
) -> None:
    rows = [
        ("here.shop.orders", '{"id": 7}', '{"state": "new"}'),
        ("here.shop.people", None, '{"name": "Ann", "dt": "2026-01-01", "age": 3}'),
        ("here.shop.orders", '{"id": 7}', None),
        ("here.shop.orders", '{"id": 8}', '{"state": "new"}'),
        ("here.shop.cups", None, '{"id": 8}'),
    ]
    frame = spark.createDataFrame(rows, "topic STRING, key STRING, value STRING").coalesce(1)
    tables = {"shop.orders": orders, "shop.people": people}
    for rows_now in (4, 4):
        written = ms.cdc.write(
            frame, "json", tables, table_column="topic", unknown="ignore", commit_user="feed", identifier=3
        )
        assert (written.rows, written.rejected, written.ignored) == (rows_now, 0, 1)
        assert {name: snapshot and snapshot.id for name, snapshot in written.snapshots.items()} == {
            orders.name: 1, people.name: 1,
        }  # fmt: skip
    assert _rows(orders) == [(8, "new")]
    assert len(people.snapshots()) == 1


def test_tables_that_are_not_there_are_created_by_the_tasks_that_meet_them(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    types = {"id": "bigint(20)", "note": "varchar(9)"}
    rows = [
        {"type": "INSERT", "database": "web", "table": f"t{i % 3}", "mysqlType": types, "pkNames": ["id"],
         "data": [{"id": str(i), "note": "a"}]}
        for i in range(30)
    ]  # fmt: skip
    frame = spark.createDataFrame([(json.dumps(row),) for row in rows], "value STRING").repartition(2)
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("value STRING").parquet(str(tmp_path / "in"))
    place = str(tmp_path / "cp")
    ms.cdc.write_stream(stream, "canal-json", catalog, place, create=True, trigger="availableNow").awaitTermination()
    assert catalog.list_tables("web") == ["t0", "t1", "t2"]
    for i in range(3):
        table = catalog.table(f"web.t{i}")
        assert isinstance(table, mg.Table)
        assert [row[0] for row in _rows(table)] == list(range(i, 30, 3))
    catalog.drop_table("web.t1")
    spark.createDataFrame([(json.dumps(rows[1]),)], "value STRING").write.mode("append").parquet(str(tmp_path / "in"))
    query = ms.cdc.write_stream(stream, "canal-json", catalog, place, create=True, trigger="availableNow")
    with pytest.raises(StreamingQueryException, match=r"web\.t1.*dropped and made anew"):
        query.awaitTermination()
    again = catalog.table("web.t1")
    assert isinstance(again, mg.Table)
    assert again.snapshots() == ()
    assert list(Path(again.path).glob("bucket-*/*")) == []


def test_what_cannot_be_fed_is_refused_before_the_start(
    spark: SparkSession, orders: mg.Table, people: mg.Table, catalog: mg.Catalog, arrive: Arrive, tmp_path: Path
) -> None:
    frame = arrive([])
    letters = catalog.create_table("shop.letters", mg.cdc.DEAD_LETTERS)
    place = str(tmp_path / "cp")
    both = {"orders": orders, "people": people}
    for said, tables, options in (
        ("tables is empty", {}, {}),
        ("names no table of the source", {".": orders}, {}),
        ("names 'shop.orders' twice", {"a": orders, "b": orders.with_options({"write-only": "true"})}, {}),
        ("unknown is 'skip'", both, {"unknown": "skip"}),
        ("there is no table for them", both, {"unknown": "keep"}),
        ("no column 'payload'", both, {"value": "payload"}),
        ("'offset' is bigint, and table_column= takes", both, {"table_column": "offset"}),
        ("unknown option 'tombstones'", both, {"tombstones": "delete"}),
        ("'changed', which none of the tables has", both, {"metadata": {"changed": "source_ts"}}),
        ("it is the table of dead letters, too", {"x": letters}, {"dead_letters": letters}),
        ("it has a primary key", both, {"dead_letters": orders}),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ms.cdc.write_stream(frame, "debezium-json", tables, place, **options)
    for said, named, options in (
        ("go with a Catalog", both, {"create": True}),
        ("tables is a list", [orders], {}),
        ("target is '{db}.t'", catalog, {"target": "{db}.t"}),
        ("target is '{table}'", catalog, {"target": "{table}"}),
        ("no table is created", catalog, {"table_options": {"bucket": "1"}}),
        ("commit_user is ' '", both, {"commit_user": " "}),
        ("'bukcet'", catalog, {"create": True, "table_options": {"bukcet": "1"}}),
        ("unknown option 'tombstones'", catalog, {"tombstones": "delete"}),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ms.cdc.write_stream(frame, "debezium-json", named, place, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="do not name their table"):
        ms.cdc.write_stream(frame, "json", both, place)
    with pytest.raises(InvalidInputError, match=r"Use ms\.cdc\.write_stream"):
        ms.cdc.write(frame, "debezium-json", both)
    assert not Path(place).exists()


def test_tables_get_the_columns_and_the_wider_types_that_the_source_gets(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    before, after = {"id": "int64", "a": "int32"}, {"id": "int64", "a": "int64", "b": "string"}

    def record(types: dict[str, str], **row: Any) -> Row:
        fields = [{"field": name, "type": kind, "optional": name != "id"} for name, kind in types.items()]
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
        payload = {"op": "c", "after": row, "source": {"db": "shop", "table": "grown"}}
        return json.dumps({"id": row["id"]}), json.dumps({"schema": schema, "payload": payload})

    def arrived(*records: Row) -> None:
        spark.createDataFrame(list(records), "key STRING, value STRING").coalesce(1).write.mode("append").parquet(
            folder
        )

    def run() -> None:
        ms.cdc.write_stream(
            spark.readStream.schema("key STRING, value STRING").parquet(folder),
            "debezium-json",
            catalog,
            str(tmp_path / "checkpoint"),
            create=True,
            table_options={"write.merge-schema": "true", "write.merge-schema.type-widening": "true", "bucket": "2"},
            trigger="availableNow",
        ).awaitTermination()

    folder = str(tmp_path / "in")
    arrived(record(before, id=1, a=1), record(before, id=2, a=2))
    run()
    arrived(record(before, id=3, a=3), record(after, id=1, a=1 << 40, b="x"), record(before, id=4, a=4))
    run()
    table = catalog.table("shop.grown")
    assert [(field.name, str(field.type)) for field in table.schema.fields] == [
        ("id", "BIGINT NOT NULL"), ("a", "BIGINT"), ("b", "STRING")
    ]  # fmt: skip
    assert _rows(table) == [(1, 1 << 40, "x"), (2, 2, None), (3, 3, None), (4, 4, None)]
    assert [snapshot.commit_kind for snapshot in table.snapshots()] == ["APPEND", "APPEND"]
