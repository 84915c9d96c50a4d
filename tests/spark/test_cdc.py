"""`ms.cdc.parse`: change records as DataFrames give the rows that they give embedded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.errors import InvalidInputError

pytestmark = pytest.mark.spark
Row = tuple[Any, ...]
_SYMBOLS = ("+I", "-U", "+U", "-D")


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    columns = {"id": "BIGINT", "state": "STRING", "amount": "DECIMAL(10, 2)", "at": "TIMESTAMP(3)"}
    return catalog.create_table("shop.orders", columns, primary_key=["id"], options={"bucket": "2"})


def _created(id_: int, state: str = "new", amount: str = "1.00") -> str:
    return json.dumps({"op": "c", "after": {"id": id_, "state": state, "amount": amount}})


def _updated(id_: int, before: str, after: str) -> str:
    images = [{"id": id_, "state": state, "amount": "1.00", "at": None} for state in (before, after)]
    return json.dumps({"op": "u", "before": images[0], "after": images[1]})


def _records(spark: SparkSession, values: list[str | None], keys: list[str | None] | None = None) -> DataFrame:
    rows = list(zip(values, keys or [None] * len(values), range(100, 100 + len(values)), strict=True))
    frame = spark.createDataFrame(rows, "value STRING, key STRING, offset BIGINT").coalesce(1)
    return frame.selectExpr("CAST(key AS BINARY) AS key", "CAST(value AS BINARY) AS value", "offset")


def _rows(table: mg.Table) -> list[Row]:
    return sorted((row["id"], row["state"]) for row in table.read().to_pylist())


def test_rows_are_those_of_the_embedded_function_in_the_order_of_the_records(
    spark: SparkSession, orders: mg.Table
) -> None:
    values = [_created(i) if i % 3 else _updated(i, "new", "paid") for i in range(500)]
    values += ['{"op": "d", "before": null}', None]
    keys = [None] * 500 + ['{"id": 3}', None]
    records = _records(spark, values, keys)
    found = ms.cdc.parse(records, "debezium-json", orders).toArrow()
    wanted = mg.cdc.parse(values, "debezium-json", orders, keys=pa.array(keys, pa.string()))
    assert found.column_names == ["_row_kind", "id", "state", "amount", "at"]
    assert found.column(0).to_pylist() == [_SYMBOLS[kind] for kind in wanted.kinds.to_pylist()]
    assert found.drop_columns(["_row_kind"]).to_pylist() == wanted.rows.to_pylist()


def test_a_bad_record_stops_the_job_with_its_reason_and_text(spark: SparkSession, orders: mg.Table) -> None:
    parsed = ms.cdc.parse(_records(spark, [_created(1), _created(2, amount="1.005")]), "debezium-json", orders)
    with pytest.raises(PySparkException, match=r"1 of 2 records .*bad-value: column amount(.|\n)*1\.005"):
        parsed.collect()


def test_a_bad_record_is_kept_in_its_place(spark: SparkSession, orders: mg.Table) -> None:
    values = [_created(1), "{", _updated(1, "new", "paid"), "[]", _created(2)]
    parsed = ms.cdc.parse(_records(spark, values, [None, "k", None, None, None]), "debezium-json", orders, bad="keep")
    rows = parsed.collect()
    assert [row["_row_kind"] for row in rows] == ["+I", None, "-U", "+U", None, "+I"]
    assert [row["id"] for row in rows] == [1, None, 1, 1, None, 2]
    bad = [tuple(row["_rejected"]) for row in rows if row["_rejected"] is not None]
    assert [(bytes(text), key and bytes(key), place) for _, text, key, place in bad] == [
        (b"{", b"k", 101),
        (b"[]", None, 103),
    ]
    assert [reason.split(":")[0] for reason, *_ in bad] == ["not-json", "not-object"]


def test_what_has_no_meaning_is_refused_before_a_job_runs(spark: SparkSession, orders: mg.Table) -> None:
    records = _records(spark, [_created(1)])
    for said, arguments in (
        ("unknown option 'tombstones'", {"tombstones": "delete"}),
        ("no column 'payload'", {"value": "payload"}),
        ("'offset' is bigint, and key= takes STRING or BINARY", {"key": "offset"}),
        ("'value' is binary, and position= takes an integer", {"position": "value"}),
        ("bad is 'skip'", {"bad": "skip"}),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ms.cdc.parse(records, "debezium-json", orders, **arguments)
    with pytest.raises(InvalidInputError, match="unknown format 'debezum'"):
        ms.cdc.parse(records, "debezum", orders)


@pytest.fixture
def letters(catalog: mg.Catalog) -> mg.Table:
    return catalog.create_table("shop.letters", mg.cdc.DEAD_LETTERS)


def _letters(table: mg.Table) -> list[Row]:
    names = ("table", "position", "text", "key")
    found = [tuple(row[name] for name in names) for row in table.read().to_pylist()]
    return sorted(found, key=lambda row: row[1])


@pytest.mark.parametrize("collect", [False, True])
def test_bad_records_of_a_batch_go_to_the_dead_letters_and_a_repeated_write_adds_nothing(
    spark: SparkSession, orders: mg.Table, letters: mg.Table, collect: bool
) -> None:
    values = [_created(1), "{", _updated(1, "new", "paid"), _created(2, amount="x")]
    parsed = ms.cdc.parse(_records(spark, values, [None, "k", None, None]), "debezium-json", orders, bad="keep")
    for _ in range(2):
        ms.write(
            parsed,
            orders,
            kinds="_row_kind",
            dead_letters=letters,
            commit_user="feed",
            identifier=3,
            collect=collect,
        )
        assert _rows(orders) == [(1, "paid")]
        wanted = [(orders.name, 101, b"{", b"k"), (orders.name, 103, values[3].encode(), None)]
        assert _letters(letters) == wanted
    found = [(one.commit_user, one.commit_identifier, one.delta_record_count) for one in letters.snapshots()]
    assert found == [("feed for shop.orders", 3, 2)]
    assert not parsed.storageLevel.useMemory


def test_bad_records_of_a_stream_go_to_the_dead_letters_once(
    spark: SparkSession, orders: mg.Table, letters: mg.Table, tmp_path: Path
) -> None:
    def run(*values: str) -> None:
        _records(spark, list(values)).write.mode("append").parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema("key BINARY, value BINARY, offset BIGINT").option("maxFilesPerTrigger", 1)
        parsed = ms.cdc.parse(stream.parquet(str(tmp_path / "in")), "debezium-json", orders, bad="keep")
        query = ms.write_stream(
            parsed, orders, str(tmp_path / "cp"), "_row_kind", trigger="availableNow", dead_letters=letters
        )
        query.awaitTermination()

    run(_created(1))
    state = orders.snapshots()
    run("{", _created(2), _updated(1, "new", "paid"))
    orders.rollback(state[-1].id)  # as if the process had ended when only the dead letters of the batch were committed
    _forget_commit(tmp_path / "cp", 1)
    run("[]")
    assert _rows(orders) == [(1, "paid"), (2, "new")]
    assert sorted(_letters(letters)) == [(orders.name, 100, b"[]", None), (orders.name, 100, b"{", None)]
    committed = [(one.commit_user, one.commit_identifier, one.delta_record_count) for one in letters.snapshots()]
    assert committed == [(state[0].commit_user, 1, 1), (state[0].commit_user, 2, 1)]


def test_dead_letters_without_bad_records_to_write_are_refused(
    spark: SparkSession, orders: mg.Table, letters: mg.Table
) -> None:
    records = _records(spark, [_created(1)])
    plain = ms.cdc.parse(records, "debezium-json", orders)
    kept = ms.cdc.parse(records, "debezium-json", orders, bad="keep")
    for said, frame, table in (
        ("has no column '_rejected'", plain, letters),
        ("no table of dead letters, since it has a primary key", kept, orders),
    ):
        with pytest.raises(InvalidInputError, match=said):
            ms.write(frame, orders, "_row_kind", dead_letters=table)
    assert orders.snapshots() == ()


def _forget_commit(checkpoint: Path, batch: int) -> None:
    """Leave the checkpoint as if Spark had died before it wrote down that a batch is done."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink()


UNSENT = "__debezium_unavailable_value"


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    ("road", "options"),
    [("write", {}), ("stream", {"bucket": "2"}), ("feed", {"bucket": "2"}), ("feed stream", {})],
    ids=["ms.write, dynamic buckets", "ms.write_stream", "ms.cdc.write", "ms.cdc.write_stream, dynamic buckets"],
)
def test_values_that_were_not_sent_are_those_of_the_stored_rows(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path, road: str, options: dict[str, str]
) -> None:
    other = "_unavailable" if "feed" in road else "b"  # the name of the column that `ms.cdc.parse` adds
    columns = {"id": "BIGINT", "a": "STRING NOT NULL", other: "STRING"}
    table = catalog.create_table("shop.kept", columns, primary_key=["id"], options=options)
    letters = catalog.create_table("shop.kept_letters", mg.cdc.DEAD_LETTERS)
    table.write([{"id": i, "a": f"a{i}", other: f"b{i}"} for i in range(5)])

    def change(op: str, id_: int, a: str | None, b: str | None) -> str:
        return json.dumps({"op": op, "after": {"id": id_, "a": a, other: b}, "source": {"table": "kept"}})

    removed = json.dumps({"op": "d", "before": {"id": 3}, "source": {"table": "kept"}})
    values = [
        change("u", 1, UNSENT, None), change("u", 2, "x", "y"), change("u", 2, UNSENT, UNSENT), removed,
        change("u", 3, UNSENT, "z"), change("c", 10, "a", UNSENT), change("u", 9, UNSENT, "z"),
        change("c", 11, "n", "n"), change("u", 4, UNSENT, "u"), change("u", 4, UNSENT, UNSENT),
    ]  # fmt: skip
    records = _records(spark, values)
    if "stream" in road:
        records.write.parquet(str(tmp_path / "records"))
        records = spark.readStream.schema(records.schema).parquet(str(tmp_path / "records"))
    kept = {"dead_letters": letters, "unavailable": "keep"}
    match road:
        case "write" | "stream":
            rows = ms.cdc.parse(records, "debezium-json", table, bad="keep", unavailable="keep")
            if road == "write":
                ms.write(rows, table, kinds="_row_kind", dead_letters=letters)
            else:
                ms.write_stream(
                    rows, table, str(tmp_path / "c"), "_row_kind", dead_letters=letters, trigger="availableNow"
                ).awaitTermination()
        case "feed":
            found = ms.cdc.write(records, "debezium-json", {"kept": table}, **kept)
            assert (found.rows, found.rejected) == (9, 3)
        case _:
            ms.cdc.write_stream(
                records, "debezium-json", {"kept": table}, str(tmp_path / "c"), trigger="availableNow", **kept
            ).awaitTermination()
    assert sorted(table.read().to_pylist(), key=lambda row: row["id"]) == [
        {"id": 0, "a": "a0", other: "b0"},
        {"id": 1, "a": "a1", other: None},
        {"id": 2, "a": "x", other: "y"},
        {"id": 4, "a": "a4", other: "u"},
        {"id": 11, "a": "n", other: "n"},
    ]
    found_letters = letters.read(columns=["position", "reason"]).to_pylist()
    assert sorted(letter["position"] for letter in found_letters) == [104, 105, 106]
    assert all(letter["reason"].startswith("unavailable: column") for letter in found_letters)
    assert list(Path(table.path).glob(".staging*")) == []


@pytest.mark.parametrize("stream", [False, True])
def test_timestamps_that_files_of_the_table_cannot_hold_are_bad_records(
    stream: bool, spark: SparkSession, catalog: mg.Catalog, tmp_path: Path
) -> None:
    columns = {"id": "INT", "at": "TIMESTAMP(6)"}
    table = catalog.create_table("shop.far", columns, primary_key=["id"], options={"file.format.per.level": "5:orc"})
    letters = catalog.create_table("shop.far_letters", mg.cdc.DEAD_LETTERS)
    after = [{"id": 1, "at": "2026-01-01 00:00:00"}, {"id": 2, "at": "9999-12-31 00:00:00"}]
    records = _records(spark, [json.dumps({"op": "c", "after": row, "source": {"table": "far"}}) for row in after])
    if stream:
        records.write.parquet(str(tmp_path / "records"))
        rows = spark.readStream.schema(records.schema).parquet(str(tmp_path / "records"))
        ms.cdc.write_stream(
            rows, "debezium-json", {"far": table}, str(tmp_path / "c"), dead_letters=letters, trigger="availableNow"
        ).awaitTermination()
    else:
        ms.cdc.write(records, "debezium-json", {"far": table}, dead_letters=letters)
        far = spark.sql("SELECT 3 AS id, TIMESTAMP_NTZ '9999-12-31 00:00:00' AS at")
        with pytest.raises(InvalidInputError, match=r"column 'at' is .*1677 to 2262"):
            ms.write(far, table)
    assert [row["id"] for row in table.read().to_pylist()] == [1]
    assert [row["reason"][:21] for row in letters.read().to_pylist()] == ["bad-value: column at:"]


def test_deletes_by_key_go_through_where_other_columns_are_not_null(spark: SparkSession, catalog: mg.Catalog) -> None:
    columns = {"id": "BIGINT", "state": "STRING NOT NULL"}
    options = {"bucket": "2", "changelog-producer": "input"}
    table = catalog.create_table("shop.t", columns, primary_key=["id"], options=options)
    table.write([{"id": i, "state": "new"} for i in range(5)])
    gone = spark.createDataFrame([(0, None, "-D")], "id BIGINT, state STRING, kind STRING")
    ms.write(gone, table, kinds="kind")
    one = _records(spark, ['{"op": "d", "before": {"id": 1}}'])
    ms.write(ms.cdc.parse(one, "debezium-json", table), table, kinds="_row_kind")
    move = '{"op": "u", "before": {"id": 3}, "after": {"id": 33, "state": "paid"}, "source": {"table": "t"}}'
    tombstone = '{"op": "d", "source": {"table": "t"}}'
    two = _records(spark, [tombstone, move], ['{"id": 2}', '{"id": 33}'])
    ms.cdc.write(two, "debezium-json", {"t": table})
    assert sorted(row["id"] for row in table.read().to_pylist()) == [4, 33]
    changes = table.changes(2).to_pylist()
    assert sorted((row["_row_kind"], row["id"]) for row in changes) == [
        ("+I", 33), ("-D", 0), ("-D", 1), ("-D", 2), ("-D", 3),
    ]  # fmt: skip
    assert table.check() == ()


def test_rows_that_may_lie_in_another_partition_are_bad_on_spark_too(spark: SparkSession, catalog: mg.Catalog) -> None:
    columns = {"id": "BIGINT", "day": "DATE", "at": "STRING"}
    key = {"primary_key": ["id", "day"], "partition_by": ["day"], "options": {"sequence.field": "at"}}
    table = catalog.create_table("shop.days", columns, **key)
    letters = catalog.create_table("shop.letters", dict(mg.cdc.DEAD_LETTERS))
    source = {"table": "days", "file": "binlog.000002", "pos": 105641}
    created = {"op": "c", "after": {"id": 1, "day": "2026-01-01"}, "source": source}
    updated = {"op": "u", "after": {"id": 1, "day": "2026-01-02"}, "source": source}
    records = _records(spark, [json.dumps(created), json.dumps(updated)], ['{"id": 1}'] * 2)
    options = {"metadata": {"at": "position"}}
    parsed = ms.cdc.parse(records, "debezium-json", table, bad="keep", **options).collect()
    assert [row["_row_kind"] for row in parsed] == ["+I", None]
    assert parsed[1]["_rejected"]["reason"].startswith("missing-before: column day")
    written = ms.cdc.write(records, "debezium-json", {"days": table}, dead_letters=letters, **options)
    assert (written.rows, written.rejected) == (1, 1)
    assert [row["at"] for row in table.read().to_pylist()] == ["binlog.b2:g105641"]
