"""CREATE and ALTER of views, and CREATE FUNCTION, in the forms of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from merganser.sql import statements as s
from merganser.sql.tokens import opens_parameter
from merganser.sql.trees import option_key, option_pairs

if TYPE_CHECKING:
    from sqlglot import exp

    from merganser.sql.parse import Reader


def create_view(reader: Reader, *, replace: bool) -> s.Statement:
    """Take what follows CREATE VIEW."""
    absent = reader.if_not_exists()
    if replace and absent:
        reader.fail("OR REPLACE and IF NOT EXISTS exclude each other")
    name = reader.dotted("the name of a view")
    columns: list[tuple[str, str | None]] | None = None
    comment, options = None, {}
    if reader.take("("):
        columns = []
        while True:
            column = reader.name("the name of a column")
            columns.append((column, reader.string("a comment") if reader.take("COMMENT") else None))
            if not reader.take(","):
                break
        if not reader.take(")"):
            reader.fail("expected , or ): a view takes the types of its columns from the query")
    while not reader.take("AS"):
        if reader.take("COMMENT"):
            comment = reader.string("a comment")
        elif reader.word() in ("TBLPROPERTIES", "WITH", "OPTIONS") and reader.word(1) == "(":
            reader.at += 1
            options.update(option_pairs(reader))
        elif reader.sees("PARTITIONED") or reader.sees("WITH", "SCHEMA"):
            reader.fail(f"{reader.word()} is not supported for views")
        else:
            reader.fail_with_nearest(("AS", "COMMENT", "TBLPROPERTIES"))
    if comment is None:
        comment = options.pop("comment", None)
    query, text = _query(reader)
    return s.CreateView(
        name, None if columns is None else tuple(columns), query, text, comment, options, replace, absent,
        text=reader.piece.source,
    )  # fmt: skip


def _query(reader: Reader) -> tuple[exp.Expression, str]:
    """Take a query that ends the statement, and return it with its text."""
    for i in range(reader.at, len(reader.tokens)):
        if opens_parameter(reader.tokens, i):
            reader.at = i
            reader.fail("a view has no parameters: write the value itself")
    if reader.done:
        reader.fail("expected a query behind AS")
    start, end = reader.rest()
    return reader.texts.query(start, end, alone=True), reader.piece.text[start:end]


def view_alteration(reader: Reader, name: s.Name) -> s.Statement:
    """Take what follows ALTER VIEW and its name."""
    source = reader.piece.source
    verb = reader.one_of("AS", "RENAME", "SET", "UNSET")
    if verb == "RENAME":
        reader.expect("TO")
        return s.RenameView(name, reader.dotted("the new name"), text=source)
    if verb == "AS":
        query, text = _query(reader)
        return s.CreateView(name, None, query, text, replace=True, must_exist=True, text=source)
    reader.expect("TBLPROPERTIES")
    if verb == "SET":
        return s.AlterView(name, option_pairs(reader), text=source)
    exists = reader.if_exists()
    reader.expect("(")
    keys = [option_key(reader)]
    while reader.take(","):
        keys.append(option_key(reader))
    reader.expect(")")
    return s.AlterView(name, {}, tuple(keys), exists, text=source)


def create_function(reader: Reader, *, replace: bool) -> s.Statement:
    """Take what follows CREATE FUNCTION."""
    absent = reader.if_not_exists()
    if replace and absent:
        reader.fail("OR REPLACE and IF NOT EXISTS exclude each other")
    name = reader.dotted("the name of a function")
    if reader.sees("AS") or reader.sees("USING"):
        reader.fail("functions are expressions of SQL here: write (a INT) RETURNS INT RETURN a + 1")
    reader.expect("(")
    parameters: list[s.ColumnDef] = []
    while not reader.sees(")"):
        parameters.append(reader.column())
        if not reader.take(","):
            break
    reader.expect(")")
    returns, comment, deterministic = None, None, True
    while not reader.take("RETURN"):
        if reader.take("RETURNS"):
            if reader.sees("TABLE"):
                reader.fail("functions that return a table are not supported; create a view")
            returns = reader.type()[0].with_nullable(True)
        elif reader.take("COMMENT"):
            comment = reader.string("a comment")
        elif reader.take("LANGUAGE"):
            reader.one_of("SQL")
        elif reader.take("NOT", "DETERMINISTIC"):
            deterministic = False
        elif not (
            reader.take("DETERMINISTIC")
            or reader.take("CONTAINS", "SQL")
            or reader.take("READS", "SQL", "DATA")
            or reader.take("SQL", "SECURITY", "INVOKER")
        ):
            reader.fail_with_nearest(("RETURN", "RETURNS", "COMMENT", "DETERMINISTIC", "LANGUAGE"))
    if reader.word() in ("SELECT", "WITH", "VALUES"):
        reader.fail("a function returns an expression over its parameters; a query is not supported. Create a view")
    start, end = reader.rest()
    reader.texts.expression(start, end)
    return s.CreateFunction(
        name, tuple(parameters), returns, reader.piece.text[start:end].strip(), comment, deterministic, replace, absent,
        text=reader.piece.source,
    )  # fmt: skip
