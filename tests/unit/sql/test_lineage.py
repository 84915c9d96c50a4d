"""What queries need of their tables: results over that are those over whole tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from merganser.expr.setting import Setting
from merganser.expr.text import Dialect
from merganser.schema import types as t
from merganser.sql.lineage import Use, table_nodes, uses

_VALUES = (None, 1, 2, 3)
_TABLES = {
    "a": pa.table({
        "k": pa.array([k for k, _ in itertools.product(_VALUES, _VALUES)], pa.int32()),
        "x": pa.array([x for _, x in itertools.product(_VALUES, _VALUES)], pa.int32()),
        "s": pa.array([None if k is None else f"s{k}" for k, _ in itertools.product(_VALUES, _VALUES)]),
    }),
    "b": pa.table({
        "k": pa.array([1, 2, 2, None, 4], pa.int32()),
        "y": pa.array([1, None, 3, 4, 5], pa.int32()),
        "s": pa.array(["s1", "s2", None, "s4", "S1"]),
    }),
    "c": pa.table({"k": pa.array([1, 3, None], pa.int32()), "z": pa.array([7, 8, 9], pa.int32())}),
}  # fmt: skip
_TYPES = {"k": t.Int(), "x": t.Int(), "y": t.Int(), "z": t.Int(), "s": t.string()}
_FIELDS = {name: [t.Field(i, c, _TYPES[c]) for i, c in enumerate(rows.column_names)] for name, rows in _TABLES.items()}

_QUERIES = (
    "SELECT * FROM a WHERE x = 1",
    "SELECT k FROM a WHERE x IS NULL AND s <> 's1'",
    "SELECT count(*) FROM a",
    "SELECT a.k, y FROM a, b WHERE a.k = b.k AND x > 1 AND b.s = 's2'",
    "SELECT a.k, y FROM a JOIN b ON a.k = b.k AND x = 2 AND y < 3",
    "SELECT a.k, x, y FROM a LEFT JOIN b ON a.k = b.k AND y = 1 AND x = 2",
    "SELECT a.k, x, y FROM a LEFT JOIN b ON a.k = b.k WHERE y IS NULL AND x = 1",
    "SELECT a.k, x, y FROM a LEFT JOIN b ON a.k = b.k WHERE NOT y = 1",
    "SELECT a.k, x, y FROM a RIGHT JOIN b ON a.k = b.k AND y = 3 AND x = 1 WHERE x IS NULL",
    "SELECT a.k, x, y FROM a RIGHT JOIN b ON a.k = b.k WHERE y = 3",
    "SELECT a.k, x, y FROM a FULL JOIN b ON a.k = b.k AND x = 1 AND y = 1 WHERE x IS NULL OR y IS NULL",
    "SELECT a.k, x, z FROM a LEFT JOIN b ON a.k = b.k JOIN c ON c.k = a.k AND z > 7 AND y = 1",
    "SELECT x, y, z FROM a JOIN b ON a.k = b.k AND x = 1 RIGHT JOIN c ON c.k = a.k WHERE z = 7 AND x IS NULL",
    "SELECT x, y, z FROM a LEFT JOIN b ON a.k = b.k AND y = 1 FULL JOIN c ON c.k = a.k WHERE x = 1 OR z = 9",
    "SELECT x, z FROM a CROSS JOIN c WHERE a.k = 1 AND c.k = 3",
    "SELECT k, x FROM a WHERE k NOT IN (SELECT k FROM b WHERE y > 1)",
    "SELECT k, x FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL AND y < 4)",
    "SELECT k, x FROM a WHERE k IN (SELECT k FROM b WHERE b.s = 's1') OR x = 1",
    "SELECT k, x FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k AND y = x)",
    "SELECT k, x FROM a WHERE NOT EXISTS (SELECT * FROM b WHERE b.k = a.k AND x = 2 AND y = 3)",
    "SELECT k, (SELECT max(y) FROM b WHERE b.k = a.k AND a.x = 1 AND b.y < 5) FROM a",
    "SELECT k, x FROM a SEMI JOIN b ON a.k = b.k AND b.y = 3 WHERE x = 1",
    "SELECT k, x FROM a ANTI JOIN b ON a.k = b.k AND b.y = 3 WHERE x = 1",
    "SELECT * FROM a JOIN b USING (k) WHERE k = 2",
    "SELECT x FROM a NATURAL JOIN b",
    "WITH b AS (SELECT k, x AS y FROM a WHERE x = 1) SELECT * FROM b WHERE y = 1",
    "WITH q AS (SELECT * FROM a) SELECT p.x, r.k FROM q p JOIN q r ON p.k = r.k WHERE p.x = 1",
    "SELECT n FROM (SELECT k AS n, x FROM a) WHERE n = 1",
    "SELECT q.k FROM (SELECT k, y FROM b WHERE y = 3) q JOIN a ON a.k = q.k WHERE x = 1 AND y = 3",
    "SELECT x FROM a WHERE x = 1 UNION ALL SELECT y FROM b WHERE y = 1 UNION ALL SELECT z FROM c",
    "SELECT p.x FROM a p JOIN a r ON p.k = r.x WHERE p.s = 's1' AND r.s = 's2'",
    "SELECT a.* FROM a JOIN b ON a.k = b.k WHERE b.y BETWEEN 1 AND 2",
    "SELECT k, sum(x) FILTER (WHERE s = 's1') FROM a WHERE k < 3 GROUP BY k HAVING sum(x) > 1",
    "SELECT k, rank() OVER (PARTITION BY s ORDER BY x) FROM a WHERE k = 1 OR k = 2",
    "SELECT DISTINCT s FROM a WHERE s LIKE 's%' AND NOT s IN ('s2', 's3')",
    "SELECT p.u FROM a AS p(u, v, w) WHERE u = 1",
    "SELECT k FROM a WHERE x + 1 = 2 OR length(s) = 2",
    "SELECT k FROM a WHERE 1 = x AND (2 <= k OR k IS NULL)",
    "SELECT x FROM a WHERE x = 1 AND k = (SELECT max(k) FROM c WHERE z < 9)",
    "SELECT a.k FROM a JOIN (b JOIN c ON b.k = c.k AND z = 7) ON a.k = b.k WHERE y = 1",
    "SELECT k FROM a WHERE s = 's1' ORDER BY x, k",
)


def _needed(query: str) -> tuple[exp.Expression, list[exp.Table], list[Use]]:
    tree = sqlglot.parse_one(query, dialect=Dialect)
    nodes = table_nodes(tree)
    return tree, nodes, uses(tree, [(node, _FIELDS[node.name]) for node in nodes], Setting())


def _rows(tree: exp.Expression, tables: Sequence[tuple[str, pa.Table]]) -> list[str]:
    with duckdb.connect() as connection:
        for name, rows in tables:
            connection.register(name, rows)
        return sorted(map(repr, connection.execute(tree.sql("duckdb")).fetchall()))


@pytest.mark.parametrize("query", _QUERIES)
def test_what_is_needed_gives_the_same_rows(query: str) -> None:
    tree, nodes, needed = _needed(query)
    whole = _rows(tree, list(_TABLES.items()))
    tables = []
    for i, (node, use) in enumerate(zip(nodes, needed, strict=True)):
        rows = _TABLES[node.name]
        rows = rows if use.where is None else use.where.apply(rows)
        columns = list(use.columns) or rows.column_names[:1]
        tables.append((f"part{i}", rows.select(columns)))
        if not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name)))
        node.set("this", exp.to_identifier(f"part{i}"))
    assert _rows(tree, tables) == whole


@pytest.mark.parametrize(
    ("query", "columns", "where"),
    [
        ("SELECT count(*) FROM a", [()], ["None"]),
        ("SELECT k FROM a WHERE x = 1 AND s LIKE 's%'", [("k", "x", "s")], ["`x` = 1 AND `s` LIKE 's%'"]),
        (
            "SELECT z FROM a, c WHERE a.k = c.k AND x = 1 AND z > 7",
            [("k", "x"), ("k", "z")],
            ["`x` = 1", "`z` > 7"],
        ),
        (
            "SELECT 1 FROM a LEFT JOIN b ON a.k = b.k AND b.y = 1 WHERE a.x = 2 AND b.s = 'q'",
            [("k", "x"), ("k", "y", "s")],
            ["`x` = 2", "`y` = 1"],
        ),
        ("SELECT 1 FROM a FULL JOIN b ON a.k = b.k WHERE a.x = 2", [("k", "x"), ("k",)], ["None", "None"]),
        ("SELECT k FROM a WHERE EXISTS (SELECT * FROM b WHERE b.k = a.k)", [("k",), ("k",)], ["None", "None"]),
        ("SELECT k FROM a WHERE x = rand() OR x > length(s)", [("k", "x", "s")], ["None"]),
    ],
)
def test_columns_and_conditions(query: str, columns: list[tuple[str, ...]], where: list[str]) -> None:
    needed = _needed(query)[2]
    assert [use.columns for use in needed] == columns
    assert [str(use.where).replace("`", "") for use in needed] == [text.replace("`", "") for text in where]


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("SELECT k, x AS n FROM a LIMIT 5", 5),
        ("SELECT * FROM a LIMIT 5", 5),
        ("SELECT count(*) FROM a LIMIT 5", None),
        ("SELECT k FROM a WHERE x = 1 LIMIT 5", None),
        ("SELECT k FROM a ORDER BY k LIMIT 5", None),
        ("SELECT DISTINCT k FROM a LIMIT 5", None),
        ("SELECT k FROM a LIMIT 5 OFFSET 3", None),
        ("SELECT k FROM a UNION ALL SELECT k FROM b LIMIT 5", None),
        ("SELECT explode(array(k, x)) FROM a LIMIT 5", None),
    ],
)
def test_limits(query: str, limit: int | None) -> None:
    assert _needed(query)[2][0].limit == limit


def test_a_condition_on_time_or_on_finer_digits_than_microseconds_is_not_taken() -> None:
    fields = [t.Field(0, "at", t.Timestamp(9)), t.Field(1, "day", t.Date()), t.Field(2, "at6", t.Timestamp(6))]

    def where(text: str) -> str:
        tree = sqlglot.parse_one(f"SELECT 1 FROM q WHERE {text}", dialect=Dialect)
        return str(uses(tree, [(table_nodes(tree)[0], fields)], Setting(now_ms=0))[0].where)

    assert where("at > TIMESTAMP_NTZ '2026-01-31 10:00:00'") == "None"
    assert where("day < current_date") == "None"
    assert "day" in where("day < DATE '2026-01-31' + INTERVAL '1' YEAR")
    assert "at6" in where("at6 > TIMESTAMP_NTZ '2026-01-31 10:00:00'")
