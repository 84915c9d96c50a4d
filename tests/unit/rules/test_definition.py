"""The columns of a new table as one text."""

from __future__ import annotations

import re

import pytest

from merganser.errors import InvalidInputError
from merganser.rules.create import create_schema


def _made(text: str, **more: object) -> tuple[list[tuple[str, str, str | None, str | None]], tuple[str, ...]]:
    made = create_schema(text, options={"bucket": "1"} if "KEY" in text or more else {}, **more)  # type: ignore[arg-type]
    return [(f.name, str(f.type), f.description, f.default) for f in made.fields], made.primary_keys


@pytest.mark.parametrize(
    ("text", "columns", "key"),
    [
        ("id BIGINT, name STRING", [("id", "BIGINT", None, None), ("name", "STRING", None, None)], ()),
        ("id: bigint, name: string", [("id", "BIGINT", None, None), ("name", "STRING", None, None)], ()),
        ("id INT,\n v INT, -- the value\n", [("id", "INT", None, None), ("v", "INT", None, None)], ()),
        ("id INT PRIMARY KEY NOT ENFORCED", [("id", "INT NOT NULL", None, None)], ("id",)),
        (
            "`a,b` INT COMMENT 'it''s', c DECIMAL(10, 2) DEFAULT -1.5 NOT NULL, PRIMARY KEY (`a,b`, c) NOT ENFORCED",
            [("a,b", "INT NOT NULL", "it's", None), ("c", "DECIMAL(10, 2) NOT NULL", None, "-1.5")],
            ("a,b", "c"),
        ),
        (
            "r STRUCT<a: INT, b: MAP<STRING, ARRAY<INT>>>, t TIMESTAMP(3) WITH LOCAL TIME ZONE NULL, "
            "s STRING DEFAULT 'a b'",
            [
                ("r", "ROW<a INT, b MAP<STRING, ARRAY<INT>>>", None, None),
                ("t", "TIMESTAMP(3) WITH LOCAL TIME ZONE", None, None),
                ("s", "STRING", None, "a b"),
            ],
            (),
        ),
    ],
)
def test_columns_are_defined_as_in_create_table(text, columns, key):
    assert _made(text) == (columns, key)


def test_a_key_may_stand_in_the_text_and_beside_it_if_it_is_the_same():
    assert _made("id INT PRIMARY KEY", primary_key=["id"])[1] == ("id",)
    with pytest.raises(InvalidInputError, match="is 'id' in the schema and 'v' in primary_key"):
        _made("id INT PRIMARY KEY, v INT", primary_key=["v"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the schema has no columns"),
        ("id", "'id' is no column. Write a name and a type"),
        ("'id' INT", "is no column"),
        ("id BIGNIT", "column 'id': cannot read the type 'BIGNIT'"),
        ("id INT COMMENT 'x", "has a quote or a comment that does not end"),
        ("id INT COMMENT 'x' UNIQUE", "'UNIQUE' behind column 'id' is not understood"),
        ("id INT, PRIMARY KEY", "'PRIMARY KEY' names no columns"),
        ("id INT, PRIMARY KEY (x)", "primary key column 'x' is not a column of the table"),
        ("id INT PRIMARY KEY, PRIMARY KEY (id)", "defines a primary key twice"),
        ("id INT DEFAULT 'x'", "cannot use 'x' as the default of column 'id'"),
        ("id INT, ID INT, id INT", "duplicate columns: 'id'"),
    ],
)
def test_a_part_that_is_no_column_is_named(text, why):
    with pytest.raises(InvalidInputError, match=re.escape(why)):
        _made(text)
