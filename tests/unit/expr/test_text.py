import math
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from predicate_oracle import ANY, CELLS, FIELDS, KINDS, NUMERIC, ROWS, SCHEMA, TEXT, in_range, table_of
from sqlglot.dialects.spark import Spark

from merganser.errors import InvalidInputError
from merganser.expr.filters import to_predicate
from merganser.expr.from_arrow import predicate_from_arrow
from merganser.expr.predicate import Predicate
from merganser.expr.text import parse_predicate, parse_projection
from merganser.expr.tree import identifier
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

FAST = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def fields(*names, kind="INT"):
    return [t.Field(i, name, parse_type(kind)) for i, name in enumerate(names)]


@FAST
@given(node=ANY)
def test_the_text_of_a_predicate_parses_back_to_it(node):
    p = Predicate(node)
    assert parse_predicate(str(p), FIELDS) == p


MANY = ", ".join(map(str, [*range(-3, 20), 2**31, -(2**63), 10**25, "007"]))


@pytest.mark.parametrize(
    "text",
    [
        f"a IN ({MANY})",
        f"NOT (a in( {MANY} ) AND b NOT IN ({MANY})) OR b IN (1, 2) OR merge_in = 1",
        f"x IN\n({MANY}) AND a > 1",
        f"a + 1 IN ({MANY})",
        f"d IN ({MANY})",
        f"zz IN ({MANY})",
        f"a IN ({MANY}) AND",
        f"in({MANY})",
        f"a IN ({MANY},)",
        f"s = 'b IN ({MANY})'",
        f"s = 'b' -- IN ({MANY})",
    ],
)
def test_long_lists_of_integers_mean_what_the_parser_says(text, monkeypatch):
    columns = [*fields("a", "b", "merge_in"), *fields("x", kind="DOUBLE"), *fields("d", kind="DATE")]
    columns += fields("s", kind="STRING")
    found = []
    for shortest in (64, len(text) + 1):
        monkeypatch.setattr("merganser.expr.text._LIST_CHARS", shortest)
        try:
            found.append(parse_predicate(text, columns))
        except InvalidInputError as error:
            found.append(str(error))
    assert found[0] == found[1]


@given(text=st.text(max_size=8))
def test_any_text_survives_as_a_literal(text):
    p = parse_predicate(str(parse_predicate("s = 'x'", FIELDS)), FIELDS)
    assert str(p) == "s = 'x'"
    table = pa.table({"s": [text, text + "!"]})
    found = predicate_from_arrow(pc.field("s") == text, FIELDS)
    assert parse_predicate(str(found), FIELDS).mask(table).to_pylist() == [True, False]


@given(name=st.text(min_size=1, max_size=6).filter(lambda n: n.isprintable()))
def test_any_column_name_survives(name):
    p = parse_predicate(f"{identifier(name)} = 1", fields(name, "other_column"))
    assert p.columns == {name}
    assert parse_predicate(str(p), fields(name, "other_column")) == p


def test_no_word_of_the_parser_is_mistaken_for_anything_but_a_column():
    words = {word.lower() for word in Spark.Tokenizer.KEYWORDS if word.isidentifier()}
    words |= {
        "year",
        "month",
        "day",
        "lower",
        "length",
        "if",
        "isnull",
        "round",
        "x",
        "r",
        "b",
        "e",
        "end",
        "both",
        "any",
    }
    for word in sorted(words):
        columns = fields(word, "other")
        for text in (
            "{} = 1",
            "-{} + 1 > {}",
            "NOT ({} IN (1, 2))",
            "CASE WHEN {} > 1 THEN {} ELSE 0 END = 1",
            "{} IS NULL",
        ):
            p = parse_predicate(text.replace("{}", "`" + word + "`"), columns)
            assert parse_predicate(str(p), columns) == p, str(p)


@pytest.mark.parametrize("word", ["call", "explain", "optimize", "release", "savepoint", "show", "vacuum"])
def test_a_word_that_begins_statements_begins_a_filter_as_a_column(word):
    columns = fields(word, "other")
    assert parse_predicate(f"{word} = 1", columns) == parse_predicate(f"`{word}` = 1", columns)


@pytest.mark.parametrize(
    ("text", "value"),
    [("'it''s'", "it's"), (r"'it\'s'", "it's"), (r"'a\\b'", "a\\b"), (r"'a\nb'", "a\nb"), ("'a' 'b'", "ab"),
     ("r'a\\n'", "a\\n"), ('"a\'b"', "a'b"), (r"'10\%'", r"10\%"), ("''", "")],
)  # fmt: skip
def test_strings_are_read_as_spark_reads_them(text, value):
    assert parse_projection(text, FIELDS).expression.value == value


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a == 1", "a = 1"),
        ("a != 1", "a <> 1"),
        ("A = 1 and B > 2 and (i8 < 3 and d = 4)", "a = 1 AND b > 2 AND i8 < 3 AND d = 4"),
        ("a = 1 or (b = 2 and flag)", "a = 1 OR (b = 2 AND flag)"),
        ("a not between 1 and 2", "NOT (a >= 1 AND a <= 2)"),
        ("dt > '2024-1-5'", "dt > DATE '2024-01-05'"),
        ("ts = '2024-01-05 10:00:00.5'", "ts = TIMESTAMP '2024-01-05 10:00:00.5'"),
        ("l = '2024-01-05 10:00:00+02:00'", "l = TIMESTAMP_LTZ '2024-01-05 08:00:00'"),
        ("flag is not true", "NOT (flag <=> TRUE)"),
        ("a is distinct from 1", "NOT (a <=> 1)"),
        ("isnotnull(s)", "s IS NOT NULL"),
        ("nvl(a, 1) = 2", "coalesce(a, 1) = 2"),
        ("substr(s, 2) = 'x'", "substring(s, 2) = 'x'"),
        ("a in (1, b)", "a = 1 OR a = b"),
        ("a = -5", "a = -5"),
        ("b = -9223372036854775808", "b = -9223372036854775808"),
        ("i8 = -128Y", "i8 = -128Y"),
        ("case a when 1 then 2 else 3 end = 2", "CASE WHEN a = 1 THEN 2 ELSE 3 END = 2"),
        ("a = '3000000000'", "a = 3000000000"),
        ("d = '1.999'", "d = 1.999"),
        ("a > 1 -- and b > 2", "a > 1"),
    ],
)
def test_text_becomes_one_plain_form(text, printed):
    assert str(parse_predicate(text, FIELDS)) == printed


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("amuont > 1", ["'amuont'", "Did you mean 'amount'?", "'amount'", "(4 in all)"]),
        ("zzz > 1", ["unknown column 'zzz'", "'amount', 'name', 'k'"]),
        ("name.x = 1", ["'x'", "'name'", "ROW"]),
        ("r.z = 1", ["'z'", "'q'"]),
        ("k = 'abc'", ["k", "'abc'", "BIGINT"]),
        ("name = 5", ["name", "STRING", "INT", "CAST"]),
        ("k = name", ["BIGINT", "STRING"]),
        ("k + 1", ["'k + 1'", "BIGINT", "not a condition"]),
        ("k AND amount", ["'k'", "BIGINT", "not a condition"]),
        ("sum(k) > 1", ["'sum(k)'", "aggregate", "Supported"]),
        ("k > 1 AND named_struct('x)', k) = r", ["cannot use 'named_struct('x)', k)'", "no function 'named_struct'"]),
        ("Struct(k AS x, (1)) = r", ["cannot use 'Struct(k AS x, (1))'", "no function 'struct'"]),
        ("instr(name, 'it''s') = 1", ["cannot use 'instr(name, 'it''s')'", "no function 'instr'"]),
        ("transform(k, x -> x) = 1", ["no function 'transform'"]),
        ("k IN (SELECT 1)", ["subqueries", "Supported"]),
        ("EXISTS (SELECT 1)", ["subqueries"]),
        ("k = (SELECT 1)", ["subqueries"]),
        ("row_number() OVER (ORDER BY k) = 1", ["window functions"]),
        ("frobnicate(k) = 1", ["'frobnicate'", "Supported"]),
        ("TRY_CAST(k AS INT) = 1", ["TRY_CAST", "use CAST"]),
        ("name LIKE amount", ["LIKE", "string literal"]),
        ("name LIKE ANY ('a') ESCAPE '!'", ["list of patterns", "without ESCAPE"]),
        ("DATE '2026-01-03' - DATE '2026-01-01' > INTERVAL 1 DAY", ["no differences of times", "INTERVAL", "datediff"]),
        ("name RLIKE '('", ["RLIKE", "'('"]),
        ("name LIKE 'a\\\\b'", ["LIKE", "escape", "character 2"]),
        ("k LIKE 'a'", ["'k'", "BIGINT", "not text"]),
        ("k > ", ["cannot read the filter 'k > ': a value is missing, at line 1, column 3"]),
        ("k > 1 1", ["it is not an expression, at line 1, column 7", "'1'"]),
        ("WHERE k = 1", ["it begins with WHERE, which is left out"]),
        ("name = paid", ["unknown column 'paid'", "If it is text, write it in quotes: 'paid'."]),
        ("k = 1; DROP TABLE x", ["cannot"]),
        ("SELECT 1", ["cannot read"]),
        ("", ["empty"]),
        ("k = 'x", ["cannot read", "a quote or a comment that begins in it does not end"]),
        ("k > DATE '2024-01-01'", ["BIGINT", "DATE"]),
        ("k = 999999999999999999999999999999999999999", ["39 digits", "38"]),
        ("r = 1", ["ROW<q INT>"]),
        ("CAST(k AS ARRAY<INT>) IS NULL", ["no cast"]),
        ("substring(name, k) = 'x'", ["'k'", "literal"]),
        ("year(k) = 1", ["year", "BIGINT"]),
        ("NOT k", ["NOT", "BIGINT"]),
        ('"k" = 5', ['Double quotes make "k" a text', "the column is written `k`"]),
        ('"K" + 1 = 5', ["the column is written `k`"]),
        ('"r"."q" = 5', ["a text has no fields", "the column is written `r`"]),
        ("k[0] = 5", ["'k[0]'", "do not look into an ARRAY or a MAP"]),
    ],
)
def test_what_is_not_understood_is_refused_by_name(text, facts):
    columns = [
        t.Field(i, n, parse_type(k))
        for i, (n, k) in enumerate({"amount": "INT", "name": "STRING", "k": "BIGINT", "r": "ROW<q INT>"}.items())
    ]
    with pytest.raises(InvalidInputError) as raised:
        parse_predicate(text, columns)
    assert [fact for fact in facts if fact not in str(raised.value)] == [], str(raised.value)
    assert ("Double quotes" in str(raised.value)) == ('"' in text)


def test_an_exact_name_wins_over_one_of_another_case():
    assert parse_predicate("a = 1", fields("A", "a")).columns == {"a"}
    assert parse_predicate("A = 1", fields("A", "a")).columns == {"A"}


def test_a_name_that_two_columns_share_but_for_case_is_refused():
    with pytest.raises(InvalidInputError, match="'Ab' or 'aB'"):
        parse_predicate("ab = 1", fields("Ab", "aB"))


def test_a_qualifier_may_stand_before_columns():
    p = parse_predicate("target.a = 1 AND a < 2 AND TARGET.r.q = 3", FIELDS, "target")
    assert str(p) == "a = 1 AND a < 2 AND r.q = 3"
    with pytest.raises(InvalidInputError, match="'target'"):
        parse_predicate("target.a = 1", FIELDS)


def test_a_column_whose_name_has_a_dot_is_written_in_backticks():
    p = parse_predicate("`a.b` = 1", fields("a.b"))
    assert p.columns == {"a.b"}
    assert str(p) == "`a.b` = 1"


def test_thousands_of_alternatives_are_read():
    p = parse_predicate(" OR ".join(f"a > {i}" for i in range(3000)), FIELDS)
    assert len(p.expression.items) == 3000


def test_text_that_is_nested_too_deeply_is_refused():
    with pytest.raises(InvalidInputError, match="too deeply"):
        parse_predicate("(" * 5000 + "a = 1" + ")" * 5000, FIELDS)


def test_filters_leave_the_slow_modules_alone():
    code = (
        "import sys, merganser.expr.predicate, merganser.expr.prune, merganser.expr.from_arrow;"
        "print([m for m in ('sqlglot', 'polars', 'pyarrow.dataset', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Arrow expressions


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (pc.field("a") > 1, "a > 1"),
        (pc.scalar(1) < pc.field("a"), "a > 1"),
        (pc.field("a") == 3.5, "a = 3.5D"),
        (pc.field("s") == 'it\'s \\ "quoted"', "s = 'it\\'s \\\\ \"quoted\"'"),
        ((pc.field("a") > 1) & ~(pc.field("s") == "x"), "a > 1 AND NOT (s = 'x')"),
        ((pc.field("a") > 1) | pc.field("flag"), "a > 1 OR flag"),
        (pc.field("a").isin([1, 2]), "a IS NOT NULL AND a IN (1, 2)"),
        (pc.field("a").isin([1, None]), "a IS NULL OR a IN (1)"),
        (pc.field("a").isin(pa.array([], pa.int32())), "FALSE"),
        (pc.field("a").is_null(), "a IS NULL"),
        (pc.field("a").is_valid(), "a IS NOT NULL"),
        (pc.field("f").is_null(nan_is_null=True), "f IS NULL OR f <=> CAST('NaN' AS DOUBLE)"),
        (pc.field("f") > 1.5, "f > 1.5D AND f <> CAST('NaN' AS DOUBLE)"),
        (pc.field("dt") >= date(2024, 1, 31), "dt >= DATE '2024-01-31'"),
        (pc.field("dt") >= "2024-01-31", "dt >= DATE '2024-01-31'"),
        (pc.field("ts") < datetime(2024, 1, 31, 10), "ts < TIMESTAMP '2024-01-31 10:00:00.000000'"),
        (
            pc.field("l") < datetime(2024, 1, 31, 10, tzinfo=UTC),
            "l < TIMESTAMP_LTZ '2024-01-31 10:00:00.000000'",
        ),
        (pc.field("d") == Decimal("1.50"), "d = 1.50"),
        (pc.field("x") == b"\x01", "x = X'01'"),
        (pc.field("r", "q") == 1, "r.q = 1"),
        (pc.struct_field(pc.field("r"), "q") == 1, "r.q = 1"),
        (pc.starts_with(pc.field("s"), "a%"), "startswith(s, 'a%')"),
        (pc.match_like(pc.field("s"), "a%"), "s LIKE 'a%'"),
        (pc.scalar(True), "TRUE"),
    ],
)
def test_an_arrow_expression_becomes_the_same_tree_as_text(expression, text):
    p = predicate_from_arrow(expression, FIELDS)
    assert str(p) == text
    assert parse_predicate(text, FIELDS) == p


CELL_TYPES = {name: SCHEMA.field(name).type for name in CELLS}
OPERATORS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]


@st.composite
def scalars(draw, name):
    kind = CELL_TYPES[name]
    return pa.scalar(draw(st.one_of(CELLS[name], CELLS[name], st.none())), kind)


@st.composite
def arrow_leaves(draw):
    name = draw(st.sampled_from([n for n in CELLS if n != "r"]))
    column = pc.field(name)
    match draw(st.sampled_from(["literal", "number", "column", "null", "valid", "in", "text", "row", "opaque"])):
        case "literal":
            return getattr(column, draw(st.sampled_from(OPERATORS)))(pc.scalar(draw(scalars(name))))
        case "number":
            number = draw(st.sampled_from([3, 2.5, 0, math.nan, 0.1]))
            return getattr(pc.field(draw(st.sampled_from(NUMERIC))), draw(st.sampled_from(OPERATORS)))(number)
        case "column":
            same = [other for other in CELLS if KINDS[other] == KINDS[name]]
            return getattr(column, draw(st.sampled_from(OPERATORS)))(pc.field(draw(st.sampled_from(same))))
        case "null":
            return column.is_null(nan_is_null=name in "fg" and draw(st.booleans()))
        case "valid":
            return column.is_valid()
        case "in":
            values = pa.array(
                [getattr(v, "value", v.as_py()) for v in draw(st.lists(scalars(name), max_size=4))], CELL_TYPES[name]
            )
            return pc.is_in(column, value_set=values, skip_nulls=draw(st.booleans()))
        case "text":
            find = draw(st.sampled_from([pc.starts_with, pc.ends_with, pc.match_substring]))
            return find(pc.field("s"), draw(TEXT), ignore_case=draw(st.booleans()))
        case "row":
            return pc.field("r", "q") == draw(in_range(32))
    return draw(
        st.sampled_from([
            pc.field("flag"), pc.is_nan(pc.field("f")), pc.field("a") + pc.field("a").cast("int64") > 3,
            pc.if_else(pc.field("flag"), pc.field("a"), pc.scalar(0)) > 1, pc.field("f") > pc.field("g"),
        ])
    )  # fmt: skip


ARROW = st.recursive(
    arrow_leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=4,
)


@FAST
@given(rows=ROWS, expression=ARROW)
def test_an_arrow_expression_is_applied_as_arrow_applies_it(rows, expression):
    table = table_of(rows)
    numbered = table.append_column("#", pa.array(range(len(rows)), pa.int64()))
    try:
        kept = numbered.filter(expression)["#"].to_pylist()
        dropped = numbered.filter(~expression)["#"].to_pylist()
    except pa.ArrowException:
        return
    p = predicate_from_arrow(expression, FIELDS)
    wanted = [True if i in kept else False if i in dropped else None for i in range(len(rows))]
    assert p.mask(table).to_pylist() == wanted, f"{expression} -> {p}"
    assert pickle.loads(pickle.dumps(p)) == p


def test_only_the_part_that_arrow_alone_understands_stays_an_arrow_expression():
    p = predicate_from_arrow((pc.field("a") > 1) & (pc.bit_wise_and(pc.field("b"), 1) == 1), FIELDS)
    assert p.columns == {"a", "b"}
    assert str(p).startswith("a > 1 AND arrow(")
    table = pa.table({"a": pa.array([1, 2, 3, None], pa.int32()), "b": [1, 1, 2, 1]})
    assert p.mask(table).to_pylist() == [False, True, False, None]


@pytest.mark.parametrize(
    ("expression", "fact"),
    [
        (pc.field("nope") == 1, "'nope'"),
        (pc.field(0) == 1, "by"),
        (pc.field("a") + 1, "a"),
        (pc.field("a"), "a"),
        (pc.field("s") == 1, "s"),
        (pc.field("a", "b") == 1, "'b'"),
    ],
)
def test_an_arrow_expression_that_does_not_fit_the_columns_is_refused(expression, fact):
    with pytest.raises(InvalidInputError, match=fact):
        predicate_from_arrow(expression, FIELDS)


def test_to_predicate_takes_every_form_of_a_filter():
    made = parse_predicate("a > 1", FIELDS)
    assert to_predicate(None, FIELDS) is None
    assert to_predicate("a > 1", FIELDS) == made
    assert to_predicate(pc.field("a") > 1, FIELDS) == made
    assert to_predicate(made, FIELDS) == made
    with pytest.raises(InvalidInputError, match="list"):
        to_predicate(["a > 1"], FIELDS)


def test_a_predicate_made_for_other_columns_is_refused():
    with pytest.raises(InvalidInputError, match="STRING"):
        to_predicate(parse_predicate("a > 1", FIELDS), fields("a", kind="STRING"))
