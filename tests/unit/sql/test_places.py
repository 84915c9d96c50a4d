"""Errors about names say where the name stands, with a caret under it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import MerganserError, SqlSyntaxError


@pytest.fixture
def session(tmp_path: Path) -> Any:
    session = mg.catalog(str(tmp_path)).session()
    session.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE orders (id INT, note STRING, PRIMARY KEY (id) NOT ENFORCED);"
        "INSERT INTO orders VALUES (1, 'a')"
    )
    return session


@pytest.mark.parametrize(
    "text",
    [
        "SELECT <nope FROM orders",
        "SELECT id,\n\t<nope\nFROM orders",
        "SELECT 'é', o.nope FROM orders o WHERE <o.nope > 1",
        "SELECT 1;\nSELECT 2; SELECT * FROM <ordes",
        "SELECT * FROM orders /*+ OPTIONS('scan.snapshot-id' = '1') */ o JOIN <ordes p ON o.id = p.id",
        "SELECT * FROM orders$snapshots s JOIN <ordes",
        "WITH a AS (SELECT id FROM orders) SELECT <note FROM a",
        "SELECT id FROM orders WHERE id IN (SELECT <nope FROM orders)",
        "SELECT * FROM orders ORDER BY <nope",
        "SELECT <fooo(id) FROM orders",
        "SELECT * FROM orders WHERE id = <:missing",
        "INSERT INTO orders (id, <nope) VALUES (1, 'a')",
        "INSERT INTO <ordes VALUES (1)",
        "INSERT INTO orders SELECT id, <nope FROM orders",
        "UPDATE orders SET note = <nope",
        "DELETE FROM orders WHERE <nope = 1",
        "MERGE INTO orders t USING <ordes AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "MERGE INTO orders t USING (SELECT <nope FROM orders) AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "DROP TABLE <shop.ordes",
        "ALTER TABLE orders DROP COLUMN <nope",
        "CREATE TABLE t (id INT) WITH (<'bukcet' = '1')",
        "CALL sys.<compct('orders')",
    ],
)
def test_the_caret_is_under_the_name(session: Any, text: str) -> None:
    before, _, _ = text.partition("<")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    with pytest.raises(MerganserError) as raised:
        session.sql(text.replace("<", "", 1))
    message = str(raised.value)
    assert f"line {line}, column {column}:" in message
    assert raised.value.context["line"] == line
    shown, caret = re.findall(r"^  (.*)\n  ([ \t]*)\^$", message, re.MULTILINE)[-1]
    assert shown == text.replace("<", "", 1).split("\n")[line - 1]
    assert len(caret) == column - 1


def test_a_name_that_stands_twice_has_no_caret_unless_its_place_is_known(session: Any) -> None:
    with pytest.raises(MerganserError, match="nope") as raised:
        session.sql("DELETE FROM orders WHERE nope = 1 OR nope = 2")
    assert "^" not in str(raised.value)


def test_of_a_long_line_the_part_near_the_name_is_shown(session: Any) -> None:
    text = f"SELECT {'1 + ' * 100}nope FROM orders"
    with pytest.raises(MerganserError) as raised:
        session.sql(text)
    shown, caret = str(raised.value).splitlines()[-2:]
    assert len(shown) <= 122
    assert shown[caret.index("^") :].startswith("nope FROM orders")


@pytest.mark.parametrize(
    ("text", "column", "meant"),
    [
        ("SELECT * form orders", 10, "FROM"),
        ("SELECT * FROM orders whre id = 1", 22, "WHERE"),
        ("SELECT id FROM orders gruop BY id", 23, "GROUP BY"),
        ("SELECT id FROM orders LIMTI 1", 23, "LIMIT"),
        ("selec 1", 1, "SELECT"),
    ],
)
def test_a_misspelt_keyword_is_found(session: Any, text: str, column: int, meant: str) -> None:
    with pytest.raises(SqlSyntaxError, match=rf"Did you mean {meant}\?") as raised:
        session.sql(text)
    assert (raised.value.context["line"], raised.value.context["column"]) == (1, column)


def test_a_table_with_a_name_like_a_keyword_is_not_taken_for_one(session: Any) -> None:
    with pytest.raises(SqlSyntaxError) as raised:
        session.sql("SELECT id FROM orders 1")
    assert "Did you mean" not in str(raised.value)
