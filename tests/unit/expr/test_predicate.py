import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from predicate_oracle import ANY, CELLS, ROWS, SIMPLE, SqlError, build, evaluate, numbers, table_of, texts

from merganser.errors import InvalidInputError
from merganser.expr.compute import arrow_type_of
from merganser.expr.predicate import POINTS_MAX, Predicate, Projection, conjunction, conjuncts, points
from merganser.expr.text import parse_predicate, parse_projection
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

FAST = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def fields(**kinds):
    return [t.Field(i, name, parse_type(kind)) for i, (name, kind) in enumerate(kinds.items())]


def mask(text, kind, values, arrow=None):
    """The mask of a filter on one column v."""
    column = pa.array(values, arrow or arrow_type_of(parse_type(kind)))
    return parse_predicate(text, fields(v=kind)).mask(pa.table({"v": column})).to_pylist()


def value(text, kind, values, arrow=None):
    column = pa.array(values, arrow or arrow_type_of(parse_type(kind)))
    return parse_projection(text, fields(v=kind)).evaluate(pa.table({"v": column})).to_pylist()


def outcome(rows, node):
    try:
        return [evaluate(node, row) for row in rows]
    except SqlError:
        return "failed"


@FAST
@given(rows=ROWS, node=ANY)
def test_a_mask_is_what_the_oracle_says_row_by_row(rows, node):
    try:
        answer = Predicate(node).mask(table_of(rows)).to_pylist()
    except InvalidInputError:
        answer = "failed"
    assert answer == outcome(rows, node), str(Predicate(node))


@st.composite
def projections(draw):
    try:
        return draw(st.one_of(numbers(), texts()))
    except InvalidInputError:
        return build.NULL


@FAST
@given(rows=ROWS, node=projections())
def test_a_projection_is_what_the_oracle_says_in_the_arrow_type_of_its_type(rows, node):
    made = Projection(node)
    try:
        column = made.evaluate(table_of(rows))
        assert column.type == arrow_type_of(made.type)
        answer = column.to_pylist()
    except InvalidInputError:
        answer = "failed"
    wanted = outcome(rows, node)
    # NaN is not equal to itself, and the sign of a zero is no part of SQL.
    assert repr(answer).replace("-0.0", "0.0") == repr(wanted).replace("-0.0", "0.0"), str(made)


@FAST
@given(rows=ROWS, node=SIMPLE)
def test_apply_keeps_the_rows_for_which_the_mask_is_true(rows, node):
    p, table = Predicate(node), table_of(rows)
    numbered = table.append_column("#", pa.array(range(len(rows)), pa.int64()))
    kept = p.apply(numbered)
    assert kept.schema == numbered.schema
    assert kept["#"].to_pylist() == [i for i, answer in enumerate(p.mask(table).to_pylist()) if answer]


@FAST
@given(rows=ROWS, node=SIMPLE)
def test_only_the_named_columns_are_needed(rows, node):
    p, table = Predicate(node), table_of(rows)
    narrow = table.select([c for c in table.column_names if c in p.columns])
    if p.columns:
        assert p.mask(narrow).to_pylist() == p.mask(table).to_pylist()


@FAST
@given(node=ANY)
def test_a_predicate_pickles_hashes_and_equals_its_copy(node):
    p = Predicate(node)
    copy = pickle.loads(pickle.dumps(p))
    assert copy == p
    assert hash(copy) == hash(p)


@FAST
@given(rows=ROWS, node=SIMPLE)
def test_the_conjunction_of_the_conjuncts_is_the_predicate(rows, node):
    p = Predicate(node)
    assert conjunction(conjuncts(p)) == p


def test_no_conjuncts_are_no_condition():
    assert conjunction([]) is None


@FAST
@given(rows=ROWS, node=SIMPLE, columns=st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=3, unique=True))
def test_every_row_kept_has_one_of_the_points(rows, node, columns):
    found = points(Predicate(node), columns)
    if found is not None:
        texts_of_points = [repr(point) for point in found]
        for row, answer in zip(rows, outcome(rows, node), strict=True):
            assert answer is not True or repr(tuple(row[c] for c in columns)) in texts_of_points


KEYS = fields(k="INT", dt="STRING", f="DOUBLE", d="DECIMAL(10, 2)", day="DATE", n="BIGINT")


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("k = 1", ["k"], [(1,)]),
        ("1 = k AND dt = 'a'", ["dt", "k"], [("a", 1)]),
        ("k IN (1, 2, NULL) AND dt IN ('a', 'b')", ["k", "dt"], [(1, "a"), (1, "b"), (2, "a"), (2, "b")]),
        ("k IN (1, 2) AND k IN (2, 3)", ["k"], [(2,)]),
        ("k = 1 OR k = 2", ["k"], [(1,), (2,)]),
        ("k = 1 AND n > 5", ["k"], [(1,)]),
        ("k = 1 OR n > 5", ["k"], None),
        ("k > 1", ["k"], None),
        ("NOT (k = 1)", ["k"], None),
        ("k = 3.5", ["k"], []),
        ("k = 3000000000", ["k"], []),
        ("k = 3.0", ["k"], [(3,)]),
        ("k = NULL", ["k"], []),
        ("FALSE", ["k"], []),
        ("k IS NULL", ["k"], [(None,)]),
        ("k <=> NULL AND dt <=> 'x'", ["k", "dt"], [(None, "x")]),
        ("f = 0", ["f"], [(0.0,), (-0.0,)]),
        ("f = CAST('NaN' AS DOUBLE)", ["f"], None),
        ("n = 1e0", ["n"], [(1,)]),
        ("n = 1e18", ["n"], None),
        ("day = '1970-01-03'", ["day"], [(2,)]),
        ("k = 1 AND k = 2 AND n > 1", ["k", "n"], []),
    ],
)
def test_points_are_the_values_that_equality_and_in_pin(text, columns, expected):
    assert repr(points(parse_predicate(text, KEYS), columns)) == repr(expected)


def test_points_of_a_decimal_have_the_scale_of_the_column():
    [(found,)] = points(parse_predicate("d = 1.5", KEYS), ["d"])
    assert str(found) == "1.50"


def test_more_points_than_the_limit_are_no_points():
    many = ", ".join(map(str, range(POINTS_MAX)))
    assert len(points(parse_predicate(f"k IN ({many})", KEYS), ["k"])) == POINTS_MAX
    assert points(parse_predicate(f"k IN ({many}) AND dt IN ('a', 'b')", KEYS), ["k", "dt"]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v = 3.5", [False, False, None]),
        ("v <> 3.5", [True, True, None]),
        ("v <=> 3.5", [False, False, False]),
        ("v > 3.5", [False, True, None]),
        ("v <= 3.5", [True, False, None]),
        ("v < 3000000000", [True, True, None]),
        ("v >= 3000000000", [False, False, None]),
        ("v > -99999999999999999999999999", [True, True, None]),
        ("v IN (3, 3.5, 99999999999)", [True, False, None]),
        ("v NOT IN (4, NULL)", [None, False, None]),
        ("v BETWEEN 2.5 AND 3.5", [True, False, None]),
        ("v > CAST('Infinity' AS DOUBLE)", [False, False, None]),
        ("v < CAST('NaN' AS DOUBLE)", [True, True, None]),
    ],
)
def test_a_literal_that_the_column_cannot_hold_is_compared_exactly(text, expected):
    assert mask(text, "INT", [3, 4, None]) == expected


def test_nan_equals_nan_and_is_the_largest_value():
    values = [float("nan"), float("inf"), 1.0, None]
    assert mask("v = CAST('NaN' AS DOUBLE)", "DOUBLE", values) == [True, False, False, None]
    assert mask("v > 5", "DOUBLE", values) == [True, True, False, None]
    assert mask("v < CAST('NaN' AS DOUBLE)", "DOUBLE", values) == [False, True, True, None]
    assert mask("v IN (CAST('NaN' AS DOUBLE), 1)", "DOUBLE", values) == [True, False, True, None]
    assert mask("v = v", "DOUBLE", values) == [True, True, True, None]


def test_both_zeros_are_equal():
    assert mask("v = 0 AND v IN (-0.0D) AND v >= 0", "DOUBLE", [0.0, -0.0]) == [True, True]


def test_a_float_column_meets_a_decimal_literal_in_double():
    assert mask("v = 0.1", "FLOAT", [0.1]) == [False]
    assert mask("v = 0.1F", "FLOAT", [0.1]) == [True]


def test_timestamps_are_compared_with_all_digits_of_the_literal():
    assert mask("v > '1970-01-01 00:00:00.0005'", "TIMESTAMP(3)", [0, 1, None]) == [False, True, None]
    assert mask("v = '1970-01-01 00:00:00.0005'", "TIMESTAMP(3)", [0, 1]) == [False, False]
    assert mask("v < TIMESTAMP '9999-12-31 00:00:00'", "TIMESTAMP(9)", [0]) == [True]


def test_instants_are_compared_in_utc():
    kind = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
    assert mask("v = '1970-01-01 01:00:00+01:00'", kind, [0]) == [True]
    assert mask("v = TIMESTAMP '1970-01-01 01:00:00+01:00'", "TIMESTAMP(3)", [0]) == [True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v LIKE 'a%'", [True, True, False, None]),
        ("v LIKE '%c'", [True, True, False, None]),
        ("v LIKE '%b%'", [True, False, False, None]),
        ("v LIKE 'a_c'", [True, True, False, None]),
        ("v LIKE 'a\\%c'", [False, True, False, None]),
        ("v LIKE 'a!%c' ESCAPE '!'", [False, True, False, None]),
        ("v ILIKE 'A_C'", [True, True, False, None]),
        ("v NOT LIKE 'a%'", [False, False, True, None]),
        ("v LIKE ANY ('x%', 'a_c')", [True, True, True, None]),
        ("v LIKE ALL ('a%', '%b%')", [True, False, False, None]),
        ("v NOT LIKE ANY ('a%', '%b%')", [False, True, True, None]),
        ("v NOT LIKE ALL ('a%', '%b%')", [False, False, True, None]),
        ("v ILIKE SOME ('A_C')", [True, True, False, None]),
        ("v RLIKE '^a.c$'", [True, True, False, None]),
        ("v LIKE 'x_z'", [False, False, True, None]),
    ],
)
def test_like_matches_whole_values_with_wildcards_and_escapes(text, expected):
    assert mask(text, "STRING", ["abc", "a%c", "x\nz", None]) == expected


def test_a_guard_keeps_a_division_by_zero_from_failing():
    assert mask("v <> 0 AND 10 / v > 2", "INT", [0, 2, 10, None]) == [False, True, False, None]
    assert mask("10 / v > 2 AND v <> 0", "INT", [0, 2, 10, None]) == [False, True, False, None]
    assert mask("v = 0 OR 10 / v > 2", "INT", [0, 2, 10, None]) == [True, True, False, None]
    assert value("CASE WHEN v = 0 THEN 0 ELSE 10 DIV v END", "INT", [0, 3]) == [0, 3]
    assert value("10 / NULLIF(v, 0)", "INT", [0, 4]) == [None, 2.5]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("10 / v > 1", [0]),
        ("10 % v > 1", [0]),
        ("v + 1 > 1", [2**31 - 1]),
        ("v * v > 1", [2**20]),
        ("-v > 1", [-(2**31)]),
        ("abs(v) > 1", [-(2**31)]),
        ("CAST(v AS TINYINT) > 1", [128]),
        ("CAST(v AS DECIMAL(2, 0)) > 1", [100]),
    ],
)
def test_overflow_and_division_by_zero_are_errors(text, values):
    with pytest.raises(InvalidInputError, match="cannot"):
        mask(text, "INT", values)


def test_integers_divide_to_double_and_div_to_bigint():
    assert value("v / 2", "INT", [5, None]) == [2.5, None]
    assert value("v DIV 2", "INT", [-5]) == [-2]
    assert value("v % 3", "INT", [-5]) == [-2]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("v + 1", "INT"), ("v + 1L", "BIGINT"), ("v / 2", "DOUBLE"), ("v + 1.5", "DECIMAL(12, 1)"),
        ("v * 1.50", "DECIMAL(14, 2)"), ("v + 1e0", "DOUBLE"), ("CASE WHEN v > 1 THEN 'a' END", "STRING"),
        ("coalesce(v, 1L)", "BIGINT"), ("round(1.256, 2)", "DECIMAL(4, 2)"), ("floor(1.5)", "DECIMAL(2, 0)"),
        ("year(DATE '2024-01-01')", "INT"), ("v > 1", "BOOLEAN"), ("1.0 / 3", "DECIMAL(7, 6)"), ("v || 'x'", "STRING"),
    ],
)  # fmt: skip
def test_results_have_the_type_that_sql_gives_them(text, kind):
    assert str(parse_projection(text, fields(v="INT")).type) == kind


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"), (1.5, "1.5"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (0.001, "0.001"), (0.0001, "1.0E-4"),
        (1.23456789e-5, "1.23456789E-5"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"), (100.0, "100.0"),
        (5e-324, "4.9E-324"),
    ],
)  # fmt: skip
def test_doubles_become_text_as_spark_writes_them(number, text):
    assert value("CAST(v AS STRING)", "DOUBLE", [number]) == [text]


@pytest.mark.parametrize(
    ("number", "digits", "rounded"),
    [(2.5, 0, 3.0), (-2.5, 0, -3.0), (0.285, 2, 0.29), (1.005, 2, 1.01), (0.49999999999999994, 0, 0.0),
     (1234.5, -2, 1200.0), (1000000000000000.5, 0, 1000000000000001.0), (80445249577092.34, 1, 80445249577092.3)],
)  # fmt: skip
def test_doubles_round_half_up_by_their_shortest_text(number, digits, rounded):
    assert value(f"round(v, {digits})", "DOUBLE", [number]) == [rounded]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (" 2024-1-5 ", "DATE", "2024-01-05"), ("2024", "DATE", "2024-01-01"), ("2024-01-31 10", "DATE", "2024-01-31"),
        ("2024-01-31 10:20:30.123456789", "TIMESTAMP_NTZ(6)", "2024-01-31 10:20:30.123456"),
        ("2024-01-31T10:20", "TIMESTAMP_NTZ(3)", "2024-01-31 10:20:00"),
        ("2024-01-31 10:20:30-0330", "TIMESTAMP_LTZ(3)", "2024-01-31 13:50:30"),
        ("+007", "INT", "7"), ("-1.555", "DECIMAL(10, 2)", "-1.56"), ("Infinity", "DOUBLE", "Infinity"),
        ("Yes", "BOOLEAN", "true"), ("0", "BOOLEAN", "false"), ("10:20:30.0015", "TIME(3)", "10:20:30.001"),
        ("-0.0000000123", "DECIMAL(20, 12)", "-0.000000012300"),
    ],
)  # fmt: skip
def test_text_columns_cast_to_values_and_back(text, kind, expected):
    assert value(f"CAST(CAST(v AS {kind}) AS STRING)", "STRING", [text, None]) == [expected, None]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("abc", "INT"), ("1.5", "INT"), ("2147483648", "INT"), ("", "DOUBLE"), ("2024-02-30", "DATE"), ("0x1F", "BIGINT"),
     ("2024-01-31 25:00:00", "TIMESTAMP_NTZ"), ("maybe", "BOOLEAN"), ("1234", "DECIMAL(3, 0)"), ("24:00", "TIME")],
)  # fmt: skip
def test_text_that_is_no_value_of_the_type_fails_and_is_named(text, kind):
    with pytest.raises(InvalidInputError, match="CAST") as raised:
        value(f"CAST(v AS {kind})", "STRING", [text])
    assert kind[:4] in str(raised.value)


def test_large_text_dictionaries_and_views_are_read_as_text():
    for arrow in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array(["a", "b", None]).cast(arrow)
        table = pa.table({"v": column})
        assert parse_predicate("v = 'a' OR v LIKE 'a%'", fields(v="STRING")).mask(table).to_pylist() == [
            True,
            False,
            None,
        ]
        assert parse_projection("concat(v, 'x')", fields(v="STRING")).evaluate(table).to_pylist() == ["ax", "bx", None]


def test_an_empty_table_has_an_empty_mask():
    assert mask("v > 1 AND 1 / v > 0 OR v IN (1, NULL)", "INT", []) == []


@pytest.mark.parametrize(
    "text", ["v IN (1,,5)", "v IN (1, 5,)", "v IN (,1)", "coalesce(v,, 1) = 1", "v IN (1 /* , */ ,,5)"]
)
def test_a_list_that_lacks_an_item_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="a list in it lacks an item at a comma"):
        parse_predicate(text, [t.Field(0, "v", t.Int())])


def test_a_constant_condition_holds_for_every_row():
    assert mask("1 = 1", "INT", [1, None]) == [True, True]
    assert mask("NULL", "INT", [1]) == [None]
    assert mask("1 / 0 > 1", "INT", []) == []


def test_a_missing_column_is_named():
    with pytest.raises(InvalidInputError, match="column 'v'"):
        parse_predicate("v > 1", fields(v="INT")).mask(pa.table({"w": [1]}))


def test_fields_of_rows_are_null_where_the_row_is():
    kind = "ROW<a INT, b ROW<c STRING>>"
    rows = [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": None}, None]
    assert mask("v.b.c = 'x'", kind, rows) == [True, None, None]
    assert mask("v.a IS NULL", kind, rows) == [False, True, True]
    assert mask("v IS NULL", kind, rows) == [False, False, True]


def test_containers_pass_through_case_and_coalesce():
    assert value("coalesce(v, NULL)", "ARRAY<INT>", [[1], None]) == [[1], None]
    assert value("CASE WHEN v IS NULL THEN NULL ELSE v END", "ARRAY<INT>", [[1], None]) == [[1], None]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [("0", "DECIMAL(10, 2)", "0.00"), ("'2024-01-31'", "DATE", "2024-01-31"), ("v", "BIGINT", "7"),
     ("NULL", "INT", "None"), ("v", "STRING", "7"), ("v / 2", "DECIMAL(4, 1)", "3.5")],
)  # fmt: skip
def test_a_projection_is_assigned_in_the_type_of_the_column(text, kind, expected):
    made = parse_projection(text, fields(v="INT")).assigned_to(parse_type(kind), None)
    assert made.type == parse_type(kind)
    assert str(made.evaluate(pa.table({"v": pa.array([7], pa.int32())})).to_pylist()[0]) == expected


@pytest.mark.parametrize(
    ("text", "kind"), [("v > 1", "INT"), ("concat(v, 'x')", "INT"), ("v", "DATE"), ("v", "ARRAY<INT>")]
)
def test_a_projection_of_another_kind_is_not_assigned(text, kind):
    with pytest.raises(InvalidInputError, match="cannot store"):
        parse_projection(text, fields(v="INT")).assigned_to(parse_type(kind), None)


def test_a_wide_decimal_is_compared_to_the_last_digit():
    digits = "99999999999999999999999999999999999999"
    table = pa.table({"v": pa.array([Decimal(digits)], pa.decimal128(38, 0))})
    p = parse_predicate(f"v = {digits}", fields(v="DECIMAL(38, 0)"))
    assert p.mask(table).to_pylist() == [True]
    assert str(p) == f"v = CAST('{digits}' AS DECIMAL(38, 0))"
