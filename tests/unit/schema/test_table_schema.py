"""Schemas: made, written, read back."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merganser.errors import FormatError, InvalidInputError, UnsupportedError
from merganser.options import write
from merganser.options.option import Options
from merganser.rules.create import create_schema
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema, from_json
from merganser.schema.types_text import parse_type

TESTS = Path(__file__).parents[2]
GOLDEN = sorted((TESTS / "golden" / "tables").glob("**/schema/schema-*"))
ORDERS = {"order_id": "BIGINT", "dt": "STRING", "amount": "DECIMAL(10, 2) NOT NULL"}


def orders(**more):
    options = {"options": {"bucket": "4"}, "primary_key": ["dt", "order_id"], "partition_by": ["dt"]} | more
    return create_schema(ORDERS, table="shop.orders", **options)


class SparkSchema:
    """What a Spark schema offers without Spark."""

    def __init__(self, *fields):
        self.fields = fields

    def json(self):
        fields = [{"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in self.fields]
        return json.dumps({"type": "struct", "fields": fields})


def test_a_schema_knows_its_keys_partitions_and_buckets():
    schema = orders()
    assert schema.names == ("order_id", "dt", "amount")
    assert schema.trimmed_primary_key == ("order_id",)
    assert schema.bucket_key == ("order_id",)
    assert schema.bucket == 4
    assert [(field.id, field.name) for field in schema.key_fields] == [(1073741823, "_KEY_order_id")]
    assert schema.value_fields == schema.fields
    assert schema.keyed
    assert not schema.cross_partition


def test_primary_key_columns_become_not_null():
    assert [str(field.type) for field in orders().fields] == [
        "BIGINT NOT NULL",
        "STRING NOT NULL",
        "DECIMAL(10, 2) NOT NULL",
    ]


def test_primary_key_columns_stay_nullable_where_the_option_says_so():
    schema = orders(options={"bucket": 4, "primary-key.nullable": True})
    assert schema.field("order_id").type.nullable


def test_the_bucket_key_is_taken_from_the_option_in_its_order():
    schema = create_schema(
        {"a": "INT", "b": "INT"}, primary_key=["a", "b"], options={"bucket": 2, "bucket-key": "b, a"}
    )
    assert schema.bucket_key == ("b", "a")


def test_nested_fields_take_ids_depth_first_with_children_of_nested_rows_before_their_row():
    columns = {
        "id": "INT", "a": "ARRAY<INT>", "m": "MAP<STRING, INT>", "r": "ROW<x INT, y STRING, z ROW<q DOUBLE>>",
        "ar": "ARRAY<ROW<k INT, v INT>>",
    }  # fmt: skip
    schema = create_schema(columns)
    ids = {f.name: f.id for field in schema.fields for f in (field, *t.nested_fields(field.type))}
    assert ids == {"id": 0, "a": 1, "m": 2, "r": 3, "x": 4, "y": 5, "q": 6, "z": 7, "ar": 8, "k": 9, "v": 10}
    assert schema.highest_field_id == 10


@pytest.mark.parametrize(
    "columns",
    [
        {"a": "BIGINT", "b": "STRING"},
        [("a", "BIGINT"), ["b", "STRING"]],
        [("a", t.BigInt()), t.Field(99, "b", t.VarChar())],
        pa.schema([("a", pa.int64()), ("b", pa.string())]),
        SparkSchema(("a", "long"), ("b", "string")),
    ],
    ids=["mapping", "pairs", "fields", "arrow", "spark"],
)
def test_columns_come_in_many_forms(columns):
    assert create_schema(columns).fields == (t.Field(0, "a", t.BigInt()), t.Field(1, "b", t.VarChar()))


def test_keys_may_stand_in_the_options_and_move_into_the_schema():
    schema = create_schema(ORDERS, options={"primary-key": "dt,order_id", "partition": "dt", "bucket": "1"})
    assert (schema.primary_keys, schema.partition_keys) == (("dt", "order_id"), ("dt",))
    assert dict(schema.options) == {"bucket": "1"}


def test_a_default_is_taken_from_the_option_of_the_column():
    schema = create_schema({"a": "INT", "b": "INT"}, options={"fields.b.default-value": "7"})
    assert [field.default for field in schema.fields_with_defaults] == [None, "7"]
    assert [field.default for field in schema.fields] == [None, None]


def refused(columns=ORDERS, kind=InvalidInputError, **more):
    with pytest.raises(kind) as caught:
        create_schema(columns, table="shop.orders", **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"columns": {}}, "no columns"),
        ({"columns": [("a", "INT"), ("a", "STRING"), ("b", "INT")]}, "duplicate columns: 'a'"),
        ({"columns": [("", "INT")]}, "1 of 1 names of columns are blank"),
        ({"columns": {"r": "ROW<x INT, x INT>"}}, "duplicate columns inside 'r': 'x'"),
        ({"columns": {"r": "ARRAY<MAP<STRING, ROW<x INT, x INT>>>"}}, "duplicate columns inside 'r'"),
        ({"columns": {"a": "INTT"}}, "column 'a'"),
        ({"columns": {"a": 1}}, "not text such as 'BIGINT'"),
        ({"columns": {1: "INT"}}, "not text"),
        ({"columns": ["a INT"]}, "is not a column"),
        ({"columns": b"a INT"}, "a list of pairs"),
        ({"columns": 7}, "the schema is an int"),
        ({"primary_key": ["order"]}, "Did you mean 'order_id'"),
        ({"partition_by": ["day"]}, "partition column 'day' is not a column"),
        ({"primary_key": ["dt", "dt"]}, "primary key columns contain duplicates: 'dt'"),
        ({"primary_key": "order_id"}, "Give a list such as ['order_id']"),
        ({"primary_key": ["dt"], "partition_by": ["dt"]}, "consists of partition columns only"),
        ({"primary_key": ["dt"], "options": {"primary-key": "dt"}}, "'primary-key' is defined twice"),
        ({"partition_by": ["dt"], "options": {"partition": "dt"}}, "'partition' is defined twice"),
        ({"columns": {"k": "ARRAY<INT>", "v": "INT"}, "primary_key": ["k"]}, "unsupported type ARRAY<INT>"),
        ({"columns": {"k": "VARIANT", "v": "INT"}, "partition_by": ["k"]}, "unsupported type VARIANT"),
        ({"columns": {"k": "BYTES", "v": "INT"}, "partition_by": ["k"]}, "unsupported type BYTES"),
        ({"options": {"fields.amount.default-value": "abc"}}, "'abc' as the default of column 'amount'"),
        ({"options": {"fields.amuont.default-value": "1"}}, "Did you mean 'amount'"),
        ({"options": {"bucket-num": 3}}, "Did you mean 'bucket'"),
        ({"options": {"bucket": 0}}, "greater than 0"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_definition_that_is_no_table_is_refused_with_its_reason(arguments, why):
    assert why in refused(**arguments)


@pytest.mark.parametrize("name", ["_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID", "_KEY_a"])
def test_names_of_system_columns_are_refused(name):
    assert f"the column name '{name}' is not allowed" in refused({name: "INT", "v": "INT"})


def test_names_that_differ_only_in_case_are_two_columns():
    assert create_schema({"a": "INT", "A": "INT"}).names == ("a", "A")


def test_a_type_whose_values_are_not_read_is_refused():
    assert "BLOB" in refused({"a": "BLOB"}, kind=UnsupportedError)


def test_messages_begin_with_the_name_of_the_table():
    assert refused(primary_key=["x"]).startswith("cannot create 'shop.orders': ")


def test_an_unknown_column_is_refused_with_the_nearest():
    with pytest.raises(InvalidInputError, match="Did you mean 'amount'"):
        orders().field("amonut")


VECTORS = json.loads((TESTS / "vectors" / "validation_errors.json").read_text())


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["name"])
def test_every_invalid_definition_of_the_vectors_is_refused_when_the_table_is_created(case):
    with pytest.raises(InvalidInputError, match=case["expect_error"]):
        create_schema(
            [tuple(column) for column in case["schema"]],
            primary_key=case["primary_key"],
            partition_by=case["partition_by"],
            options=case["options"],
        )


# schema files


def test_a_schema_reads_back_as_it_was_written():
    schema = orders(comment="Bestellungen für den Shop", time_millis=1795255178843)
    assert from_json(schema.to_json()) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_a_schema_file_has_the_keys_of_the_format_and_no_empty_comment():
    assert list(json.loads(orders().to_json())) == [
        "version", "id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options", "timeMillis",
    ]  # fmt: skip


def without_extras(value):
    """Drop what other writers add and nobody reads: nulls, and "nullable" beside a nested type."""
    if isinstance(value, dict):
        return {k: without_extras(v) for k, v in value.items() if v is not None and k != "nullable"}
    return [without_extras(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_schema_files_of_other_writers_read_and_read_back(path):
    schema = from_json(path.read_bytes(), path=path.name)
    assert schema.id == int(path.name.removeprefix("schema-"))
    assert from_json(schema.to_json()) == schema
    assert json.loads(schema.to_json()) == without_extras(json.loads(path.read_bytes()))


def old_file(version, options):
    value = {"id": 0, "fields": [{"id": 0, "name": "a", "type": "INT"}], "options": options}
    return from_json(json.dumps(value if version is None else value | {"version": version}))


@pytest.mark.parametrize(
    ("version", "options", "bucket", "file_format"),
    [
        (None, {}, 1, "orc"),
        (1, {"bucket": "3"}, 3, "orc"),
        (2, {}, -1, "orc"),
        (2, {"file.format": "avro"}, -1, "avro"),
        (3, {}, -1, "parquet"),
    ],
)
def test_files_of_older_versions_have_the_defaults_of_their_time(version, options, bucket, file_format):
    schema = old_file(version, options)
    assert (schema.bucket, schema.options.get(write.FILE_FORMAT)) == (bucket, file_format)


def test_what_a_file_lacks_has_its_default_and_unknown_keys_are_ignored():
    schema = from_json(
        '{"version": 3, "id": 2, "fields": [{"id": 4, "name": "a", "type": "INT", "x": 1}], "more": [1]}'
    )
    assert schema == TableSchema(2, (t.Field(4, "a", t.Int()),), 4, (), (), Options())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "at byte 0 of 0"),
        (b'{"id": 0,', "at byte 9 of 9"),
        ('{"comment": "ü", '.encode(), "at byte 18 of 18"),
        (b'{"a": "\xff"}', "byte 7 of 10 is not UTF-8"),
        (b"[]", "holds list"),
        (b'{"id": 0}', "'fields' is missing"),
        (b'{"id": 0, "fields": [{"id": 0, "name": "a", "type": "NONSENSE"}]}', "NONSENSE"),
        (b'{"id": 0, "fields": [{"id": 0, "type": "INT"}]}', "cannot read the field"),
        (b'{"id": 0, "fields": [], "primaryKeys": ["k"]}', "there is no primary key column 'k'"),
        (b'{"id": 0, "fields": [], "partitionKeys": "k"}', "not a list of names"),
        (
            b'{"id": 0, "fields": [{"id": 0, "name": "a", "type": "INT"}, {"id": 0, "name": "b", "type": "INT"}]}',
            "two columns have the id 0",
        ),
        (b'{"id": "x", "fields": []}', "not a schema"),
        (b'{"id": 0, "fields": [], "options": [1]}', "not a schema"),
    ],
)
def test_a_damaged_file_is_reported_with_its_path_and_place(data, why):
    with pytest.raises(FormatError) as caught:
        from_json(data, path="schema/schema-7")
    assert str(caught.value).startswith("cannot read 'schema/schema-7': ")
    assert why in str(caught.value)


def test_a_file_cut_anywhere_is_never_taken_for_a_schema():
    data = orders().to_json()
    for end in range(len(data)):
        with pytest.raises(FormatError):
            from_json(data[:end])


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_any_value_in_place_of_the_fields_is_a_schema_or_a_format_error(value):
    data = json.dumps({"id": 0, "fields": value})
    if value == []:
        assert from_json(data).fields == ()
    else:
        with pytest.raises(FormatError, match="cannot read 'schema'"):
            from_json(data)


def test_types_of_every_kind_survive_the_schema_file():
    texts = [
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "BOOLEAN",
        "DECIMAL(38, 18)",
        "CHAR(3)",
        "STRING",
        "VARCHAR(9)",
        "BINARY(2)",
        "VARBINARY(7)",
        "BYTES",
        "DATE",
        "TIME(3)",
        "TIMESTAMP(9)",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "VARIANT",
        "ARRAY<INT NOT NULL>",
        "MAP<STRING, ARRAY<INT>>",
        "MULTISET<STRING>",
        "ROW<a INT, b ROW<c STRING NOT NULL>>",
    ]
    schema = create_schema({f"c{i}": parse_type(text) for i, text in enumerate(texts)})
    assert from_json(schema.to_json()).fields == schema.fields
