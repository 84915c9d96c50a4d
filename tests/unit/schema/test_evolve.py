"""Rows of an older schema seen as rows of today's: columns by id at any depth, through one file and whole tables."""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import merganser as mg
from merganser.errors import ConflictError, UnsupportedError
from merganser.meta.schemas import SchemaStore
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema, arrow_type
from merganser.schema.evolve import Evolution
from merganser.schema.types_text import parse_type


def column(number, name, kind, default=None):
    return t.Field(number, name, parse_type(kind) if isinstance(kind, str) else kind, None, default)


def row(*fields, nullable=True):
    """A ROW of (id, name, type) triples."""
    return t.Row(fields=tuple(column(*field) for field in fields), nullable=nullable)


def array(element):
    return t.Array(element=element)


def mapping(key, value):
    return t.Map(key=parse_type(key).with_nullable(False), value=value)


def evolved(old, new, values):
    """One column of an old type as one of a new type, each of its chunks a slice of something larger."""
    padded = pa.array([None, *values, None], arrow_type(old))
    half = len(values) // 2
    chunks = [padded.slice(1, half), padded.slice(1 + half, len(values) - half)]
    stored = pa.table({"was": pa.chunked_array(chunks, padded.type)})
    plan = Evolution.plan([column(1, "c", new)], [column(1, "was", old)], name="file")
    out = plan.apply(stored, len(values))
    out.validate(full=True)
    assert out.schema.field("c").type == arrow_type(new)
    return out.column("c").to_pylist()


def refusal(old, new):
    with pytest.raises(UnsupportedError) as caught:
        Evolution.plan([column(1, "c", new)], [column(1, "was", old)], name="f.parquet")
    return caught.value


# ── columns ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_columns_are_found_by_id_whatever_their_name_and_place():
    old = [column(0, "id", "INT"), column(1, "a", "STRING"), column(2, "b", "INT")]
    new = [column(2, "a", "BIGINT"), column(1, "renamed", "STRING"), column(7, "id", "INT")]
    plan = Evolution.plan(new, old, name="f")
    assert [field.name for field in plan.stored] == ["b", "a"]
    out = plan.apply(pa.table({"b": pa.array([1], pa.int32()), "a": ["x"]}), 1)
    assert out.to_pylist() == [{"a": 1, "renamed": "x", "id": None}]


def test_a_default_is_not_for_reading():
    plan = Evolution.plan([column(1, "a", "INT NOT NULL", default="7")], [column(0, "z", "INT")], name="f")
    out = plan.apply(pa.table({}), 3)
    assert out.column("a").to_pylist() == [None] * 3
    assert out.schema.field("a").nullable


def test_only_columns_of_the_same_type_have_statistics_that_count():
    old = [column(0, "a", "INT NOT NULL"), column(1, "b", "INT"), column(2, "c", "STRING"), column(3, "d", "CHAR(2)")]
    new = [column(0, "z", "INT"), column(1, "b", "BIGINT"), column(9, "c", "STRING"), column(3, "d", "CHAR(3)")]
    assert Evolution.plan(new, old, name="f").unchanged == {"z": old[0]}


def test_unchanged_columns_are_not_copied():
    table = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([[1], None], pa.list_(pa.int32()))})
    fields = [column(0, "a", "INT"), column(1, "b", "ARRAY<INT>")]
    table = table.cast(arrow_schema(fields))
    out = Evolution.plan(fields, fields, name="f").apply(table, 2)
    for name in "ab":
        buffers = zip(out.column(name).chunk(0).buffers(), table.column(name).chunk(0).buffers(), strict=True)
        assert all((a is None) == (b is None) and (a is None or a.address == b.address) for a, b in buffers)


def test_a_file_without_rows_gives_columns_of_todays_types():
    old, new = row((2, "x", "INT")), row((3, "y", "MAP<INT, STRING>"), (2, "x", "STRING"))
    assert evolved(old, new, []) == []


# ── nested ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fields_of_a_row_are_added_dropped_renamed_moved_and_converted():
    old = row((2, "x", "INT"), (3, "y", "STRING"), (4, "gone", "INT"))
    new = row((5, "added", "DOUBLE NOT NULL"), (3, "why", "STRING"), (2, "x", "STRING"))
    values = [{"x": 1, "y": "a", "gone": 0}, None, {"x": None, "y": None, "gone": 0}]
    assert evolved(old, new, values) == [
        {"added": None, "why": "a", "x": "1"},
        None,
        {"added": None, "why": None, "x": None},
    ]


def test_a_nested_name_made_again_does_not_see_the_old_values():
    assert evolved(row((2, "x", "INT")), row((3, "x", "INT")), [{"x": 1}, None]) == [{"x": None}, None]


def test_names_of_nested_fields_may_be_swapped():
    old, new = row((2, "x", "INT"), (3, "y", "INT")), row((2, "y", "INT"), (3, "x", "INT"))
    assert evolved(old, new, [{"x": 1, "y": 2}]) == [{"y": 1, "x": 2}]


def test_rows_in_rows_in_arrays_and_map_values_are_followed():
    old = array(mapping("STRING", row((2, "r", row((3, "d", "DATE"), (4, "n", "INT"))))))
    new = array(mapping("STRING", row((2, "r", row((4, "m", "DECIMAL(5, 1)"), (3, "d", "STRING"))), (9, "z", "INT"))))
    day = dt.date(2024, 2, 29)
    values = [[[("k", {"r": {"d": day, "n": 7}}), ("l", None)], None, []], None, [], [[("m", {"r": None})]]]
    assert evolved(old, new, values) == [
        [[("k", {"r": {"m": Decimal("7.0"), "d": "2024-02-29"}, "z": None}), ("l", None)], None, []],
        None,
        [],
        [[("m", {"r": None, "z": None})]],
    ]


def test_elements_of_arrays_and_values_of_maps_are_converted():
    assert evolved(array(t.Int()), array(t.string()), [[1, None], [], None, [2]]) == [["1", None], [], None, ["2"]]
    old, new = mapping("INT", t.Double()), mapping("INT", t.TinyInt())
    assert evolved(old, new, [[(1, 300.5), (2, None)], None, []]) == [[(1, 44), (2, None)], None, []]


def test_containers_become_text():
    assert evolved(row((2, "x", "INT")), t.string(), [{"x": 1}, None]) == ["{1}", None]


def test_nullability_may_change_at_any_depth():
    old = row((2, "x", "INT NOT NULL"), (3, "y", "ARRAY<INT NOT NULL> NOT NULL"), nullable=False)
    new = row((2, "x", "INT"), (3, "y", "ARRAY<INT>"))
    assert evolved(old, new, [{"x": 1, "y": [2]}]) == [{"x": 1, "y": [2]}]
    old, new = (t.Multiset(element=parse_type(text)) for text in ("INT NOT NULL", "INT"))
    assert evolved(old, new, [[(1, 2)], None]) == [[(1, 2)], None]


def test_what_a_null_container_hides_is_not_looked_at():
    words = pa.array(["no number", "1", "nor this", "2"])
    struct = pa.StructArray.from_arrays([words], names=["x"], mask=pa.array([True, False, True, False]))
    plan = Evolution.plan([column(1, "c", row((2, "x", "INT")))], [column(1, "c", row((2, "x", "STRING")))], name="f")
    assert plan.apply(pa.table({"c": struct}), 4).column("c").to_pylist() == [None, {"x": 1}, None, {"x": 2}]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 4]), words, mask=pa.array([True, False, True]))
    plan = Evolution.plan([column(1, "c", "ARRAY<INT>")], [column(1, "c", "ARRAY<STRING>")], name="f")
    assert plan.apply(pa.table({"c": lists}), 3).column("c").to_pylist() == [None, [1], None]


_OLD = array(row((2, "a", "INT"), (3, "b", "ARRAY<SMALLINT>"), (4, "c", mapping("INT", row((5, "d", "BIGINT"))))))
_NEW = array(
    row((4, "k", mapping("INT", row((6, "e", "INT"), (5, "d", "INT")))), (3, "b", "ARRAY<STRING>"), (2, "a", "DOUBLE"))
)
_INTS = st.none() | st.integers(-(2**15), 2**15 - 1)
_MAPS = st.none() | st.lists(st.tuples(st.integers(0, 9), st.none() | st.fixed_dictionaries({"d": _INTS})), max_size=2)
_ROWS = st.none() | st.fixed_dictionaries({"a": _INTS, "b": st.none() | st.lists(_INTS, max_size=2), "c": _MAPS})


@given(st.lists(st.none() | st.lists(_ROWS, max_size=3), max_size=6))
def test_nested_values_equal_those_taken_apart_one_by_one(values):
    def of_row(value):
        entries = value["c"]
        return {
            "k": None
            if entries is None
            else [(k, None if v is None else {"e": None, "d": v["d"]}) for k, v in entries],
            "b": None if value["b"] is None else [None if b is None else str(b) for b in value["b"]],
            "a": None if value["a"] is None else float(value["a"]),
        }

    expected = [None if v is None else [None if r is None else of_row(r) for r in v] for v in values]
    assert evolved(_OLD, _NEW, values) == expected


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_type_without_a_cast_is_refused_by_its_place():
    old, new = array(row((2, "x", mapping("INT", t.BigInt())))), array(row((2, "x", mapping("INT", t.Date()))))
    error = refusal(old, new)
    assert error.context == {"column": "c.element.x.value", "path": "f.parquet"}
    assert "'c.element.x.value' of 'f.parquet': it was written as BIGINT and is DATE now" in str(error)


def test_the_keys_of_a_map_keep_their_type():
    assert "MAP<INT NOT NULL, INT> and is MAP<BIGINT NOT NULL, INT>" in str(
        refusal(mapping("INT", t.Int()), mapping("BIGINT", t.Int()))
    )


@pytest.mark.parametrize(
    ("old", "new"), [("ARRAY<INT>", "INT"), ("INT", "ARRAY<INT>"), ("MULTISET<INT>", "MULTISET<BIGINT>")]
)
def test_a_container_becomes_no_other_kind_of_value(old, new):
    assert refusal(parse_type(old), parse_type(new)).code == "unsupported"


def test_a_value_that_does_not_parse_is_named_with_the_way_out():
    with pytest.raises(UnsupportedError) as caught:
        evolved(row((2, "x", "STRING")), row((2, "n", "INT")), [{"x": "1"}, {"x": "many"}, {"x": "none"}, {"x": "3"}])
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.context == {"column": "c.n", "value": "many", "path": "file"}
    assert "the value 'many' was written as STRING and is no INT" in str(error)
    assert "change its type back to STRING" in str(error)


# ── whole tables ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def catalog(tmp_path):
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog


def next_schema(catalog, name, fields):
    """Give a table the next schema, and return the table with it."""
    table = catalog.table(name)
    highest = max(
        table.schema.highest_field_id, *(f.id for f in fields), *(n.id for f in fields for n in t.nested_fields(f.type))
    )
    schema = replace(table.schema, id=table.schema.id + 1, fields=tuple(fields), highest_field_id=highest)
    SchemaStore(table.definition.paths, table.env).create(schema)
    return catalog.table(name)


def sorted_rows(table, **how):
    return sorted(table.read(**how).to_arrow().to_pylist(), key=lambda r: r[next(iter(r))])


def test_a_keyed_table_merges_files_of_three_schemas(catalog):
    first = {"id": "BIGINT", "n": "INT", "s": "STRING", "r": "ROW<x INT, y STRING>"}
    table = catalog.create_table("db.k", schema=first, primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": i, "n": i * 100, "s": f"{i}.5", "r": {"x": i, "y": "y"}} for i in range(4)])
    at = {f.name: f for f in table.schema.fields}
    x, y = at["r"].type.fields
    top = table.schema.highest_field_id
    second = [
        replace(at["s"], type=parse_type("DECIMAL(3, 1)")),
        at["id"],
        replace(at["n"], name="m", type=parse_type("STRING")),
        replace(at["r"], type=t.Row(fields=(y, replace(x, type=t.BigInt()), column(top + 1, "z", "DATE")))),
    ]
    table = next_schema(catalog, "db.k", second)
    table.write([{"id": 1, "s": Decimal("9.9"), "m": "new", "r": {"y": "q", "x": 2**40, "z": dt.date(2024, 1, 1)}}])
    third = [f for f in second if f.name != "m"] + [column(top + 2, "n", "INT")]
    table = next_schema(catalog, "db.k", third)
    table.write([{"id": 2, "s": None, "r": None, "n": 5}])

    def shown(number, s, r, n=None):
        return {"id": number, "s": s and Decimal(s), "r": r, "n": n}

    rows = {r["id"]: r for r in table.read().to_arrow().to_pylist()}
    assert rows == {
        0: shown(0, "0.5", {"y": "y", "x": 0, "z": None}),
        1: shown(1, "9.9", {"y": "q", "x": 2**40, "z": dt.date(2024, 1, 1)}),
        2: shown(2, None, None, 5),
        3: shown(3, "3.5", {"y": "y", "x": 3, "z": None}),
    }
    assert table.read(where="s > 3").count() == 2
    assert table.read(where="n IS NULL").count() == 3  # the dropped `n` had values
    assert [r["id"] for r in sorted_rows(table, columns=["id"], where="n = 100")] == []
    old = sorted_rows(table, snapshot=1)
    assert [(r["n"], r["s"]) for r in old] == [(0, "0.5"), (100, "1.5"), (200, "2.5"), (300, "3.5")]


@pytest.mark.parametrize("where", ["v < 20", "v = 150", "v >= 100 AND id < 3", "v IS NOT NULL", "w IS NULL", "w = 'a'"])
def test_a_filter_on_a_converted_column_loses_no_row(catalog, where):
    """Text orders 100 before 20, so bounds of the stored values would skip the wrong files."""
    table = catalog.create_table("db.a", schema={"id": "INT", "v": "STRING", "w": "STRING"})
    for start in (0, 100, 1000):
        table.write([{"id": i, "v": str(start + 50 * i), "w": "a"} for i in range(4)])
    at = {f.name: f for f in table.schema.fields}
    fields = [at["id"], replace(at["v"], type=t.Int()), column(table.schema.highest_field_id + 1, "w", "STRING")]
    table = next_schema(catalog, "db.a", fields)
    table.write([{"id": 9, "v": 15, "w": "a"}])
    everything = table.read().to_arrow()
    found = table.read(where=where).to_arrow()
    expressions = {
        "v < 20": pc.field("v") < 20,
        "v = 150": pc.field("v") == 150,
        "v >= 100 AND id < 3": (pc.field("v") >= 100) & (pc.field("id") < 3),
        "v IS NOT NULL": pc.field("v").is_valid(),
        "w IS NULL": pc.field("w").is_null(),
        "w = 'a'": pc.field("w") == "a",
    }
    order = [("id", "ascending"), ("v", "ascending")]
    assert found.num_rows > 0
    assert found.sort_by(order).equals(everything.filter(expressions[where]).sort_by(order))


def test_a_table_with_a_value_that_does_not_parse_is_read_without_that_column(catalog):
    table = catalog.create_table("db.p", schema={"id": "INT", "v": "STRING"})
    table.write([{"id": 1, "v": "soon"}])
    at = {f.name: f for f in table.schema.fields}
    table = next_schema(catalog, "db.p", [at["id"], replace(at["v"], type=t.Date())])
    with pytest.raises(
        UnsupportedError, match=r"column 'v' of '.*': the value 'soon' was written as STRING and is no DATE"
    ):
        table.read().to_arrow()
    assert table.read(columns=["id"]).to_arrow().to_pylist() == [{"id": 1}]
    assert table.read(snapshot=1).to_arrow().to_pylist() == [{"id": 1, "v": "soon"}]


def test_a_type_changed_back_reads_what_was_written(catalog):
    table = catalog.create_table("db.b", schema={"id": "INT", "v": "STRING"})
    table.write([{"id": 1, "v": "007"}])
    fields = table.schema.fields
    table = next_schema(catalog, "db.b", [fields[0], replace(fields[1], type=t.Int())])
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "v": 7}]
    assert next_schema(catalog, "db.b", fields).read().to_arrow().to_pylist() == [{"id": 1, "v": "007"}]


# ── files of a newer schema ───────────────────────────────────────────────────────────────────────────────────────────

WIDENED = {
    "TINYINT": ("INT", 7, 300),
    "INT": ("BIGINT", 2**31 - 1, 2**40 + 14),
    "BIGINT": ("DECIMAL(30, 0)", Decimal(2**63 - 1), Decimal(2**64)),
    "FLOAT": ("DOUBLE", 0.5, 0.1),
    "DECIMAL(5, 2)": ("DECIMAL(9, 4)", Decimal("1.5"), Decimal("1.0001")),
    "DECIMAL(4, 1)": ("DOUBLE", 0.5, 12345.0),
    "VARCHAR(3)": ("STRING", "abc", "abcd"),
    "VARBINARY(3)": ("BYTES", b"abc", b"abcd"),
    "TIMESTAMP(3)": ("TIMESTAMP(6)", dt.datetime(2024, 1, 1, 0, 0, 0, 5000), dt.datetime(2024, 1, 1, 0, 0, 0, 5)),
    "DATE": ("TIMESTAMP(3)", dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 5)),
    "STRING NOT NULL": ("STRING", "a", None),
    "ARRAY<SMALLINT>": ("ARRAY<INT>", [1, None], [1, 2**20]),
    "ROW<x INT>": ("ROW<x BIGINT>", {"x": 1}, {"x": 2**31}),
}
"""By old type: the new one, a value of it that fits the old one, and a value that does not."""


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_table_opened_before_a_change_reads_what_fits_and_refuses_the_rest(catalog, format, keyed):
    names = {f"c{i}": (old, *rest) for i, (old, rest) in enumerate(WIDENED.items())}
    before = catalog.create_table(
        "db.n",
        schema={"id": "INT", **{name: old for name, (old, *_) in names.items()}},
        primary_key=["id"] if keyed else None,
        options={"file.format": format, **({"bucket": "1"} if keyed else {})},
    )
    at = {field.name: field for field in before.schema.fields}

    def widened(name):
        kind = parse_type(names[name][1])
        if isinstance(kind, t.Row):
            kind = t.Row(fields=(replace(at[name].type.fields[0], type=t.BigInt()),))
        return replace(at[name], type=kind)

    after = next_schema(catalog, "db.n", [at["id"], *map(widened, names)])
    after.write([{"id": 1, **{name: fits for name, (_, _, fits, _) in names.items()}}])
    (row,) = before.read().to_pylist()
    (now,) = after.read().to_pylist()
    assert now == {"id": 1, **{name: fits for name, (_, _, fits, _) in names.items()}}
    assert {n: v for n, v in row.items() if n != "c9"} == {n: v for n, v in now.items() if n != "c9"}
    assert row["c9"] == dt.date(2024, 1, 1)
    after.write([{"id": 2, **{name: misfit for name, (*_, misfit) in names.items()}}])
    for name, (old, new, _, misfit) in names.items():
        with pytest.raises(ConflictError) as caught:
            before.read(columns=[name]).to_arrow()
        assert caught.value.context["column"].startswith(name)
        assert "open the table again" in str(caught.value)
        if misfit is not None and "<" not in new:
            assert f"was written as {new} and does not fit {old}" in str(caught.value)
        with pytest.raises(ConflictError):
            before.read(columns=["id"], where=f"`{name}` IS NOT NULL AND id > 0").to_arrow()
    assert sorted_rows(before, columns=["id"]) == [{"id": 1}, {"id": 2}]
    with pytest.raises(ConflictError):
        before.changes(columns=["c1"]).to_arrow()
    with pytest.raises(ConflictError):
        before.read(where="c1 = 14").to_arrow()  # 2^40 + 14 with the high bits cut
    assert after.read(where=f"c1 = {2**40 + 14}").count() == 1
    if keyed:
        before.compact(full=True)
        assert after.read(where=f"c1 = {2**40 + 14}").count() == 1


def test_a_newer_type_without_a_way_back_is_refused(catalog):
    old, new = [column(1, "c", t.Array(element=t.Int()))], [column(1, "c", "STRING")]
    Evolution.plan(new, old, name="f")
    with pytest.raises(ConflictError, match="it was written as STRING, which is not read as ARRAY<INT>"):
        Evolution.plan(old, new, name="f", is_newer=True)


def test_a_column_that_was_dropped_is_missing_if_it_has_to_be_there(catalog):
    plan = Evolution.plan([column(1, "a", "INT NOT NULL"), column(2, "b", "INT")], [], name="f", is_newer=True)
    with pytest.raises(ConflictError, match="column 'a' of 'f': it is null in 3 of 3 rows"):
        plan.apply(pa.table({}), 3)
