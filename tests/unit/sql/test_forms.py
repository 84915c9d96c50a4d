"""Forms of statements: queries that begin with TABLE, FROM or WITH, and changes that a query computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError, SqlSyntaxError
from merganser.sql import embedded
from merganser.sql.session import Session
from merganser.sql.unread import unread, with_tables

ROWS = "(1, 'abc', 5, array(1, 2)), (2, 'xyz', -3, array(3)), (3, NULL, 7, NULL)"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    made = catalog.session()
    made.sql("CREATE TABLE e (k INT, s STRING, n INT, l ARRAY<INT>)")
    made.sql("CREATE TABLE pk (k INT, s STRING, n INT, l ARRAY<INT>, PRIMARY KEY (k) NOT ENFORCED)")
    made.sql(f"INSERT INTO e VALUES {ROWS}; INSERT INTO pk VALUES {ROWS}")
    return made


def values(session: Session, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.sql(text).to_pylist()]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("FROM e SELECT k WHERE n > 0 ORDER BY k", [(1,), (3,)]),
        ("SELECT count(*) FROM (FROM e SELECT k)", [(3,)]),
        ("SELECT k FROM (TABLE e) WHERE n < 0", [(2,)]),
        ("WITH q AS (TABLE `e`) SELECT max(k) FROM q", [(3,)]),
        ("WITH q AS (SELECT 1 AS z) TABLE q", [(1,)]),
        ("SELECT n > 0, sum(k) FROM e GROUP BY ROLLUP (n > 0) ORDER BY 1, 2", [(None, 6), (False, 2), (True, 4)]),
        ("SELECT sum(k) FROM e GROUP BY CUBE (n > 0, k < 9) ORDER BY 1", [(2,), (2,), (4,), (4,), (6,), (6,)]),
        ("SELECT sum(k) FROM e GROUP BY GROUPING SETS (n > 0, ()) ORDER BY 1", [(2,), (4,), (6,)]),
        ("SELECT window.a FROM (SELECT named_struct('a', 3) AS window) GROUP BY window", [(3,)]),
        ("SELECT count(*) OVER w FROM e WINDOW w AS (PARTITION BY n > 0) ORDER BY 1", [(1,), (2,), (2,)]),
    ],
)  # fmt: skip
def test_queries_begin_with_a_table_and_group_by_expressions(
    session: Session, text: str, wanted: list[tuple[Any, ...]]
) -> None:
    assert values(session, text) == wanted


def test_a_table_is_a_query(session: Session) -> None:
    assert values(session, "TABLE pk ORDER BY k LIMIT 1") == [(1, "abc", 5, [1, 2])]
    assert len(values(session, "TABLE e UNION ALL TABLE pk")) == 6
    session.sql("INSERT INTO e TABLE pk; INSERT INTO e FROM pk SELECT k + 10, s, n, l")
    assert values(session, "SELECT count(*), max(k) FROM e") == [(9, 13)]


@pytest.mark.parametrize("table", ["e", "pk"])
def test_with_stands_before_statements_that_change_rows(session: Session, table: str) -> None:
    session.sql(f"WITH q AS (SELECT 77 AS k) INSERT INTO {table} (k) SELECT k FROM q")
    session.sql(f"WITH q AS (SELECT 77 AS k) INSERT INTO {table} (k) WITH r(k) AS (SELECT k + 1 FROM q) TABLE r")
    assert values(session, f"SELECT k FROM {table} ORDER BY k") == [(1,), (2,), (3,), (77,), (78,)]
    session.sql(f"WITH q AS (SELECT 77 AS k) DELETE FROM {table} WHERE k >= (SELECT k FROM q)")
    session.sql(f"WITH q AS (SELECT 2 AS k) UPDATE {table} SET n = (SELECT max(k) FROM q) WHERE k = 1")
    session.sql(
        f"WITH q(k, n) AS (SELECT 2, 99) MERGE INTO {table} USING q ON {table}.k = q.k "
        "WHEN MATCHED THEN UPDATE SET n = q.n"
    )
    assert values(session, f"SELECT k, n FROM {table} ORDER BY k") == [(1, 2), (2, 99), (3, 7)]


def test_forms_that_run_on_spark_alone_are_refused_by_name(session: Session) -> None:
    for text, why in (
        ("FROM e |> WHERE n > 0", r"line 1, column 8: queries with \|> are not supported here"),
        ("SELECT k FROM e WHERE k IN (SELECT 1 |> LIMIT 1)", r"queries with \|> are not supported"),
        ("FROM e INSERT INTO pk SELECT *", r"FROM \.\.\. INSERT is not supported"),
        ("SELECT TRANSFORM(k) USING 'cat' FROM e", r"SELECT TRANSFORM \(\.\.\.\) USING is not supported"),
    ):
        with pytest.raises(SqlSyntaxError, match=why):
            session.sql(text)
    with pytest.raises(InvalidInputError, match="there is no function 'window' in this process"):
        session.sql("SELECT count(*) FROM e GROUP BY window(current_timestamp(), '1 day')")


def test_a_query_that_is_not_read_gets_its_tables_by_name() -> None:
    query = unread("FROM e, shop.g AS x |> WHERE x.k IN (SELECT k FROM q) |> SELECT '{a}', extract(DAY FROM ts)")
    assert [node.sql() for node in query.expressions] == ['"e"', '"shop"."g"', '"q"', '"ts"']
    assert with_tables(query, query.expressions[:2], ["{v0}", "{v1}"]) == (
        "WITH e AS (SELECT * FROM {v0}), g AS (SELECT * FROM {v1}) "
        "FROM e, g AS x |> WHERE x.k IN (SELECT k FROM q) |> SELECT '{{a}}', extract(DAY FROM ts)"
    )
    query = unread("FROM shop.e VERSION AS OF 'a`b' |> JOIN e ON e.k = 1 |> JOIN f TIMESTAMP AS OF '2026-01-01' AS g")
    assert with_tables(query, query.expressions, ["{v0}", "{v1}", "{v2}"]) == (
        "WITH `shop.e VERSION a``b` AS (SELECT * FROM {v0}), e AS (SELECT * FROM {v1}), f AS (SELECT * FROM {v2}) "
        "FROM `shop.e VERSION a``b` |> JOIN e ON e.k = 1 |> JOIN f AS g"
    )
    query = unread("WITH q AS (SELECT 1 AS k) FROM q |> JOIN e USING (k)")
    assert with_tables(query, query.expressions, ["{v0}"]) == (
        "WITH e AS (SELECT * FROM {v0}), q AS (SELECT 1 AS k) FROM q |> JOIN e USING (k)"
    )


@pytest.mark.parametrize("table", ["e", "pk"])
@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("s = replace(s, 'a', 'b')", "bbc"), ("s = left(s, 2)", "ab"), ("s = lpad(s, 5, '0')", "00abc"),
        ("s = regexp_replace(s, '[a-b]', 'z')", "zzc"), ("s = md5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("s = date_format(DATE '2026-01-31', 'yyyy')", "2026"), ("n = greatest(n, 9)", 9), ("n = n & 4", 4),
        ("n = power(n, 2)", 25), ("n = sqrt(16)", 4), ("n = try_cast(s AS INT)", None),
        ("l = array(n, 8)", [5, 8]),
    ],
)  # fmt: skip
def test_updates_set_what_select_computes(session: Session, table: str, value: str, wanted: Any) -> None:
    assert session.sql(f"UPDATE {table} SET {value} WHERE k = 1") is not None
    column = value.partition(" ")[0]
    assert values(session, f"SELECT k, {column} FROM {table} WHERE k < 3 ORDER BY k") == [
        (1, wanted), (2, {"s": "xyz", "n": -3, "l": [3]}[column]),
    ]  # fmt: skip


@pytest.mark.parametrize("table", ["e", "pk"])
def test_conditions_of_changes_are_those_of_select(session: Session, table: str) -> None:
    session.sql(f"UPDATE {table} SET n = 0 WHERE lpad(s, 4, '-') = '-xyz'")
    session.sql(f"DELETE FROM {table} WHERE replace(s, 'a', '') = 'bc'")
    assert values(session, f"SELECT k, n FROM {table} ORDER BY k") == [(2, 0), (3, 7)]


def test_a_change_that_no_query_computes_is_refused(session: Session) -> None:
    before = values(session, "SELECT * FROM pk")
    for text, why in (
        ("UPDATE pk SET s = no_such(s)", "there is no function 'no_such' in this process"),
        ("UPDATE pk SET s = replace(z, 'a', 'b')", "there is no column 'z'"),
        ("DELETE FROM pk WHERE count(*) > 1", "aggregate"),
        ("UPDATE pk SET k = greatest(k, 2)", "column 'k' belongs to the primary key"),
    ):
        with pytest.raises(InvalidInputError, match=why) as caught:
            session.sql(text)
        assert "Nothing was written" in str(caught.value)
    assert values(session, "SELECT * FROM pk") == before


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_rows_without_a_key_are_told_apart_by_their_places(session: Session, vectors: str) -> None:
    session.sql(
        "CREATE TABLE ap (k INT, n INT, r ROW<a INT, b STRING>, l ARRAY<INT>, m MAP<STRING, INT>, at TIMESTAMP(9)) "
        f"WITH ('deletion-vectors.enabled' = '{vectors}')"
    )
    session.sql(
        "INSERT INTO ap SELECT k, 0, named_struct('a', k, 'b', 'x'), l, map('k', k), TIMESTAMP '2026-01-01 00:00:00' "
        "FROM e; INSERT INTO ap (k, n) VALUES (9, 0), (9, 0)"
    )
    result = session.execute("UPDATE ap SET r.a = r.a + 10, n = l[0] WHERE k < 3")
    assert result.counts == {"updated": 2}
    session.sql("UPDATE ap SET m = map_concat(m, map('z', n)), l = array_append(l, n) WHERE array_contains(l, 3)")
    session.sql("UPDATE ap SET n = n + (SELECT count(*) FROM ap) WHERE size(l) = 2")
    assert values(session, "SELECT k, n, r.a, l, m FROM ap ORDER BY k") == [
        (1, 6, 11, [1, 2], [("k", 1)]), (2, 8, 12, [3, 3], [("k", 2), ("z", 3)]), (3, 0, 3, None, [("k", 3)]),
        (9, 0, None, None, None), (9, 0, None, None, None),
    ]  # fmt: skip
    session.sql("DELETE FROM ap WHERE exists(l, e -> e = 2) OR m['k'] = 3")
    session.sql("UPDATE ap SET r = named_struct('a', 1, 'b', lpad('y', 2, 'y')), l = array() WHERE r IS NOT NULL")
    assert values(session, "SELECT k, r.b, l, at IS NULL FROM ap ORDER BY k") == [
        (2, "yy", [], False), (9, None, None, True), (9, None, None, True),
    ]  # fmt: skip
    assert session.execute("DELETE FROM ap WHERE array_contains(l, 99)").snapshot is None
    with pytest.raises(InvalidInputError, match="it has no column 'z'"):
        session.sql("UPDATE ap SET z = size(l)")


def test_a_change_by_places_looks_again_after_another_commit(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.sql("CREATE TABLE ap (k INT, l ARRAY<INT>); INSERT INTO ap VALUES (1, array(1)), (2, array(2))")
    whole = embedded.changed_here
    others = ["UPDATE ap SET l = array(7) WHERE k = 2", "INSERT INTO ap VALUES (3, array(5))"]

    def after_another(todo: Any, rows: Any, env: Any) -> Any:
        if others:
            with monkeypatch.context() as plain:
                plain.setattr(embedded, "changed_here", whole)
                session.state.catalog.session().sql(others.pop(0))
        return whole(todo, rows, env)

    monkeypatch.setattr(embedded, "changed_here", after_another)
    session.sql("UPDATE ap SET l = array(l[0] * 10, (SELECT max(k) FROM ap))")
    assert values(session, "SELECT k, l FROM ap ORDER BY k") == [(1, [10, 3]), (2, [70, 3]), (3, [50, 3])]


def test_files_that_a_condition_leaves_out_are_not_read_nor_in_the_way(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sql("CREATE TABLE ap (k INT, dt STRING, l ARRAY<INT>) PARTITIONED BY (dt)")
    session.sql("INSERT INTO ap VALUES (1, 'a', array(1)), (2, 'b', array(2))")
    whole, read = embedded.changed_here, []

    def beside(todo: Any, rows: Any, env: Any) -> Any:
        read.append([len(job.files) for job in todo.jobs])
        session.state.catalog.session().sql("INSERT INTO ap VALUES (3, 'b', array(3))")
        return whole(todo, rows, env)

    monkeypatch.setattr(embedded, "changed_here", beside)
    session.sql("UPDATE ap SET k = size(l) + 6 WHERE dt = 'a' AND array_contains(l, 1)")
    assert read == [[1]]
    assert values(session, "SELECT k, dt FROM ap ORDER BY k") == [(2, "b"), (3, "b"), (7, "a")]


@pytest.mark.parametrize("table", ["e", "pk"])
def test_merges_compute_what_looks_at_the_source_alone_as_select_does(session: Session, table: str) -> None:
    session.sql(
        "CREATE TABLE q (k INT, s STRING, l ARRAY<INT>);"
        "INSERT INTO q VALUES (1, 'xx', array(7)), (2, 'xx', array(7, 8)), (8, 'yy', NULL), (9, 'zz', NULL)"
    )
    session.sql(
        f"MERGE INTO {table} USING q ON {table}.k = q.k "
        f"WHEN MATCHED AND size(q.l) = 1 THEN UPDATE SET s = replace(q.s, 'x', 'z'), n = {table}.n + 1 "
        "WHEN NOT MATCHED AND left(s, 1) = 'y' THEN INSERT (k, s, l) VALUES (k, lpad(s, 4, '-'), array(q.k, 1))"
    )
    assert values(session, f"SELECT * FROM {table} ORDER BY k") == [
        (1, "zz", 6, [1, 2]), (2, "xyz", -3, [3]), (3, None, 7, None), (8, "--yy", None, [8, 1]),
    ]  # fmt: skip
    with pytest.raises(InvalidInputError, match="cannot use 'GREATEST"):
        session.sql(f"MERGE INTO {table} t USING q ON t.k = q.k WHEN MATCHED THEN UPDATE SET n = greatest(q.k, t.n)")
    assert "size(l)" not in session.sql(f"EXPLAIN DELETE FROM {table} WHERE size(l) = 1")["plan"][0].as_py()


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("substring(x.v, x.q)", "bc"), ("substring(x.v, 1 + 1)", "bc"), ("substring('abc', 4 - 1)", "c"),
        ("CAST(x.v LIKE x.p AS STRING)", "true"),
    ],
)  # fmt: skip
def test_arguments_of_values_over_the_source_need_not_be_literals(session: Session, value: str, made: str) -> None:
    session.sql(
        "MERGE INTO pk USING (SELECT 1 AS k, 'abc' AS v, 2 AS q, 'a%' AS p UNION ALL SELECT 50, 'abc', 2, 'a%') x "
        f"ON pk.k = x.k WHEN MATCHED AND {value} = '{made}' THEN UPDATE SET s = {value} "
        f"WHEN NOT MATCHED THEN INSERT (k, s) VALUES (x.k, {value})"
    )
    assert values(session, "SELECT s FROM pk WHERE k IN (1, 50)") == [(made,), (made,)]
    with pytest.raises(InvalidInputError, match="cannot use substring"):
        session.sql("MERGE INTO pk USING e x ON pk.k = x.k WHEN MATCHED THEN UPDATE SET s = substring(pk.s, x.k)")


def test_cube_roots_of_cubes_are_whole(session: Session) -> None:
    found = values(session, "SELECT id, cbrt((id - 300) * (id - 300) * (id - 300)) FROM range(601)")
    assert found == [(i, i - 300.0) for i in range(601)]
    odd = ("5e-324D", "1.7976931348623157e308D", "CAST('-Infinity' AS DOUBLE)", "-0.0D", "NULL")
    assert repr(values(session, f"SELECT {', '.join(f'cbrt({text})' for text in odd)}")[0]) == (
        "(1.7031839360032603e-108, 5.643803094122362e+102, -inf, -0.0, None)"
    )
