"""Sessions: state, scripts, parameters, errors with their places, counts, and what reaches the scans."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.edit import matching
from merganser.errors import AlreadyExistsError, InvalidInputError, NotFoundError, SqlSyntaxError, UnsupportedError
from merganser.sql import rows
from merganser.sql.embedded import setting_of
from merganser.sql.parse import parse
from merganser.sql.query import bind, duck
from merganser.sql.query.bound import Reference
from merganser.sql.result import Result
from merganser.sql.session import Session
from merganser.sql.sources import Sources
from merganser.sql.statements import Query, Statement


@pytest.fixture
def session(tmp_path: Path) -> Session:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    made = catalog.session()
    made.sql(
        "CREATE TABLE orders (id BIGINT, city STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');"
        "INSERT INTO orders VALUES (1, 'Oslo', 10), (2, 'Rome', 20), (3, NULL, NULL)"
    )
    return made


def _references(session: Session, text: str) -> list[tuple[list[str], str, int | None]]:
    (statement,) = parse(text)
    assert isinstance(statement, Query)
    bound = bind(statement.tree, Sources(session.state).source, setting_of(session.state))
    return [(r.columns, str(r.where or ""), r.limit) for r in bound.references]


def test_columns_filters_and_limits_reach_the_scan(session: Session) -> None:
    assert _references(session, "SELECT city FROM orders WHERE id = 7 AND upper(city) = 'X'") == [
        (["id", "city"], "id = 7 AND upper(city) = 'X'", None)
    ]
    assert _references(session, "SELECT id FROM orders LIMIT 2") == [(["id"], "", 2)]
    assert _references(session, "SELECT count(*) FROM orders LIMIT 2") == [([], "", None)]
    joined = "SELECT a.id FROM orders a LEFT JOIN orders b ON a.id = b.amount WHERE a.id > 1 AND b.city = 'x'"
    assert _references(session, joined) == [(["id"], "id > 1", None), (["city", "amount"], "", None)]
    inner = "SELECT a.id FROM orders a JOIN orders b ON a.id = b.amount AND b.city = 'x'"
    assert _references(session, inner) == [(["id"], "", None), (["city", "amount"], "city = 'x'", None)]
    nested = "SELECT id FROM (SELECT * FROM orders WHERE amount > 5) WHERE id = 1"
    assert _references(session, nested)[0][1] == "amount > 5 AND id = 1"
    grouped = "SELECT n FROM (SELECT id, count(*) AS n FROM orders GROUP BY id) WHERE id = 1"
    assert _references(session, grouped)[0][1] == ""
    limited = "SELECT * FROM (SELECT id FROM orders WHERE amount > 5 LIMIT 3) WHERE id = 1 LIMIT 1"
    assert _references(session, limited)[0][1:] == ("amount > 5", 3)
    outer = "SELECT * FROM (SELECT b.id FROM orders a LEFT JOIN orders b ON a.id = b.amount) WHERE id = 1"
    assert [where for _, where, _ in _references(session, outer)] == ["", ""]


def test_parameters_keep_their_types(session: Session) -> None:
    given = {
        "t": "it's; DROP TABLE orders --", "n": -5, "big": 2**40, "d": 1.5, "m": Decimal("1.50"), "b": True, "x": None,
        "day": date(2026, 1, 31), "at": datetime(2026, 1, 31, 10), "raw": b"\x00'", "list": [1, 2],
    }  # fmt: skip
    names = ", ".join(f":{name} AS {name}" for name in given)
    rows = session.sql(f"SELECT {names}", parameters=given)
    assert rows.to_pylist() == [given]
    assert rows.schema.field("m").type == pa.decimal128(3, 2)
    with pytest.raises(SqlSyntaxError, match="line 2, column 12: a parameter has a name: write :name"):
        session.sql("INSERT INTO orders\nVALUES (1, ?, ?)")
    with pytest.raises(SqlSyntaxError, match="no value was given for the parameter :nothing"):
        session.sql("SELECT :nothing", parameters=given)


def test_parameters_have_names(session: Session) -> None:
    for given in ([1], (1,), "x"):
        with pytest.raises(
            InvalidInputError, match=r"cannot take the parameters: they are a .*Write :name in the text"
        ):
            session.sql("SELECT 1", parameters=given)  # type: ignore[arg-type]
    assert session.sql("SELECT 1 AS n", parameters={}).to_pylist() == [{"n": 1}]


def test_times_of_day_of_several_precisions_compare(session: Session) -> None:
    session.sql("CREATE TABLE times (a TIME, b TIME(3)); INSERT INTO times VALUES (TIME '03:00:00', TIME '03:00:00.5')")
    for where in (
        "a = TIME '03:00:00'", "a < b", "a IN (TIME '03:00:00')", "CAST('03:00:00.7' AS TIME(0)) = a",
        "CAST(b AS TIME(0)) = a", "CAST(b AS TIME(1)) = b",
    ):  # fmt: skip
        assert session.sql(f"SELECT {where} AS x FROM times").to_pylist() == [{"x": True}], where
        assert session.sql(f"SELECT count(*) AS n FROM times WHERE {where}").to_pylist() == [{"n": 1}], where
        assert session.state.catalog.table("default.times").read(where=where).count() == 1, where


def test_comments_inside_of_columns_are_shown_and_come_back(session: Session) -> None:
    inner = "y ARRAY<ROW<z INT COMMENT 'in'> NOT NULL>, `a b` MAP<STRING, INT>"
    inner = f"ROW<x INT NOT NULL COMMENT 'it''s', {inner}> NOT NULL"
    session.sql(f"CREATE TABLE c (id INT, r {inner} COMMENT 'out')")
    text = session.sql("SHOW CREATE TABLE c").to_pylist()[0]["createtab_stmt"]
    assert inner in text
    before = session.state.catalog.table("default.c").schema
    session.sql(f"DROP TABLE c; {text}")
    assert session.state.catalog.table("default.c").schema.fields == before.fields


def test_a_limit_of_rows_is_checked_when_it_is_set(session: Session) -> None:
    for value in ("-1", "x", "1.5"):
        with pytest.raises(InvalidInputError, match=r"cannot set 'sql\.max-rows' to .* Give a whole number\."):
            session.sql(f"SET 'sql.max-rows' = '{value}'")


def test_the_name_of_a_table_comes_before_a_column_of_that_name(session: Session) -> None:
    session.sql("CREATE TABLE k (id INT, v INT, t ROW<x INT>, PRIMARY KEY (id) NOT ENFORCED)")
    session.sql("INSERT INTO k VALUES (1, 1, named_struct('x', 1)); UPDATE k AS t SET t.v = 6, t.x = 2 WHERE t.id = 1")
    merge = "MERGE INTO k AS t USING (VALUES (1, 7)) AS s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.v = "
    session.sql(f"{merge} t.v + s.v")
    session.sql("UPDATE k AS t SET t.t.x = t.v + 1")
    assert session.sql("SELECT v, t.t.x AS x FROM k AS t").to_pylist() == [{"v": 13, "x": 14}]


def test_the_sentences_of_an_error_of_several_statements_are_apart(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.run

    def failing(self: Session, statement: Statement) -> Result:
        if "id" in statement.text:
            raise InvalidInputError("cannot run the query: words of another engine")
        return run(self, statement)

    monkeypatch.setattr(Session, "run", failing)
    with pytest.raises(InvalidInputError, match=r"^statement 2 of 2: .* of another engine\. The statements before it"):
        session.sql("SELECT 1; SELECT id FROM orders")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM :p", "SELECT * FROM default.:p", "SELECT o.:p FROM orders o", "SELECT id AS :p FROM orders",
        "SELECT id :p FROM orders", "SELECT * FROM orders :p",
        "WITH :p AS (SELECT 1) SELECT 1", "SELECT struct(1 AS :p)",
        "SELECT * FROM orders JOIN orders o USING (:p)", "SELECT * FROM (SELECT 1) AS q(:p)",
        "SELECT named_struct('id', 1).:p",
        "SELECT * EXCEPT (:p) FROM orders", "SELECT sum(id) OVER :p FROM orders",
        "SELECT extract(:p FROM current_date())",
        "DELETE FROM orders WHERE orders.:p = 1", "UPDATE orders SET amount = orders.:p",
        "MERGE INTO orders USING :p AS s ON orders.id = s.id WHEN MATCHED THEN DELETE",
        "INSERT INTO :p VALUES (1, 'a', 2)",
        "UPDATE orders SET :p = 1",
    ],
)  # fmt: skip
def test_a_parameter_is_never_a_name(session: Session, text: str) -> None:
    with pytest.raises(SqlSyntaxError) as error:
        session.sql(text, {"p": "id"})
    assert f"column {text.index(':p') + 1}:" in error.value.message
    assert session.sql("SELECT :p AS p, * FROM orders WHERE city LIKE :p LIMIT :n", {"p": "O%", "n": 1}).num_rows == 1


def test_a_value_that_does_not_fit_names_the_column(session: Session) -> None:
    for text, words in {
        "INSERT INTO orders VALUES (4, 'x', 3000000000)": r"column 'amount': cannot CAST '3000000000' AS INT",
        "INSERT INTO orders SELECT 4, 'x', r FROM (SELECT named_struct('a', 1) AS r)": "column 'amount': cannot store",
    }.items():
        with pytest.raises(InvalidInputError, match=rf"cannot write {words}.*Nothing was written"):
            session.sql(text)
    assert session.sql("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 3}]


def test_counts_and_snapshots_are_told(session: Session) -> None:
    result = session.execute("INSERT INTO orders VALUES (4, 'Bern', 1), (5, 'Bern', 2)")
    assert (result.counts, result.snapshot is not None, result.has_rows) == ({"inserted": 2}, True, False)
    assert session.execute("DELETE FROM orders WHERE id = 99").snapshot is None
    assert session.execute("SELECT 1").has_rows


def test_a_script_tells_which_statement_failed_and_a_syntax_error_runs_none(session: Session) -> None:
    with pytest.raises(NotFoundError, match=r"statement 2 of 3.*nowhere.*The statements before it have run"):
        session.sql("INSERT INTO orders VALUES (9, 'x', 1); SELECT * FROM nowhere; DELETE FROM orders")
    assert session.sql("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 4}]
    with pytest.raises(SqlSyntaxError) as told:
        session.sql("DELETE FROM orders;\n\n  SELEC 1")
    assert (told.value.context["line"], told.value.context["column"]) == (3, 3)
    assert "Did you mean SELECT?" in str(told.value)
    for text, line, column in (("SELECT 'a", 1, 8), ("SELECT 1;\n /* x", 2, 2), ("SELECT `a", 1, 8)):
        with pytest.raises(SqlSyntaxError) as told:
            session.sql(text)
        assert (told.value.context["line"], told.value.context["column"]) == (line, column)


def test_all_references_of_a_statement_read_one_snapshot(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    (statement,) = parse("SELECT a.id FROM orders a JOIN orders b ON a.id = b.id")
    assert isinstance(statement, Query)
    sources = Sources(session.state)
    bound = bind(statement.tree, sources.source, setting_of(session.state))
    first = bound.references[0].source.open(["id"], None, None)
    session.sql("INSERT INTO orders VALUES (7, 'x', 1)")
    second = bound.references[1].source.open(["id"], None, None)
    assert first.snapshot == second.snapshot is not None
    lookup = bound.references[0].source.lookup
    assert lookup is not None
    assert lookup(pa.table({"id": [1, 7]}), ["id"]) is None  # it would read the newest state


_BESIDE = (
    "SELECT (SELECT count(*) FROM orders$ro) AS ro, (SELECT count(*) FROM orders) AS now, "
    "(SELECT count(*) FROM orders$audit_log) AS log, (SELECT count(*) FROM orders$snapshots) AS snapshots, "
    "(SELECT sum(record_count) FROM orders$files) AS files, (SELECT max(snapshot_id) FROM orders$snapshots) AS newest, "
    "(SELECT sum(record_count) FROM orders$buckets) AS buckets, (SELECT count(*) FROM orders$changelog) AS changes"
)


def test_views_and_system_tables_beside_a_table_read_its_snapshot(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql("ALTER TABLE orders COMPACT")
    before = session.sql(_BESIDE).to_pylist()
    assert [*before[0].values()] == [3, 3, 3, 2, 3, 2, 3, 3]
    scan, writer, given = Sources.scan, mg.catalog(session.state.catalog.warehouse).session(), iter(range(10, 30))

    def committed_before(self: Sources, *arguments: Any) -> Any:
        found = scan(self, *arguments)
        with monkeypatch.context() as patch:
            patch.setattr(Sources, "scan", scan)
            writer.sql(f"INSERT INTO orders VALUES ({next(given)}, 'x', 1); ALTER TABLE orders COMPACT")
        return found

    monkeypatch.setattr(Sources, "scan", committed_before)
    assert session.sql(_BESIDE).to_pylist() == before
    assert next(given) == 18


def test_limits_of_rows_and_time(session: Session) -> None:
    session.sql("SET sql.max-rows = 2")
    with pytest.raises(InvalidInputError, match=r"more than 2 rows, the limit of 'sql.max-rows'"):
        session.sql("SELECT * FROM orders")
    session.sql("RESET; SET sql.timeout = '300 ms'")
    with pytest.raises(InvalidInputError, match=r"stopped after 0.3 s"):
        session.sql("SELECT count(*) FROM range(100000000) a, range(1000) b")


def test_a_table_of_a_query_appears_with_its_rows(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    seen: list[list[str]] = []

    def killed(*given: Any) -> None:
        rows.insert_into(*given)
        seen.append(session.sql("SHOW TABLES")["tableName"].to_pylist())
        raise Killed

    text = "CREATE TABLE IF NOT EXISTS copy AS SELECT * FROM orders"
    with monkeypatch.context() as patched:
        patched.setattr("merganser.sql.define.insert_into", killed)
        with pytest.raises(Killed):
            session.sql(text)
    assert seen == [["orders"]]
    assert session.sql("SHOW TABLES")["tableName"].to_pylist() == ["orders"]
    assert session.execute(text).counts == {"inserted": 3}
    assert session.execute(text).snapshot is None
    assert session.sql("SELECT sum(id) AS n FROM copy").to_pylist() == [{"n": 6}]
    with pytest.raises(AlreadyExistsError, match="already exists"):
        session.sql("CREATE TABLE copy AS SELECT 1 AS n")
    with pytest.raises(InvalidInputError):
        session.sql("CREATE TABLE wrong AS SELECT 1 DIV (id - 2) AS n FROM orders")
    session.sql("DROP TABLE orders; DROP TABLE copy; DROP DATABASE default")  # what was left is no table


def test_tags_are_renamed_and_replaced(session: Session) -> None:
    table = session.state.table(("orders",))
    table.tags.create("a", retain="1 d")
    session.sql("INSERT INTO orders VALUES (8, 'x', 1)")
    table.tags.rename("a", "b")
    (tag,) = table.tags.list()
    assert (tag.name, tag.snapshot.id, tag.time_retained is not None) == ("b", 1, True)
    table.tags.replace("b")
    (tag,) = table.tags.list()
    assert (tag.name, tag.snapshot.id, tag.time_retained) == ("b", 2, None)
    with pytest.raises(NotFoundError):
        table.tags.rename("nothing", "c")


def test_wrong_statements_change_nothing(session: Session) -> None:
    for text, word in {
        "INSERT INTO orders VALUES (1, 'a')": "gives 2 columns",
        "INSERT INTO orders (id, idd) VALUES (1, 2)": "no column 'idd'",
        "INSERT INTO orders (id, id) VALUES (1, 2)": "named twice",
        "INSERT INTO orders SELECT 'x', 'y', 1": "id",
        "UPDATE orders SET amount = 1, amount = 2": "twice",
        "DELETE FROM orders WHERE amount": "BOOLEAN|condition",
        "SELECT id FROM orders GROUP BY city": "GROUP BY",
        "SELECT city FROM orders WHERE sum(amount) > 1": "aggregates",
        "SELECT id FROM orders, orders": "two tables",
        "SELECT id FROM orders a JOIN orders b ON a.id = b.id": "ambiguous",
        "ALTER TABLE orders ADD COLUMN amount INT": "exist",
    }.items():
        with pytest.raises(InvalidInputError, match=word):
            session.sql(text)
    assert session.sql("SELECT max(snapshot_id) AS n FROM orders$snapshots").to_pylist() == [{"n": 1}]


def test_whole_keys_are_looked_up(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = mg.Table.lookup

    def lookup(self: mg.Table, keys: pa.Table, **how: object) -> pa.Table:
        asked.append(keys.num_rows)
        return real(self, keys, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(mg.Table, "lookup", lookup)
    assert session.sql("SELECT city FROM orders WHERE id = 2").to_pylist() == [{"city": "Rome"}]
    assert session.sql("SELECT id FROM orders WHERE id IN (1, 3, 9) AND amount IS NULL").to_pylist() == [{"id": 3}]
    assert session.sql("SELECT count(*) AS n FROM orders WHERE id IN (1, 2) AND id = 2").to_pylist() == [{"n": 1}]
    assert session.sql("SELECT city FROM orders VERSION AS OF 1 WHERE 2 = id").to_pylist() == [{"city": "Rome"}]
    assert asked == [1, 3, 2, 1]
    assert session.sql("SELECT id FROM orders WHERE id = 1.5").to_pylist() == []
    assert session.sql("SELECT id FROM orders WHERE id = 1 OR id = 2 ORDER BY id").num_rows == 2
    session.sql("CREATE TABLE parts (id INT, dt STRING, n INT, PRIMARY KEY (id, dt) NOT ENFORCED) PARTITIONED BY (dt)")
    session.sql("INSERT INTO parts VALUES (1, 'a', 1), (1, 'b', 2), (2, 'a', 3)")
    rows = session.sql("SELECT n FROM parts WHERE id IN (1, 2) AND dt IN ('a', 'b') ORDER BY n").to_pylist()
    assert rows == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize(
    "where", ["", " WHERE id IN (1, 2, 3)", " WHERE id IN (1, 2, 3, 9) AND upper(city) IS NULL OR id < 3"]
)
def test_a_limit_holds_beside_lookups_and_other_clauses(session: Session, where: str) -> None:
    chosen = f"SELECT id FROM orders{where}"
    for limit, more, kept in [
        (0, "", 0),
        (1, "", 1),
        (2, "", 2),
        (9, "", 3),
        (2, "OFFSET 2", 1),
        (1, "OFFSET 1", 1),
        (0, "OFFSET 1", 0),
    ]:
        assert session.sql(f"{chosen} LIMIT {limit} {more}").num_rows == kept
        count = f"SELECT count(*) AS n FROM ({chosen} LIMIT {limit} {more})"
        assert session.sql(count).to_pylist() == [{"n": kept}]
    assert session.sql(f"{chosen} ORDER BY id DESC LIMIT 1").to_pylist() == [{"id": 3}]
    assert session.sql(f"SELECT count(*) AS n FROM orders{where} LIMIT 1").to_pylist() == [{"n": 3}]
    assert session.sql(f"SELECT max(id) OVER () AS n FROM orders{where} LIMIT 1").to_pylist() == [{"n": 3}]
    assert session.sql(f"SELECT DISTINCT amount > 0 FROM orders{where} LIMIT 2").num_rows == 2
    assert session.sql(f"({chosen} LIMIT 1) UNION ALL {chosen}").num_rows == 4
    assert session.sql(f"{chosen} UNION ALL {chosen} LIMIT 5").num_rows == 5
    session.sql(f"CREATE TABLE kept AS {chosen} LIMIT 1; INSERT INTO kept {chosen} LIMIT 1")
    assert session.sql("SELECT * FROM kept").num_rows == 2


def test_what_duckdb_would_compute_otherwise_is_refused(session: Session) -> None:
    with pytest.raises(UnsupportedError, match="in this process"):
        session.sql("SELECT * FROM orders PIVOT (sum(amount) FOR city IN ('Oslo', 'Rome'))")
    with pytest.raises(InvalidInputError, match="IS NULL"):
        session.sql("SELECT id FROM orders WHERE (id, amount) IN ((1, NULL))")
    for text in (
        "CREATE TABLE gaps AS SELECT DATE '2026-01-02' - DATE '2026-01-01' AS gap",
        "CREATE TABLE gaps AS SELECT NULL gap",
    ):
        with pytest.raises(UnsupportedError, match=r"'gap' of the query is (INTERVAL DAY|NULL).*CAST it"):
            session.sql(text)
    rows = session.sql("SELECT array_append(CAST(NULL AS ARRAY<INT>), 1) AS a, array_prepend(array(2), 1) AS b")
    assert rows.to_pylist() == [{"a": None, "b": [1, 2]}]


def test_options_of_the_session_hold_for_lookups(session: Session) -> None:
    session.sql("UPDATE orders SET city = 'Bern' WHERE id = 1; SET spark.paimon.scan.snapshot-id = 1")
    assert session.sql("SELECT city FROM orders WHERE id = 1").to_pylist() == [{"city": "Oslo"}]
    session.sql("RESET")
    assert session.sql("SELECT city FROM orders WHERE id = 1").to_pylist() == [{"city": "Bern"}]


@pytest.fixture
def log(session: Session) -> Session:
    """An append table with equal rows, nulls and nested values."""
    session.sql(
        "CREATE TABLE log (id INT, s STRING, n INT, r ROW<x INT>, list ARRAY<INT>, at TIMESTAMP(9));"
        "INSERT INTO log (id, s, r, list) VALUES (1, 'a', named_struct('x', 5), array(6)), (1, 'a', NULL, NULL),"
        "(2, NULL, NULL, NULL), (NULL, NULL, NULL, NULL), (3, 'c', named_struct('x', 8), array(9))"
    )
    return session


def test_rows_without_a_key_are_changed_by_subqueries(log: Session) -> None:
    orders = "SELECT id FROM orders WHERE orders.id < 3"
    changed = log.execute(
        f"UPDATE log SET n = (SELECT max(amount) FROM orders), s = concat(s, '!') WHERE id IN ({orders})"
    )
    assert changed.counts == {"updated": 3}
    rows = log.sql("SELECT id, s, n FROM log ORDER BY id, s").to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (None, None, None), (1, "a!", 20), (1, "a!", 20), (2, None, 20), (3, "c", None),
    ]  # fmt: skip
    deleted = log.execute("DELETE FROM log WHERE NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = log.id)")
    assert deleted.counts == {"deleted": 1}
    assert log.execute("DELETE FROM log WHERE s IS NULL AND 1 IN (SELECT 1)").counts == {"deleted": 1}
    assert log.execute("DELETE FROM log WHERE 1 IN (SELECT id FROM orders)").counts == {"deleted": 3}


@pytest.mark.parametrize(("condition", "deleted"), [("r.x IN (SELECT 8)", 1), ("at IS NULL AND 1 IN (SELECT 1)", 5)])
def test_a_subquery_beside_values_that_do_not_compare_finds_rows_without_a_key(
    log: Session, condition: str, deleted: int
) -> None:
    assert log.execute(f"DELETE FROM log WHERE {condition}").counts == {"deleted": deleted}
    assert log.sql("SELECT count(*) AS n FROM log").to_pylist() == [{"n": 5 - deleted}]


def test_columns_of_changes_may_be_named_with_the_database(log: Session) -> None:
    update = "UPDATE default.log SET n = default.log.r.x + log.id WHERE default.log.id = 3 AND log.r.x = 8"
    assert log.execute(update).counts == {"updated": 1}
    assert log.sql("SELECT n FROM log WHERE default.log.id = 3").to_pylist() == [{"n": 11}]
    assert log.execute("DELETE FROM default.log WHERE `default`.log.n = 11").counts == {"deleted": 1}


def test_elements_are_taken_of_calls_and_of_columns_with_any_name(log: Session) -> None:
    found = log.sql(
        "SELECT array(7, 8)[1], list[0] AS a, ARRAY[1, 2][0] AS b, map('k', 3)['k'] AS c FROM log WHERE id = 3"
    )
    assert found.to_pylist() == [{"array(7, 8)[1]": 8, "a": 9, "b": 1, "c": 3}]


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
def test_nested_values_and_times_are_assigned(session: Session, key: str) -> None:
    session.sql(
        "CREATE TABLE n (id INT, a ARRAY<STRING>, m MAP<STRING, INT>, r ROW<x INT, y ARRAY<ROW<z INT>>>, t TIME(3)"
        f"{key});"
        "INSERT INTO n (id, t) VALUES (1, :at), (2, NULL)",
        {"at": time(1, 2, 3, 4000)},
    )
    row = "named_struct('x', id, 'y', array())"
    update = f"UPDATE n SET a = array(), m = map('k', id), r = {row}, t = :to WHERE t = :at"
    assert session.execute(update, {"at": time(1, 2, 3, 4000), "to": time(5)}).counts == {"updated": 1}
    session.sql("UPDATE n SET a = :a WHERE id = 2", {"a": ["x", None]})
    assert session.sql("SELECT * FROM n ORDER BY id").to_pylist() == [
        {"id": 1, "a": [], "m": [("k", 1)], "r": {"x": 1, "y": []}, "t": time(5)},
        {"id": 2, "a": ["x", None], "m": None, "r": None, "t": None},
    ]


def test_rows_that_are_equal_to_a_subquery_get_one_value(log: Session) -> None:
    log.sql("UPDATE log SET s = NULL, n = id + 7 WHERE id IN (SELECT 1)")
    rows = log.sql("SELECT s, n FROM log WHERE id = 1").to_pylist()
    assert len(rows) == 2
    assert rows[0] == rows[1]
    assert rows[0] == {"s": None, "n": 8}
    log.sql("UPDATE log SET n = (SELECT max(o.amount) FROM orders AS o WHERE o.id = log.id), list = array(id)")
    assert log.sql("SELECT id, n, list FROM log WHERE id = 2").to_pylist() == [{"id": 2, "n": 20, "list": [2]}]


def test_a_time_beyond_milliseconds_is_refused(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="a TIME ends at milliseconds"):
        session.sql("SELECT :at AS t", {"at": time(1, 2, 3, 4)})


@pytest.mark.parametrize(("zone", "hour", "minute"), [("+02:00", 5, 4), ("-03:30", 23, 34), ("Europe/Berlin", 4, 4)])
def test_a_session_computes_in_its_time_zone(session: Session, zone: str, hour: int, minute: int) -> None:
    session.sql("CREATE TABLE z (t TIMESTAMP_LTZ(3))")
    session.sql("INSERT INTO z VALUES (TIMESTAMP_LTZ '2026-01-02 03:04:05Z')")
    session.sql(f"SET timezone = '{zone}'")
    found = session.sql("SELECT hour(t) AS h, minute(t) AS m FROM z WHERE t < TIMESTAMP_LTZ '2026-01-03 00:00:00Z'")
    assert found.to_pylist() == [{"h": hour, "m": minute}]


def test_the_report_of_an_erasure_is_a_row_for_each_line(session: Session) -> None:
    session.sql("CREATE TABLE erased (id INT, who STRING, PRIMARY KEY (id) NOT ENFORCED)")
    session.sql("INSERT INTO erased VALUES (1, 'a'), (2, 'b')")
    found = session.sql("CALL sys.erase('default.erased', 'id = 1', true)")
    assert found.column("is_complete").to_pylist() == [True] * found.num_rows
    lines = found.column("report").to_pylist()
    assert lines[0] == "erased 1 row of default.erased where id = 1"
    assert lines[-1] == "complete   no file of the table holds an erased row"
    assert not any("\n" in line for line in lines)


def test_values_that_are_only_null_take_the_types_of_columns(session: Session) -> None:
    session.sql("CREATE TABLE nested (id INT, a ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, l ARRAY<STRING>>)")
    session.sql("INSERT INTO nested VALUES (1, array(NULL), map('k', NULL), named_struct('x', NULL, 'l', array(NULL)))")
    session.sql("INSERT INTO nested SELECT 2, array(), map(), NULL")
    session.sql("INSERT INTO nested SELECT 3, array(NULL, NULL), NULL, named_struct('x', 1, 'l', array())")
    assert session.sql("SELECT * FROM nested ORDER BY id").to_pylist() == [
        {"id": 1, "a": [None], "m": [("k", None)], "r": {"x": None, "l": [None]}},
        {"id": 2, "a": [], "m": [], "r": None},
        {"id": 3, "a": [None, None], "m": None, "r": {"x": 1, "l": []}},
    ]
    rows = session.sql(
        "SELECT array() AS a, map() AS m, array(array(NULL, NULL), array()) AS b, map('k', array(NULL)) AS n"
    )
    assert rows.to_pylist() == [{"a": [], "m": [], "b": [[None, None], []], "n": [("k", [None])]}]
    assert pa.types.is_null(rows["a"].type.value_type)


def test_a_limit_of_time_keeps_all_digits_of_times(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.sql("CREATE TABLE fine (id INT, at TIMESTAMP(9), r ROW<at TIMESTAMP(9)>)")
    at = pa.array([1_767_225_600_123_456_789], pa.timestamp("ns"))
    rows = pa.table({"id": pa.array([1], pa.int32()), "at": at, "r": pa.StructArray.from_arrays([at], ["at"])})
    session.state.table(("fine",)).write(rows)
    session.sql("SET 'sql.timeout' = '60 s'")
    assert session.sql("SELECT at FROM fine")["at"].cast(pa.int64()).to_pylist() == at.cast(pa.int64()).to_pylist()
    assert session.sql("SELECT r FROM fine")["r"].combine_chunks().field(0).cast(pa.int64()) == at.cast(pa.int64())

    duck_rows = duck.rows_of

    def slow(reference: Reference) -> object:
        sleep(0.01)
        return duck_rows(reference)

    monkeypatch.setattr(duck, "rows_of", slow)
    session.sql("SET 'sql.timeout' = '1 ms'")
    with pytest.raises(InvalidInputError, match=r"stopped after 0\.001 s, the limit of 'sql\.timeout'"):
        session.sql("SELECT at FROM fine")


@pytest.mark.parametrize("engine", ["aggregation", "partial-update"])
@pytest.mark.parametrize("key", ["id", "id, part"])
@pytest.mark.parametrize("more", ["'bucket' = '1'", "'bucket' = '-1'", "'deletion-vectors.enabled' = 'true'"])
def test_a_subquery_deletes_where_a_condition_does(session: Session, engine: str, key: str, more: str) -> None:
    session.sql(
        f"CREATE TABLE sums (id INT, part STRING, v INT, PRIMARY KEY ({key}) NOT ENFORCED) "
        f"WITH ('merge-engine' = '{engine}', 'write-only' = 'true', {more}); "
        "INSERT INTO sums VALUES (1, 'a', 1), (2, 'b', 2), (3, 'a', 3), (4, 'b', 4); "
        "INSERT INTO sums VALUES (1, 'a', 1)"
    )
    result = session.execute(
        "DELETE FROM sums s WHERE id IN (SELECT id + 1 FROM orders) OR (part = 'b' AND v > (SELECT 3))"
    )
    assert result.counts == {"deleted": 3}
    assert session.sql("SELECT id FROM sums").to_pylist() == [{"id": 1}]
    assert session.execute("DELETE FROM sums WHERE id IN (SELECT 9)").snapshot is None
    session.sql("INSERT INTO sums VALUES (2, 'b', 5); ALTER TABLE sums COMPACT")
    assert session.sql("SELECT v FROM sums WHERE id = 2").to_pylist() == [{"v": 5}]


@pytest.mark.parametrize(
    "options", ["'merge-engine' = 'first-row'", "'merge-engine' = 'aggregation', 'changelog-producer' = 'lookup'"]
)
def test_a_subquery_is_refused_as_a_condition_is(session: Session, options: str) -> None:
    session.sql(f"CREATE TABLE kept (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1', {options})")
    for statement in ("DELETE FROM kept", "UPDATE kept SET v = 2"):
        refused = []
        for condition in ("id = 1", "id IN (SELECT 1)"):
            with pytest.raises(InvalidInputError) as error:
                session.sql(f"{statement} WHERE {condition}")
            refused.append(error.value.message.partition("\n")[0])
        assert refused[0] == refused[1]


def test_a_delete_by_a_query_names_no_more_keys_than_it_can_look_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql(
        "CREATE TABLE sums (a INT, b INT, v INT, PRIMARY KEY (a, b) NOT ENFORCED) "
        "WITH ('merge-engine' = 'aggregation', 'bucket' = '1'); INSERT INTO sums SELECT id % 4, id, 1 FROM range(40)"
    )
    monkeypatch.setattr(matching, "_LISTS_MAX", 3)
    with pytest.raises(
        InvalidInputError, match=r"keys with 4 different values of a, and at most 3 .* Nothing was written"
    ):
        session.sql("DELETE FROM sums WHERE b IN (SELECT id FROM range(30))")
    assert session.execute("DELETE FROM sums WHERE a < (SELECT 3) AND b < 30").counts == {"deleted": 23}
    assert session.sql("SELECT count(*) AS n FROM sums").to_pylist() == [{"n": 17}]


def test_a_delete_by_a_query_takes_two_zeros_for_two_keys(session: Session) -> None:
    session.sql(
        "CREATE TABLE sums (k DOUBLE, j INT, v INT, PRIMARY KEY (k, j) NOT ENFORCED) "
        "WITH ('merge-engine' = 'aggregation', 'bucket' = '1'); "
        "INSERT INTO sums VALUES (CAST('NaN' AS DOUBLE), 1, 1), (-0.0D, 1, 2), (0.0D, 1, 3), (1.5D, 1, 4)"
    )
    assert session.execute("DELETE FROM sums WHERE v IN (SELECT 2)").counts == {"deleted": 1}
    assert session.execute("DELETE FROM sums WHERE v = (SELECT 1) OR v = (SELECT 4)").counts == {"deleted": 2}
    assert session.sql("SELECT v FROM sums")["v"].to_pylist() == [3]
    session.sql("INSERT INTO sums VALUES (-0.0D, 1, 2), (-0.0D, 2, 5), (0.0D, 2, 6)")
    assert session.execute("DELETE FROM sums WHERE v IN (SELECT 3) OR v = (SELECT 5)").counts == {"deleted": 2}
    assert sorted(session.sql("SELECT v FROM sums")["v"].to_pylist()) == [2, 6]
    assert session.execute("DELETE FROM sums WHERE k IN (SELECT 0.0D)").counts == {"deleted": 2}


def test_an_overflow_shows_the_value_as_it_was_given(session: Session) -> None:
    session.sql("CREATE TABLE m (id INT, m DECIMAL(10, 2)); INSERT INTO m VALUES (1, 99999999.99)")
    for statement, value in (
        ("INSERT INTO m VALUES (1, 99999999.999)", "'99999999.999'"),
        ("UPDATE m SET m = m * 10.555", "'1055499999.89445'"),
        ("UPDATE m SET m = CAST(concat(m, '9') AS DECIMAL(9, 2))", "'99999999.999'"),
        ("UPDATE m SET m = 123456789.999D", "'123456789.999'"),
        ("DELETE FROM m WHERE CAST(m + 0.001 AS TINYINT) > 0", "'99999999.991'"),
    ):
        with pytest.raises(InvalidInputError, match=f"cannot CAST {value} AS .* Nothing was written"):
            session.sql(statement)
    with pytest.raises(InvalidInputError, match=r"overflow\. The result has more than the 38 digits of a DECIMAL\.$"):
        session.sql(f"SELECT {'9' * 38} + m FROM (SELECT {'9' * 38} AS m)")
    with pytest.raises(InvalidInputError, match=r'Casting value "999\.999" to type DECIMAL\(5,2\)'):
        session.sql("SELECT CAST(999.999 AS DECIMAL(5, 2))")
    with pytest.raises(InvalidInputError, match="to type TINYINT"):
        session.sql("SELECT CAST(300.7 AS TINYINT)")


def test_a_cast_to_fewer_digits_of_a_second_cuts_in_queries_and_conditions(session: Session) -> None:
    session.sql("CREATE TABLE moments (id INT, at TIMESTAMP(6), z TIMESTAMP_LTZ(6))")
    at = "2026-01-31 10:20:30.123456"
    session.sql(f"INSERT INTO moments VALUES (1, TIMESTAMP_NTZ '{at}', TIMESTAMP_LTZ '{at}')")
    cut = session.sql("SELECT CAST(at AS TIMESTAMP_NTZ(3)) AS a, CAST(at AS TIMESTAMP_NTZ(0)) AS b FROM moments")
    assert cut.to_pylist() == [{"a": datetime(2026, 1, 31, 10, 20, 30, 123000), "b": datetime(2026, 1, 31, 10, 20, 30)}]
    query = "SELECT id FROM moments WHERE CAST({} AS {}(3)) = {} '2026-01-31 10:20:30.123{}'"
    for column, kind in (("at", "TIMESTAMP_NTZ"), ("z", "TIMESTAMP_LTZ")):
        assert session.sql(query.format(column, kind, kind, "")).num_rows == 1
        assert session.sql(query.format(column, kind, kind, "456")).num_rows == 0
    session.sql("UPDATE moments SET at = CAST('1969-12-31 00:00:00.123456' AS TIMESTAMP(2)) WHERE id = 1")
    assert session.sql("SELECT at FROM moments")["at"].to_pylist() == [datetime(1969, 12, 31, 0, 0, 0, 120000)]
    with pytest.raises(InvalidInputError, match=r"cannot cast to TIMESTAMP\(10\): a time has 0 to 9 digits"):
        session.sql("SELECT CAST(at AS TIMESTAMP(10)) FROM moments")
    with pytest.raises(InvalidInputError, match=r"0 to 9 digits of a second\. Nothing was written"):
        session.sql("DELETE FROM moments WHERE CAST(at AS TIMESTAMP(10)) IS NULL")


def test_a_hexadecimal_number_is_a_name(session: Session) -> None:
    with pytest.raises(InvalidInputError, match="there is no column '0x1F'"):
        session.sql("SELECT 0x1F")
    with pytest.raises(InvalidInputError, match="unknown column '0x1F'"):
        session.sql("DELETE FROM orders WHERE id = 0x1F")
    assert session.sql("SELECT X'1F' AS b")["b"].to_pylist() == [b"\x1f"]


def test_a_path_with_a_star_is_refused_with_another_way(session: Session) -> None:
    text = '{"items": [{"id": 7}, {"id": 8}, {}]}'
    for path in ("$.items[*].id", "$.*", "$.items[*]", "$['*']"):
        with pytest.raises(UnsupportedError, match=r"get_json_object with \* in this process: .* from_json.* on Spark"):
            session.sql(f"SELECT get_json_object('{text}', \"{path}\")")
    found = session.sql(f"SELECT from_json('{text}', 'items ARRAY<STRUCT<id: INT>>').items.id AS ids")
    assert found.to_pylist() == [{"ids": [7, 8, None]}]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("SELECT when FROM orders", "Write `when` in backticks if it is a name"),
        ("SELECT id id2 id3 FROM orders", "'id3' cannot stand here behind 'id2'.\n"),
        ("CREATE TABLE log-lines (id INT)", "Write a name with a hyphen in backticks: `log-lines`"),
        ("SELECT * FROM log-lines", "Write a name with a hyphen in backticks: `log-lines`"),
        ("DELETE FROM log-lines", "Write a name with a hyphen in backticks: `log-lines`"),
        ("DELETE FROM log -1", "found '-'.\n"),
    ],
)
def test_a_name_that_needs_backticks_is_told_so(session: Session, text: str, advice: str) -> None:
    with pytest.raises(SqlSyntaxError, match=re.escape(advice)):
        session.sql(text)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            "INSERT OVERWRITE moving VALUES (3, 'a', 1)",
            "Write INSERT OVERWRITE t /*+ OPTIONS('dynamic-partition-overwrite' = 'false') */, without PARTITION, to",
        ),
        (
            "MERGE INTO moving USING moving ON moving.id = moving.id WHEN MATCHED THEN DELETE",
            "Write MERGE INTO ... AS t USING ... AS s.",
        ),
        (
            "MERGE INTO moving t USING (SELECT 1 AS q) s ON t.id = s.q WHEN MATCHED THEN UPDATE SET *",
            "Say which columns get which values, as in UPDATE SET amount = source.value.",
        ),
        (
            "MERGE INTO moving t USING (SELECT 1 AS q) s ON t.id = s.q WHEN MATCHED THEN UPDATE SET n = 1, n = 2",
            "cannot merge into 'default.moving': column 'n' is assigned twice",
        ),
        ("SELECT * FROM sums", "Queries of other columns work. To take the rows back, run CALL sys.rollback("),
    ],
)
def test_advice_is_sql(session: Session, text: str, advice: str) -> None:
    session.sql(
        "CREATE TABLE moving (id INT, dt STRING, n INT, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (dt);"
        "INSERT INTO moving VALUES (1, 'a', 1), (2, 'b', 1);"
        "CREATE TABLE sums (id INT, n TINYINT, o INT, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum');"
        "INSERT INTO sums VALUES (1, 127, 1); INSERT INTO sums VALUES (1, 127, 1)"
    )
    with pytest.raises(InvalidInputError, match=re.escape(advice)):
        session.sql(text)


def test_the_advice_of_overwriting_a_table_whose_keys_move_replaces_it(session: Session) -> None:
    session.sql(
        "CREATE TABLE moving (id INT, dt STRING, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (dt);"
        "INSERT INTO moving VALUES (1, 'a'), (2, 'b');"
        "INSERT OVERWRITE moving /*+ OPTIONS('dynamic-partition-overwrite' = 'false') */ VALUES (3, 'a')"
    )
    assert session.sql("SELECT * FROM moving").to_pylist() == [{"id": 3, "dt": "a"}]


def test_json_of_which_spark_reads_more_is_refused(session: Session) -> None:
    for text in ("{''a'': 1}", '{"a": 1} x', '{"a": 1, "a": null}', '{"a": ["😀"]}'):
        with pytest.raises(UnsupportedError, match=r"in this process: .*Run the statement on Spark"):
            session.sql(f"SELECT json_tuple(s, 'a') FROM VALUES ('{text}') t(s)")
    query = "SELECT rank() OVER (ORDER BY get_json_object(s, '$.a')) FROM VALUES ('{''a'': 1}') t(s)"
    with pytest.raises(UnsupportedError, match=r"^cannot read the JSON text"):
        session.sql(query)


@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(f"id = {n}" for n in range(1, 900)),
        " OR ".join(f"v = {n}" for n in range(1, 900)),
        " AND ".join(f"v + 1 <> {n}" for n in range(100, 900)),
    ],
    ids=["keys", "or", "and"],
)
def test_conditions_may_be_long(session: Session, condition: str) -> None:
    session.sql("CREATE TABLE chains (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED)")
    session.sql("INSERT INTO chains VALUES (1, 1), (2, 2)")
    assert session.sql(f"SELECT id FROM chains WHERE {condition} ORDER BY id")["id"].to_pylist() == [1, 2]
    assert session.execute(f"DELETE FROM chains WHERE id IN (SELECT id FROM chains) AND ({condition})").counts == {
        "deleted": 2
    }


def test_sums_may_be_long_and_what_is_too_deep_is_said(session: Session) -> None:
    assert session.sql(f"SELECT {' + '.join(['1'] * 400)} AS n").to_pylist() == [{"n": 400}]
    parts = " || ".join(["'a'"] * 400)
    assert session.sql(f"SELECT {parts} AS n").to_pylist() == [{"n": "a" * 400}]
    for text in (
        f"SELECT {' + '.join(['1'] * 3000)} AS n",
        "SELECT 1 AS n" + " UNION ALL SELECT 2" * 1500,
        f"SELECT {'(' * 3000}1{')' * 3000} AS n",
    ):
        with pytest.raises(InvalidInputError, match="nested too deeply"):
            session.sql(text)


def test_a_column_and_its_field_are_not_assigned_both(session: Session) -> None:
    session.sql("CREATE TABLE both_set (id INT, r ROW<a INT, b INT>, PRIMARY KEY (id) NOT ENFORCED)")
    for text in ("r = NULL, r.a = 1", "r.a = 1, r = NULL"):
        with pytest.raises(InvalidInputError, match="column 'r' and a field of it are both assigned"):
            session.sql(f"UPDATE both_set SET {text}")
    with pytest.raises(InvalidInputError, match=r"'r\.a', or a part of it, is assigned twice"):
        session.sql("UPDATE both_set SET r.a = 1, r.a = 2")


def test_a_sign_behind_an_exponent_is_an_operator(session: Session) -> None:
    assert session.sql("SELECT 1e2+3 AS a, 2e1-1e0 AS b, 1e-2 AS c, '1e2+3' AS d").to_pylist() == [
        {"a": 103.0, "b": 19.0, "c": 0.01, "d": "1e2+3"}
    ]
    with pytest.raises(InvalidInputError, match="line 1, column 15"):
        session.sql("SELECT 1e2+3, nope")


def test_merge_sets_no_fields_inside_of_columns_and_says_how_to(session: Session) -> None:
    session.sql("CREATE TABLE fields (id INT, r ROW<a INT, b STRING>, PRIMARY KEY (id) NOT ENFORCED)")
    session.sql("INSERT INTO fields VALUES (1, ROW(1, 'x'))")
    with pytest.raises(UnsupportedError, match="MERGE sets whole columns"):
        session.sql("MERGE INTO fields t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET r.a = 7")
    session.sql(
        "MERGE INTO fields t USING (SELECT id, named_struct('a', 7, 'b', r.b) AS r FROM fields) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET r = s.r"
    )
    assert session.sql("SELECT * FROM fields").to_pylist() == [{"id": 1, "r": {"a": 7, "b": "x"}}]


def test_an_update_by_a_query_names_the_column_that_gets_no_value(session: Session) -> None:
    session.sql("CREATE TABLE deep (id INT, o ROW<p ROW<z INT NOT NULL>>, v INT, PRIMARY KEY (id) NOT ENFORCED)")
    session.sql("INSERT INTO deep VALUES (1, named_struct('p', named_struct('z', 1)), 3)")
    for text, message in {
        "UPDATE deep SET v = (SELECT 'x')": r"column 'v' cannot get this value: cannot store 'v' \(STRING\)",
        "UPDATE deep SET o.p.z = 'x'": "cannot CAST 'x' AS INT: 'x' is not a whole number",
        "UPDATE deep SET o.p.z = NULL": "column 'o' has null for its field 'z'",
    }.items():
        with pytest.raises(InvalidInputError, match=message) as caught:
            session.sql(text)
        assert "_new_" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("SELECT * FROM orders /*+ OPTION('scan.snapshot-id' = '1') */", 26),
        ("SELECT * FROM orders AS o /*+ OPTIONS('scan.snapshot-id' = '1') */", 31),
        ("SELECT * FROM orders o /*+ OPTIONS('scan.snapshot-id' = '1') */", 28),
        ("SELECT * FROM orders VERSION AS OF 1 /*+ OPTIONS('scan.snapshot-id' = '2') */", 42),
        ("SELECT * FROM (SELECT 1) /*+ OPTIONS('a' = 'b') */", 30),
        ("SELECT id /*+ OPTIONS('a' = 'b') */ FROM orders", 15),
        ("INSERT INTO orders /*+ OPTION('write-only' = 'true') */ VALUES (4, 'x', 4)", 24),
        ("UPDATE orders /*+ OPTIONS('write-only' = 'true') */ SET amount = 1", 19),
        ("DELETE FROM orders /*+ OPTIONS('write-only' = 'true') */ WHERE id = 1", 24),
        ("WITH a AS (SELECT 1 AS id) DELETE FROM orders /*+ OPTIONS('a' = 'b') */ WHERE id IN (SELECT id FROM a)", 51),
        ("MERGE INTO orders /*+ OPTIONS('a' = 'b') */ t USING orders s ON t.id = s.id WHEN MATCHED THEN DELETE", 23),
    ],
)
def test_a_hint_that_nobody_reads_is_refused(session: Session, text: str, column: int) -> None:
    with pytest.raises(SqlSyntaxError) as raised:
        session.sql(text)
    assert raised.value.context["column"] == column
    assert "OPTIONS" in str(raised.value)
    assert session.sql("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 3}]


def test_hints_of_engines_and_comments_stay(session: Session) -> None:
    assert session.sql("SELECT /*+ BROADCAST(orders) */ '/*+ x */' AS a FROM orders WHERE id = 1").to_pylist() == [
        {"a": "/*+ x */"}
    ]


def test_a_state_is_given_once(session: Session) -> None:
    hint = "/*+ OPTIONS('scan.snapshot-id' = '1') */"
    with pytest.raises(InvalidInputError, match="given twice"):
        session.sql(f"SELECT * FROM orders {hint} VERSION AS OF 1")


def test_system_tables_of_one_snapshot_have_versions(session: Session) -> None:
    session.sql(
        "INSERT INTO orders VALUES (4, 'Bern', 4); CALL sys.create_tag(table => 'orders', tag => 'old', snapshot => 1)"
    )
    for when in ("VERSION AS OF 1", "VERSION AS OF 'old'"):
        found = session.sql(f"SELECT sum(record_count) AS n FROM orders$files {when}")
        assert found.to_pylist() == [{"n": 3}], when
    now = session.sql("SELECT sum(record_count) AS n FROM orders$files TIMESTAMP AS OF '2100-01-01'")
    assert now.to_pylist() == [{"n": 4}]
    with pytest.raises(InvalidInputError, match="does not describe one snapshot"):
        session.sql("SELECT * FROM orders$snapshots VERSION AS OF 1")


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
def test_text_is_assigned_to_other_types_whatever_finds_the_rows(session: Session, key: str) -> None:
    session.sql("SET TIME ZONE 'Europe/Berlin'")
    columns = "id INT, d DATE, v INT, n TIMESTAMP(3), l TIMESTAMP_LTZ(3), x BYTES, r ROW<a INT, s STRING>, tm TIME(3)"
    session.sql(f"CREATE TABLE kinds ({columns}{key})")
    sets = (
        "d = '2026-02-02', v = '7', n = '2026-03-29 02:30:00', l = '2026-07-01 10:00:00', x = 'ab', r.a = '5', "
        "tm = '10:11:12.3456'"
    )
    found = []
    for where in ("id = 1", "id IN (SELECT 1)", "id < 2 AND initcap('a') = 'A'"):
        session.sql(
            "INSERT OVERWRITE kinds SELECT 1, NULL, NULL, NULL, NULL, NULL, named_struct('a', 1, 's', 'x'), NULL"
        )
        session.sql(f"UPDATE kinds SET {sets} WHERE {where}")
        found += session.sql("SELECT * FROM kinds").to_pylist()
    assert found == [found[0]] * 3
    assert found[0]["n"] == datetime(2026, 3, 29, 2, 30)  # clocks in Berlin skip it, and it is no instant
    assert found[0]["l"] == datetime(2026, 7, 1, 8, tzinfo=UTC)
    assert (found[0]["d"], found[0]["v"], found[0]["x"]) == (date(2026, 2, 2), 7, b"ab")
    assert (found[0]["r"], found[0]["tm"]) == ({"a": 5, "s": "x"}, time(10, 11, 12, 345_000))


def test_a_default_is_set_where_a_query_finds_the_rows(session: Session) -> None:
    session.sql("SET TIME ZONE 'Europe/Berlin'")
    columns = (
        "id INT, x BYTES DEFAULT 'ab', n TIMESTAMP(3) DEFAULT '2026-03-29 02:30:00', PRIMARY KEY (id) NOT ENFORCED"
    )
    session.sql(f"CREATE TABLE filled ({columns}); INSERT INTO filled VALUES (1, X'00', NULL)")
    session.sql("UPDATE filled SET x = DEFAULT, n = DEFAULT WHERE id IN (SELECT 1)")
    assert session.sql("SELECT x, n FROM filled").to_pylist() == [{"x": b"ab", "n": datetime(2026, 3, 29, 2, 30)}]


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
def test_changes_by_a_query_say_what_could_not_be_done(session: Session, key: str) -> None:
    session.sql(f"CREATE TABLE plain (id INT, v INT{key}); INSERT INTO plain VALUES (1, 1)")
    with pytest.raises(InvalidInputError, match=r"cannot update .*column 'v' .*cannot store 'v' \(BOOLEAN\)"):
        session.sql("UPDATE plain SET v = true WHERE id IN (SELECT 1)")


@pytest.mark.parametrize(
    "where", ["(id, amount) IN ((1, 10), (2, 21))", "(id, amount) IN (SELECT 1, 10)", "(id, city) IN ((1, 'Oslo'))"]
)
def test_rows_are_compared_with_in(session: Session, where: str) -> None:
    session.sql(f"DELETE FROM orders WHERE {where}")
    assert session.sql("SELECT id FROM orders ORDER BY id").to_pylist() == [{"id": 2}, {"id": 3}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM orders LIMIT -1", "LIMIT takes a number of rows, 0 or more, and not -1"),
        ("SELECT * FROM orders LIMIT id", "LIMIT takes a number of rows, 0 or more, and not id"),
        ("SELECT * FROM orders ORDER BY id LIMIT 1 OFFSET -2", "OFFSET takes a number of rows, 0 or more, and not -2"),
        ("SELECT DATE '2020-13-01'", "'2020-13-01' is no DATE"),
        ("SELECT CAST('25:00:00' AS TIME)", "'25:00:00' is no TIME"),
    ],
)
def test_values_that_are_none_are_said_as_they_were_written(session: Session, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"cannot run the query: {message}"):
        session.sql(text)


@pytest.mark.parametrize("value", [10**37, Decimal("1E+30"), Decimal("-12.50"), Decimal("0.05"), Decimal("1E-38")])
def test_numbers_of_38_digits_are_parameters(session: Session, value: int | Decimal) -> None:
    assert session.sql("SELECT :p AS p", {"p": value})["p"].to_pylist() == [value]


@pytest.mark.parametrize("value", [10**38, Decimal("1E+38"), Decimal("1E-39"), -(10**38)])
def test_numbers_of_more_digits_are_refused(session: Session, value: int | Decimal) -> None:
    with pytest.raises(InvalidInputError, match="parameter 'p' has 39 digits, and a DECIMAL has at most 38"):
        session.sql("SELECT :p AS p", {"p": value})


_WORDS = (
    "from", "select", "where", "by", "having", "limit", "and", "or", "not", "in", "like", "between", "union",
    "intersect", "join", "on", "values", "except", "when", "then", "end", "using", "set", "as", "with", "version",
)  # fmt: skip


@pytest.mark.parametrize("word", _WORDS)
def test_parameters_may_be_called_like_words_of_sql(tmp_path: Path, word: str) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.sql("CREATE DATABASE default")
    catalog.sql("CREATE TABLE t (id INT NOT NULL, s INT, PRIMARY KEY (id) NOT ENFORCED)")
    given = {word: 1}
    assert catalog.sql(f"SELECT :{word} AS a, 2 AS b", given).to_pylist() == [{"a": 1, "b": 2}]
    catalog.sql(f"INSERT INTO t VALUES (:{word}, 5)", given)
    catalog.sql(f"UPDATE t SET s = :{word} WHERE id = :{word} AND s > :{word}", given)
    merge = "MERGE INTO t USING (SELECT :{0} AS k) x ON t.id = x.k AND t.s = :{0} WHEN MATCHED AND t.s = :{0} THEN "
    catalog.sql(merge.format(word) + f"UPDATE SET s = :{word} + :{word}", given)
    query = f"WITH x AS (SELECT :{word} AS v) SELECT id, s FROM t, x WHERE id BETWEEN :{word} AND :{word} LIMIT :{word}"
    assert catalog.sql(query, given).to_pylist() == [{"id": 1, "s": 2}]
    catalog.sql(f"DELETE FROM t WHERE id = :{word}", given)
    assert catalog.sql("SELECT * FROM t").num_rows == 0


def test_a_merge_names_no_column_that_its_query_has_twice(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.sql("CREATE DATABASE default")
    catalog.sql("CREATE TABLE t (k INT NOT NULL, a INT, PRIMARY KEY (k) NOT ENFORCED)")
    catalog.sql("INSERT INTO t VALUES (1, 2), (2, 1)")
    merges = (
        "(SELECT 1 AS k, 2 AS k) x ON t.k = x.k WHEN MATCHED THEN DELETE",
        "(SELECT 1 AS k, 2 AS b, 3 AS b) x ON t.k = x.k WHEN MATCHED THEN UPDATE SET a = x.b",
        "(SELECT 1 AS k, 2 AS b, 3 AS b) x ON t.k = x.k WHEN MATCHED AND b > 1 THEN DELETE",
        "(SELECT 1 AS k, 2 AS a, 3 AS a) x ON t.k = x.k WHEN MATCHED THEN UPDATE SET *",
        "(SELECT 9 AS k, 2 AS a, 3 AS a) x ON t.k = x.k WHEN NOT MATCHED THEN INSERT *",
    )
    for merge in merges:
        with pytest.raises(InvalidInputError, match="is ambiguous"):
            catalog.sql(f"MERGE INTO t USING {merge}")
    assert catalog.sql("SELECT * FROM t ORDER BY k").to_pylist() == [{"k": 1, "a": 2}, {"k": 2, "a": 1}]
    catalog.sql("MERGE INTO t USING (SELECT 1 AS k, 2 AS b, 3 AS b) x ON t.k = x.k WHEN MATCHED THEN DELETE")
    assert catalog.sql("SELECT k FROM t")["k"].to_pylist() == [2]
    with pytest.raises(InvalidInputError, match="'k' is ambiguous"):
        catalog.sql("WITH x AS (SELECT t.k, u.k FROM t CROSS JOIN t u) SELECT k FROM x")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("if(id = 1, named_struct('a', id), NULL)", [{"a": 1}, None]),
        ("array(named_struct('a', id, 'b', NULL), NULL)", [[{"a": 1, "b": None}, None], [{"a": 2, "b": None}, None]]),
        (
            "map(7, named_struct('a', array(named_struct('b', id), NULL)), 8, NULL)",
            [[(7, {"a": [{"b": 1}, None]}), (8, None)], [(7, {"a": [{"b": 2}, None]}), (8, None)]],
        ),
    ],
)
def test_rows_inside_of_values_may_be_null_though_their_fields_are_not(
    session: Session, value: str, found: list[Any]
) -> None:
    session.sql("CREATE TABLE t (id INT NOT NULL); INSERT INTO t VALUES (1), (2)")
    rows = session.sql(f"SELECT {value} AS v FROM t ORDER BY id")
    rows.validate(full=True)
    assert rows["v"].to_pylist() == found
