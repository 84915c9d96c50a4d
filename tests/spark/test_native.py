"""What Spark reads from data files by itself is what our reader returns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import ExpiredError

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import merganser.spark as ms
from merganser.files import write
from merganser.scan.plain import plain_scan
from merganser.spark import native as natives
from merganser.spark import scan as scans
from merganser.spark import splits
from merganser.spark import sql as spark_sql
from merganser.spark.types import arrow_schema_of, spark_schema
from merganser.sql.query import hidden
from tests.conformance.quick import INTERPRETED
from tests.golden.test_golden import NAMES, TABLES
from tests.unit.sql.test_files import KEYS, LAYOUTS, READ, history, with_hidden_keys

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


@pytest.fixture(params=["positions", "keys"])
def hidden_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How Spark leaves out rows that newer files hide."""
    if request.param == "keys":
        monkeypatch.setattr(natives, "_KEYS_BYTES", -1)
    return str(request.param)


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_any_history_the_rows_are_equal(native: Native, catalog: mg.Catalog, layout: str, hidden_by: str) -> None:
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "a": "INT"}
    catalog.create_table("default.t", columns, **LAYOUTS[layout])
    for step, _ in enumerate(history(catalog, random.Random(layout), 14)):
        if step % 4 == 1:
            native.same("default.t")
    assert bool(native.read) == (layout in READ)


@pytest.mark.campaign(1 / 2)
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


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("kind", ["BIGINT", "DECIMAL(38, 10)", "STRING", "BYTES", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"])
def test_keys_are_hidden_by_newer_ones(native: Native, catalog: mg.Catalog, kind: str, hidden_by: str) -> None:
    table = with_hidden_keys(catalog, kind)
    native.same("default.t")
    assert native.whole
    found = native.arrow("SELECT v, count(*) AS n FROM t WHERE y = 7 GROUP BY v")
    expected = table.read(["v"], where="y = 7").to_arrow().group_by("v").aggregate([([], "count_all")])
    assert sorted(found.to_pydict()["v"]) == sorted(expected.to_pydict()["v"])


def updated(catalog: mg.Catalog, count: int, **options: str) -> mg.Table:
    """The table default.t of two partitions, in which newer files replace each third key and delete each tenth."""
    table = catalog.create_table(
        "default.t", {"p": "INT NOT NULL", "k": "INT NOT NULL", "v": "INT"}, primary_key=["p", "k"],
        partition_by=["p"], options={"bucket": "2", "write-only": "true", **options},
    )  # fmt: skip
    keys = np.arange(count, dtype=np.int32)
    for step, taken in enumerate((keys, keys[::3])):
        table.write(pa.table({"p": taken % 2, "k": taken, "v": np.full(len(taken), step, np.int32)}))
    table.delete("k % 10 = 0")
    return table


def sums(table: mg.Table, where: str) -> list[dict[str, Any]]:
    rows = table.read(["k", "v"], where=where).to_arrow()
    return [{"n": rows.num_rows, "k": sum(rows.column("k").to_pylist()), "v": sum(rows.column("v").to_pylist())}]


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_positions_are_of_the_file(
    native: Native, catalog: mg.Catalog, settings: Callable[[str, str], None], vectorized: str
) -> None:
    """Whatever row groups and pages Spark skips, and in however many tasks it reads a file. Spark compiles here."""
    settings("spark.sql.parquet.enableVectorizedReader", vectorized)
    settings("spark.sql.files.maxPartitionBytes", "100kb")
    settings("spark.sql.files.openCostInBytes", "0")
    for option in INTERPRETED:
        settings(option, "true" if option.endswith("Stage") else "FALLBACK")
    table = updated(catalog, 300_000, **{"file.block-size": "100 kb", "file.compression": "none"})
    base = max(Path(table.path).rglob("data-*.parquet"), key=lambda path: path.stat().st_size)
    assert pq.ParquetFile(base).num_row_groups > 3
    for where in ("true", "k >= 299000", "k BETWEEN 120000 AND 121000", "k < 5 OR v = 1", "k IN (7, 150001, 299999)"):
        found = native.session.sql(f"SELECT count(*) AS n, sum(k) AS k, sum(v) AS v FROM t WHERE {where}")
        assert found.toArrow().to_pylist() == sums(table, where)
        assert native.whole
    assert native.session.sql("SELECT k FROM t").rdd.getNumPartitions() > 8


def test_a_filter_takes_the_place_of_the_join_of_keys(
    native: Native, catalog: mg.Catalog, capsys: pytest.CaptureFixture[str], hidden_by: str
) -> None:
    updated(catalog, 100_000)
    native.session.sql("SELECT sum(v) AS v FROM t").explain("extended")
    plan = capsys.readouterr().out
    assert ("LeftAnti" in plan) == (hidden_by == "keys")
    assert len(plan) < 20_000  # bits are not written out in it


def test_hidden_rows_are_found_once(native: Native, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    joined, asked = hidden._joined, []
    monkeypatch.setattr(hidden, "_joined", lambda *given: asked.append(given) or joined(*given))
    table = updated(catalog, 1000)
    for _ in range(2):
        native.same("default.t")
        assert native.whole
    first = len(asked)
    assert first
    table.write([{"p": 0, "k": 0, "v": 5}])
    native.same("default.t")
    assert len(asked) > first
    assert native.session.sql("SELECT count(*) AS n FROM t VERSION AS OF 2").toArrow().to_pylist() == [{"n": 1000}]


@pytest.mark.parametrize("files", ["named alike", "of one place"])
def test_files_that_names_do_not_tell_apart(
    native: Native, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch, files: str
) -> None:
    if files == "of one place":
        monkeypatch.setattr(natives, "_SPREAD", 1)
        monkeypatch.setattr(natives, "_SIZES", 1)
    else:
        init = write.RollingWriter.__init__

        def numbered(self: Any, **given: Any) -> None:
            init(self, **given)
            self._run = f"run-{len(list(Path(given['table'].path).glob('snapshot/snapshot-*')))}"

        monkeypatch.setattr(write.RollingWriter, "__init__", numbered)
    table = updated(catalog, 1000)
    paths = list(Path(table.path).rglob("data-*.parquet"))
    assert (len({path.name for path in paths}) < len(paths)) == (files == "named alike")
    native.same("default.t")
    assert native.whole


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("prefix", ["a b", "ä", "a%20b", "a#b"])
def test_files_with_odd_names(native: Native, catalog: mg.Catalog, prefix: str) -> None:
    updated(catalog, 1000, **{"data-file.prefix": f"{prefix}-"})
    native.same("default.t")
    assert native.whole


def test_a_damaged_key_hides_no_rows(native: Native, catalog: mg.Catalog) -> None:
    """The driver verifies the keys that it joins; then a task says what is damaged."""
    table = catalog.create_table("default.t", {"k": "STRING NOT NULL", "v": "INT"}, primary_key=["k"],
                                 options={"bucket": "1", "write-only": "true", "file.compression": "none"})  # fmt: skip
    for step in range(2):
        table.write([{"k": f"key {k:04d}", "v": step} for k in range(1000)])
    path = max(Path(table.path).rglob("data-*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"key 0500") + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException, match=r"damaged|checksum"):
        native.arrow("SELECT sum(v) AS v FROM t")
    assert not native.whole


def test_deletion_vectors_beyond_the_limit_are_applied_by_tasks(
    native: Native, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("default.t", {"k": "INT"}, options={"deletion-vectors.enabled": "true"})
    table.write(pa.table({"k": pa.array(range(1000), pa.int32())}))
    table.delete("k % 100 = 0")
    native.same("default.t")
    assert native.whole
    monkeypatch.setattr(natives, "_BITS_BYTES", 124)
    native.same("default.t")
    assert not native.whole


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


@pytest.mark.campaign(1 / 3)
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


def test_a_statement_whose_file_is_removed_under_it_says_so(
    native: Native, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("default.t", {"k": "INT"})
    table.write([{"k": k} for k in range(1000)])
    native.session.sql("CREATE TABLE default.u (k INT)")
    frame_of = spark_sql.query_frame

    def removed(*asked: Any) -> Any:
        frame = frame_of(*asked)
        for path in Path(table.path).rglob("data-*.parquet"):
            path.unlink()
        return frame

    monkeypatch.setattr(spark_sql, "query_frame", removed)
    with pytest.raises(
        ExpiredError, match=r"cannot read '/.*parquet': .* has been removed since.* Nothing was committed"
    ):
        native.session.sql("INSERT INTO default.u SELECT k FROM default.t")
    assert catalog.table("default.u").latest_snapshot() is None


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
