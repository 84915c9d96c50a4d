"""Columns to Spark's schema JSON and back."""

from __future__ import annotations

import json

import pytest

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.spark_json import fields_from_spark_json, spark_json_from_fields
from merganser.schema.types_text import parse_type


def from_spark(kind, *, nullable=True, metadata=None):
    field = {"name": "c", "type": kind, "nullable": nullable, "metadata": metadata or {}}
    return fields_from_spark_json(json.dumps({"type": "struct", "fields": [field]}))[0]


def to_spark(text, time_as="time"):
    out = json.loads(spark_json_from_fields([t.Field(0, "c", parse_type(text))], time_as=time_as))
    return out["fields"][0]


BOTH_WAYS = [
    ("byte", "TINYINT"),
    ("short", "SMALLINT"),
    ("integer", "INT"),
    ("long", "BIGINT"),
    ("float", "FLOAT"),
    ("double", "DOUBLE"),
    ("boolean", "BOOLEAN"),
    ("string", "STRING"),
    ("binary", "BYTES"),
    ("date", "DATE"),
    ("timestamp", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("timestamp_ntz", "TIMESTAMP(6)"),
    ("decimal(10,2)", "DECIMAL(10, 2)"),
    ("time(3)", "TIME(3)"),
    ("variant", "VARIANT"),
    ({"type": "array", "elementType": "integer", "containsNull": False}, "ARRAY<INT NOT NULL>"),
    (
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        "MAP<STRING NOT NULL, BIGINT>",
    ),
]


@pytest.mark.parametrize(("spark", "ours"), BOTH_WAYS, ids=lambda value: str(value)[:30])
def test_a_type_goes_both_ways(spark, ours):
    assert str(from_spark(spark).type) == ours
    assert to_spark(ours)["type"] == spark


@pytest.mark.parametrize(
    ("spark", "metadata", "ours"),
    [
        ("varchar(5)", {}, "VARCHAR(5)"),
        ("char(3)", {}, "CHAR(3)"),
        ("string", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}, "VARCHAR(5)"),
        ("string", {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}, "CHAR(3)"),
        ("string collate UTF8_LCASE", {}, "STRING"),
        ("decimal", {}, "DECIMAL(10, 0)"),
        ({"type": "udt", "class": "x", "sqlType": "double"}, {}, "DOUBLE"),
    ],
)
def test_a_type_of_spark_has_one_of_ours(spark, metadata, ours):
    assert str(from_spark(spark, metadata=metadata).type) == ours


@pytest.mark.parametrize(
    ("ours", "spark"),
    [
        ("CHAR(3)", "string"),
        ("VARCHAR(9)", "string"),
        ("BINARY(2)", "binary"),
        ("TIMESTAMP(9)", "timestamp_ntz"),
        ("TIMESTAMP_LTZ(3)", "timestamp"),
        ("TIME(9)", "time(6)"),
        ("MULTISET<STRING>", {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": False}),
    ],
)
def test_a_type_that_spark_lacks_travels_as_the_nearest(ours, spark):
    assert to_spark(ours)["type"] == spark


def test_time_is_an_integer_where_spark_has_no_time():
    assert to_spark("TIME(3)", time_as="int")["type"] == "integer"
    assert to_spark("ARRAY<TIME(3)>", time_as="int")["type"]["elementType"] == "integer"


def test_nullability_and_comments_travel_along():
    field = from_spark("long", nullable=False, metadata={"comment": "the id"})
    assert field == t.Field(-1, "c", t.BigInt(nullable=False), "the id")
    out = json.loads(spark_json_from_fields([field]))["fields"][0]
    assert (out["nullable"], out["metadata"]) == (False, {"comment": "the id"})


def test_structs_nest():
    inner = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": False, "metadata": {}}]}
    assert str(from_spark(inner).type) == "ROW<x INT NOT NULL>"
    assert to_spark("ROW<x INT NOT NULL>")["type"] == inner


def test_a_type_without_a_home_is_refused_with_its_path():
    struct = {"type": "struct", "fields": [{"name": "x", "type": "interval", "nullable": True}]}
    with pytest.raises(InvalidInputError, match=r"column 'c\.x' has the Spark type interval"):
        from_spark(struct)


@pytest.mark.parametrize("text", ["", "[]", '"string"', '{"type": "struct"}', '{"type": "struct", "fields": [1]}'])
def test_what_is_no_spark_schema_is_refused(text):
    with pytest.raises(InvalidInputError, match="cannot read a Spark schema"):
        fields_from_spark_json(text)


def test_a_type_that_spark_cannot_hold_is_refused():
    with pytest.raises(UnsupportedError, match="column 'c' has the type BLOB"):
        to_spark("BLOB")
