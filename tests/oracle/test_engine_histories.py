"""A slice of the random histories of every merge engine, and what the oracle itself promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from merganser.schema import types as t
from tests.oracle.engine_histories import run
from tests.oracle.engines import CountingOracle, EngineOracle

SEEDS = {
    "deduplicate": range(6),
    "first-row": range(4),
    "partial-update": (*range(10), 50357, 50772),  # the last: several groups that remove rows, late versions
    "aggregation": range(8),
    "counting": range(4),
    "append": range(3),
}
HISTORIES = [(engine, seed) for engine, seeds in SEEDS.items() for seed in seeds]


@pytest.mark.campaign(1 / 20)
@pytest.mark.parametrize(("engine", "seed"), HISTORIES)
def test_a_random_history_reads_as_the_oracle_says(engine: str, seed: int, tmp_path: Path) -> None:
    run(engine, seed, tmp_path)


def _oracle(**options: str) -> EngineOracle:
    columns = {"k": t.Int(), "g": t.Int(), "a": t.string(), "n": t.Int()}
    return EngineOracle(columns, ["k"], options)


def _row(k: int = 1, g: int | None = None, a: str | None = None, n: int | None = None) -> dict[str, object]:
    return {"k": k, "g": g, "a": a, "n": n}


def _partial(**options: str) -> EngineOracle:
    groups = {"fields.g.sequence-group": "a,n", "fields.n.aggregate-function": "sum"}
    return _oracle(**{"merge-engine": "partial-update", **groups, **options})


def test_a_retraction_of_an_equal_number_counts_as_newer_once_a_commit_has_merged_it_with_an_addition() -> None:
    options = {"merge-engine": "aggregation", "sequence.field": "g", "sequence.auto-padding": "row-kind-flag"}
    options["fields.default-aggregate-function"] = "last_value"
    later = [("-D", _row(g=7, n=8)), ("+I", _row(g=2, n=8))]
    one, apart = _oracle(**options), _oracle(**options)
    for oracle, flushes in ((one, [later]), (apart, [[change] for change in later])):
        oracle.flush([("+I", _row(g=7, n=1))])
        for flush in flushes:
            oracle.flush(flush)
    assert (one.visible(), apart.visible()) == ([_row(g=7)], [_row(g=7, n=1)])


def test_the_oracle_hides_a_key_that_was_only_taken_back() -> None:
    oracle = _oracle(**{"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
    oracle.flush([("-D", _row(n=3)), ("-U", _row(n=4))])
    assert oracle.visible() == []
    oracle.flush([("+I", _row(n=10))])
    assert oracle.visible() == [_row(n=3)]


def test_the_oracle_takes_back_from_older_flushes_what_comes_first_in_a_flush() -> None:
    oracle = _partial()
    oracle.flush([("+I", _row(g=1, a="x", n=10))])
    oracle.flush([("-U", _row(g=2, a="x", n=10)), ("+U", _row(g=2, a="y", n=25))])
    assert oracle.visible() == [_row(g=2, a="y", n=25)]


def test_the_oracle_begins_anew_after_a_removal_that_shares_a_flush_with_what_follows() -> None:
    oracle = _partial(**{"partial-update.remove-record-on-sequence-group": "g"})
    oracle.flush([("+I", _row(g=5, a="x", n=10))])
    oracle.flush([("-D", _row(g=6)), ("+I", _row(g=7, n=1))])
    assert oracle.visible() == [_row(g=7, n=1)]


def test_the_oracle_puts_late_versions_before_the_others() -> None:
    oracle = _partial(**{"fields.a.aggregate-function": "listagg"})
    for g, a in ((10, "first"), (5, "late"), (10, "tie"), (7, "later")):
        oracle.flush([("+I", _row(g=g, a=a))])
    assert oracle.visible() == [_row(g=10, a="later,late,first,tie")]


def test_the_oracle_orders_by_sequence_fields_before_arrival() -> None:
    oracle = _oracle(**{"sequence.field": "g,n", "sequence.field.sort-order": "descending"})
    oracle.flush([("+I", _row(g=None, a="null")), ("+I", _row(g=3, a="three")), ("+I", _row(g=2, n=1, a="two"))])
    oracle.flush([("-D", _row(g=2, n=None))])
    assert oracle.visible() == [_row(g=2, n=1, a="two")]


def test_the_oracle_shows_no_row_that_was_taken_back_more_often_than_added() -> None:
    oracle = CountingOracle(["a"])
    oracle.flush([("+I", {"a": "x"}), ("+U", {"a": "x"}), ("-D", {"a": "y"})])
    assert oracle.visible() == [{"a": "x"}, {"a": "x"}]
