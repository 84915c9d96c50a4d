"""Values of every type cross to Spark and back unchanged, to the microsecond; buckets of Spark are the format's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import merganser as mg
import merganser.spark as ms
from merganser.meta.layout import bucket_numbers
from merganser.schema.conform import conform
from merganser.spark.bucketing import bucket_column, salts
from merganser.spark.types import arrow_schema_of, spark_batches, spark_schema
from tests.golden.test_golden import NAMES, TABLES, expected_of, newest_schema
from tests.interop.random_rows import random_value
from tests.interop.values import Row, arrow_type, difference, rows_of

pytestmark = pytest.mark.spark

TYPES = {
    "f_boolean": "BOOLEAN",
    "f_tinyint": "TINYINT",
    "f_smallint": "SMALLINT",
    "f_int": "INT NOT NULL",
    "f_float": "FLOAT",
    "f_double": "DOUBLE",
    "f_decimal": "DECIMAL(12, 2)",
    "f_wide": "DECIMAL(38, 10)",
    "f_char": "CHAR(5)",
    "f_string": "STRING",
    "f_bytes": "BYTES",
    "f_date": "DATE",
    "f_time": "TIME(3)",
    "f_ts3": "TIMESTAMP(3)",
    "f_ts6": "TIMESTAMP(6)",
    "f_ts9": "TIMESTAMP(9)",
    "f_ltz3": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "f_ltz9": "TIMESTAMP(9) WITH LOCAL TIME ZONE",
}
NESTED = {
    "f_array": "ARRAY<TIMESTAMP(9)>",
    "f_map": "MAP<STRING, DECIMAL(5, 2)>",
    "f_multiset": "MULTISET<STRING>",
    "f_row": "ROW<a TIME(3), b ARRAY<INT NOT NULL>>",
}


def to_microseconds(rows: list[Row]) -> list[Row]:
    """The rows in the golden encoding with the last three digits of nanoseconds dropped."""
    if isinstance(rows, list):
        return [to_microseconds(value) for value in rows]  # type: ignore[arg-type, misc]
    if isinstance(rows, dict):
        return {key: to_microseconds(value) for key, value in rows.items()}
    if isinstance(rows, str) and len(rows.rstrip("Z").rpartition(".")[2]) == 9 and "T" in rows and rows.count(":") == 2:
        return rows.rstrip("Z")[:-3] + "000" + ("Z" if rows.endswith("Z") else "")  # type: ignore[return-value]
    return rows


def test_every_type_goes_to_spark_and_back(spark: SparkSession, catalog: mg.Catalog) -> None:
    source = random.Random(7)
    count = 200
    columns: dict[str, Any] = {"id": pa.array(range(count), pa.int64())}
    for name, kind in TYPES.items():
        values = [
            None if source.random() < 0.1 and "NOT NULL" not in kind else random_value(source, kind)
            for _ in range(count)
        ]
        columns[name] = pa.array(values, arrow_type(kind))
    moments = [datetime(1960, 1, 1, microsecond=1), None, datetime(2024, 3, 10, 2, 30)]
    columns["f_array"] = pa.array(
        [[moments[i % 3]] * (i % 3) if i % 5 else None for i in range(count)], pa.list_(pa.timestamp("us"))
    )
    prices = [[("a", Decimal("1.25")), ("b", None)] if i % 4 else None for i in range(count)]
    columns["f_map"] = pa.array(prices, pa.map_(pa.string(), pa.decimal128(5, 2)))
    columns["f_multiset"] = pa.array([[("x", i)] for i in range(count)], pa.map_(pa.string(), pa.int32()))
    inner = pa.struct([("a", pa.time32("ms")), ("b", pa.list_(pa.int32()))])
    columns["f_row"] = pa.array([{"a": 1000 * i, "b": [i, 2]} if i % 3 else None for i in range(count)], inner)
    schema = {"id": "BIGINT", **TYPES, **NESTED}
    table = catalog.create_table("shop.all", schema=schema, primary_key=["id"], options={"bucket": "2"})
    table.write(pa.table(columns))
    expected = to_microseconds(rows_of(table.read().to_arrow()))

    frame = ms.read(spark, table)
    copy = catalog.create_table("shop.copy", schema=schema, primary_key=["id"], options={"bucket": "3"})
    assert ms.write(frame, copy) is not None
    assert difference(rows_of(copy.read().to_arrow()), expected) is None
    through_source = spark.read.format("merganser").load(table.path)
    again = catalog.create_table("shop.again", schema=schema, primary_key=["id"], options={"bucket": "1"})
    through_source.write.format("merganser").mode("append").save(again.path)
    assert difference(rows_of(again.read().to_arrow()), expected) is None
    few = ms.read(spark, table, where=f"id IN ({', '.join(map(str, range(50)))})")
    assert few.schema == frame.schema
    assert sorted(map(repr, few.collect())) == sorted(map(repr, frame.where("id < 50").collect()))


def test_values_are_handed_over_in_exactly_the_declared_schema(catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.all", schema={"id": "BIGINT NOT NULL", **TYPES, **NESTED}, primary_key=["id"], options={"bucket": "1"}
    )
    declared = arrow_schema_of(spark_schema(table.definition, table.schema.fields))
    one = {"id": 1, "f_int": 1, "f_ts9": datetime(1960, 1, 1), "f_row": {"a": None, "b": [1]}}
    given = pa.table({name: [one.get(name)] for name in ("id", *TYPES, *NESTED)})
    rows = conform(given, table.schema.fields, action="cannot")
    for part in (rows, rows.slice(0, 0), pa.concat_tables([rows, rows]).slice(1)):
        for batch in spark_batches(part, declared):
            assert batch.schema.equals(declared)
            batch.validate(full=True)
    nulls = [field.name for field in declared if not field.nullable]
    assert nulls == ["id"]


@pytest.mark.campaign(1 / 10)
@pytest.mark.parametrize("name", NAMES)
def test_golden_tables_read_equal_through_spark(spark: SparkSession, name: str) -> None:
    fields = newest_schema(name)["fields"]
    found = rows_of(ms.read(spark, str(TABLES / name)).toArrow(), fields)
    assert difference(found, to_microseconds(expected_of(name)["rows"])) is None


# buckets

COUNT = 500


def random_decimal(source: random.Random, top: int, scale: int) -> Decimal:
    return Decimal(source.randint(-top, top)).scaleb(-scale)


def random_moment(source: random.Random, base: datetime, step: int) -> datetime:
    return base + timedelta(microseconds=step * source.randrange(-(10**12), 10**12))


def key_columns() -> Iterator[tuple[str, str, pa.Array]]:
    source = random.Random(3)

    def column(kind: pa.DataType, first: list[Any], more: Any) -> pa.Array:
        return pa.array([*first, *(more() for _ in range(COUNT - len(first)))], kind)

    for bits, name in ((8, "TINYINT"), (16, "SMALLINT"), (32, "INT"), (64, "BIGINT")):
        half = 1 << bits - 1
        arrow = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
        yield f"i{bits}", name, column(arrow, [0, -1, half - 1, -half], lambda half=half: source.randrange(-half, half))
    yield "b", "BOOLEAN", column(pa.bool_(), [True, False], lambda: source.random() < 0.5)
    days = [date(1960, 1, 1), date(1, 1, 1), date(9999, 12, 31)]
    yield (
        "d",
        "DATE",
        column(pa.date32(), days, lambda: date(2000, 1, 1) + timedelta(days=source.randint(-50_000, 50_000))),
    )
    texts = ["", "a", "1234567", "12345678", "é" * 3, "é" * 4, "x" * 100, "y" * 16]
    yield "s", "STRING", column(pa.string(), texts, lambda: "z" * source.randint(0, 40))
    yield (
        "x",
        "BYTES",
        column(pa.binary(), [b"", b"\0", b"\xff" * 7, b"\xff" * 8], lambda: source.randbytes(source.randint(0, 30))),
    )
    for precision, scale in ((18, 5), (18, 0), (18, 18), (4, 2)):
        top = 10**precision - 1
        made = partial(random_decimal, source, top, scale)
        ends = [Decimal(0), Decimal(top).scaleb(-scale), Decimal(-top).scaleb(-scale)]
        yield (
            f"n{precision}_{scale}",
            f"DECIMAL({precision}, {scale})",
            column(pa.decimal128(precision, scale), ends, made),
        )
    for zone, name in ((None, ""), ("UTC", " WITH LOCAL TIME ZONE")):
        for precision in (3, 6, 9):
            step = 1000 if precision == 3 else 1
            base = datetime(2000, 1, 1, tzinfo=UTC if zone else None)
            made = partial(random_moment, source, base, step)
            ends = [
                base.replace(year=1960, microsecond=step),
                base.replace(year=2024, month=3, day=10, hour=2, minute=30),
            ]
            yield (
                f"t{precision}{'z' if zone else ''}",
                f"TIMESTAMP({precision}){name}",
                column(pa.timestamp("us", zone), ends, made),
            )


def with_nulls(column: pa.ChunkedArray, mask: np.ndarray) -> pa.Array:
    values = [None if m else v for v, m in zip(column.to_pylist(), mask, strict=True)]
    return pa.array(values, column.type)


def test_the_bucket_of_spark_is_the_bucket_of_the_format(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Any
) -> None:
    made = list(key_columns())
    full = pa.table({name: array for name, _, array in made})
    mask = np.random.default_rng(5).random(COUNT) < 0.3
    holes = pa.table(
        {name: with_nulls(column, mask) for name, column in zip(full.column_names, full.columns, strict=True)}
    )
    schema = {name: kind for name, kind, _ in made}
    keys_of_one = [[name] for name in schema]
    keys_of_many = [["i64", "s"], ["s", "x", "i32"], ["s", "t6", "t6z", "n18_5"], list(schema)[::4]]
    for data, keyed, keys in ((full, True, keys_of_one + keys_of_many), (holes, False, [["s"], ["t6"], *keys_of_many])):
        path = str(tmp_path / f"{keyed}.parquet")
        pq.write_table(data, path)
        frame = spark.read.parquet(path)
        columns, expected = [], []
        for i, key in enumerate(keys):
            options = {"bucket": "1000003"} | ({} if keyed else {"bucket-key": ",".join(key)})
            table = catalog.create_table(
                f"shop.t{keyed}{i}", schema=schema, primary_key=key if keyed else None, options=options
            )
            native = bucket_column(table.definition, frame.schema)
            assert native is not None, key
            columns.append(native.alias(f"k{i}"))
            expected.append(bucket_numbers(table.definition, conform(data, table.schema.fields, action="cannot")))
        found = frame.select(*columns).toArrow()
        for i, key in enumerate(keys):
            assert found.column(i).to_pylist() == expected[i].tolist(), key


def test_types_without_a_native_bucket_have_none(spark: SparkSession, catalog: mg.Catalog) -> None:
    for kind, given in (
        ("DOUBLE", "double"),
        ("DECIMAL(20, 2)", "decimal(20,2)"),
        ("BIGINT", "decimal(10,0)"),
        ("STRING", "int"),
    ):
        table = catalog.create_table(
            f"shop.t{abs(hash(kind))}", schema={"k": kind}, primary_key=["k"], options={"bucket": "2"}
        )
        assert bucket_column(table.definition, spark.createDataFrame([], f"k {given}").schema) is None


def test_salts_hash_to_their_partitions(spark: SparkSession) -> None:
    for count in (1, 4, 5, 16):
        wanted = spark.createDataFrame([(i, salt) for i, salt in enumerate(salts(count))], "task int, salt int")
        assert wanted.selectExpr(f"bool_and(task = pmod(hash(salt), {count}))").collect()[0][0]


@pytest.mark.parametrize("through", ["arrow", "files"])
def test_a_float_takes_the_nearest_number_and_refuses_what_is_too_large(
    through: str, spark: SparkSession, catalog: mg.Catalog
) -> None:
    table = catalog.create_table(f"shop.floats_{through}", {"k": "INT", "v": "FLOAT"}, ["k"], options={"bucket": "1"})
    values = [0.1, -2.7, 16777217.0]
    ms.write(spark.createDataFrame(list(enumerate(values)), "k INT, v DOUBLE"), table, through=through)
    assert [row["v"] for row in table.read().to_pylist()] == [float(np.float32(value)) for value in values]
    with pytest.raises(mg.errors.InvalidInputError, match="does not fit FLOAT"):
        ms.write(spark.createDataFrame([(1, 1e39)], "k INT, v DOUBLE"), table, through=through)
