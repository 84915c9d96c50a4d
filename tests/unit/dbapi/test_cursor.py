"""PEP 249: connections and cursors."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import merganser as mg
from merganser import errors


@pytest.fixture
def connection(tmp_path: Path) -> mg.dbapi.Connection:
    mg.catalog(str(tmp_path)).create_database("shop")
    made = mg.dbapi.connect(str(tmp_path), database="shop")
    made.cursor().execute("CREATE TABLE t (id BIGINT, s STRING, PRIMARY KEY (id) NOT ENFORCED)")
    return made


def test_rows_are_fetched_by_one_by_many_and_all(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO t VALUES (:id, :s)", [{"id": n, "s": str(n)} for n in range(4)])
    cursor.execute("SELECT id FROM t ORDER BY id")
    assert cursor.fetchone() == (0,)
    assert cursor.fetchmany(2) == [(1,), (2,)]
    assert cursor.fetchall() == [(3,)]
    assert cursor.fetchone() is None


def test_rowcount_is_that_of_the_rows_changed(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')").rowcount == 2
    assert cursor.execute("UPDATE t SET s = 'c' WHERE id = 1").rowcount == 1
    assert cursor.execute("DELETE FROM t WHERE id = 2").rowcount == 1


def test_many_rows_of_an_insert_are_one_commit(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor()
    rows = [{"id": n, "s": None if n == 1 else str(n), "other": n} for n in range(3)]
    assert cursor.executemany("INSERT INTO t (s, id) VALUES (upper(:s), :id + 1)", rows).rowcount == 3
    assert cursor.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, "0"), (2, None), (3, "2")]
    assert cursor.execute("SELECT commit_kind FROM t$snapshots").fetchall() == [("APPEND",)]
    assert cursor.executemany("INSERT INTO t VALUES (:id, :s)", []).rowcount == 0


def test_many_rows_keep_values_of_all_types(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor()
    columns = {
        "b": "BOOLEAN", "i": "INT", "l": "BIGINT", "h": "DECIMAL(38, 0)", "d": "DECIMAL(10, 2)", "f": "DOUBLE",
        "s": "STRING", "x": "BYTES", "day": "DATE", "t": "TIME", "ts": "TIMESTAMP(6)", "lt": "TIMESTAMP_LTZ(6)",
        "a": "ARRAY<STRING>", "m": "MAP<STRING, INT>", "r": "ROW<x INT, y STRING>", "n": "INT",
    }  # fmt: skip
    cursor.execute("CREATE TABLE v (" + ", ".join(f"{name} {kind}" for name, kind in columns.items()) + ")")
    east = timezone(timedelta(hours=2))
    values: dict[str, Any] = {
        "b": True, "i": 1, "l": 2**40, "h": 2**70, "d": Decimal("-1.25"), "f": 0.1, "s": "it's", "x": b"\0'\\",
        "day": date(2026, 1, 31), "t": time(1, 2, 3), "ts": datetime(2026, 1, 31, 1, 2, 3, 4),
        "lt": datetime(2026, 1, 31, 1, tzinfo=east), "a": [], "m": [("k", 1)], "r": {"x": 1, "y": None}, "n": None,
    }  # fmt: skip
    text = f"INSERT INTO v VALUES ({', '.join(':' + name for name in columns)})"
    cursor.executemany(text, [values, dict.fromkeys(columns)])
    cursor.execute(text, values | {"i": 2})
    first, second, third = cursor.execute("SELECT * FROM v ORDER BY i NULLS LAST").fetchall()
    assert dict(zip(columns, first, strict=True)) == values
    assert dict(zip(columns, second, strict=True)) == values | {"i": 2}
    assert set(third) == {None}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": 1, "s": "a"}, {"id": 2}], ":s has no value in row 2 of 2"),
        ([{"id": 1, "s": "a"}, {"id": 2, "s": 3}], ":s has values of different types: number, str"),
        ([{"id": 1, "s": date(2026, 1, 31)}, {"id": 1, "s": datetime(2026, 1, 31)}], "date, datetime without a zone"),
        ([{"id": 1, "s": "a"}, {"id": None, "s": "b"}], "null"),
        ([{"id": "1", "s": "a"}], "cannot write column 'id'"),
    ],
)
def test_many_rows_are_written_all_or_none(
    connection: mg.dbapi.Connection, rows: list[dict[str, Any]], words: str
) -> None:
    cursor = connection.cursor()
    with pytest.raises(mg.dbapi.ProgrammingError, match=words):
        cursor.executemany("INSERT INTO t VALUES (:id, :s)", rows)
    assert cursor.execute("SELECT * FROM t").fetchall() == []


def test_another_statement_runs_once_per_row_of_parameters(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    update = "UPDATE t SET s = :s WHERE id = :id"
    assert cursor.executemany(update, [{"id": 1, "s": "x"}, {"id": 2, "s": "y"}, {"id": 9, "s": "z"}]).rowcount == 2
    assert cursor.execute("SELECT s FROM t ORDER BY id").fetchall() == [("x",), ("y",), ("c",)]
    cursor.executemany("INSERT INTO t SELECT :id, (SELECT max(s) FROM t)", [{"id": 4}, {"id": 5}])
    cursor.executemany("INSERT INTO t VALUES (:id, (SELECT min(s) FROM t))", [{"id": 6}])
    assert cursor.execute("SELECT s FROM t WHERE id > 3 ORDER BY id").fetchall() == [("y",), ("y",), ("c",)]


def test_words_of_sql_are_names_of_parameters(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT :from, CASE WHEN :then THEN :end END, -:in, 1+:value", {
        "from": 1, "then": True, "end": 2, "in": 3, "value": 4,
    })  # fmt: skip
    assert cursor.fetchall() == [(1, 2, -3, 5)]
    cursor.executemany("INSERT INTO t VALUES (:select, :end)", [{"select": 1, "end": "a"}])
    cursor.execute("UPDATE t SET s = :set WHERE id IN (:where)", {"set": "b", "where": 1})
    assert cursor.execute("SELECT * FROM t").fetchall() == [(1, "b")]


def test_numbers_of_numpy_are_values(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor().execute("SELECT :a, :b, :c", {"a": np.int64(1), "b": np.float32(0.5), "c": np.True_})
    assert cursor.fetchall() == [(1, 0.5, True)]


def test_a_rollback_is_refused_only_if_something_changed(connection: mg.dbapi.Connection) -> None:
    connection.commit()
    cursor = connection.cursor()
    cursor.execute("USE shop; SET timezone = 'Europe/Berlin'; SELECT * FROM t; DELETE FROM t WHERE id = 9")
    connection.rollback()
    cursor.execute("INSERT INTO t VALUES (1, 'a'); SELECT 1")
    cursor.executemany("INSERT INTO t VALUES (:id, 'b')", [{"id": 2}, {"id": 3}])
    with pytest.raises(mg.dbapi.NotSupportedError, match="changes of 2 statements stay"):
        connection.rollback()
    connection.rollback()


def test_rows_are_read_in_batches(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor().execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'); SELECT id FROM t")
    cursor.fetchone()
    assert [batch.num_rows for batch in cursor.fetch_record_batch(1)] == [1, 1]
    assert cursor.fetchall() == []


def test_an_error_is_of_pep_249_and_has_the_cause(connection: mg.dbapi.Connection) -> None:
    with pytest.raises(mg.dbapi.ProgrammingError) as raised:
        connection.cursor().execute("SELECT * FROM nope")
    assert isinstance(raised.value.__cause__, errors.NotFoundError)


def test_positions_and_rollback_and_closed_connections_are_refused(connection: mg.dbapi.Connection) -> None:
    with pytest.raises(mg.dbapi.ProgrammingError, match=":name"):
        connection.cursor().execute("SELECT * FROM t WHERE id = ?", (1,))
    assert connection.cursor().execute("SELECT 1 AS n", ()).fetchall() == [(1,)]  # type: ignore[arg-type]
    with pytest.raises(mg.dbapi.NotSupportedError, match="one commit"):
        connection.rollback()
    connection.close()
    with pytest.raises(mg.dbapi.InterfaceError, match="closed"):
        connection.cursor()


def test_descriptions_have_the_type_codes_of_pep_249(connection: mg.dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT id, s, 1.5, DATE '2026-01-31' AS d, X'00', true FROM t")
    assert cursor.description is not None
    api = mg.dbapi
    codes = [column[1] for column in cursor.description]
    kinds = (api.NUMBER, api.STRING, api.NUMBER, api.DATETIME, api.BINARY, api.NUMBER)
    assert all(code == kind for code, kind in zip(codes, kinds, strict=True))
    assert codes[0] != api.STRING
    assert cursor.description[0][0] == "id"
    assert cursor.fetchall() == []
    assert cursor.execute("DELETE FROM t WHERE id = 99").rowcount == 0
    cursor.close()
    with pytest.raises(connection.InterfaceError, match="closed"):
        cursor.execute("SELECT 1")


def test_pandas_reads_through_a_connection(connection: mg.dbapi.Connection) -> None:
    pandas = pytest.importorskip("pandas")
    connection.cursor().execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    frame = pandas.read_sql("SELECT * FROM t WHERE id > :least ORDER BY id", connection, params={"least": 1})
    assert frame.to_dict("list") == {"id": [2], "s": ["b"]}
