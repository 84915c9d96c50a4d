"""The statements as people look them up: syntax, meaning and an example. The reference page is made of this table."""

from __future__ import annotations

from typing import Final

from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """One statement.

    Attributes:
        example: statements that run after those of the forms before; a comment behind one names its rows.
    """

    group: str
    name: str
    syntax: str
    about: str
    example: str


_D, _T, _A, _R, _Q, _S = "Databases", "Tables", "Changes of a table", "Rows", "Queries", "Session"
_V: Final = "Views and functions"
NOTES: Final = {
    _V: "These examples need a catalog that holds views and functions: one of an SQL database or of a server, as "
    "[catalogs](../catalogs.md#views-and-functions) tells. In a warehouse that is a directory, they are refused.",
}
"""What the reference says of all statements of a group."""

FORMS: Final[tuple[Form, ...]] = (
    Form(
        _D, "CREATE DATABASE", "CREATE {DATABASE | SCHEMA} [IF NOT EXISTS] name",
        "Creates a database.",
        "CREATE DATABASE shop;",
    ),
    Form(
        _D, "DROP DATABASE", "DROP {DATABASE | SCHEMA} [IF EXISTS] name [RESTRICT | CASCADE]",
        "Removes a database. Without CASCADE, it must have no tables.",
        "CREATE DATABASE old;\nDROP DATABASE old;",
    ),
    Form(
        _D, "USE", "USE [DATABASE | SCHEMA] name",
        "Sets the database of names without one, for the rest of the session. It begins as `default`.",
        "USE shop;\nSELECT current_database(); -- shop",
    ),
    Form(
        _T, "CREATE TABLE",
        "CREATE TABLE [IF NOT EXISTS] name (\n"
        "  column type [NOT NULL] [DEFAULT literal] [COMMENT 'text'], ...\n"
        "  [, PRIMARY KEY (column, ...) NOT ENFORCED]\n"
        ") [USING {paimon | merganser}] [COMMENT 'text'] [PARTITIONED BY (column, ...)]\n"
        "[{WITH | TBLPROPERTIES | OPTIONS} ('key' = 'value', ...)]",
        "Creates a table. The [types](../casts.md) are those of the format. The key can stand in the options "
        "(`'primary-key'`) instead. Options of the session that begin with `table-storage.` are added.",
        "CREATE TABLE orders (\n  id BIGINT,\n  dt STRING,\n  amount DECIMAL(10, 2) COMMENT 'in euros',\n"
        "  state STRING DEFAULT 'new',\n  PRIMARY KEY (dt, id) NOT ENFORCED\n"
        ") PARTITIONED BY (dt) WITH ('bucket' = '2');",
    ),
    Form(
        _T, "CREATE TABLE ... LIKE",
        "CREATE TABLE [IF NOT EXISTS] name LIKE other [(EXCLUDING OPTIONS)] [WITH (...)]",
        "Creates a table with the columns, key, partitions, options and comment of another one, and without its rows.",
        "CREATE TABLE drafts LIKE orders;",
    ),
    Form(
        _T, "CREATE TABLE ... AS",
        "CREATE TABLE [IF NOT EXISTS] name [PARTITIONED BY (...)] [WITH (...)] AS query",
        "Creates a table with the columns and the rows of a query: it is there with all rows, or not at all. "
        "`'primary-key'` and `'partition'` in the "
        "options name "
        "its key and its partitions.",
        "CREATE TABLE numbers AS SELECT 1 AS n UNION ALL SELECT 2;",
    ),
    Form(
        _T, "DROP TABLE", "DROP TABLE [IF EXISTS] name",
        "Removes a table and its files.",
        "DROP TABLE numbers;",
    ),
    Form(
        _T, "SHOW", "SHOW {DATABASES | SCHEMAS} [LIKE 'pattern']\nSHOW TABLES [{IN | FROM} database] [LIKE 'pattern']\n"
        "SHOW PARTITIONS name [PARTITION (column = value, ...)]\nSHOW COLUMNS {IN | FROM} name\nSHOW TAGS name\n"
        "SHOW TBLPROPERTIES name [('key')]\nSHOW CREATE {TABLE | VIEW} name",
        "Lists what there is. In patterns, `*` is any text and `|` separates alternatives.",
        "SHOW TABLES LIKE 'o*'; -- shop | orders | false",
    ),
    Form(
        _T, "DESCRIBE",
        "{DESCRIBE | DESC} [TABLE] [EXTENDED] name [column]\nDESCRIBE DETAIL [TABLE] name [PARTITION (...)]",
        "Lists the columns, or tells about one of them. EXTENDED adds the key, the options and the path. DETAIL gives "
        "one row about the files of the table or of one partition.",
        "DESCRIBE orders amount; -- col_name | amount; data_type | DECIMAL(10, 2); comment | in euros",
    ),
    Form(
        _A, "ALTER TABLE ... SET, RESET",
        "ALTER TABLE name [PARTITION (column = value, ...)] SET [TBLPROPERTIES] ('key' = 'value', ...)\n"
        "ALTER TABLE name RESET ('key', ...)",
        "Sets [options](options.md), or goes back to their defaults. `comment` is the comment of the table. For a "
        "partition, only `'change-tracking'` can be set.",
        "ALTER TABLE orders SET ('snapshot.num-retained.max' = '50');\n"
        "ALTER TABLE orders RESET ('snapshot.num-retained.max');",
    ),
    Form(
        _A, "ALTER TABLE ... ADD, DROP, RENAME a column",
        "ALTER TABLE name ADD [COLUMN | COLUMNS] (column type [COMMENT 'text'] [FIRST | AFTER other], ...)\n"
        "ALTER TABLE name DROP [COLUMN | COLUMNS] [IF EXISTS] column\n"
        "ALTER TABLE name RENAME [COLUMN] column TO new_name",
        "Changes the columns. `a.b` names a field of a ROW, `a.element` the elements of an ARRAY and "
        "`a.value` the values "
        "of a MAP. See [changes of a schema](../schemas.md).",
        "ALTER TABLE orders ADD COLUMN notes STRING;\nALTER TABLE orders RENAME COLUMN notes TO note;\n"
        "ALTER TABLE orders DROP COLUMN note;",
    ),
    Form(
        _A, "ALTER TABLE ... ALTER COLUMN, MODIFY",
        "ALTER TABLE name ALTER [COLUMN] column {TYPE type | SET NOT NULL | DROP NOT NULL | SET DEFAULT literal |\n"
        "  DROP DEFAULT | COMMENT 'text' | FIRST | AFTER other}\n"
        "ALTER TABLE name MODIFY column type [FIRST | AFTER other]",
        "Changes one column. TYPE keeps NOT NULL; MODIFY sets both type and nullability.",
        "ALTER TABLE orders ALTER COLUMN amount TYPE DECIMAL(12, 2);\n"
        "ALTER TABLE orders ALTER COLUMN state SET DEFAULT 'open';",
    ),
    Form(
        _A, "ALTER TABLE ... RENAME TO", "ALTER TABLE name RENAME TO new_name",
        "Renames the table.",
        "ALTER TABLE drafts RENAME TO ideas;\nDROP TABLE ideas;",
    ),
    Form(
        _A, "ALTER TABLE ... ADD PRIMARY KEY", "ALTER TABLE name ADD PRIMARY KEY (column, ...) NOT ENFORCED",
        "Gives an append table a key. Rows that share a key are an error.",
        "CREATE TABLE log (id INT, line STRING);\nINSERT INTO log VALUES (1, 'a'), (2, 'b');\n"
        "ALTER TABLE log ADD PRIMARY KEY (id) NOT ENFORCED;",
    ),
    Form(
        _A, "ALTER TABLE ... COMPACT, CLUSTERED INTO",
        "ALTER TABLE name [PARTITION (...)] COMPACT\nALTER TABLE name [PARTITION (...)] CLUSTERED INTO n BUCKETS",
        "Compacts in full, or changes the number of [buckets](../buckets.md).",
        "ALTER TABLE orders COMPACT;\nALTER TABLE orders CLUSTERED INTO 4 BUCKETS;",
    ),
    Form(
        _A, "ALTER TABLE ... DROP PARTITION", "ALTER TABLE name DROP [IF EXISTS] PARTITION (column = value, ...), ...",
        "Removes the rows of partitions. A spec may name the first partition columns alone.",
        "INSERT INTO orders VALUES (9, '2025-12-31', 1.00, 'old');\n"
        "ALTER TABLE orders DROP PARTITION (dt = '2025-12-31');",
    ),
    Form(
        _A, "Tags",
        "ALTER TABLE name CREATE [OR REPLACE] TAG [IF NOT EXISTS] tag [AS OF VERSION snapshot] [RETAIN n "
        "{DAYS | HOURS}]\n"
        "ALTER TABLE name REPLACE TAG tag [AS OF VERSION snapshot] [RETAIN n {DAYS | HOURS}]\n"
        "ALTER TABLE name RENAME TAG tag TO new_tag\nALTER TABLE name DELETE TAG [IF EXISTS] tag",
        "Names snapshots. A [tag](../snapshots.md) keeps its snapshot.",
        "ALTER TABLE orders CREATE TAG empty RETAIN 7 DAYS;\nSHOW TAGS orders; -- empty",
    ),
    Form(
        _A, "ANALYZE TABLE", "ANALYZE TABLE name COMPUTE STATISTICS [FOR {ALL COLUMNS | COLUMNS column, ...}]",
        "Counts rows and values, and commits the result as a snapshot. `$statistics` shows it.",
        "ANALYZE TABLE log COMPUTE STATISTICS FOR ALL COLUMNS;\nSELECT mergedRecordCount FROM log$statistics; -- 2",
    ),
    Form(
        _R, "INSERT",
        "[WITH ...] INSERT INTO name [/*+ OPTIONS(...) */] [PARTITION (column [= value], ...)] [BY NAME]\n"
        "  [(column, ...)] {VALUES (...), ... | query}\n"
        "[WITH ...] INSERT OVERWRITE name [/*+ OPTIONS(...) */] [PARTITION (column [= value], ...)] [(column, ...)]\n"
        "  {VALUES (...), ... | query}",
        "Writes rows as one commit; for a table with a key, rows with the same key replace or "
        "[merge](../engines/README.md) "
        "into the row there. NULL, DEFAULT and a missing column take the default. OVERWRITE replaces the "
        "table, or of a "
        "table with partitions those that occur in the rows: no rows replace nothing. With the option "
        "`dynamic-partition-overwrite` = `false`, it replaces all partitions that PARTITION names, also by no "
        "rows. A table with partitions whose key lacks a partition column is replaced as a whole only, with this "
        "option and without PARTITION, because a key may lie in any partition. The rows have all columns but those "
        "to which PARTITION gives a value, or all columns; a row outside of PARTITION is an error.",
        "INSERT INTO orders (id, dt, amount) VALUES (1, '2026-01-01', 10.00), (2, '2026-01-01', 7.50);\n"
        "INSERT INTO orders VALUES (3, '2026-01-02', 5.00, 'paid');\n"
        "SELECT id, state FROM orders ORDER BY id; -- 1 | open; 2 | open; 3 | paid",
    ),
    Form(
        _R, "UPDATE", "[WITH ...] UPDATE name [AS alias] SET column = expression, ... [WHERE condition]",
        "Changes rows. A column may be a field of a ROW. Key and partition columns cannot be changed.",
        "UPDATE orders SET state = 'paid', amount = amount + 1 WHERE id = 1;",
    ),
    Form(
        _R, "DELETE", "[WITH ...] DELETE FROM name [AS alias] [WHERE condition]",
        "Deletes rows. The condition may have subqueries.",
        "DELETE FROM orders WHERE id IN (SELECT max(id) FROM orders);",
    ),
    Form(
        _R, "MERGE",
        "[WITH ...] MERGE INTO name [AS alias] USING {table | (query)} [AS alias] ON condition\n"
        "  WHEN MATCHED [AND condition] THEN {UPDATE SET {* | column = expression, ...} | DELETE}\n"
        "  WHEN NOT MATCHED [BY TARGET] [AND condition] THEN INSERT {* | (column, ...) VALUES (expression, ...)}\n"
        "  WHEN NOT MATCHED BY SOURCE [AND condition] THEN {UPDATE SET ... | DELETE}",
        "Changes a table by the rows of another one. Of the WHENs, the first that fits a row is applied. See "
        "[delete, update, merge](../dml.md).",
        "MERGE INTO orders AS o USING (VALUES (1, 20.00), (4, 3.00)) AS s(id, amount) ON o.id = s.id\n"
        "  WHEN MATCHED THEN UPDATE SET amount = s.amount\n"
        "  WHEN NOT MATCHED THEN INSERT (id, dt, amount) VALUES (s.id, '2026-01-03', s.amount);\n"
        "SELECT id, amount FROM orders ORDER BY id; -- 1 | 20.00; 2 | 7.50; 4 | 3.00",
    ),
    Form(
        _R, "TRUNCATE", "TRUNCATE TABLE name [PARTITION (column = value, ...)]",
        "Removes all rows of a table or of a partition.",
        "TRUNCATE TABLE log;",
    ),
    Form(
        _Q, "SELECT",
        "[WITH name AS (query), ...] SELECT ... FROM ... [WHERE ...] [GROUP BY ...] [HAVING ...] [ORDER BY "
        "...] [LIMIT n]\nTABLE name\nFROM ... SELECT ...",
        "Spark's SELECT: joins, subqueries, set operations, window functions, grouping sets. A condition "
        "that names whole "
        "keys is a lookup.",
        "SELECT dt, count(*) AS n, sum(amount) AS total FROM orders GROUP BY dt ORDER BY dt; -- 2026-01-01 | "
        "2 | 27.50; 2026-01-03 | 1 | 3.00",
    ),
    Form(
        _Q, "Time travel",
        "SELECT ... FROM name {VERSION AS OF {snapshot | 'tag'} | TIMESTAMP AS OF time}",
        "Reads a table as it was. A tag is looked for before a snapshot. A time is text, seconds since 1970, or an "
        "expression.",
        "SELECT count(*) FROM orders VERSION AS OF 'empty'; -- 0",
    ),
    Form(
        _Q, "Hints", "SELECT ... FROM name /*+ OPTIONS('key' = 'value', ...) */",
        "Sets [options](options.md) for one reference to a table, such as the snapshots whose changes are read.",
        "SELECT count(*) FROM orders /*+ OPTIONS('scan.snapshot-id' = '1') */; -- 1",
    ),
    Form(
        _Q, "System tables and branches", "SELECT ... FROM name$snapshots\nSELECT ... FROM name$branch_b",
        "A name with `$` is a [system table](../observing.md), a view, or a branch of a table.",
        "SELECT count(*) > 0 FROM orders$files; -- true",
    ),
    Form(
        _Q, "EXPLAIN", "EXPLAIN statement",
        "Tells what a statement would read and skip, with bytes, and runs nothing.",
        "EXPLAIN SELECT id FROM orders WHERE dt = '2026-01-01';",
    ),
    Form(
        _V, "CREATE VIEW",
        "CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name [(column [COMMENT 'text'], ...)] [COMMENT 'text']\n"
        "  [TBLPROPERTIES ('key' = 'value', ...)] AS query",
        "Creates a [view](../sql.md#views): a query with a name, which runs when the view is read. Catalogs of an SQL "
        "database and of a server hold views.",
        "CREATE VIEW paid (id, euros COMMENT 'with tax') AS SELECT id, amount FROM orders WHERE state = 'paid';\n"
        "SELECT count(*) FROM paid; -- 1",
    ),
    Form(
        _V, "ALTER VIEW",
        "ALTER VIEW name AS query\nALTER VIEW name RENAME TO new_name\n"
        "ALTER VIEW name SET TBLPROPERTIES ('key' = 'value', ...)\n"
        "ALTER VIEW name UNSET TBLPROPERTIES [IF EXISTS] ('key', ...)",
        "Replaces the query, renames the view, or changes its properties. `comment` is its comment.",
        "ALTER VIEW paid SET TBLPROPERTIES ('comment' = 'of this year');\nALTER VIEW paid AS SELECT id FROM orders;\n"
        "SELECT count(*) FROM paid; -- 3",
    ),
    Form(
        _V, "DROP VIEW", "DROP VIEW [IF EXISTS] name",
        "Removes a view. The tables that it reads stay.",
        "DROP VIEW paid;",
    ),
    Form(
        _V, "CREATE FUNCTION",
        "CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] name ([parameter type [DEFAULT expression], ...])\n"
        "  [RETURNS type] [COMMENT 'text'] [[NOT] DETERMINISTIC] RETURN expression",
        "Creates a [function](../sql.md#functions-of-users): an expression over its parameters.",
        "CREATE FUNCTION gross(net DECIMAL(10, 2), rate INT DEFAULT 20) RETURNS DECIMAL(12, 2)\n"
        "  RETURN net * (100 + rate) / 100;\nSELECT gross(10), shop.gross(10, 0); -- 12.00 | 10.00",
    ),
    Form(
        _V, "DROP FUNCTION", "DROP FUNCTION [IF EXISTS] name",
        "Removes a function. Views that call it fail afterwards.",
        "DROP FUNCTION IF EXISTS net;",
    ),
    Form(
        _V, "SHOW VIEWS, SHOW FUNCTIONS, DESCRIBE FUNCTION",
        "SHOW VIEWS [{IN | FROM} database] [LIKE 'pattern']\n"
        "SHOW [USER | ALL] FUNCTIONS [{IN | FROM} database] [LIKE 'pattern']\n"
        "{DESCRIBE | DESC} FUNCTION [EXTENDED] name",
        "Lists views, and functions of the catalog, or describes a function. SHOW TABLES lists views too; DESCRIBE, "
        "SHOW COLUMNS, SHOW TBLPROPERTIES and SHOW CREATE take the name of a view.",
        "SHOW FUNCTIONS; -- shop.gross",
    ),
    Form(
        _S, "SET, RESET", "SET [key [= value]]\nRESET [key]",
        "Sets an option of the session: `timezone`, `execution.runtime-mode`, `sql.timeout`, `sql.max-rows`, "
        "`sql.memory`, `table-storage.<option>` for tables that are created later, and "
        "`spark.paimon.[catalog.database.table.]<option>` "
        "for reads.",
        "SET timezone = 'Europe/Berlin';\nRESET timezone;",
    ),
    Form(
        _S, "CALL", "CALL sys.procedure(value, ...)\nCALL sys.procedure(argument => value, ...)",
        "Runs maintenance; see [Procedures](#procedures).",
        "CALL sys.expire_snapshots(table => 'shop.orders', retain_max => 20); -- 0",
    ),
)  # fmt: skip
"""All statements, in the order of the reference page."""
