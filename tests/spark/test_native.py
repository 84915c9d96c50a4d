"""What Spark reads from data files by itself is what our reader returns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import merganser.spark as ms
from merganser.scan.plain import plain_scan
from merganser.spark import scan as scans
from merganser.spark import splits
from merganser.spark import sql as spark_sql
from merganser.spark.types import arrow_schema_of, spark_schema
from tests.golden.test_golden import NAMES, TABLES
from tests.unit.sql.test_files import KEYS, LAYOUTS, READ, history

pytestmark = pytest.mark.spark

Query = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def no_small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_sql, "_LOCAL_BYTES", -1)


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets options of the Spark session, and sets them back."""
    before: dict[str, str | None] = {}

    def set_one(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield set_one
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "wh"))
    catalog.create_database("default")
    return catalog


class Native:
    """Queries in which Spark reads what files it can; `read` counts those of which it read some.

    Attributes:
        whole: of the last query, whether Spark read all of it.
    """

    def __init__(self, spark: SparkSession, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session = ms.session(spark, catalog)
        self.read = 0
        self.whole = False
        native, tasks = scans.native_frames, scans.planned_frame

        def counted(*args: Any) -> Any:
            self.read += 1
            self.whole = True
            return native(*args)

        def by_tasks(*args: Any) -> Any:
            self.whole = False
            return tasks(*args)

        monkeypatch.setattr(scans, "native_frames", counted)
        monkeypatch.setattr(scans, "planned_frame", by_tasks)

    def arrow(self, text: str) -> pa.Table:
        """Return rows in the types of Spark."""
        frame = self.session.sql(text)
        found: pa.Table = frame.toArrow()
        return found

    def same(self, name: str) -> None:
        """Hold all rows of a table against those that tasks return."""
        scan = self.session.state.catalog.table(name).read()
        plan, declared = scan.plan(), spark_schema(scan.table, scan.columns)
        form = arrow_schema_of(declared)
        by_tasks = splits.rows_of(plan.job, plan.splits, scan.env.storage, form)
        frame = self.session.sql(f"SELECT * FROM {name}")
        assert [(c.name, c.dataType, c.metadata) for c in frame.schema] == [
            (c.name, c.dataType, c.metadata) for c in declared
        ]
        assert rows_of(frame.toArrow().cast(form)) == rows_of(pa.Table.from_batches(by_tasks, form))


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.fixture
def native(spark: SparkSession, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch) -> Native:
    return Native(spark, catalog, monkeypatch)


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_any_history_the_rows_are_equal(native: Native, catalog: mg.Catalog, layout: str) -> None:
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "a": "INT"}
    catalog.create_table("default.t", columns, **LAYOUTS[layout])
    for step, _ in enumerate(history(catalog, random.Random(layout), 14)):
        if step % 4 == 1:
            native.same("default.t")
    assert bool(native.read) == (layout in READ - {"deletion vectors"})


def test_tables_of_others_are_equal(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "golden.db").mkdir()
    for name in NAMES:
        (tmp_path / "golden.db" / name).symlink_to(TABLES / name)
    catalog = mg.catalog(str(tmp_path))
    plain = [name for name in NAMES if plain_scan(catalog.table(f"golden.{name}").read(), by="spark") is not None]
    native = Native(spark, catalog, monkeypatch)
    for name in plain:
        native.same(f"golden.{name}")
    assert native.read == len(plain) > 9


def test_all_types(native: Native, catalog: mg.Catalog) -> None:
    catalog.sql(
        "CREATE TABLE t (a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(5,2), "
        "i DECIMAL(38,10), j CHAR(3), k VARCHAR(9), l STRING, m BINARY(2), n BYTES, o DATE, p TIMESTAMP(0), "
        "q TIMESTAMP(3), r TIMESTAMP(6), s TIMESTAMP_LTZ(3), t TIMESTAMP_LTZ(6), u DECIMAL(18, 3))"
    )
    table = catalog.table("default.t")
    kinds = table.read().schema
    rng = random.Random(1)
    drawn: dict[str, list[Any]] = {
        "a": [True, False], "b": [-128, 127], "c": [-32768, 32767], "d": [-(1 << 31), 7], "e": [-(1 << 63), 8],
        "f": [float("nan"), -0.0, 1.5], "g": [float("nan"), -0.0, float("inf")], "h": KEYS["DECIMAL(5, 2)"],
        "i": KEYS["DECIMAL(38, 10)"], "j": KEYS["CHAR(3)"], "k": ["", "ä "], "l": KEYS["STRING"],
        "m": [b"ab", b"\xff\0"], "n": KEYS["BYTES"], "o": KEYS["DATE"],
        "p": [datetime(1582, 10, 1), datetime(2024, 1, 1)],
        "q": [datetime(1, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1000)], "r": KEYS["TIMESTAMP(6)"],
        "s": KEYS["TIMESTAMP_LTZ(3)"],
        "t": [datetime(1582, 10, 1, tzinfo=UTC), datetime(2024, 3, 10, 7, 30, tzinfo=UTC)],
        "u": [KEYS["DECIMAL(5, 2)"][0], None],
    }  # fmt: skip
    for count in (3, 3000):
        rows = {name: [rng.choice([*drawn[name], None]) for _ in range(count)] for name in kinds.names}
        table.write(pa.table({f.name: pa.array(rows[f.name], f.type) for f in kinds}, schema=kinds))
    native.same("default.t")
    assert native.whole


@pytest.mark.parametrize("kind", ["BIGINT", "DECIMAL(38, 10)", "STRING", "BYTES", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"])
def test_keys_are_hidden_by_newer_ones(native: Native, catalog: mg.Catalog, kind: str) -> None:
    options = {"bucket": "1", "write-only": "true"}
    schema = {"x": f"{kind} NOT NULL", "y": "INT NOT NULL", "v": "INT"}
    table = catalog.create_table("default.t", schema, primary_key=["x", "y"], options=options)
    values, rng = KEYS[kind], random.Random(1)
    for step in range(4):
        keys = [(x, y) for x in values for y in range(40) if step == 0 or rng.random() < 0.3]
        table.write([{"x": x, "y": y, "v": 100 * step + y} for x, y in keys])
        table.delete(f"y = {step}")
    native.same("default.t")
    assert native.whole
    found = native.arrow("SELECT v, count(*) AS n FROM t WHERE y = 7 GROUP BY v")
    expected = table.read(["v"], where="y = 7").to_arrow().group_by("v").aggregate([([], "count_all")])
    assert sorted(found.to_pydict()["v"]) == sorted(expected.to_pydict()["v"])


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_nan_that_statistics_leave_out(native: Native, catalog: mg.Catalog, kind: str) -> None:
    """NaN is above all other numbers, and equals itself; -0.0 equals 0.0."""
    table = catalog.create_table("default.t", {"k": "INT", "x": kind})
    table.write([{"k": i, "x": x} for i, x in enumerate([1.0, float("nan"), None, -0.0])])

    def kept(where: str) -> list[int]:
        return sorted(native.arrow(f"SELECT k FROM t WHERE {where}").column("k").to_pylist())

    assert kept("x >= 2") == [1]
    assert kept(f"x = CAST('NaN' AS {kind})") == [1]
    assert kept("x <> 1") == [1, 3]
    assert kept("x = 0") == [3]
    assert kept("NOT x <= 1") == [1]
    assert native.whole
    assert repr(native.arrow("SELECT max(x) AS x FROM t").to_pydict()) == "{'x': [nan]}"


@pytest.mark.parametrize("kind", ["TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"])
def test_times_between_two_milliseconds(native: Native, catalog: mg.Catalog, kind: str) -> None:
    table = catalog.create_table("default.t", {"k": "INT", "x": kind})
    at = datetime(2024, 1, 1, 5, 0, 0, 1000, UTC if "LTZ" in kind else None)
    table.write([{"k": 1, "x": at}])
    local = "2024-01-01 00:00:00" if "LTZ" in kind else "2024-01-01 05:00:00"
    word = "TIMESTAMP" if "LTZ" in kind else "TIMESTAMP_NTZ"
    for where, kept in (("<", "0015"), ("<>", "0015"), (">", "0005"), ("<=", "001"), (">=", "001"), ("=", "001")):
        assert native.arrow(f"SELECT k FROM t WHERE x {where} {word} '{local}.{kept}'").num_rows == 1, where
    assert native.whole


@pytest.mark.parametrize("case", ["true", "false"])
def test_odd_names_of_columns(
    native: Native, catalog: mg.Catalog, settings: Callable[[str, str], None], case: str
) -> None:
    settings("spark.sql.caseSensitive", case)
    options = {"bucket": "1", "write-only": "true"}
    names = ["file_row", "a b", "a.b", "a`b", "SELECT", "größe", "_metadata", "K2", "__0", "_________0"]
    schema = {"K": "INT NOT NULL", **dict.fromkeys(names, "INT")}
    table = catalog.create_table("default.t", schema, primary_key=["K"], options=options)
    for first, keys in ((10, (1, 2)), (20, (1, 3))):
        table.write([{"K": k, **{name: first + k + i for i, name in enumerate(names)}} for k in keys])
    native.same("default.t")
    assert native.whole


def test_odd_names_of_partitions(native: Native, catalog: mg.Catalog) -> None:
    table = catalog.create_table("default.t", {"p": "STRING", "k": "INT"}, partition_by=["p"])
    for p in ("a*", "ab", "[ab]", "a?", "{a}", "a=b", "a b", "ä", "", "a%20b", "a\\b", "a#b", "a:b", "1", None):
        table.write([{"p": p, "k": 1}])
    native.same("default.t")
    assert native.read
    assert native.arrow("SELECT k FROM t WHERE p = '1'").num_rows == 1


@pytest.mark.parametrize("prefix", ["_x", "."])
def test_files_that_spark_takes_for_hidden(native: Native, catalog: mg.Catalog, prefix: str) -> None:
    table = catalog.create_table("default.t", {"k": "INT"})
    table.write([{"k": 1}])
    native.same("default.t")
    assert native.whole
    catalog.sql(f"ALTER TABLE t SET ('data-file.prefix' = '{prefix}')")
    catalog.table("default.t").write([{"k": 2}])
    native.same("default.t")
    assert not native.whole


def test_settings_that_lose_or_change_rows_are_not_used(
    native: Native, catalog: mg.Catalog, settings: Callable[[str, str], None]
) -> None:
    for key, value in {
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
        "spark.sql.parquet.mergeSchema": "true",
        "spark.sql.parquet.binaryAsString": "true",
        "spark.sql.parquet.fieldId.read.enabled": "true",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }.items():
        settings(key, value)
    columns = {"k": "INT", "v": "STRING", "b": "BYTES", "d": "DATE", "t": "TIMESTAMP(6)", "l": "TIMESTAMP_LTZ(6)"}
    table = catalog.create_table("default.t", columns, options={"file.compression": "none"})
    old = datetime(1500, 1, 1)
    table.write([{"k": k, "v": f"text {k * k}", "b": b"b", "d": old.date(), "t": old, "l": old.replace(tzinfo=UTC)}
                 for k in range(1000)])  # fmt: skip
    native.same("default.t")
    assert native.whole
    (path,) = Path(table.path).rglob("data-*.parquet")
    data = bytearray(path.read_bytes())
    at = data.index(b"text 998001")
    data[at + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
        native.arrow("SELECT max(v) AS v FROM t WHERE k > 10")
    found = native.session.sql("SELECT max(v) AS v FROM t")
    path.unlink()
    with pytest.raises(Py4JJavaError, match="does not exist"):
        found.collect()
    with pytest.raises(PySparkException, match="it is missing"):
        native.arrow("SELECT max(v) AS v FROM t")


def test_one_query_reads_files_and_what_is_merged(native: Native, catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "default.t", {"p": "STRING", "k": "INT", "v": "INT"}, primary_key=["p", "k"], partition_by=["p"],
        options={"bucket": "1", "sequence.field": "v", "write-only": "true"},
    )  # fmt: skip
    table.write([{"p": "files", "k": 1, "v": 1}, {"p": "merged", "k": 1, "v": 5}])
    table.write([{"p": "merged", "k": 1, "v": 4}])
    native.same("default.t")
    assert native.read
    assert not native.whole
    joined = native.arrow("SELECT a.v FROM t a JOIN t b ON a.p = b.p ORDER BY a.v")
    assert joined.column("v").to_pylist() == [1, 5]
    for _ in range(2):
        assert native.arrow("SELECT p FROM t WHERE v > 4 LIMIT 1").to_pylist() == [{"p": "merged"}]


def test_a_limit_counts_rows_that_the_filter_keeps(native: Native, catalog: mg.Catalog) -> None:
    table = catalog.create_table("default.t", {"k": "INT"})
    table.write(pa.table({"k": pa.array(range(5000), pa.int32())}))
    assert native.arrow("SELECT k FROM t WHERE k >= 4990 LIMIT 20").num_rows == 10
    assert native.whole


def test_a_query_keeps_its_snapshot(native: Native, catalog: mg.Catalog) -> None:
    table = catalog.create_table("default.t", {"k": "INT"})
    table.write([{"k": 1}])
    frame = native.session.sql("SELECT count(*) AS n FROM t a CROSS JOIN t b")
    table.write([{"k": 2}])
    assert [row.n for row in frame.collect()] == [1]
    assert native.arrow("SELECT * FROM t VERSION AS OF 1").to_pylist() == [{"k": 1}]
    assert native.whole
