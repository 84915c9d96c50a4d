"""Type texts, type JSON and Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merganser.errors import FormatError, InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field, arrow_schema, arrow_type, fields_from_arrow, type_from_arrow
from merganser.schema.types_text import number_fields, parse_type, type_from_json, type_to_json

LENGTHS = st.integers(1, t.LENGTH_MAX)
PRECISIONS = st.integers(0, 9)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
ATOMS = st.one_of(
    st.sampled_from([t.Boolean(), t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt(), t.Float(), t.Double(), t.Date()]),
    st.builds(t.Char, LENGTHS),
    st.builds(t.VarChar, LENGTHS),
    st.builds(t.Binary, LENGTHS),
    st.builds(t.VarBinary, LENGTHS),
    st.builds(t.Time, PRECISIONS),
    st.builds(t.Timestamp, PRECISIONS),
    st.builds(t.LocalZonedTimestamp, PRECISIONS),
    st.integers(1, 38).flatmap(lambda p: st.builds(t.Decimal, st.just(p), st.integers(0, p))),
    st.just(t.Variant()),
)


def _nested(inner):
    fields = st.lists(st.builds(t.Field, st.just(-1), NAMES, inner), min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda e: t.Array(element=e), inner),
        st.builds(lambda e: t.Multiset(element=e), inner),
        st.builds(lambda k, v: t.Map(key=k, value=v), inner, inner),
        st.builds(lambda f: t.Row(fields=tuple(f)), fields),
    )


TYPES = st.recursive(ATOMS, _nested, max_leaves=5).flatmap(
    lambda kind: st.sampled_from([kind, kind.with_nullable(False)])
)


@given(TYPES)
def test_the_text_of_a_type_reads_back_as_the_type(kind):
    assert parse_type(str(kind)) == kind


@given(TYPES)
def test_the_json_of_a_type_reads_back_as_the_type(kind):
    assert type_from_json(type_to_json(kind)) == kind


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("integer", "INT"),
        ("Dec(5)", "DECIMAL(5, 0)"),
        ("numeric", "DECIMAL(10, 0)"),
        ("decimal ( 5 , 2 )", "DECIMAL(5, 2)"),
        ("double precision", "DOUBLE"),
        ("varchar(2147483647)", "STRING"),
        ("varbinary(2147483647)", "BYTES"),
        ("char", "CHAR(1)"),
        ("varchar", "VARCHAR(1)"),
        ("time", "TIME(0)"),
        ("time(3) without time zone", "TIME(3)"),
        ("timestamp", "TIMESTAMP(6)"),
        ("timestamp(3) without time zone", "TIMESTAMP(3)"),
        ("timestamp_ltz(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("timestamp with local time zone", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("int null", "INT"),
        ("int not null array", "ARRAY<INT NOT NULL>"),
        ("string multiset not null", "MULTISET<STRING> NOT NULL"),
        ("row(a int, b string)", "ROW<a INT, b STRING>"),
        ("struct<a: int>", "ROW<a INT>"),
        ("row<`a b` int 'note'>", "ROW<`a b` INT>"),
        ("vector<float, 3>", "VECTOR<FLOAT, 3>"),
    ],
)
def test_every_spelling_of_the_format_is_read(text, written):
    assert str(parse_type(text)) == written


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a type name is missing"),
        ("INTT", "there is no type 'INTT' (did you mean INT?)"),
        ("INT INT", "unexpected 'INT'"),
        ("DECIMAL(39, 0)", "out of range"),
        ("DECIMAL(5, 6)", "out of range"),
        ("TIMESTAMP(10)", "0 to 9"),
        ("CHAR(0)", "1 to 2147483647"),
        ("ARRAY<INT", "'>' is missing"),
        ("MAP<INT>", "',' is missing"),
        ("ROW<>", "at least one field"),
        ("INT NOT", "'NULL' is missing"),
        ("INT;", "unexpected ';'"),
        ("ARRAY<" * 5000 + "INT", "nested too deeply"),
    ],
)
def test_a_text_that_is_no_type_is_refused_with_the_place(text, why):
    with pytest.raises(InvalidInputError, match="at character") as caught:
        parse_type(text)
    assert why in str(caught.value)


@pytest.mark.parametrize("value", [None, 1, [], {}, {"type": "ARRAY"}, {"type": "ROW", "fields": [1]}, {"type": "NO"}])
def test_json_that_is_no_type_is_damage(value):
    with pytest.raises(FormatError):
        type_from_json(value)


def test_numbering_starts_where_it_is_told_and_says_where_to_go_on():
    row = parse_type("ROW<x INT, y ROW<z INT>>")
    numbered, following = number_fields([t.Field(-1, "r", row), t.Field(-1, "s", t.Int())], first=5)
    assert [field.id for field in numbered] == [5, 9]
    assert [(f.name, f.id) for f in t.nested_fields(numbered[0].type)] == [("x", 6), ("y", 8), ("z", 7)]
    assert following == 10


@given(TYPES)
def test_what_is_handed_out_is_taken_in_as_a_type_that_hands_out_the_same(kind):
    out = arrow_type(kind)
    if not pa.types.is_decimal(out):
        assert arrow_type(type_from_arrow(out, "c")) == out


@pytest.mark.parametrize(
    ("text", "arrow"),
    [
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP(9)", pa.timestamp("ns")),
        ("TIMESTAMP_LTZ(0)", pa.timestamp("ms", "UTC")),
        ("TIME(9)", pa.time32("ms")),
        ("DECIMAL(38, 2)", pa.decimal128(38, 2)),
        ("MULTISET<STRING>", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
        ("ROW<a INT NOT NULL>", pa.struct([pa.field("a", pa.int32(), nullable=False)])),
    ],
)
def test_a_type_is_handed_out_as_its_arrow_type(text, arrow):
    assert arrow_type(parse_type(text)) == arrow


@pytest.mark.parametrize(
    ("arrow", "ours"),
    [
        (pa.uint8(), "SMALLINT"),
        (pa.uint32(), "BIGINT"),
        (pa.uint64(), "DECIMAL(20, 0)"),
        (pa.float16(), "FLOAT"),
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.binary(4), "BINARY(4)"),
        (pa.date64(), "DATE"),
        (pa.dictionary(pa.int8(), pa.string()), "STRING"),
        (pa.timestamp("s", "Europe/Berlin"), "TIMESTAMP(0) WITH LOCAL TIME ZONE"),
        (pa.list_(pa.int8(), 3), "ARRAY<TINYINT>"),
        (pa.time64("us"), "TIME(3)"),
    ],
)
def test_an_arrow_type_names_a_type_of_ours(arrow, ours):
    assert str(type_from_arrow(arrow, "c")) == ours


@pytest.mark.parametrize("arrow", [pa.null(), pa.duration("s"), pa.decimal256(60, 2), pa.struct([])])
def test_an_arrow_type_without_a_home_is_refused_with_its_column(arrow):
    with pytest.raises(InvalidInputError, match=r"column 'r\.x'"):
        fields_from_arrow(pa.schema([pa.field("r", pa.struct([pa.field("x", arrow)]))]))


def test_nullability_goes_into_arrow_and_back():
    schema = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.int8()))])
    assert arrow_schema(fields_from_arrow(schema)) == schema
    assert not arrow_field(t.Field(0, "a", t.Int(nullable=False))).nullable


@pytest.mark.parametrize("text", ["BLOB", "GEOMETRY(x)", "VECTOR<FLOAT, 2>"])
def test_types_known_by_name_only_have_no_arrow_type(text):
    with pytest.raises(UnsupportedError, match="cannot be read or written"):
        arrow_type(parse_type(text))
