import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from one_file import may_match, must_match
from predicate_oracle import KINDS, PLAIN, ROWS, SCHEMA, SqlError, computed, conditions, evaluate

from merganser.expr.predicate import Predicate
from merganser.expr.prune import may_match_many, must_match_many
from merganser.expr.text import parse_predicate
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

FAST = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
CONDITIONS = conditions(st.one_of(PLAIN, PLAIN, PLAIN, computed()))


@st.composite
def statistics(draw, rows):
    """Statistics that are true of some rows, but may be absent, loose or partly unknown."""
    out = {}
    for name in KINDS:
        values = [row[name] for row in rows]
        ordered = [v for v in values if v is not None and v == v] if name != "r" else []
        low, high = (min(ordered), max(ordered)) if ordered else (None, None)
        nulls = sum(v is None for v in values)
        match draw(
            st.sampled_from(["exact", "exact", "exact", "absent", "no minimum", "no maximum", "no count", "loose"])
        ):
            case "absent":
                continue
            case "no minimum":
                low = None
            case "no maximum":
                high = None
            case "no count":
                nulls = None
            case "loose" if isinstance(low, str):
                low, high = low[:1], high[:1] + "\U0010ffff"
            case "loose" if isinstance(low, bytes):
                low, high = low[:1], high + b"\xff"
            case "loose" if isinstance(low, float):
                low, high = low - 1, math.nan
        out[name] = (low, high, nulls)
    return out


def without_nan(rows):
    return [n for n in "fg" if not any(isinstance(row[n], float) and math.isnan(row[n]) for row in rows)]


@FAST
@given(data=st.data(), rows=ROWS, node=CONDITIONS)
def test_rows_that_match_are_never_pruned_and_a_certain_match_is_one(data, rows, node):
    p, stats = Predicate(node), data.draw(statistics(rows))
    try:
        truth = [evaluate(node, row) for row in rows]
    except SqlError:
        return
    for nan_free in ((), without_nan(rows)):
        assert may_match(p, stats, len(rows), nan_free=nan_free) or True not in truth, (str(p), stats)
        assert not must_match(p, stats, len(rows), nan_free=nan_free) or all(truth), (str(p), stats)


@FAST
@given(data=st.data(), files=st.lists(ROWS, min_size=1, max_size=4), node=CONDITIONS)
def test_many_files_at_once_are_each_file_alone(data, files, node):
    p, all_stats = Predicate(node), [data.draw(statistics(rows)) for rows in files]
    unknown = (None, None, None)
    mins, maxs, nulls = {}, {}, {}
    for name in {name for stats in all_stats for name in stats}:
        kind = SCHEMA.field(name).type
        mins[name] = pa.array([stats.get(name, unknown)[0] for stats in all_stats], kind)
        maxs[name] = pa.array([stats.get(name, unknown)[1] for stats in all_stats], kind)
        counts = [stats.get(name, unknown)[2] for stats in all_stats]
        nulls[name] = np.array([-1 if count is None else count for count in counts])
    rows = np.array([len(f) for f in files])
    alone = [(may_match(p, s, len(f)), must_match(p, s, len(f))) for s, f in zip(all_stats, files, strict=True)]
    assert may_match_many(p, mins, maxs, nulls, rows).tolist() == [may for may, _ in alone]
    assert must_match_many(p, mins, maxs, nulls, rows).tolist() == [must for _, must in alone]


def fields(**kinds):
    return [t.Field(i, name, parse_type(kind)) for i, (name, kind) in enumerate(kinds.items())]


COLUMNS = fields(
    k="INT",
    b="BIGINT",
    s="STRING",
    f="DOUBLE",
    d="DECIMAL(10, 2)",
    day="DATE",
    at="TIMESTAMP(3)",
    flag="BOOLEAN",
    r="ROW<q INT>",
)
STATS = {
    "k": (10, 20, 0), "b": (0, 100, None), "s": ("abc", "abd", 2), "f": (1.0, 2.0, 0),
    "d": (Decimal("1.50"), Decimal("2.50"), 0), "day": (19_000, 19_010, 0), "at": (0, 1_000, 0),
    "flag": (True, True, 0),
}  # fmt: skip


def answers(text, stats=STATS, rows=10, **more):
    p = parse_predicate(text, COLUMNS)
    return may_match(p, stats, rows, **more), must_match(p, stats, rows, **more)


@pytest.mark.parametrize(
    ("text", "may", "must"),
    [
        ("k = 9", False, False), ("k = 10", True, False), ("k <> 9", True, True), ("k > 20", False, False),
        ("k >= 10", True, True), ("k < 10", False, False), ("k > 9.5", True, True), ("k = 10.5", True, False),
        ("k > 3000000000", False, False), ("k < 3000000000", True, True), ("NOT (k >= 10)", False, False),
        ("NOT (k = 15)", True, False), ("k IN (1, 2, 21)", False, False), ("k IN (1, 12)", True, False),
        ("k NOT IN (1, 2)", True, True), ("k NOT IN (1, NULL)", False, False), ("k BETWEEN 21 AND 30", False, False),
        ("k BETWEEN 1 AND 30", True, True), ("k IS NULL", False, False), ("k IS NOT NULL", True, True),
        ("k <=> NULL", False, False), ("k <=> 9", False, False), ("NOT (k <=> 9)", True, True),
        ("k = NULL", False, False),
        ("k = 9 OR s = 'abc'", True, False), ("k = 9 AND s = 'abc'", False, False), ("k = 9 OR b = -1", False, False),
        ("b >= 0", True, False), ("b < 0", False, False), ("b IS NULL", True, False), ("b IS NOT NULL", True, False),
        ("k > b", True, False), ("k < b", True, False), ("15 < k", True, False), ("25 < k", False, False),
        ("s LIKE 'ab%'", True, False), ("s LIKE 'b%'", False, False), ("s LIKE 'ac%'", False, False),
        ("s LIKE 'abc_x'", True, False), ("s LIKE '%x'", True, False), ("s NOT LIKE 'ab%'", False, False),
        ("s LIKE 'abc'", True, False), ("s LIKE 'zzz'", False, False), ("startswith(s, 'abe')", False, False),
        ("s ILIKE 'Z%'", True, False), ("s IS NULL", True, False), ("s > 'abd'", False, False),
        ("d = 1.505", True, False), ("d > 2.5", False, False), ("d >= 1.5", True, True),
        ("day >= '2022-01-08'", True, True), ("day < '2022-01-08'", False, False), ("year(day) = 2021", False, False),
        ("year(day) = 2022", True, True), ("at < '1970-01-01 00:00:01.0005'", True, True),
        ("at > '1970-01-01 00:00:01.0005'", False, False), ("CAST(at AS DATE) = '1970-01-02'", False, False),
        ("flag", True, True), ("NOT flag", False, False), ("flag = FALSE", False, False), ("r.q = 1", True, False),
        ("r IS NULL", True, False), ("TRUE", True, True), ("FALSE", False, False), ("NULL", False, False),
        ("k % 2 = 0", True, False), ("CAST(k AS BIGINT) > 20", False, False), ("b > 100", False, False),
        ("length(s) > 100", True, False), ("k = 9 AND length(s) > 1", False, False),
    ],
)  # fmt: skip
def test_statistics_answer(text, may, must):
    assert answers(text) == (may, must)


@pytest.mark.parametrize("text", ["k = 1", "k > 1", "NOT (k = 1)", "k IN (1)", "k IS NULL", "k <=> 1", "r.q = 1"])
def test_unknown_statistics_prune_nothing_and_promise_nothing(text):
    assert answers(text, {}) == (True, False)
    assert answers(text, {"k": (None, None, None)}) == (True, False)


def test_a_column_of_nulls_matches_no_comparison():
    stats = {"k": (None, None, 10)}
    assert answers("k = 1", stats) == (False, False)
    assert answers("NOT (k = 1)", stats) == (False, False)
    assert answers("k IN (1, 2)", stats) == (False, False)
    assert answers("k IS NULL", stats) == (True, True)
    assert answers("k <=> NULL", stats) == (True, True)
    assert answers("coalesce(k, 1) = 1", stats) == (True, False)


def test_one_bound_is_enough_to_prune():
    assert answers("k < 10", {"k": (10, None, None)}) == (False, False)
    assert answers("k > 20", {"k": (None, 20, None)}) == (False, False)
    assert answers("k = 5", {"k": (10, None, None)}) == (False, False)


def test_nan_may_hide_above_the_maximum_unless_told_otherwise():
    assert answers("f > 100") == (True, False)
    assert answers("f > 100", nan_free=["f"]) == (False, False)
    assert answers("f <= 2") == (True, False)
    assert answers("f <= 2", nan_free=["f"]) == (True, True)
    assert answers("f = 5") == (False, False)
    assert answers("f < 1") == (False, False)
    assert answers("f BETWEEN 5 AND 6") == (False, False)
    assert answers("f = CAST('NaN' AS DOUBLE)") == (True, False)
    assert answers("f = CAST('NaN' AS DOUBLE)", nan_free=["f"]) == (False, False)


def test_a_bound_that_is_nan_is_no_bound():
    assert answers("f < 0", {"f": (math.nan, math.nan, 0)}, nan_free=["f"]) == (True, False)


def test_a_cast_that_turns_nan_and_infinity_into_null_may_be_null():
    assert answers("CAST(f AS DECIMAL(10, 2)) IS NULL") == (True, False)
    assert answers("CAST(f AS DECIMAL(10, 2)) >= 1") == (True, False)
    assert answers("CAST(f AS DECIMAL(10, 2)) > 2", nan_free=["f"]) == (False, False)


def test_the_floor_of_nan_is_zero_whatever_the_bounds():
    columns = fields(a="DOUBLE", b="DOUBLE", c="DOUBLE", e="DOUBLE", n="DECIMAL(5, 2)")
    stats = {**dict.fromkeys("abce", (5.0, 6.0, 0)), "n": (Decimal("5.00"), Decimal("6.00"), 0)}
    text = "floor(a) = 0 AND b > 1 AND c > 1 AND e > 1"
    assert may_match(parse_predicate(text, columns), stats, 5)
    assert not may_match(parse_predicate(text + " AND floor(n) = 0", columns), stats, 5)


def test_many_float_columns_are_asked_together():
    columns = fields(a="DOUBLE", b="DOUBLE", c="DOUBLE", e="DOUBLE")
    stats = dict.fromkeys("abce", (1.0, 2.0, 0))
    assert not may_match(parse_predicate("a < 1 AND b > 9 AND c > 9 AND e > 9", columns), stats, 5)
    assert may_match(parse_predicate("a > 9 AND b > 9 AND c > 9 AND e > 9", columns), stats, 5)


def test_truncated_text_bounds_still_contain_the_values():
    assert answers("s = 'abcdef'", {"s": ("abc", "abe", 0)}) == (True, False)
    assert answers("s LIKE 'abcdef%'", {"s": ("abc", "abe", 0)}) == (True, False)
    assert answers("s LIKE 'ab%'", {"s": ("abc", "abe", 0)}) == (True, True)


def test_a_prefix_of_the_last_characters_has_no_successor():
    assert answers("s LIKE '\U0010ffff%'", {"s": ("a", "b", 0)}) == (False, False)
    assert answers("s LIKE '\ud7ff%'", {"s": ("\ud7ff", "\ue000", 0)}) == (True, False)


def test_a_bound_of_another_type_says_nothing():
    assert answers("k = 5", {"k": ("x", "y", 0)}) == (True, False)


def test_stored_integers_stand_for_dates_and_times_in_arrays():
    p = parse_predicate("day = '1970-01-03' AND at >= '1970-01-01 00:00:01'", COLUMNS)
    mins = {"day": pa.array([0, 0, 3], pa.int32()), "at": pa.array([0, 0, 0], pa.int64())}
    maxs = {"day": pa.array([1, 5, 5], pa.int32()), "at": pa.array([2_000, 2_000, 2_000], pa.int64())}
    assert may_match_many(p, mins, maxs, {}, np.array([1, 1, 1])).tolist() == [False, True, False]


def test_a_long_list_is_placed_between_the_bounds_of_each_file():
    p = parse_predicate(f"k IN ({', '.join(str(3 * i) for i in range(1000))})", COLUMNS)
    mins, maxs = pa.array([1, 3, 4, None, 5000], pa.int32()), pa.array([2, 3, 7, 5, 6000], pa.int32())
    zeros = np.zeros(5, np.int64)
    assert may_match_many(p, {"k": mins}, {"k": maxs}, {"k": zeros}, zeros + 9).tolist() == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert must_match_many(p, {"k": mins}, {"k": maxs}, {"k": zeros}, zeros + 9).tolist() == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_no_rows_match_nothing_and_everything():
    assert answers("k = 1", {"k": (None, None, 0)}, rows=0) == (False, True)


def test_a_cast_that_overflows_for_one_file_leaves_the_others_their_bounds():
    p = parse_predicate("CAST(b AS TINYINT) > 50", COLUMNS)
    mins, maxs = pa.array([0, 0, 0], pa.int64()), pa.array([10, 1000, 60], pa.int64())
    assert may_match_many(p, {"b": mins}, {"b": maxs}, {}, np.array([1, 1, 1])).tolist() == [False, True, True]
