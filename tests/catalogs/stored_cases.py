"""Views and functions in statements, as cases that hold embedded and on Spark.

A case is a list of steps in a fresh catalog of an SQL database, with databases `default`, `shop` and `other`. `shop`
has the table `orders` and is the current database. A step is a statement, with nothing, with rows, or with words of its
error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from merganser.errors import MerganserError

Rows = list[tuple[Any, ...]]
Step = str | tuple[str, Rows] | tuple[str, str]

SETUP = (
    "CREATE TABLE shop.orders (id BIGINT, amount DECIMAL(10, 2), state STRING, PRIMARY KEY (id) NOT ENFORCED)",
    "INSERT INTO shop.orders VALUES (1, 5.5, 'new'), (2, 7, 'paid'), (3, 1, 'new')",
    "USE shop",
)
DATABASES = ("default", "shop", "other")

CASES: dict[str, list[Step]] = {
    "a view is read as a table is": [
        "CREATE VIEW fresh AS SELECT * FROM orders WHERE state = 'new'",
        ("SELECT id, amount FROM fresh ORDER BY id", [(1, Decimal("5.50")), (3, Decimal("1.00"))]),
        ("SELECT f.id FROM fresh AS f JOIN orders o ON f.id = o.id WHERE o.id > 1", [(3,)]),
        ("SELECT fresh.id, shop.fresh.state FROM shop.fresh WHERE fresh.id = 1", [(1, "new")]),
        ("SELECT count(*) FROM merganser.shop.fresh", [(2,)]),
        ("SELECT id FROM orders WHERE id NOT IN (SELECT id FROM fresh)", [(2,)]),
        "INSERT INTO orders VALUES (4, 2, 'new')",
        ("SELECT sum(amount) FROM fresh", [(Decimal("8.50"),)]),
        ("SELECT x FROM fresh AS f(x, y, z) WHERE y > 5", [(1,)]),
        ("SELECT a.id, b.id FROM fresh a JOIN fresh b ON a.id < b.id ORDER BY 1, 2", [(1, 3), (1, 4), (3, 4)]),
    ],
    "columns, comments and properties": [
        "CREATE VIEW v (k COMMENT 'key', twice) COMMENT 'a view' TBLPROPERTIES ('team' = 'ours') AS "
        "SELECT id, amount * 2 FROM orders -- all of them",
        ("SELECT k, twice FROM v WHERE k = 2", [(2, Decimal("14.00"))]),
        ("SHOW COLUMNS IN v", [("k",), ("twice",)]),
        ("DESCRIBE v", [("k", "BIGINT", "key"), ("twice", "DECIMAL(12, 2)", None)]),
        ("DESCRIBE v k", [("col_name", "k"), ("data_type", "BIGINT"), ("comment", "key")]),
        ("SHOW TBLPROPERTIES v", [("team", "ours")]),
        "ALTER VIEW v SET TBLPROPERTIES ('team' = 'theirs', 'since' = '2026')",
        "ALTER VIEW v UNSET TBLPROPERTIES ('since')",
        ("ALTER VIEW v UNSET TBLPROPERTIES ('since')", "no property 'since'"),
        "ALTER VIEW v UNSET TBLPROPERTIES IF EXISTS ('since')",
        ("SHOW TBLPROPERTIES v", [("team", "theirs")]),
        ("CREATE VIEW w (a) AS SELECT 1, 2", "1 columns are named, and the query gives 2"),
        ("CREATE VIEW w (a, A) AS SELECT 1, 2", "two columns 'a'"),
        ("CREATE VIEW w AS SELECT id, id FROM orders", "two columns 'id'"),
        ("CREATE VIEW w AS SELECT NULL AS n", "cast it"),
    ],
    "SHOW CREATE VIEW makes the view again": [
        "CREATE VIEW v (k COMMENT 'it''s a key', `select`) COMMENT 'x' TBLPROPERTIES ('a' = 'b') AS "
        "SELECT id, state FROM orders",
        (
            "SHOW CREATE TABLE v",
            [(
                "CREATE VIEW `shop`.`v` (\n  `k` COMMENT 'it''s a key',\n  `select`\n)\nCOMMENT 'x'\nTBLPROPERTIES (\n"
                "  'a' = 'b'\n)\nAS SELECT `id` AS `k`, `state` AS `select` FROM (\n"
                "SELECT id, state FROM `shop`.orders\n) AS `_view`",
            )],
        ),
    ],
    "conditions and limits stay those of the view": [
        "CREATE VIEW per_state AS SELECT state, count(*) AS n FROM orders GROUP BY state",
        ("SELECT n FROM per_state WHERE state = 'new' LIMIT 1", [(2,)]),
        ("SELECT sum(n) FROM (SELECT * FROM per_state LIMIT 5)", [(3,)]),
        "CREATE VIEW odd AS SELECT id, state FROM orders WHERE id % 2 = 1",
        ("SELECT count(*) FROM (SELECT * FROM odd LIMIT 2)", [(2,)]),
        ("SELECT id FROM odd WHERE id > 1 LIMIT 2", [(3,)]),
        ("SELECT id FROM odd o WHERE o.id = 3 AND upper(o.state) = 'NEW'", [(3,)]),
        "CREATE VIEW first AS SELECT id FROM orders ORDER BY id LIMIT 1",
        ("SELECT id FROM first WHERE id = 3", []),
        "CREATE VIEW ranked AS SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM orders",
        ("SELECT r FROM ranked WHERE id = 1", [(3,)]),
        "CREATE VIEW filled AS SELECT o.id, p.id AS other FROM orders o LEFT JOIN odd p ON p.id = o.id",
        ("SELECT id FROM filled WHERE other IS NULL", [(2,)]),
        ("SELECT id FROM filled WHERE other = 3 AND id = 3", [(3,)]),
        "CREATE VIEW renamed (state, id) AS SELECT id, state FROM odd",
        ("SELECT id FROM renamed WHERE state = 1", [("new",)]),
        "CREATE VIEW both AS SELECT id FROM orders WHERE state = 'new' UNION ALL SELECT id FROM orders",
        ("SELECT count(*) FROM both WHERE id = 1", [(2,)]),
        ("SELECT r.id FROM odd o LEFT JOIN renamed r ON r.state = o.id AND o.id = 1 ORDER BY 1", [(None,), ("new",)]),
    ],
    "a view keeps the columns that it had": [
        "CREATE VIEW v AS SELECT * FROM orders",
        "ALTER TABLE orders ADD COLUMN note STRING",
        ("SELECT * FROM v WHERE id = 1", [(1, Decimal("5.50"), "new")]),
        "ALTER TABLE orders ALTER COLUMN note FIRST",
        ("SELECT * FROM v WHERE id = 1", [(1, Decimal("5.50"), "new")]),
        "ALTER TABLE orders DROP COLUMN state",
        ("SELECT * FROM v", "cannot read the view 'shop.v'"),
        "ALTER VIEW v AS SELECT id FROM orders WHERE id > 1",
        ("SELECT * FROM v ORDER BY id", [(2,), (3,)]),
        ("ALTER VIEW nothing AS SELECT 1 AS a", "no view 'shop.nothing'"),
    ],
    "values of another type become those of the view": [
        "CREATE TABLE wide (id INT, n INT)",
        "INSERT INTO wide VALUES (1, 10)",
        "CREATE VIEW v AS SELECT id, n FROM wide",
        "ALTER TABLE wide ALTER COLUMN n TYPE BIGINT",
        ("SELECT typeof(n), n FROM v", [("int", 10)]),
        "ALTER TABLE wide ALTER COLUMN n TYPE STRING",
        ("SELECT n FROM v", "its column 'n' is int"),
    ],
    "names are those of the database of the view": [
        "USE other",
        "CREATE TABLE orders (id BIGINT)",
        "CREATE VIEW shop.v AS SELECT id FROM orders",
        "CREATE VIEW mine AS SELECT id FROM shop.orders",
        "INSERT INTO orders VALUES (99)",
        "USE default",
        ("SELECT * FROM shop.v", [(99,)]),
        ("SELECT * FROM other.mine ORDER BY id", [(1,), (2,), (3,)]),
    ],
    "common table expressions hide views, and views have their own": [
        "CREATE VIEW v AS WITH orders AS (SELECT 7 AS id) SELECT id FROM orders",
        ("SELECT * FROM v", [(7,)]),
        ("WITH v AS (SELECT 5 AS q) SELECT * FROM v", [(5,)]),
        "CREATE VIEW w AS SELECT id FROM v UNION ALL SELECT id FROM orders WHERE id = 2",
        ("WITH orders AS (SELECT 0 AS id) SELECT w.id FROM w ORDER BY id", [(2,), (7,)]),
        ("WITH c AS (SELECT * FROM w) SELECT count(*) FROM c", [(2,)]),
    ],
    "views over views, and none over itself": [
        "CREATE VIEW a AS SELECT id FROM orders",
        "CREATE VIEW b AS SELECT id + 1 AS id FROM a",
        "CREATE VIEW c AS SELECT b.id FROM b JOIN a ON a.id = b.id",
        ("SELECT * FROM c ORDER BY id", [(2,), (3,)]),
        ("CREATE OR REPLACE VIEW a AS SELECT id FROM c", "'shop.a' names itself: shop.a -> shop.c -> shop.b -> shop.a"),
        ("CREATE OR REPLACE VIEW a AS SELECT id FROM a", "names itself"),
        "DROP VIEW a",
        ("SELECT * FROM b", "cannot read the view 'shop.b': there is no table 'shop.a'"),
    ],
    "a name is that of a table or of a view": [
        "CREATE VIEW v AS SELECT id FROM orders",
        ("CREATE VIEW v AS SELECT 1 AS a", "already exists"),
        "CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS a",
        ("CREATE VIEW orders AS SELECT 1 AS a", "there is a table 'shop.orders'"),
        ("CREATE OR REPLACE VIEW orders AS SELECT 1 AS a", "there is a table 'shop.orders'"),
        "CREATE VIEW IF NOT EXISTS orders AS SELECT 1 AS a",
        ("CREATE TABLE v (a INT)", "there is a view 'shop.v'"),
        ("CREATE TABLE v (a INT)", "or drop the view: DROP VIEW shop.v"),
        ("CREATE TABLE v AS SELECT 1 AS a", "there is a view 'shop.v'"),
        ("ALTER TABLE orders RENAME TO v", "there is a view 'shop.v'"),
        ("ALTER VIEW v RENAME TO orders", "there is a table 'shop.orders'"),
        "ALTER VIEW v RENAME TO other.w",
        ("SELECT count(*) FROM other.w", [(3,)]),
        ("SELECT * FROM v", "no table 'shop.v'"),
        ("SHOW VIEWS IN other", [("other", "w", False)]),
        ("SHOW VIEWS", []),
        ("DROP VIEW orders", "it is a table"),
        ("DROP TABLE other.w", "it is a view"),
        ("DROP VIEW v", "no table 'shop.v'"),
        "DROP VIEW IF EXISTS v",
        ("DROP DATABASE other", "it has 1 view"),
        "DROP DATABASE other CASCADE",
        ("SHOW DATABASES", [("default",), ("shop",)]),
    ],
    "views are listed": [
        "CREATE VIEW late AS SELECT 1 AS a",
        "CREATE VIEW early AS SELECT 1 AS a",
        ("SHOW VIEWS", [("shop", "early", False), ("shop", "late", False)]),
        ("SHOW VIEWS FROM shop LIKE 'l*'", [("shop", "late", False)]),
        ("SHOW TABLES", [("shop", "early", False), ("shop", "late", False), ("shop", "orders", False)]),
        ("SHOW VIEWS IN nowhere", "no database 'nowhere'"),
        ("SELECT * FROM erly", "did you mean 'early'"),
    ],
    "nothing is written into a view": [
        "CREATE VIEW v AS SELECT id, amount FROM orders",
        ("INSERT INTO v VALUES (1, 2)", "'shop.v' is a view"),
        ("DELETE FROM v WHERE id = 1", "'shop.v' is a view"),
        ("UPDATE v SET amount = 1", "'shop.v' is a view"),
        ("TRUNCATE TABLE v", "'shop.v' is a view"),
        ("ALTER TABLE v ADD COLUMN a INT", "'shop.v' is a view"),
        ("SELECT * FROM v VERSION AS OF 1", "at a version or a time: it is a view"),
        ("SELECT * FROM v /*+ OPTIONS('scan.snapshot-id' = '1') */", "with options: it is a view"),
        ("CALL sys.compact(table => 'shop.v')", "'shop.v' is a view"),
        ("SELECT * FROM v$files", "'shop.v' is a view, which has no 'files'"),
    ],
    "rows of views are written elsewhere": [
        "CREATE VIEW v AS SELECT id, amount FROM orders WHERE state = 'new'",
        "CREATE TABLE copied AS SELECT * FROM v",
        ("SELECT id FROM copied ORDER BY id", [(1,), (3,)]),
        "INSERT INTO orders SELECT id + 10, amount, 'copy' FROM v",
        "INSERT OVERWRITE copied SELECT id, amount FROM v WHERE id = 3",
        ("SELECT id FROM copied", [(3,)]),
        "MERGE INTO orders AS o USING v ON o.id = v.id WHEN MATCHED THEN UPDATE SET state = 'seen'",
        "DELETE FROM orders WHERE id IN (SELECT id FROM copied)",
        (
            "SELECT id, state FROM orders ORDER BY id",
            [(1, "seen"), (2, "paid"), (11, "copy"), (13, "copy")],
        ),
    ],
    "system tables, versions and hints inside of a view": [
        "CREATE VIEW old AS SELECT id FROM orders VERSION AS OF 1",
        "CREATE VIEW hinted AS SELECT id FROM orders /*+ OPTIONS('scan.snapshot-id' = '1') */",
        "CREATE VIEW counted AS SELECT count(*) AS n FROM orders$snapshots",
        "INSERT INTO orders VALUES (9, 9, 'late')",
        ("SELECT max(id) FROM old", [(3,)]),
        ("SELECT max(id) FROM hinted", [(3,)]),
        ("SELECT n FROM counted", [(2,)]),
        ("SELECT max(id) FROM orders", [(9,)]),
    ],
    "what no view can be": [
        ("CREATE VIEW v AS SELECT * FROM nothing", "no table 'shop.nothing'"),
        ("CREATE VIEW v AS SELECT nothing FROM orders", "nothing"),
        ("CREATE VIEW v AS DELETE FROM orders", "expected a query"),
        ("CREATE VIEW v", "as"),
        ("CREATE VIEW v (a INT) AS SELECT 1", "takes the types of its columns from the query"),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1 AS a", "exclude each other"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1 AS a", "temporary is not supported"),
        ("CREATE VIEW nowhere.v AS SELECT 1 AS a", "no database 'nowhere'"),
        ("SHOW VIEWS", []),
    ],
    "a function is its expression": [
        "CREATE FUNCTION gross(net DECIMAL(10, 2), rate INT DEFAULT 20) RETURNS DECIMAL(12, 2) COMMENT 'with tax' "
        "RETURN net * (100 + rate) / 100",
        (
            "SELECT id, gross(amount), shop.gross(amount, 0) AS same FROM orders ORDER BY id",
            [
                (1, Decimal("6.60"), Decimal("5.50")),
                (2, Decimal("8.40"), Decimal("7.00")),
                (3, Decimal("1.20"), Decimal("1.00")),
            ],
        ),
        ("SELECT sum(gross(amount, 100)) FROM orders WHERE gross(amount) > 2", [(Decimal("25.00"),)]),
        ("SELECT gross(amount), count(*) FROM orders GROUP BY gross(amount) ORDER BY 1", [
            (Decimal("1.20"), 1), (Decimal("6.60"), 1), (Decimal("8.40"), 1),
        ]),
        ("SELECT gross(1, 2, 3)", "it takes 2 (net decimal(10, 2), rate int)"),
        ("SELECT shop.nett(1)", "no function 'shop.nett'"),
        "UPDATE orders SET amount = gross(amount) WHERE gross(amount) < 2",
        ("SELECT amount FROM orders WHERE id = 3", [(Decimal("1.20"),)]),
        "DELETE FROM orders WHERE gross(amount, 0) = 1.20",
        ("SELECT count(*) FROM orders", [(2,)]),
        "CREATE VIEW v AS SELECT id, gross(amount) AS g FROM orders",
        "CREATE VIEW other.w AS SELECT sum(gross(amount, 0)) AS g FROM orders WHERE gross (amount) > 7",
        "USE default",
        ("SELECT g FROM shop.v WHERE id = 2", [(Decimal("8.40"),)]),
        ("SELECT g FROM other.w", [(Decimal("7.00"),)]),
        "MERGE INTO shop.orders o USING (SELECT 2 AS k, 8.40 AS g) s ON o.id = s.k AND shop.gross(o.amount) = s.g "
        "WHEN MATCHED THEN UPDATE SET amount = shop.gross(o.amount)",
        ("SELECT amount FROM shop.orders WHERE id = 2", [(Decimal("8.40"),)]),
        ("SELECT shop.gross(10)", [(Decimal("12.00"),)]),
    ],
    "functions call functions, and none itself": [
        "CREATE FUNCTION once(x INT) RETURNS INT RETURN x + 1",
        "CREATE FUNCTION twice(x INT) RETURNS INT RETURN once(once(x)) + shop.once(0) * twice.x",
        ("SELECT twice(5)", [(12,)]),
        ("SELECT once(twice(once(1)))", [(7,)]),
        ("CREATE OR REPLACE FUNCTION once(x INT) RETURNS INT RETURN twice(x)", "names itself"),
        ("CREATE FUNCTION odd(x INT, x INT) RETURNS INT RETURN x", "two parameters 'x'"),
        "CREATE FUNCTION shop.later(x INT, y INT DEFAULT once(1)) RETURNS INT RETURN x * y",
        ("SELECT shop.later(3), shop.later(3, 1)", [(6, 3)]),
        ("CREATE OR REPLACE FUNCTION once(x INT) RETURNS INT RETURN later(x)", "names itself"),
        "DROP FUNCTION later",
        ("CREATE FUNCTION own(x INT) RETURNS INT RETURN shop.own(x)", "shop.own"),
        "CREATE OR REPLACE FUNCTION once(x INT) RETURNS INT RETURN x + 10",
        ("SELECT twice(0)", [(20,)]),
    ],
    "parameters are no columns, and arguments are values": [
        "CREATE FUNCTION label(id BIGINT, s STRING) RETURNS STRING RETURN concat(s, ':', id)",
        ("SELECT label(amount, state) FROM orders WHERE id = 2", [("paid:7",)]),
        "CREATE FUNCTION inner_x(xs ARRAY<INT>, x INT) RETURNS ARRAY<INT> RETURN transform(xs, y -> y + x)",
        ("SELECT inner_x(array(1, 2), 10)", [([11, 12],)]),
        "CREATE FUNCTION part(r STRUCT<a: INT, b: STRING>) RETURNS STRING RETURN concat(r.b, r.a)",
        ("SELECT part(named_struct('a', 1, 'b', 'x'))", [("x1",)]),
        "CREATE FUNCTION five() RETURNS INT RETURN 5",
        ("SELECT five() + five()", [(10,)]),
        "CREATE FUNCTION spread(x DOUBLE) RETURNS DOUBLE RETURN x - x",
        ("SELECT spread(1.5e0)", [(0.0,)]),
        ("SELECT spread(rand())", "each use of this argument would be another value"),
        "CREATE FUNCTION guessed(x INT) RETURN x / 2",
        ("SELECT guessed(3), typeof(guessed(3))", [(1.5, "double")]),
        ("SELECT five(1)", "it takes 0 (none)"),
    ],
    "a lambda of a function captures no name of its caller": [
        "CREATE FUNCTION has(a ARRAY<INT>, v INT) RETURN exists(a, e -> e = v)",
        "CREATE TABLE cap (e INT, arr ARRAY<INT>)",
        "INSERT INTO cap VALUES (5, array(1, 2)), (1, array(1, 2))",
        ("SELECT e, has(arr, e), has(arr, cap.e), has(arr, e + 0) FROM cap ORDER BY e", [
            (1, True, True, True), (5, False, False, False),
        ]),
        "CREATE FUNCTION plus(y INT) RETURN transform(array(1, 2), x -> x + y)",
        ("SELECT plus(x), plus(x + x_1) FROM (SELECT 5 AS x, 6 AS x_1)", [([6, 7], [12, 13])]),
        ("SELECT transform(array(5), x -> plus(x)[0]), transform(array(5), X -> plus(x)[0])", [([6], [6])]),
        "CREATE FUNCTION named(x INT) RETURN transform(array(1, 2), x -> x + 10 * named.x)",
        ("SELECT named(7)", [([71, 72],)]),
        "CREATE FUNCTION hidden(x INT) RETURN transform(array(1, 2), X -> x + 10)",
        ("SELECT hidden(7)", [([11, 12],)]),
        "CREATE FUNCTION of_field(x INT) RETURN transform(array(named_struct('x', 1)), E -> e.x + x)",
        ("SELECT of_field(e) FROM (SELECT 5 AS e)", [([6],)]),
        "CREATE FUNCTION nested(v INT) "
        "RETURN transform(array(1, 2), x -> aggregate(array(10), x, (a, x) -> a + x + v))",
        ("SELECT nested(x), nested(a) FROM (SELECT 5 AS x, 6 AS a)", [([16, 17], [17, 18])]),
        "CREATE FUNCTION calling(v INT) RETURN transform(array(1, 2), x -> plus(x)[0] + v)",
        ("SELECT calling(x), calling(plus(x)[0]) FROM (SELECT 5 AS x)", [([7, 8], [8, 9])]),
        "CREATE VIEW holding AS SELECT e FROM cap WHERE has(arr, e)",
        ("SELECT e FROM holding", [(1,)]),
        "UPDATE cap SET arr = plus(e) WHERE has(arr, e)",
        ("SELECT arr FROM cap WHERE e = 1", [([2, 3],)]),
        "DELETE FROM cap WHERE has(arr, e + 1)",
        ("SELECT e FROM cap", [(5,)]),
    ],
    "a name of Spark means Spark's function": [
        "CREATE FUNCTION abs(x INT) RETURNS INT RETURN 0 - 100",
        ("SELECT abs(-1), shop.abs(-1)", [(1, -100)]),
    ],
    "a function of the database default is no DEFAULT": [
        "CREATE FUNCTION default.ten(x INT) RETURN x * 10",
        "CREATE TABLE filled (id INT, s STRING DEFAULT 'x')",
        "INSERT INTO filled VALUES (default.ten(1), DEFAULT), (default.ten(2) + 1, 'y'), (DEFAULT, 'z')",
        ("SELECT id, s FROM filled ORDER BY s", [(10, "x"), (21, "y"), (None, "z")]),
        ("SELECT * FROM (VALUES (default.ten(1), 2)) AS v(a, b)", [(10, 2)]),
    ],
    "functions are listed and described": [
        "CREATE FUNCTION g(x INT) RETURNS INT RETURN x",
        "CREATE FUNCTION f(a INT, b STRING) RETURNS STRING COMMENT 'joins' NOT DETERMINISTIC RETURN concat(a, b)",
        ("SHOW FUNCTIONS", [("shop.f",), ("shop.g",)]),
        ("SHOW USER FUNCTIONS IN shop LIKE 'f*'", [("shop.f",)]),
        ("SHOW FUNCTIONS IN other", []),
        (
            "DESCRIBE FUNCTION EXTENDED f",
            [
                ("Function:      shop.f",),
                ("Type:          SCALAR",),
                ("Input:         a INT",),
                ("               b STRING",),
                ("Returns:       STRING",),
                ("Comment:       joins",),
                ("Deterministic: false",),
                ("Body:          concat(a, b)",),
            ],
        ),
        ("CREATE FUNCTION f(a INT) RETURNS INT RETURN a", "already exists"),
        "CREATE FUNCTION IF NOT EXISTS f(a INT) RETURNS INT RETURN a",
        "DROP FUNCTION f",
        ("DROP FUNCTION f", "no function 'shop.f'"),
        "DROP FUNCTION IF EXISTS f",
        ("SHOW FUNCTIONS", [("shop.g",)]),
        ("DESCRIBE FUNCTION f", "no function 'shop.f'"),
    ],
    "what no function can be": [
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN y + 1", "names 'y', which is no parameter. its parameters are x"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN sum(x)", "the aggregate sum"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN (SELECT max(id) FROM orders)", "a query"),
        ("CREATE FUNCTION f(x INT) RETURNS INT RETURN SELECT x", "a query is not supported"),
        ("CREATE FUNCTION f(x INT) RETURNS TABLE (a INT) RETURN x", "create a view"),
        ("CREATE FUNCTION f(x INT DEFAULT 1, y INT) RETURNS INT RETURN x", "'y' has no default"),
        ("CREATE FUNCTION f(x INT, y INT DEFAULT x) RETURNS INT RETURN x + y", "the default of parameter 'y'"),
        ("CREATE FUNCTION f(x INT, y INT DEFAULT amount) RETURNS INT RETURN x + y", "names 'amount'"),
        ("CREATE FUNCTION f(x INT DEFAULT (SELECT 1)) RETURNS INT RETURN x", "has a query"),
        ("CREATE FUNCTION f(x INT, X STRING) RETURNS INT RETURN 1", "differ only in case"),
        ("CREATE FUNCTION f AS 'com.shop.F'", "functions are expressions of sql here"),
        ("CREATE FUNCTION `a b`(x INT) RETURNS INT RETURN x", "letters, digits"),
        ("CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x", "temporary is not supported"),
        ("SHOW FUNCTIONS", []),
    ],
}  # fmt: skip


def run(steps: Sequence[Step], ask: Callable[[str], Rows]) -> None:
    """Run the steps of a case.

    Args:
        ask: runs a statement, and returns its rows.
    """
    for step in steps:
        match step:
            case str():
                ask(step)
            case (sql, str() as words):
                with pytest.raises(MerganserError) as raised:
                    ask(sql)
                assert words.lower() in str(raised.value).lower(), (sql, str(raised.value))
            case (sql, rows):
                assert ask(sql) == rows, sql
