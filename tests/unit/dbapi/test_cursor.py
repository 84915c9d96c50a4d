"""PEP 249: connections and cursors."""

from __future__ import annotations

from pathlib import Path

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


def test_an_error_is_of_pep_249_and_has_the_cause(connection: mg.dbapi.Connection) -> None:
    with pytest.raises(mg.dbapi.ProgrammingError) as raised:
        connection.cursor().execute("SELECT * FROM nope")
    assert isinstance(raised.value.__cause__, errors.NotFoundError)


def test_positions_and_rollback_and_closed_connections_are_refused(connection: mg.dbapi.Connection) -> None:
    with pytest.raises(mg.dbapi.ProgrammingError, match=":name"):
        connection.cursor().execute("SELECT * FROM t WHERE id = ?", (1,))
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
