"""More sessions of SQL statements, of what `vectors/sql.json` leaves open; each holds embedded and on Spark.

A step is a statement, and what it gives: nothing, rows in any order, or words of the message of its error.
"""

from __future__ import annotations

from typing import Any, Final

Step = str | tuple[str, list[list[Any]]] | tuple[str, str]

_PARTS: Final = (
    "CREATE TABLE t (id INT, p STRING, n INT) PARTITIONED BY (p, n)",
    "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 1), (3, 'b', 2)",
)
_PARTS_HELD: Final = ("SELECT * FROM t", [[1, "a", 1], [2, "b", 1], [3, "b", 2]])

SESSIONS: Final[dict[str, tuple[Step, ...]]] = {
    "rows-outside-of-partition-are-refused": (
        *_PARTS,
        ("INSERT OVERWRITE t PARTITION (p = 'a') VALUES (15, 'b', 1)", "has p = 'b'|(p = 'a')|nothing was written"),
        ("INSERT OVERWRITE t PARTITION (p = 'a', n = 1) VALUES (16, 'b', 1)", "outside|p = 'b'"),
        ("INSERT OVERWRITE t PARTITION (n = 1) VALUES (17, 'b', 2)", "has n = '2'|(n = '1')"),
        ("INSERT INTO t PARTITION (p = 'a') VALUES (18, 'a', 7), (18, NULL, 1)", "has p = null|outside"),
        ("INSERT INTO t PARTITION (p = 'a', n = 1) VALUES (19, 'b', 1)", "outside"),
        ("INSERT INTO t PARTITION (p = NULL, n = 1) VALUES (20, 'b', 1)", "(p = null)"),
        (
            "INSERT OVERWRITE t /*+ OPTIONS('dynamic-partition-overwrite' = 'false') */ PARTITION (p = 'a') "
            "VALUES (21, 'a', 1), (22, 'b', 1)",
            "outside",
        ),
        _PARTS_HELD,
        "INSERT OVERWRITE t PARTITION (P = 'b') VALUES (23, 'b', 2)",
        "INSERT INTO t PARTITION (p = 'c', n = '3') SELECT id, 'c', CAST(3L AS INT) FROM VALUES (24) AS v(id)",
        "INSERT INTO t PARTITION (p = NULL, n = NULL) VALUES (25, NULL, NULL)",
        "INSERT INTO t PARTITION (N = 4, p = 'd') VALUES (26)",
        ("SELECT * FROM t", [
            [1, "a", 1], [2, "b", 1], [23, "b", 2], [24, "c", 3], [25, None, None], [26, "d", 4],
        ]),
    ),
    "a-partition-is-replaced-by-nothing-only-if-asked": (
        *_PARTS,
        "INSERT OVERWRITE t PARTITION (p = 'a', n = 1) SELECT 1 WHERE false",
        "INSERT OVERWRITE t PARTITION (p = 'b') SELECT 1, 1 WHERE false",
        _PARTS_HELD,
        "INSERT OVERWRITE t /*+ OPTIONS('dynamic-partition-overwrite' = 'false') */ PARTITION (p = 'b') "
        "SELECT 1, 1 WHERE false",
        ("SELECT * FROM t", [[1, "a", 1]]),
    ),
    "values-of-partition-are-of-the-type": (
        "CREATE TABLE t (id INT, d DATE) PARTITIONED BY (d)",
        "INSERT INTO t PARTITION (d = '2026-01-02') VALUES (1)",
        ("INSERT INTO t PARTITION (d = 'nonsense') VALUES (2)", "'nonsense' is not a value of partition column 'd'"),
        ("INSERT INTO t PARTITION (d = '2026-01-02', D = '2026-01-03') VALUES (2)", "twice"),
        ("INSERT INTO t PARTITION (dd = '2026-01-02') VALUES (2)", "'dd' is not a partition column"),
        ("SHOW PARTITIONS t PARTITION (D = '2026-01-02')", [["d=2026-01-02"]]),
        "ALTER TABLE t PARTITION (D = '2026-01-02') COMPACT",
        ("SELECT * FROM t", [[1, "2026-01-02"]]),
        "TRUNCATE TABLE t PARTITION (D = DATE '2026-01-02')",
        ("SELECT * FROM t", []),
        ("ALTER TABLE t DROP PARTITION (D = '2026-01-02')", "no such partition"),
    ),
    "names-that-differ-only-in-case-are-refused": (
        ("CREATE TABLE t (id INT, ID INT)", "'ID' and 'id' differ only in case".lower()),
        ("CREATE TABLE t (id INT, r ROW<a INT, A INT>)", "'a' and 'a' differ only in case"),
        ("CREATE TABLE t (id INT, r ARRAY<MAP<INT, ROW<a INT, A INT>>>)", "differ only in case"),
        ("CREATE TABLE t AS SELECT 1 AS id, 2 AS ID", "differ only in case"),
        ("CREATE TABLE t AS SELECT named_struct('a', 1, 'A', 2) AS r", "differ only in case"),
        ("SHOW TABLES", []),
        "CREATE TABLE t (id INT, r ROW<a INT>, l ARRAY<ROW<a INT>>)",
        ("ALTER TABLE t ADD COLUMN ID INT", "'id' and 'id' differ only in case|nothing was changed"),
        ("ALTER TABLE t ADD COLUMNS (x INT, X INT)", "differ only in case"),
        ("ALTER TABLE t ADD COLUMN r.A INT", "differ only in case"),
        ("ALTER TABLE t ADD COLUMN l.element.A INT", "differ only in case"),
        ("ALTER TABLE t ADD COLUMN s ROW<x INT, X INT>", "differ only in case"),
        ("ALTER TABLE t RENAME COLUMN r TO Id", "differ only in case"),
        "ALTER TABLE t RENAME COLUMN id TO Id",
        "ALTER TABLE t ADD COLUMNS (A INT, r.b INT)",
        ("SHOW COLUMNS IN t", [["Id"], ["r"], ["l"], ["A"]]),
    ),
    "names-of-columns-match-in-any-case": (
        "CREATE TABLE t (Id INT, P STRING, v INT, r ROW<A INT, B INT>, PRIMARY KEY (id, p) NOT ENFORCED) "
        "PARTITIONED BY (p) WITH ('bucket' = '1', 'bucket-key' = 'ID', 'sequence.field' = 'V', "
        "'merge-engine' = 'partial-update', 'fields.V.default-value' = '7')",
        ("SELECT partition_keys, primary_keys FROM t$schemas", [['["P"]', '["Id", "P"]']]),
        "INSERT INTO t (ID, p, V) VALUES (1, 'a', 1)",
        "CREATE TABLE s WITH ('primary-key' = 'ID, p', 'partition' = 'p', 'bucket' = '1') AS SELECT Id, P FROM t",
        "CREATE TABLE u PARTITIONED BY (p) AS SELECT Id, P FROM t",
        "CREATE TABLE x (PRIMARY KEY (ID) NOT ENFORCED) AS SELECT Id, P FROM t",
        ("SELECT primary_keys FROM x$schemas", [['["Id"]']]),
        "CREATE TABLE w LIKE s WITH ('sequence.field' = 'ID')",
        ("SELECT partition_keys, primary_keys FROM s$schemas", [['["P"]', '["Id", "P"]']]),
        ("SELECT partition_keys, primary_keys FROM u$schemas", [['["P"]', "[]"]]),
        ("SELECT value FROM w$options WHERE key = 'sequence.field'", [["Id"]]),
        "ALTER TABLE u SET ('file-index.bloom-filter.columns' = 'ID,p')",
        ("SELECT value FROM u$options WHERE key = 'file-index.bloom-filter.columns'", [["Id,P"]]),
        "ALTER TABLE u ADD COLUMNS (x INT, y INT AFTER X)",
        "ALTER TABLE t ADD COLUMN R.c INT AFTER a",
        "ALTER TABLE t ALTER COLUMN R.b TYPE BIGINT",
        "ALTER TABLE u RENAME COLUMN X TO z",
        "ALTER TABLE u DROP COLUMN Y",
        ("SHOW COLUMNS IN u", [["Id"], ["P"], ["z"]]),
        ("CREATE TABLE n (Id INT, PRIMARY KEY (ix) NOT ENFORCED)", "'ix' is not a column"),
        ("ALTER TABLE u DROP COLUMN nope", "no column 'nope'"),
    ),
    "what-has-an-end-is-written-in-streaming-mode": (
        "CREATE TABLE t (id INT, p STRING)",
        "SET 'execution.runtime-mode' = 'streaming'",
        "INSERT INTO t VALUES (1, 'a')",
        "INSERT INTO t WITH x AS (SELECT 2 AS a) SELECT a, 'b' FROM x",
        "INSERT INTO t SELECT CAST(id AS INT), 'c' FROM range(3, 4)",
        ("SELECT count(*) FROM t$snapshots", [[3]]),
        ("INSERT OVERWRITE t VALUES (1, 'a')", "overwrite|streaming"),
        "SET 'execution.runtime-mode' = 'batch'",
        ("SELECT * FROM t", [[1, "a"], [2, "b"], [3, "c"]]),
    ),
    "options-of-a-session-have-values-that-fit": (
        ("SET timezone = 'Nope'", "cannot set 'timezone'|nope"),
        ("SET sql.timeout = 'soon'", "cannot set 'sql.timeout' to 'soon'|duration"),
        ("SET sql.max-rows = 'many'", "cannot set 'sql.max-rows' to 'many'|whole number"),
        "SET timezone = 'Africa/Cairo'",
        "CREATE TABLE t (id INT)",
        "INSERT INTO t VALUES (1)",
        ("SELECT * FROM t TIMESTAMP AS OF current_timestamp()", [[1]]),
        ("SELECT * FROM t TIMESTAMP AS OF '2001-01-01 00:00:00'", "had no snapshot at 200"),
    ),
    "what-is-not-understood-is-said-in-sql": (
        "CREATE TABLE t (id INT)",
        ("SELECT * FROM t VERSION AS OF", "line 1, column 28|expected a snapshot or a tag"),
        ("SELECT * FROM t TIMESTAMP AS OF WHERE id = 1", "expected a time behind of"),
        ("SELECT * FROM t WHERE", "line 1, column 22|expected an expression behind where; the statement ends"),
        ("SELECT *\nFROM t WHERE id =", "line 2, column 18|expected an expression behind ="),
        ("SELECT * FROM", "expected the name of a table behind from"),
        ("SELECT id, FROM t", "column 12|expected an expression behind the comma; found 'from'"),
        ("SELECT * FROM t GROUP id", "expected by behind group; found 'id'"),
        ("SELECT (id FROM t", "column 12|expected ); found 'from'"),
        ("SELECT * FROM (SELECT 1", "column 24|expected ); the statement ends"),
        ("SELECT CASE WHEN id = 1 THEN 1 FROM t", "column 32|expected end after case; found 'from'"),
        ("SELECT CAST(id AS) FROM t", "expected a type|found ')'"),
        ("SELECT id id2 id3 FROM t", "column 15|'id3' cannot stand here behind 'id2'"),
        ("SELECT * FROM t WHERE id BETWEEN 1", "expected and and a second value behind 1"),
        ("UPDATE t SET id = id + WHERE id = 1", "expected an expression behind +; found 'where'"),
        ("SELECT * FROM t FOR UPDATE", "rows are not locked"),
        ("SELECT * INTO u FROM t", "column 10|use insert into"),
        ("SELECT * FROM t LIMIT 1 BY id", "limit has no by"),
        ("SHOW TABLES LIKE 'u'", []),
    ),
    "an-item-that-a-list-lacks-is-said": (
        "CREATE TABLE t (id INT, n INT)",
        ("INSERT INTO t VALUES (1,,10)", "column 25|expected an expression behind the comma; found ','"),
        ("INSERT INTO t VALUES (,1)", "column 23|expected an expression behind (; found ','"),
        ("INSERT INTO t VALUES (1,2),,(3,4)", "column 28|expected an expression behind the comma"),
        ("INSERT INTO t VALUES ,(1,2)", "column 22|expected an expression behind values"),
        ("INSERT INTO t SELECT 3,,4", "column 24|expected an expression behind the comma"),
        ("INSERT INTO t SELECT , 3, 4", "column 22|expected an expression behind select"),
        ("SELECT * FROM t,,t b", "column 17|expected an expression behind the comma"),
        ("SELECT id FROM t ORDER BY , id", "expected an expression behind by"),
        ("DELETE FROM t WHERE id IN (1,,5)", "column 30|expected an expression behind the comma"),
        ("DELETE FROM t WHERE id IN 1", "column 24|expected values in brackets behind in"),
        ("SELECT coalesce(NULL,,1)", "column 22|expected an expression behind the comma"),
        ("SELECT * FROM t", []),
    ),
    "semi-and-anti-joins-by-names": (
        "CREATE TABLE t (k INT, a INT, PRIMARY KEY (k) NOT ENFORCED)",
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        "CREATE TABLE u (k INT)",
        "INSERT INTO u VALUES (1)",
        ("SELECT k FROM t LEFT SEMI JOIN u USING (k)", [[1]]),
        ("SELECT k FROM t LEFT ANTI JOIN u USING (k)", [[2], [3]]),
        (
            "SELECT k FROM t FULL JOIN (SELECT 7 AS k) s USING (k) LEFT ANTI JOIN (SELECT 1 AS j) ON k = j",
            [[2], [3], [7]],
        ),
        ("SELECT k FROM t JOIN t s USING (k) SEMI JOIN u USING (k)", [[1]]),
        ("SELECT k FROM t RIGHT SEMI JOIN u USING (k)", ""),
        "DELETE FROM t WHERE k IN (SELECT k FROM t LEFT SEMI JOIN u USING (k))",
        ("SELECT k FROM t", [[2], [3]]),
        "INSERT OVERWRITE t SELECT * FROM t LEFT ANTI JOIN (SELECT 3 AS k) s USING (k)",
        ("SELECT * FROM t", [[2, 2]]),
    ),
    "case-needs-no-brackets": (
        "CREATE TABLE t (k INT, a INT, PRIMARY KEY (k) NOT ENFORCED)",
        "INSERT INTO t VALUES (1, 3), (2, 1), (3, 0)",
        "MERGE INTO t USING (VALUES (1, 9), (3, 9), (4, 8)) AS x(k, a) ON t.k = x.k "
        "WHEN MATCHED AND CASE t.a WHEN 0 THEN true ELSE false END THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET a = CASE WHEN CASE WHEN t.a > 2 THEN 1 END = 1 THEN x.a ELSE 0 END "
        "WHEN NOT MATCHED THEN INSERT (k, a) VALUES (CASE WHEN x.a = 8 THEN x.k END, 1)",
        ("SELECT * FROM t", [[1, 9], [2, 1], [4, 1]]),
        "UPDATE t SET a = CASE WHEN k = 1 THEN 7 ELSE a END WHERE CASE WHEN k < 3 THEN true END",
        ("SELECT * FROM t", [[1, 7], [2, 1], [4, 1]]),
        ("UPDATE t SET a = (CASE WHEN k = 1 THEN 7 ELSE a) WHERE k = 1", "expected end after case; found ')'"),
    ),
    "a-table-made-by-a-query-has-its-key": (
        "CREATE TABLE t (PRIMARY KEY (id) NOT ENFORCED) AS SELECT 1 AS id, 2 AS n UNION ALL SELECT 1, 2",
        ("SELECT * FROM t", [[1, 2]]),
        ("SHOW CREATE TABLE t", [[
            "CREATE TABLE `default`.`t` (\n  `id` INT NOT NULL,\n  `n` INT,\n  PRIMARY KEY (`id`) NOT ENFORCED\n)",
        ]]),
        ("CREATE TABLE u (PRIMARY KEY (other) NOT ENFORCED) AS SELECT 1 AS id", "'other' is not a column"),
        ("CREATE TABLE u (PRIMARY KEY (id) NOT ENFORCED) AS SELECT CAST(NULL AS INT) AS id", "is null"),
        ("CREATE TABLE u (PRIMARY KEY (id) NOT ENFORCED) LIKE t", "of that table; leave yours out"),
        ("CREATE TABLE u (a INT) LIKE t", "of that table; leave yours out"),
        ("SHOW TABLES LIKE 'u'", []),
    ),
    "advice-is-sql": (
        "CREATE TABLE t (id INT)",
        ("CREATE TABLE t (id INT)", "already exists. choose another name, or write if not exists"),
        ("CREATE DATABASE default", "or write if not exists"),
        ("DROP DATABASE default", "has 1 table|or write cascade"),
        ("CREATE TABLE nowhere.t (id INT)", "create database nowhere creates it"),
        "DROP DATABASE default CASCADE",
        ("SELECT * FROM t", "no database 'default'. the catalog has none yet"),
        ("CREATE TABLE t (id INT)", "create database default creates it"),
    ),
    "values-that-cannot-be-stored-name-the-column": (
        "CREATE TABLE t (id INT, d DATE)",
        ("INSERT INTO t VALUES (1, 'x')", "cannot write column 'd'|'value 2' (string)|nothing was written"),
        ("INSERT INTO t SELECT 1, true AS b", "cannot write column 'd'|'b' (boolean)|nothing was written"),
        ("INSERT INTO t VALUES (1)", "gives 1 column|nothing was written"),
        ("SELECT * FROM t", []),
    ),
    "numbers-that-do-not-fit-name-the-column": (
        "CREATE TABLE t (id BIGINT, n TINYINT, m INT, d DECIMAL(4, 2), PRIMARY KEY (id) NOT ENFORCED)",
        *(
            (f"INSERT {rest}", f"cannot write column '{words}|the value does not fit the type|nothing was written")
            for rest, words in (
                ("INTO t (id, n) VALUES (1, 1), (2, 300)", "n': cannot cast '300' as tinyint"),
                ("OVERWRITE t (id, n) VALUES (1, -129)", "n': cannot cast '-129' as tinyint"),
                ("INTO t (id, n) SELECT id, id * 200 FROM range(3)", "n': cannot cast '200' as tinyint"),
                ("INTO t (id, m, n) SELECT 1, 300, CAST(400 AS INT)", "n': cannot cast '400' as tinyint"),
                ("INTO t (id, m) VALUES (1, 3000000000)", "m': cannot cast '3000000000' as int"),
                ("INTO t (id, m) VALUES (1, CAST('NaN' AS DOUBLE))", "m': cannot cast 'nan' as int"),
                ("INTO t (id, d) VALUES (1, 123.5)", "d': cannot cast '123.5' as decimal(4, 2)"),
                ("INTO t (id, d) VALUES (1, 99.999)", "d': cannot cast '|as decimal(4, 2)"),
                ("INTO t (id, d) VALUES (1, 100)", "d': cannot cast '100' as decimal(4, 2)"),
            )
        ),
        ("SELECT * FROM t", []),
        "INSERT INTO t VALUES (1, 127, 2147483647, 99.994), (2, NULL, NULL, NULL), (3, -128, 1.5, -99.99)",
        ("SELECT * FROM t", [
            [1, 127, 2147483647, "99.99"], [2, None, None, None], [3, -128, 1, "-99.99"],
        ]),
        "CREATE TABLE u (id INT, a ARRAY<TINYINT>, m MAP<SMALLINT, DECIMAL(3, 1)>, r ROW<x INT, y TINYINT>)",
        ("INSERT INTO u (id, a) VALUES (1, array(1, 2, 300))", "column 'a': cannot cast '300' as tinyint|nothing was"),
        ("INSERT INTO u (id, m) VALUES (1, map(70000, 1.5))", "column 'm': cannot cast '70000' as smallint"),
        ("INSERT INTO u (id, m) VALUES (1, map(7, 100.5))", "column 'm': cannot cast '100.5' as decimal(3, 1)"),
        ("INSERT INTO u (id, r) VALUES (1, struct(300, 400))", "column 'r': cannot cast '400' as tinyint"),
        "INSERT INTO u VALUES (1, array(1, NULL), map(7, 99.5), struct(300, 40)), (2, NULL, NULL, NULL)",
        ("SELECT id, a[0], m[7], r.y FROM u", [[1, 1, "99.5", 40], [2, None, None, None]]),
    ),
    "errors-of-an-insert-name-the-value-of-values": (
        "CREATE TABLE t (id INT, n INT, d DATE)",
        ("INSERT INTO t (id, n) VALUES (1, 1), (2, 'x')",
         "cannot write column 'n': value 2 of row 2 is 'x' (string), and the values above it are int|nothing was writ"),
        ("INSERT INTO t (id, d) VALUES (1, DATE '2026-01-01'), (2, NULL), (3, 'x'), (4, 'y')",
         "column 'd': value 2 of row 3 is 'x' (string), and the values above it are date|nothing was written"),
        ("INSERT INTO t VALUES (1, 1, NULL), (2, 1/0, NULL)",
         "cannot write column 'n': value 2 of row 2: division by zero. nothing was written"),
        ("INSERT INTO t (d, n) VALUES (NULL, cast('q' as int))",
         "cannot write column 'n': value 2 of row 1: cannot cast 'q' to int. nothing was written"),
        ("INSERT INTO t (id, n) VALUES (1, 2), (2)",
         "row 2 of values has 1 value, and the first one has 2. nothing was written"),
        ("INSERT INTO t (id, n) SELECT id, 1 / (id - id) FROM range(3)", "division by zero|nothing was written"),
        ("INSERT INTO t (id, n) SELECT 1, cast('q' as int)", "cannot cast 'q' to int|nothing was written"),
        ("INSERT INTO t (id, nn) VALUES (1, 2)", "no column 'nn'. nothing was written. choose from 'id'"),
        ("INSERT INTO t (id, id) VALUES (1, 2)", "'id' is named twice. nothing was written"),
        ("INSERT INTO t (id, n) SELECT 1, nope FROM t", "nope|nothing was written"),
        ("UPDATE t SET n = (SELECT max(nope) FROM t)", "nope|nothing was written"),
        ("DELETE FROM t WHERE id IN (SELECT nope FROM t)", "nope|nothing was written"),
        ("MERGE INTO t USING (SELECT nope FROM t) s ON t.id = s.nope WHEN MATCHED THEN DELETE", "nope|nothing was wri"),
        ("CREATE TABLE u AS SELECT 1 / 0 AS x", "division by zero|nothing was created"),
        ("SHOW TABLES LIKE 'u'", []),
        ("SELECT * FROM t", []),
    ),
    **{
        f"aggregates-are-not-set-{name}": (
            f"CREATE TABLE t (k INT, a INT{key})",
            "INSERT INTO t VALUES (1, 2), (2, 5)",
            *(
                (statement, f"column 'a' cannot get {called}: aggregate functions are not allowed in set|nothing was")
                for statement, called in (
                    ("UPDATE t SET a = max(a)", "max(a)"),
                    ("UPDATE t SET k = k, a = 1 + COUNT(*) WHERE k = 1", "count(*)"),
                    ("MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = sum(s.k)",
                     "sum(s.k)"),
                )
            ),
            "UPDATE t SET a = (SELECT max(a) FROM t) WHERE k = 1",
            "UPDATE t SET a = max(a) OVER () + 1 WHERE k = 2",
            ("SELECT * FROM t", [[1, 5], [2, 6]]),
        )
        for name, key in (("key", ", PRIMARY KEY (k) NOT ENFORCED"), ("no-key", ""))
    },
    "a-consumer-is-not-set-beyond-what-comes-next": (
        "CREATE TABLE t (id INT)",
        "INSERT INTO t VALUES (1)",
        ("CALL sys.reset_consumer('default.t', 'd', 99)", "next_snapshot is 99|the newest snapshot is 1|give 2"),
        ("SELECT consumer_id FROM t$consumers", []),
        "CALL sys.reset_consumer('default.t', 'd', 2)",
        ("SELECT consumer_id, next_snapshot_id FROM t$consumers", [["d", 2]]),
    ),
    **{
        f"changes-by-a-query-take-two-zeros-for-two-keys-{name}": (
            f"CREATE TABLE t (d {kind}, v INT, PRIMARY KEY (d) NOT ENFORCED){options}",
            f"INSERT INTO t SELECT CAST(d AS {kind}), v FROM VALUES (0.0D, 1), (-0.0D, 2), (5D, 3), "
            "(CAST('NaN' AS DOUBLE), 4) AS x(d, v)",
            "UPDATE t SET v = v * 10 WHERE v = (SELECT 2)",
            "UPDATE t SET v = v * 100 WHERE v IN (SELECT 1 UNION ALL SELECT 20)",
            ("SELECT v FROM t", [[100], [2000], [3], [4]]),
            "DELETE FROM t WHERE v IN (SELECT 100)",
            "DELETE FROM t WHERE v IN (SELECT 4)",
            ("SELECT v FROM t", [[2000], [3]]),
            f"INSERT INTO t VALUES (CAST(0.0D AS {kind}), 1)",
            f"DELETE FROM t WHERE d IN (SELECT CAST(0.0D AS {kind}))",
            ("SELECT v FROM t", [[3]]),
        )
        for name, kind, options in (
            ("lookup", "DOUBLE", " WITH ('bucket' = '1')"), ("float", "FLOAT", ""),
            ("partial", "DOUBLE", " WITH ('bucket' = '1', 'merge-engine' = 'partial-update')"),
        )
    },
    **{
        f"fields-of-rows-are-stored-by-name-where-spark-does-{name}": (
            f"CREATE TABLE t (id INT, r ROW<a INT, b INT>, l ARRAY<ROW<a INT, b INT>>, m MAP<INT, ROW<a INT, "
            f"s ROW<b INT, c STRING>>>{key}){options}",
            "INSERT INTO t BY NAME SELECT named_struct('b', 1, 'a', 2) AS r, 2 AS id",
            "INSERT INTO t (id, r) VALUES (3, named_struct('b', 1, 'a', 2))",
            "INSERT INTO t SELECT 4, named_struct('b', 1, 'a', NULL), NULL, NULL",
            ("SELECT id, r.a, r.b FROM t", [[2, 2, 1], [3, 1, 2], [4, 1, None]]),
            "UPDATE t SET r = named_struct('B', id, 'a', NULL) WHERE id < 4",
            ("SELECT id, r.a, r.b FROM t", [[2, None, 2], [3, None, 3], [4, 1, None]]),
            "UPDATE t SET r = (SELECT named_struct('b', 1, 'a', 2)), l = array(named_struct('b', 10, 'a', 2), NULL), "
            "m = map(7, named_struct('s', named_struct('c', 'x', 'b', 8), 'a', 9), 8, NULL) WHERE id = 2",
            "UPDATE t SET r = NULL, l = array(), m = map() WHERE id = 3",
            "INSERT INTO t BY NAME SELECT 5 AS id, CAST(NULL AS STRUCT<b: INT, a: INT>) AS r, "
            "array(named_struct('b', 1, 'a', 300L)) AS l",
            ("SELECT id, r.a, r.b, l, m FROM t", [
                [2, 2, 1, [[2, 10], None], [[7, [9, [8, "x"]]], [8, None]]], [3, None, None, [], []],
                [4, 1, None, None, None], [5, None, None, [[300, 1]], None],
            ]),
            ("SELECT id FROM t WHERE r IS NULL", [[3], [5]]),
            *(
                (statement, f"cannot write column 'r'|{given}, the column a, b|by their names|nothing was written")
                for statement, given in (
                    ("UPDATE t SET r = named_struct('b', 1, 'c', 2)", "has the fields b, c"),
                    ("UPDATE t SET r = named_struct('b', 1)", "has the fields b"),
                    ("UPDATE t SET r = struct(1, 2)", "has the fields col1, col2"),
                    ("INSERT INTO t BY NAME SELECT 9 AS id, named_struct('a', 1, 'b', 2, 'c', 3) AS r", "a, b, c"),
                )
            ),
            ("SELECT count(*) FROM t", [[4]]),
        )
        for name, key, options in (("key", ", PRIMARY KEY (id) NOT ENFORCED", ""), ("no-key", "", ""))
    },
    "changes-by-a-query-find-keys-that-are-null": (
        "CREATE TABLE t (k INT, j INT, v INT, PRIMARY KEY (k, j) NOT ENFORCED) "
        "WITH ('bucket' = '1', 'primary-key.nullable' = 'true')",
        "INSERT INTO t VALUES (NULL, 1, 1), (NULL, NULL, 2), (1, NULL, 3), (1, 1, 4)",
        "UPDATE t SET v = v * 10 WHERE v IN (SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4)",
        ("SELECT v FROM t", [[1], [20], [30], [40]]),
        "DELETE FROM t WHERE v IN (SELECT 1 UNION ALL SELECT 20)",
        ("SELECT v FROM t", [[30], [40]]),
    ),
    "new-rows-of-one-key-are-refused-in-any-partition": (
        "CREATE TABLE t (k INT, p INT, a INT, PRIMARY KEY (k) NOT ENFORCED) PARTITIONED BY (p)",
        ("MERGE INTO t USING (VALUES (7, 1, 4), (7, 2, 5)) AS x(k, p, a) ON t.k = x.k WHEN NOT MATCHED THEN INSERT *",
         "1 new row would have the key of another one (k = 7)|nothing was written"),
        ("SELECT * FROM t", []),
    ),
}  # fmt: skip


def sessions() -> list[dict[str, Any]]:
    """Return the sessions in the shape of `vectors/sql.json`."""
    return [
        {"name": name, "faces": ("embedded", "spark"), "steps": [_step(step) for step in steps]}
        for name, steps in SESSIONS.items()
    ]


def _step(step: Step) -> dict[str, Any]:
    match step:
        case (sql, str(words)):
            return {"sql": sql, "error": words.split("|")}
        case (sql, rows):
            return {"sql": sql, "rows": rows}
    return {"sql": step}
