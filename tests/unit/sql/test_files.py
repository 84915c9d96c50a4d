"""What DuckDB reads from data files by itself is what our reader returns."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import FormatError
from merganser.scan.plain import PlainScan, plain_scan
from merganser.sql.query import duck, hidden, views
from tests.golden.test_golden import NAMES, TABLES

KEY: dict[str, Any] = {"primary_key": ["p", "k"], "options": {"bucket": "2", "target-file-size": "4 kb"}}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "wh"))
    catalog.create_database("default")
    return catalog


def plain_of(table: mg.Table) -> PlainScan | None:
    return plain_scan(table.read())


def is_whole(table: mg.Table) -> bool:
    """Whether DuckDB reads all of a table."""
    found = plain_of(table)
    return found is not None and found.rest is None


def through_files(catalog: mg.Catalog, name: str) -> pa.Table:
    """All rows of a table, by a query that DuckDB computes."""
    return catalog.sql(f"SELECT t.*, 1 + 1 AS two FROM {name} t").drop_columns("two")


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def same(catalog: mg.Catalog, name: str) -> None:
    table = catalog.table(name)
    expected = table.read().to_arrow()
    found = through_files(catalog, name)
    assert found.schema.names == expected.schema.names
    assert rows_of(found) == rows_of(expected)
    counted = catalog.sql(f"SELECT count(*) AS n FROM {name} a JOIN (SELECT 1 AS one) b ON true")
    assert counted.to_pylist() == [{"n": expected.num_rows}]
    narrow = table.schema.names[:2]
    listed = ", ".join(f"`{column}`" for column in narrow)
    few = catalog.sql(f"SELECT {listed}, count(*) AS n FROM {name} GROUP BY {listed}")
    assert rows_of(few.select(narrow)) == sorted(set(rows_of(expected.select(narrow))))


def history(catalog: mg.Catalog, rng: random.Random, steps: int) -> Iterator[None]:
    table, columns = catalog.table("default.t"), ["a"]
    for step in range(steps):
        draw = rng.random()
        keyed = bool(table.primary_key)
        if draw < 0.6 or step == 0:
            rows = [
                {"p": rng.choice("xy"), "k": rng.randrange(60), **{name: rng.randrange(99) for name in columns}}
                for _ in range(rng.choice([1, 5, 60, 400]))
            ]
            if keyed:
                rows = list({(row["p"], row["k"]): row for row in rows}.values())
            table.write(rows)
        elif draw < 0.75:
            low = rng.randrange(60)
            table.delete(f"k BETWEEN {low} AND {low + rng.randrange(9)}")
        elif draw < 0.85:
            table.compact(full=rng.random() < 0.5)
        elif draw < 0.9:
            new = f"c{step}"
            catalog.sql(f"ALTER TABLE t ADD COLUMN {new} INT")
            columns.append(new)
        elif draw < 0.95 and len(columns) > 1:
            old = columns.pop()
            catalog.sql(f"ALTER TABLE t RENAME COLUMN {old} TO r{step}")
            columns.append(f"r{step}")
        else:
            catalog.sql(f"ALTER TABLE t ALTER COLUMN {columns[-1]} TYPE BIGINT")
        table = catalog.table("default.t")
        yield


LAYOUTS: dict[str, dict[str, Any]] = {
    "keys": KEY,
    "keys and partitions": {**KEY, "partition_by": ["p"]},
    "dynamic buckets": {"primary_key": ["k"], "options": {"dynamic-bucket.target-row-num": "20"}},
    "deletion vectors": {**KEY, "options": {"bucket": "1", "deletion-vectors.enabled": "true"}},
    "by a field": {**KEY, "options": {"bucket": "1", "sequence.field": "a"}},
    "append": {"options": {"deletion-vectors.enabled": "true"}},
    "append in buckets": {"options": {"bucket": "2", "bucket-key": "k", "deletion-vectors.enabled": "true"}},
    "append and partitions": {"partition_by": ["p"], "options": {"deletion-vectors.enabled": "true"}},
    "partial update": {**KEY, "options": {"bucket": "1", "merge-engine": "partial-update",
                                          "partial-update.remove-record-on-delete": "true"}},
    "keys in ORC": {**KEY, "options": {"bucket": "1", "file.format": "orc"}},
    "without compaction": {**KEY, "options": {"bucket": "1", "write-only": "true"}},
}  # fmt: skip


READ = set(LAYOUTS) - {"keys in ORC"}
"""Layouts of which DuckDB reads files."""


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_after_any_history_the_rows_are_equal(catalog: mg.Catalog, layout: str, seed: int) -> None:
    how = LAYOUTS[layout]
    catalog.create_table("default.t", {"p": "STRING NOT NULL", "k": "INT NOT NULL", "a": "INT"}, **how)
    read = 0
    for _ in history(catalog, random.Random(seed), 14):
        same(catalog, "default.t")
        read += plain_of(catalog.table("default.t")) is not None
    assert bool(read) == (layout in READ)


@pytest.mark.campaign(1 / 10)
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("ts9")])  # queries compute with micros
def test_tables_of_others_are_equal(name: str, tmp_path: Path) -> None:
    (tmp_path / "golden.db").mkdir()
    (tmp_path / "golden.db" / name).symlink_to(TABLES / name)
    same(mg.catalog(str(tmp_path)), f"golden.{name}")


def one_file(table: mg.Table) -> Path:
    (path,) = Path(table.path).rglob("data-*.parquet")
    return path


def test_a_damaged_page_is_found_and_told_by_our_reader(catalog: mg.Catalog) -> None:
    table = catalog.create_table("default.t", {"k": "INT", "v": "STRING"})
    table.write(pa.table({"k": range(1000), "v": [f"text {i}" for i in range(1000)]}))
    path = one_file(table)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"damaged|checksum"):
        catalog.sql("SELECT count(v), sum(k) FROM t")


def test_a_missing_file_is_told_by_our_reader(catalog: mg.Catalog) -> None:
    table = catalog.create_table("default.t", {"k": "INT"})
    table.write([{"k": 1}])
    query = "SELECT sum(k) AS n FROM t"
    assert catalog.sql(query).to_pylist() == [{"n": 1}]
    one_file(table).unlink()
    with pytest.raises(FormatError, match="it is missing"):
        catalog.sql(query)


@pytest.mark.parametrize("column", ["filename", "file_index", "file_row_number", "a b", 'q"x', "SELECT", "größe"])
def test_odd_names_of_columns(catalog: mg.Catalog, column: str) -> None:
    schema = {"k": "INT NOT NULL", column: "INT"}
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = catalog.create_table("default.t", schema, primary_key=["k"], options=options)
    table.write([{"k": 1, column: 10}, {"k": 2, column: 20}])
    table.delete("k = 2")
    table.write([{"k": 1, column: 11}, {"k": 3, column: 30}])
    same(catalog, "default.t")


def test_partitions_whose_names_are_patterns(catalog: mg.Catalog) -> None:
    table = catalog.create_table("default.t", {"p": "STRING", "k": "INT"}, partition_by=["p"])
    table.write([{"p": p, "k": 1} for p in ("a*", "ab", "[ab]", "a?", "{a}", "a=b", "a b", "ä", "")])
    same(catalog, "default.t")


def test_all_types(catalog: mg.Catalog) -> None:
    catalog.sql(
        "CREATE TABLE t (a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(5,2), "
        "i DECIMAL(38,10), j CHAR(3), k VARCHAR(9), l STRING, m BINARY(2), n BYTES, o DATE, p TIME(3), q TIMESTAMP(3), "
        "r TIMESTAMP(6), s TIMESTAMP(9), t TIMESTAMP_LTZ(6), u ARRAY<INT>, v MAP<STRING, INT>, w ROW<x INT, y STRING>)"
    )
    table = catalog.table("default.t")
    assert not is_whole(table)
    kinds = table.read().schema
    rows = pa.table([pa.nulls(3, kind.type) for kind in kinds], schema=kinds)
    table.write(rows)
    same(catalog, "default.t")
    plain = [name for name in kinds.names if name not in "pstuvw" or name == "t"]
    assert plain_scan(table.read(columns=plain)) is not None
    assert plain_scan(table.read(columns=["s"])) is None


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_nan_that_statistics_leave_out(catalog: mg.Catalog, kind: str) -> None:
    """NaN is above all other numbers, and equals itself; -0.0 equals 0.0."""
    table = catalog.create_table("default.t", {"k": "INT", "x": kind})
    values = [1.0, float("nan"), None, -0.0]
    table.write([{"k": i, "x": x} for i, x in enumerate(values)])
    assert is_whole(table)

    def kept(where: str) -> list[int]:
        return sorted(catalog.sql(f"SELECT k + 0 AS k FROM t WHERE {where}").column("k").to_pylist())

    assert kept("x >= 2") == [1]
    assert kept("isnan(x)") == [1]
    assert kept(f"x = CAST('NaN' AS {kind})") == [1]
    assert kept("x <> 1") == [1, 3]
    assert kept("x = 0") == [3]
    assert kept("x <= 1") == [0, 3]
    assert kept("x IS NULL") == [2]
    assert (
        repr(catalog.sql("SELECT max(x) AS high, min(x) AS low FROM t").to_pylist()) == "[{'high': nan, 'low': -0.0}]"
    )


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("key", [{}, {"primary_key": ["k"], "options": {"bucket": "1"}}], ids=["no-key", "key"])
def test_bounds_of_files_are_no_extremes_of_floats(catalog: mg.Catalog, kind: str, key: dict[str, Any]) -> None:
    """The bounds in a file may leave NaN out, and its least 0 is -0.0."""
    table = catalog.create_table("default.t", {"k": "INT NOT NULL", "x": kind, "s": f"ROW<y {kind}>"}, **key)
    table.write([{"k": i, "x": float(i), "s": {"y": float(i)}} for i in range(4)])
    table.compact(full=True)

    def found(query: str) -> str:
        return repr([tuple(row.values()) for row in catalog.sql(query).to_pylist()])

    assert found("SELECT max(x) FROM t") == "[(3.0,)]"
    assert found("SELECT min(x) FROM t") == "[(0.0,)]"
    assert found("SELECT max(x) AS a, min(x) AS b, count(*) AS n FROM t WHERE x >= 0") == "[(3.0, 0.0, 4)]"
    assert found("SELECT max(s.y) AS a, min(s.y) AS b FROM t") == "[(3.0, 0.0)]"
    assert found("SELECT max(y) FROM (SELECT x AS y FROM t)") == "[(3.0,)]"
    assert found("SELECT k FROM t WHERE x = (SELECT max(x) FROM t)") == "[(3,)]"


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("kind", ["TIMESTAMP(6)", "TIMESTAMP(9)"])
def test_times_at_clock_changes_meet_instants_as_on_spark(catalog: mg.Catalog, kind: str) -> None:
    """A constant instant is moved to the wall clock; the later one of two alike is met by instants."""
    session = catalog.session()
    session.sql(f"SET timezone = 'Europe/Berlin'; CREATE TABLE t (k INT, a {kind})")
    skipped, twice = (datetime(2024, 3, 31, 1), datetime(2024, 10, 27, 1))
    rows = [{"k": i, "a": begin + timedelta(minutes=i)} for begin in (skipped, twice) for i in range(180)]
    catalog.table("default.t").write(rows)

    def counts(condition: str) -> set[int]:
        queries = (
            f"SELECT count(*) AS n FROM t WHERE {condition}",
            f"SELECT count(*) AS n FROM (SELECT {condition} AS y FROM t) WHERE y",
        )
        found = {session.sql(query)["n"].to_pylist()[0] for query in queries}
        return found | {session.sql(f"SELECT k FROM t WHERE {condition}").num_rows}

    assert counts("a < TIMESTAMP '2024-03-31 02:30:00'") == {150}
    assert counts("TIMESTAMP '2024-03-31 02:30:00' > a") == {150}
    assert counts("a < TIMESTAMP '2024-03-31 01:15:00Z'") == {135}
    assert counts("a < TIMESTAMP '2024-03-31 01:45:00' + INTERVAL 30 MINUTE") == {135}
    assert counts("a <=> TIMESTAMP '2024-03-31 02:30:00'") == {1}
    assert counts("a IN (TIMESTAMP '2024-03-31 02:30:00')") == {1}
    assert counts("a < TIMESTAMP_NTZ '2024-03-31 02:30:00'") == {90}
    assert counts("a < TIMESTAMP '2024-10-27 02:30:00'") == {270}
    assert counts("a < TIMESTAMP '2024-10-27 00:30:00Z'") == {270}
    assert counts("a < TIMESTAMP '2024-10-27 01:30:00Z'") == {300}
    assert counts("a = TIMESTAMP '2024-10-27 01:30:00Z'") == {0}


def test_one_query_reads_files_and_what_is_merged(catalog: mg.Catalog) -> None:
    options = {"bucket": "1", "sequence.field": "v", "write-only": "true"}
    table = catalog.create_table(
        "default.t",
        {"p": "STRING", "k": "INT", "v": "INT"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options=options,
    )
    table.write([{"p": "files", "k": 1, "v": 1}, {"p": "merged", "k": 1, "v": 5}])
    table.write([{"p": "merged", "k": 1, "v": 4}])
    found = plain_of(table)
    assert found is not None
    assert found.rest is not None
    same(catalog, "default.t")
    assert catalog.sql("SELECT a.v FROM t a JOIN t b ON a.p = b.p ORDER BY a.v").column("v").to_pylist() == [1, 5]


def test_the_rows_of_many_commits_are_hidden_by_newer_ones(catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "default.t",
        {"p": "STRING", "k": "INT", "a": "INT"},
        **{**KEY, "options": {"bucket": "1", "write-only": "true"}},
    )
    for step in range(1, 9):
        table.write([{"p": "x", "k": k, "a": step} for k in range(0, 60, step)])
    assert is_whole(table)
    same(catalog, "default.t")
    table.write([{"p": "x", "k": k, "a": 9} for k in range(0, 60, 9)])
    table.write([{"p": "x", "k": k, "a": 10} for k in range(0, 60, 10)])
    assert not is_whole(table)
    same(catalog, "default.t")


KEYS: dict[str, list[Any]] = {
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 127],
    "BIGINT": [-(1 << 63), -1, 0, (1 << 63) - 1],
    "DECIMAL(5, 2)": [Decimal(text) for text in ("-999.99", "0.00", "0.01", "1.10")],
    "DECIMAL(38, 10)": [Decimal(text) for text in ("-9999999999999999999999999999.1", "0", "0.0000000001")],
    "STRING": ["", "a", "a ", "A", "ä", "a\u0308", "\u00e4", "𝄞", "a" * 300, "a" * 299 + "b"],
    "CHAR(3)": ["a", "a ", "b"],
    "BYTES": [b"", b"\0", b"\0\0", b"a", b"\xff"],
    "DATE": [date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(9999, 12, 31)],
    "TIMESTAMP(6)": [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 1, 1, 0, 0, 0, 1)],
    "TIMESTAMP_LTZ(3)": [datetime(1969, 12, 31, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)],
    "DOUBLE": [-1.0, 0.0, -0.0, float("nan"), float("inf")],
}  # fmt: skip


def with_hidden_keys(catalog: mg.Catalog, kind: str) -> mg.Table:
    """The table default.t, whose newer files replace and delete keys of a type in older ones."""
    options = {"bucket": "1", "write-only": "true"}
    schema = {"x": f"{kind} NOT NULL", "y": "INT NOT NULL", "v": "INT"}
    table = catalog.create_table("default.t", schema, primary_key=["x", "y"], options=options)
    values, rng = KEYS[kind], random.Random(1)
    for step in range(4):
        keys = [(x, y) for x in values for y in range(40) if step == 0 or rng.random() < 0.3]
        table.write([{"x": x, "y": y, "v": 100 * step + y} for x, y in keys])
        table.delete(f"y = {step}")
    return table


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_all_types_are_hidden_by_newer_ones(catalog: mg.Catalog, kind: str) -> None:
    table = with_hidden_keys(catalog, kind)
    assert is_whole(table) == (kind != "DOUBLE")
    assert rows_of(through_files(catalog, "default.t")) == rows_of(table.read().to_arrow())


@pytest.mark.parametrize("scans", [1, 2, 32])
def test_many_files_with_hidden_rows(catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch, scans: int) -> None:
    """Several of them are in one scan, and DuckDB numbers them as they are listed, whichever its filters skip."""
    monkeypatch.setattr(views, "_SCANS_MAX", scans)
    options = {"bucket": "2", "deletion-vectors.enabled": "true"}
    catalog.create_table("default.a", {"p": "INT", "k": "INT"}, partition_by=["p"], options={**options, "bucket": "-1"})
    keyed = {"bucket": "2", "write-only": "true"}
    catalog.create_table("default.k", {"p": "INT", "k": "INT", "v": "INT"}, primary_key=["p", "k"],
                         partition_by=["p"], options=keyed)  # fmt: skip
    a, k = catalog.table("default.a"), catalog.table("default.k")
    for p in range(7):
        a.write([{"p": p, "k": i} for i in range(100 + p)])
        k.write([{"p": p, "k": i, "v": 0} for i in range(100 + p)])
    a.delete("k % 7 = p")
    k.write([{"p": p, "k": i, "v": 1} for p in range(7) for i in range(p, 90, 3)])
    k.delete("k % 5 = 1 AND p <> 3")
    for name in ("default.a", "default.k"):
        assert is_whole(catalog.table(name))
        same(catalog, name)
        for where in ("p >= 5", "k > 95", "p = 6 AND k BETWEEN 20 AND 40", "k < 0"):
            found = catalog.sql(f"SELECT p, k, 1 + 1 AS two FROM {name} WHERE {where}").drop_columns("two")
            assert rows_of(found) == rows_of(catalog.table(name).read(["p", "k"], where=where).to_arrow())


def test_hidden_rows_are_found_once(catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    joined = hidden._joined

    def counted(connection: Any, key: Any, files: Any, newer: Any) -> Any:
        asked.append((len(files), len(newer)))
        return joined(connection, key, files, newer)

    monkeypatch.setattr(hidden, "_joined", counted)
    table = catalog.create_table("default.t", {"k": "INT NOT NULL", "v": "INT"}, primary_key=["k"],
                                 options={"bucket": "1", "write-only": "true"})  # fmt: skip
    table.write([{"k": k, "v": 0} for k in range(100)])
    table.write([{"k": k, "v": 1} for k in range(0, 100, 3)])
    query = "SELECT count(*) AS n, sum(v) AS v FROM t"
    for _ in range(2):
        assert catalog.sql(query).to_pylist() == [{"n": 100, "v": 34}]
    assert asked == [(1, 1)]
    table.write([{"k": k, "v": 2} for k in range(0, 100, 10)])
    assert catalog.sql(query).to_pylist() == [{"n": 100, "v": 30 + 20}]
    assert asked == [(1, 1)] * 3  # the newest file against each of both
    older = catalog.sql("SELECT count(*) AS n, sum(v) AS v FROM t VERSION AS OF 2")
    assert older.to_pylist() == [{"n": 100, "v": 34}]
    both = catalog.sql("SELECT sum(a.v - b.v) AS v FROM t a JOIN t VERSION AS OF 1 b ON a.k = b.k")
    assert both.to_pylist() == [{"v": 50}]
    assert len(asked) == 3


def test_statements_side_by_side(catalog: mg.Catalog) -> None:
    table = catalog.create_table("default.t", {"k": "INT NOT NULL", "v": "INT"}, primary_key=["k"],
                                 options={"bucket": "1", "write-only": "true"})  # fmt: skip
    for step in range(4):
        table.write([{"k": k, "v": step} for k in range(0, 1000, step + 1)])
    expected, found, failed = rows_of(table.read().to_arrow()), [], []

    def ask() -> None:
        try:
            found.append(rows_of(through_files(catalog, "default.t")))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert found == [expected] * 8


def test_memory_is_bounded(catalog: mg.Catalog) -> None:
    table = catalog.create_table("default.t", {"k": "INT", "v": "STRING"})
    count = 300_000
    table.write(pa.table({"k": pa.array(range(count), pa.int32()), "v": [f"text {i:050d}" for i in range(count)]}))
    session = catalog.session()
    before = _memory_limit()
    session.sql("SET 'sql.memory' = '40 mb'")
    try:
        found = session.sql("SELECT count(*) AS n FROM (SELECT v, max(k) FROM t GROUP BY v)")
        assert _memory_limit() != before
    finally:
        session.sql("RESET 'sql.memory'")
        session.sql("SELECT 1")
    assert found.to_pylist() == [{"n": count}]
    assert _memory_limit() == before


def _memory_limit() -> object:
    return duck._root().execute("SELECT current_setting('memory_limit')").fetchone()
