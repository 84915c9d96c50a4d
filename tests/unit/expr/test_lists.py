"""Long lists of IN: the same answers as one comparison per option, for rows and for files."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from predicate_oracle import CELLS, FIELDS, KINDS, SCHEMA, column, evaluate, literals

from merganser.codec.stats import StatsMode, column_stats, truncate
from merganser.expr import build, tree
from merganser.expr.listed import listed
from merganser.expr.predicate import Predicate
from merganser.expr.prune import may_match_many, must_match_many
from merganser.expr.text import parse_predicate

FAST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
NAMES = [name for name in KINDS if name != "r"]


def cells(name):
    return st.lists(st.one_of(st.none(), CELLS[name]), max_size=12)


@st.composite
def lists(draw, name, values, min_size=1):
    """Options of which some are values of the rows, in no order, some of other types, some null."""
    own = [tree.Literal(v, KINDS[name]) for v in values if v is not None and name != "tm"]
    hits = draw(st.lists(st.sampled_from(own), max_size=12)) if own else []
    others = draw(st.lists(literals(name), min_size=min_size, max_size=25))
    nulls = [build.NULL] if draw(st.integers(0, 3)) == 0 else []
    return draw(st.permutations([*hits, *others, *nulls]))


def condition(draw, name, values):
    node = build.member(column(name), draw(lists(name, values)))
    return build.negation(node) if draw(st.booleans()) else node


@pytest.mark.campaign(1 / 14)
@pytest.mark.parametrize("name", NAMES)
@FAST
@given(data=st.data())
def test_a_list_finds_the_rows_that_one_comparison_per_option_finds(name, data):
    values = data.draw(cells(name))
    node = condition(data.draw, name, values)
    rows = pa.chunked_array([pa.array(part, SCHEMA.field(name).type) for part in (values[:5], values[5:])])
    expected = [evaluate(node, {name: value}) for value in values]
    assert Predicate(node).mask(pa.table({name: rows})).to_pylist() == expected, str(Predicate(node))
    if pa.types.is_string(rows.type) or pa.types.is_binary(rows.type):
        large = rows.cast(pa.large_string() if pa.types.is_string(rows.type) else pa.large_binary())
        assert Predicate(node).mask(pa.table({name: large})).to_pylist() == expected


@pytest.mark.campaign(1 / 7)
@pytest.mark.parametrize("name", NAMES)
@FAST
@given(data=st.data())
def test_a_list_leaves_out_no_file_with_a_row_and_promises_none_without(name, data):
    files = data.draw(st.lists(cells(name), min_size=1, max_size=6))
    node = condition(data.draw, name, [value for values in files for value in values])
    cut = data.draw(st.sampled_from([None, StatsMode("truncate", 1), StatsMode("truncate", 2)]))
    kind, arrow = KINDS[name], SCHEMA.field(name).type
    stats = [column_stats(pa.array(values, arrow), kind) for values in files]
    if cut is not None:
        stats = [truncate(one, kind, cut) for one in stats]
    asked = _asked(name, stats, [len(values) for values in files])
    may = may_match_many(Predicate(node), *asked)
    must = must_match_many(Predicate(node), *asked)
    for values, kept, whole in zip(files, may, must, strict=True):
        truth = [evaluate(node, {name: value}) for value in values]
        assert kept or True not in truth, (str(Predicate(node)), values)
        assert not whole or all(truth), (str(Predicate(node)), values)


@pytest.mark.campaign(1 / 7)
@pytest.mark.parametrize("name", NAMES)
@FAST
@given(data=st.data())
def test_a_file_is_kept_when_one_option_alone_would_keep_it(name, data):
    files = data.draw(st.lists(cells(name), min_size=1, max_size=6))
    own = name != "tm" and data.draw(st.booleans())
    values = CELLS[name].map(lambda v: tree.Literal(v, KINDS[name]))
    options = data.draw(st.lists(values if own else literals(name), min_size=1, max_size=25))
    stats = [column_stats(pa.array(values, SCHEMA.field(name).type), KINDS[name]) for values in files]
    asked = _asked(name, stats, [len(values) for values in files])
    kept = may_match_many(Predicate(build.member(column(name), options)), *asked)
    alone = [may_match_many(Predicate(build.compare("=", column(name), o)), *asked) for o in options]
    # Of another type an option may lie between two neighbouring values and equal none, which a list knows.
    assert (kept <= np.logical_or.reduce(alone)).all()
    assert not own or (kept == np.logical_or.reduce(alone)).all(), (options, stats)


@pytest.mark.campaign(1 / 14)
@pytest.mark.parametrize("name", NAMES)
@FAST
@given(data=st.data())
def test_many_equalities_of_a_column_are_a_list_that_means_the_same(name, data):
    values = data.draw(cells(name))
    options = [o for o in data.draw(lists(name, values, min_size=20)) if o.value is not None]
    equalities = [build.compare("=", column(name), option) for option in options]
    others = [build.is_null(column("a")), build.compare(">", column("b"), tree.Literal(3, KINDS["b"]))]
    p = Predicate(build.disjunction([*others[:1], *equalities, *others[1:]]))
    rows = pa.table({name: pa.array(values, SCHEMA.field(name).type)})
    for other in {"a", "b"} - {name}:
        rows = rows.append_column(other, pa.array([7 if other == "a" else 1] * len(values), SCHEMA.field(other).type))
    plain = tree.Or((*others[:1], *equalities, *others[1:]))
    expected = [evaluate(plain, {"a": 7, "b": 1, name: value}) for value in values]
    assert p.mask(rows).to_pylist() == expected, str(p)
    assert parse_predicate(str(p), FIELDS) == p


def test_an_or_of_many_equalities_is_written_as_a_list():
    text = " OR ".join(f"a = {i}" for i in range(30))
    assert str(parse_predicate(f"{text} OR b = 1 OR a = 3", FIELDS)) == (
        f"a IN ({', '.join(map(str, range(30)))}) OR b = 1"
    )
    assert " OR " in str(parse_predicate(" OR ".join(f"a = {i}" for i in range(5)), FIELDS))


def test_a_list_is_turned_into_sets_once():
    node = build.member(column("b"), [tree.Literal(v, KINDS["b"]) for v in (5, 3, 3, 2**62)])
    assert listed(node) is listed(node)
    assert listed(node).stored.to_pylist() == [3, 5, 2**62]


def _asked(name, stats, rows):
    arrow = SCHEMA.field(name).type
    lows, highs = (pa.array([getattr(one, end) for one in stats], arrow) for end in ("min", "max"))
    return {name: lows}, {name: highs}, {name: np.array([one.null_count for one in stats])}, np.array(rows)
